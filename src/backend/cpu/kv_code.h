// How int8 and uint4 caches code floats: plain code that every ISA compiles for itself, in one
// fixed order of operations, so that a page's codes do not depend on the ISA. Internal linkage, no
// STL.
//
//   int8   x = centre + scale * code, code in [-127, 127]; values without a centre
//   uint4  x = centre + scale * (code - 8), code in [0, 15]
//
// Scales are bf16, rounded up so that the range is covered: any magnitude of a float can be stored,
// and a step is at most 1/128 wider than it must be. The scale is chosen after the centre was
// rounded, so a centre's error never cuts off the range, it widens the step by error / 7 (uint4).
// Keys have centres in f16 (saturated): with an offset of 50 and a range of 3.5 a step is some 1 %
// wider, with bf16 it would be 8 %. Values have no such offsets; their centres are bf16. Values are
// turned first by a Hadamard matrix (Sylvester's, over blocks of the largest power of two that
// divides head_dim, made orthonormal), and attention's outputs are turned back: large elements are
// spread over all. On SmolLM2 that takes the error of int8 values from 0.0078 to 0.0053 and that of
// uint4 values from 0.103 to 0.082 (mean |change of logprob|).
// What is smaller than 2^-60 counts as zero. A NaN or an infinity makes scale and centre NaN.
#pragma once
#include "base/half.h"

namespace orlop::cpu {
namespace {

// The blocks that are turned: 8 to head_dim elements.
inline int turn_block(int n) {
  return n & -n;
}

// In place; its own inverse. n is a multiple of 8.
inline void turn(float* x, int n) {
  const int block = turn_block(n);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(block));
  for (int i = 0; i < n; ++i) x[i] *= scale;
  for (int h = 1; h < block; h *= 2)
    for (int i = 0; i < n; i += 2 * h)
      for (int j = i; j < i + h; ++j) {
        const float a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
}

// f16 bits; what is finite stays so.
inline uint16_t f32_to_f16_finite(float x) {
  x = x < -65504.0f ? -65504.0f : x;
  return f32_to_f16(x > 65504.0f ? 65504.0f : x);
}

struct Range {
  float low, high;
  float poison;  // 0, or NaN if any element is not finite
};
// n is a multiple of 8.
inline Range range_of(const float* x, int n) {
  float low[8], high[8], poison[8];
  for (int j = 0; j < 8; ++j) low[j] = __builtin_inff(), high[j] = -__builtin_inff(), poison[j] = 0;
  for (int i = 0; i < n; i += 8)
    for (int j = 0; j < 8; ++j) {
      const float v = x[i + j];
      low[j] = v < low[j] ? v : low[j];
      high[j] = v > high[j] ? v : high[j];
      poison[j] += v - v;
    }
  for (int j = 1; j < 8; ++j) {
    low[0] = low[j] < low[0] ? low[j] : low[0];
    high[0] = high[j] > high[0] ? high[j] : high[0];
    poison[0] += poison[j];
  }
  return {low[0], high[0], poison[0]};
}

// bf16 bits of the smallest that is not below scale.
inline uint16_t scale_bits(float scale, float poison) {
  if (poison != 0) return 0x7fc0;  // NaN
  if (!(scale >= 0x1p-60f)) return 0;
  return static_cast<uint16_t>((__builtin_bit_cast(uint32_t, scale) + 0xffffu) >> 16);
}
inline float inverse_of(uint16_t scale) {
  return scale ? 1.0f / bf16_to_f32(scale) : 0.0f;
}

// To the nearest integer, ties to even, after clamping; NaN gives low. |low|, |high| < 2^22.
inline int32_t code_of(float x, float low, float high) {
  x = x > low ? x : low;
  x = x < high ? x : high;
  return __builtin_bit_cast(int32_t, x + 0x1.8p23f) - 0x4b400000;
}

// One token's values, to every second of 2 n bytes. Returns the scale.
inline uint16_t put_int8(const float* x, int n, unsigned char* to) {
  const Range r = range_of(x, n);
  const float largest = -r.low > r.high ? -r.low : r.high;
  const uint16_t bits = scale_bits(largest * (1.0f / 127), r.poison);
  const float inverse = inverse_of(bits);
  for (int i = 0; i < n; ++i)
    to[2 * i] = static_cast<unsigned char>(code_of(x[i] * inverse, -127.0f, 127.0f));
  return bits;
}

// The grid of codes [-below, above] around its centre that covers a range.
struct Grid {
  uint16_t scale, centre;
};
inline Grid grid_of(const Range& r, float below, float above, bool f16) {
  const float steps = 1.0f / (below + above);
  const float centre = r.low + below * (r.high * steps - r.low * steps);
  Grid g;
  g.centre = f16 ? f32_to_f16_finite(centre + r.poison) : f32_to_bf16(centre + r.poison);
  const float c = f16 ? f16_to_f32(g.centre) : bf16_to_f32(g.centre);
  const float down = (c - r.low) * (1.0f / below), up = (r.high - c) * (1.0f / above);
  g.scale = scale_bits(down > up ? down : up, r.poison);
  return g;
}
inline int32_t uint4_code(float x, float centre, float inverse) {
  return code_of((x - centre) * inverse + 8.0f, 0.0f, 15.0f);
}

// One token's values, to the lower or upper nibbles of n bytes.
inline Grid put_uint4(const float* x, int n, unsigned char* to, bool upper) {
  const Grid g = grid_of(range_of(x, n), 8, 7, false);
  const float centre = bf16_to_f32(g.centre), inverse = inverse_of(g.scale);
  const int keep = upper ? 15 : 240, shift = upper ? 4 : 0;
  for (int i = 0; i < n; ++i)
    to[i] = static_cast<unsigned char>((to[i] & keep) | uint4_code(x[i], centre, inverse) << shift);
  return g;
}

// Dimensions [begin, begin + n) of a tile of 16 tokens' keys, from bf16 [n / 2][16][2] to the
// codes, centres and scales of a tile of dims.
inline void put_keys(bool int8, const uint16_t* tile, int dims, int begin, int n,
                     unsigned char* to) {
  auto* centres = reinterpret_cast<uint16_t*>(to + (int8 ? 16 : 8) * dims) + begin;
  uint16_t* scales = centres + dims;
  to += (int8 ? 16 : 8) * begin;
  for (int d = 0; d < n; ++d) {
    float x[16];
    for (int t = 0; t < 16; ++t) x[t] = bf16_to_f32(tile[(d / 2 * 16 + t) * 2 + d % 2]);
    const Grid g =
        int8 ? grid_of(range_of(x, 16), 127, 127, true) : grid_of(range_of(x, 16), 8, 7, true);
    const float centre = f16_to_f32(g.centre), inverse = inverse_of(g.scale);
    for (int t = 0; t < 16; ++t) {
      if (int8) {
        to[(d / 2 * 16 + t) * 2 + d % 2] =
            static_cast<unsigned char>(code_of((x[t] - centre) * inverse, -127.0f, 127.0f));
        continue;
      }
      const int32_t code = uint4_code(x[t], centre, inverse);
      unsigned char& byte = to[d / 2 * 16 + t];
      byte = static_cast<unsigned char>(d % 2 ? byte | code << 4 : code);
    }
    centres[d] = g.centre;
    scales[d] = g.scale;
  }
}

}  // namespace
}  // namespace orlop::cpu
