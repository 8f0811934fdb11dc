// Products of some rows in fast mode against those of deterministic mode, which others hold against the reference: each
// format that kernels know, every number of rows around those at which another kernel runs, ragged shapes, long rows
// that blocks share. Equal calls have equal bits. Without a GPU it is skipped, saying why.
#include <cmath>

#include "rows_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

Backend& fast() {
  static const std::unique_ptr<Backend> backend = make_backend({.device = "cuda", .threads = 1, .deterministic = false});
  return *backend;
}

std::vector<float> wide(const std::vector<float>& words, bool narrow, int64_t n, int64_t m) {
  if (!narrow) return words;
  std::vector<uint16_t> halves(words.size() * 2);
  std::memcpy(halves.data(), words.data(), words.size() * 4);
  std::vector<float> to;
  for (int64_t row = 0; row < m; ++row)
    for (int64_t i = 0; i < n; ++i) to.push_back(bf16_to_f32(halves[static_cast<size_t>(row * ((n + 1) / 2 * 2) + i)]));
  return to;
}

void check(const Shape& s, const Way& way) {
  const Matrix l(s);
  const int64_t most = 140, n = l.desc.n();
  const Inputs all = random_inputs(s, way, 0, most);
  for (const int64_t m : {9, 15, 16, 17, 31, 32, 33, 48, 64, 65, 96, 97, 128, 129}) {
    if (is_short() && m % 16 != 1) continue;
    const int64_t begin = pick(0, most - m);
    const std::vector<float> want = wide(product(gpu(), l, all, way, begin, m), way.narrow_out, n, m);
    const std::vector<float> first = product(fast(), l, all, way, begin, m), got = wide(first, way.narrow_out, n, m);
    const std::vector<float> again = product(fast(), l, all, way, begin, m);
    const bool same = std::memcmp(first.data(), again.data(), first.size() * 4) == 0;
    double scale = 1, worst = 0;
    for (const float v : want) scale = std::max(scale, static_cast<double>(std::fabs(v)));
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = std::fabs(static_cast<double>(want[i]) - got[i]) - (way.narrow_out || s.gated ? 0.01 * std::fabs(want[i]) : 0);
      worst = off <= worst ? worst : off == off ? off : 1e30;
    }
    // Above the rows that kernels of codes take, weights are rounded to bf16; so may gate and up be; and a normed value
    // may be rounded to its other neighbour.
    const bool rounded = s.type != FileType::bf16 || s.gated;
    const bool close = worst <= (rounded ? 4e-3 : way.norm ? 1e-3 : 3e-5) * scale;
    if (!close || !same)
      std::printf("%s group %d, n %d, k %d, gated %d, norm %d, narrow %d %d, bias %d, adds %d, m %d: off by %g of %g%s\n", info(s.type).name, s.group, static_cast<int>(s.n),
                  static_cast<int>(s.k), s.gated, way.norm, way.narrow_x, way.narrow_out, way.bias, way.accumulate, static_cast<int>(m), worst, scale, same ? "" : ", and not the same again");
    CHECK(close && same);
  }
}

TEST(some_rows_of_every_format) {
  int i = 0;
  for (const auto& [type, group] : formats)
    for (const int64_t k : {int64_t{256} * pick(1, 3), int64_t{4096}}) {
      const Shape s{type, group, i % 2 ? pick(1, 400) : 16 * pick(1, 40), k, i % 3 == 1};
      check(s, way_at(i, s));
      ++i;
    }
}

TEST(some_rows_of_bf16) {
  for (int i = 0; i < (is_short() ? 3 : 12); ++i) {
    const Shape s{FileType::bf16, 0, i % 2 ? pick(1, 600) : 64 * pick(1, 40), i % 4 == 3 ? 14336 : i % 4 == 2 ? pick(1, 3000) : 64 * pick(1, 64), i % 3 == 1};
    check(s, way_at(i, s));
  }
}

TEST(some_rows_of_many_tiles) {  // fewer than there are blocks, more, and so many that most are one block's
  for (const bool gated : {false, true})
    for (const int64_t n : {9000, 20000, 40000}) {
      const Shape s{FileType::bf16, 0, n, 256, gated};
      check(s, way_at(gated, s));
    }
}

// A layer's products, one after another: where rows are normed on their way between them, and where not.
void layer(int64_t m, int64_t dim, int64_t ffn, int64_t next, FileType type) {
  const Matrix out({type, 0, dim, 512, false}), up({type, 0, ffn, dim, true}), down({type, 0, dim, ffn, false}), qkv({type, 0, next, dim, false});
  const auto random = [](int64_t n, float low, float high) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& e : v) e = uniform(low, high);
    return v;
  };
  const std::vector<float> start = random(m * dim, -1, 1), up_norm = random(dim, 0.5f, 1.5f), qkv_norm = random(dim, 0.5f, 1.5f);
  std::vector<uint16_t> attended;
  for (const float v : random(m * 512, -1, 1)) attended.push_back(f32_to_bf16(v));
  const auto run = [&](Backend& on) {
    On<float> x(start), to(static_cast<size_t>(m * next), 0x7f), first(up_norm), second(qkv_norm), room(static_cast<size_t>(m * std::max(dim, ffn)), 0xff);
    On<uint16_t> from(attended), inner(static_cast<size_t>(m * ffn), 0x7f);
    size_t bytes = 0;
    for (const Matrix* l : {&out, &up, &down, &qkv}) bytes = std::max(bytes, on.exec().kernels->matmul_workspace(l->desc, m));
    On<unsigned char> work(bytes, 0xff);
    CHECK(x.read() == start);  // all that was put there is there
    const auto product = [&](const Matrix& l, const void* rows, void* result, const On<float>* norm) {
      MatmulArgs a{&l.desc, l.packed.at(), static_cast<const float*>(rows), l.desc.k, static_cast<float*>(result), l.desc.n(), m, nullptr, !norm, work.at()};
      a.narrow_x = !norm;
      a.narrow_out = l.desc.glu != Glu::none;
      if (norm) a.norm_weight = norm->at(), a.norm_eps = 1e-5f, a.normed = room.at();
      on.exec().kernels->matmul(on.exec(), a);
    };
    product(out, from.at(), x.at(), nullptr);
    product(up, x.at(), inner.at(), &first);
    product(down, inner.at(), x.at(), nullptr);
    product(qkv, x.at(), to.at(), &second);
    unsigned char last;
    on.exec().device->download(&last, work.at(), 1);
    work.read();
    std::vector<float> all = x.read(), more = to.read();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<float> want = run(gpu()), got = run(fast()), again = run(fast());
  // The rows between are rounded to bf16, some to their other neighbour.
  double of_want[2] = {}, off[2] = {};
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t which = i >= static_cast<size_t>(m * dim);
    of_want[which] += static_cast<double>(want[i]) * want[i];
    off[which] += (static_cast<double>(want[i]) - got[i]) * (static_cast<double>(want[i]) - got[i]);
  }
  for (int i = 0; i < 2; ++i) off[i] = std::sqrt(off[i] / of_want[i]);
  // Kernels that make bf16 of codes round them, too.
  const bool bf16 = type == FileType::bf16, close = off[0] <= (bf16 ? 5e-3 : 1.5e-2) && off[1] <= (bf16 ? 8e-3 : 4e-2), same = std::memcmp(got.data(), again.data(), got.size() * 4) == 0;
  if (!close || !same)
    std::printf("layer of %s, m %d, dim %d, ffn %d, next %d: off by %g and %g of them in the mean%s\n", info(type).name, static_cast<int>(m), static_cast<int>(dim), static_cast<int>(ffn),
                static_cast<int>(next), off[0], off[1], same ? "" : ", and not the same again");
  CHECK(close && same);
}

TEST(some_rows_through_a_layer) {
  for (const FileType type : {FileType::bf16, FileType::w8, FileType::w4z})
    for (const int64_t m : {9, 24, 32, 33, 64, 65}) {
      layer(m, 1024, 1536, 1536, type);
      layer(m, 128 * pick(1, 20), 128 * pick(1, 9) + (m % 2 ? 64 : 0), pick(1, 700), type);
      layer(m, 576, 1536, 960, type);
      layer(m, 1024, 1532, 256, type);  // rows that are made anew where the next product's would go
    }
  for (const FileType type : {FileType::bf16, FileType::w4})
    for (const int64_t m : {9, 17, 32}) {
      layer(m, 4096, 1024, 512, type);  // tiles that are whole numbers of shares
      layer(m, 512, 8192, 6400, type);  // tiles that one block has alone, and tiles that some share
    }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
