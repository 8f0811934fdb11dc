// Generation parameters: what a caller gave, what the model's files say, what is used. Every check
// of a value lives here; refusals name the field and the value.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "ops/kernels.h"
#include "text/grammar/guide.h"

namespace orlop {

constexpr int32_t logprobs_off = -2;
constexpr int32_t logprobs_all = -1;
constexpr uint32_t max_samples = 128;
constexpr size_t max_salt_bytes = 1024;

// What is made of the prompt's final hidden states instead of text: their mean, or the last one.
enum class Embedding : int32_t { none, mean, last };

// As given; empty: not given.
struct GivenParams {
  std::optional<uint32_t> max_tokens;
  uint32_t min_tokens = 0;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  double presence_penalty = 0, frequency_penalty = 0;
  uint32_t n = 1;
  std::string cache_salt;
  int64_t deadline_us = 0;  // from now; 0: none
  int32_t priority = 0;
  std::optional<uint64_t> seed;
  std::vector<TokenLogprob> logit_bias;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  int32_t logprobs = logprobs_off, prompt_logprobs = logprobs_off;
  bool ignore_eos = false;
  bool keep_special = false;
  std::shared_ptr<Guide> guide;
  Embedding embedding = Embedding::none;
};

// The values used where nothing is given, and where they come from.
struct SamplingDefaults {
  double temperature = 1.0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  int32_t top_k = 0;
  const char* source = "engine";             // or "generation_config"
  std::vector<std::string> from_checkpoint;  // the fields that the checkpoint states
};
SamplingDefaults sampling_defaults(const GenerationDefaults& stated);

// Facts of the engine that checks need.
struct ParamFacts {
  int32_t vocab = 0;
  int64_t prompt_tokens = 0;
  int64_t context = 0;  // tokens that one request may hold
  bool has_tokenizer = false;
  const std::vector<int32_t>* end_tokens = nullptr;  // every end-of-turn id of the model
  int64_t now_ns = 0;                                // the request's submission, monotonic
};

// Checked and complete.
struct SamplingParams {
  int64_t max_tokens = 0;  // as the context allows
  int64_t min_tokens = 0;
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint32_t n = 1;     // samples of the prompt
  uint64_t seed = 0;  // of sample 0; sample i has seed + i
  std::string cache_salt;
  int32_t priority = 0;
  int64_t deadline_ns = 0;         // absolute, monotonic; 0: none
  std::vector<TokenLogprob> bias;  // by token, one entry each
  std::vector<std::string> stop;
  std::vector<int32_t> end_tokens;  // end-of-turn and stop tokens, ascending
  int32_t logprobs = logprobs_off, prompt_logprobs = logprobs_off;
  bool keep_special = false;
  std::shared_ptr<Guide> guide;  // null: the output is free
  Embedding embedding = Embedding::none;

  bool penalizes() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool ends_at(int32_t token) const;
};

SamplingParams resolve_params(const GivenParams& given, const SamplingDefaults& defaults,
                              const ParamFacts& facts);

}  // namespace orlop
