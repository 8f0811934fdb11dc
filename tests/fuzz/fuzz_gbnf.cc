// Any bytes as a GBNF grammar: every rule defined and a root, or one typed error.
#include <string_view>

#include "fuzz.h"
#include "text/grammar/gbnf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace orlop;
  Rules rules;
  try {
    gbnf_rules(rules, {reinterpret_cast<const char*>(bytes), size});
    fuzz::require(rules.root() >= 0 && static_cast<size_t>(rules.root()) < rules.nodes().size());
    for (const Rules::Rule& r : rules.rules()) {
      fuzz::require(!r.name.empty() && r.body >= 0);
      fuzz::require(static_cast<size_t>(r.body) < rules.nodes().size());
    }
  } catch (const Error& e) {
    fuzz::require(e.status() == Status::invalid_argument && !e.text().empty());
  }
  return 0;
}
