// What every file of the plugin shares: the context, launching with errors kept, numbers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#define ORLOP_BOTH __host__ __device__
#include "backend/cuda/layout.h"
#include "backend/cuda/plugin.h"

namespace orlop::cuda {

// Kernels wait in a list until something needs their results or changes their inputs. A list that was seen
// before, to the byte, runs as one captured graph: a decode step launches hundreds of kernels, and launching
// them one by one takes longer than they do.
class Launches {
 public:
  void add(const void* kernel, dim3 grid, dim3 block, size_t shared, const void* const* params, const size_t* sizes, int count);
  void run(cudaStream_t stream, PluginStatus* status);  // all that wait
  void clear();                                         // graphs too

 private:
  struct Head {  // then each parameter, in whole words
    const void* kernel;
    uint32_t grid[3], block[3];
    uint64_t shared, params;  // bytes of all parameters
  };
  struct Known {
    uint64_t hash = 0, used = 0;
    std::vector<uint64_t> list;
    cudaGraphExec_t graph = nullptr;
  };
  void start(cudaStream_t stream, PluginStatus* status) const;
  bool capture(cudaStream_t stream, cudaGraphExec_t* graph) const;
  std::vector<uint64_t> list_;
  int count_ = 0;
  bool lost_ = false;  // a kernel did not fit into memory
  std::vector<Known> known_;
  uint64_t clock_ = 0;
};

struct Context {
  int32_t index = 0;
  cudaStream_t stream = nullptr;
  int32_t multiprocessors = 0;
  std::mutex mutex;  // guards what follows
  Launches launches;
  size_t attention_shared[3] = {};  // bytes that its kernels may use, by type
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

// Puts a kernel into the list of those to run on the context's stream.
template <class... Params, class... Args>
void launch(Context* c, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, Args... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  [&](Params... params) {
    // Padding inside a struct would make equal lists differ: copies are made over zeros by whoever fills them.
    const void* at[] = {&params...};
    const size_t sizes[] = {sizeof(Params)...};
    const std::lock_guard lock(c->mutex);
    c->launches.add(reinterpret_cast<const void*>(kernel), grid, block, shared, at, sizes, sizeof...(Params));
  }(static_cast<Params>(args)...);
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
