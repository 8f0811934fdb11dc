// In the place of the CUDA backend's header: see common.cuh beside it. Addresses of shared memory are offsets.
#pragma once
#include <thread>

#include "backend/cuda/common.cuh"

namespace orlop::cuda {

inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

inline void barrier_init(uint32_t barrier, int arrivals) {
  const std::lock_guard lock(block->mutex);
  block->barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void barriers_there() {}
inline void fence_async() {}
inline void barrier_expect(uint32_t barrier, int bytes) {
  const std::lock_guard lock(block->mutex);
  EmulatedBarrier& b = block->barriers.at(barrier);
  b.bytes += bytes;
  if (--b.pending < 0) std::abort();
  b.settle();
}
inline void barrier_arrive(uint32_t barrier) { barrier_expect(barrier, 0); }
inline void barrier_wait(uint32_t barrier, int parity) {
  for (;; std::this_thread::yield()) {
    const std::lock_guard lock(block->mutex);
    if (block->barriers.at(barrier).phase != parity) return;
  }
}
inline void group_sync(int id, int threads) { block->group(id, threads).arrive_and_wait(); }

inline void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  if (bytes <= 0 || bytes % 16 || to % 16 || reinterpret_cast<uintptr_t>(from) % 16 || to + static_cast<size_t>(bytes) > block->size) std::abort();
  std::memcpy(dynamic_shared() + to, from, static_cast<size_t>(bytes));
  const std::lock_guard lock(block->mutex);
  EmulatedBarrier& b = block->barriers.at(barrier);
  b.bytes -= bytes;
  b.settle();
}
inline uint64_t read_once() { return 1; }
inline void copy_bytes_once(uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t) { copy_bytes(to, from, bytes, barrier); }
inline void prefetch_line(const void*) {}

inline void send_word(uint64_t* to, uint64_t v) { std::atomic_ref(*to).store(v); }
inline void receive_words(const uint64_t* from, uint64_t& a, uint64_t& b) {
  if (reinterpret_cast<uintptr_t>(from) % 16) std::abort();
  a = std::atomic_ref(const_cast<uint64_t&>(from[0])).load();
  b = std::atomic_ref(const_cast<uint64_t&>(from[1])).load();
  std::this_thread::yield();
}

}  // namespace orlop::cuda
