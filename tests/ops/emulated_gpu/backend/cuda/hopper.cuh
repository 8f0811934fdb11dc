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
template <class T>
T at_shared(uint32_t from) {
  if (from % sizeof(T) || from + sizeof(T) > block->size) std::abort();
  return *reinterpret_cast<const T*>(dynamic_shared() + from);
}
inline uint4 shared_16(uint32_t from) { return at_shared<uint4>(from); }
inline uint2 shared_8(uint32_t from) { return at_shared<uint2>(from); }
inline uint32_t shared_4(uint32_t from) { return at_shared<uint32_t>(from); }
inline uint32_t kept(uint32_t v) { return v; }
inline void fence_async() {}
inline void barrier_expect(uint32_t barrier, int bytes) {
  const std::lock_guard lock(block->mutex);
  EmulatedBarrier& b = block->barriers.at(barrier);
  b.bytes += bytes;
  if (--b.pending < 0) std::abort();
  if (b.settle()) block->turned.notify_all();
}
inline void barrier_arrive(uint32_t barrier) { barrier_expect(barrier, 0); }
inline void barrier_wait(uint32_t barrier, int parity) {
  std::unique_lock lock(block->mutex);
  const EmulatedBarrier& b = block->barriers.at(barrier);
  block->turned.wait(lock, [&] { return b.phase != parity; });
}
inline void group_sync(int id, int threads) { block->group(id, threads).arrive_and_wait(); }
inline void group_arrive(int id, int threads) { block->group(id, threads).arrive(); }

inline void bytes_there(uint32_t barrier, int bytes) {
  const std::lock_guard lock(block->mutex);
  EmulatedBarrier& b = block->barriers.at(barrier);
  b.bytes -= bytes;
  if (b.settle()) block->turned.notify_all();
}
inline void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  if (bytes <= 0 || bytes % 16 || to % 16 || reinterpret_cast<uintptr_t>(from) % 16 || to + static_cast<size_t>(bytes) > block->size) std::abort();
  std::memcpy(dynamic_shared() + to, from, static_cast<size_t>(bytes));
  bytes_there(barrier, bytes);
}
inline uint64_t read_once() { return 1; }
inline void copy_bytes_once(uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t) { copy_bytes(to, from, bytes, barrier); }
inline void prefetch_line(const void*) {}

// 16-byte pieces of 128 bytes are turned by bits 7 to 9 of the address.
inline uint32_t swizzled_at(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

// Rows of elements of so many bytes, and the box that is copied at a time.
struct CUtensorMap {
  const unsigned char* from = nullptr;
  int64_t k = 0, rows = 0, stride = 0;  // stride: bytes
  int bytes = 0, box_k = 0, box_rows = 0;
  bool swizzle = false;
  int64_t sizes[4] = {}, strides[3] = {};  // copy_box(): of what is four-dimensional, beside from, bytes and swizzle
  int boxes[4] = {};
};
inline void copy_box(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier) {
  const int at[] = {x, y, z, w}, line = map->boxes[0] * map->bytes;
  int all = line;
  for (int d = 1; d < 4; ++d) all *= map->boxes[d];
  if (to % (map->swizzle ? 1024 : 128) || line % 16 || (map->swizzle && line != 128) || reinterpret_cast<uintptr_t>(map->from) % 16 || to + static_cast<size_t>(all) > block->size)
    std::abort();
  for (int i = 0; i < all / line; ++i) {
    const int of[] = {0, i % map->boxes[1], i / map->boxes[1] % map->boxes[2], i / map->boxes[1] / map->boxes[2]};
    const unsigned char* from = map->from + int64_t{x} * map->bytes;
    for (int d = 1; d < 4; ++d) {
      if (map->strides[d - 1] % 16 || at[d] < 0 || at[d] + of[d] >= map->sizes[d]) std::abort();  // nobody asks for what is not there
      from += (at[d] + of[d]) * map->strides[d - 1];
    }
    for (int b = 0; b < line; b += 16) {
      const auto place = to + static_cast<uint32_t>(i * line + b);
      std::memcpy(dynamic_shared() + (map->swizzle ? swizzled_at(place) : place), from + b, 16);
    }
  }
  bytes_there(barrier, all);
}
inline void copy_rows(uint32_t to, const CUtensorMap* map, int k, int row, uint32_t barrier) {
  const int line = map->box_k * map->bytes;
  if (to % (map->swizzle ? 1024 : 128) || line % 16 || (map->swizzle && line != 128) || map->box_k > 256 || map->box_rows > 256 || map->stride % 16 || reinterpret_cast<uintptr_t>(map->from) % 16 ||
      to + static_cast<size_t>(line * map->box_rows) > block->size)
    std::abort();
  for (int r = 0; r < map->box_rows; ++r)
    for (int i = 0; i < map->box_k; ++i) {
      const uint32_t at = to + static_cast<uint32_t>(r * line + i * map->bytes);
      unsigned char* const here = dynamic_shared() + (map->swizzle ? swizzled_at(at) : at);
      if (row + r < map->rows && k + i < map->k)
        std::memcpy(here, map->from + (row + r) * map->stride + int64_t{k + i} * map->bytes, static_cast<size_t>(map->bytes));
      else
        std::memset(here, 0, static_cast<size_t>(map->bytes));
    }
  bytes_there(barrier, line * map->box_rows);
}
inline void copy_rows_once(uint32_t to, const CUtensorMap* map, int k, int row, uint32_t barrier, uint64_t) { copy_rows(to, map, k, row, barrier); }
inline void prefetch_map(const CUtensorMap*) {}

inline void send_four(float4* to, float4 v) {
  if (reinterpret_cast<uintptr_t>(to) % 16) std::abort();
  std::atomic_ref(to->x).store(v.x), std::atomic_ref(to->y).store(v.y), std::atomic_ref(to->z).store(v.z), std::atomic_ref(to->w).store(v.w);
}
inline float4 receive_four(const float4* from) {
  std::this_thread::yield();
  const auto at = [](const float& f) { return std::atomic_ref(const_cast<float&>(f)).load(); };
  return {at(from->x), at(from->y), at(from->z), at(from->w)};
}
inline bool whole(const float4& v) {
  const auto sent = [](float f) { return __float_as_uint(f) != ~0u; };
  return sent(v.x) && sent(v.y) && sent(v.z) && sent(v.w);
}

template <int>
void fewer_registers() {}
template <int>
void more_registers() {}
inline void products_begin() {}
inline void products_commit() {}
template <int>
void products_wait() {}
template <int N>
void hold(float (&)[N]) {}

inline uint64_t swizzled(uint32_t address, int across, int down) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{static_cast<uint32_t>(across) >> 4} << 16 | uint64_t{static_cast<uint32_t>(down) >> 4} << 32 | uint64_t{1} << 62;
}
// Fragments as PTX ISA's m64nNk16 has them, those of a warp: done at once.
template <class T, int N>
struct Product {
  static void along(float (&d)[N / 2], const uint32_t* a, uint64_t b, int accumulate) {
    EmulatedWarp& w = warp_of_thread();
    const unsigned lane = threadIdx.x % 32;
    std::copy_n(a, 4, w.fragments[lane]);
    w.all.arrive_and_wait();
    const auto from = static_cast<uint32_t>(b & 0x3fff) << 4, down = static_cast<uint32_t>(b >> 32 & 0x3fff) << 4;
    if (b >> 62 != 1 || from % 32) std::abort();
    for (unsigned e = 0; e < N / 2; ++e) {
      const unsigned row = lane / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
      double sum = accumulate ? double{d[e]} : 0.0;
      for (unsigned k = 0; k < 16; ++k) {
        const uint32_t pair = w.fragments[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)];
        uint16_t bits;
        std::memcpy(&bits, dynamic_shared() + swizzled_at(from + column / 8 * down + column % 8 * 128 + k * 2), 2);
        sum += double{__uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16)} * double{__bfloat162float({bits})};
      }
      d[e] = static_cast<float>(sum);
    }
    w.all.arrive_and_wait();
  }
};

inline void send_word(uint64_t* to, uint64_t v) { std::atomic_ref(*to).store(v); }
inline void receive_words(const uint64_t* from, uint64_t& a, uint64_t& b) {
  if (reinterpret_cast<uintptr_t>(from) % 16) std::abort();
  a = std::atomic_ref(const_cast<uint64_t&>(from[0])).load();
  b = std::atomic_ref(const_cast<uint64_t&>(from[1])).load();
  std::this_thread::yield();
}

}  // namespace orlop::cuda
