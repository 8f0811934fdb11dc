// The owner thread over a fake model: every request's tokens equal those of a lone computation,
// whatever arrives, leaves or fails beside it.
#include "engine/engine.h"

#include <poll.h>

#include <random>
#include <thread>

#include "fake_model.h"

using namespace orlop;
using namespace orlop::test;

namespace {

constexpr int32_t vocab = 37;

struct Setup {
  int32_t step_tokens = 24, max_running = 5, context = 128, page_tokens = 16, logit_rows = 4;
  int64_t pages = 40;
  int groups = 1;
  int32_t max_waiting = 100000;
  bool poison = true;
};

struct Rig {
  explicit Rig(const Setup& s) : model(limits(s), vocab, s.groups) {
    EngineOptions o;
    o.step_tokens = s.step_tokens;
    o.max_running = s.max_running;
    o.max_waiting = s.max_waiting;
    o.poison = s.poison;
    o.pages.assign(static_cast<size_t>(s.groups), s.pages);
    model.allocate_cache(o.pages);
    engine = std::make_unique<Engine>(model, o);
  }
  static ModelLimits limits(const Setup& s) {
    ModelLimits l;
    l.max_rows = s.step_tokens;
    l.max_seqs = s.max_running;
    l.max_context = s.context;
    l.max_logit_rows = s.logit_rows;
    l.page_tokens = s.page_tokens;
    return l;
  }
  SamplingParams resolve(const std::vector<int32_t>& prompt, const GivenParams& g) const {
    ParamFacts f;
    f.vocab = vocab;
    f.prompt_tokens = static_cast<int64_t>(prompt.size());
    f.context = engine->capacity();
    f.end_tokens = &end_tokens;
    return resolve_params(g, SamplingDefaults{}, f);
  }
  std::shared_ptr<Request> submit(const std::vector<int32_t>& prompt, const GivenParams& g,
                                  std::shared_ptr<CompletionQueue> queue = nullptr,
                                  uint64_t tag = 0) {
    auto r = std::make_shared<Request>(prompt, resolve(prompt, g), vocab, nullptr, engine->wake(),
                                       std::move(queue), tag);
    engine->submit(r);
    return r;
  }
  // Waits until the engine has put everything away.
  bool settles() const {
    for (int i = 0; i < 2000; ++i) {
      const EngineStats s = engine->stats();
      if (!s.running && !s.waiting && !s.pages_used) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::vector<int32_t> end_tokens{2, 3};
  FakeModel model;
  std::unique_ptr<Engine> engine;  // gone before the model
};

struct Result {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs;
  std::vector<TokenLogprob> top, prompt_top;
  Finish finish = Finish::none;
  Status error = Status::ok;
  std::string message;
  int32_t stop_token = -1;
};

bool same(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](auto x, auto y) {
           return x.token == y.token && x.logprob == y.logprob;
         });
}

Result collect(Request& r) {
  Result all;
  const Output* o;
  while (r.get(-1, &o) == Status::ok) {
    all.tokens.insert(all.tokens.end(), o->tokens.begin(), o->tokens.end());
    all.logprobs.insert(all.logprobs.end(), o->logprobs.begin(), o->logprobs.end());
    all.top.insert(all.top.end(), o->top.begin(), o->top.end());
    if (o->has_prompt_logprobs) {
      CHECK(all.prompt_logprobs.empty());
      all.prompt_logprobs = o->prompt_logprobs;
      all.prompt_top = o->prompt_top;
    }
    all.finish = o->finish;
    all.error = o->error;
    all.message = o->message;
    all.stop_token = o->stop_token;
  }
  return all;
}

// The request computed by itself, straight from the fake's definition.
Result lone(const std::vector<int32_t>& prompt, const SamplingParams& p) {
  Result r;
  std::vector<int32_t> history;
  const auto width = [](int32_t n) { return static_cast<size_t>(n == -1 ? vocab : n > 0 ? n : 0); };
  std::vector<TokenLogprob> top(vocab);
  SampleRow row{};
  row.repetition_penalty = 1;
  for (const int32_t t : prompt) {
    if (p.prompt_logprobs != logprobs_off) {
      const size_t n = width(p.prompt_logprobs);
      if (history.empty()) {
        r.prompt_logprobs.push_back(0);
        r.prompt_top.insert(r.prompt_top.end(), n, {0, 0});
      } else {
        row.given = t;
        row.n_logprobs = p.prompt_logprobs;
        r.prompt_logprobs.push_back(
            fake_sample(fake_logits(history, vocab), row, top.data()).logprob);
        r.prompt_top.insert(r.prompt_top.end(), top.begin(), top.begin() + static_cast<long>(n));
      }
    }
    history.push_back(t);
  }
  row.given = -1;
  row.temperature = p.temperature;
  row.seed = p.seed;
  row.n_logprobs = p.logprobs;
  row.repetition_penalty = p.repetition_penalty;
  row.presence_penalty = p.presence_penalty;
  row.frequency_penalty = p.frequency_penalty;
  row.bias = p.bias.data();
  row.bias_n = static_cast<int32_t>(p.bias.size());
  r.finish = Finish::length;
  for (int64_t i = 0; i < p.max_tokens; ++i) {
    std::vector<TokenCount> counts;
    if (p.penalizes())
      for (int32_t v = 0; v < vocab; ++v) {
        TokenCount c{v, 0, 0};
        for (size_t k = 0; k < history.size(); ++k)
          if (history[k] == v) k < prompt.size() ? c.in_prompt = 1 : ++c.generated;
        counts.push_back(c);
      }
    row.counts = counts.data();
    row.count_n = static_cast<int32_t>(counts.size());
    row.forbidden = p.end_tokens.data();
    row.forbidden_n = i < p.min_tokens ? static_cast<int32_t>(p.end_tokens.size()) : 0;
    row.position = history.size();
    const SampleResult s = fake_sample(fake_logits(history, vocab), row, top.data());
    history.push_back(s.token);
    r.tokens.push_back(s.token);
    if (p.logprobs != logprobs_off) {
      r.logprobs.push_back(s.logprob);
      r.top.insert(r.top.end(), top.begin(), top.begin() + static_cast<long>(width(p.logprobs)));
    }
    if (p.ends_at(s.token)) {
      r.finish = Finish::stop;
      r.stop_token = s.token;
      break;
    }
  }
  return r;
}

void check_same(const Result& got, const Result& want) {
  CHECK(got.tokens == want.tokens);
  CHECK(got.logprobs == want.logprobs);
  CHECK(got.prompt_logprobs == want.prompt_logprobs);
  CHECK(same(got.top, want.top));
  CHECK(same(got.prompt_top, want.prompt_top));
  CHECK(got.finish == want.finish);
  CHECK(got.stop_token == want.stop_token);
}

std::vector<int32_t> random_prompt(std::mt19937_64& random, int most) {
  std::vector<int32_t> p(1 + random() % static_cast<uint64_t>(most));
  for (int32_t& t : p) t = static_cast<int32_t>(random() % vocab);
  return p;
}

GivenParams random_params(std::mt19937_64& random) {
  GivenParams g;
  const auto below = [&](uint64_t n) { return random() % n; };
  if (below(8)) g.max_tokens = static_cast<uint32_t>(below(60));
  if (g.max_tokens && below(3) == 0) g.min_tokens = static_cast<uint32_t>(below(*g.max_tokens + 1));
  g.temperature = below(2) ? 0.0 : 0.8;
  g.seed = random();
  if (below(3) == 0) g.repetition_penalty = 1.3;
  if (below(3) == 0) g.presence_penalty = 0.7;
  if (below(3) == 0) g.frequency_penalty = -0.4;
  if (below(4) == 0) g.logit_bias = {{static_cast<int32_t>(below(vocab)), 3.0f}, {1, -INFINITY}};
  if (below(4) == 0) g.stop_tokens = {static_cast<int32_t>(below(vocab))};
  g.ignore_eos = below(3) == 0;
  g.logprobs = static_cast<int32_t>(below(6)) - 2;
  g.prompt_logprobs = static_cast<int32_t>(below(6)) - 2;
  return g;
}

}  // namespace

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
      if (random() % 3 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
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

TEST(the_waiting_line_is_bounded) {
  Setup s;
  s.max_waiting = 3;
  s.max_running = 1;
  Rig rig(s);
  rig.model.delay_us = 3000;
  GivenParams g;
  g.ignore_eos = true;
  g.max_tokens = 30;
  auto first = rig.submit({1}, g);
  while (first->info().state == RequestState::waiting) std::this_thread::yield();
  std::vector<std::shared_ptr<Request>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(rig.submit({1}, g));
  CHECK_THROWS(queue_full, "max_waiting", rig.submit({1}, g));
  waiting[1]->cancel();
  collect(*waiting[1]);
  rig.submit({1}, g)->cancel();  // there is room again
  first->cancel();
  for (auto& r : waiting) r->cancel();
  CHECK(rig.settles());
}

TEST(the_engine_s_end_ends_its_requests) {
  auto rig = std::make_unique<Rig>(Setup{});
  rig->model.delay_us = 1000;
  GivenParams g;
  g.ignore_eos = true;
  auto a = rig->submit({1, 2}, g), b = rig->submit({3}, g);
  rig->engine.reset();
  for (auto& r : {a, b}) {
    const Result got = collect(*r);
    CHECK(got.finish == Finish::error && got.error == Status::shutdown);
  }
}

TEST(one_consumer_at_a_time) {
  Rig rig(Setup{});
  rig.model.delay_us = 50000;
  GivenParams g;
  g.ignore_eos = true;
  auto r = rig.submit({1}, g);
  std::atomic<bool> inside{false};
  std::thread other([&] {
    const Output* o;
    inside = true;
    r->get(-1, &o);
  });
  while (!inside) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Output* o;
  CHECK_THROWS(busy, "orlop_get", r->get(0, &o));
  other.join();
  CHECK(r->get(0, &o) == Status::timeout);
  const int64_t begin = monotonic_ns();
  CHECK(r->get(5000, &o) == Status::timeout);
  CHECK(monotonic_ns() - begin >= 5'000'000);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    r->abandon();
  });
  bool told = false;
  try {
    while (r->get(-1, &o) == Status::ok) continue;
  } catch (const Error& e) {
    told = e.status() == Status::cancelled;
  }
  CHECK(told);
  release.join();
  CHECK(rig.settles());
}

TEST(a_queue_lists_each_request_once) {
  Rig rig(Setup{});
  auto queue = std::make_shared<CompletionQueue>();
  const auto readable = [&] {
    pollfd p{queue->fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  };
  GivenParams g;
  g.ignore_eos = true;
  g.max_tokens = 30;
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < 20; ++i) requests.push_back(rig.submit({1, 2, 3}, g, queue, i));
  std::vector<size_t> got(20);
  size_t ended = 0;
  uint64_t tag;
  while (ended < 20) {
    CHECK(queue->wait(-1, &tag) == CompletionQueue::Wait::ok);
    const Output* o;
    CHECK(requests[tag]->get(0, &o) == Status::ok);  // never listed without output
    got[tag] += o->tokens.size();
    ended += o->finish != Finish::none;
  }
  for (const size_t n : got) CHECK(n == 30);
  CHECK(queue->wait(0, &tag) == CompletionQueue::Wait::timeout && !readable());
  CHECK(queue->wait(1000, &tag) == CompletionQueue::Wait::timeout);

  // What is taken or released without the queue leaves it.
  auto a = rig.submit({1}, g, queue, 100), b = rig.submit({1}, g, queue, 101);
  while (a->info().state != RequestState::done || b->info().state != RequestState::done)
    std::this_thread::yield();
  CHECK(rig.settles());
  while (!readable()) std::this_thread::yield();
  collect(*a);
  b->abandon();
  CHECK(!readable() && queue->wait(0, &tag) == CompletionQueue::Wait::timeout);

  auto c = rig.submit({1}, g, queue, 102);
  queue->close();
  CHECK(queue->wait(-1, &tag) == CompletionQueue::Wait::closed && !readable());
  CHECK(collect(*c).tokens.size() == 30);
}

TEST(submissions_from_many_threads) {
  Setup s;
  s.pages = 20;
  Rig rig(s);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t) + 100);
      for (int i = 0; i < 60; ++i) {
        const auto prompt = random_prompt(random, 20);
        GivenParams g;
        g.max_tokens = static_cast<uint32_t>(random() % 20);
        g.seed = random();
        auto r = rig.submit(prompt, g);
        if (random() % 2) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
          r->abandon();
        } else if (collect(*r).tokens != lone(prompt, r->params()).tokens) {
          ++wrong;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(rig.settles());
  CHECK(rig.engine->stats().finished == 480);
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

int main(int c, char** v) { return test_main(c, v); }
