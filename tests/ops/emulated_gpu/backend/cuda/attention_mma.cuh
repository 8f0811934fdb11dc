// In the place of the CUDA backend's header: see common.cuh beside it. Addresses of shared memory are offsets; fragments
// as PTX ISA's m16n8k16, ldmatrix and movmatrix have them.
#pragma once
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

inline void copy16(uint32_t to, const void* from, bool seen = true) {
  if (to % 16 || to + size_t{16} > block->size || (seen && reinterpret_cast<uintptr_t>(from) % 16)) std::abort();
  if (seen)
    std::memcpy(dynamic_shared() + to, from, 16);
  else
    std::memset(dynamic_shared() + to, 0, 16);
}
inline void prefetch(const void* p) { static_cast<void>(*static_cast<const volatile unsigned char*>(p)); }
inline void copies_end() {}
template <int pending>
void copies_wait() {}

inline void take_matrices(uint32_t at, uint32_t (&to)[4], bool turned) {
  EmulatedWarp& w = warp_of_thread();
  const unsigned lane = threadIdx.x % 32;
  if (at % 16 || at + size_t{16} > block->size) std::abort();
  w.words[lane] = at;
  w.all.arrive_and_wait();
  for (unsigned m = 0; m < 4; ++m) {
    uint32_t pair = 0;
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned row = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
      uint16_t v;
      std::memcpy(&v, dynamic_shared() + w.words[8 * m + row] + 2 * column, 2);
      pair |= uint32_t{v} << 16 * e;
    }
    to[m] = pair;
  }
  w.all.arrive_and_wait();
}
inline void load_matrices(uint32_t at, uint32_t (&to)[4]) { take_matrices(at, to, false); }
inline void load_transposed(uint32_t at, uint32_t (&to)[4]) { take_matrices(at, to, true); }
inline uint32_t transposed(uint32_t v) {
  EmulatedWarp& w = warp_of_thread();
  const unsigned lane = threadIdx.x % 32;
  w.words[lane] = v;
  w.all.arrive_and_wait();
  uint32_t pair = 0;
  for (unsigned e = 0; e < 2; ++e) pair |= static_cast<uint32_t>(w.words[(lane % 4 * 2 + e) * 4 + lane / 8] >> lane / 4 % 2 * 16 & 0xffff) << 16 * e;
  w.all.arrive_and_wait();
  return pair;
}

template <bool half>
void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  EmulatedWarp& w = warp_of_thread();
  const unsigned lane = threadIdx.x % 32;
  std::copy_n(a, 4, w.fragments[lane]);
  std::copy_n(b, 2, w.fragments[lane] + 4);
  w.all.arrive_and_wait();
  const auto of = [](uint32_t pair, int high) {
    const auto bits = static_cast<uint16_t>(high ? pair >> 16 : pair);
    return double{half ? f16_to_f32(bits) : bf16_to_f32(bits)};
  };
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    double sum = double{c[e]};
    for (unsigned q = 0; q < 4; ++q)
      for (unsigned high = 0; high < 2; ++high)
        for (int h = 0; h < 2; ++h) sum += of(w.fragments[row % 8 * 4 + q][row / 8 + 2 * high], h) * of(w.fragments[column * 4 + q][4 + high], h);
    c[e] = static_cast<float>(sum);
  }
  w.all.arrive_and_wait();
}

inline uint32_t pack_bf16(float x, float y) { return f32_to_bf16(x) | uint32_t{f32_to_bf16(y)} << 16; }
inline uint32_t pack_f16(float x, float y) { return f32_to_f16(x) | uint32_t{f32_to_f16(y)} << 16; }
inline float finite_f16(float x) { return x != x ? x : fminf(fmaxf(x, -65504.0f), 65504.0f); }
inline uint32_t pack_f16_finite(float x, float y) { return pack_f16(finite_f16(x), finite_f16(y)); }
inline uint32_t of_f16x2(uint32_t x, uint32_t y, float (*f)(float, float)) {
  const auto half = [&](int shift) { return uint32_t{f32_to_f16(f(f16_to_f32(static_cast<uint16_t>(x >> shift)), f16_to_f32(static_cast<uint16_t>(y >> shift))))} << shift; };
  return half(0) | half(16);
}
inline uint32_t minus_f16x2(uint32_t x, uint32_t y) {
  return of_f16x2(x, y, [](float a, float b) { return a - b; });
}
inline uint32_t times_f16x2(uint32_t x, uint32_t y) {
  return of_f16x2(x, y, [](float a, float b) { return a * b; });
}
inline float exp2_fast(float x) { return std::exp2(x); }
inline float log2_fast(float x) { return std::log2(x); }
template <uint32_t value>
uint32_t in_register() {
  return value;
}

}  // namespace orlop::cuda
