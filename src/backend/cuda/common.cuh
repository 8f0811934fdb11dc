// What every file of the plugin shares: the context, launching with errors kept, numbers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#define ORLOP_BOTH __host__ __device__
#include "backend/cuda/layout.h"
#include "backend/cuda/plugin.h"
#include "backend/cuda/transfers.cuh"

namespace orlop::cuda {

struct Shape {
  dim3 grid, block;
  size_t shared = 0;       // bytes, dynamic
  unsigned cluster = 1;    // blocks, along x
};

// A library's kernels: started on the stream, which may be in capture, with the arguments it was added with.
using Library = void (*)(cudaStream_t, const void* args, PluginStatus*);

// Kernels wait in a list until something needs their results or changes their inputs. A list that was seen
// before, to the byte, runs as one captured graph: a decode step launches hundreds of kernels, and launching
// them one by one takes longer than they do. Each may begin while the one before it runs (programmatic
// dependent launch): see wait_inputs().
class Launches {
 public:
  void add(const void* kernel, const Shape& shape, const void* const* params, const size_t* sizes, int count);
  void add(Library library, const void* args, size_t size);
  // Whether the kernel joined the one put last, whose first argument takes it in: `join` says so, and does it.
  bool join(const void* kernel, const Shape& shape, const void* arg, bool (*join)(void* before, const void* given));
  // The first argument of the kernel put last, if it is that one, to be read or changed; or null. And it leaves.
  void* last(const void* kernel);
  void drop_last();
  // early: kernels may begin beside those before them; shared: bytes that a block may have.
  void set(bool early, size_t shared) { early_ = early, block_shared_ = shared; }
  void run(cudaStream_t stream, PluginStatus* status);  // all that wait
  void clear();                                         // graphs too

 private:
  struct Head {  // then each parameter, in whole words
    const void* kernel;  // null: the library's
    Library library;
    uint32_t grid[3], block[3];
    uint64_t shared, cluster, params;  // words of all parameters
  };
  void put(const Head& head, const void* const* params, const size_t* sizes, int count);
  struct Known {
    uint64_t hash = 0, used = 0;
    std::vector<uint64_t> list;
    cudaGraphExec_t graph = nullptr;
  };
  bool prepare(const void* kernel, PluginStatus* status);
  void start(cudaStream_t stream, PluginStatus* status);
  bool capture(cudaStream_t stream, cudaGraphExec_t* graph);
  std::vector<uint64_t> list_;
  int count_ = 0;
  size_t last_ = 0;  // where the kernel put last begins; the list's end: there is none
  bool lost_ = false;  // a kernel did not fit into memory
  bool early_ = false;
  size_t block_shared_ = 0;
  std::vector<const void*> prepared_;
  std::vector<Known> known_;
  uint64_t clock_ = 0;
};

struct Products;
class Beside;
struct ChainState;
struct FewState;

struct Context {
  int32_t index = 0;
  cudaStream_t stream = nullptr;
  int32_t multiprocessors = 0;
  int32_t capability = 0;   // 10 * major + minor
  size_t block_shared = 0;  // bytes that a block may have
  // Equal batches have equal bits, nothing more; else an output row depends on its own inputs alone.
  bool fast = false;
  Transfers transfers;
  std::mutex mutex;  // guards what follows
  Launches launches;
  uint32_t* attention_done = nullptr;  // attention.cu: counters, zero between calls
  // Whether its kernels' blocks may wait for ones that are started after them. One context of a GPU has the right: two such kernels side by
  // side could each have blocks that find no room for what they wait for.
  bool may_wait = false;
  ChainState* chain = nullptr;  // chain.cu; null: it takes no products
  FewState* few = nullptr;      // few_hopper.cu; null: it takes no products
  const void* few_last = nullptr;  // which of its kernels was put last
  Products* products = nullptr;  // see gemm.cuh
  bool no_products = false;             // asked for, and not there
  Beside* beside = nullptr;             // see beside.cuh; null: nothing is loaded beside
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
void launch(Context* c, void (*kernel)(Params...), const Shape& shape, Args... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  [&](Params... params) {
    (__builtin_clear_padding(&params), ...);  // else equal lists would differ
    const void* at[] = {&params...};
    const size_t sizes[] = {sizeof(Params)...};
    const std::lock_guard lock(c->mutex);
    c->launches.add(reinterpret_cast<const void*>(kernel), shape, at, sizes, sizeof...(Params));
  }(static_cast<Params>(args)...);
}

// The same, but it may become part of the kernel put last: see Launches::join().
template <class Arg>
void launch_joined(Context* c, void (*kernel)(Arg), const Shape& shape, Arg arg, bool (*join)(void* before, const void* given)) {
  __builtin_clear_padding(&arg);
  const void* at[] = {&arg};
  const size_t sizes[] = {sizeof arg};
  const std::lock_guard lock(c->mutex);
  if (!c->launches.join(reinterpret_cast<const void*>(kernel), shape, &arg, join))
    c->launches.add(reinterpret_cast<const void*>(kernel), shape, at, sizes, 1);
}

// Puts a library's work into the list; Args is plain data without padding.
template <class Args>
void launch(Context* c, Library library, const Args& args) {
  const std::lock_guard lock(c->mutex);
  c->launches.add(library, &args, sizeof args);
}

// Whether a kernel may have so much dynamic shared memory; the list allows it as much as there is.
inline bool allow_shared(Context* c, const void*, size_t bytes, PluginStatus* status) {
  if (bytes <= c->block_shared) return true;
  if (status->code == 0) {
    status->code = -5;
    std::snprintf(status->text, sizeof status->text, "a kernel needs %zu bytes of shared memory, this GPU has %zu", bytes, c->block_shared);
  }
  return false;
}

// Every kernel calls it before it reads what an earlier one wrote, or writes at all: until then the kernels
// before may still run. Weights are never written in a step: they may be read before. Blocks that have nothing to
// do call it too: a kernel none of whose blocks waited would end before the one before it.
__device__ inline void wait_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel's blocks may begin, as far as there is room for them; they wait for this kernel's end themselves.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A kernel's memory of the size that it is started with.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char of_this_block[];
  return of_this_block;
}

// The same, at a multiple of 1024 bytes, as squares of tensor copies are. What a block has beside may take as much as that.
__device__ inline unsigned char* dynamic_shared_1024() {
  extern __shared__ __align__(1024) unsigned char squares_of_this_block[];
  return squares_of_this_block;
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
