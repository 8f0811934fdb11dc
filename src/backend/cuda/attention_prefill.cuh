// What the kernels of prompt attention share. A tile of queries is several neighbouring positions of one
// sequence, each with all query heads of one key head, so that a tile of keys and values serves them all.
#pragma once
#include "backend/cuda/attention_block.cuh"

namespace orlop::cuda {

// Whether prefill() can do it; elsewise it is for the other kernels.
bool prefill_takes(const Context*, const AttentionArgs&);
// Of the sequences with at least least_rows rows; the others are not looked at.
void prefill(Context*, const AttentionArgs&, int32_t least_rows, PluginStatus*);

// Its ways. Any order of keys, Hopper's asynchronous products (fast mode, one capability only):
bool prefill_hopper_takes(const Context*, const AttentionArgs&);
void prefill_hopper(Context*, const AttentionArgs&, int32_t least_rows, PluginStatus*);
// With them too, but in the order, and to the bit, of prefill_blocks():
bool prefill_exactly_takes(const Context*, const AttentionArgs&);
void prefill_exactly(Context*, const AttentionArgs&, int32_t least_rows, PluginStatus*);
// The first of int8 and uint4 (fast mode):
bool prefill_codes_takes(const Context*, const AttentionArgs&);
void prefill_codes(Context*, const AttentionArgs&, int32_t least_rows, PluginStatus*);
// Keys in the fixed order of attention_block.cuh:
bool prefill_blocks_takes(const Context*, const AttentionArgs&);
void prefill_blocks(Context*, const AttentionArgs&, int32_t least_rows, PluginStatus*);

// Positions of a tile of `rows` (position, head) pairs.
ORLOP_BOTH inline int32_t tile_positions(const AttentionArgs& a, int32_t rows) { return rows / (a.heads / a.kv.kv_heads); }

// Tiles that there can be, whatever the sequences are.
inline int64_t most_tiles(const AttentionArgs& a, int32_t positions) {
  return (a.rows + int64_t{a.seq_count} * (positions - 1)) / positions;
}

struct RowTile {
  int32_t seq = -1;  // none
  int32_t first = 0;  // position, counted from the sequence's first row
};

// The tile that is `from_last` before the last one: a sequence's last tiles see most keys and begin first.
// All lanes of a warp call it.
__device__ inline RowTile find_tile(const AttentionSeq* seqs, int32_t count, int32_t least_rows, int32_t positions, int32_t from_last) {
  const int32_t lane = threadIdx.x % 32, each = (count + 31) / 32, begin = min(count, lane * each), end = min(count, begin + each);
  const auto tiles = [&](int32_t s) {
    const int32_t rows = seqs[s].rows;
    return rows < least_rows ? 0 : (rows + positions - 1) / positions;
  };
  int32_t mine = 0;
#pragma unroll 4
  for (int32_t s = begin; s < end; ++s) mine += tiles(s);
  int32_t sum = mine;  // of this lane and those before it
  for (int step = 1; step < 32; step *= 2) {
    const int32_t other = __shfl_up_sync(all_lanes, sum, step);
    if (lane >= step) sum += other;
  }
  const int32_t index = __shfl_sync(all_lanes, sum, 31) - 1 - from_last;
  if (index < 0) return {};
  const bool holds = index >= sum - mine && index < sum;
  int32_t found = 0, left = index - (sum - mine);
  if (holds)
    for (found = begin; left >= tiles(found); ++found) left -= tiles(found);
  const int holder = __ffs(static_cast<int>(__ballot_sync(all_lanes, holds))) - 1;
  return {__shfl_sync(all_lanes, found, holder), __shfl_sync(all_lanes, left, holder) * positions};
}

// Two neighbouring columns of an output row.
__device__ inline void store_pair(float* to, float x, float y) { *reinterpret_cast<float2*>(to) = make_float2(x, y); }
__device__ inline void store_pair(__nv_bfloat16* to, float x, float y) { *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y); }

}  // namespace orlop::cuda
