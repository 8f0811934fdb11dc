// Attention of few rows: which rows a block works on.
#pragma once
#include "backend/cuda/common.cuh"

#include "backend/cuda/attention_decode.h"

namespace orlop::cuda::decode {

// The tile of queries of a block.
struct Tile {
  AttentionSeq seq;
  int32_t first, count;  // position of the first row, rows
};

// Tiles are numbered through the sequences that are this kernel's; false: there are not as many. All threads.
template <int warps>
__device__ inline bool find_tile(const DecodeArgs& a, int32_t number, Tile& tile) {
  constexpr int threads = 32 * warps;
  if (a.one_each) {
    tile.seq = a.seqs[number];
    if (tile.seq.rows == 1 && tile.seq.row_begin == number) {
      tile.first = tile.seq.pos_begin;
      tile.count = 1;
      return true;
    }
  }
  __shared__ int32_t sums[warps], found[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) found[0] = -1;
  int32_t before = 0;
  for (int32_t base = 0; base < a.seq_count; base += threads) {
    const int32_t at = base + threadIdx.x;
    int32_t own = 0;
    if (at < a.seq_count) {
      const AttentionSeq s = a.seqs[at];
      if (s.rows > 0 && s.rows < a.too_many) own = (s.pos_begin + s.rows - 1) / a.tile_rows - s.pos_begin / a.tile_rows + 1;
    }
    int32_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const int32_t left = __shfl_up_sync(all_lanes, sum, step);
      if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int32_t total = 0;
    for (int w = 0; w < warps; ++w) {
      if (w < warp) sum += sums[w];
      total += sums[w];
    }
    const int32_t from = before + sum - own;
    if (number >= from && number < from + own) found[0] = at, found[1] = number - from;
    before += total;
  }
  __syncthreads();
  if (found[0] < 0) return false;
  tile.seq = a.seqs[found[0]];
  const int32_t begin = (tile.seq.pos_begin / a.tile_rows + found[1]) * a.tile_rows;
  tile.first = max(begin, tile.seq.pos_begin);
  tile.count = min(begin + a.tile_rows, tile.seq.pos_begin + tile.seq.rows) - tile.first;
  return true;
}

__device__ inline int32_t page_of(const DecodeArgs& a, int32_t t) { return static_cast<int32_t>(__umulhi(static_cast<uint32_t>(t), a.page_magic)); }

}  // namespace orlop::cuda::decode
