#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace orlop {
namespace {
int32_t due(const Sequence& s) {
  return static_cast<int32_t>(s.tokens.size()) - s.computed;
}
}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, PagePools& pages)
    : limits_(limits), pages_(pages) {
  if (limits.step_tokens < 1 || limits.max_seqs < 1)
    fail(Status::invalid_argument, "scheduler: step_tokens and max_seqs must be positive");
  running_.reserve(static_cast<size_t>(limits.max_seqs));
}

void Scheduler::add(Sequence* s) {
  if (pages_.pages_for(static_cast<int64_t>(s->tokens.size())) > pages_.total())
    fail(Status::internal, "scheduler: a sequence of ", s->tokens.size(), " tokens never fits");
  waiting_.push_back(s);
}

void Scheduler::remove(Sequence* s) {
  pages_.release_all(s->pages);
  s->computed = 0;
  if (auto r = std::find(running_.begin(), running_.end(), s); r != running_.end()) {
    running_.erase(r);
    return;
  }
  if (auto w = std::find(waiting_.begin(), waiting_.end(), s); w != waiting_.end())
    waiting_.erase(w);
}

void Scheduler::put(Sequence* s, int32_t rows, StepPlan& plan, int32_t& budget) {
  PlanSeq p;
  p.sequence = s;
  p.begin = s->computed;
  p.rows = rows;
  p.draw = s->samples && rows == due(*s);
  plan.seqs.push_back(p);
  plan.rows += rows;
  budget -= rows;
}

void Scheduler::preempt(StepPlan& plan, int32_t& budget) {
  Sequence* victim = running_.back();
  running_.pop_back();
  pages_.release_all(victim->pages);
  victim->computed = 0;
  waiting_.push_front(victim);  // younger than all that run, older than all that wait
  ++plan.preemptions;
  const auto at = std::find_if(plan.seqs.begin(), plan.seqs.end(),
                               [&](const PlanSeq& p) { return p.sequence == victim; });
  if (at != plan.seqs.end()) {
    plan.rows -= at->rows;
    budget += at->rows;
    plan.seqs.erase(at);
  }
}

// False: s itself was the youngest and had to go.
bool Scheduler::take_pages(Sequence* s, int64_t tokens, StepPlan& plan, int32_t& budget) {
  while (!pages_.grow(s->pages, tokens)) {
    const bool self = running_.back() == s;
    if (self && running_.size() == 1)
      fail(Status::internal, "scheduler: a lone sequence of ", tokens, " tokens has no page");
    preempt(plan, budget);
    if (self) return false;
  }
  return true;
}

void Scheduler::plan(StepPlan& plan) {
  plan.clear();
  int32_t budget = limits_.step_tokens;

  // Decodes first: a long prompt delays no one's next token.
  for (const bool decodes : {true, false}) {
    for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
      Sequence* s = running_[i];
      const int32_t need = due(*s);
      if ((need == 1) != decodes) continue;
      const int32_t rows = std::min(need, budget);
      if (take_pages(s, int64_t{s->computed} + rows, plan, budget)) put(s, rows, plan, budget);
    }
  }

  // No newcomer in a step that had to take pages away: it would only take them back.
  if (plan.preemptions) return;
  int64_t promised = 0;  // pages that running sequences still lack for the tokens they have
  for (const Sequence* s : running_)
    promised += pages_.pages_for(static_cast<int64_t>(s->tokens.size())) -
                static_cast<int64_t>(s->pages[0].size());
  while (budget > 0 && !waiting_.empty() &&
         running_.size() < static_cast<size_t>(limits_.max_seqs)) {
    Sequence* s = waiting_.front();
    const int64_t want = pages_.pages_for(static_cast<int64_t>(s->tokens.size()));
    const int64_t keep = running_.empty() ? 0 : limits_.watermark;
    if (pages_.available() - promised < want + keep) break;
    const int32_t rows = std::min(due(*s), budget);
    if (!pages_.grow(s->pages, rows)) break;
    promised += want - static_cast<int64_t>(s->pages[0].size());
    waiting_.pop_front();
    running_.push_back(s);
    put(s, rows, plan, budget);
  }
}

void Scheduler::commit(const StepPlan& plan) {
  for (const PlanSeq& p : plan.seqs) p.sequence->computed += p.rows;
}

}  // namespace orlop
