// The owner thread over a fake model: every request's tokens equal those of a lone computation,
// whatever arrives, leaves or fails beside it.
#include <thread>

#include "rig.h"

using namespace orlop;
using namespace orlop::test;

TEST(one_request_equals_its_definition) {
  Rig rig(Setup{});
  GivenParams g;
  g.max_tokens = 40;
  g.temperature = 0;
  g.ignore_eos = true;
  g.logprobs = 3;
  g.prompt_logprobs = -1;
  const std::vector<int32_t> prompt{5, 6, 7, 8, 9};
  auto r = rig.submit(prompt, g);
  check_same(collect(*r), lone(prompt, r->params()));
  const Request::Info i = r->info();
  CHECK(i.state == RequestState::done && i.finish == Finish::length && i.generated_tokens == 40);
  const EngineStats stats = rig.engine->stats();
  CHECK(stats.steps == 40 && stats.model_ns > 0);
  CHECK(i.queued_ns && i.queued_ns <= i.scheduled_ns && i.scheduled_ns <= i.first_token_ns &&
        i.first_token_ns < i.last_token_ns);
  const Output* o;
  CHECK(r->get(-1, &o) == Status::end);
  CHECK(rig.settles());
}

TEST(max_tokens_0_computes_the_prompt) {
  Rig rig(Setup{});
  GivenParams g;
  g.max_tokens = 0;
  g.prompt_logprobs = 2;
  const std::vector<int32_t> prompt{1, 2, 3, 4};
  auto r = rig.submit(prompt, g);
  const Result got = collect(*r);
  check_same(got, lone(prompt, r->params()));
  CHECK(got.tokens.empty() && got.finish == Finish::length && got.prompt_logprobs.size() == 4);
  CHECK(rig.engine->stats().prompt_tokens == 4);
}

TEST(the_context_s_end_is_a_length) {
  Rig rig(Setup{});
  GivenParams g;
  g.ignore_eos = true;
  std::vector<int32_t> prompt(100, 4);
  auto r = rig.submit(prompt, g);
  CHECK(collect(*r).tokens.size() == 28);
  prompt.assign(128, 4);
  r = rig.submit(prompt, g);
  const Result full = collect(*r);
  CHECK(full.tokens.empty() && full.finish == Finish::length);
  Setup few;
  few.pages = 3;  // the pool is the limit, not the context
  Rig small(few);
  CHECK(small.engine->capacity() == 48);
  prompt.assign(10, 4);
  r = small.submit(prompt, g);
  const Result cut = collect(*r);
  CHECK(cut.tokens.size() == 38 && cut.finish == Finish::length);
}

// Everything at once: few pages, windows, shared prefixes, several samples, priorities, slow
// readers, a second tier, plans made ahead, cancels.
TEST(random_lives_equal_lone_ones) {
  uint64_t preemptions = 0, cancelled = 0, hits = 0, pauses = 0, came_back = 0, copies = 0, ahead = 0;
  const auto rounds = static_cast<int>(soak_factor() * 300);
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(static_cast<uint64_t>(round) + 7);
    Setup s;
    const int32_t page_sizes[] = {8, 16, 16, 32, 48};
    s.page_tokens = page_sizes[random() % 5];
    s.pages = 128 / s.page_tokens + 2 + static_cast<int64_t>(random() % 8);
    s.step_tokens = 1 + static_cast<int32_t>(random() % 50);
    s.max_running = 1 + static_cast<int32_t>(random() % 8);
    if (random() % 2) s.windows = {0, 5 + static_cast<int32_t>(random() % 60)};
    s.logit_rows = std::min(1 + static_cast<int32_t>(random() % 9), s.step_tokens);
    s.prefix_cache = random() % 4;
    s.plan_ahead = random() % 2;
    s.fcfs = random() % 3 == 0;
    s.host_pages = random() % 2 ? random() % 20 : 0;
    if (random() % 3 == 0) s.output_bytes = 1 + random() % 60;
    if (random() % 3 == 0) s.itl_target_ns = 1 + static_cast<int64_t>(random() % 100000);
    if (random() % 2) s.run_ahead = true;
    if (random() % 4 == 0) s.later = true;
    const bool penalties = random() % 3 == 0;  // a step with them waits for the one before
    Rig rig(s);
    struct Life {
      std::vector<int32_t> prompt;
      std::shared_ptr<Request> request;
      bool cancels;
    };
    std::vector<Life> lives;
    const std::vector<int32_t> common = random_prompt(random, 90);
    for (int i = 0; i < 12; ++i) {
      Life l;
      l.prompt = random_prompt(random, 100);
      if (random() % 2)  // as far as one prompt may go
        std::copy_n(common.begin(), std::min(common.size(), l.prompt.size()), l.prompt.begin());
      GivenParams g = random_params(random, penalties);
      if (random() % 4 == 0) g.n = 1 + static_cast<uint32_t>(random() % 4);
      g.priority = static_cast<int32_t>(random() % 3) - 1;
      if (random() % 4 == 0) g.cache_salt = "salt";
      l.request = rig.submit(l.prompt, g);
      l.cancels = random() % 4 == 0;
      lives.push_back(l);
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (l.cancels) l.request->cancel();
    }
    std::shuffle(lives.begin(), lives.end(), random);
    for (Life& l : lives) {
      pauses += rig.engine->stats().paused;
      const std::vector<Result> all = collect_all(*l.request);
      for (uint32_t i = 0; i < all.size(); ++i) {
        const Result& got = all[i];
        const Result want = lone(l.prompt, l.request->params(), i);
        if (l.cancels && got.finish == Finish::cancelled) {
          ++cancelled;
          CHECK(got.tokens.size() <= want.tokens.size() &&
                std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()));
        } else {
          check_same(got, want);
        }
      }
    }
    CHECK(rig.settles());
    const EngineStats stats = rig.engine->stats();
    CHECK(stats.finished == 12);
    preemptions += stats.preemptions;
    hits += stats.prefix_hit_tokens;
    came_back += stats.host_pages_in;
    copies += static_cast<uint64_t>(rig.model.copied);
    ahead += stats.steps_ahead;
    if (failures()) {
      std::printf("round %d\n", round);
      return;
    }
  }
  // Else nothing hard was tried.
  CHECK(preemptions > 20 && cancelled > 10 && hits > 100 && pauses > 10 && came_back > 10 &&
        copies > 10 && ahead > 1000);
}

TEST(cancel_is_quick_and_final) {
  Rig rig(Setup{});
  rig.model.delay_us = 2000;
  GivenParams g;
  g.ignore_eos = true;
  const std::vector<int32_t> prompt(100, 4);
  auto r = rig.submit(prompt, g);
  const Output* o;
  while (rig.model.forwards < 2) std::this_thread::yield();
  r->cancel();  // in the middle of the prompt
  r->cancel();
  CHECK(r->get(-1, &o) == Status::ok && o->finish == Finish::cancelled && o->tokens.empty());
  CHECK(rig.engine->stats().pages_used == 0);  // before the end was told
  CHECK(rig.model.forwards <= 4);
  CHECK(r->get(0, &o) == Status::end);
  CHECK(r->info().state == RequestState::cancelled);
  r->cancel();  // after the end: nothing
  CHECK(r->info().state == RequestState::cancelled);
}

TEST(a_failing_step_fails_its_requests_only) {
  Rig rig(Setup{});
  rig.model.throw_at = 3;
  GivenParams g;
  g.ignore_eos = true;
  g.max_tokens = 20;
  g.temperature = 0;
  const std::vector<int32_t> prompt{4, 5};
  auto bad = rig.submit(prompt, g);
  const Result got = collect(*bad);
  CHECK(got.finish == Finish::error && got.error == Status::internal &&
        got.message == "the fake fails" && got.tokens.size() == 2);
  CHECK(bad->info().state == RequestState::failed);
  auto good = rig.submit(prompt, g);
  check_same(collect(*good), lone(prompt, good->params()));
  CHECK(rig.settles());
}

TEST(no_token_to_draw_is_that_request_s_failure) {
  Rig rig(Setup{});
  rig.model.nan_token = 9;
  GivenParams g, forced;
  g.max_tokens = 10;
  g.temperature = 0;
  g.ignore_eos = true;
  g.logit_bias = {{9, -INFINITY}};
  forced = g;
  forced.logit_bias = {{9, 100.0f}};
  auto a = rig.submit({1, 2, 3}, g);
  auto b = rig.submit({1, 2, 3}, forced);
  CHECK(collect(*b).error == Status::internal);
  CHECK(collect(*a).tokens.size() == 10);
}

TEST(freed_pages_are_poisoned) {
  Setup s;
  s.pages = 10;
  s.prefix_cache = false;
  Rig rig(s);
  CHECK(rig.model.poisoned == 10);  // at start: nothing was written
  GivenParams g;
  g.max_tokens = 20;
  g.ignore_eos = true;
  collect(*rig.submit({1, 2, 3}, g));
  collect(*rig.submit({1, 2, 3}, g));
  CHECK(rig.model.poisoned == 12);  // the first one's two pages, before the second's first step
}

int main(int c, char** v) {
  return test_main(c, v);
}
