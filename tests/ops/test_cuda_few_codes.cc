// Products of 9 to 64 rows with coded weights in fast mode against sums in double, and equal calls against each other:
// every format, ragged shapes, inputs as the model gives them. Without a GPU it is skipped, saying why.
#include <cstdio>

#include "backend/cpu/ops.h"
#include "backend/cuda/layout.h"
#include "base/half.h"
#include "gpu_rig.h"
#include "random_matrix.h"

using namespace orlop;
using namespace orlop::test;

namespace {

struct Case {
  FileType type;
  int32_t group;
  int64_t n, k, m;
  Glu glu;
  bool narrow_x, narrow_out, accumulate, bias, norm;
  Compute compute = Compute::bf16;
};

void product(const Case& s) {
  RandomMatrix l(s.type, s.group, s.n, s.k, s.glu);
  l.desc.compute = s.compute;
  const Kernels& kernels = *gpu().exec().kernels;
  const On<unsigned char> packed(kernels.linear_bytes(l.desc), 0xff);
  kernels.linear_pack(l.desc, l.source, 0, kernels.linear_tiles(l.desc), packed.at());
  gpu().exec().device->loaded();
  const int64_t words = s.narrow_out ? (s.n + 1) / 2 : s.n;
  std::vector<float> x(static_cast<size_t>(s.m * s.k)), start(static_cast<size_t>(s.m * words)), bias(static_cast<size_t>(2 * s.n)), weight(static_cast<size_t>(s.k));
  for (float& v : x) v = uniform(-1, 1);
  for (float& v : start) v = s.narrow_out ? 0.0f : uniform(-1, 1);
  for (float& v : bias) v = uniform(-1, 1);
  for (float& v : weight) v = uniform(0.5f, 1.5f);
  std::vector<uint16_t> narrow;
  for (const float v : x) narrow.push_back(f32_to_bf16(v));
  std::vector<float> input = x;
  if (s.norm) cpu::ref::norm({x.data(), s.k, weight.data(), 1e-5f, input.data(), s.k, s.m, s.k}, 0, s.m);
  for (float& v : input) v = bf16_to_f32(f32_to_bf16(v));
  const auto once = [&] {
    const On<float> wide(x), out(start), device_bias(bias), device_weight(weight), room(x.size(), 0xff);
    const On<uint16_t> halves(narrow);
    const On<unsigned char> work(kernels.matmul_workspace(l.desc, s.m), 0xff);
    MatmulArgs a{&l.desc, packed.at(), s.narrow_x ? reinterpret_cast<const float*>(halves.at()) : wide.at(), s.k, out.at(), s.narrow_out ? 2 * words : s.n, s.m,
                 s.bias ? device_bias.at() : nullptr, s.accumulate, work.at()};
    a.narrow_x = s.narrow_x;
    a.narrow_out = s.narrow_out;
    if (s.norm) a.norm_weight = device_weight.at(), a.norm_eps = 1e-5f, a.normed = room.at();
    kernels.matmul(gpu().exec(), a);
    work.read();
    return out.read();
  };
  const std::vector<float> got = once(), again = once();
  CHECK(std::memcmp(got.data(), again.data(), got.size() * 4) == 0);
  std::vector<uint16_t> halves(got.size() * 2);
  std::memcpy(halves.data(), got.data(), got.size() * 4);
  double scale = 0, worst = 0;
  int64_t wrong = 0, first_row = -1, first_column = -1;
  const int64_t each = s.n * s.k * s.m > int64_t{1} << 28 ? 97 : 1;  // of large ones every so many: all rows of a tile in turn
  for (int64_t n = 0; n < s.n; n += each)
    for (int64_t r = 0; r < s.m; ++r) {
      const double want = l.output(n, [&](int64_t i) { return input[static_cast<size_t>(r * s.k + i)]; }, s.bias ? &bias : nullptr) +
                          (s.accumulate ? double{start[static_cast<size_t>(r * words + n)]} : 0.0);
      const double have = s.narrow_out ? double{bf16_to_f32(halves[static_cast<size_t>(r * 2 * words + n)])} : double{got[static_cast<size_t>(r * words + n)]};
      scale = std::max(scale, std::fabs(want));
      const double off = std::fabs(want - have) - (s.narrow_out ? 0.004 * std::fabs(want) : 0.0);
      if (!(off <= worst)) worst = off;
      if (!(off <= 1e-2 * std::sqrt(static_cast<double>(s.k)))) {
        if (wrong++ == 0) first_row = r, first_column = n;
      }
    }
  // A normed value may be rounded to its other neighbour; where others are faster (few_codes_pays()), weights are rounded, too.
  const orlop::cuda::Piece piece = orlop::cuda::piece_of(l.desc, 0, 0);
  const bool exact = !piece.tiled || (s.m <= 32 && piece.sub == 1 && (!piece.has_min || piece.codes == orlop::cuda::Codes::u4));
  const bool close = worst <= (!exact ? 5e-3 : s.norm ? 1e-3 : 2e-5) * scale;
  if (!close)
    std::printf("%s group %d, m %d, n %d, k %d, gate %d: off by %g of %g; %d far off, the first in row %d, column %d\n", info(s.type).name, s.group, static_cast<int>(s.m), static_cast<int>(s.n), static_cast<int>(s.k), static_cast<int>(s.glu), worst,
                scale, static_cast<int>(wrong), static_cast<int>(first_row), static_cast<int>(first_column));
  CHECK(close);
}

TEST(products_of_few_rows) {
  const std::pair<FileType, int32_t> types[] = {{FileType::w4, 128}, {FileType::w4, 0}, {FileType::w4, 32}, {FileType::w4z, 128}, {FileType::w4z, 64}, {FileType::q4_0, 0}, {FileType::q4_k, 0},
                                                {FileType::q2_k, 0}, {FileType::q3_k, 0}, {FileType::w8, 0}, {FileType::w8, 128}, {FileType::w8z, 0}, {FileType::w8z, 32}, {FileType::q8_0, 0},
                                                {FileType::q6_k, 0}, {FileType::q5_1, 0}, {FileType::f8, 0}, {FileType::f8, 128}};
  int i = 0;
  for (const auto& [type, group] : types)
    for (const int64_t m : {9, 16, 17, 32, 33, 48, 64}) {
      const int64_t block = has_groups(type) ? 1 : info(type).block_elems;
      const int64_t k = i % 5 == 4 ? 4096 : block * pick(1, 1500 / block), n = i % 2 ? pick(1, 200) : 16 * pick(1, 12);
      const Glu glu = i % 3 == 1 ? (i % 2 ? Glu::gelu_tanh : Glu::silu) : Glu::none;
      const bool narrow_out = glu != Glu::none && i % 4 == 1, norm = i % 4 == 2;
      product({type, group, n, k, m, glu, !norm && i % 2 == 0, narrow_out, !narrow_out && i % 3 == 0, i % 5 < 2, norm});
      ++i;
    }
}

TEST(long_rows) {
  for (const auto& [type, group] : {std::pair{FileType::w4, 128}, std::pair{FileType::w8, 0}, std::pair{FileType::w4z, 128}})
    for (const int64_t m : {16, 32, 64}) product({type, group, 200, 14336, m, Glu::none, true, false, true, false, false});
}

// Weights in groups meet activations in bf16 there, too: by the same kernels, whose sums are exact.
TEST(groups_under_a8) {
  for (const auto& [type, group] : {std::pair{FileType::w4, 128}, std::pair{FileType::w4z, 128}, std::pair{FileType::w8, 128}})
    for (const int64_t m : {9, 32}) product({type, group, 300, 1024, m, Glu::silu, true, true, false, false, false, Compute::a8});
}

// A layer of Llama 8B: tiles that several blocks share, and more tiles than blocks.
TEST(a_layer) {
  for (const auto& [type, group] : {std::pair{FileType::w4, 128}, std::pair{FileType::w4z, 128}, std::pair{FileType::w8, 128}, std::pair{FileType::f8, 0}})
    for (const int64_t m : {16, 32}) {
      if (m == 16 && type != FileType::w4) continue;
      product({type, group, 6144, 4096, m, Glu::none, false, false, false, false, true});
      product({type, group, 4096, 4096, m, Glu::none, true, false, true, false, false});
      product({type, group, 14336, 4096, m, Glu::silu, false, true, false, false, true});
      product({type, group, 4096, 14336, m, Glu::none, true, false, true, false, false});
    }
}

// Long rows and several tiles for every block: rings come round within tiles and from one to the next.
TEST(a_head) {
  for (const auto& [type, group] : {std::pair{FileType::w8, 128}, std::pair{FileType::w8, 0}, std::pair{FileType::w4, 128}, std::pair{FileType::w4z, 128}})
    for (const int64_t m : {9, 16, 32}) product({type, group, 50000, 1024, m, Glu::none, true, false, false, false, false});
}

// Of one unit of k, and of some that are not whole; tiles of 128 rows and of 256, the last of them ragged.
TEST(more_tiles_than_blocks) {
  for (const auto& [type, group] : {std::pair{FileType::w4, 128}, std::pair{FileType::w4z, 128}, std::pair{FileType::w8, 0}, std::pair{FileType::w8, 64}, std::pair{FileType::f8, 0}})
    for (const int64_t k : {64, 128, 392, 1032})
      for (const int64_t n : {int64_t{1000}, int64_t{128 * 70 + 5}, int64_t{256 * 200 + 17}}) {
        const int64_t m = k % 128 ? 32 : pick(9, 31);
        product({type, group, n, k, m, n % 3 ? Glu::none : Glu::silu, true, false, n % 2 == 0, true, false});
      }
}

}  // namespace

int main(int count, char** values) {
  in_fast_mode = true;
  return gpu_test_main(count, values);
}
