// Matrices of any format that the GPU packs, and their products with rows of any kind.
#pragma once
#include <cstdio>

#include "base/half.h"
#include "gpu_rig.h"
#include "random_rows.h"

namespace orlop::test {

struct Shape {
  FileType type;
  int32_t group;
  int64_t n, k;
  bool gated;
};

// Every format that kernels know, and its group.
inline constexpr std::pair<FileType, int32_t> formats[] = {{FileType::bf16, 0}, {FileType::q4_0, 0}, {FileType::q4_k, 0}, {FileType::q2_k, 0}, {FileType::q3_k, 0}, {FileType::q6_k, 0},
                                                       {FileType::q8_0, 0}, {FileType::q5_1, 0}, {FileType::f8, 0}, {FileType::f8, 128}, {FileType::w4, 128}, {FileType::w4, 0},
                                                       {FileType::w4z, 32}, {FileType::w8, 0}, {FileType::w8, 64}, {FileType::w8z, 128}};

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

// The i-th of a test's ways to ask for such a product.
inline Way way_at(int i, const Shape& s) {
  const bool narrow_out = s.gated && i % 3 == 0, norm = i % 4 == 1;
  return {.narrow_x = !norm && i % 2 == 0, .narrow_out = narrow_out, .accumulate = !narrow_out && i % 5 == 0, .bias = i % 3 == 1, .norm = norm};
}

struct Inputs {
  std::vector<float> x, start, bias, weight;
  std::vector<uint16_t> narrow;
};

// Rows [begin, begin + m), in 32-bit words, as a backend of the same GPU makes them.
inline std::vector<float> product(Backend& on, const Matrix& l, const Inputs& all, const Way& way, int64_t begin, int64_t m) {
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
  CHECK(a.out != nullptr && out.read().size() == static_cast<size_t>(m * words));  // all that was put there is there
  on.exec().kernels->matmul(on.exec(), a);
  unsigned char last;
  on.exec().device->download(&last, work.at(), 1);
  work.read();
  return out.read();
}

// kind 0: numbers near one; 1: of any size, down to denormals; 2: infinities and NaN among them.
inline float any_value(int kind) {
  const float v = uniform(-1, 1);
  if (kind == 0) return v;
  if (kind == 2 && pick(0, 400) == 0) return pick(0, 1) ? INFINITY : NAN;
  return std::ldexp(v, static_cast<int>(pick(-140, 40)));
}

inline Inputs random_inputs(const Shape& s, const Way& way, int kind, int64_t rows) {
  const int64_t n = s.n, words = way.narrow_out ? (n + 1) / 2 : n;
  Inputs all;
  for (int64_t i = 0; i < rows * s.k; ++i) all.x.push_back(any_value(kind));
  for (const float v : all.x) all.narrow.push_back(f32_to_bf16(v));
  for (int64_t i = 0; i < rows * words; ++i) all.start.push_back(way.narrow_out ? 0.0f : uniform(-1, 1));
  for (int64_t i = 0; i < 2 * n; ++i) all.bias.push_back(uniform(-1, 1));
  for (int64_t i = 0; i < s.k; ++i) all.weight.push_back(uniform(0.5f, 1.5f));
  return all;
}

}  // namespace orlop::test
