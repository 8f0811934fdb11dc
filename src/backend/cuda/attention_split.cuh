// Attention of prompts on Hopper where tiles of queries are few: several blocks share a tile's keys. Each leaves what
// it has in the workspace and waits for the others; then each folds some of the rows, in the order of the blocks.
// Nothing depends on which block is done first. A kernel has no more blocks than run at the same time.
#pragma once
#include "backend/cuda/attention_decode.h"
#include "backend/cuda/attention_hopper_parts.cuh"
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

constexpr int32_t most_parts = 32;
constexpr int32_t most_blocks = 256;
constexpr int32_t ended_at = 2048;  // counters of blocks that have ended, behind those of blocks that are done
static_assert(most_blocks <= ended_at && ended_at + most_blocks <= most_records);
// Two places of all blocks (Left) fit into what decode's records have (attention_workspace()).
static_assert(2 * most_blocks * int64_t{query_rows} <= most_records * most_columns && attention_record(1) >= 1 + 2);

namespace {

// Tiles of keys that a block walks, counted as Span counts them: all of `count`, or its share. The newest ones take
// longer than others.
struct Part {
  int32_t begin, end;
};
template <bool Split>
__device__ inline Part part_of(int32_t count, int32_t parts) {
  if constexpr (!Split) return {0, count};
  const int32_t rank = blockIdx.x % parts, all = count + 1;
  return {max(all * rank / parts - 1, 0), max(all * (rank + 1) / parts - 1, 0)};
}

// What a block leaves: values [query_rows][Dims], weighted by 2 to the power of (score - maximum); of each row
// maximum and sum. A block has two places by turns, since it may be a tile ahead of one that still reads.
template <int Dims>
struct Left {
  static constexpr int64_t floats = int64_t{query_rows} * (Dims + 2);
  float* values;
  float2* states;

  __device__ Left(const AttentionArgs& a, int32_t block, int32_t round)
      : values(static_cast<float*>(a.workspace) + (round % 2 * static_cast<int32_t>(gridDim.x) + block) * floats),
        states(reinterpret_cast<float2*>(values + query_rows * Dims)) {}
  // What a thread has of its row: columns 8 i + 2 (lane % 4) and the next, from `first` on; scale: of all columns.
  template <int N>
  __device__ void put(int row, int first, const float (&o)[N], int r, float scale) const {
    asm volatile("" : "+r"(row));  // or places are found before the walk, and kept all the time
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      *reinterpret_cast<float2*>(values + row * Dims + first + 8 * i + 2 * (threadIdx.x % 4)) = make_float2(o[4 * i + 2 * r] * scale, o[4 * i + 2 * r + 1] * scale);
  }
  __device__ void put_state(int row, float top, float sum) const {
    if (threadIdx.x % 4 == 0) states[row] = make_float2(top, sum);
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The two warpgroups that compute have left their rows; afterwards those of all of the tile's blocks have, when `done`
// counts `target`.
__device__ inline void meet(uint32_t* done, uint32_t target) {
  __threadfence();
  group_sync(6, 256);
  if (threadIdx.x == 128) {
    atomicAdd(done, 1u);
    uint32_t now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(done) : "memory");
    while (now < target);
    __threadfence();
  }
  group_sync(6, 256);
}
// A block ends; the last one leaves the counters as they were.
__device__ inline void end_part(uint32_t* done, int32_t parts) {
  if (atomicAdd(done + ended_at, 1u) + 1 == static_cast<uint32_t>(parts)) done[0] = done[ended_at] = 0;
}

// Outputs of this block's share of the tile's rows, eight columns a thread.
template <int Dims>
__device__ inline void fold_parts(const AttentionArgs& a, const Work& work, int32_t group, int32_t parts, int32_t round) {
  constexpr int eights = Dims / 8, ahead = 8;
  const int32_t rank = blockIdx.x % parts, rows = work.count * group;
  const int32_t begin = rows * rank / parts * eights, end = rows * (rank + 1) / parts * eights;
  const Left<Dims> left(a, blockIdx.x - rank, round);
#pragma unroll 1
  for (int32_t item = begin + static_cast<int32_t>(threadIdx.x) - 128; item < end; item += 256) {
    const int32_t row = item / eights, column = item % eights * 8;
    float top = -INFINITY, sum = 0, o[8] = {};
#pragma unroll 1
    for (int first = 0; first < parts; first += ahead) {
      float2 state[ahead];
      float4 v[ahead][2];
#pragma unroll
      for (int p = 0; p < ahead; ++p) {
        const int64_t at = min(first + p, parts - 1) * Left<Dims>::floats;
        const auto* values = reinterpret_cast<const float4*>(left.values + at + row * Dims + column);
        state[p] = __ldcg(left.states + at / 2 + row);
        v[p][0] = __ldcg(values);
        v[p][1] = __ldcg(values + 1);
      }
      float new_top = top;
#pragma unroll
      for (int p = 0; p < ahead; ++p) new_top = fmaxf(new_top, state[p].x);
      const float level = new_top == -INFINITY ? 0.0f : new_top, keep = power_of_two(top - level);
      top = new_top;
      sum *= keep;
#pragma unroll
      for (float& x : o) x *= keep;
#pragma unroll
      for (int p = 0; p < ahead; ++p)
        if (first + p < parts) {
          const float weight = power_of_two(state[p].x - level);
          sum = fmaf(state[p].y, weight, sum);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            o[4 * i] = fmaf(v[p][i].x, weight, o[4 * i]);
            o[4 * i + 1] = fmaf(v[p][i].y, weight, o[4 * i + 1]);
            o[4 * i + 2] = fmaf(v[p][i].z, weight, o[4 * i + 2]);
            o[4 * i + 3] = fmaf(v[p][i].w, weight, o[4 * i + 3]);
          }
        }
    }
    const float scale = 1.0f / sum;
#pragma unroll
    for (float& x : o) x *= scale;
    const int64_t to = (work.row + row / group) * a.out_stride + (work.kv_head * group + row % group) * Dims + column;
    if (a.narrow_out) {
      const __nv_bfloat16 t{};
      uint2* const at = reinterpret_cast<uint2*>(reinterpret_cast<__nv_bfloat16*>(a.out) + to);
      at[0] = make_uint2(pair_of(t, o[0], o[1]), pair_of(t, o[2], o[3]));
      at[1] = make_uint2(pair_of(t, o[4], o[5]), pair_of(t, o[6], o[7]));
    } else {
      float4* const at = reinterpret_cast<float4*>(a.out + to);
      at[0] = make_float4(o[0], o[1], o[2], o[3]);
      at[1] = make_float4(o[4], o[5], o[6], o[7]);
    }
  }
}
#endif

}  // namespace

// How many blocks share a tile's keys, how many tiles are worked on at a time, positions of a tile; parts 1: a block
// walks all keys.
struct SplitPlan {
  int32_t parts, positions;
  int64_t tiles;
  Shape shape(size_t shared) const { return {dim3(static_cast<unsigned>(tiles * parts)), dim3(hopper_threads), shared}; }
};
// keys: of a tile.
SplitPlan plan_split(Context*, const AttentionArgs&, int32_t least_rows, int32_t keys);

}  // namespace orlop::cuda
