// Makes a grammar of any bytes as a JSON schema. What is accepted compiles or is told to match
// nothing, and random texts of its rules are JSON that the automaton takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

#include "../text/grammar_sampler.h"
#include "base/error.h"
#include "base/json.h"
#include "text/grammar/guide.h"
#include "text/grammar/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace orlop;
  GrammarLimits limits;
  limits.max_expressions = 100'000;
  limits.max_compile_steps = 2'000'000;
  OrderedJson schema;
  try {
    schema = parse_ordered_json({reinterpret_cast<const char*>(bytes), size}, "schema",
                                {.max_depth = 64});
  } catch (const Error&) {
    return 0;
  }
  try {
    Rules rules(limits);
    rules.set_root(json_schema_expr(rules, schema));
    const auto guide = Guide::create(rules, nullptr);
    const test::GrammarSampler sampler(rules);
    if (!sampler.any()) std::abort();          // the guide says so
    if (sampler.shortest() > 5'000) return 0;  // minLength and the like
    std::mt19937_64 random(size);
    for (int i = 0; i < 2; ++i) {
      const std::string text = sampler.sample(random, 100);
      if (!OrderedJson::accept(text)) std::abort();
      Guide::State state = guide->start();
      if (guide->push_bytes(state, text) != text.size() || !guide->complete(state)) std::abort();
      guide->release(state);
    }
  } catch (const Error& e) {
    if (e.status() != Status::invalid_argument && e.status() != Status::unsupported) std::abort();
    if (e.text().empty()) std::abort();
  }
  return 0;
}
