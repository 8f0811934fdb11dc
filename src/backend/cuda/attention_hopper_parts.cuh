// Attention of prompts on Hopper: what a block works on and how its shared memory is cut, softmax, output.
#pragma once
#include <climits>

#include "backend/cuda/attention_prefill.cuh"
#include "backend/cuda/kv_layout.cuh"

namespace orlop::cuda {
namespace {

constexpr int query_rows = 128;
constexpr int hopper_threads = 384;

struct Ring {
  int stage = 0, phase = 0;
  template <int Stages>
  __device__ void next() {
    if (++stage == Stages) stage = 0, phase ^= 1;
  }
};

// A tile of queries: the call's row and the position of its first, how many positions; its sequence.
struct Work {
  int32_t row, first, count, kv_head, seq;
};

// Keys that any of them sees, in tiles from the newest to the oldest, or the other way. Of coded keys those that
// stand in a query's own sealing tile come first, as they were before they were coded, and the others then.
template <int Keys, bool Coded, bool Ascending = false>
struct Span {
  int32_t last, low, high, own_first, own, end, count;
  __device__ Span(const Work& w, int32_t window, int32_t key_tile) {
    last = w.first + w.count - 1;
    low = window ? max(0, w.first - window + 1) : 0;
    own_first = Coded ? w.first / key_tile * key_tile : 0;
    own = Coded ? (last - own_first) / Keys + 1 : 0;
    high = Coded ? last / key_tile * key_tile : last + 1;
    end = (high - 1) / Keys;
    count = own + (high > low ? end - low / Keys + 1 : 0);
  }
  __device__ int32_t key(int32_t t) const { return Ascending ? (low / Keys + t) * Keys : t < own ? own_first + (own - 1 - t) * Keys : (end - (t - own)) * Keys; }
  // Of a tile: keys that there are.
  __device__ int32_t from(int32_t t) const { return t < own ? max(low, own_first) : low; }
  __device__ int32_t to(int32_t t) const { return t < own ? last + 1 : high; }
};

template <int Dims, int Keys, int Stages, bool Whole>
struct Plan {
  static constexpr int keys = Keys;                   // of a tile
  static constexpr int panels = (Dims + 63) / 64;     // of 64 elements, 128 bytes of a row
  static constexpr int parts = Dims > 128 ? 2 : 1;    // of the output's columns, a product each
  static constexpr int columns = Dims / parts;
  static constexpr int query_panel = query_rows * 128;
  // Keys and values: where rows are whole panels a copy brings them all, eight rows of each in turn.
  static constexpr bool whole = Whole;
  static constexpr int across = whole ? 1024 : keys * 128, down = whole ? panels * 1024 : 1024;
  static constexpr int tile_bytes = panels * keys * 128;
  static constexpr bool staged = Dims <= 128;  // queries are copied as they are, ahead of time
  static constexpr int staged_at = panels * query_panel, keys_at = staged_at + (staged ? query_rows * Dims * 4 : 0);
  static constexpr int values_at = keys_at + Stages * tile_bytes, barriers_at = values_at + Stages * tile_bytes;
  static constexpr int work_at = barriers_at + (4 * Stages + 2) * 8;
  static constexpr size_t shared = work_at + sizeof(Work) + 1024;
};

// The block's n-th tile (Split: its group's); count 0: there are no more. From round to round the blocks' order
// is reversed, since tiles become shorter.
template <bool Split>
__device__ inline Work work_at(const AttentionArgs& a, int32_t positions, int32_t least_rows, int32_t n, int32_t parts) {
  if (!Split) parts = 1;
  const int32_t all = gridDim.x / parts, own = blockIdx.x / parts;
  const int32_t index = n * all + (n % 2 ? all - 1 - own : own);
  RowTile tile;
  if (Split && a.seq_count == 1) {  // sooner found
    const int32_t number = (a.seqs[0].rows + positions - 1) / positions - 1 - index / a.kv.kv_heads;
    if (number >= 0) tile = {0, number * positions};
  } else {
    tile = find_tile(a.seqs, a.seq_count, least_rows, positions, index / a.kv.kv_heads);
  }
  if (tile.seq < 0) return {};
  const AttentionSeq seq = a.seqs[tile.seq];
  return {seq.row_begin + tile.first, seq.pos_begin + tile.first, min(positions, seq.rows - tile.first), index % a.kv.kv_heads, tile.seq};
}

// One row's maximum times c, this lane's share of its sum, and how much of what was summed before is kept.
struct RowState {
  float top = -INFINITY, sum = 0, keep = 1;
};

// Scores to weights, in place. rows[0] has elements 4 i and 4 i + 1, rows[1] the two after.
template <bool Masked, int N>
__device__ inline void weigh(float (&s)[N], RowState (&rows)[2], float c, int key, const int (&oldest)[2], const int (&newest)[2]) {
  if constexpr (Masked) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int row = i / 2 % 2, k = key + i / 4 * 8 + i % 2;
      if (k < oldest[row] || k > newest[row]) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) top = fmaxf(top, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
    top = fmaxf(rows[r].top, top * c);
    const float base = top == -INFINITY ? 0.0f : top;
    rows[r].keep = power_of_two(rows[r].top - base);
    rows[r].top = top;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      float& a = s[4 * i + 2 * r];
      float& b = s[4 * i + 2 * r + 1];
      a = power_of_two(fmaf(a, c, -base));
      b = power_of_two(fmaf(b, c, -base));
      sum += a + b;
    }
    rows[r].sum = fmaf(rows[r].sum, rows[r].keep, sum);
  }
}

// The same, to the bit as add_block() has it.
template <bool Masked, int N>
__device__ inline void weigh_exactly(float (&s)[N], RowState (&rows)[2], float c, int key, const int (&oldest)[2], const int (&newest)[2]) {
  static_assert(N == block_keys / 2);
  if constexpr (Masked) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int row = i / 2 % 2, k = key + i / 4 * 8 + i % 2;
      if (k < oldest[row] || k > newest[row]) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) top = fmaxf(top, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
    top = fmaxf(rows[r].top, __fmul_rn(top, c));
    const float base = top == -INFINITY ? 0.0f : top;
    rows[r].keep = power_of_two(__fsub_rn(rows[r].top, base));
    rows[r].top = top;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
#pragma unroll
      for (int e = 4 * i + 2 * r; e < 4 * i + 2 * r + 2; ++e) {
        s[e] = power_of_two(__fmaf_rn(s[e], c, -base));
        sum = __fadd_rn(sum, s[e]);
      }
    rows[r].sum = __fmaf_rn(rows[r].sum, rows[r].keep, sum);
  }
}

// Ends a chunk: what folding it takes; the rows begin anew.
__device__ inline Shares end_chunk(RowState& chunk, RowState& all) {
  chunk.sum = __fadd_rn(chunk.sum, __shfl_xor_sync(all_lanes, chunk.sum, 1));
  chunk.sum = __fadd_rn(chunk.sum, __shfl_xor_sync(all_lanes, chunk.sum, 2));
  const Shares s = shares(all.top, chunk.top);
  all.top = s.top;
  all.sum = folded(s, all.sum, chunk.sum);
  chunk = {};
  return s;
}

// A row's columns, of which lane % 4 has each 8 i + 2 (lane % 4) and the next.
template <int N>
__device__ inline void store_row(float* to, const float (&o)[N], int r, float scale, bool there) {
  if (!there) return;
#pragma unroll
  for (int i = 0; i < N / 4; ++i) *reinterpret_cast<float2*>(to + 8 * i + 2 * (threadIdx.x % 4)) = make_float2(o[4 * i + 2 * r] * scale, o[4 * i + 2 * r + 1] * scale);
}
template <int N>
__device__ inline void store_row(__nv_bfloat16* to, const float (&o)[N], int r, float scale, bool there) {
  const bool odd = threadIdx.x % 2;
#pragma unroll
  for (int i = 0; i < N / 4; i += 2) {  // neighbours swap a pair each, so that four columns lie together
    const uint32_t even_pair = pair_of(__nv_bfloat16{}, o[4 * i + 2 * r] * scale, o[4 * i + 2 * r + 1] * scale);
    const uint32_t odd_pair = pair_of(__nv_bfloat16{}, o[4 * i + 4 + 2 * r] * scale, o[4 * i + 5 + 2 * r] * scale);
    const uint32_t other = __shfl_xor_sync(all_lanes, odd ? even_pair : odd_pair, 1);
    if (there) *reinterpret_cast<uint2*>(to + 8 * (i + odd) + 2 * (threadIdx.x % 4 - odd)) = odd ? make_uint2(other, odd_pair) : make_uint2(even_pair, other);
  }
}

}  // namespace
}  // namespace orlop::cuda
