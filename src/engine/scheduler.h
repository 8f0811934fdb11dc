// Which sequences compute which tokens next. Pure: sequences and pages in, a plan out; no model, no
// clock, no threads. First come, first served: running sequences are always a prefix of the arrival
// order, so the oldest one always advances and nothing waits for ever.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/pages.h"
#include "engine/plan.h"

namespace orlop {

struct SchedulerLimits {
  int32_t step_tokens = 512;  // rows of one step
  int32_t max_seqs = 64;      // sequences that hold pages
  int64_t watermark = 1;      // pages kept free when a sequence joins others
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, PagePools& pages);

  // A new sequence, later in arrival than every one before it. Its tokens must fit the pools.
  void add(Sequence* sequence);
  // Forgets a sequence in whatever state and returns its pages.
  void remove(Sequence* sequence);
  // Decodes first, then prefill chunks, then new sequences. A sequence that must grow and finds no
  // page takes those of the youngest, which starts over later (its tokens are kept).
  void plan(StepPlan& plan);
  // The planned rows are in the cache now.
  void commit(const StepPlan& plan);

  bool idle() const { return waiting_.empty() && running_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }

 private:
  bool take_pages(Sequence* s, int64_t tokens, StepPlan& plan, int32_t& budget);
  void preempt(StepPlan& plan, int32_t& budget);
  void put(Sequence* s, int32_t rows, StepPlan& plan, int32_t& budget);

  SchedulerLimits limits_;
  PagePools& pages_;
  std::deque<Sequence*> waiting_;   // by arrival
  std::vector<Sequence*> running_;  // by arrival, all before waiting_
};

}  // namespace orlop
