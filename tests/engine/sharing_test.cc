// What requests share and what bounds them: prefixes, samples of one prompt, the host tier, slow
// readers, deadlines, priorities, latency targets, errands between steps.
#include <algorithm>
#include <thread>

#include "rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

GivenParams greedy(uint32_t max_tokens) {
  GivenParams g;
  g.max_tokens = max_tokens;
  g.temperature = 0;
  g.ignore_eos = true;
  return g;
}

std::vector<int32_t> counting(int n, int from = 0) {
  std::vector<int32_t> p;
  for (int i = 0; i < n; ++i) p.push_back((from + i * 7) % vocab);
  return p;
}

}  // namespace

TEST(a_prefix_is_computed_once) {
  for (const bool ahead : {false, true}) {
    Setup s;
    s.plan_ahead = ahead;
    Rig rig(s);
    const auto prompt = counting(70);
    auto first = rig.submit(prompt, greedy(5));
    check_same(collect(*first), lone(prompt, first->params()));
    CHECK(first->info().cached_tokens == 0);
    const int64_t before = rig.model.rows_computed;
    auto second = rig.submit(prompt, greedy(5));
    check_same(collect(*second), lone(prompt, second->params()));
    CHECK(second->info().cached_tokens == 64);
    CHECK(rig.model.rows_computed - before == 6 + 4);
    CHECK(rig.settles());
    CHECK(rig.engine->stats().prefix_hit_tokens == 64 && rig.engine->stats().pages_cached > 0);

    // Another salt, or the wish for the prompt's logprobs, computes it again.
    GivenParams salted = greedy(1), scored = greedy(1);
    salted.cache_salt = "mine";
    scored.prompt_logprobs = 0;
    for (const GivenParams& g : {salted, scored}) {
      auto r = rig.submit(prompt, g);
      check_same(collect(*r), lone(prompt, r->params()));
      CHECK(r->info().cached_tokens == 0);
    }
    auto again = rig.submit(prompt, salted);
    collect(*again);
    CHECK(again->info().cached_tokens == 64);
  }
}

TEST(prompts_at_the_cache_s_edges) {
  Rig rig(Setup{});
  for (const int n : {1, 15, 16, 17, 31, 32, 33, 48}) {
    const auto prompt = counting(n, n);
    for (int round = 0; round < 3; ++round) {
      auto r = rig.submit(prompt, greedy(3));
      check_same(collect(*r), lone(prompt, r->params()));
      // At least one token is left to compute.
      CHECK(r->info().cached_tokens == (round ? static_cast<uint64_t>((n - 1) / 16 * 16) : 0));
    }
  }
  // A conversation goes on: what was generated is cached too.
  const auto prompt = counting(20, 9);
  auto r = rig.submit(prompt, greedy(20));
  auto longer = prompt;
  for (const int32_t t : collect(*r).tokens) longer.push_back(t);
  longer.push_back(3);
  auto next = rig.submit(longer, greedy(2));
  check_same(collect(*next), lone(longer, next->params()));
  CHECK(next->info().cached_tokens == 32);
}

TEST(a_system_prompt_that_all_bring_at_once_is_computed_once) {
  Setup s;
  s.held = true;
  s.max_running = 8;
  s.step_tokens = 200;
  s.pages = 60;
  Rig rig(s);
  const auto common = counting(64);
  std::vector<std::shared_ptr<Request>> all;
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(common);
    for (int k = 0; k < 5; ++k) prompts.back().push_back(i + k);
    all.push_back(rig.submit(prompts.back(), greedy(1)));
  }
  rig.engine->resume();
  for (size_t i = 0; i < all.size(); ++i)
    check_same(collect(*all[i]), lone(prompts[i], all[i]->params()));
  CHECK(rig.model.rows_computed == 64 + 8 * 5);
}

TEST(samples_of_one_prompt_share_its_pages) {
  for (const int length : {1, 7, 16, 40}) {
    Setup s;
    s.max_running = 8;
    s.pages = 64;
    Rig rig(s);
    const auto prompt = counting(length, length);
    GivenParams g;
    g.n = 6;
    g.max_tokens = 30;
    g.seed = 77;
    g.ignore_eos = true;
    g.logprobs = 1;
    g.prompt_logprobs = 0;
    auto r = rig.submit(prompt, g);
    const auto all = collect_all(*r);
    CHECK(all.size() == 6);
    for (uint32_t i = 0; i < 6; ++i) check_same(all[i], lone(prompt, r->params(), i));
    CHECK(all[0].tokens != all[1].tokens);
    // The prompt once, its last token again for each other sample, then what they decode.
    CHECK(rig.model.rows_computed == length + 5 + 6 * 29);
    CHECK(rig.model.copied == (length > 1 ? 5 : 0));  // of one token there is nothing to copy
    const Request::Info i = r->info();
    CHECK(i.samples == 6 && i.generated_tokens == 180 && i.state == RequestState::done);
    CHECK(rig.settles());
    CHECK(rig.engine->stats().finished == 1);
  }
}

TEST(more_samples_than_seats) {
  Setup s;
  s.max_running = 2;
  s.pages = 20;
  Rig rig(s);
  GivenParams g;
  g.n = 7;
  g.max_tokens = 12;
  g.seed = 3;
  const auto prompt = counting(40);
  auto r = rig.submit(prompt, g);
  const auto all = collect_all(*r);
  for (uint32_t i = 0; i < 7; ++i) check_same(all[i], lone(prompt, r->params(), i));
  CHECK(rig.settles());
  r = rig.submit(prompt, g);
  r->cancel();
  for (const Result& one : collect_all(*r))
    CHECK(one.finish == Finish::cancelled || one.finish == Finish::length ||
          one.finish == Finish::stop);
  CHECK(rig.settles());
}

TEST(evicted_pages_come_back_from_the_host) {
  Setup s;
  s.pages = 8;  // one prompt's worth
  s.host_pages = 40;
  Rig rig(s);
  rig.model.row_us = 1000;  // to compute a page again is dear
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 4; ++i) prompts.push_back(counting(100, i + 1));
  for (int round = 0; round < 3; ++round)
    for (const auto& prompt : prompts) {
      auto r = rig.submit(prompt, greedy(4));
      check_same(collect(*r), lone(prompt, r->params()));
      CHECK(r->info().cached_tokens == (round ? 96 : 0));
    }
  const EngineStats stats = rig.engine->stats();
  CHECK(stats.host_pages_in > 0 && stats.host_pages_out > 0 && stats.host_pages_used > 0);
  CHECK(stats.host_pages_total == 40);
}

TEST(a_window_group_gives_pages_back) {
  Setup s;
  s.windows = {0, 20};
  s.context = 512;
  s.pages = 40;
  Rig rig(s);
  const auto prompt = counting(300);
  auto r = rig.submit(prompt, greedy(100));
  check_same(collect(*r), lone(prompt, r->params()));
  CHECK(rig.settles());
}

TEST(a_slow_reader_pauses_its_request_only) {
  Setup s;
  s.output_bytes = 40;  // ten tokens
  s.context = 400;
  s.pages = 60;
  Rig rig(s);
  const auto prompt = counting(5);
  auto slow = rig.submit(prompt, greedy(300));
  auto quick = rig.submit(counting(9), greedy(300));
  std::thread reader([&] { check_same(collect(*quick), lone(counting(9), quick->params())); });
  reader.join();
  CHECK(rig.engine->stats().paused == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const uint64_t steps = rig.engine->stats().steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(rig.engine->stats().steps == steps);  // no one wants anything
  // Where steps run ahead, one was under way when it was full.
  CHECK(slow->info().generated_tokens == (rig.engine->stats().steps_ahead ? 11 : 10));
  check_same(collect(*slow), lone(prompt, slow->params()));
  CHECK(rig.settles());
  CHECK(rig.engine->stats().paused == 0);
}

TEST(readers_that_never_come_back_give_way) {
  Setup s;
  s.output_bytes = 4;
  s.max_running = 3;
  s.pages = 9;
  Rig rig(s);
  std::vector<std::shared_ptr<Request>> gone;
  for (int i = 0; i < 5; ++i) gone.push_back(rig.submit(counting(30, i), greedy(90)));
  for (int i = 0; i < 5; ++i) {
    const auto prompt = counting(60, 40 + i);
    GivenParams g = greedy(40);
    auto r = rig.submit(prompt, g);
    check_same(collect(*r), lone(prompt, r->params()));
  }
  gone.front()->cancel();
  for (int i = 0; i < 5; ++i) {
    const Result got = collect(*gone[static_cast<size_t>(i)]);
    if (i) check_same(got, lone(counting(30, i), gone[static_cast<size_t>(i)]->params()));
  }
  CHECK(rig.settles());
}

TEST(deadlines_end_requests) {
  Setup s;
  s.max_running = 1;
  s.context = 2000;
  s.pages = 200;
  Rig rig(s);
  rig.model.delay_us = 1000;
  GivenParams g = greedy(1500);
  g.deadline_us = 30'000;
  auto runs = rig.submit(counting(5), g);
  g.deadline_us = 15'000;
  auto waits = rig.submit(counting(6), g);
  for (auto& r : {runs, waits}) {
    const Result got = collect(*r);
    CHECK(got.finish == Finish::error && got.error == Status::deadline);
    CHECK(got.message.find("deadline") != std::string::npos);
  }
  CHECK(runs->info().generated_tokens > 0);
  CHECK(waits->info().scheduled_ns == 0);
  CHECK(rig.settles());
  // Also while nothing runs: a reader that stopped.
  Setup p;
  p.output_bytes = 4;
  Rig idle(p);
  g.deadline_us = 10'000;
  auto r = idle.submit(counting(5), g);
  CHECK(idle.engine->stats().finished == 0);
  while (idle.engine->stats().finished == 0) std::this_thread::yield();
  CHECK(collect(*r).error == Status::deadline);
}

TEST(higher_priority_goes_first) {
  Setup s;
  s.held = true;
  s.max_running = 1;
  Rig rig(s);
  std::vector<std::shared_ptr<Request>> all;
  for (const int priority : {0, -5, 7, 3}) {
    GivenParams g = greedy(3);
    g.priority = priority;
    all.push_back(rig.submit(counting(20, priority + 10), g));
  }
  rig.engine->resume();
  for (auto& r : all) collect(*r);
  const auto began = [&](int i) { return all[static_cast<size_t>(i)]->info().scheduled_ns; };
  CHECK(began(2) < began(3) && began(3) < began(0) && began(0) < began(1));
}

TEST(errands_run_between_steps) {
  auto rig = std::make_unique<Rig>(Setup{});
  rig->model.delay_us = 500;
  auto r = rig->submit(counting(5), greedy(50));
  int ran = 0;
  for (int i = 0; i < 5; ++i)
    rig->engine->between_steps([&](Scheduler& scheduler, Model& model) {
      CHECK(&model == &rig->model && scheduler.cache().pages() >= 0);
      ++ran;
    });
  CHECK(ran == 5);
  CHECK_THROWS(bad_format, "as told",
               rig->engine->between_steps(
                   [](Scheduler&, Model&) { fail(Status::bad_format, "as told"); }));
  check_same(collect(*r), lone(counting(5), r->params()));
  rig->engine->between_steps([&](Scheduler&, Model&) { ++ran; });  // idle
  CHECK(ran == 6);
}

TEST(a_latency_target_shrinks_prefill_beside_streams) {
  // The cost model sees 1 ms a row here; the target leaves room for some 25.
  StepCost cost;
  for (int i = 0; i < 20; ++i)
    for (const int32_t rows : {1, 2, 8, 40, 300})
      cost.observe(rows, rows * 1000.0, 5'000'000 + rows * 1'000'000 + rows * 1000);
  const double predicted = cost.predict(100, 100'000);
  CHECK(std::abs(predicted - 105.1e6) < 2e6);
  const int32_t fit = cost.rows_within(33e6, 3, 3000, 1000, 512);
  CHECK(fit >= 23 && fit <= 26);
  CHECK(cost.rows_within(4e6, 3, 3000, 1000, 512) == 0);
  CHECK(cost.rows_within(1e12, 3, 3000, 1000, 512) == 512);
  CHECK(StepCost().rows_within(1, 1, 1, 1, 512) == 512);  // nothing known
}

int main(int c, char** v) {
  return test_main(c, v);
}
