// Parses any bytes as a chat template and renders them with fixed data under small limits: the
// outcome is text or a typed error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace orlop;
  static const OrderedJson data = OrderedJson::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "hé <|im_end|>\n"},
                 {"role": "assistant", "content": "", "tool_calls": [
                   {"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]}],
    "tools": [{"function": {"name": "f", "parameters": {"k": {}}}}], "s": "a b", "n": 3, "l": [3, 1, 2],
    "d": {"a": 1, "b": "x"}, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true
  })");
  RenderLimits limits;
  limits.max_steps = 20'000;
  limits.max_output = size_t{1} << 16;
  limits.max_depth = 40;
  limits.max_source = size_t{1} << 16;
  try {
    const auto t = ChatTemplate::parse({reinterpret_cast<const char*>(bytes), size}, limits);
    const Rendered r = t->render(data, {"bos_token", "eos_token"}, 1'753'020'367);
    if (r.text.size() > limits.max_output) std::abort();
    size_t last = 0;
    bool first = true;
    for (const ByteRange& b : r.untrusted) {
      if (b.begin >= b.end || b.end > r.text.size() || (!first && b.begin <= last)) std::abort();
      last = b.end;
      first = false;
    }
  } catch (const Error&) {
  }
  return 0;
}
