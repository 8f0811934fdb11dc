// What every file of the plugin shares: the context, launching with errors kept, numbers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>

#define ORLOP_BOTH __host__ __device__
#include "backend/cuda/layout.h"
#include "backend/cuda/plugin.h"

namespace orlop::cuda {

struct Context {
  int32_t index = 0;
  cudaStream_t stream = nullptr;
  int32_t multiprocessors = 0;
};

// Keeps the first failure. The numbers: Status::out_of_memory, Status::internal.
inline bool good(cudaError_t error, const char* what, PluginStatus* status) {
  if (error == cudaSuccess) return true;
  if (status->code == 0) {
    status->code = error == cudaErrorMemoryAllocation ? -6 : -12;
    std::snprintf(status->text, sizeof status->text, "%s: %s", what, cudaGetErrorString(error));
  }
  return false;
}

// Makes the context's GPU the thread's, for this call.
class Here {
 public:
  Here(const Context* context, PluginStatus* status) {
    ok_ = good(cudaGetDevice(&before_), "cudaGetDevice", status) &&
          good(cudaSetDevice(context->index), "cudaSetDevice", status);
  }
  ~Here() {
    if (ok_) cudaSetDevice(before_);
  }
  explicit operator bool() const { return ok_; }

 private:
  int before_ = 0;
  bool ok_ = false;
};

// Starts a kernel on the context's stream.
template <class... Params, class... Args>
void launch(const Context* c, const char* what, PluginStatus* status, void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared, Args... args) {
  const Here here(c, status);
  if (!here) return;
  kernel<<<grid, block, shared, c->stream>>>(static_cast<Params>(args)...);
  good(cudaGetLastError(), what, status);
}

inline unsigned blocks(int64_t work, int64_t each) { return static_cast<unsigned>((work + each - 1) / each); }

constexpr unsigned all_lanes = 0xffffffffu;

template <class T>
__device__ T warp_sum(T v) {
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(all_lanes, v, step);
  return v;
}
__device__ inline float warp_max(float v) {
  for (int step = 16; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(all_lanes, v, step));
  return v;
}

}  // namespace orlop::cuda
