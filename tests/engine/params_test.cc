// What is refused, with which words, and what unset fields become.
#include "engine/params.h"

#include <cmath>
#include <limits>

#include "check.h"

using namespace orlop;

namespace {
const std::vector<int32_t> ends{2};
ParamFacts facts() {
  ParamFacts f;
  f.vocab = 100;
  f.prompt_tokens = 10;
  f.context = 64;
  f.has_tokenizer = true;
  f.end_tokens = &ends;
  return f;
}
SamplingParams resolve(const GivenParams& g) {
  return resolve_params(g, SamplingDefaults{}, facts());
}
template <class Set>
GivenParams with(Set set) {
  GivenParams g;
  set(g);
  return g;
}
}  // namespace

TEST(unset_is_the_default) {
  const SamplingParams p = resolve({});
  CHECK(p.temperature == 1 && p.top_p == 1 && p.min_p == 0 && p.top_k == 0);
  CHECK(p.repetition_penalty == 1 && !p.penalizes());
  CHECK(p.max_tokens == 54 && p.end_tokens == ends);
  CHECK(p.logprobs == logprobs_off && p.prompt_logprobs == logprobs_off);
  CHECK(p.seed != resolve({}).seed);
}

TEST(the_checkpoint_s_defaults_come_first) {
  GenerationDefaults stated;
  stated.has_temperature = stated.has_top_k = true;
  stated.temperature = 0.6;
  stated.top_k = 20;
  stated.has_do_sample = stated.do_sample = true;
  const SamplingDefaults d = sampling_defaults(stated);
  CHECK(std::string(d.source) == "generation_config");
  CHECK(d.from_checkpoint == (std::vector<std::string>{"temperature", "top_k"}));
  SamplingParams p = resolve_params({}, d, facts());
  CHECK(p.temperature == 0.6f && p.top_k == 20 && p.top_p == 1);
  p = resolve_params(with([](GivenParams& g) {
                       g.temperature = 0.9;
                       g.top_k = 0;
                     }),
                     d, facts());
  CHECK(p.temperature == 0.9f && p.top_k == 0);
  stated.do_sample = false;
  CHECK(resolve_params({}, sampling_defaults(stated), facts()).temperature == 0);
  CHECK(std::string(sampling_defaults({}).source) == "engine");
}

TEST(refusals_name_field_and_value) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
#define REFUSED(words, change) \
  CHECK_THROWS(invalid_argument, words, resolve(with([&](GivenParams& g) { change; })))
  REFUSED("top_p: must be 0 to 1, got 1.5", g.top_p = 1.5);
  REFUSED("top_p: must be 0 to 1, got nan", g.top_p = nan);
  REFUSED("top_p: must be 0 to 1, got -0.1", g.top_p = -0.1);
  REFUSED("min_p: must be 0 to 1, got 2", g.min_p = 2);
  REFUSED("temperature: must be 0 to", g.temperature = -1);
  REFUSED("temperature: must be 0 to", g.temperature = nan);
  REFUSED("temperature: must be 0 to", g.temperature = inf);
  REFUSED("top_k: must be at least 0, got -1", g.top_k = -1);
  REFUSED("repetition_penalty: must be above 0", g.repetition_penalty = 0);
  REFUSED("repetition_penalty: must be above 0", g.repetition_penalty = -2);
  REFUSED("repetition_penalty: must be above 0", g.repetition_penalty = nan);
  REFUSED("presence_penalty: must be -2 to 2, got 2.5", g.presence_penalty = 2.5);
  REFUSED("frequency_penalty: must be -2 to 2, got nan", g.frequency_penalty = nan);
  REFUSED("logit_bias[1]: token 100 is outside the vocabulary of 100",
          (g.logit_bias = {{1, 1.0f}, {100, 1.0f}}));
  REFUSED("logit_bias[0]: bias must be finite", (g.logit_bias = {{1, std::nanf("")}}));
  REFUSED("logit_bias[0]: bias must be finite", (g.logit_bias = {{1, INFINITY}}));
  REFUSED("stop_tokens[0]: token -1 is outside", g.stop_tokens = {-1});
  REFUSED("stop[1]: is empty", (g.stop = {"a", ""}));
  REFUSED("stop[0]: at most 4096 bytes", g.stop = {std::string(5000, 'x')});
  REFUSED("logprobs: must be -2", g.logprobs = -3);
  REFUSED("logprobs: must be -2", g.logprobs = 101);
  REFUSED("prompt_logprobs: must be -2", g.prompt_logprobs = 101);
  REFUSED("min_tokens: must be at most max_tokens (3), got 4", g.max_tokens = 3; g.min_tokens = 4);
  REFUSED("n: must be 1 to 128, got 0", g.n = 0);
  REFUSED("n: must be 1 to 128, got 129", g.n = 129);
  REFUSED("cache_salt: at most 1024 bytes, got 1025", g.cache_salt = std::string(1025, 'x'));
  REFUSED("priority: must be -100 to 100, got 101", g.priority = 101);
  REFUSED("priority: must be -100 to 100, got -101", g.priority = -101);
  REFUSED("deadline_us: must be at least 0, got -1", g.deadline_us = -1);
#undef REFUSED
  ParamFacts no_text = facts();
  no_text.has_tokenizer = false;
  CHECK_THROWS(unsupported, "stop: this model has no tokenizer",
               resolve_params(with([](GivenParams& g) { g.stop = {"x"}; }), {}, no_text));
  ParamFacts big = facts();
  big.vocab = 1 << 20;
  big.prompt_tokens = 1 << 12;
  big.context = 1 << 13;
  CHECK_THROWS(invalid_argument, "prompt_logprobs: 1048576 entries",
               resolve_params(with([](GivenParams& g) { g.prompt_logprobs = -1; }), {}, big));
}

TEST(deadlines_become_absolute) {
  ParamFacts f = facts();
  f.now_ns = 5'000'000;
  const auto at = [&](int64_t us) {
    return resolve_params(with([&](GivenParams& g) { g.deadline_us = us; }), {}, f).deadline_ns;
  };
  constexpr int64_t never = std::numeric_limits<int64_t>::max();
  CHECK(at(0) == 0 && at(1) == 5'001'000 && at(2'000'000) == 2'005'000'000);
  CHECK(at(never) == never && at(never / 1000) == never);
  CHECK(at((never - f.now_ns) / 1000) > never - 2000);
}

TEST(edges_are_taken) {
  CHECK(resolve(with([](GivenParams& g) { g.n = 128; })).n == 128);
  CHECK(resolve(with([](GivenParams& g) { g.cache_salt = "s"; })).cache_salt == "s");
  CHECK(resolve(with([](GivenParams& g) { g.priority = -100; })).priority == -100);
  CHECK(resolve(with([](GivenParams& g) { g.top_p = 0; })).top_p == 0);
  CHECK(resolve(with([](GivenParams& g) { g.temperature = 0; })).temperature == 0);
  CHECK(resolve(with([](GivenParams& g) { g.temperature = 1e-9; })).temperature == 0);
  CHECK(resolve(with([](GivenParams& g) { g.max_tokens = 0; })).max_tokens == 0);
  CHECK(resolve(with([](GivenParams& g) { g.max_tokens = 1000; })).max_tokens == 54);
  CHECK(resolve(with([](GivenParams& g) { g.seed = ~uint64_t{0}; })).seed == ~uint64_t{0});
  const SamplingParams p = resolve(with([](GivenParams& g) {
    g.logit_bias = {{5, 1.0f}, {3, -INFINITY}, {5, 2.0f}};
    g.stop_tokens = {9, 2, 9};
  }));
  CHECK(p.bias.size() == 2 && p.bias[1].token == 5 && p.bias[1].logprob == 3.0f);
  CHECK((p.end_tokens == std::vector<int32_t>{2, 9}) && p.ends_at(9) && !p.ends_at(3));
  CHECK(resolve(with([](GivenParams& g) { g.ignore_eos = true; })).end_tokens.empty());
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
