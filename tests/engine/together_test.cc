// Plans that several sequences share: samples of one prompt, prompts in common, plans made ahead.
#include "check.h"
#include "plan_rig.h"

using namespace orlop;
using namespace orlop::test;

// ---- samples of one prompt

TEST(samples_start_from_their_leader_s_pages) {
  SchedulerLimits l = limits(64);
  l.tile_tokens = 16;
  l.windows = {0, 20};
  PlanRig rig({100, 100}, l);
  Life* a = rig.add(text(40));
  Life *b = rig.add(text(40), {.leader = a}), *c = rig.add(text(40), {.leader = a});
  CHECK(rig.scheduler.waiting() == 3);
  StepPlan p = rig.step();
  CHECK(p.seqs.size() == 1 && rows_of(p, a) == 40);
  p = rig.step();
  CHECK(p.seqs.size() == 3 && p.decodes == 3 && p.copies.size() == 4 && p.seats.size() == 2);
  CHECK(find(p, b)->begin == 39 && find(p, b)->draw && find(p, a)->begin == 40);
  CHECK(b->cached == 39 && b->pages[0][1] == a->pages[0][1] && b->pages[0][2] != a->pages[0][2]);
  CHECK(c->pages[1][0] == -1);
  CHECK(rig.pools.group(0).used() == 5);
  for (int i = 0; i < 40; ++i) rig.step();
  for (Life* s : {a, b, c}) rig.finish(s);
  CHECK(rig.pools.used_in_all() == 0);
}

TEST(samples_at_a_page_s_edges) {
  for (const int32_t n : {1, 16, 17, 32, 33}) {
    PlanRig rig({100}, limits(64));
    Life* a = rig.add(text(n));
    Life* b = rig.add(text(n), {.leader = a});
    rig.step();
    const StepPlan p = rig.step();
    CHECK(find(p, b) && find(p, b)->begin == n - 1);
    CHECK(p.copies.size() == (n % 16 == 1 ? 0 : 1));  // else the last row has a page for itself
    for (int i = 0; i < 20; ++i) rig.step();
    rig.finish(a);
    rig.finish(b);
    CHECK(rig.pools.used_in_all() == 0);
  }
}

TEST(samples_that_miss_the_moment_take_the_usual_way) {
  PlanRig rig({100}, limits(64, 1));  // no seat
  Life* a = rig.add(text(40));
  Life* b = rig.add(text(40), {.leader = a});
  for (int i = 0; i < 5; ++i) rig.step();
  CHECK(b->lives == 0 && b->leader == nullptr);
  rig.finish(a);
  StepPlan p = rig.step();
  CHECK(find(p, b) && find(p, b)->begin == 32 && p.copies.empty());
  rig.finish(b);

  Life* c = rig.add(text(40, 1));  // the leader ends with its first token
  Life* d = rig.add(text(40, 1), {.leader = c});
  rig.step();
  rig.finish(c);
  p = rig.step();
  CHECK(find(p, d) && find(p, d)->begin == 32);
  rig.finish(d);

  Life* e = rig.add(text(40, 2));  // the leader is cancelled before
  Life* f = rig.add(text(40, 2), {.leader = e});
  rig.finish(e);
  CHECK(f->leader == nullptr);
  rig.compute(f);
  CHECK(f->tokens.size() == 41);
  rig.finish(f);
  CHECK(rig.pools.used_in_all() == 0 && rig.scheduler.idle());
}

TEST(a_copied_page_outlives_its_leader) {
  PlanRig rig({100}, limits(64));
  Life* a = rig.add(text(40));
  Life* b = rig.add(text(40), {.leader = a});
  StepPlan first, ahead;
  rig.plan(first);
  rig.begin(first);
  rig.plan(ahead);
  CHECK(ahead.copies.size() == 1 && find(ahead, b));
  rig.end(first);
  rig.finish(a, &ahead);  // its first token was its last
  CHECK(!find(ahead, a) && find(ahead, b) && ahead.rows == 1 && ahead.decodes == 1);
  rig.begin(ahead);  // poisons what a gave back
  rig.end(ahead);
  for (int i = 0; i < 5; ++i) rig.step();
  rig.finish(b);
  CHECK(rig.pools.used_in_all() == 0);
}

TEST(a_sample_that_goes_takes_its_copies_out_of_the_plan) {
  PlanRig rig({100, 100}, limits(64));
  Life* a = rig.add(text(40));
  Life *b = rig.add(text(40), {.leader = a}), *c = rig.add(text(40), {.leader = a});
  rig.step();
  StepPlan ahead;
  rig.plan(ahead);
  CHECK(ahead.copies.size() == 4 && ahead.seats.size() == 2);
  const int32_t to = c->pages[1].back(), from = a->pages[1].back();
  CHECK(rig.pools.group(1).references(from) == 3);
  rig.finish(b, &ahead);
  CHECK(ahead.copies.size() == 2 && ahead.copies[1].to == to && ahead.seats.size() == 1);
  CHECK(rig.pools.group(1).references(from) == 2);
  rig.finish(c, &ahead);
  CHECK(ahead.copies.empty() && ahead.seats.empty() && ahead.seqs.size() == 1);
  CHECK(rig.pools.group(1).references(from) == 1);
  rig.begin(ahead);
  rig.end(ahead);
  // A step that fails, with nothing made ahead.
  StepPlan failed;
  Life *d = rig.add(text(40, 1)), *e = rig.add(text(40, 1), {.leader = d});
  rig.step();
  rig.plan(failed);
  CHECK(!failed.copies.empty());
  for (Life* l : {a, d, e}) rig.scheduler.drop(l);
  CHECK(rig.pools.used_in_all() == 0);
}

TEST(copies_made_before_their_plan_ended_hold_nothing) {
  PlanRig rig({100}, limits(64));
  Life* a = rig.add(text(40));
  Life* b = rig.add(text(40), {.leader = a});
  rig.step();
  StepPlan ahead;
  rig.plan(ahead);
  rig.begin(ahead);
  ahead.copies.clear();  // as the engine does once they are made
  ahead.seats.clear();
  rig.finish(a, &ahead);
  rig.finish(b, &ahead);
  CHECK(ahead.empty() && rig.pools.used_in_all() == 0);
}

// ---- prompts in common

TEST(a_common_prefix_is_computed_once) {
  PlanRig rig({1000}, limits(64, 16));
  std::vector<int32_t> other = text(200);
  other[150] = -1;
  Life* a = rig.add(text(200));
  Life *b = rig.add(text(200)), *c = rig.add(other), *d = rig.add(text(30, 1));
  Life* e = rig.add(text(200), {.identity = "e"});
  StepPlan p = rig.step();
  CHECK(find(p, a) && !find(p, b) && !find(p, c) && find(p, d));  // d is not held up
  CHECK(e->lives == 1 || find(p, e) == nullptr);
  int32_t rows = p.rows;
  for (int i = 0; i < 10; ++i) {
    p = rig.step();
    for (const PlanSeq& s : p.seqs) rows += s.sequence == b || s.sequence == c ? s.rows : 0;
  }
  CHECK(b->cached == 192 && c->cached == 144);
  CHECK(e->cached == 0);
  for (auto& l : rig.lives) rig.finish(l.get());
  CHECK(rig.pools.used_in_all() == 0 && rig.scheduler.idle());
}

TEST(who_is_held_back_goes_on_when_the_first_ends) {
  for (const int how : {0, 1, 2}) {
    PlanRig rig({1000}, limits(64, 2));
    Life *a = rig.add(text(400)), *b = rig.add(text(400));
    rig.step();
    rig.step();
    CHECK(b->place == Sequence::Place::held_back && rig.scheduler.runnable());
    if (how == 0) rig.finish(a);
    if (how == 1) a->paused = true;
    if (how == 2) rig.scheduler.drop(a);
    const StepPlan p = rig.step();
    CHECK(find(p, b) && find(p, b)->begin == (how == 2 ? 0 : 128));
  }
}

TEST(a_higher_rank_does_not_wait_for_a_lower_one) {
  PlanRig rig({1000}, limits(64, 8));
  rig.add(text(400));
  rig.step();
  Life* h = rig.add(text(400), {.priority = 1});
  const StepPlan p = rig.step();
  CHECK(find(p, h) && find(p, h)->begin == 64);
}

TEST(a_crowd_with_one_prompt) {
  PlanRig rig({4000}, limits(128, 64));
  for (int i = 0; i < 300; ++i) {
    std::vector<int32_t> t = text(330);
    t.push_back(-i);
    rig.add(t);
  }
  int64_t rows = 0;
  for (int i = 0; i < 400 && !rig.scheduler.idle(); ++i) {
    rows += rig.step().rows;
    for (auto& l : rig.lives)
      if (!l->over && l->tokens.size() > 332) rig.finish(l.get());
  }
  CHECK(rig.scheduler.idle());
  CHECK(rows < 330 + 300 * (11 + 3));  // 320 once, eleven each of their own
}

// ---- plans ahead

TEST(a_plan_ahead_counts_what_is_drawn) {
  PlanRig rig({100}, limits(64));
  Life *a = rig.add(text(10)), *b = rig.add(text(12, 1), {.most_tokens = 13});
  StepPlan p[2];
  rig.plan(p[0]);
  CHECK(a->drawing == 1 && a->computed == 10 && a->committed == 0);
  for (int i = 0; i < 6; ++i) {
    rig.begin(p[i % 2]);
    rig.plan(p[1 - i % 2]);
    const PlanSeq* s = find(p[1 - i % 2], a);
    CHECK(s && s->begin == 10 + i && s->rows == 1 && s->draw);
    CHECK(!find(p[1 - i % 2], b));  // has all that it will have
    rig.end(p[i % 2]);
    if (i == 0) rig.finish(b, &p[1]);
  }
  CHECK(a->tokens.size() == 16 && a->drawing == 1);
  rig.finish(a, &p[0]);
  CHECK(p[0].seqs.empty() && p[0].rows == 0 && p[0].decodes == 0);
  CHECK(rig.pools.used_in_all() == 0);
}

TEST(who_lacks_a_page_waits_for_one_that_ends) {
  PlanRig rig({4}, limits(64));
  Life *a = rig.add(text(32), {.most_tokens = 33}), *b = rig.add(text(32, 1));
  StepPlan first, ahead;
  rig.plan(first);
  rig.begin(first);
  CHECK(first.rows == 64 && rig.pools.group(0).available() == 0);
  rig.plan(ahead);  // b's next row wants a page, and a's will come back
  CHECK(ahead.seqs.empty() && ahead.preemptions == 0 && b->seat >= 0);
  rig.end(first);
  rig.finish(a, &ahead);
  CHECK(rows_of(rig.step(), b) == 1);
}

TEST(a_failed_step_and_the_plan_behind_it) {
  PlanRig rig({100}, limits(64));
  Life *a = rig.add(text(40)), *b = rig.add(text(40, 1), {.arrived_ns = 1});
  Life* c = rig.add(text(40, 1), {.arrived_ns = 1, .leader = b});
  rig.step();
  StepPlan first, ahead;
  rig.plan(first);
  rig.begin(first);
  rig.plan(ahead);
  CHECK(!ahead.copies.empty() && find(ahead, c));
  rig.scheduler.drop(a, &ahead);
  rig.scheduler.drop(b, &ahead);
  rig.scheduler.recall(ahead);
  rig.scheduler.cache().clear();
  CHECK(ahead.empty() && rig.pools.free_in_all() == 100 && rig.scheduler.cache().nodes() == 0);
  CHECK(c->place == Sequence::Place::waiting && c->drawing == 0);
  rig.compute(c);
  CHECK(c->tokens.size() == 41);
  rig.finish(c);
  CHECK(rig.scheduler.idle());
}

TEST(a_copy_that_is_not_made_is_taken_back_too) {
  PlanRig rig({100}, limits(2, 8));
  Life* a = rig.add(text(20));
  for (int i = 0; i < 3; ++i) rig.add(text(20), {.leader = a});
  for (int i = 0; i < 9; ++i) rig.step();
  StepPlan first, ahead;
  rig.plan(first);
  rig.begin(first);
  rig.plan(ahead);
  CHECK(ahead.copies.size() == 3 && ahead.seqs.size() == 2);  // two of four have no row yet
  rig.scheduler.drop(a, &ahead);
  rig.scheduler.recall(ahead);
  rig.scheduler.cache().clear();
  CHECK(rig.scheduler.running() == 0 && rig.pools.free_in_all() == 100);
  for (int i = 1; i < 4; ++i) {
    rig.compute(rig.lives[i].get());
    CHECK(rig.lives[i]->tokens.size() > 20);
    rig.finish(rig.lives[i].get());
  }
}

TEST(preempted_while_its_rows_are_on_their_way) {
  PlanRig rig({100}, limits(64, 1));
  Life* a = rig.add(text(40));
  StepPlan first, ahead;
  rig.plan(first);
  rig.begin(first);
  Life* h = rig.add(text(10, 1), {.priority = 3});
  rig.plan(ahead);
  CHECK(ahead.preemptions == 1 && find(ahead, h) && a->drawing == 1);
  rig.end(first);
  CHECK(a->tokens.size() == 41 && a->drawing == 0 && a->committed == 0);
  CHECK(rig.scheduler.cache().pages() == 0);  // what it computed is lost
  rig.begin(ahead);
  rig.end(ahead);
  rig.finish(h);
  CHECK(rows_of(rig.step(), a) == 41);
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
