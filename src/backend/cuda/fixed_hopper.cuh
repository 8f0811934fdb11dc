// What fixed()'s kernels for Hopper share.
#pragma once
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/fixed.cuh"
#include "backend/cuda/fixed_out.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/tensor_map.h"

namespace orlop::cuda {

constexpr int step_k = 64;                             // elements of a stage: rows of 128 bytes
constexpr int groups = 2, consumers = 128 * groups;    // warpgroups that multiply: 64 rows of weights each

struct HopperPlan {
  int each_slice, units, tiles_x;
  int split;  // blocks that share k, a slice each
  HopperPlan(const Context& c, const StreamArgs& a, int64_t tiles_w, int tile_x, int blocks_of_k)
      : each_slice(static_cast<int>((a.l.units + blocks_of_k - 1) / blocks_of_k)), units(static_cast<int>(a.l.units)), tiles_x((a.m + tile_x - 1) / tile_x) {
    // Rounds of blocks that take as long as a slice.
    const int64_t tiles = tiles_w * tiles_x, places = c.multiprocessors;
    const int64_t whole = (tiles + places - 1) / places * blocks_of_k, shared = (tiles * blocks_of_k + places - 1) / places;
    split = shared < whole ? blocks_of_k : 1;
  }
};

// If so. No branch: products are on their way.
__device__ inline void arrive_if(bool really, uint32_t barrier) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}\n" ::"r"(barrier), "r"(static_cast<int>(really))
               : "memory");
}

// Rows of bf16 that begin every `bytes`, in boxes of some of them by step_k elements.
inline bool map_rows(const void* from, int64_t k, int64_t rows, int64_t bytes, CUtensorMap* map, uint32_t box_rows = 64) {
  const TensorMapEncode encode = tensor_map_encode();
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)}, strides[] = {static_cast<cuuint64_t>(bytes)};
  const cuuint32_t box[] = {step_k, box_rows}, steps[] = {1, 1};
  return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(from), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// A block's sums, [rows of activations][fixed_pitch], and those of its cluster that share k, to where they belong. All
// threads of the blocks.
template <bool tiled>
__device__ inline void leave_tile(const StreamArgs& a, int64_t m0, int64_t n0, int tile_x, const float* sums, int split, int rank) {
  // Nobody reads the others' sums before they are there.
  if (split > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < consumers) {
    const int there = static_cast<int>(min(a.m - m0, int64_t{tile_x})), thread = static_cast<int>(threadIdx.x);
    if (split == 1)
      fixed_out<tiled>(a, m0, n0, there, thread, consumers, [&](int i) { return *reinterpret_cast<const float4*>(sums + i); });
    else
      fixed_out<tiled>(a, m0, n0, there, thread + rank * consumers, consumers * split, [&](int i) {
        float4 v = {};
        for (int r = 0; r < split; ++r) {
          const float4 more = *reinterpret_cast<const float4*>(at_block(sums + i, r));
          v = {v.x + more.x, v.y + more.y, v.z + more.z, v.w + more.w};
        }
        return v;
      });
  }
  if (split > 1) {  // nor leaves while they are read
    cluster_arrive();
    cluster_wait();
  }
}

}  // namespace orlop::cuda
