// Chat templates: a small interpreter of the Jinja subset that they use. Rendering keeps track of
// which bytes came from the caller's data, so that these never become control tokens.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace orlop {

struct RenderLimits {
  uint64_t max_steps = 10'000'000;           // nodes evaluated
  size_t max_output = size_t{64} << 20;      // bytes, also of any intermediate string
  size_t max_depth = 100;                    // nesting of the source and of calls
  size_t max_source = size_t{1} << 20;       // bytes of template
};

struct Rendered {
  std::string text;
  std::vector<ByteRange> untrusted;  // sorted, disjoint: bytes that came from the data
};

class ChatTemplate {
 public:
  // Parses; Error(bad_format) with line and reason, Error(unsupported) naming the construct.
  static std::unique_ptr<ChatTemplate> parse(std::string_view source, const RenderLimits& = {});
  virtual ~ChatTemplate() = default;
  // `data` is an object: messages, tools, add_generation_prompt, bos_token, eos_token, …. Strings
  // in it are untrusted unless their top-level key is in `trusted` (bos_token and its like).
  // raise_exception in the template -> Error(invalid_argument) with its text.
  // Thread-safe. `now` is what strftime_now prints (seconds since 1970, local time).
  virtual Rendered render(const OrderedJson& data, const std::vector<std::string>& trusted,
                          int64_t now) const = 0;
};

}  // namespace orlop
