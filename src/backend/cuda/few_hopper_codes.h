// Products of 9 to 32 rows of activations with coded weights, in fast mode on Hopper: see few_hopper_codes.cuh.
#pragma once
#include "backend/cuda/few.cuh"

namespace orlop::cuda {

// Whether such weights are taken: 8 bits with a scale a row; 4 bits and int8 with one scale for a unit of k, of 4 bits one
// min, too.
bool few_hopper_codes_takes(const Piece& l);
// As few_product().
bool few_hopper_codes(Context* c, const StreamArgs& a, const FewNorm* norm);

}  // namespace orlop::cuda
