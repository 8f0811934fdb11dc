// Products of 9 to 64 rows with weights of 8 bits (backend/cuda/few_codes.cuh) on the processor, a thread for each of the
// GPU's: codes without scales and with, however k is shared. Sanitizers see every address.
#include <cstdio>

#include "backend/cuda/few_codes_plan.h"
#include "few_codes_rig.h"

namespace orlop::test {
namespace {

using namespace orlop::cuda;
using namespace orlop::cuda::few;

template <Codes codes, Scales scales, int columns>
void run(const StreamArgs& a, int split, int along_k, int clusters, int phases, int most) {
  constexpr int tiles = 2, few_warps = 8, threads = 32 * few_warps;
  using S = Stage<codes, scales>;
  const int rows = a.glu ? tiles * 8 : tiles * 16;
  Plan p{};
  p.tiles = tiles;
  p.warps = few_warps;
  p.split = split;
  p.along_k = along_k;
  p.clusters = clusters;
  p.groups = static_cast<int>((a.n + rows - 1) / rows);
  p.passes = (p.groups + clusters * (few_warps / along_k) - 1) / (clusters * (few_warps / along_k));
  p.blocks = static_cast<int>(a.l.k_padded / block_k);
  p.each = (p.blocks + split - 1) / split;
  p.phases = phases;
  p.slice = static_cast<int>(up((p.each + phases - 1) / phases, along_k));
  const int bytes = lay_out(a, {0, nullptr, nullptr, codes, S::tiled, S::tile_bytes, columns, x_pitch<codes, S::tiled>, {}, 0}, most, &p);
  CHECK(bytes > 0 && bytes <= most);
  gridDim.x = static_cast<unsigned>(split * clusters);
  for (unsigned cluster = 0; cluster < static_cast<unsigned>(clusters); ++cluster) {  // one after another: they share nothing
    EmulatedCluster together(split * threads);
    std::vector<std::unique_ptr<EmulatedBlock>> of;
    for (int b = 0; b < split; ++b) {
      of.push_back(std::make_unique<EmulatedBlock>(static_cast<size_t>(bytes), threads, cluster * static_cast<unsigned>(split) + static_cast<unsigned>(b)));
      std::memset(of.back()->memory.get(), 0xff, static_cast<size_t>(bytes));  // NaN, of any type
      of.back()->cluster = &together;
      together.blocks.push_back(of.back().get());
    }
    run_blocks(of, threads, [&] { products<codes, scales, tiles, columns, few_warps>(a, p); });
  }
}

template <Codes codes, Scales scales>
void run(const StreamArgs& a, int split, int along_k, int clusters, int phases, int most) {
  if (a.m > 32) return run<codes, scales, 8>(a, split, along_k, clusters, phases, most);
  if (a.m > 16) return run<codes, scales, 4>(a, split, along_k, clusters, phases, most);
  run<codes, scales, 2>(a, split, along_k, clusters, phases, most);
}
void run(const StreamArgs& a, int split, int along_k, int clusters, int phases, int most) {
  const Piece& l = a.l;
  if (l.codes == Codes::e4m3)
    return !l.tiled ? run<Codes::e4m3, Scales::none>(a, split, along_k, clusters, phases, most) : run<Codes::e4m3, Scales::one>(a, split, along_k, clusters, phases, most);
  return !l.tiled ? run<Codes::i8, Scales::none>(a, split, along_k, clusters, phases, most) : run<Codes::i8, Scales::one>(a, split, along_k, clusters, phases, most);
}

struct Case {
  FileType type;
  int32_t group, m;
  int64_t n, k;
  Glu glu;
  bool bias, narrow, add;
  int split, along_k, clusters, phases, most;
};

void product(const Case& s) {
  char how[64];
  std::snprintf(how, sizeof how, "split %d x %d", s.split, s.along_k);
  few_product({s.type, s.group, s.m, s.n, s.k, s.glu, s.bias, s.narrow, s.add}, how, [&](const StreamArgs& a) { run(a, s.split, s.along_k, s.clusters, s.phases, s.most); });
}

TEST(every_kind_of_code) {
  constexpr int all = 227 << 10;
  const Case cases[] = {
      {FileType::w8, 128, 9, 70, 304, Glu::none, true, false, true, 1, 2, 1, 1, all},
      {FileType::w8, 128, 17, 33, 640, Glu::silu, true, true, false, 2, 4, 1, 1, all},
      {FileType::f8, 128, 16, 64, 384, Glu::none, false, false, false, 1, 4, 1, 1, all},
      {FileType::f8, 64, 12, 40, 256, Glu::gelu_tanh, false, true, false, 1, 4, 1, 1, all},
      {FileType::w8, 0, 9, 50, 400, Glu::silu, true, false, true, 2, 2, 1, 1, all},
      {FileType::w8, 128, 20, 32, 296, Glu::none, true, false, false, 1, 8, 1, 1, all},
      {FileType::f8, 0, 10, 40, 136, Glu::none, false, false, false, 1, 2, 1, 1, all},
      {FileType::f8, 128, 9, 32, 256, Glu::none, false, false, true, 2, 1, 1, 1, all},
  };
  for (const Case& s : cases) product(s);
}

// Several passes; slices of activations; blocks and warps that have no part of k; rings of two stages.
TEST(however_work_is_shared) {
  const Case cases[] = {
      {FileType::w8, 128, 33, 96, 256, Glu::none, true, false, false, 1, 8, 1, 1, 227 << 10},
      {FileType::w8, 128, 9, 200, 384, Glu::silu, true, true, false, 2, 8, 2, 1, 227 << 10},
      {FileType::w8, 128, 10, 150, 1024, Glu::none, true, false, false, 3, 3, 2, 1, 227 << 10},
      {FileType::w8, 0, 9, 130, 640, Glu::none, true, false, true, 4, 4, 1, 1, 100 << 10},
      {FileType::w8, 0, 9, 130, 640, Glu::none, true, false, true, 2, 8, 1, 2, 150 << 10},
      {FileType::w8, 128, 9, 50, 1000, Glu::none, true, false, true, 1, 2, 1, 3, 227 << 10},
      {FileType::w8, 0, 17, 70, 904, Glu::silu, false, false, true, 2, 4, 1, 2, 227 << 10},
      {FileType::w8, 64, 10, 300, 640, Glu::none, false, false, false, 1, 4, 1, 2, 227 << 10},
      {FileType::w8, 128, 9, 60, 128, Glu::none, true, false, true, 2, 2, 1, 1, 80 << 10},
  };
  for (const Case& s : cases) product(s);
}

// What is planned for large matrices: where slices of activations come again, each has a half of its own.
template <Codes codes, Scales scales>
void check_plans(FileType type, int32_t group) {
  using S = Stage<codes, scales>;
  int planned = 0, sliced = 0;
  for (const auto& [n, k, gated] : {std::tuple{21504, 5376, true}, {8192, 29568, false}, {25600, 5120, true}, {128256, 4096, false}, {14336, 4096, true}, {4096, 14336, false}})
    for (int m = 9; m <= 64; ++m) {
      LinearDesc d;
      d.k = k;
      d.part_count = 1;
      d.type[0] = type;
      d.group[0] = group;
      d.part_n[0] = gated ? 2 * n : n;
      StreamArgs a{};
      a.l = piece_of(d, 0, 0);
      a.n = n;
      a.m = m;
      a.glu = static_cast<int32_t>(gated ? Glu::silu : Glu::none);
      const Room room{227 << 10, [](const void*, int blocks) { return blocks == 8 ? 15 : blocks == 4 ? 30 : 132 / blocks; }, nullptr, codes, S::tiled, S::tile_bytes,
                      m > 32 ? 8 : m > 16 ? 4 : 2, x_pitch<codes, S::tiled>, {{2, 8}, {4, 8}, {2, 16}}, m > 32 ? 1 : 3};
      Plan p{};
      size_t shared = 0;
      if (!plan(a, room, &p, &shared)) continue;
      ++planned;
      sliced += p.phases > 1 && p.passes > 1;
      CHECK(p.phases <= 2 || p.passes == 1);
      CHECK(shared <= size_t{227} << 10);
    }
  std::printf("  %s: %d planned, %d of them in slices that come again\n", info(type).name, planned, sliced);
  CHECK(planned > 0);
}

TEST(plans_of_large_matrices) {
  check_plans<Codes::i8, Scales::none>(FileType::w8, 0);
  check_plans<Codes::i8, Scales::one>(FileType::w8, 128);
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::test_main(count, values); }
