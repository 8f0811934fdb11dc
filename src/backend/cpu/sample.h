// Choosing a token from one row of logits. The logic is the same for every ISA; only the walks over
// the whole vocabulary (SampleVec) differ.
#pragma once
#include "backend/cpu/ops.h"

namespace orlop::cpu {

struct Candidate {
  float value;  // logit, then weight
  int32_t id;
};

constexpr int64_t sample_row_bytes(int64_t vocab) {
  return (vocab * static_cast<int64_t>(sizeof(Candidate) + sizeof(float)) + 63) / 64 * 64;
}
// workspace: sample_row_bytes(vocab)
void sample_row(const SampleVec& vec, const SampleArgs& a, int32_t row, void* workspace);

}  // namespace orlop::cpu
