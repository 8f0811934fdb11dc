// The largest step that a model's limits allow, run for what it takes: kernels and libraries that load with
// their first use, memory that they keep.
#pragma once
#include <cstdint>
#include <vector>

#include "model/model.h"

namespace orlop {

// Pages of each cache group that warm_up() writes to.
std::vector<int64_t> warm_up_pages(const Model& model);
// Prompts of max_rows tokens in all, then steps of max_seqs sequences of one token each, sampling where the
// limits have room for logits. The cache has at least warm_up_pages(), and nothing in it is kept. Of a model in
// parts the last alone computes: a processor's layers would take their time and tell nothing of the GPU's memory.
void warm_up(Model& model);

}  // namespace orlop
