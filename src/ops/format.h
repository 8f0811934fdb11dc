// Weight formats as data: one row per FileType, and the meaning of every block in portable code.
// Packing (backend/cpu/linear.cc) and the reference kernels are built on unpack_group, so a format
// is described once. Block layouts: ggml's published definitions (ggml-common.h, ggml-quants.c).
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace orlop {

struct FormatInfo {
  FileType type;
  uint8_t code_bits;    // 0: the type holds floats
  uint8_t zero_point;   // value = scale * (code - zero_point) [+ min]
  uint8_t group;        // elements that share one scale; 0: LinearDesc::group says
  bool has_min;         // an offset per group
  bool sub_scales;      // integer scales per group under one float16 scale per 256 elements
  bool codebook;        // code indexes iq4_nl_values; zero_point is 0 then
};
const FormatInfo& format_info(FileType type);
inline bool is_float(FileType type) { return format_info(type).code_bits == 0; }

extern const int8_t iq4_nl_values[16];

// The value of an e4m3 byte (OCP 8-bit floating point, revision 1.0: bias 7, S.1111.111 is NaN).
float e4m3_to_f32(uint8_t code);
// Of a type whose scales stand apart: the weight that a code stands for.
float dequantize(FileType type, uint8_t code, float scale, float min);

// 32 consecutive weights of a quantized row.
struct QuantGroup {
  uint8_t code[32];
  uint16_t d, m;     // float16 bits; m: the min (legacy types) or the scale of the mins (K types)
  int8_t scale[2];   // K types: integer scale of each half; else 1
  int8_t min[2];     // K types with mins: integer min of each half
};
// Group g of a row in the file's layout. ggml's quantized types only.
void unpack_group(FileType type, const unsigned char* row, int64_t g, QuantGroup& out);

// k elements of a row in the file's layout to float32; k is a multiple of the block. Floats (of 16
// bits or more) and ggml's types.
void dequantize_row(FileType type, const unsigned char* row, int64_t k, float* out);

}  // namespace orlop
