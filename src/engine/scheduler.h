// Which sequences compute which tokens next. Pure: sequences, pages and the time in, a plan out; no
// model, no clock of its own, no threads.
//
// Order. A sequence's rank is its arrival time, plus length_ns for each prompt token, less aging_ns
// for each level of priority; the lowest rank goes first. Ranks do not change, so whatever waits is
// overtaken only by what arrives within a bounded time after it: nothing starves. Of the running
// sequences the one of lowest rank always advances.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/pages.h"
#include "engine/plan.h"
#include "engine/prefix.h"

namespace orlop {

struct SchedulerLimits {
  int32_t step_tokens = 512;  // rows of one step
  int32_t max_seqs = 64;      // sequences that hold pages
  int64_t watermark = 1;      // pages kept free when a sequence joins others
  std::vector<int32_t> windows = {0};      // [groups] 0: every position is kept
  std::vector<int64_t> host_slots = {0};   // [groups] pages of the second tier in host memory
  int64_t aging_ns = 10'000'000'000;
  int64_t length_ns = 500'000;  // 0: first come, first served
};

struct PlanInput {
  int64_t now_ns = 0;
  // Rows of this step at most, as the latency target allows; at least the decodes get theirs, and
  // one prefill row if there is one.
  int32_t rows = std::numeric_limits<int32_t>::max();
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, PagePools& pages);

  // A new sequence. Its tokens must fit the pools.
  void add(Sequence* sequence);
  // Forgets a sequence in whatever state and returns its pages; full ones that were computed stay
  // in the prefix cache. It is taken out of `ahead`, a plan that was made but not begun, if given.
  void finish(Sequence* sequence, StepPlan* ahead = nullptr);
  // The same where the contents are not trusted (its step failed): nothing of it stays.
  void drop(Sequence* sequence, StepPlan* ahead = nullptr);

  // Decodes first, then prefill chunks, then new sequences. May be called while one earlier plan is
  // not committed yet: tokens which that one draws count as known (Sequence::drawing).
  void plan(StepPlan& plan, const PlanInput& input);
  // The planned rows are in the cache now, drawn tokens are appended. In the order of the plans.
  void commit(const StepPlan& plan);

  bool idle() const;      // nothing waits or runs
  bool runnable() const;  // something is not paused
  size_t waiting() const;
  size_t running() const;
  PrefixCache& cache();
  const PrefixCache& cache() const;

 private:
  SchedulerLimits limits_;
  PagePools& pages_;
};

}  // namespace orlop
