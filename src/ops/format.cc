// Block layouts: ggml's published definitions (ggml-common.h, ggml-quants.c). All little-endian.
#include "ops/format.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace orlop {
namespace {

using T = FileType;
constexpr FormatInfo formats[kernel_type_count] = {
    // type, bits, zero, group, min, sub-scales, codebook
    {T::f32, 0, 0, 1, false, false, false},   {T::f16, 0, 0, 1, false, false, false},
    {T::bf16, 0, 0, 1, false, false, false},  {T::q4_0, 4, 8, 32, false, false, false},
    {T::q4_1, 4, 0, 32, true, false, false},  {T::q5_0, 5, 16, 32, false, false, false},
    {T::q5_1, 5, 0, 32, true, false, false},  {T::q8_0, 8, 128, 32, false, false, false},
    {T::q2_k, 2, 0, 16, true, true, false},   {T::q3_k, 3, 4, 16, false, true, false},
    {T::q4_k, 4, 0, 32, true, true, false},   {T::q5_k, 5, 0, 32, true, true, false},
    {T::q6_k, 6, 32, 16, false, true, false}, {T::iq4_nl, 4, 0, 32, false, false, true},
    {T::f8, 8, 0, 0, false, false, true},     {T::w4, 4, 8, 0, false, false, false},
    {T::w4z, 4, 0, 0, true, false, false},    {T::w8, 8, 128, 0, false, false, false},
    {T::w8z, 8, 0, 0, true, false, false},
};

uint16_t load16(const unsigned char* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// Codes of a 16-byte nibble block: low nibbles are elements 0..15, high nibbles 16..31.
void nibbles(const unsigned char* qs, uint8_t* code) {
  for (int i = 0; i < 16; ++i) {
    code[i] = qs[i] & 15;
    code[16 + i] = qs[i] >> 4;
  }
}

void fifth_bits(const unsigned char* qh, uint8_t* code) {
  for (int i = 0; i < 32; ++i) code[i] |= ((qh[i / 8] >> (i % 8)) & 1) << 4;
}

// q4_k and q5_k: eight 6-bit scales and eight 6-bit mins in 12 bytes.
void scale_min(const unsigned char* s, int j, QuantGroup& out) {
  int scale, min;
  if (j < 4) {
    scale = s[j] & 63;
    min = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    min = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
  }
  out.scale[0] = out.scale[1] = static_cast<int8_t>(scale);
  out.min[0] = out.min[1] = static_cast<int8_t>(min);
}

int q3_scale(const unsigned char* s, int i) {
  const int low = (s[i % 8] >> (i < 8 ? 0 : 4)) & 15;
  const int high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
  return (low | (high << 4)) - 32;
}

}  // namespace

const int8_t iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

const FormatInfo& format_info(FileType type) { return formats[static_cast<int>(type)]; }

void unpack_group(FileType type, const unsigned char* row, int64_t g, QuantGroup& out) {
  const FileTypeInfo& f = info(type);
  const int64_t per_block = f.block_elems / 32;
  const unsigned char* b = row + g / per_block * f.block_bytes;
  const int j = static_cast<int>(g % per_block);  // group inside a block of 256
  out.m = 0;
  out.scale[0] = out.scale[1] = 1;
  out.min[0] = out.min[1] = 0;
  switch (type) {
    case T::q4_0:
    case T::iq4_nl:
      out.d = load16(b);
      nibbles(b + 2, out.code);
      return;
    case T::q4_1:
      out.d = load16(b);
      out.m = load16(b + 2);
      nibbles(b + 4, out.code);
      return;
    case T::q5_0:
      out.d = load16(b);
      nibbles(b + 6, out.code);
      fifth_bits(b + 2, out.code);
      return;
    case T::q5_1:
      out.d = load16(b);
      out.m = load16(b + 2);
      nibbles(b + 8, out.code);
      fifth_bits(b + 4, out.code);
      return;
    case T::q8_0:
      out.d = load16(b);
      for (int i = 0; i < 32; ++i) out.code[i] = b[2 + i] ^ 0x80;
      return;
    case T::q2_k: {  // scales[16] qs[64] d dmin
      const unsigned char* qs = b + 16 + 32 * (j / 4);
      for (int i = 0; i < 32; ++i) out.code[i] = (qs[i] >> (2 * (j % 4))) & 3;
      for (int h = 0; h < 2; ++h) {
        out.scale[h] = static_cast<int8_t>(b[2 * j + h] & 15);
        out.min[h] = static_cast<int8_t>(b[2 * j + h] >> 4);
      }
      out.d = load16(b + 80);
      out.m = load16(b + 82);
      return;
    }
    case T::q3_k: {  // hmask[32] qs[64] scales[12] d
      const unsigned char* qs = b + 32 + 32 * (j / 4);
      for (int i = 0; i < 32; ++i)
        out.code[i] = static_cast<uint8_t>(((qs[i] >> (2 * (j % 4))) & 3) | (((b[i] >> j) & 1) << 2));
      for (int h = 0; h < 2; ++h) out.scale[h] = static_cast<int8_t>(q3_scale(b + 96, 2 * j + h));
      out.d = load16(b + 108);
      return;
    }
    case T::q4_k:  // d dmin scales[12] qs[128]
      out.d = load16(b);
      out.m = load16(b + 2);
      scale_min(b + 4, j, out);
      for (int i = 0; i < 32; ++i) out.code[i] = (b[16 + 32 * (j / 2) + i] >> (4 * (j % 2))) & 15;
      return;
    case T::q5_k:  // d dmin scales[12] qh[32] qs[128]
      out.d = load16(b);
      out.m = load16(b + 2);
      scale_min(b + 4, j, out);
      for (int i = 0; i < 32; ++i)
        out.code[i] = static_cast<uint8_t>(((b[48 + 32 * (j / 2) + i] >> (4 * (j % 2))) & 15) |
                                           (((b[16 + i] >> j) & 1) << 4));
      return;
    case T::q6_k: {  // ql[128] qh[64] scales[16] d
      const unsigned char* ql = b + 64 * (j / 4) + 32 * (j % 2);
      const unsigned char* qh = b + 128 + 32 * (j / 4);
      for (int i = 0; i < 32; ++i)
        out.code[i] = static_cast<uint8_t>(((ql[i] >> (4 * (j % 4 / 2))) & 15) |
                                           (((qh[i] >> (2 * (j % 4))) & 3) << 4));
      for (int h = 0; h < 2; ++h) out.scale[h] = static_cast<int8_t>(b[192 + 2 * j + h]);
      out.d = load16(b + 208);
      return;
    }
    default:  // floats, and types whose rows come from QuantRows
      return;
  }
}

float e4m3_to_f32(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float v = exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                           : std::ldexp(static_cast<float>(mantissa), -9);
  return code & 0x80 ? -v : v;
}

float dequantize(FileType type, uint8_t code, float scale, float min) {
  const FormatInfo& f = format_info(type);
  if (type == T::f8) return scale * e4m3_to_f32(code);
  const float v = static_cast<float>(code - f.zero_point);
  return f.has_min ? std::fma(v, scale, min) : v * scale;
}

void dequantize_row(FileType type, const unsigned char* row, int64_t k, float* out) {
  if (type == T::f32) {
    std::memcpy(out, row, static_cast<size_t>(k) * 4);
    return;
  }
  if (type == T::f16 || type == T::bf16) {
    for (int64_t i = 0; i < k; ++i) {
      const uint16_t h = load16(row + 2 * i);
      out[i] = type == T::f16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
    return;
  }
  const FormatInfo& f = format_info(type);
  QuantGroup q;
  for (int64_t g = 0; g < k / 32; ++g) {
    unpack_group(type, row, g, q);
    const float d = f16_to_f32(q.d), m = f16_to_f32(q.m);
    for (int i = 0; i < 32; ++i) {
      const int h = i / 16;
      const int code = f.codebook ? iq4_nl_values[q.code[i]] : q.code[i] - f.zero_point;
      const float scale = f.sub_scales ? d * static_cast<float>(q.scale[h]) : d;
      float v = scale * static_cast<float>(code);
      if (f.has_min) v = f.sub_scales ? v - m * static_cast<float>(q.min[h]) : v + m;
      out[32 * g + i] = v;
    }
  }
}

}  // namespace orlop
