// What a consumer gets of one sample since the last time it asked.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/kernels.h"

namespace orlop {

enum class Finish : int32_t { none, stop, length, cancelled, error };

struct Output {
  uint32_t index = 0;  // which of the n samples
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;           // [tokens] if asked for
  std::vector<TokenLogprob> top;         // [tokens, n_top]
  std::vector<float> prompt_logprobs;    // [prompt]
  std::vector<TokenLogprob> prompt_top;  // [prompt, n_prompt_top]
  bool has_prompt_logprobs = false;
  std::vector<float> embedding;  // [dim], length 1; with the end
  Finish finish = Finish::none;
  Status error = Status::ok;
  std::string message;
  int32_t stop_token = -1, stop_index = -1;

  bool empty() const {
    return text.empty() && tokens.empty() && !has_prompt_logprobs && finish == Finish::none;
  }
  size_t bytes() const;
  void clear();
  void append(Output& more);  // moves; `more` is left clear, its memory kept for reuse
};

}  // namespace orlop
