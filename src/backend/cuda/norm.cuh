// The scale of a row's RMS norm, in one order wherever it is needed: bits do not depend on who norms. Here and
// wherever several kernels must round alike, products and sums are __f*_rn: compilers fuse others as they like.
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

constexpr int norm_threads = 256;

__device__ inline float squares(float a, float b, float c, float d, float sum) {
  return __fadd_rn(sum, __fadd_rn(__fmaf_rn(a, a, __fmul_rn(b, b)), __fmaf_rn(c, c, __fmul_rn(d, d))));
}
// x * scale * weight
__device__ inline float normed(float x, float scale, float weight) { return __fmul_rn(__fmul_rn(x, scale), weight); }

// All threads of a block of at least norm_threads call it for the same row; `parts`: 8 floats of shared memory, free again
// once the block has met at a barrier.
__device__ inline float norm_scale(const float* x, int64_t dim, float eps, float* parts) {
  float sum = 0;
  if (threadIdx.x >= norm_threads) {  // only listens
  } else if (dim % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    for (int64_t i = threadIdx.x; i < dim / 4; i += norm_threads) {
      const float4 v = reinterpret_cast<const float4*>(x)[i];
      sum = squares(v.x, v.y, v.z, v.w, sum);
    }
  } else {  // the same order
    for (int64_t i = threadIdx.x; i < (dim + 3) / 4; i += norm_threads) {
      float v[4];
      for (int e = 0; e < 4; ++e) v[e] = 4 * i + e < dim ? x[4 * i + e] : 0.0f;
      sum = squares(v[0], v[1], v[2], v[3], sum);
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
