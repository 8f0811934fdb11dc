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

TEST(random_lives_equal_lone_ones) {
  std::mt19937_64 random(7);
  uint64_t preemptions = 0, cancelled = 0;
  for (int round = 0; round < 150; ++round) {
    Setup s;
    s.page_tokens = 16;
    s.pages = 8 + static_cast<int64_t>(random() % 6);
    s.step_tokens = 1 + static_cast<int32_t>(random() % 50);
    s.max_running = 1 + static_cast<int32_t>(random() % 8);
    s.groups = 1 + static_cast<int>(random() % 2);
    s.logit_rows = 1 + static_cast<int32_t>(random() % 9);
    s.logit_rows = std::min(s.logit_rows, s.step_tokens);
    Rig rig(s);
    struct Life {
      std::vector<int32_t> prompt;
      std::shared_ptr<Request> request;
      bool cancels;
    };
    std::vector<Life> lives;
    for (int i = 0; i < 12; ++i) {
      Life l;
      l.prompt = random_prompt(random, 100);
      l.request = rig.submit(l.prompt, random_params(random));
      l.cancels = random() % 4 == 0;
      lives.push_back(l);
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (l.cancels) l.request->cancel();
    }
    for (Life& l : lives) {
      const Result got = collect(*l.request);
      const Result want = lone(l.prompt, l.request->params());
      if (l.cancels && got.finish == Finish::cancelled) {
        ++cancelled;
        CHECK(got.tokens.size() <= want.tokens.size() &&
              std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()));
      } else {
        check_same(got, want);
      }
    }
    CHECK(rig.settles());
    CHECK(rig.engine->stats().finished == 12);
    preemptions += rig.engine->stats().preemptions;
  }
  CHECK(preemptions > 20 && cancelled > 10);  // else nothing hard was tried
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
