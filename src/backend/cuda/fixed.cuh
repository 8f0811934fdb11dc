// Products of many rows of activations whose outputs have the bits of stream()'s.
#pragma once
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

constexpr int32_t fixed_above = 8;  // rows of activations: up to here stream() is faster

constexpr int32_t fixed_hopper_above = 32;  // from there on warpgroup products are faster on Hopper, for bf16 and 4 bits

// x as fixed() takes it: rows of bf16 [m, stride], normed (as norm_narrow does), gathered; stride: k_padded.
struct FixedRows {
  const void* x;  // float32, or bf16 if narrow_x
  int64_t x_stride;
  const float* norm_weight;  // or null
  const int32_t* k_map;      // or null
  __nv_bfloat16* to;
  int64_t k, stride;
  float norm_eps;
  bool narrow_x;
};
void fixed_rows(Context* c, const FixedRows& a, int64_t m);
// Whether x can be taken as it lies.
bool fixed_takes(const void* x, int64_t x_stride, int64_t k);

// Of bf16 on Hopper; fixed() calls it. False: not there, or not possible.
bool fixed_hopper(Context* c, const StreamArgs& a, int blocks_of_k);
bool fixed_hopper_codes(Context* c, const StreamArgs& a, int blocks_of_k);  // of 4 bits

// a.x: rows of bf16 that fixed_takes(); no norm, no map. False: stream() would not do it either.
bool fixed(Context* c, const StreamArgs& a, PluginStatus* status);

}  // namespace orlop::cuda
