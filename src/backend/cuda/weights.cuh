// One packed weight as a number; the plain way to read them.
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

// `part` is where the part begins.
__device__ inline float weight(const PartLayout& l, const unsigned char* part, int64_t row, int64_t k) {
  const unsigned char* codes = part + row * l.row_bytes;
  float v;
  switch (l.codes) {
    case Codes::f32:
      return reinterpret_cast<const float*>(codes)[k];
    case Codes::bf16:
      v = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(codes)[place(k)]);
      break;
    case Codes::i8:
      v = static_cast<float>(reinterpret_cast<const int8_t*>(codes)[place(k)]);
      break;
    default:
      v = static_cast<float>((codes[nibble_place(k) / 2] >> (nibble_place(k) % 2 * 4) & 15) - l.zero);
  }
  if (!l.scaled) return v;
  const int64_t at = row * l.groups + k / l.group;
  v *= reinterpret_cast<const float*>(part + l.scales_at)[at];
  if (l.has_min) v += reinterpret_cast<const float*>(part + l.mins_at)[at];
  return v;
}

}  // namespace orlop::cuda
