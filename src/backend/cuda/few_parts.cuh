// How products of few rows on Hopper share their work. Every multiprocessor has one block, every block an equal share of all
// there is to read: of the tiles of weights, one after another along k, a run of steps that begins and ends anywhere (Osama
// et al. 2023, stream-K). A tile that several have parts of is the one's that has its beginning, which comes last in that
// one's share: the others send it theirs through memory, most of them long before. It waits for them, but for none that was
// started after it: shares are counted from the last block. Where every tile is a whole number of shares, which end
// together, each of them adds up its part of the rows; then blocks wait for each other.
#pragma once
#include <algorithm>

#include "backend/cuda/fixed_out.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/stream_order.cuh"

namespace orlop::cuda {

constexpr int few_hopper_rows = 32;           // of activations, at most
constexpr int few_most_w = 2 * fixed_tile_w;  // rows of weights of a tile, at most

// Parts of tiles on their way: of each share one at most, that of the tile which it begins inside of, or, where each adds up
// some rows, that of its only tile. A place without a number holds one that is never sent: whoever takes a part leaves it so.
struct FewState {
  static constexpr uint32_t empty = 0xffffffffu;  // a NaN
  float4 parts[1];  // [shares][few_hopper_rows][few_most_w]; kernels with less take less of it
};

struct FewShares {
  FewState* state;
  int32_t steps, all;  // of a tile; of all tiles
  int32_t parts;       // shares that a tile is, each of which adds up some rows; 0: the first adds up all
  int32_t ahead;       // steps' weights on their way at a time
};

// A norm without a kernel of its own: the product that adds to the rows leaves them multiplied by the norm's weights, in
// bf16, and sums of their squares; the one that takes them scales what it makes of them.
struct FewNorm {
  __nv_bfloat16* rows = nullptr;   // [m, stride]
  float* squares = nullptr;        // [tiles][m], tiles of fixed_tile_w
  const float* weight = nullptr;   // [k]
  int64_t stride = 0;
  int32_t tiles = 0;
  float eps = 0;
};

// What all of its kernels are told first.
struct FewArgs {
  StreamArgs a;
  FewNorm taken, left;  // what x lacks, and what is left for the next product; rows null: nothing
  FewShares shares;
};

// Steps whose weights, so many bytes each, are on their way at a time: what one multiprocessor has beyond that only makes
// others wait, and its own activations, which come after. Fewer than a ring's stages: the ring's phases are waited for.
constexpr int few_ahead(int64_t step_bytes) {
  constexpr int64_t bytes = 48 << 10;
  return static_cast<int>(std::max<int64_t>(2, bytes / step_bytes));
}

// Sets `parts` and `ahead`. Blocks: as many as there are, or some fewer, if shares are equal then. least: steps of a block;
// step_bytes: of its weights.
inline unsigned few_blocks(int64_t multiprocessors, bool may_wait, FewShares* p, int64_t least, int64_t step_bytes) {
  constexpr int64_t most_parts = 8;  // of a tile, or so
  p->ahead = few_ahead(step_bytes);
  int64_t blocks = std::clamp<int64_t>(p->all / std::max<int64_t>(least, p->steps / most_parts), 1, multiprocessors);
  for (int64_t fewer = blocks; fewer > blocks * 15 / 16; --fewer)
    if (p->all % fewer == 0) {
      blocks = fewer;
      break;
    }
  const int64_t share = p->all / blocks;
  p->parts = may_wait && p->all % blocks == 0 && p->steps % share == 0 && share < p->steps ? static_cast<int32_t>(p->steps / share) : 0;
  return static_cast<unsigned>(blocks);
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

  // What a share has of a tile, but for the columns that it adds up itself. m: columns that are there.
  __device__ static void send(const FewShares& p, int m, int share, const Share& own, float* sums, int thread) {
    float4* const to = p.state->parts + share * int64_t{size};
    const auto number = [](float f) { return __float_as_uint(f) == FewState::empty ? __uint_as_float(0x7fffffffu) : f; };
#pragma unroll
    for (int i = 0; i < items; ++i)
      if (const int at = thread + i * threads, column = at / fours; column < m && (column < own.begin || column >= own.end)) {
        const float4 v = *place(sums, at);
        send_four(to + at, {number(v.x), number(v.y), number(v.z), number(v.w)});
      }
  }

  // Adds up columns of a tile, in the order of the shares that have parts of it: from `share` on, up to step `end`.
  __device__ static void add(const FewShares& p, int mine, int share, int end, const Share& own, float* sums, int thread) {
    const int first = own.begin * fours + thread, last = own.end * fours;
    float4 v[items] = {};
    while (share_begin(p, share) < end) {
      float4 more[at_once][items] = {};
      unsigned sent = 0;
      int there = 0;
#pragma unroll
      for (int e = 0; e < at_once; ++e) {
        if (share_begin(p, share + e) >= end) break;
        ++there;
#pragma unroll
        for (int i = 0; i < items; ++i) {
          const int at = first + i * threads;
          if (at >= last) continue;
          if (share + e == mine)
            more[e][i] = *place(sums, at);
          else
            sent |= 1u << (e * items + i);
        }
      }
      float4* const from = p.state->parts + share * int64_t{size} + first;
      for (unsigned missing = sent; missing;) {
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
          v[i] = {v[i].x + more[e][i].x, v[i].y + more[e][i].y, v[i].z + more[e][i].z, v[i].w + more[e][i].w};
          if (sent >> (e * items + i) & 1) from[e * size + i * threads] = {none, none, none, none};
        }
      share += there;
    }
#pragma unroll
    for (int i = 0; i < items; ++i)
      if (const int at = first + i * threads; at < last) *place(sums, at) = v[i];
  }

  // A tile's sums to where they belong, or to who adds them up. begins, ends: whether this share has the tile's first
  // step, and its last; end: the step after it. scales: of rows that lack their norm. All threads, which meet at `barrier`.
  template <bool tiled>
  __device__ static void out(const FewArgs& p, int share, int tile, bool begins, bool ends, int end, float* sums, const float* scales, int thread, int barrier) {
    constexpr int blocks = rows / fixed_tile_w, at_once = columns * fixed_tile_w / 4 / threads;
    const StreamArgs& a = p.a;
    const int lane = thread % 32, block_rows = a.glu ? fixed_tile_w / 2 : fixed_tile_w, part = p.shares.parts ? share % p.shares.parts : 0;
    const int64_t n0 = int64_t{tile} * blocks * block_rows;
    float4 by[blocks] = {};  // a lane has the same four rows of weights of all columns
    if (p.left.rows)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        if (const int64_t n = n0 + b * fixed_tile_w; n < a.n) by[b] = *reinterpret_cast<const float4*>(p.left.weight + n + 4 * lane);
    const Share own = p.shares.parts ? Share{a.m * part / p.shares.parts, a.m * (part + 1) / p.shares.parts} : Share{0, begins ? a.m : 0};
    const bool others = !(begins && ends);
    if (others && (p.shares.parts || !begins)) send(p.shares, a.m, share, own, sums, thread);
    if (own.begin == own.end) return;
#pragma unroll 1
    for (int b = 0; b < blocks; ++b) {
      const float* const from = sums + (b * columns + own.begin) * fixed_pitch;
      const auto value = [&](int at) {
        const float4 v = *reinterpret_cast<const float4*>(from + at);
        if (!p.taken.squares) return v;
        const float scale = scales[own.begin + at / fixed_pitch];
        return make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
      };
      const auto left = [&](int of_own, int64_t n, const float4& v) {  // a warp has a column of the tile
        if (!p.left.rows) return;
        const int column = own.begin + of_own;
        const float4 w = by[blocks == 1 ? 0 : b];
        *reinterpret_cast<uint2*>(p.left.rows + column * p.left.stride + n) = {pair(v.x * w.x, v.y * w.y), pair(v.z * w.z, v.w * w.w)};
        const float of_row = warp_sum(v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w));
        if (lane == 0) p.left.squares[int64_t{tile * blocks + b} * a.m + column] = of_row;
      };
      fixed_out<tiled, at_once>(a, own.begin, n0 + b * block_rows, own.end - own.begin, thread, threads, value, left, [&] {
        if (b == 0 && others) {
          add(p.shares, share, share - part, end, own, sums, thread);
          group_sync(barrier, threads);
        }
      });
    }
  }
};

// What rows that lack their norm are scaled by, a row a lane. A warp.
__device__ inline void few_scales(const FewArgs& p, float* scales, int lane) {
  if (!p.taken.squares) return;
  constexpr int at_once = 32;
  const float* const from = p.taken.squares + min(lane, p.a.m - 1);
  float sum = 0;
  for (int first = 0; first < p.taken.tiles; first += at_once) {
    float v[at_once];  // loads that wait for none of the others
#pragma unroll
    for (int i = 0; i < at_once; ++i) v[i] = __ldcg(from + min(first + i, p.taken.tiles - 1) * p.a.m);
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (first + i < p.taken.tiles) sum += v[i];
  }
  scales[lane] = 1.0f / sqrtf(sum / static_cast<float>(p.a.l.k) + p.taken.eps);
}

}  // namespace orlop::cuda
