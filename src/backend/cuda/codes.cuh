// Codes of weights as pairs of bf16, exactly: 16 bytes of a thread (see place()) are `steps` times four elements.
#pragma once
#include "backend/cuda/common.cuh"
#include "backend/cuda/instructions.cuh"

namespace orlop::cuda {

__device__ inline uint32_t pair(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t less(uint32_t a, uint32_t b) {
  const __nv_bfloat162 v = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t times(uint32_t a, uint32_t b) {
  const __nv_bfloat162 v = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

constexpr int steps_of(Codes codes) { return static_cast<int>(unit_of(codes)) / 16; }

// Elements 0, 1 and 2, 3 of step i.
template <Codes codes>
__device__ inline void widen(const uint4& v, int i, int32_t zero, uint32_t& first, uint32_t& second) {
  if constexpr (codes == Codes::bf16) {
    first = word_of(v, 2 * i);
    second = word_of(v, 2 * i + 1);
  } else if constexpr (codes == Codes::i8) {
    // Seven bits below those of 128 are the bf16 number 128 + them; the sign below them makes it 256, so that
    // what is left of the difference is the code.
    const uint32_t w = word_of(v, i), low = __byte_perm(w, 0, 0x4140), high = __byte_perm(w, 0, 0x4342);
    first = less(masked(low, 0x007f007fu, 0x43004300u), masked(low, 0x00800080u, 0x43004300u));
    second = less(masked(high, 0x007f007fu, 0x43004300u), masked(high, 0x00800080u, 0x43004300u));
  } else if constexpr (codes == Codes::e4m3) {
    // Exponent and mantissa where bf16 has them are the number over 2^120.
    const uint32_t w = word_of(v, i), low = __byte_perm(w, 0, 0x1404), high = __byte_perm(w, 0, 0x3424);
    first = times((low & 0x80008000u) | (low & 0x7f007f00u) >> 4, 0x7b807b80u);
    second = times((high & 0x80008000u) | (high & 0x7f007f00u) >> 4, 0x7b807b80u);
  } else {
    // A nibble below the bits of 128 is the bf16 number 128 + code; what is taken off is exact too.
    const uint32_t w = word_of(v, i / 2) >> (i % 2 * 8), off = 0x43004300u + static_cast<uint32_t>(zero) * 0x10001u;
    first = less(masked(w, 0x000f000fu, 0x43004300u), off);
    second = less(masked(w >> 4, 0x000f000fu, 0x43004300u), off);
  }
}

}  // namespace orlop::cuda
