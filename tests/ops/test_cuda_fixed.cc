// Products of many rows: a row has the bits that it has alone, whatever stands beside it and wherever. Each format
// that kernels know, ragged shapes, inputs of any kind. Without a GPU it is skipped, saying why.
#include <cstdio>

#include "base/half.h"
#include "gpu_rig.h"
#include "random_rows.h"

using namespace orlop;
using namespace orlop::test;

namespace {

struct Shape {
  FileType type;
  int32_t group;
  int64_t n, k;
  bool gated;
};

// Packed for the GPU; gate and up are as many rows each.
struct Matrix {
  LinearDesc desc;
  On<unsigned char> packed;
  static LinearDesc describe(const Shape& s) {
    LinearDesc d;
    d.k = s.k;
    d.compute = Compute::bf16;
    d.glu = !s.gated ? Glu::none : s.n % 2 ? Glu::gelu_tanh : Glu::silu;
    for (int p = 0; p < (s.gated ? 2 : 1); ++p) {
      d.type[p] = s.type;
      d.part_n[p] = s.n;
      d.group[p] = s.group;
      ++d.part_count;
    }
    return d;
  }
  explicit Matrix(const Shape& s) : desc(describe(s)), packed(gpu().exec().kernels->linear_bytes(desc), 0xff) {
    LinearSource source;
    std::vector<RandomRows> codes;
    std::vector<std::vector<unsigned char>> files;
    codes.reserve(2);
    for (int p = 0; p < desc.part_count; ++p) {
      if (has_groups(s.type)) {
        codes.emplace_back(s.type, s.n, s.k, s.group ? (s.k + s.group - 1) / s.group : 1);
        source.quant[p] = &codes.back();
      } else {
        files.push_back(random_rows(s.type, s.n, s.k));
        source.rows[p] = files.back().data();
        source.row_bytes[p] = files.back().size() / static_cast<size_t>(s.n);
      }
    }
    gpu().exec().kernels->linear_pack(desc, source, 0, gpu().exec().kernels->linear_tiles(desc), packed.at());
  }
};

struct Way {
  bool narrow_x, narrow_out, accumulate, bias, norm;
};

struct Inputs {
  std::vector<float> x, start, bias, weight;
  std::vector<uint16_t> narrow;
};

// Rows [begin, begin + m), in 32-bit words.
std::vector<float> product(const Matrix& l, const Inputs& all, const Way& way, int64_t begin, int64_t m) {
  const int64_t k = l.desc.k, n = l.desc.n(), words = way.narrow_out ? (n + 1) / 2 : n;
  const auto rows = [&](const auto& v, int64_t each) { return std::remove_cvref_t<decltype(v)>(v.begin() + begin * each, v.begin() + (begin + m) * each); };
  On<float> x(rows(all.x, k)), out(rows(all.start, words)), bias(all.bias), weight(all.weight), room(static_cast<size_t>(m * k), 0xff);
  On<uint16_t> narrow(rows(all.narrow, k));
  On<unsigned char> work(gpu().exec().kernels->matmul_workspace(l.desc, m), 0xff);
  MatmulArgs a{&l.desc, l.packed.at(), way.narrow_x ? reinterpret_cast<const float*>(narrow.at()) : x.at(), k, out.at(), way.narrow_out ? 2 * words : n, m,
               way.bias ? bias.at() : nullptr, way.accumulate, work.at()};
  a.narrow_x = way.narrow_x;
  a.narrow_out = way.narrow_out;
  if (way.norm) a.norm_weight = weight.at(), a.norm_eps = 1e-5f, a.normed = room.at();
  gpu().exec().kernels->matmul(gpu().exec(), a);
  work.read();
  return out.read();
}

// kind 0: numbers near one; 1: of any size, down to denormals; 2: infinities and NaN among them.
float any_value(int kind) {
  const float v = uniform(-1, 1);
  if (kind == 0) return v;
  if (kind == 2 && pick(0, 400) == 0) return pick(0, 1) ? INFINITY : NAN;
  return std::ldexp(v, static_cast<int>(pick(-140, 40)));
}

void rows_alone(const Shape& s, const Way& way, int kind) {
  const Matrix l(s);
  const int64_t most = 300, n = l.desc.n(), words = way.narrow_out ? (n + 1) / 2 : n;
  Inputs all;
  for (int64_t i = 0; i < most * s.k; ++i) all.x.push_back(any_value(kind));
  for (const float v : all.x) all.narrow.push_back(f32_to_bf16(v));
  for (int64_t i = 0; i < most * words; ++i) all.start.push_back(way.narrow_out ? 0.0f : uniform(-1, 1));
  for (int64_t i = 0; i < 2 * n; ++i) all.bias.push_back(uniform(-1, 1));
  for (int64_t i = 0; i < s.k; ++i) all.weight.push_back(uniform(0.5f, 1.5f));
  const std::vector<float> want = product(l, all, way, 0, most);
  int wrong = 0;
  const auto check = [&](int64_t begin, int64_t m) {
    const std::vector<float> got = product(l, all, way, begin, m);
    wrong += std::memcmp(got.data(), want.data() + begin * words, got.size() * 4) != 0;
  };
  for (const int64_t row : {int64_t{0}, pick(1, 127), pick(128, 255), pick(256, 298), most - 1}) check(row, 1);
  for (const int64_t m : {2, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 257}) check(pick(0, most - m), m);
  if (wrong)
    std::printf("%s group %d, n %d, k %d, gated %d, inputs %d: %d of 18 differ\n", info(s.type).name, s.group, static_cast<int>(s.n), static_cast<int>(s.k), s.gated, kind, wrong);
  CHECK(wrong == 0);
}

Way way_at(int i, const Shape& s) {
  const bool narrow_out = s.gated && i % 3 == 0, norm = i % 4 == 1;
  return {.narrow_x = !norm && i % 2 == 0, .narrow_out = narrow_out, .accumulate = !narrow_out && i % 5 == 0, .bias = i % 3 == 1, .norm = norm};
}

TEST(rows_alone_of_every_format) {
  const std::pair<FileType, int32_t> types[] = {{FileType::bf16, 0}, {FileType::q4_0, 0}, {FileType::q4_k, 0}, {FileType::q2_k, 0}, {FileType::q3_k, 0}, {FileType::q6_k, 0},
                                                {FileType::q8_0, 0}, {FileType::q5_1, 0}, {FileType::f8, 0}, {FileType::f8, 128}, {FileType::w4, 128}, {FileType::w4, 0},
                                                {FileType::w4z, 32}, {FileType::w8, 0}, {FileType::w8, 64}, {FileType::w8z, 128}};
  int i = 0;
  for (const auto& [type, group] : types)
    for (const int64_t k : {int64_t{256} * pick(1, 3), int64_t{4096}}) {
      const Shape s{type, group, i % 2 ? pick(1, 200) : 16 * pick(1, 20), k, i % 3 == 1};
      rows_alone(s, way_at(i, s), i % 3);
      ++i;
    }
}

TEST(rows_alone_where_nothing_is_whole) {
  const std::pair<FileType, int32_t> types[] = {{FileType::bf16, 0}, {FileType::f8, 0}, {FileType::w8, 0}, {FileType::w4, 64}, {FileType::w4z, 128}, {FileType::w8z, 32}};
  int i = 0;
  for (const auto& [type, group] : types)
    for (int round = 0; round < 3; ++round, ++i) {
      const Shape s{type, group, pick(1, 300), pick(1, 1500), i % 2 == 1};
      rows_alone(s, way_at(i, s), i % 3);
    }
}

TEST(rows_alone_of_long_rows) {
  for (const FileType type : {FileType::bf16, FileType::q4_k, FileType::q8_0}) {
    const Shape s{type, 0, pick(100, 200), 14336, false};
    rows_alone(s, way_at(2, s), 0);
  }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
