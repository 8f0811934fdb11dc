// In the place of the CUDA backend's header: see common.cuh beside it.
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

inline uint32_t masked(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }

// Fragments as PTX ISA's m16n8k16 has them.
inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EmulatedWarp& w = warp_of_thread();
  const unsigned lane = threadIdx.x % 32;
  std::copy_n(a, 4, w.fragments[lane]);
  w.fragments[lane][4] = b0, w.fragments[lane][5] = b1;
  w.all.arrive_and_wait();
  const auto of = [](uint32_t pair, int half) { return double{__uint_as_float(half ? pair & 0xffff0000u : pair << 16)}; };
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    double sum = double{c[e]};
    for (unsigned q = 0; q < 4; ++q)
      for (unsigned high = 0; high < 2; ++high)
        for (int half = 0; half < 2; ++half)
          sum += of(w.fragments[row % 8 * 4 + q][row / 8 + 2 * high], half) * of(w.fragments[column * 4 + q][4 + high], half);
    c[e] = static_cast<float>(sum);
  }
  w.all.arrive_and_wait();
}

inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4]) {
  std::copy_n(c, 4, d);
  mma(d, a, b0, b1);
}

template <int bytes>
void copy_later(unsigned char* to, const unsigned char* from) {
  if (reinterpret_cast<uintptr_t>(from) % bytes || __cvta_generic_to_shared(to) % bytes || __cvta_generic_to_shared(to) + bytes > block->size) std::abort();
  std::memcpy(to, from, bytes);
}
inline void close_copies() {}
template <int>
void wait_copies() {}

inline void copy_later_if(bool there, unsigned char* to, const unsigned char* from) {
  if (there)
    copy_later<16>(to, from);
  else
    std::memset(to, 0, 16);
}
void barrier_arrive(uint32_t barrier);
inline void arrive_with_copies(uint32_t barrier) { barrier_arrive(barrier); }

}  // namespace orlop::cuda
