#include "engine/params.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"

namespace orlop {
namespace {

constexpr size_t max_stop_strings = 256;
constexpr size_t max_stop_bytes = 4096;
constexpr uint64_t max_prompt_logprob_bytes = uint64_t{1} << 30;

float between(const char* field, double v, double low, double high) {
  if (!(v >= low && v <= high))
    fail(Status::invalid_argument, field, ": must be ", low, " to ", high, ", got ", v);
  return static_cast<float>(v);
}

void check_token(const char* field, size_t i, int32_t token, int32_t vocab) {
  if (token < 0 || token >= vocab)
    fail(Status::invalid_argument, field, "[", i, "]: token ", token,
         " is outside the vocabulary of ", vocab);
}

int32_t check_logprobs(const char* field, int32_t v, int32_t vocab) {
  if (v < logprobs_off || v > vocab)
    fail(Status::invalid_argument, field, ": must be -2 (off), -1 (all) or 0 to ", vocab, ", got ",
         v);
  return v;
}

uint64_t draw_seed() {
  uint64_t seed = 0;
  ssize_t n;
  do n = getrandom(&seed, sizeof seed, 0);
  while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(sizeof seed))
    fail(Status::io, "seed: the system gives no random bytes; pass a seed");
  return seed;
}

}  // namespace

SamplingDefaults sampling_defaults(const GenerationDefaults& stated) {
  SamplingDefaults d;
  const auto take = [&](bool has, auto value, auto& to, const char* field) {
    if (!has) return;
    to = value;
    d.from_checkpoint.push_back(field);
  };
  take(stated.has_temperature, stated.temperature, d.temperature, "temperature");
  take(stated.has_top_p, stated.top_p, d.top_p, "top_p");
  take(stated.has_top_k, stated.top_k, d.top_k, "top_k");
  take(stated.has_min_p, stated.min_p, d.min_p, "min_p");
  take(stated.has_repetition_penalty, stated.repetition_penalty, d.repetition_penalty,
       "repetition_penalty");
  if (stated.has_do_sample && !stated.do_sample) {
    d.temperature = 0;  // the checkpoint asks for greedy decoding
    if (!stated.has_temperature) d.from_checkpoint.push_back("temperature");
  }
  if (!d.from_checkpoint.empty()) d.source = "generation_config";
  return d;
}

bool SamplingParams::ends_at(int32_t token) const {
  return std::binary_search(end_tokens.begin(), end_tokens.end(), token);
}

SamplingParams resolve_params(const GivenParams& g, const SamplingDefaults& d,
                              const ParamFacts& facts) {
  SamplingParams p;
  if (g.n < 1 || g.n > max_samples)
    fail(Status::invalid_argument, "n: must be 1 to ", max_samples, ", got ", g.n);
  p.n = g.n;

  const int64_t room = facts.context - facts.prompt_tokens;
  p.max_tokens = g.max_tokens ? std::min<int64_t>(*g.max_tokens, room) : room;
  if (g.max_tokens && g.min_tokens > *g.max_tokens)
    fail(Status::invalid_argument, "min_tokens: must be at most max_tokens (", *g.max_tokens,
         "), got ", g.min_tokens);
  p.min_tokens = g.min_tokens;

  const double temperature = g.temperature.value_or(d.temperature);
  if (!(temperature >= 0 && temperature <= 1e6))
    fail(Status::invalid_argument, "temperature: must be 0 to 1000000, got ", temperature);
  // Below this the quotients leave float's range; the best token is all that is left anyway.
  p.temperature = temperature < 1e-6 ? 0.0f : static_cast<float>(temperature);
  p.top_p = between("top_p", g.top_p.value_or(d.top_p), 0, 1);
  p.min_p = between("min_p", g.min_p.value_or(d.min_p), 0, 1);
  p.top_k = g.top_k.value_or(d.top_k);
  if (p.top_k < 0) fail(Status::invalid_argument, "top_k: must be at least 0, got ", p.top_k);
  const double repetition = g.repetition_penalty.value_or(d.repetition_penalty);
  if (!(repetition >= 1e-6 && repetition <= 1e6))
    fail(Status::invalid_argument, "repetition_penalty: must be above 0 and at most 1000000, got ",
         repetition);
  p.repetition_penalty = static_cast<float>(repetition);
  p.presence_penalty = between("presence_penalty", g.presence_penalty, -2, 2);
  p.frequency_penalty = between("frequency_penalty", g.frequency_penalty, -2, 2);

  std::map<int32_t, float> bias;  // several entries of one token add up
  for (size_t i = 0; i < g.logit_bias.size(); ++i) {
    const TokenLogprob& b = g.logit_bias[i];
    check_token("logit_bias", i, b.token, facts.vocab);
    if (std::isnan(b.logprob) || (std::isinf(b.logprob) && b.logprob > 0))
      fail(Status::invalid_argument, "logit_bias[", i, "]: bias must be finite or -infinity, got ",
           b.logprob);
    bias[b.token] += b.logprob;
  }
  for (const auto& [token, value] : bias) p.bias.push_back({token, value});

  if (g.stop.size() > max_stop_strings)
    fail(Status::invalid_argument, "stop: at most ", max_stop_strings, " strings, got ",
         g.stop.size());
  if (!g.stop.empty() && !facts.has_tokenizer)
    fail(Status::unsupported, "stop: this model has no tokenizer; use stop_tokens");
  for (size_t i = 0; i < g.stop.size(); ++i) {
    if (g.stop[i].empty()) fail(Status::invalid_argument, "stop[", i, "]: is empty");
    if (g.stop[i].size() > max_stop_bytes)
      fail(Status::invalid_argument, "stop[", i, "]: at most ", max_stop_bytes, " bytes, got ",
           g.stop[i].size());
  }
  p.stop = g.stop;

  for (size_t i = 0; i < g.stop_tokens.size(); ++i) {
    check_token("stop_tokens", i, g.stop_tokens[i], facts.vocab);
    p.end_tokens.push_back(g.stop_tokens[i]);
  }
  if (!g.ignore_eos && facts.end_tokens)
    p.end_tokens.insert(p.end_tokens.end(), facts.end_tokens->begin(), facts.end_tokens->end());
  std::sort(p.end_tokens.begin(), p.end_tokens.end());
  p.end_tokens.erase(std::unique(p.end_tokens.begin(), p.end_tokens.end()), p.end_tokens.end());

  p.logprobs = check_logprobs("logprobs", g.logprobs, facts.vocab);
  p.prompt_logprobs = check_logprobs("prompt_logprobs", g.prompt_logprobs, facts.vocab);
  const uint64_t width = p.prompt_logprobs == logprobs_all ? static_cast<uint64_t>(facts.vocab)
                         : p.prompt_logprobs > 0 ? static_cast<uint64_t>(p.prompt_logprobs)
                                                 : 0;
  const uint64_t entries = width * static_cast<uint64_t>(facts.prompt_tokens);
  if (entries > max_prompt_logprob_bytes / sizeof(TokenLogprob))
    fail(Status::invalid_argument, "prompt_logprobs: ", width, " entries for each of ",
         facts.prompt_tokens, " prompt tokens exceed the limit of ",
         max_prompt_logprob_bytes / sizeof(TokenLogprob), " entries in all");
  if (g.cache_salt.size() > max_salt_bytes)
    fail(Status::invalid_argument, "cache_salt: at most ", max_salt_bytes, " bytes, got ",
         g.cache_salt.size());
  p.cache_salt = g.cache_salt;
  if (g.priority < -100 || g.priority > 100)
    fail(Status::invalid_argument, "priority: must be -100 to 100, got ", g.priority);
  p.priority = g.priority;
  if (g.deadline_us < 0)
    fail(Status::invalid_argument, "deadline_us: must be at least 0, got ", g.deadline_us);
  if (g.deadline_us > 0) {
    constexpr int64_t never = std::numeric_limits<int64_t>::max();
    p.deadline_ns =
        g.deadline_us > (never - facts.now_ns) / 1000 ? never : facts.now_ns + g.deadline_us * 1000;
  }
  p.keep_special = g.keep_special;
  p.guide = g.guide;
  if (g.guide && g.ignore_eos)
    fail(Status::invalid_argument, "ignore_eos: a guide says where the text ends");
  p.embedding = g.embedding;
  if (g.embedding != Embedding::none) {
    const char* other = g.guide                                ? "guide"
                        : g.n != 1                             ? "n"
                        : g.prompt_logprobs != logprobs_off    ? "prompt_logprobs"
                        : g.max_tokens && *g.max_tokens != 0   ? "max_tokens"
                                                               : nullptr;
    if (other) fail(Status::invalid_argument, other, ": an embedding is of the prompt; it cannot be given too");
    p.max_tokens = p.min_tokens = 0;
  }
  p.seed = g.seed ? *g.seed : draw_seed();
  return p;
}

}  // namespace orlop
