// Products of 9 to 64 rows of activations with coded weights, in fast mode on Hopper: see few_codes.cuh.
#pragma once
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

constexpr int32_t few_codes_rows = 64;  // of activations, at most

// Whether it is faster than what else there is, as measured on an H200.
inline bool few_codes_pays(const Piece& l, int64_t m) { return m <= few_codes_rows && (!l.tiled || (m <= 32 && l.sub == 1 && !l.has_min)); }

// a.x: rows of bf16, normed, in the order of the weights. False: not possible.
bool few_codes_possible(Context* c, const StreamArgs& a);
bool few_codes(Context* c, const StreamArgs& a, PluginStatus* status);

}  // namespace orlop::cuda
