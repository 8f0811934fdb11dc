// In the place of the CUDA backend's header: see common.cuh beside it. Whoever starts a cluster's blocks fills it in.
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

inline thread_local int cluster_turn = 0;
inline int cluster_rank() {
  const auto& all = block->cluster->blocks;
  return static_cast<int>(std::find(all.begin(), all.end(), block) - all.begin());
}
inline void cluster_arrive() { cluster_turn = block->cluster->all.arrive(); }
inline void cluster_wait() { block->cluster->all.wait(cluster_turn); }
template <class T>
T* at_block(T* p, int rank) {
  const auto at = reinterpret_cast<unsigned char*>(p) - block->memory.get();
  return reinterpret_cast<T*>(block->cluster->blocks.at(static_cast<size_t>(rank))->memory.get() + at);
}

}  // namespace orlop::cuda
