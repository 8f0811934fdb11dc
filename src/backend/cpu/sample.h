// Choosing a token from one row of logits. The logic is the same for every ISA; only the walks over
// the whole vocabulary (SampleVec) differ.
#pragma once
#include "backend/cpu/ops.h"

namespace orlop::cpu {

struct Candidate {
  float value;  // logit, then weight
  int32_t id;
};

// workspace: [vocab]
void sample_row(const SampleVec& vec, const SampleArgs& a, int32_t row, Candidate* workspace);

}  // namespace orlop::cpu
