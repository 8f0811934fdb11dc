// How few_codes() shares a product among blocks and warps. Plain arithmetic, on the host.
#pragma once
#include <algorithm>

#include "backend/cuda/few_codes.cuh"

namespace orlop::cuda::few {

// A kernel that there is: tiles of a group, warps of a block.
struct Kind {
  int tiles, warps;
};

struct Room {
  int shared;  // bytes that a block may have
  int (*clusters)(const void* of, int blocks);  // of so many blocks, side by side
  const void* of;
  Codes codes;
  bool tiled;
  int tile_bytes;           // in a stage
  int columns;              // eights of rows of activations
  int (*pitch)(int elements);  // of rows of activations
  Kind kinds[3];
  int kind_count;
};

// Bytes of shared memory for one way to share, or 0: it does not fit. `room`: what a block may have.
inline int lay_out(const StreamArgs& a, const Room& r, int room, Plan* p) {
  const int stage = p->tiles * r.tile_bytes, barriers = 8 * 2 * most_chunks;
  const int held = p->phases > 1 ? 2 : 1;  // slices
  p->pitch = r.pitch(p->slice * block_k);
  p->sums_bytes = a.m * sums_pitch(p->tiles) * 4;
  p->x_bytes = static_cast<int>(up(int64_t{a.m} * p->pitch * 2, 128));
  p->rings_at = held * p->x_bytes;
  const int turns = p->passes > 1;  // else sums go where the warp's ring was
  const int of_warp = ((room - p->rings_at - barriers) / p->warps - turns * p->sums_bytes) / 128 * 128;
  p->stages = std::min(most_stages, of_warp / stage);
  if (of_warp <= 0 || p->stages < 2) return 0;
  p->ring_bytes = static_cast<int>(up(p->stages * stage, 128));
  p->sums_at = p->rings_at + (turns ? p->warps * p->ring_bytes : 0);
  if (!turns) {
    p->ring_bytes = std::max(p->ring_bytes, static_cast<int>(up(p->sums_bytes, 128)));
    if (p->ring_bytes > of_warp) return 0;
    p->sums_bytes = p->ring_bytes;
  }
  p->barriers_at = p->sums_at + (turns ? p->warps * p->sums_bytes : p->warps * p->ring_bytes);
  return p->barriers_at + barriers;
}

// How long it is likely to take, in microseconds of an H200.
inline double time_of(const StreamArgs& a, const Room& r, const Plan& p, int bytes) {
  constexpr double clock = 1755;
  const int at_once = p.warps / p.along_k, all_groups = (p.groups + p.clusters - 1) / p.clusters;  // of a cluster
  const double tensor = p.tiles * r.columns * 8 * 6.1;  // cycles of a quarter of a multiprocessor, of block_k elements of a group
  const double made = r.codes == Codes::i8 ? 150 : 190;
  const double issued = 60 + 8 * r.columns + p.tiles * (12 * r.columns + made);
  const int slice_bytes = a.m * p.slice * block_k * 2;
  double time = 0;
  for (int left = all_groups; left > 0; left -= at_once) {
    const int groups = std::min(left, at_once), active = groups * p.along_k, quarter = (active + 3) / 4;
    const double step = std::max({tensor + 0.7 * issued + 150, quarter * tensor * 1.08, quarter * issued * 1.15}) / clock;
    const double of_block = static_cast<double>(groups) * p.each * p.tiles * r.tile_bytes;
    const double in_flight = active * (p.stages - 0.5) * p.tiles * r.tile_bytes;
    const double reading = std::max(of_block * p.clusters * p.split / 4.2e6, of_block / 45e3) * std::max(1.0, 38e3 / in_flight);
    const double rows = p.phases > 1 ? p.phases * slice_bytes / 55e3 : 0;
    time += std::max({step * ((p.each + p.along_k - 1) / p.along_k), reading, rows}) + (p.phases > 1 ? 0.35 * p.phases : 0);
    const double each = static_cast<double>(groups) * a.m * p.tiles * 4 / (p.split * p.warps * 32);  // of a thread
    time += (p.split > 1 ? 0.7 : 0.4) + (p.passes > 1 ? 0.6 : 0.0) + std::max(1.0, each) * (0.2 + 0.05 * p.split * p.along_k);
  }
  return time + (2 * bytes > r.shared ? 3.0 : 1.8) + 0.5 + 0.7 * slice_bytes / 55e3;
}

// The way that is likely to be the fastest.
inline bool plan(const StreamArgs& a, const Room& r, Plan* best, size_t* shared) {
  const int blocks = static_cast<int>(a.l.k_padded / block_k);
  double least = 0;
  for (int kind = 0; kind < r.kind_count; ++kind)
    for (int split = 1; split <= std::min(8, blocks); ++split)
      for (int along_k = 1; along_k <= 8; ++along_k)
        for (int phases = 1; phases <= 16; phases *= 2) {
          Plan p{};
          p.tiles = r.kinds[kind].tiles;
          p.warps = r.kinds[kind].warps;
          p.split = split;
          p.along_k = along_k;
          p.blocks = blocks;
          p.each = (blocks + split - 1) / split;
          p.phases = phases;
          p.slice = static_cast<int>(up((p.each + phases - 1) / phases, along_k));
          if (p.slice * block_k > most_chunks * chunk_k || along_k > p.each || (phases > 1 && p.slice * (phases - 1) >= p.each)) continue;
          const int rows = a.glu ? p.tiles * 8 : p.tiles * 16, at_once = p.warps / along_k;
          p.groups = static_cast<int>((a.n + rows - 1) / rows);
          p.clusters = std::min(r.clusters(r.of, split), p.groups);
          p.passes = (p.groups + p.clusters * at_once - 1) / (p.clusters * at_once);
          // A half of x would have slices of different lengths by turns, and barriers of chunks count turns.
          if (phases > 2 && p.passes > 1) continue;
          // All that there is; or as much as leaves room for the next kernel's block beside this one's.
          const bool beside = p.warps == 8 && p.tiles == 2 && r.columns <= 4;
          for (const int most : {r.shared, beside ? r.shared / 2 - 1024 : 0}) {
            const int bytes = lay_out(a, r, most, &p);
            if (!bytes) continue;
            const double time = few::time_of(a, r, p, bytes);
            if (least == 0 || time < least) least = time, *best = p, *shared = static_cast<size_t>(bytes);
          }
        }
  return least > 0;
}

}  // namespace orlop::cuda::few
