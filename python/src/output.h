// orlop_output as a Python object that owns its data.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "orlop/orlop.h"

namespace orlop_py {

// The best tokens of several positions: rows of (token, logprob), best first.
struct LogprobTable {
  std::vector<orlop_logprob> entries;  // [rows, columns]
  size_t rows = 0, columns = 0;
};

struct Output {
  explicit Output(const orlop_output& out);

  std::string text;
  std::vector<int32_t> tokens;
  int32_t finish_reason, error_code, stop_token, stop_index;
  uint32_t index;
  std::string message;
  bool has_logprobs, has_prompt_logprobs;
  std::vector<float> logprobs, prompt_logprobs;
  std::vector<float> embedding;  // empty when not asked for
  std::shared_ptr<LogprobTable> top, prompt_top;  // null when not asked for
};

// "stop", "length", "cancelled", "error" or null.
const char* finish_name(int32_t finish_reason);

void bind_output(nanobind::module_& m);

}  // namespace orlop_py
