// Pages and plans by themselves: no model, no threads.
#include <cstdlib>
#include <new>

#include "check.h"
#include "plan_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {
constexpr int64_t second = 1'000'000'000;
size_t allocations = 0;
long until_failure = -1;  // allocations that still succeed; negative: all
}  // namespace

[[gnu::noinline]] void* operator new(size_t n) {
  ++allocations;
  if (until_failure >= 0 && until_failure-- == 0) throw std::bad_alloc();
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

// ---- pages

TEST(pool_counts_references) {
  PagePool pool(3);
  const int32_t a = pool.take(), b = pool.take();
  CHECK(a != b && pool.free() == 1 && pool.used() == 2);
  CHECK(pool.shared() == 0);
  pool.share(a);
  CHECK(pool.shared() == 1);
  pool.share(a);
  CHECK(pool.shared() == 1);  // pages, not holders
  CHECK(!pool.release(a) && pool.shared() == 1);
  CHECK(!pool.release(a) && pool.shared() == 0);
  CHECK(pool.release(a));
  CHECK(pool.release(b));
  CHECK(pool.available() == 3);
  CHECK_THROWS(internal, "twice", pool.release(b));
  CHECK_THROWS(internal, "shared while free", pool.share(b));
  for (int i = 0; i < 3; ++i) pool.take();
  CHECK_THROWS(internal, "no page", pool.take());
}

TEST(cached_pages_are_available) {
  PagePool pool(4);
  const int32_t a = pool.take(), b = pool.take(), c = pool.take();
  pool.keep(a, 7);
  pool.keep(b, 8);
  CHECK_THROWS(internal, "twice", pool.keep(b, 9));
  CHECK(!pool.release(b) && !pool.release(a));
  CHECK(pool.used() == 1 && pool.cached() == 2 && pool.free() == 1 && pool.available() == 3);
  CHECK(pool.oldest() == b && pool.owner(b) == 8);
  pool.share(b);
  CHECK(pool.oldest() == a && pool.cached() == 1 && pool.used() == 2 && pool.shared() == 0);
  CHECK(!pool.release(b));
  CHECK(pool.oldest() == a);  // given back before b
  CHECK(pool.forget(a) && pool.oldest() == b);
  CHECK_THROWS(internal, "twice", pool.forget(a));
  CHECK(pool.forget(b) && pool.oldest() == -1);
  CHECK(pool.release(c) && pool.free() == 4);
}

TEST(what_one_sequence_may_have) {
  PagePools pools({10, 4}, 16, false);
  CHECK(pools.pages_for(1) == 1 && pools.pages_for(16) == 1 && pools.pages_for(17) == 2);
  CHECK(pools.pages_across(1) == 1 && pools.pages_across(2) == 2 && pools.pages_across(17) == 2);
  CHECK(pools.pages_across(18) == 3 && pools.pages_across(0) == 0);
  CHECK(pools.capacity({0, 0}, 8) == 64);
  CHECK(pools.capacity({0, 40}, 8) == 160);  // 47 positions lie in four pages at most
  CHECK(pools.capacity({0, 40}, 12) == 64);  // 51 may touch five
  CHECK_THROWS(invalid_argument, "groups", PagePools({}, 16, false));
  CHECK_THROWS(invalid_argument, "out of range", PagePools({-1}, 16, false));
  PlanRig rig({4}, limits());
  CHECK_THROWS(internal, "never fits", rig.add(text(65)));
}

// ---- rows of a step

TEST(chunks_mix_with_decodes) {
  PlanRig rig({100}, limits(10, 4));
  Life *a = rig.add(text(4)), *b = rig.add(text(25, 1));
  StepPlan p = rig.step();  // all of a, the first six of b
  CHECK(p.rows == 10 && find(p, a)->draw && !find(p, b)->draw);
  p = rig.step();  // a's next token first, then nine of b
  CHECK(p.seqs[0].sequence == a && p.seqs[0].rows == 1 && p.seqs[0].begin == 4);
  CHECK(p.decodes == 1 && rows_of(p, b) == 9 && find(p, b)->begin == 6);
  p = rig.step();
  CHECK(rows_of(p, b) == 9 && !find(p, b)->draw);
  p = rig.step();
  CHECK(rows_of(p, b) == 1 && find(p, b)->draw && p.decodes == 2);
  rig.finish(a);
  rig.finish(b);
  CHECK(rig.pools.used_in_all() == 0 && rig.scheduler.idle());
}

TEST(the_shortest_remainder_first_and_a_quarter_for_the_first) {
  PlanRig rig({1000}, limits(40));
  Life* a = rig.add(text(500));
  rig.step();
  Life *b = rig.add(text(100, 1)), *c = rig.add(text(20, 2));
  const StepPlan p = rig.step();
  CHECK(rows_of(p, c) == 20 && find(p, c)->draw);
  CHECK(rows_of(p, a) == 10);
  CHECK(rows_of(p, b) == 10);
}

TEST(short_prompts_do_not_starve_a_long_one) {
  PlanRig rig({1000}, limits(32, 8));
  Life* a = rig.add(text(800));
  int steps = 0;
  for (; a->committed < 800 && steps < 200; ++steps) {
    Life* s = rig.add(text(32, 1 + steps));
    rig.step();
    if (s->tokens.size() > 32) rig.finish(s);
    for (auto& l : rig.lives)
      if (l.get() != a && !l->over && l->tokens.size() > 34) rig.finish(l.get());
  }
  CHECK(steps <= 110);  // a quarter of 32 rows, less the decodes
}

TEST(fewer_rows_where_latency_wants_it) {
  PlanRig rig({1000}, limits(64));
  Life* a = rig.add(text(10));
  rig.step();
  Life* b = rig.add(text(300, 1));
  CHECK(rows_of(rig.step(9), b) == 8);
  CHECK(rows_of(rig.step(0), b) == 1);  // one at least
  CHECK(rows_of(rig.step(), b) == 63);
  CHECK(a->tokens.size() == 14);
  Life* c = rig.add(text(20, 2));
  CHECK(rows_of(rig.step(2), c) == 0);  // the running prompt's one row
}

TEST(one_row_goes_by_rank) {
  PlanRig rig({100}, limits(1));
  Life *a = rig.add(text(3)), *b = rig.add(text(3, 1));
  for (int i = 0; i < 3; ++i) rig.step();
  CHECK(a->tokens.size() == 4 && b->committed == 0);
  rig.step();
  CHECK(a->tokens.size() == 5);
  rig.finish(a);
  rig.step();
  CHECK(b->committed == 1);
}

TEST(more_decodes_than_rows) {
  PlanRig rig({100}, limits(4, 8));
  for (int i = 0; i < 8; ++i) rig.add(text(2, i));
  for (int i = 0; i < 30; ++i) {
    const StepPlan p = rig.step();
    CHECK(p.rows <= 4);
  }
  CHECK(rig.lives[0]->tokens.size() > 20);
  for (int i = 0; i < 4; ++i) rig.finish(rig.lives[i].get());
  for (int i = 0; i < 30; ++i) rig.step();
  CHECK(rig.lives[7]->tokens.size() > 20);
}

// ---- order

TEST(ranks) {
  SchedulerLimits l = limits(64, 1);
  l.aging_ns = 10 * second;
  l.length_ns = 1'000'000;
  PlanRig rig({100}, l);
  Life* low = rig.add(text(10), {.priority = 0, .arrived_ns = 0});
  Life* high = rig.add(text(10, 1), {.priority = 1, .arrived_ns = 9 * second});
  Life* late = rig.add(text(10, 2), {.priority = 1, .arrived_ns = 11 * second});
  Life* longer = rig.add(text(500, 3), {.priority = 0, .arrived_ns = 0});
  CHECK(high->rank < low->rank && low->rank < longer->rank && longer->rank < late->rank);
  for (Life* next : {high, low, longer, late}) {
    while (next->tokens.size() == static_cast<size_t>(next->prompt_tokens)) rig.step();
    CHECK(next->place == Sequence::Place::running && rig.scheduler.running() == 1);
    rig.finish(next);
  }
}

TEST(what_waited_long_is_not_driven_out) {
  SchedulerLimits l = limits(64, 1);
  PlanRig rig({100}, l);
  Life* old = rig.add(text(10), {.priority = 0, .arrived_ns = 0});
  rig.step();
  Life* soon = rig.add(text(10, 1), {.priority = 1, .arrived_ns = second});
  Life* late = rig.add(text(10, 2), {.priority = 1, .arrived_ns = 20 * second});
  CHECK(rig.step().preemptions == 1 && soon->place == Sequence::Place::running);
  rig.finish(soon);
  for (int i = 0; i < 3; ++i) CHECK(rig.step().preemptions == 0);
  CHECK(old->place == Sequence::Place::running && late->lives == 0);
}

TEST(a_higher_priority_takes_seats_and_does_not_give_them_back) {
  PlanRig rig({100}, limits(64, 2));
  Life *a = rig.add(text(10)), *b = rig.add(text(10, 1));
  rig.step();
  Life* h = rig.add(text(10, 2), {.priority = 5});
  StepPlan p = rig.step();
  CHECK(p.preemptions == 1 && find(p, h) && find(p, a) && !find(p, b));
  int preemptions = 0;
  for (int i = 0; i < 20; ++i) preemptions += rig.step().preemptions;
  CHECK(preemptions == 0 && b->place == Sequence::Place::waiting);
  rig.finish(h);
  rig.step();
  CHECK(b->place == Sequence::Place::running);
}

TEST(a_higher_priority_takes_pages_only_if_that_is_enough) {
  PlanRig rig({10}, limits(256, 8));
  Life *a = rig.add(text(60), {.priority = 3}), *b = rig.add(text(60, 1));
  rig.step();
  Life* h = rig.add(text(100, 2), {.priority = 2});  // seven pages; b's four and two are left
  CHECK(rig.step().preemptions == 0 && h->lives == 0 && b->lives == 1);
  rig.finish(a);
  const StepPlan p = rig.step();
  CHECK(p.preemptions == 1 && find(p, h) && !find(p, b));
}

// ---- admission

TEST(admission_is_in_order_and_by_pages) {
  PlanRig rig({4}, limits(100, 8, 1));
  Life *a = rig.add(text(20)), *b = rig.add(text(40, 1)), *c = rig.add(text(1, 2));
  StepPlan p = rig.step();
  // b needs three of the two pages left; c would fit but came later.
  CHECK(p.seqs.size() == 1 && find(p, a));
  rig.finish(a);
  p = rig.step();
  CHECK(find(p, b) && !find(p, c));  // one page is kept free
  rig.finish(b);
  CHECK(find(rig.step(), c));
}

TEST(promised_pages_are_not_given_twice) {
  PlanRig rig({8}, limits(16));
  Life *a = rig.add(text(100)), *b = rig.add(text(30, 1));
  for (int i = 0; i < 7; ++i) CHECK(rig.step().preemptions == 0 && b->lives == 0);
  CHECK(a->committed == 100);
}

TEST(the_last_in_rank_gives_way_and_keeps_its_pages_in_the_cache) {
  PlanRig rig({5}, limits(100));
  Life *a = rig.add(text(32)), *b = rig.add(text(40, 1));
  CHECK(rig.step().seqs.size() == 2 && rig.pools.group(0).available() == 0);
  const StepPlan p = rig.step();
  CHECK(p.preemptions == 1 && p.seqs.size() == 1 && find(p, a));
  CHECK(b->computed == 0 && b->pages[0].empty() && b->seat == -1 && b->tokens.size() == 41);
  CHECK(rig.scheduler.waiting() == 1 && rig.scheduler.running() == 1);
  CHECK(rig.scheduler.cache().pages() == 2);
  rig.finish(a);
  const StepPlan again = rig.step();  // goes on behind what the cache kept
  CHECK(find(again, b) && find(again, b)->begin == 32 && find(again, b)->draw);
  CHECK(b->cached == 0);  // of its first admission
}

TEST(newcomers_wait_longer_after_a_preemption) {
  PlanRig rig({64}, limits(256, 32));
  std::vector<Life*> all;
  for (int i = 0; i < 32; ++i) all.push_back(rig.add(text(30, i)));
  int preemptions = 0, steps = 0;
  for (; steps < 400; ++steps) {
    preemptions += rig.step().preemptions;
    for (Life* l : all)
      if (!l->over && l->tokens.size() >= 100) rig.finish(l);
    if (rig.scheduler.idle()) break;
  }
  CHECK(rig.scheduler.idle() && preemptions > 0 && preemptions < 64);
}

TEST(a_hit_is_room_already_taken) {
  PlanRig rig({8}, limits(256));
  Life* a = rig.add(text(80));
  rig.step();  // six pages with the one that follows
  Life* b = rig.add(text(90));
  const StepPlan p = rig.step();
  CHECK(find(p, b) && find(p, b)->begin == 80 && rig.pools.used_in_all() == 7);
  CHECK(a->pages[0][4] == b->pages[0][4]);
}

// ---- pauses

TEST(paused_sequences_lose_seats_and_pages_first) {
  PlanRig rig({100}, limits(64, 2));
  Life *a = rig.add(text(40)), *b = rig.add(text(10, 1));
  rig.step();
  a->paused = true;
  StepPlan p = rig.step();
  CHECK(!find(p, a) && find(p, b) && a->seat >= 0);  // nobody needs its seat
  Life* c = rig.add(text(10, 2));
  p = rig.step();
  CHECK(p.preemptions == 1 && find(p, c) && a->seat == -1);
  for (int i = 0; i < 3; ++i) CHECK(!find(rig.step(), a));
  b->paused = c->paused = true;
  CHECK(rig.step().seqs.empty() && !rig.scheduler.runnable() && !rig.scheduler.idle());
  a->paused = false;
  CHECK(rig.scheduler.runnable());
  p = rig.step();
  CHECK(find(p, a) && find(p, a)->begin == 32);
  for (auto& l : rig.lives) rig.finish(l.get());
  CHECK(rig.scheduler.idle() && rig.pools.used_in_all() == 0);
}

TEST(a_decode_takes_a_paused_one_s_page) {
  PlanRig rig({4}, limits(64));
  Life *a = rig.add(text(31)), *b = rig.add(text(32, 1));
  rig.step();
  a->paused = true;
  const StepPlan p = rig.step();  // b needs a third page, though a comes first in rank
  CHECK(p.preemptions == 1 && find(p, b) && a->seat == -1);
}

// ---- windows

TEST(pages_behind_a_window_are_given_back) {
  SchedulerLimits l = limits(64);
  l.windows = {0, 40};
  PlanRig rig({40, 9}, l);
  Life* a = rig.add(text(400));
  while (a->tokens.size() < 500) {
    rig.step();
    CHECK(rig.pools.group(1).used() <= 8);
  }
  CHECK(rig.pools.group(0).used() == 32 && rig.pools.group(1).used() <= 4);
  CHECK(a->pages[1][20] == -1 && a->pages[1].size() == a->pages[0].size());
  rig.finish(a);
  CHECK(rig.pools.used_in_all() == 0);
}

TEST(windows_are_counted_by_what_they_hold) {
  SchedulerLimits l = limits(16);
  l.windows = {0, 32};
  PlanRig rig({100, 12}, l);
  // 32 - 1 + 16 positions: four pages of the window's group each, whatever the length.
  for (int i = 0; i < 4; ++i) rig.add(text(300, i), {.arrived_ns = i});
  for (int i = 0; i < 200; ++i) {
    rig.step();
    CHECK(rig.scheduler.running() <= 3);
  }
  CHECK(rig.scheduler.running() == 3);
}

TEST(decoding_allocates_nothing) {
  SchedulerLimits l = limits(512, 64);
  l.windows = {0, 64};
  PagePools pools({2000, 1000}, 16, false);
  Scheduler scheduler(l, pools);
  std::vector<Life> lives(64);
  for (int i = 0; i < 64; ++i) {
    lives[i].tokens = text(20, i);
    lives[i].prompt_tokens = 20;
    lives[i].most_tokens = 300;
    lives[i].tokens.reserve(300);
    scheduler.add(&lives[i]);
  }
  StepPlan p;
  const auto step = [&] {
    scheduler.plan(p);
    for (const PlanSeq& s : p.seqs)
      if (s.draw) s.sequence->tokens.push_back(1);
    scheduler.commit(p);
  };
  for (int i = 0; i < 100; ++i) step();
  const size_t before = allocations;
  for (int i = 0; i < 150; ++i) step();
  CHECK(p.decodes == 64 && allocations == before);
  for (Life& s : lives) scheduler.finish(&s);
  CHECK(pools.used_in_all() == 0);
}

// An allocation that fails anywhere in a small history: no page is lost, and what comes later
// works.
TEST(out_of_memory_loses_no_page) {
  SchedulerLimits l = limits(48, 5);
  l.windows = {0, 24};
  l.host_slots = {6, 6};
  int failures = 0;
  for (long n = 0; n < 400; ++n) {
    PagePools pools({12, 9}, 8, false);
    Scheduler scheduler(l, pools);
    std::vector<std::unique_ptr<Life>> lives;
    const auto play = [&] {
      lives.clear();
      for (int i = 0; i < 9; ++i) {
        lives.push_back(std::make_unique<Life>());
        Life& s = *lives.back();
        s.tokens = text(20 + 3 * (i % 4), i % 3);
        if (i > 5) s.tokens = lives[5]->tokens, s.leader = lives[5].get();
        s.prompt_tokens = static_cast<int32_t>(s.tokens.size());
        s.tokens.reserve(64);
        s.identity = std::string(40, static_cast<char>('a' + i % 2));
        if (i > 5) s.identity = lives[5]->identity;
        s.arrived_ns = i;
        s.priority = i == 4;
      }
      StepPlan plan;
      for (auto& s : lives) scheduler.add(s.get());
      for (int i = 0; i < 400 && !scheduler.idle(); ++i) {
        scheduler.plan(plan);
        for (const PlanSeq& p : plan.seqs)
          if (p.draw) p.sequence->tokens.push_back(i);
        scheduler.commit(plan);
        for (auto& s : lives)
          if (s->tokens.size() > 40 + static_cast<size_t>(s->arrived_ns)) scheduler.finish(s.get());
      }
    };
    until_failure = n;
    try {
      play();
      until_failure = -1;
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    until_failure = 0;  // ending takes no memory
    try {
      for (auto& s : lives) scheduler.drop(s.get());
      scheduler.cache().clear();
    } catch (const std::bad_alloc&) {
      CHECK(!"ending took memory");
    }
    until_failure = -1;
    CHECK(pools.used_in_all() == 0 && pools.free_in_all() == 21 && scheduler.cache().nodes() == 0);
    play();
    CHECK(scheduler.idle());
  }
  CHECK(failures > 100);
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
