// Attention of prompts on Hopper where tiles of queries are few: the blocks of a cluster share a tile's keys. Each
// leaves what it has in its own shared memory; then each folds some of the rows, in the order of the blocks, from
// the memory of all. Nothing depends on which block is done first.
#pragma once
#include <mutex>

#include "backend/cuda/attention_hopper_parts.cuh"
#include "backend/cuda/cluster.cuh"

namespace orlop::cuda {

constexpr int32_t most_parts = 16;  // blocks of a cluster, where the GPU has them

namespace {

// Tiles of keys that a block walks, counted as Span counts them: all of `count`, or its share.
struct Part {
  int32_t begin, end;
};
template <bool Split>
__device__ inline Part part_of(int32_t count) {
  if constexpr (!Split) return {0, count};
  const int32_t rank = cluster_rank(), parts = cluster_blocks();
  return {count * rank / parts, count * (rank + 1) / parts};
}

// All threads of a cluster's blocks, but for those that have ended, meet.
__device__ inline void meet_cluster() {
  __syncwarp();
  cluster_arrive();
  cluster_wait();
}
// Threads that neither leave nor fold anything.
__device__ inline void let_parts_fold() {
  meet_cluster();
  meet_cluster();
}

// Of rows in shared memory, so that neither the lanes of a warp that leave their rows nor those that read one meet
// a bank too often: eight columns at a time, turned by the row.
template <int Dims>
__device__ inline int part_place(int row, int eight) {
  const int turned = eight + row % (Dims / 8);
  return row * Dims + 8 * (turned < Dims / 8 ? turned : turned - Dims / 8);
}

// What a thread has of its row `row`: columns 8 i + 2 (lane % 4) and the next, from `first` on; scale: of all columns.
template <int Dims, class P, int N>
__device__ inline void leave_row(unsigned char* shared, int row, int first, const float (&o)[N], int r, float scale) {
  float* const values = reinterpret_cast<float*>(shared + P::staged_at);
#pragma unroll
  for (int i = 0; i < N / 4; ++i)
    *reinterpret_cast<float2*>(values + part_place<Dims>(row, first / 8 + i) + 2 * (threadIdx.x % 4)) =
        make_float2(o[4 * i + 2 * r] * scale, o[4 * i + 2 * r + 1] * scale);
}
__device__ inline void leave_state(unsigned char* shared, int row, float top, float sum) {
  if (threadIdx.x % 4 == 0) reinterpret_cast<float2*>(shared)[row] = make_float2(top, sum);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Where an address of this block's shared memory is in another block's, and what is there.
__device__ inline uint32_t address_at(uint32_t address, int rank) {
  uint32_t to;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address), "r"(rank));
  return to;
}
__device__ inline float2 load_pair(uint32_t address) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ inline float4 load_quad(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
  return v;
}

// Outputs of this block's share of the tile's rows, by its two warpgroups that compute. base: of its shared memory.
template <int Dims, class P>
__device__ inline void fold_parts(const AttentionArgs& a, const Work& work, uint32_t base, int32_t group) {
  constexpr int quads = Dims / 4, ahead = 8;
  const int32_t rank = cluster_rank(), parts = cluster_blocks(), rows = work.count * group;
  const int32_t begin = rows * rank / parts * quads, end = rows * (rank + 1) / parts * quads;
#pragma unroll 1
  for (int32_t item = begin + static_cast<int32_t>(threadIdx.x) - 128; item < end; item += 256) {
    const int32_t row = item / quads, quad = item % quads;
    const uint32_t state_at = base + row * 8, value_at = base + P::staged_at + (part_place<Dims>(row, quad / 2) + quad % 2 * 4) * 4;
    float top = -INFINITY, sum = 0;
    float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int first = 0; first < parts; first += ahead) {
      float2 state[ahead];
      float4 v[ahead];
#pragma unroll
      for (int p = 0; p < ahead; ++p) {  // past the last: what it has, with no weight
        const int from = min(first + p, parts - 1);
        state[p] = load_pair(address_at(state_at, from));
        v[p] = load_quad(address_at(value_at, from));
      }
      float new_top = top;
#pragma unroll
      for (int p = 0; p < ahead; ++p) new_top = fmaxf(new_top, state[p].x);
      const float level = new_top == -INFINITY ? 0.0f : new_top, keep = power_of_two(top - level);
      top = new_top;
      sum *= keep, o.x *= keep, o.y *= keep, o.z *= keep, o.w *= keep;
#pragma unroll
      for (int p = 0; p < ahead; ++p)
        if (first + p < parts) {
          const float weight = power_of_two(state[p].x - level);
          sum = fmaf(state[p].y, weight, sum);
          o.x = fmaf(v[p].x, weight, o.x);
          o.y = fmaf(v[p].y, weight, o.y);
          o.z = fmaf(v[p].z, weight, o.z);
          o.w = fmaf(v[p].w, weight, o.w);
        }
    }
    const float scale = 1.0f / sum;
    const int64_t to = (work.row + row / group) * a.out_stride + (work.kv_head * group + row % group) * Dims + 4 * quad;
    if (a.narrow_out)
      *reinterpret_cast<uint2*>(reinterpret_cast<__nv_bfloat16*>(a.out) + to) =
          make_uint2(pair_of(__nv_bfloat16{}, o.x * scale, o.y * scale), pair_of(__nv_bfloat16{}, o.z * scale, o.w * scale));
    else
      *reinterpret_cast<float4*>(a.out + to) = make_float4(o.x * scale, o.y * scale, o.z * scale, o.w * scale);
  }
}
#endif

}  // namespace

// ---- the host's side

// Clusters that the GPU runs at a time, by their blocks, of kernels whose blocks have a multiprocessor each.
struct ClusterRoom {
  int32_t clusters[most_parts + 1];
};
void find_cluster_room(Context*, const void* kernel, size_t shared, ClusterRoom*);

// How many blocks share a tile's keys, and clusters; parts 1: a block walks all of them.
struct SplitPlan {
  int32_t parts;
  int64_t clusters;
};
// keys: of a tile.
SplitPlan plan_split(const AttentionArgs&, const ClusterRoom&, int32_t least_rows, int32_t positions, int32_t keys);

namespace {

// The room of a kernel, which is looked for once.
template <class Kernel, Kernel kernel>
const ClusterRoom& cluster_room(Context* c, size_t shared) {
  static ClusterRoom rooms[64];  // by GPU
  static std::once_flag found[64];
  static const ClusterRoom none{};
  if (c->index >= 64) return none;
  std::call_once(found[c->index], [&] { find_cluster_room(c, reinterpret_cast<const void*>(kernel), shared, &rooms[c->index]); });
  return rooms[c->index];
}

}  // namespace
}  // namespace orlop::cuda
