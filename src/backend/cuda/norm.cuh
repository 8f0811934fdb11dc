// The scale of a row's RMS norm, in one order wherever it is needed: bits do not depend on who norms.
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

constexpr int norm_threads = 256;

// All threads of a block of at least norm_threads call it for the same row; `parts`: 8 floats of shared memory, free again
// once the block has met at a barrier.
__device__ inline float norm_scale(const float* x, int64_t dim, float eps, float* parts) {
  float sum = 0;
  if (threadIdx.x >= norm_threads) {  // only listens
  } else if (dim % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    for (int64_t i = threadIdx.x; i < dim / 4; i += norm_threads) {
      const float4 v = reinterpret_cast<const float4*>(x)[i];
      sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
  } else {  // the same order
    for (int64_t i = threadIdx.x; i < (dim + 3) / 4; i += norm_threads) {
      float v[4];
      for (int e = 0; e < 4; ++e) v[e] = 4 * i + e < dim ? x[4 * i + e] : 0.0f;
      sum += v[0] * v[0] + v[1] * v[1] + (v[2] * v[2] + v[3] * v[3]);
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0 && threadIdx.x < norm_threads) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < norm_threads / 32; ++i) sum += parts[i];
  return 1.0f / sqrtf(sum / static_cast<float>(dim) + eps);
}

}  // namespace orlop::cuda
