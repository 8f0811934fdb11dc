// Newcomers: who joins those that run, with which pages of the prefix cache.
#include <algorithm>

#include "engine/scheduler.h"

namespace orlop {
namespace {
constexpr int most_looked_at = 64;  // waiting sequences in one plan, besides those that join
constexpr int most_overtaken = 8;   // of which no row was left for
constexpr uint64_t plans_until_asked_again = 16;
}  // namespace

int64_t Scheduler::margin() const {
  return limits_.watermark + caution_;
}

bool Scheduler::shortage(const Pages& need, int64_t keep) const {
  for (int g = 0; g < pages_.groups(); ++g)
    if (pages_.group(g).available() - promised_.of[g] - need.of[g] < keep) return true;
  return false;
}

// ---- samples of one prompt

// Where a leader's prompt is computed and nothing after it, the others start from its pages.
void Scheduler::fork_followers(StepPlan& plan) {
  prefills_.clear();  // scratch here: leaders, then followers
  for (Sequence* s : running_)
    if (!s->followers.empty() && s->computed >= s->prompt_tokens) prefills_.push_back(s);
  const size_t leaders = prefills_.size();
  for (size_t i = 0; i < leaders; ++i)
    for (Sequence* f : prefills_[i]->followers)
      if (f->leader == prefills_[i]) prefills_.push_back(f);
  std::sort(prefills_.begin() + static_cast<std::ptrdiff_t>(leaders), prefills_.end(), Before{});
  for (size_t i = leaders; i < prefills_.size(); ++i) {
    Sequence* f = prefills_[i];
    if (fork(f, plan)) continue;
    let_go(f);
    f->leader = nullptr;
    wait(f);
  }
}

bool Scheduler::fork(Sequence* s, StepPlan& plan) {
  Sequence* const l = s->leader;
  const int32_t prompt = l->prompt_tokens;
  if (l->computed != prompt || l->paused || s->paused || seats_.empty() ||
      s->prompt_tokens != prompt || s->logits_from < prompt - 1)
    return false;
  Pages one;
  for (int g = 0; g < pages_.groups(); ++g) one.of[g] = 1;
  if (shortage(one, margin())) return false;
  const int32_t last = (prompt - 1) / page_tokens_;
  for (int g = 0; g < pages_.groups(); ++g) s->pages[g].reserve(static_cast<size_t>(last) + 1);
  let_go(s);
  s->leader = nullptr;
  s->seat = seats_.back();
  seats_.pop_back();
  run(s);
  plan.seats.push_back({l->seat, s->seat});
  // Its one row is the last of the prompt: a page of its own for that, and what lies before in it.
  for (int g = 0; g < pages_.groups(); ++g) {
    std::vector<int32_t>& table = s->pages[g];
    const int32_t window = limits_.windows[g];
    const int32_t first = window > 0 ? std::max(0, prompt - window) / page_tokens_ : 0;
    table.assign(static_cast<size_t>(first), -1);
    s->held_pages_from[g] = first;
    for (int32_t i = first; i < last; ++i) {
      pages_.group(g).share(l->pages[g][i]);
      table.push_back(l->pages[g][i]);
    }
    table.push_back(cache_.take(g, &plan));
    if ((prompt - 1) % page_tokens_ == 0) continue;
    const int32_t from = l->pages[g][last];
    plan.copies.push_back({g, from, table.back()});
    copied_.push_back({g, from});
    pages_.group(g).share(from);
    copied_serial_ = serial_;
  }
  s->known_pages = l->known_pages;
  s->node = l->node;
  if (s->node >= 0) cache_.pin(s->node);
  s->computed = s->committed = prompt - 1;
  if (s->lives++ == 0) {
    s->cached = s->computed;
    cache_.count(s->cached);
  }
  return true;
}

// ---- the waiting list

void Scheduler::admit(StepPlan& plan) {
  int looked_at = 0, overtaken = 0;
  for (auto at = waiting_.begin();
       at != waiting_.end() && looked_at < most_looked_at && overtaken < most_overtaken;) {
    Sequence* const s = *at++;  // whatever happens to s, the next one stays
    if (s->paused) {
      let_go(s);
      away_.push_back(s);
      s->place = Sequence::Place::paused;
      wake(s, std::numeric_limits<int32_t>::max());
      at = waiting_.upper_bound(s);  // those it woke come after it
      continue;
    }
    ++looked_at;
    if (s->left_plan == serial_ || s->drawing) continue;
    const Joined joined = join(s, plan);
    if (joined == Joined::no_room) break;
    if (joined == Joined::yes) --looked_at;
    if (joined == Joined::no_rows) ++overtaken;
  }
}

Scheduler::Joined Scheduler::join(Sequence* s, StepPlan& plan) {
  if (seats_.empty() && std::none_of(running_.begin(), running_.end(),
                                     [&](const Sequence* v) { return gives_way(*v, *s); }))
    return Joined::no_room;
  // To look in the cache is dear for a long prompt that had no rows a moment ago.
  if (s->asked_plan && serial_ - s->asked_plan < plans_until_asked_again &&
      rows_left_for(*s, s->asked_rows) <= 0)
    return Joined::no_rows;
  const auto n = static_cast<int32_t>(s->tokens.size());
  const int32_t limit = std::min(n - 1, s->logits_from);
  cache_.find(s->identity_id, s->tokens, limit, found_);
  int32_t until = 0;
  if (Sequence* other = same_prompt(*s, limit, &until)) {
    hold_back(s, other, until);
    return Joined::held_back;
  }
  s->asked_rows = n - found_.pages * page_tokens_;
  s->asked_plan = serial_;
  if (rows_left_for(*s, s->asked_rows) <= 0) return Joined::no_rows;
  if (seats_.empty() || shortage(needed(*s), running_.empty() ? 0 : margin())) {
    if (!make_room(*s, needed(*s), plan)) return Joined::no_room;
    // What it would have shared with a sequence that gave way counts as its own now.
    if (shortage(needed(*s), running_.empty() ? 0 : margin())) return Joined::no_room;
  }
  enter(s, plan);
  return Joined::yes;
}

// The running sequence, of those whose prompt goes together with this one's for more pages than the
// cache has and that will have computed them, that goes together with it farthest.
Sequence* Scheduler::same_prompt(const Sequence& s, int32_t limit, int32_t* until) const {
  Sequence* best = nullptr;
  *until = found_.pages * page_tokens_;
  if (!s.shares) return nullptr;
  for (Sequence* r : computing_) {
    const int32_t most = std::min(limit, r->prompt_tokens) / page_tokens_ * page_tokens_;
    if (most <= *until || r->identity_id != s.identity_id || !Before{}(r, &s)) continue;
    const auto end = s.tokens.begin() + most;
    const auto same = std::mismatch(s.tokens.begin(), end, r->tokens.begin()).first;
    const auto common = static_cast<int32_t>(same - s.tokens.begin()) / page_tokens_ * page_tokens_;
    if (common <= *until || common <= r->committed) continue;
    *until = common;
    best = r;
  }
  return best;
}

int32_t Scheduler::quarter() const {
  return (prefill_rows_ + 3) / 4;
}

// Rows of this step that are left for a newcomer with so many to compute.
int32_t Scheduler::rows_left_for(const Sequence& s, int32_t rows) const {
  int32_t left = prefill_rows_;
  const Sequence* lowest = &s;
  for (const Sequence* p : prefills_) {
    if (Before{}(p, lowest)) lowest = p;
    if (p->rows <= rows) left -= std::min(left, p->rows);
  }
  if (lowest == &s) return quarter();
  return lowest->rows > rows ? left - std::min(lowest->rows, quarter()) : left;
}

// Pages that a newcomer takes out of what is available, for all its tokens.
Scheduler::Pages Scheduler::needed(const Sequence& s) const {
  Pages need;
  const auto n = static_cast<int32_t>(s.tokens.size());
  const int32_t hit = found_.pages;
  for (int g = 0; g < pages_.groups(); ++g) {
    const int32_t first = cache_.first_seen(g, hit);
    need.of[g] = pages_.pages_for(n) - first;
    if (const int32_t window = limits_.windows[g]; window > 0) {
      const int32_t rows = std::min(n - hit * page_tokens_, limits_.step_tokens);
      need.of[g] = std::min(need.of[g], pages_.pages_across(window - 1 + rows));
    }
    for (int32_t i = first; i < hit; ++i) {
      const int32_t page = cache_.page(found_.nodes[i], g);
      need.of[g] -= page >= 0 && pages_.group(g).references(page) > 0;
    }
  }
  return need;
}

bool Scheduler::gives_way(const Sequence& v, const Sequence& to) const {
  return v.paused || (v.priority < to.priority && Before{}(&to, &v));
}

// Drives out those that give way to s, if that makes enough room: paused ones first, then from the
// last in rank. Pages that s has a hit on are no gain.
bool Scheduler::make_room(const Sequence& s, const Pages& need, StepPlan& plan) {
  victims_.clear();
  Pages gain;
  const auto enough = [&] {
    if (victims_.size() == running_.size()) return true;
    if (seats_.empty() && victims_.empty()) return false;
    for (int g = 0; g < pages_.groups(); ++g)
      if (pages_.group(g).available() + gain.of[g] - promised_.of[g] - need.of[g] < margin())
        return false;
    return true;
  };
  for (const bool paused : {true, false}) {
    for (size_t i = running_.size(); i-- > 0 && !enough();) {
      Sequence* const v = running_[i];
      if (v->paused != paused || !gives_way(*v, s)) continue;
      victims_.push_back(v);
      const Pages lack = lacking(*v);
      for (int g = 0; g < pages_.groups(); ++g) {
        gain.of[g] += lack.of[g];
        for (int32_t i = v->held_pages_from[g]; i < std::ssize(v->pages[g]); ++i) {
          const int32_t page = v->pages[g][i];
          const bool hit = i < found_.pages && cache_.page(found_.nodes[i], g) == page;
          gain.of[g] += !hit && pages_.group(g).references(page) == 1;
        }
      }
    }
  }
  if (!enough()) return false;
  for (Sequence* v : victims_) {
    const Pages lack = lacking(*v);
    for (int g = 0; g < pages_.groups(); ++g) promised_.of[g] -= lack.of[g];
    if (v->rows == 1) --decodes_;
    std::erase(prefills_, v);
    std::erase(computing_, v);
    preempt(v, plan);
  }
  set_prefill_rows();
  return true;
}

// Joins, with the hit in found_. All that is there is held before anything is taken.
void Scheduler::enter(Sequence* s, StepPlan& plan) {
  const int32_t hit = found_.pages;
  // Where the length is not known nothing is reserved: without a group that keeps everything the
  // capacity is no bound.
  const bool known = s->most_tokens < std::numeric_limits<int32_t>::max() &&
                     s->most_tokens <= capacity_;
  const int64_t most = std::max(known ? s->most_tokens : 0, hit * page_tokens_);
  for (int g = 0; g < pages_.groups(); ++g)
    s->pages[g].reserve(static_cast<size_t>(pages_.pages_for(most)));
  let_go(s);
  s->seat = seats_.back();
  seats_.pop_back();
  run(s);
  if (hit) {
    s->node = found_.nodes[hit - 1];
    cache_.pin(s->node);
    cache_.keep_slots(found_);
  }
  for (int g = 0; g < pages_.groups(); ++g) {
    std::vector<int32_t>& table = s->pages[g];
    const int32_t first = cache_.first_seen(g, hit);
    table.assign(static_cast<size_t>(first), -1);
    s->held_pages_from[g] = first;
    for (int32_t i = first; i < hit; ++i) {
      const int32_t page = cache_.page(found_.nodes[i], g);
      if (page >= 0) pages_.group(g).share(page);
      table.push_back(page);
    }
  }
  for (int g = 0; g < pages_.groups(); ++g)
    for (int32_t i = s->held_pages_from[g]; i < hit; ++i)
      if (int32_t& page = s->pages[g][i]; page < 0)
        page = cache_.bring_in(found_.nodes[i], g, plan);
  s->known_pages = hit;
  s->computed = s->committed = hit * page_tokens_;
  if (s->lives++ == 0) {
    s->cached = std::min(s->computed, s->prompt_tokens);
    cache_.count(s->cached);
  }
  s->rows = due(*s);
  prefills_.push_back(s);
  if (s->committed < s->prompt_tokens) computing_.push_back(s);
  const Pages lack = lacking(*s);
  for (int g = 0; g < pages_.groups(); ++g) promised_.of[g] += lack.of[g];
}

}  // namespace orlop
