// Products of some rows in fast mode against those of deterministic mode, which others hold against the reference: each
// format that kernels know, every number of rows around those at which another kernel runs, ragged shapes, long rows
// that clusters share. Equal calls have equal bits. Without a GPU it is skipped, saying why.
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
    const int64_t begin = pick(0, most - m);
    const std::vector<float> want = wide(product(gpu(), l, all, way, begin, m), way.narrow_out, n, m);
    const std::vector<float> first = product(fast(), l, all, way, begin, m), got = wide(first, way.narrow_out, n, m);
    const std::vector<float> again = product(fast(), l, all, way, begin, m);
    const bool same = std::memcmp(first.data(), again.data(), first.size() * 4) == 0;
    double scale = 1, worst = 0;
    for (const float v : want) scale = std::max(scale, static_cast<double>(std::fabs(v)));
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = std::fabs(static_cast<double>(want[i]) - got[i]) - (way.narrow_out ? 0.008 * std::fabs(want[i]) : 0);
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

Way way_at(int i, const Shape& s) {
  const bool narrow_out = s.gated && i % 3 == 0, norm = i % 4 == 1;
  return {.narrow_x = !norm && i % 2 == 0, .narrow_out = narrow_out, .accumulate = !narrow_out && i % 5 == 0, .bias = i % 3 == 1, .norm = norm};
}

TEST(some_rows_of_every_format) {
  const std::pair<FileType, int32_t> types[] = {{FileType::bf16, 0}, {FileType::q4_0, 0}, {FileType::q4_k, 0}, {FileType::q2_k, 0}, {FileType::q3_k, 0}, {FileType::q6_k, 0},
                                                {FileType::q8_0, 0}, {FileType::q5_1, 0}, {FileType::f8, 0}, {FileType::f8, 128}, {FileType::w4, 128}, {FileType::w4, 0},
                                                {FileType::w4z, 32}, {FileType::w8, 0}, {FileType::w8, 64}, {FileType::w8z, 128}};
  int i = 0;
  for (const auto& [type, group] : types)
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

TEST(some_rows_of_many_tiles) {  // more than find room at once
  for (const bool gated : {false, true}) {
    const Shape s{FileType::bf16, 0, 40000, 256, gated};
    check(s, way_at(gated, s));
  }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
