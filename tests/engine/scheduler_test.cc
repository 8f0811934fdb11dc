// Pages and plans by themselves: no model, no threads.
#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "check.h"
#include "engine/scheduler.h"

using namespace orlop;

namespace {

std::unique_ptr<Sequence> sequence(uint64_t arrival, int32_t prompt) {
  auto s = std::make_unique<Sequence>();
  s->arrival = arrival;
  s->tokens.assign(static_cast<size_t>(prompt), 1);
  s->prompt_tokens = prompt;
  return s;
}

const PlanSeq* find(const StepPlan& plan, const Sequence& s) {
  for (const PlanSeq& p : plan.seqs)
    if (p.sequence == &s) return &p;
  return nullptr;
}

}  // namespace

TEST(pool_counts_references) {
  PagePool pool(3);
  const int32_t a = pool.take(), b = pool.take();
  CHECK(a != b && pool.available() == 1 && pool.used() == 2);
  pool.share(a);
  CHECK(!pool.release(a));
  CHECK(pool.release(a));
  CHECK(pool.release(b));
  CHECK(pool.available() == 3);
  CHECK_THROWS(internal, "twice", pool.release(b));
  CHECK_THROWS(internal, "shared while free", pool.share(b));
  for (int i = 0; i < 3; ++i) pool.take();
  CHECK_THROWS(internal, "no page", pool.take());
}

TEST(pools_grow_all_or_nothing) {
  PagePools pools({4, 2}, 16, false);
  std::vector<int32_t> tables[max_page_groups];
  CHECK(pools.grow(tables, 17));
  CHECK(tables[0].size() == 2 && tables[1].size() == 2);
  CHECK(!pools.grow(tables, 33));
  CHECK(tables[0].size() == 2 && pools.group(0).available() == 2);
  pools.release_all(tables);
  CHECK(pools.used_in_all() == 0);
}

TEST(chunks_mix_with_decodes) {
  PagePools pools({100}, 16, false);
  Scheduler scheduler({10, 4, 1}, pools);
  auto a = sequence(0, 4), b = sequence(1, 25);
  StepPlan plan;
  scheduler.add(a.get());
  scheduler.add(b.get());
  scheduler.plan(plan);  // all of a, the first six of b
  CHECK(plan.rows == 10 && find(plan, *a)->draw && !find(plan, *b)->draw);
  scheduler.commit(plan);
  a->tokens.push_back(5);
  scheduler.plan(plan);  // a's next token first, then nine of b
  CHECK(plan.seqs[0].sequence == a.get() && plan.seqs[0].rows == 1 && plan.seqs[0].begin == 4);
  CHECK(find(plan, *b)->rows == 9 && find(plan, *b)->begin == 6);
  scheduler.commit(plan);
  a->tokens.push_back(5);
  scheduler.plan(plan);
  CHECK(find(plan, *b)->rows == 9 && !find(plan, *b)->draw);
  scheduler.commit(plan);
  a->tokens.push_back(5);
  scheduler.plan(plan);
  CHECK(find(plan, *b)->rows == 1 && find(plan, *b)->draw);
  scheduler.remove(a.get());
  scheduler.remove(b.get());
  CHECK(pools.used_in_all() == 0 && scheduler.idle());
}

TEST(admission_is_first_come) {
  PagePools pools({4}, 16, false);
  Scheduler scheduler({100, 8, 1}, pools);
  auto a = sequence(0, 20), b = sequence(1, 40), c = sequence(2, 1);
  for (auto* s : {a.get(), b.get(), c.get()}) scheduler.add(s);
  StepPlan plan;
  scheduler.plan(plan);
  // b needs three of the two pages left; c would fit but came later.
  CHECK(plan.seqs.size() == 1 && find(plan, *a));
  scheduler.commit(plan);
  scheduler.remove(a.get());
  scheduler.plan(plan);
  CHECK(find(plan, *b) && !find(plan, *c));  // one page is kept free
  scheduler.remove(b.get());
  scheduler.plan(plan);
  CHECK(find(plan, *c));
  scheduler.remove(c.get());
}

TEST(promised_pages_are_not_given_twice) {
  PagePools pools({8}, 16, false);
  Scheduler scheduler({16, 8, 0}, pools);
  auto a = sequence(0, 100), b = sequence(1, 30);
  scheduler.add(a.get());
  scheduler.add(b.get());
  StepPlan plan;
  for (int i = 0; i < 7; ++i) {
    scheduler.plan(plan);
    CHECK(plan.preemptions == 0 && !find(plan, *b));
    scheduler.commit(plan);
  }
  CHECK(a->computed == 100);
}

TEST(the_youngest_gives_way) {
  PagePools pools({4}, 16, true);
  Scheduler scheduler({100, 8, 0}, pools);
  auto a = sequence(0, 32), b = sequence(1, 31);
  StepPlan plan;
  scheduler.add(a.get());
  scheduler.add(b.get());
  scheduler.plan(plan);
  CHECK(plan.seqs.size() == 2 && pools.available() == 0);
  scheduler.commit(plan);
  a->tokens.push_back(1);
  b->tokens.push_back(1);
  scheduler.plan(plan);
  CHECK(plan.preemptions == 1 && plan.seqs.size() == 1 && find(plan, *a));
  CHECK(b->computed == 0 && b->pages[0].empty() && b->tokens.size() == 32);
  CHECK(pools.freed().size() == 2);
  CHECK(scheduler.waiting() == 1 && scheduler.running() == 1);
  scheduler.commit(plan);
  scheduler.remove(a.get());
  scheduler.plan(plan);  // b again, its generated token among what is computed
  CHECK(find(plan, *b) && find(plan, *b)->rows == 32 && find(plan, *b)->draw);
  scheduler.remove(b.get());
}

TEST(a_prefill_may_take_a_planned_decode_s_pages) {
  PagePools pools({4}, 16, false);
  Scheduler scheduler({17, 8, 0}, pools);
  auto a = sequence(0, 48), b = sequence(1, 1);
  StepPlan plan;
  scheduler.add(a.get());
  scheduler.plan(plan);
  scheduler.commit(plan);  // a: 17 of 48
  scheduler.add(b.get());
  scheduler.plan(plan);
  CHECK(find(plan, *a)->rows == 17 && !find(plan, *b));
  scheduler.commit(plan);
  scheduler.plan(plan);  // a's last 14, and b
  CHECK(find(plan, *a)->draw && find(plan, *b)->draw);
  scheduler.commit(plan);
  a->tokens.insert(a->tokens.end(), 2, 1);  // as after a verification of drafted tokens
  b->tokens.push_back(1);
  scheduler.plan(plan);
  CHECK(find(plan, *a) && !find(plan, *b) && plan.preemptions == 1 && plan.rows == 2);
  scheduler.remove(a.get());
  scheduler.remove(b.get());
  CHECK(pools.used_in_all() == 0);
}

// Random lives: every plan obeys its limits, everything ends, all pages come back.
TEST(random_histories_end) {
  std::mt19937_64 random(20260);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  int preemptions = 0;
  for (int round = 0; round < 200; ++round) {
    const int total = 2 + below(20), page_tokens = 16, step = 1 + below(40), most = 1 + below(6);
    PagePools pools({total, total + below(3)}, page_tokens, false);
    Scheduler scheduler({step, most, below(3)}, pools);
    struct Life {
      std::unique_ptr<Sequence> s;
      size_t target;
      bool done = false;
    };
    std::vector<Life> lives;
    const int count = 1 + below(15);
    StepPlan plan;
    int ended = 0, steps = 0;
    while (ended < count) {
      CHECK(++steps < 100000);
      if (steps >= 100000) return;
      if (static_cast<int>(lives.size()) < count && below(3) == 0) {
        const int prompt = 1 + below(total * page_tokens);
        Life l{sequence(lives.size(), prompt),
               static_cast<size_t>(prompt + below(total * page_tokens - prompt + 1))};
        scheduler.add(l.s.get());
        lives.push_back(std::move(l));
      }
      if (!lives.empty() && below(40) == 0) {
        Life& l = lives[static_cast<size_t>(below(static_cast<int>(lives.size())))];
        if (!l.done) {
          l.done = true;
          ++ended;
          scheduler.remove(l.s.get());
        }
      }
      scheduler.plan(plan);
      preemptions += plan.preemptions;
      CHECK(!plan.seqs.empty() || scheduler.idle());
      int rows = 0;
      std::set<const Sequence*> once;
      for (const PlanSeq& p : plan.seqs) {
        rows += p.rows;
        CHECK(p.rows > 0 && once.insert(p.sequence).second);
        CHECK(p.begin == p.sequence->computed);
        CHECK(static_cast<int>(p.sequence->pages[0].size()) * page_tokens >= p.begin + p.rows);
        CHECK(static_cast<int>(p.sequence->pages[1].size()) * page_tokens >= p.begin + p.rows);
      }
      CHECK(rows == plan.rows && rows <= step);
      CHECK(scheduler.running() <= static_cast<size_t>(most));
      scheduler.commit(plan);
      for (const PlanSeq& p : plan.seqs) {
        if (!p.draw) continue;
        Life& l = *std::find_if(lives.begin(), lives.end(),
                                [&](const Life& x) { return x.s.get() == p.sequence; });
        if (l.s->tokens.size() < l.target) {
          l.s->tokens.push_back(1);
        } else {
          l.done = true;
          ++ended;
          scheduler.remove(l.s.get());
        }
      }
    }
    CHECK(pools.used_in_all() == 0 && scheduler.idle());
  }
  CHECK(preemptions > 100);  // else the rounds were too easy to show anything
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
