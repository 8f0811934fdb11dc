// f16 and bf16 <-> f32 in portable code (IEEE 754 round to nearest even). Always inlined: ISA files
// include this, and the linker must never keep a copy of theirs for others.
#pragma once
#include <cstdint>

namespace orlop {

[[gnu::always_inline]] inline float bf16_to_f32(uint16_t h) {
  return __builtin_bit_cast(float, uint32_t{h} << 16);
}

[[gnu::always_inline]] inline uint16_t f32_to_bf16(float f) {
  uint32_t u = __builtin_bit_cast(uint32_t, f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);  // quiet NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

[[gnu::always_inline]] inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  uint32_t exp = (h >> 10) & 0x1f;
  uint32_t man = h & 0x3ff;
  if (exp == 0x1f) return __builtin_bit_cast(float, sign | 0x7f800000u | (man << 13));
  if (exp == 0) {
    // man * 2^-24, exact in f32
    const float v = static_cast<float>(man) * 0x1p-24f;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, v) | sign);
  }
  return __builtin_bit_cast(float, sign | ((exp + 112) << 23) | (man << 13));
}

[[gnu::always_inline]] inline uint16_t f32_to_f16(float f) {
  const uint32_t u = __builtin_bit_cast(uint32_t, f);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00);
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to infinity
  if (a < 0x38800000u) {  // subnormal half: the float adder rounds for us
    const float v = __builtin_bit_cast(float, a) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, v) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
}

}  // namespace orlop
