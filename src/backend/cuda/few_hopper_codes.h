// Products of 9 to 32 rows of activations with coded weights, in fast mode on Hopper: see few_hopper_codes.cuh.
#pragma once
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

// Whether such weights are taken: 4 bits with one scale (and one min) for 128 elements or whole multiples of them; 8 bits
// with a scale a row.
bool few_hopper_codes_takes(const Context& c, const Piece& l, int64_t m);
// a.x: rows of bf16, normed, in the order of the weights. go: puts it into the list, too; the driver may still refuse its
// maps. False: not possible.
bool few_hopper_codes(Context* c, const StreamArgs& a, bool go);

}  // namespace orlop::cuda
