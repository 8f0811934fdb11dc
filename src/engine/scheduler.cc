// Places of sequences: waiting, running, held back, paused; how they come and go.
#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace orlop {
namespace {
constexpr int32_t for_good = std::numeric_limits<int32_t>::max();

PrefixLimits prefix_limits(const SchedulerLimits& l) {
  return {l.windows, l.host_slots, l.tile_tokens, l.hash_seed, l.hash_mask};
}
SchedulerLimits checked(SchedulerLimits l, int groups) {
  if (l.step_tokens < 1 || l.max_seqs < 1)
    fail(Status::invalid_argument, "scheduler: step_tokens and max_seqs must be positive");
  l.windows.resize(static_cast<size_t>(groups));
  l.host_slots.resize(static_cast<size_t>(groups));
  return l;
}
}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, PagePools& pages)
    : limits_(checked(limits, pages.groups())),
      pages_(pages),
      cache_(pages, prefix_limits(limits_)),
      page_tokens_(pages.page_tokens()),
      capacity_(pages.capacity(limits_.windows, limits_.step_tokens)) {
  const auto seqs = static_cast<size_t>(limits_.max_seqs);
  running_.reserve(seqs);
  prefills_.reserve(seqs);
  computing_.reserve(seqs);
  chunks_.reserve(seqs);
  seats_.reserve(seqs);
  for (int32_t seat = limits_.max_seqs; seat-- > 0;) seats_.push_back(seat);
}

int32_t Scheduler::known(const Sequence& s) const {
  return static_cast<int32_t>(s.tokens.size()) + s.drawing;
}

int32_t Scheduler::due(const Sequence& s) const {
  const int32_t n = known(s);
  if (s.drawing && n >= s.most_tokens) return 0;  // its last token is on its way
  return n - s.computed;
}

void Scheduler::add(Sequence* s) {
  if (static_cast<int64_t>(s->tokens.size()) > capacity_)
    fail(Status::internal, "scheduler: a sequence of ", s->tokens.size(), " tokens never fits");
  if (s->tokens.empty()) fail(Status::internal, "scheduler: a sequence without tokens");
  make_node(s);
  try {
    s->identity_id = s->shares ? cache_.enter(s->identity) : cache_.enter_private();
  } catch (...) {
    spare_.pop_back();
    throw;
  }
  s->arrival = ++arrivals_;
  s->rank = s->arrived_ns + limits_.length_ns * s->prompt_tokens - limits_.aging_ns * s->priority;
  s->computed = s->committed = s->cached = s->drawing = 0;
  s->lives = 0;
  s->asked_plan = s->left_plan = 0;
  Sequence* const l = s->leader;
  const bool in_time = l && l->place != Sequence::Place::none &&
                       l->place != Sequence::Place::paused && !l->paused && l->drawing == 0 &&
                       static_cast<int32_t>(l->tokens.size()) == l->prompt_tokens &&
                       l->tokens.size() == s->tokens.size();
  if (!in_time) s->leader = nullptr;
  wait(s);
  if (!in_time) return;
  try {
    hold_back(s, l, for_good);
  } catch (...) {
    finish(s);
    throw;
  }
}

// ---- places

// Every sequence brings its node of the waiting list, so that nothing that takes memory stands in
// the way of one that ends.
void Scheduler::make_node(Sequence* s) {
  const size_t all = waiting() + running() + 1;
  if (spare_.capacity() < all) spare_.reserve(2 * all);
  Waiting one;
  one.insert(s);
  spare_.push_back(one.extract(one.begin()));
}

void Scheduler::wait(Sequence* s) {
  spare_.back().value() = s;
  waiting_.insert(std::move(spare_.back()));
  spare_.pop_back();
  s->place = Sequence::Place::waiting;
}

void Scheduler::hold_back(Sequence* s, Sequence* behind, int32_t until) {
  behind->followers.push_back(s);
  let_go(s);
  s->behind_index = behind->followers.size() - 1;
  s->behind = behind;
  s->behind_tokens = until;
  s->place = Sequence::Place::held_back;
  ++held_back_;
}

void Scheduler::let_go(Sequence* s) {
  switch (s->place) {
    case Sequence::Place::none:
      break;
    case Sequence::Place::waiting:
      spare_.push_back(waiting_.extract(s));
      break;
    case Sequence::Place::paused:
      away_.erase(std::find(away_.begin(), away_.end(), s));
      break;
    case Sequence::Place::held_back: {
      std::vector<Sequence*>& all = s->behind->followers;
      all[s->behind_index] = all.back();
      all[s->behind_index]->behind_index = s->behind_index;
      all.pop_back();
      s->behind = nullptr;
      --held_back_;
      break;
    }
    case Sequence::Place::running:
      running_.erase(std::lower_bound(running_.begin(), running_.end(), s, Before{}));
      break;
  }
  s->place = Sequence::Place::none;
}

void Scheduler::wake(Sequence* of, int32_t computed) {
  for (size_t i = of->followers.size(); i-- > 0;) {
    Sequence* f = of->followers[i];
    if (f->behind_tokens > computed) continue;
    let_go(f);  // puts the last one in its place, which has been looked at
    if (f->leader == of) f->leader = nullptr;
    wait(f);
  }
}

void Scheduler::run(Sequence* s) {
  running_.insert(std::upper_bound(running_.begin(), running_.end(), s, Before{}), s);
  s->place = Sequence::Place::running;
}

// The last page first: of what stays in the cache, leaves are the first to be evicted.
void Scheduler::give_pages(Sequence* s) {
  for (int g = 0; g < pages_.groups(); ++g) {
    std::vector<int32_t>& table = s->pages[g];
    for (size_t i = table.size(); i-- > static_cast<size_t>(s->held_pages_from[g]);)
      if (table[i] >= 0) pages_.release(g, table[i]);
    table.clear();
    s->held_pages_from[g] = 0;
  }
  if (s->seat >= 0) seats_.push_back(s->seat);
  s->seat = -1;
  s->computed = s->committed = 0;
  s->known_pages = 0;
  s->rows = 0;
}

void Scheduler::preempt(Sequence* s, StepPlan& plan) {
  withdraw(s, plan);
  give_pages(s);
  if (s->node >= 0) cache_.unpin(s->node);
  s->node = -1;
  let_go(s);
  s->left_plan = serial_;
  wait(s);
  // Samples of its prompt wait on if it will compute it again.
  const bool again =
      s->drawing == 0 && !s->paused && static_cast<int32_t>(s->tokens.size()) == s->prompt_tokens;
  wake(s, again ? for_good - 1 : for_good);
  ++plan.preemptions;
}

// Out of a plan that has not begun.
void Scheduler::withdraw(Sequence* s, StepPlan& plan) {
  const auto at = std::find_if(plan.seqs.begin(), plan.seqs.end(),
                               [&](const PlanSeq& p) { return p.sequence == s; });
  if (at != plan.seqs.end()) {
    plan.rows -= at->rows;
    plan.decodes -= at->draw && at->rows == 1;
    s->drawing -= at->draw;
    plan.seqs.erase(at);
  }
  // A page that was copied to may have another holder before the plan is run.
  if (plan.seats.empty() || s->seat < 0) return;
  std::erase_if(plan.seats, [&](const SeatCopy& c) { return c.to == s->seat; });
  std::erase_if(plan.copies, [&](const PageCopy& c) {
    const std::vector<int32_t>& table = s->pages[c.group];
    if (table.empty() || c.to != table.back()) return false;
    const auto held = std::find_if(copied_.begin(), copied_.end(), [&](const Copied& h) {
      return h.group == c.group && h.page == c.from;
    });
    copied_.erase(held);
    pages_.release(c.group, c.from);
    return true;
  });
}

void Scheduler::leave(Sequence* s, StepPlan* ahead) {
  if (s->place == Sequence::Place::none) return;
  if (ahead) {
    withdraw(s, *ahead);
    // Its copies are gone or made already, and it may never be committed.
    if (ahead->copies.empty()) release_copied();
  }
  let_go(s);
  spare_.pop_back();
  wake(s, for_good);
  give_pages(s);
}

void Scheduler::finish(Sequence* s, StepPlan* ahead) {
  if (s->place == Sequence::Place::none) return;
  leave(s, ahead);
  if (s->node >= 0) {
    if (!s->shares) cache_.forget(s->node);
    cache_.unpin(s->node);
    s->node = -1;
  }
  cache_.leave(s->identity_id);
  s->identity_id = -1;
}

void Scheduler::drop(Sequence* s, StepPlan* ahead) {
  if (s->place == Sequence::Place::none) return;
  leave(s, ahead);
  if (!ahead) release_copied();  // the plan that made these copies failed
  if (s->node >= 0) {
    cache_.forget(s->node);
    cache_.unpin(s->node);
    s->node = -1;
  }
  cache_.leave(s->identity_id);
  s->identity_id = -1;
}

void Scheduler::recall(StepPlan& ahead) {
  // All that run, not only those with rows: one may have its pages from a copy that is not made.
  while (!running_.empty()) preempt(running_.back(), ahead);
  release_copied();
  ahead.clear();
}

void Scheduler::release_copied() {
  for (const Copied& c : copied_) pages_.release(c.group, c.page);
  copied_.clear();
}

bool Scheduler::idle() const {
  return waiting_.empty() && running_.empty() && away_.empty() && held_back_ == 0;
}

bool Scheduler::runnable() const {
  const auto runs = [](const Sequence* s) { return !s->paused; };
  return held_back_ || std::any_of(running_.begin(), running_.end(), runs) ||
         std::any_of(waiting_.begin(), waiting_.end(), runs) ||
         std::any_of(away_.begin(), away_.end(), runs);
}

void Scheduler::commit(const StepPlan& plan) {
  if (plan.serial == copied_serial_) release_copied();
  for (const PlanSeq& p : plan.seqs) {
    Sequence* const s = p.sequence;
    s->drawing -= p.draw;
    if (s->place != Sequence::Place::running || s->lives != p.life) continue;  // preempted since
    s->committed = p.begin + p.rows;
    const int32_t whole =
        std::min(s->committed, static_cast<int32_t>(s->tokens.size())) / page_tokens_;
    while (s->known_pages < whole) {
      const int32_t i = s->known_pages++;
      int32_t pages[max_page_groups];
      for (int g = 0; g < pages_.groups(); ++g) pages[g] = s->pages[g][i];
      const int32_t node = cache_.insert(s->node, s->identity_id,
                                         s->tokens.data() + int64_t{i} * page_tokens_, pages);
      cache_.pin(node);
      if (s->node >= 0) cache_.unpin(s->node);
      s->node = node;
    }
    if (!s->followers.empty()) wake(s, std::min(s->committed, for_good - 1));
  }
}

}  // namespace orlop
