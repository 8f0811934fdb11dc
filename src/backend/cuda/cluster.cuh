// Blocks that work together: a cluster's barrier and its blocks' shared memory (compute capability 9 and up;
// before that a cluster is one block).
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

#if __CUDA_ARCH__ >= 900
__device__ inline int cluster_rank() {
  int v;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v));
  return v;
}
__device__ inline int cluster_blocks() {
  int v;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v));
  return v;
}
// What was written before arriving, in any block's shared memory, is seen after waiting. Every thread takes part;
// those that have ended are not waited for.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The same object in the shared memory of another block, which must have begun and must not end before it is used.
template <class T>
__device__ inline T* at_block(T* p, int rank) {
  uint64_t to;
  asm("mapa.u64 %0, %1, %2;" : "=l"(to) : "l"(reinterpret_cast<uint64_t>(p)), "r"(rank));
  return reinterpret_cast<T*>(to);
}
#else
__device__ inline int cluster_rank() { return 0; }
__device__ inline int cluster_blocks() { return 1; }
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() { __syncthreads(); }
template <class T>
__device__ inline T* at_block(T* p, int) {
  return p;
}
#endif

}  // namespace orlop::cuda
