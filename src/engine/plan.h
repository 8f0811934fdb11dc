// What one step does: plain data. The scheduler fills it, the runner executes it, commit consumes
// it.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/pages.h"

namespace orlop {

// The part of a request that planning needs. Written by the owner thread only.
struct Sequence {
  uint64_t arrival = 0;         // engine: order of submission
  std::vector<int32_t> tokens;  // prompt, then what was generated (commit appends)
  int32_t prompt_tokens = 0;
  int32_t computed = 0;  // positions whose keys and values lie in the cache (scheduler)
  bool samples = true;   // false: only the prompt is computed
  std::vector<int32_t> pages[max_page_groups];  // page tables (scheduler)
};

// Rows of one sequence in a step: its tokens at positions [begin, begin + rows).
struct PlanSeq {
  Sequence* sequence = nullptr;
  int32_t begin = 0;
  int32_t rows = 0;
  bool draw = false;  // the last row's logits give the next token
};

struct StepPlan {
  std::vector<PlanSeq> seqs;
  int32_t rows = 0;         // sum of seqs' rows
  int32_t preemptions = 0;  // sequences that lost their pages for this plan

  void clear() {
    seqs.clear();
    rows = 0;
    preemptions = 0;
  }
};

}  // namespace orlop
