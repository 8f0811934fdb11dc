// Products of up to 64 rows of activations with weights of 8 bits, in fast mode on Hopper: see few_codes.cuh. Up to 32 rows
// few_product() takes what it can before.
#pragma once
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

constexpr int32_t few_codes_rows = 64;  // of activations, at most

// Whether it is faster than what else there is, as measured on an H200.
inline bool few_codes_pays(const Piece& l, int64_t m) { return m <= few_codes_rows && l.codes != Codes::u4 && (!l.tiled || (m <= 32 && l.sub == 1 && !l.has_min)); }

// a.x: rows of bf16, normed, in the order of the weights. False: not possible.
bool few_codes_possible(Context* c, const StreamArgs& a);
bool few_codes(Context* c, const StreamArgs& a, PluginStatus* status);

}  // namespace orlop::cuda
