// Any bytes as what a caller asks for as a guide, from the source to how far texts follow it. The
// first byte is the kind; limits are small, so that each of them is met.
#include <string>
#include <string_view>

#include "fuzz.h"
#include "text/grammar/guide.h"
#include "text/grammar/source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace orlop;
  if (size == 0) return 0;
  const std::string_view source(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  GrammarLimits limits;
  limits.max_depth = 40;
  limits.max_expressions = 20'000;
  limits.max_states = 20'000;
  limits.max_compile_steps = 1'000'000;
  try {
    const Rules rules = guide_rules(static_cast<GuideKind>(bytes[0] % 8), source, ToolFormat::json, limits);
    const auto guide = Guide::create(rules, nullptr);
    for (const std::string_view text :
         {source, std::string_view("{\"a\": [1, \"b\"]}"), std::string_view("aab")}) {
      Guide::State state = guide->start();
      const size_t taken = guide->push_bytes(state, text);
      fuzz::require(taken <= text.size());
      fuzz::require(!guide->exhausted(state) || guide->complete(state));
      // Byte by byte it comes as far.
      Guide::State slow = guide->start();
      size_t n = 0;
      while (n < text.size() && guide->push_bytes(slow, text.substr(n, 1)) == 1) ++n;
      fuzz::require(n == taken && guide->complete(slow) == guide->complete(state));
      guide->release(slow);
      guide->release(state);
    }
  } catch (const Error& e) {
    fuzz::require(e.status() == Status::invalid_argument || e.status() == Status::unsupported);
    fuzz::require(!e.text().empty());
  }
  return 0;
}
