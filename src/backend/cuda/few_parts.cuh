// How products of few rows on Hopper share their work. Every multiprocessor has one block, every block an equal share of all
// there is to read: of the tiles of weights, one after another along k, a run of steps that begins and ends anywhere (Osama
// et al. 2023, stream-K). A tile that several have parts of is the one's that has its beginning, which comes last in that
// one's share: the others send it theirs through memory, most of them long before. It waits for them, but for none that was
// started after it: shares are counted from the last block.
#pragma once
#include <algorithm>

#include "backend/cuda/fixed_out.cuh"
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

constexpr int few_hopper_rows = 32;           // of activations, at most
constexpr int few_most_w = 2 * fixed_tile_w;  // rows of weights of a tile, at most

// Parts of tiles on their way: of each share one at most, that of the tile which it begins inside of. A place without a
// number holds one that is never sent: whoever takes a part leaves it so.
struct FewState {
  static constexpr uint32_t empty = 0xffffffffu;  // a NaN
  float4 parts[1];  // [shares][few_hopper_rows][few_most_w]; kernels with less take less of it
};

struct FewShares {
  FewState* state;
  int32_t steps, all;  // of a tile; of all tiles
};

// As many blocks as there are, or some fewer, if shares are equal then. least: steps of a block.
inline int64_t few_blocks(const FewShares& p, int64_t least, int64_t multiprocessors) {
  constexpr int64_t most_parts = 8;  // of a tile, or so
  const int64_t blocks = std::clamp<int64_t>(p.all / std::max<int64_t>(least, p.steps / most_parts), 1, multiprocessors);
  for (int64_t fewer = blocks; fewer > blocks * 15 / 16; --fewer)
    if (p.all % fewer == 0) return fewer;
  return blocks;
}

// Where a share begins, in steps; that of share gridDim.x is the end.
__device__ inline int share_begin(const FewShares& p, int share) {
  return static_cast<int>(static_cast<uint32_t>(p.all) * static_cast<uint32_t>(share) / gridDim.x);
}

// Parts of tiles of `rows` by `columns`, whose sums are [rows / fixed_tile_w][columns][fixed_pitch] in shared memory; `threads`
// pass them on, of which each has some items of four sums.
template <int threads, int rows, int columns>
struct FewParts {
  static constexpr int fours = rows / 4, size = columns * fours, items = size / threads;
  static constexpr int at_once = threads > 256 && items > 2 ? 2 : 4;  // parts: of so many threads registers are scarce

  __device__ static float4* place(float* sums, int at) {
    const int column = at / fours, row = at % fours * 4;
    return reinterpret_cast<float4*>(sums + (row / fixed_tile_w * columns + column) * fixed_pitch + row % fixed_tile_w);
  }

  // m: columns that are there.
  __device__ static void send(const FewShares& p, int m, int share, float* sums, int thread) {
    float4* const to = p.state->parts + share * int64_t{size};
#pragma unroll
    for (int i = 0; i < items; ++i)
      if (const int at = thread + i * threads; at < m * fours) {
        const float4 v = *place(sums, at);
        const auto number = [](float f) { return __float_as_uint(f) == FewState::empty ? __uint_as_float(0x7fffffffu) : f; };
        send_four(to + at, {number(v.x), number(v.y), number(v.z), number(v.w)});
      }
  }

  // Adds the parts that shares from `share` on have of the tile that ends with step `end`, in order.
  __device__ static void add(const FewShares& p, int m, int share, int end, float* sums, int thread) {
    float4 v[items];
#pragma unroll
    for (int i = 0; i < items; ++i)
      if (const int at = thread + i * threads; at < m * fours) v[i] = *place(sums, at);
    while (share_begin(p, share) < end) {
      float4 more[at_once][items] = {};
      unsigned missing = 0;
      int there = 0;
#pragma unroll
      for (int e = 0; e < at_once; ++e) {
        if (share_begin(p, share + e) >= end) break;
        ++there;
#pragma unroll
        for (int i = 0; i < items; ++i)
          if (thread + i * threads < m * fours) missing |= 1u << (e * items + i);
      }
      const unsigned all = missing;
      float4* const from = p.state->parts + share * int64_t{size} + thread;
      while (missing) {
#pragma unroll
        for (int e = 0; e < at_once; ++e)
#pragma unroll
          for (int i = 0; i < items; ++i)
            if (missing >> (e * items + i) & 1) more[e][i] = receive_four(from + e * size + i * threads);
#pragma unroll
        for (int e = 0; e < at_once; ++e)
#pragma unroll
          for (int i = 0; i < items; ++i)
            if (whole(more[e][i])) missing &= ~(1u << (e * items + i));
      }
      const float none = __uint_as_float(FewState::empty);
#pragma unroll
      for (int e = 0; e < at_once; ++e)
#pragma unroll
        for (int i = 0; i < items; ++i) {
          if (!(all >> (e * items + i) & 1)) continue;
          v[i] = {v[i].x + more[e][i].x, v[i].y + more[e][i].y, v[i].z + more[e][i].z, v[i].w + more[e][i].w};
          from[e * size + i * threads] = {none, none, none, none};
        }
      share += there;
    }
#pragma unroll
    for (int i = 0; i < items; ++i)
      if (const int at = thread + i * threads; at < m * fours) *place(sums, at) = v[i];
  }
};

}  // namespace orlop::cuda
