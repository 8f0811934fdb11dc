// Attention of prompts on Hopper where tiles of queries are few: several blocks share a tile's keys. Each leaves what
// it has; then each folds some of the rows, in the order of the blocks, from what all left. Nothing depends on which
// block is done first. The blocks are a cluster, which leaves it in shared memory; or, since clusters of many find no
// room on part of a GPU, any that run at the same time, as all of the kernel's do, and it goes through the workspace.
#pragma once
#include <mutex>

#include "backend/cuda/attention_hopper_parts.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

constexpr int32_t most_parts = 32, most_cluster = 16;
constexpr int32_t most_blocks = 256;  // of a split that goes through the workspace
constexpr int32_t ended_at = 2048;    // counters of blocks that have ended, behind those of blocks that are done

namespace {

// The blocks that share a tile.
struct Sharing {
  int32_t parts, rank;
  bool near;  // a cluster
  __device__ explicit Sharing(int32_t count) : parts(count), rank(blockIdx.x % count), near(cluster_blocks() > 1) {}
};

// Tiles of keys that a block walks, counted as Span counts them: all of `count`, or its share.
struct Part {
  int32_t begin, end;
};
template <bool Split>
__device__ inline Part part_of(int32_t count, int32_t parts) {
  if constexpr (!Split) return {0, count};
  const int32_t rank = blockIdx.x % parts;
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
  if (cluster_blocks() == 1) return;
  meet_cluster();
  meet_cluster();
}

// Where a row's columns are left: eight at a time, turned by the row, so that neither the lanes of a warp that leave
// their rows nor those that read one meet a bank of shared memory too often.
template <int Dims>
__device__ inline int part_place(int row, int eight) {
  const int turned = eight + row % (Dims / 8);
  return row * Dims + 8 * (turned < Dims / 8 ? turned : turned - Dims / 8);
}

// What a block leaves: values [query_rows][Dims], weighted by 2 to the power of (score - maximum); of each row
// maximum and sum.
template <int Dims>
constexpr int64_t left_floats = int64_t{query_rows} * (Dims + 2);
template <int Dims>
struct Left {
  float* values;
  float2* states;

  template <class P>
  __device__ static Left near(unsigned char* shared) {
    return {reinterpret_cast<float*>(shared + P::staged_at), reinterpret_cast<float2*>(shared)};
  }
  // Two rounds' by turns: a block may be a round ahead of one that still reads.
  __device__ static Left far(const AttentionArgs& a, int32_t block, int32_t round) {
    float* const at = static_cast<float*>(a.workspace) + (round % 2 * static_cast<int32_t>(gridDim.x) + block) * left_floats<Dims>;
    return {at, reinterpret_cast<float2*>(at + query_rows * Dims)};
  }
  // What a thread has of its row: columns 8 i + 2 (lane % 4) and the next, from `first` on; scale: of all columns.
  template <int N>
  __device__ void put(int row, int first, const float (&o)[N], int r, float scale) const {
    asm volatile("" : "+r"(row));  // or the places are found before the walk, and kept all the time
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      *reinterpret_cast<float2*>(values + part_place<Dims>(row, first / 8 + i) + 2 * (threadIdx.x % 4)) =
          make_float2(o[4 * i + 2 * r] * scale, o[4 * i + 2 * r + 1] * scale);
  }
  __device__ void put_state(int row, float top, float sum) const {
    if (threadIdx.x % 4 == 0) states[row] = make_float2(top, sum);
  }
};

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

// The warpgroups that compute have left their rows; those of all of the tile's blocks have, `target` of them.
__device__ inline void meet_far(uint32_t* done, uint32_t target) {
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
__device__ inline void leave_far(uint32_t* done, int32_t parts) {
  if (atomicAdd(done + ended_at, 1u) + 1 == static_cast<uint32_t>(parts)) done[0] = done[ended_at] = 0;
}

// Outputs of this block's share of the tile's rows, by its two warpgroups that compute. base: of its shared memory.
template <int Dims, class P, bool Near>
__device__ inline void fold_parts(const AttentionArgs& a, const Work& work, uint32_t base, int32_t group, const Sharing& sharing, int32_t round) {
  constexpr int quads = Dims / 4, ahead = 8;
  const int32_t rank = sharing.rank, parts = sharing.parts, rows = work.count * group;
  const int32_t begin = rows * rank / parts * quads, end = rows * (rank + 1) / parts * quads;
  const Left<Dims> first_left = Left<Dims>::far(a, blockIdx.x - rank, round);
#pragma unroll 1
  for (int32_t item = begin + static_cast<int32_t>(threadIdx.x) - 128; item < end; item += 256) {
    const int32_t row = item / quads, quad = item % quads, place = part_place<Dims>(row, quad / 2) + quad % 2 * 4;
    const uint32_t state_at = base + row * 8, value_at = base + P::staged_at + place * 4;
    float top = -INFINITY, sum = 0;
    float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int first = 0; first < parts; first += ahead) {
      float2 state[ahead];
      float4 v[ahead];
#pragma unroll
      for (int p = 0; p < ahead; ++p) {  // past the last: what it has, with no weight
        const int from = min(first + p, parts - 1);
        if constexpr (Near) {
          state[p] = load_pair(address_at(state_at, from));
          v[p] = load_quad(address_at(value_at, from));
        } else {
          state[p] = __ldcg(first_left.states + from * (left_floats<Dims> / 2) + row);
          v[p] = __ldcg(reinterpret_cast<const float4*>(first_left.values + from * left_floats<Dims> + place));
        }
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
  int32_t clusters[most_cluster + 1];
};
void find_cluster_room(Context*, const void* kernel, size_t shared, ClusterRoom*);

// How many blocks share a tile's keys, how many such groups there are, whether each is a cluster; parts 1: a block
// walks all keys.
struct SplitPlan {
  int32_t parts;
  int64_t groups;
  bool near;
  Shape shape(size_t shared) const {
    return {dim3(static_cast<unsigned>(groups * parts)), dim3(hopper_threads), shared, near ? static_cast<unsigned>(parts) : 1};
  }
};
// keys: of a tile.
SplitPlan plan_split(Context*, const AttentionArgs&, const ClusterRoom&, int32_t least_rows, int32_t positions, int32_t keys, PluginStatus*);

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
