// Steps that are started before the results of those before them are known: which ones are, and that nothing
// else changes. The model's results come with wait() and not before.
#include <thread>

#include "rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

Setup ahead() {
  Setup s;
  s.later = true;
  s.run_ahead.reset();  // it goes by the model
  return s;
}

GivenParams plain(uint32_t tokens) {
  GivenParams g;
  g.max_tokens = tokens;
  g.temperature = 0.8;
  g.seed = 5;
  g.ignore_eos = true;
  return g;
}

std::vector<int32_t> prompt_of(int32_t n, int32_t first = 0) {
  std::vector<int32_t> p(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) p[static_cast<size_t>(i)] = (first + i * i) % vocab;
  return p;
}

// The token that a greedy request draws at last, and nowhere before.
int32_t last_alone(const std::vector<int32_t>& tokens) {
  for (size_t n = tokens.size(); n-- > 8;)
    if (std::find(tokens.begin(), tokens.begin() + static_cast<long>(n), tokens[n]) ==
        tokens.begin() + static_cast<long>(n))
      return tokens[n];
  return -1;
}

}  // namespace

TEST(in_a_steady_state_every_step_is_started_before_the_results_of_the_last) {
  for (const bool later : {true, false}) {  // a device that works on its own; one that is made to
    Setup s = ahead();
    s.later = later;
    if (!later) s.run_ahead = true;
    s.max_running = 6;
    s.step_tokens = 200;
    s.pages = 60;
    s.held = true;
    Rig rig(s);
    std::vector<std::shared_ptr<Request>> all;
    for (int i = 0; i < 6; ++i) all.push_back(rig.submit(prompt_of(10, i), plain(80)));
    rig.engine->resume();
    for (int i = 0; i < 6; ++i)
      check_same(collect(*all[static_cast<size_t>(i)]), lone(prompt_of(10, i), all[static_cast<size_t>(i)]->params()));
    CHECK(rig.settles());
    const EngineStats stats = rig.engine->stats();
    CHECK(stats.steps == 80 && stats.steps_ahead == 79);
    if (later) CHECK(rig.model.ahead == 79);   // as the device has it: results lay there unread
    CHECK(rig.model.unknown == 6 * 79);        // every token that is fed was named by its place
    CHECK(rig.model.rows_computed == 60 + 6 * 79);  // and no row too many: the lengths are known
    CHECK(stats.generated_tokens == 480 && stats.prompt_tokens == 60);
    CHECK(stats.step_ns >= stats.model_ns + stats.plan_ns + stats.commit_ns);
  }
}

TEST(nothing_runs_ahead_unless_the_device_works_on_its_own) {
  Setup s = ahead();
  s.later = false;
  Rig rig(s);
  auto r = rig.submit(prompt_of(10), plain(30));
  check_same(collect(*r), lone(prompt_of(10), r->params()));
  CHECK(rig.engine->stats().steps_ahead == 0 && rig.model.unknown == 0 && rig.model.ahead == 0);
  s.later = true;
  s.run_ahead = false;  // nor where it is told not to
  Rig other(s);
  r = other.submit(prompt_of(10), plain(30));
  check_same(collect(*r), lone(prompt_of(10), r->params()));
  CHECK(other.engine->stats().steps_ahead == 0 && other.model.ahead == 0);
}

TEST(what_ends_has_one_row_more_that_nobody_sees) {
  const std::vector<int32_t> prompt = prompt_of(10);
  GivenParams g = plain(60);
  g.temperature = 0;
  Rig probe(ahead());
  const int32_t last = last_alone(collect(*probe.submit(prompt, g)).tokens);
  CHECK(last >= 0);
  g.stop_tokens = {last};
  Rig rig(ahead());
  auto r = rig.submit(prompt, g);
  const Result got = collect(*r);
  CHECK(rig.engine->stats().pages_used == 0);  // before the end was told
  check_same(got, lone(prompt, r->params()));
  CHECK(got.finish == Finish::stop && got.stop_token == last);
  CHECK(rig.settles());
  rig.engine->between_steps([](Scheduler&, Model&) {});  // that row is over
  CHECK(rig.model.rows_computed == 10 + static_cast<int64_t>(got.tokens.size()));
  CHECK(rig.engine->stats().generated_tokens == got.tokens.size());
  // And the pages it wrote are good for others.
  for (int i = 0; i < 5; ++i) {
    r = rig.submit(prompt_of(90, i), plain(30));
    check_same(collect(*r), lone(prompt_of(90, i), r->params()));
  }
}

TEST(what_needs_the_last_token_waits_for_it) {
  for (const int kind : {0, 1, 2}) {
    Rig rig(ahead());
    GivenParams g = plain(40);
    if (kind == 0) g.repetition_penalty = 1.3;
    if (kind == 1) g.frequency_penalty = 0.5;
    if (kind == 2) {  // not this: only how many came counts
      g.min_tokens = 20;
      g.ignore_eos = false;
    }
    auto r = rig.submit(prompt_of(10), g);
    const Result got = collect(*r);
    check_same(got, lone(prompt_of(10), r->params()));
    const EngineStats stats = rig.engine->stats();
    CHECK(kind == 2 ? stats.steps_ahead + 1 >= got.tokens.size() : stats.steps_ahead == 0);
  }
}

TEST(results_that_have_no_room_are_taken_at_once) {
  Setup s = ahead();
  s.logit_rows = 1;  // 37 best tokens have room; 64 are what two samples want
  s.step_tokens = 100;
  Rig rig(s);
  GivenParams g = plain(30);
  g.logprobs = -1;
  g.n = 2;
  g.prompt_logprobs = -1;
  auto r = rig.submit(prompt_of(20), g);
  const std::vector<Result> got = collect_all(*r);
  for (uint32_t i = 0; i < 2; ++i) check_same(got[i], lone(prompt_of(20), r->params(), i));
  // One alone has room.
  g.n = 1;
  g.prompt_logprobs = -2;
  const uint64_t before = rig.engine->stats().steps_ahead;
  r = rig.submit(prompt_of(20), g);
  check_same(collect(*r), lone(prompt_of(20), r->params()));
  CHECK(rig.engine->stats().steps_ahead >= before + 29);
}

// A step that cannot be started: what the one before drew is still told.
TEST(a_step_that_does_not_start_fails_alone) {
  Rig rig(ahead());
  rig.model.throw_at = 12;
  auto r = rig.submit(prompt_of(10), plain(40));
  const Result got = collect(*r);
  CHECK(got.finish == Finish::error && got.message == "the fake fails" && got.tokens.size() == 11);
  const Result want = lone(prompt_of(10), r->params());
  CHECK(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()));
  auto next = rig.submit(prompt_of(10), plain(40));
  check_same(collect(*next), want);
  CHECK(rig.settles());
}

// Results that are lost: those of the step after rest on them and are thrown away, and what was in that
// step alone is computed again.
// pages: not results, but pages on their way to the host.
void lose(bool pages, uint64_t least_failed) {
  uint64_t saved = 0, failed = 0;
  for (int round = 0; round < 150; ++round) {
    std::mt19937_64 random(static_cast<uint64_t>(round));
    Setup s = ahead();
    s.prefix_cache = pages || random() % 2;
    s.step_tokens = 10 + static_cast<int32_t>(random() % 20);
    s.host_pages = pages || random() % 2 ? 10 : 0;
    if (pages) s.pages = 14;
    Rig rig(s);
    rig.model.delay_us = 50;
    (pages ? rig.model.no_read_at : rig.model.lose_at) = 1 + static_cast<int>(random() % (pages ? 12 : 30));
    std::vector<std::shared_ptr<Request>> all;
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < 6; ++i) {
      prompts.push_back(prompt_of(1 + static_cast<int32_t>(random() % 60), static_cast<int32_t>(random() % 3)));
      GivenParams g = plain(1 + static_cast<uint32_t>(random() % 30));
      if (random() % 3 == 0) g.n = 2;
      all.push_back(rig.submit(prompts.back(), g));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 600));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<Result> got = collect_all(*all[i]);
      for (uint32_t k = 0; k < got.size(); ++k) {
        const Result want = lone(prompts[i], all[i]->params(), k);
        if (got[k].finish != Finish::error) {
          check_same(got[k], want);
          ++saved;
          continue;
        }
        ++failed;
        CHECK(got[k].message == (pages ? "the fake reads no page" : "the fake's results are lost"));
        CHECK(got[k].tokens.size() <= want.tokens.size() &&
              std::equal(got[k].tokens.begin(), got[k].tokens.end(), want.tokens.begin()));
      }
    }
    CHECK(rig.settles());
    CHECK(rig.engine->stats().finished == 6);
    rig.model.lose_at = rig.model.no_read_at = -1;  // if it has not come to that
    auto after = rig.submit(prompts[0], plain(20));
    check_same(collect(*after), lone(prompts[0], after->params()));
    if (failures()) {
      std::printf("round %d\n", round);
      return;
    }
  }
  CHECK(saved > 100 && failed > least_failed);
}
TEST(lost_results_fail_their_own_requests_only) { lose(false, 100); }
TEST(pages_that_are_not_read_fail_their_own_requests_only) { lose(true, 10); }

TEST(cancelled_late_or_released_while_a_step_is_under_way) {
  Rig rig(ahead());
  rig.model.delay_us = 300;
  auto stays = rig.submit(prompt_of(30, 1), plain(90));
  for (int i = 0; i < 40; ++i) {
    GivenParams g = plain(1000);
    if (i % 4 == 1) g.deadline_us = 1000;
    auto r = rig.submit(prompt_of(5 + i, i), g);
    std::this_thread::sleep_for(std::chrono::microseconds(200 + 37 * i));
    if (i % 4 == 0) r->cancel();
    if (i % 4 == 2) r->abandon();
    if (i % 4 == 3) {
      r->cancel();
      r.reset();  // the engine's own hold on it is the last
      continue;
    }
    if (i % 4 == 2) continue;
    const Result got = collect(*r);
    CHECK(got.finish == (i % 4 == 1 ? Finish::error : Finish::cancelled));
    const Result want = lone(prompt_of(5 + i, i), r->params());
    CHECK(got.tokens.size() <= want.tokens.size() &&
          std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()));
  }
  check_same(collect(*stays), lone(prompt_of(30, 1), stays->params()));
  CHECK(rig.settles());
}

TEST(an_engine_ends_while_a_step_is_under_way) {
  for (int i = 0; i < 30; ++i) {
    auto rig = std::make_unique<Rig>(ahead());
    rig->model.delay_us = 200;
    auto r = rig->submit(prompt_of(20, i), plain(90));
    std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
    rig->engine.reset();
    CHECK(rig->model.unread() == 0);  // nothing will be written to memory that is gone
    const Result got = collect(*r);
    CHECK(got.finish == Finish::error && got.error == Status::shutdown);
  }
}

TEST(an_errand_finds_no_step_under_way) {
  Rig rig(ahead());
  rig.model.delay_us = 100;
  auto r = rig.submit(prompt_of(20), plain(100));
  for (int i = 0; i < 20; ++i)
    rig.engine->between_steps([&](Scheduler&, Model&) { CHECK(rig.model.unread() == 0); });
  check_same(collect(*r), lone(prompt_of(20), r->params()));
  CHECK(rig.engine->stats().steps_ahead > 50);
}

int main(int c, char** v) {
  return test_main(c, v);
}
