// Products of few rows of activations: bounded by reading the weights.
#pragma once
#include "backend/cuda/common.cuh"
#include "backend/cuda/many.h"

namespace orlop::cuda {

struct StreamArgs {
  Piece l;
  const unsigned char* low;   // the piece
  const unsigned char* high;  // gated: where the piece of `up` begins (maybe the same, `up_row` rows later)
  int64_t up_row;
  const void* x;              // [m, k], bf16 if narrow_x
  int64_t x_stride;
  const float* norm_weight;   // or null
  const int32_t* k_map;       // or null
  float* out;                 // column 0 is the piece's first row; bf16 if narrow_out
  int64_t out_stride;
  const float* bias;          // of the piece, or null
  const float* up_bias;
  int64_t n;                  // outputs a row
  float norm_eps;
  int32_t m;
  int32_t glu;                // Glu
  bool narrow_x, narrow_out, accumulate;
};

constexpr int32_t stream_rows = static_cast<int32_t>(few_rows);  // of activations, at a time; more repeat the weights

// False: this GPU has too little shared memory for rows of so many elements.
bool stream(Context* c, const StreamArgs& a, PluginStatus* status);

}  // namespace orlop::cuda
