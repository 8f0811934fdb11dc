// An engine over the fake model, and what a request must give: computed by itself, straight from
// the fake's definition.
#pragma once
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"

namespace orlop::test {

constexpr int32_t vocab = 37;

// How much longer than usual random tests run: ORLOP_SOAK=20 makes it twenty times.
inline double soak_factor() {
  const char* s = std::getenv("ORLOP_SOAK");
  return s && std::atof(s) > 0 ? std::atof(s) : 1.0;
}

// ORLOP_TEST_AHEAD: "forced" on a model whose results are there at once, "later" on one that works on its
// own. Else steps wait for the one before, unless a test has it otherwise.
inline bool test_ahead(const char* how) {
  const char* s = std::getenv("ORLOP_TEST_AHEAD");
  return s && std::string(s) == how;
}

struct Setup {
  int32_t step_tokens = 24, max_running = 5, context = 128, page_tokens = 16, logit_rows = 4;
  int64_t pages = 40;
  std::vector<int32_t> windows{0};
  int32_t max_waiting = 100000;
  bool poison = true, prefix_cache = true, plan_ahead = false, fcfs = false, held = false;
  size_t host_pages = 0, output_bytes = size_t{1} << 20;
  int64_t itl_target_ns = 0;
  std::optional<bool> run_ahead =
      test_ahead("forced") ? std::optional<bool>(true) : std::nullopt;
  bool later = test_ahead("later");
};

struct Rig {
  explicit Rig(const Setup& s) : model(limits(s), vocab, s.windows) {
    EngineOptions o;
    o.step_tokens = s.step_tokens;
    o.max_running = s.max_running;
    o.max_waiting = s.max_waiting;
    o.poison = s.poison;
    o.prefix_cache = s.prefix_cache;
    o.plan_ahead = s.plan_ahead;
    o.run_ahead = s.run_ahead;
    model.later = s.later;
    o.fcfs = s.fcfs;
    o.paused = s.held;
    o.output_bytes = s.output_bytes;
    o.itl_target_ns = s.itl_target_ns;
    for (const CacheGroup& g : model.groups()) o.host_tier_bytes += s.host_pages * g.page_bytes;
    o.pages.assign(s.windows.size(), s.pages);
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
    f.now_ns = monotonic_ns();
    return resolve_params(g, SamplingDefaults{}, f);
  }
  std::shared_ptr<Request> submit(const std::vector<int32_t>& prompt, const GivenParams& g,
                                  std::shared_ptr<CompletionQueue> queue = nullptr,
                                  uint64_t tag = 0) {
    return engine->submit(prompt, resolve(prompt, g), nullptr, std::move(queue), tag);
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

inline bool same(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](auto x, auto y) {
           return x.token == y.token && x.logprob == y.logprob;
         });
}

// All samples' output, by index.
inline std::vector<Result> collect_all(Request& r) {
  std::vector<Result> samples(r.params().n);
  const Output* o;
  while (r.get(-1, &o) == Status::ok) {
    Result& all = samples.at(o->index);
    CHECK(all.finish == Finish::none);
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
  return samples;
}

inline Result collect(Request& r) {
  std::vector<Result> samples = collect_all(r);
  CHECK(samples.size() == 1);
  return samples[0];
}

// The request computed by itself, straight from the fake's definition.
inline Result lone(const std::vector<int32_t>& prompt, const SamplingParams& params,
                   uint32_t index = 0) {
  SamplingParams p = params;
  p.seed += index;
  if (index) p.prompt_logprobs = logprobs_off;
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

inline void check_same(const Result& got, const Result& want) {
  CHECK(got.tokens == want.tokens);
  CHECK(got.logprobs == want.logprobs);
  CHECK(got.prompt_logprobs == want.prompt_logprobs);
  CHECK(same(got.top, want.top));
  CHECK(same(got.prompt_top, want.prompt_top));
  CHECK(got.finish == want.finish);
  CHECK(got.stop_token == want.stop_token);
}

inline std::vector<int32_t> random_prompt(std::mt19937_64& random, int most) {
  std::vector<int32_t> p(1 + random() % static_cast<uint64_t>(most));
  for (int32_t& t : p) t = static_cast<int32_t>(random() % vocab);
  return p;
}

inline GivenParams random_params(std::mt19937_64& random, bool penalties = true) {
  GivenParams g;
  const auto below = [&](uint64_t n) { return random() % n; };
  if (below(8)) g.max_tokens = static_cast<uint32_t>(below(60));
  if (g.max_tokens && below(3) == 0) g.min_tokens = static_cast<uint32_t>(below(*g.max_tokens + 1));
  g.temperature = below(2) ? 0.0 : 0.8;
  g.seed = random();
  if (penalties && below(3) == 0) g.repetition_penalty = 1.3;
  if (penalties && below(3) == 0) g.presence_penalty = 0.7;
  if (penalties && below(3) == 0) g.frequency_penalty = -0.4;
  if (below(4) == 0) g.logit_bias = {{static_cast<int32_t>(below(vocab)), 3.0f}, {1, -INFINITY}};
  if (below(4) == 0) g.stop_tokens = {static_cast<int32_t>(below(vocab))};
  g.ignore_eos = below(3) == 0;
  g.logprobs = static_cast<int32_t>(below(6)) - 2;
  g.prompt_logprobs = static_cast<int32_t>(below(6)) - 2;
  return g;
}

}  // namespace orlop::test
