// One plan: rows for what runs, and the pages for them.
#include <algorithm>

#include "base/error.h"
#include "engine/scheduler.h"

namespace orlop {

void Scheduler::plan(StepPlan& plan, const PlanInput& input) {
  plan.clear();
  plan.serial = ++serial_;
  release_copied();
  cache_.begin_plan(serial_);
  for (size_t i = away_.size(); i-- > 0;) {
    Sequence* s = away_[i];
    if (s->paused) continue;
    let_go(s);
    wait(s);
  }
  const bool newcomers = !waiting_.empty() || held_back_;
  if (newcomers) {
    promised_ = {};
    for (const Sequence* s : running_) {
      const Pages lack = lacking(*s);
      for (int g = 0; g < pages_.groups(); ++g) promised_.of[g] += lack.of[g];
    }
    if (held_back_) fork_followers(plan);
  }
  look_over();
  allot_decodes(input);
  if (newcomers && prefill_rows_ > 0) admit(plan);
  allot_prefills();
  chunks_.clear();
  bool first = true;
  for (size_t i = 0; i < running_.size();) {
    Sequence* s = running_[i];
    const int32_t before = plan.preemptions;
    if (s->rows && obtain(s, first, plan)) {
      put(s, plan);
      first = false;
    }
    if (plan.preemptions == before)
      ++i;
    else  // the list is shorter now, maybe by s itself
      i = static_cast<size_t>(std::upper_bound(running_.begin(), running_.end(), s, Before{}) -
                              running_.begin());
  }
  plan.seqs.insert(plan.seqs.end(), chunks_.begin(), chunks_.end());
  // Newcomers find less room after preemptions, so that they do not have to give way at once. The
  // steps are by measurement (bench/engine_pages.cc): pages in use against rows computed twice.
  if (plan.preemptions)
    caution_ = std::min<int64_t>(pages_.total() / 16, caution_ + std::ssize(running_) / 8 + 1);
  else if (serial_ % 8 == 0)
    caution_ -= (caution_ + 63) / 64;
}

// Pages that a running sequence still needs for the tokens that it has.
Scheduler::Pages Scheduler::lacking(const Sequence& s) const {
  Pages lack;
  const int32_t rows = due(s);
  if (s.paused || rows <= 0) return lack;
  for (int g = 0; g < pages_.groups(); ++g) {
    int64_t all = pages_.pages_for(int64_t{s.computed} + rows) - s.held_pages_from[g];
    if (const int32_t window = limits_.windows[g]; window > 0)
      all = std::min(all, pages_.pages_across(window - 1 + std::min(rows, limits_.step_tokens)));
    lack.of[g] = std::max<int64_t>(0, all - (std::ssize(s.pages[g]) - s.held_pages_from[g]));
  }
  return lack;
}

void Scheduler::look_over() {
  decodes_ = 0;
  ending_ = !copied_.empty();
  prefills_.clear();
  computing_.clear();
  for (Sequence* s : running_) {
    s->rows = 0;
    if (s->paused) {
      if (!s->followers.empty()) wake(s, std::numeric_limits<int32_t>::max());
      continue;
    }
    if (s->committed < s->prompt_tokens) computing_.push_back(s);
    const int32_t rows = due(*s);
    if (rows <= 0) {
      ending_ = true;
      continue;
    }
    if (rows == 1)
      ++decodes_;
    else
      prefills_.push_back(s);
    s->rows = rows;
  }
}

// Decodes keep their row; of prompts, what is due is known and what they get is not decided yet.
void Scheduler::allot_decodes(const PlanInput& input) {
  // A prompt that runs gets one row at least, and where there is one row only, the first in rank.
  int32_t most = limits_.step_tokens;
  if (!prefills_.empty() && decodes_ >= most) {
    const auto first = std::find_if(running_.begin(), running_.end(),
                                    [](const Sequence* s) { return s->rows > 0; });
    if (most > 1 || (*first)->rows > 1) --most;
  }
  int32_t given = decodes_;
  for (size_t i = running_.size(); given > most; --given) {
    while (running_[--i]->rows != 1) {
    }
    running_[i]->rows = 0;
  }
  decodes_ = given;
  most_rows_ = input.rows;
  set_prefill_rows();
}

void Scheduler::set_prefill_rows() {
  prefill_rows_ = std::max(std::min(limits_.step_tokens, most_rows_) - decodes_,
                           std::min(1, limits_.step_tokens - decodes_));
}

// The shortest remainder first; the prompt of lowest rank has a quarter of the rows for sure.
void Scheduler::allot_prefills() {
  if (prefills_.empty()) return;
  const Sequence* lowest = *std::min_element(prefills_.begin(), prefills_.end(), Before{});
  std::sort(prefills_.begin(), prefills_.end(), [](const Sequence* a, const Sequence* b) {
    return a->rows != b->rows ? a->rows < b->rows : Before{}(a, b);
  });
  int32_t left = prefill_rows_;
  int32_t reserved = std::min(lowest->rows, quarter());
  for (Sequence* s : prefills_) {
    if (s == lowest) reserved = 0;
    s->rows = std::min(s->rows, left - reserved);
    left -= s->rows;
  }
}

// ---- pages for the rows

// Rows that pages can be had for, with some kept for others.
int32_t Scheduler::rows_that_fit(const Sequence& s, const Pages& kept) const {
  int64_t rows = s.rows;
  for (int g = 0; g < pages_.groups(); ++g) {
    const int64_t have = std::ssize(s.pages[g]);
    const int64_t more = std::max<int64_t>(0, pages_.group(g).available() - kept.of[g]);
    rows = std::min(rows, (have + more) * page_tokens_ - s.computed);
  }
  return static_cast<int32_t>(rows);
}

// Pages that the decodes behind a sequence need in this step.
Scheduler::Pages Scheduler::needed_behind(const Sequence& s) const {
  Pages need;
  bool tight = false;
  for (int g = 0; g < pages_.groups(); ++g)
    tight |= pages_.group(g).available() <
             pages_.pages_for(s.rows) + 1 + static_cast<int64_t>(running_.size());
  if (!tight) return need;
  for (auto at = std::upper_bound(running_.begin(), running_.end(), &s, Before{});
       at != running_.end(); ++at) {
    const Sequence& other = **at;
    if (other.rows != 1) continue;
    for (int g = 0; g < pages_.groups(); ++g)
      need.of[g] += other.computed + 1 > std::ssize(other.pages[g]) * page_tokens_;
  }
  return need;
}

// Who loses its pages next: the last paused one, or the last.
Sequence* Scheduler::victim() const {
  for (size_t i = running_.size(); i-- > 0;)
    if (running_[i]->paused) return running_[i];
  return running_.back();
}

// Pages for the rows of s, or for some of them. False: no row in this step; it may have lost all
// its pages.
bool Scheduler::obtain(Sequence* s, bool first, StepPlan& plan) {
  const int groups = pages_.groups();
  bool enough = true;
  for (int g = 0; g < groups; ++g) {
    std::vector<int32_t>& table = s->pages[g];
    if (const int32_t window = limits_.windows[g]; window > 0) {
      const int32_t seen = (s->computed - window + 1) / page_tokens_;
      for (int32_t& i = s->held_pages_from[g]; i < seen; ++i) {
        pages_.release(g, table[i]);
        table[i] = -1;
      }
    }
    enough &= pages_.pages_for(int64_t{s->computed} + s->rows) - std::ssize(table) <=
              pages_.group(g).available();
  }
  if (s->rows == 1 && !enough) {
    while (rows_that_fit(*s, {}) < 1) {
      Sequence* const v = victim();
      if (v == s && ending_) {  // pages come back without that
        s->rows = 0;
        return false;
      }
      preempt(v, plan);
      if (v == s) return false;
    }
  } else if (s->rows > 1) {
    for (int32_t rows; (rows = rows_that_fit(*s, needed_behind(*s))) < s->rows;) {
      if (rows > 0) {
        s->rows = rows;
        break;
      }
      // A prompt stops rather than drive out others, unless it has to advance.
      Sequence* const v = victim();
      if (v == s || !(first || v->paused || v->priority < s->priority)) {
        s->rows = 0;
        return false;
      }
      preempt(v, plan);
    }
  }
  for (int g = 0; g < groups; ++g) {
    std::vector<int32_t>& table = s->pages[g];
    const auto want = static_cast<size_t>(pages_.pages_for(int64_t{s->computed} + s->rows));
    if (table.capacity() < want) table.reserve(std::max(want, 2 * table.size()));  // before take()
    while (table.size() < want) table.push_back(cache_.take(g, &plan));
  }
  return true;
}

void Scheduler::put(Sequence* s, StepPlan& plan) {
  const bool draw = s->samples && s->computed + s->rows == known(*s);
  const PlanSeq p{s, s->computed, s->rows, draw, s->lives};
  if (draw && s->rows == 1) {
    plan.seqs.push_back(p);
    ++plan.decodes;
  } else {
    chunks_.push_back(p);
  }
  plan.rows += s->rows;
  s->computed += s->rows;
  s->drawing += draw;
}

}  // namespace orlop
