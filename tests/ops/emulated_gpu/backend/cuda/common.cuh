// In the place of the CUDA backend's header: kernels that are built from it run on the processor, a thread for each of
// the GPU's. Warps, blocks and clusters meet where theirs do; copies are done at once; nothing is timed.
// tests/ops/test_*_emulated.cc.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/layout.h"
#include "backend/cuda/plugin.h"
#include "base/half.h"

#define __device__
#define __host__
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n)
#define __shared__ static  // of blocks that run one after another
#define __CUDA_ARCH_FEAT_SM90_ALL 1

using cudaStream_t = void*;
struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

namespace orlop::cuda {

// Threads that meet.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}
  int threads() const { return threads_; }
  void arrive_and_wait() { wait(arrive()); }
  int arrive() {  // what is to be waited for
    const int turn = turn_.load();
    if (there_.fetch_add(1) + 1 == threads_) {
      there_ = 0;
      turn_.fetch_add(1);
      turn_.notify_all();
    }
    return turn;
  }
  void wait(int turn) { turn_.wait(turn); }

 private:
  const int threads_;
  std::atomic<int> there_{0}, turn_{0};
};

struct EmulatedWarp {
  Meeting all{32};
  uint64_t words[32];
  uint32_t fragments[32][6];
};

// A barrier in shared memory (PTX ISA, mbarrier).
struct EmulatedBarrier {
  int count = 0, pending = 0, phase = 0;
  int64_t bytes = 0;  // that are expected and have not come
  bool settle() {  // whether its phase is over
    if (pending != 0 || bytes != 0) return false;
    phase ^= 1, pending = count;
    return true;
  }
};

struct EmulatedBlock;
struct EmulatedCluster {
  explicit EmulatedCluster(int threads) : all(threads) {}
  Meeting all;
  std::vector<EmulatedBlock*> blocks;
};

struct EmulatedBlock {
  EmulatedBlock(size_t shared_bytes, int threads, unsigned number)
      : size(shared_bytes), number(number), all(threads), memory(new (std::align_val_t{128}) unsigned char[shared_bytes]), warps(static_cast<size_t>(threads / 32)) {
    for (auto& w : warps) w = std::make_unique<EmulatedWarp>();
  }
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete[](p, std::align_val_t{128}); }
  };
  Meeting& group(int id, int threads) {
    const std::lock_guard lock(mutex);
    auto& g = groups[id];
    if (!g) g = std::make_unique<Meeting>(threads);
    if (g->threads() != threads) std::abort();
    return *g;
  }
  const size_t size;
  const unsigned number;
  Meeting all;
  std::unique_ptr<unsigned char[], Free> memory;
  std::vector<std::unique_ptr<EmulatedWarp>> warps;
  EmulatedCluster* cluster = nullptr;
  std::mutex mutex;  // guards what follows
  std::map<int, std::unique_ptr<Meeting>> groups;
  std::map<uint32_t, EmulatedBarrier> barriers;
  std::condition_variable turned;  // one of them has a new phase
};

struct Dim {
  unsigned x = 0, y = 0, z = 0;
};
inline thread_local EmulatedBlock* block = nullptr;
inline thread_local Dim threadIdx, blockIdx;
inline Dim gridDim;

constexpr unsigned all_lanes = 0xffffffffu;

inline EmulatedWarp& warp_of_thread() { return *block->warps[threadIdx.x / 32]; }
inline void __syncthreads() { block->all.arrive_and_wait(); }
inline void __syncwarp() { warp_of_thread().all.arrive_and_wait(); }

template <class T>
T from_lane(T v, unsigned lane) {
  static_assert(sizeof(T) <= 8);
  EmulatedWarp& w = warp_of_thread();
  uint64_t word = 0;
  std::memcpy(&word, &v, sizeof v);
  w.words[threadIdx.x % 32] = word;
  w.all.arrive_and_wait();
  word = w.words[lane];
  w.all.arrive_and_wait();
  std::memcpy(&v, &word, sizeof v);
  return v;
}
template <class T>
T __shfl_sync(unsigned, T v, int lane) {
  return from_lane(v, static_cast<unsigned>(lane));
}
template <class T>
T __shfl_up_sync(unsigned, T v, int step) {
  const unsigned lane = threadIdx.x % 32;
  return from_lane(v, lane < static_cast<unsigned>(step) ? lane : lane - static_cast<unsigned>(step));
}
inline bool __any_sync(unsigned, bool v) {
  EmulatedWarp& w = warp_of_thread();
  w.words[threadIdx.x % 32] = v;
  w.all.arrive_and_wait();
  const bool any = std::any_of(w.words, w.words + 32, [](uint64_t x) { return x != 0; });
  w.all.arrive_and_wait();
  return any;
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int step) {
  return from_lane(v, threadIdx.x % 32 ^ static_cast<unsigned>(step));
}
template <class T>
T __shfl_down_sync(unsigned, T v, int step, unsigned width = 32) {
  const unsigned lane = threadIdx.x % 32;
  return from_lane(v, lane % width + static_cast<unsigned>(step) < width ? lane + static_cast<unsigned>(step) : lane);
}
template <class T>
T warp_sum(T v) {
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(all_lanes, v, step);
  return v;
}

template <class T>
T __ldcg(const T* p) {
  return *p;
}
inline unsigned atomicAdd(uint32_t* p, unsigned v) { return std::atomic_ref(*p).fetch_add(v); }
inline unsigned char* dynamic_shared() { return block->memory.get(); }
inline unsigned char* dynamic_shared_1024() { return dynamic_shared(); }
inline size_t __cvta_generic_to_shared(const void* p) { return static_cast<size_t>(static_cast<const unsigned char*>(p) - block->memory.get()); }

inline int __ffs(int v) { return __builtin_ffs(v); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t choice) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= static_cast<uint32_t>(both >> 8 * (choice >> 4 * i & 7) & 255) << 8 * i;
  return v;
}
inline float __uint_as_float(uint32_t v) { return std::bit_cast<float>(v); }
inline uint32_t __float_as_uint(float v) { return std::bit_cast<uint32_t>(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline __half __float2half_rn(float v) { return {f32_to_f16(v)}; }
inline uint16_t __half_as_ushort(__half v) { return v.bits; }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline void __threadfence() {}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __bfloat162float(__nv_bfloat16 v) { return __uint_as_float(uint32_t{v.bits} << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const uint32_t u = __float_as_uint(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(u >> 16 | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) - __bfloat162float(b.x), __bfloat162float(a.y) - __bfloat162float(b.y));
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) * __bfloat162float(b.x), __bfloat162float(a.y) * __bfloat162float(b.y));
}
using std::fmaxf;
using std::fminf;
using std::max;
using std::min;

struct ChainState;
struct Context {
  ChainState* chain = nullptr;
};
inline void wait_inputs() {}
inline void let_next_start() {}

}  // namespace orlop::cuda
