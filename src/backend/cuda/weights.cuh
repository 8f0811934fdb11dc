// One packed weight as a number; the plain way to read them.
#pragma once
#include <cuda_fp8.h>

#include "backend/cuda/common.cuh"

namespace orlop::cuda {

// `at` is where the piece begins.
__device__ inline float weight(const Piece& l, const unsigned char* at, int64_t row, int64_t k) {
  const int64_t unit = unit_of(l.codes);
  const unsigned char* codes = l.tiled ? at + l.at(row, k / unit) : at + row * l.row_bytes;
  const int64_t i = l.tiled ? place(k % unit, unit) : k;
  float v;
  switch (l.codes) {
    case Codes::f32:
      return reinterpret_cast<const float*>(codes)[k];
    case Codes::bf16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(codes)[k]);
    case Codes::i8:
      v = static_cast<float>(reinterpret_cast<const int8_t*>(codes)[i]);
      break;
    case Codes::e4m3:
      v = static_cast<float>(*reinterpret_cast<const __nv_fp8_e4m3*>(codes + i));
      break;
    default:
      v = static_cast<float>((codes[nibble_place(k % unit) / 2] >> (nibble_place(k % unit) % 2 * 4) & 15) - l.zero);
  }
  if (!l.tiled) return l.scaled ? v * reinterpret_cast<const float*>(at + l.scales_at)[row] : v;
  const int64_t s = k % unit / (unit / l.sub);
  v *= reinterpret_cast<const float*>(at + l.scale_at(row, k / unit))[s];
  return l.has_min ? v + reinterpret_cast<const float*>(at + l.min_at(row, k / unit))[s] : v;
}

}  // namespace orlop::cuda
