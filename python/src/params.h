// Python keyword arguments -> orlop_generate_params, every value checked against its C field.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "orlop/orlop.h"

namespace orlop_py {

struct Params {
  Params() { orlop_generate_params_init(&c, sizeof c); }
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;

  orlop_generate_params c{};
  std::vector<orlop_logit_bias> logit_bias;
  std::vector<std::string> stop_text;
  std::vector<orlop_string> stop;
  std::vector<int32_t> stop_tokens;
  const char* stop_tokens_name = "stop_tokens";  // as the caller spelled it
  std::vector<int32_t> tokens;
  std::string cache_salt;
  std::string guide_source;

  // TypeError: an unknown name or a value of the wrong kind; InvalidArgumentError: a value that the
  // field cannot hold. Both name the field. None leaves the default.
  void set(const nanobind::dict& values);
  // Those of the three that are not None.
  void set_prompt(nanobind::handle text, nanobind::handle tokens, nanobind::handle messages);
};

// Any iterable of integers -> ids; the error names `what` and the index.
std::vector<int32_t> to_ids(nanobind::handle values, const char* what);
// The UTF-8 of a str (kept by the object); the error names `what`.
std::pair<const char*, size_t> to_utf8(nanobind::handle text, const char* what);
// Seconds (None: for ever) -> microseconds as orlop_get takes them.
int64_t to_timeout_us(nanobind::handle seconds);

}  // namespace orlop_py
