// How the kernels of attention of few rows are started.
#pragma once
#include <algorithm>
#include <atomic>

#include "backend/cuda/attention_decode.h"
#include "backend/cuda/common.cuh"

namespace orlop::cuda::decode {

// More: what the kernel is told beside. False: the GPU's blocks have not enough shared memory.
template <class K, class... More>
bool start_one(Context* c, const DecodeArgs& a, dim3 grid, void (*kernel)(DecodeArgs, More...), PluginStatus* status, const More&... more) {
  if (static_cast<size_t>(K::shared) > c->block_shared) return false;
  static std::atomic<bool> allowed[64];  // by GPU
  if (c->index >= 64 || !allowed[c->index]) {
    if (!allow_shared(c, reinterpret_cast<const void*>(kernel), K::shared, status)) return true;
    if (c->index < 64) allowed[c->index] = true;
  }
  launch(c, kernel, Shape{grid, dim3(K::Folds::threads), K::shared, std::max(1u, static_cast<unsigned>(a.shared_by))}, a, more...);
  return true;
}

}  // namespace orlop::cuda::decode
