// A scheduler with small pools and a model of the memory (page_model.h), stepped by hand.
#pragma once
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "page_model.h"

namespace orlop::test {

// Tokens begin, begin + 1, ... : texts with different beginnings have nothing in common.
inline std::vector<int32_t> text(int32_t n, int32_t begin = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), begin * 1'000'000);
  return tokens;
}

struct Wish {
  int32_t priority = 0;
  int64_t arrived_ns = 0;
  std::string identity = {};
  bool shares = true;
  bool samples = true;
  Life* leader = nullptr;
  int32_t logits_from = std::numeric_limits<int32_t>::max();
  int32_t most_tokens = std::numeric_limits<int32_t>::max();
};

struct PlanRig {
  PagePools pools;
  Scheduler scheduler;
  SchedulerLimits limits;
  PageModel model;
  std::vector<std::unique_ptr<Life>> lives;
  std::vector<PagePools::Freed> freed;

  PlanRig(std::vector<int64_t> pages, SchedulerLimits l, int32_t page_tokens = 16)
      : pools(pages, page_tokens, true),
        scheduler(l, pools),
        limits(filled(l, pools.groups())),
        model(pools, limits, tag_of(shared_identity)) {}

  static SchedulerLimits filled(SchedulerLimits l, int groups) {
    l.windows.resize(static_cast<size_t>(groups));
    l.host_slots.resize(static_cast<size_t>(groups));
    return l;
  }
  static uint64_t tag_of(const std::string& identity) { return std::hash<std::string>{}(identity); }

  Life* make(std::vector<int32_t> tokens, const Wish& w = {}) {
    lives.push_back(std::make_unique<Life>());
    Life* l = lives.back().get();
    l->tokens = std::move(tokens);
    l->prompt_tokens = static_cast<int32_t>(l->tokens.size());
    l->priority = w.priority;
    l->arrived_ns = w.arrived_ns;
    l->identity = w.identity;
    l->shares = w.shares;
    l->samples = w.samples;
    l->leader = w.leader;
    l->logits_from = w.logits_from;
    l->most_tokens = w.most_tokens;
    l->tag = w.shares ? tag_of(w.identity) : 1000 + lives.size();
    if (w.leader) l->tag = w.leader->tag;
    return l;
  }
  Life* add(std::vector<int32_t> tokens, const Wish& w = {}) {
    Life* l = make(std::move(tokens), w);
    scheduler.add(l);
    return l;
  }

  // The parts of a step, for plans made ahead.
  void plan(StepPlan& p, int32_t rows = std::numeric_limits<int32_t>::max()) {
    PlanInput input;
    input.rows = rows;
    scheduler.plan(p, input);
    freed.insert(freed.end(), pools.freed().begin(), pools.freed().end());
    pools.freed().clear();
  }
  void begin(const StepPlan& p) {
    StepPlan moves = p;
    model.move(moves, freed);
    model.pack(p);
  }
  void end(const StepPlan& p) {
    model.run();
    for (const PlanSeq& s : p.seqs)
      if (s.draw)
        s.sequence->tokens.push_back(static_cast<int32_t>(900 + s.sequence->tokens.size()));
    scheduler.commit(p);
  }
  StepPlan step(int32_t rows = std::numeric_limits<int32_t>::max()) {
    StepPlan p;
    plan(p, rows);
    begin(p);
    end(p);
    return p;
  }
  void finish(Life* l, StepPlan* ahead = nullptr) {
    scheduler.finish(l, ahead);
    l->over = true;
  }
  // Alone from here on: steps until all its prompt is computed and a token drawn.
  void compute(Life* l) {
    const size_t before = l->tokens.size();
    for (int i = 0; i < 1000 && l->tokens.size() == before && l->committed < l->prompt_tokens; ++i)
      step();
  }
  // Comes, is computed and goes; what it found cached.
  int32_t pass(std::vector<int32_t> tokens, const Wish& w = {}) {
    Life* l = add(std::move(tokens), w);
    compute(l);
    finish(l);
    return l->cached;
  }
};

// First come, first served, nothing kept free unless told.
inline SchedulerLimits limits(int32_t step = 64, int32_t seqs = 8, int64_t watermark = 0) {
  SchedulerLimits l;
  l.step_tokens = step;
  l.max_seqs = seqs;
  l.watermark = watermark;
  l.length_ns = 0;
  return l;
}

inline const PlanSeq* find(const StepPlan& plan, const Sequence* s) {
  for (const PlanSeq& p : plan.seqs)
    if (p.sequence == s) return &p;
  return nullptr;
}
inline int32_t rows_of(const StepPlan& plan, const Sequence* s) {
  const PlanSeq* p = find(plan, s);
  return p ? p->rows : 0;
}

}  // namespace orlop::test
