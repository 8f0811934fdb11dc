// In the place of the CUDA backend's header: see common.cuh beside it. Whoever starts a cluster's blocks fills it in.
#pragma once
#include <thread>

#include "backend/cuda/common.cuh"

namespace orlop::cuda {

struct EmulatedCluster {
  std::vector<EmulatedBlock*> blocks;
  std::atomic<int> arrived{0};
};
inline EmulatedCluster* cluster = nullptr;
inline thread_local int own_rank = 0, arrivals = 0;  // of this thread

inline int cluster_rank() { return own_rank; }
inline void cluster_arrive() {
  ++cluster->arrived;
  ++arrivals;
}
inline void cluster_wait() {
  const int all = block->all.threads() * static_cast<int>(cluster->blocks.size());
  while (cluster->arrived < arrivals * all) std::this_thread::yield();
}
template <class T>
T* at_block(T* p, int rank) {
  return reinterpret_cast<T*>(cluster->blocks[static_cast<size_t>(rank)]->memory.get() + (reinterpret_cast<unsigned char*>(p) - block->memory.get()));
}

}  // namespace orlop::cuda
