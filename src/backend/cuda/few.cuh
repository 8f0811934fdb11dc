// Products of more rows than chain() takes and fewer than a library is good at, in fast mode on Hopper: bounded by reading
// the weights, like stream()'s, with warpgroup products and outputs that go where they belong.
#pragma once
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

constexpr int64_t few_hopper_rows = 128;  // at most, of bf16 weights

// Whether products of m rows with such weights are taken; a.x then comes as rows of bf16 that fixed_takes(), without norm
// and map.
bool few_takes(const Context& c, const LinearDesc& d, const Pieces& pieces, int64_t m);
// False: not possible.
bool few_hopper(Context* c, const StreamArgs& a, PluginStatus* status);

}  // namespace orlop::cuda
