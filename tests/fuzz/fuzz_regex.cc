// Any bytes as a regular expression: rules within the limits, or one typed error. The first byte
// says how it is to match.
#include <string_view>

#include "fuzz.h"
#include "text/grammar/regex.h"

namespace {

using orlop::CharRange;
using orlop::Rules;

// Backslashes become two characters, all others stay.
Rules::Expr escaped(Rules& rules, std::span<const CharRange> ranges) {
  orlop::fuzz::require(!ranges.empty());
  std::vector<CharRange> others;
  std::vector<Rules::Expr> ways;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [first, last] = ranges[i];
    orlop::fuzz::require(first <= last && last <= 0x10ffff &&
                         (i == 0 || ranges[i - 1].last < first));
    orlop::fuzz::require(last < 0xd800 || first > 0xdfff);
    if (first < '\\') others.push_back({first, std::min<uint32_t>(last, '\\' - 1)});
    if (last > '\\') others.push_back({std::max<uint32_t>(first, '\\' + 1), last});
    if (first <= '\\' && '\\' <= last) ways.push_back(rules.literal("\\\\"));
  }
  ways.push_back(rules.chars(others));
  return rules.choice(ways);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace orlop;
  if (size == 0) return 0;
  GrammarLimits limits;
  if (bytes[0] & 4) limits.max_depth = 3;
  if (bytes[0] & 8) limits.max_expressions = 50;
  Rules rules(limits);
  RegexOptions options;
  options.whole = bytes[0] & 1;
  if (bytes[0] & 2) options.characters = escaped;
  try {
    const Rules::Expr e =
        regex_expr(rules, {reinterpret_cast<const char*>(bytes) + 1, size - 1}, options);
    fuzz::require(e >= 0 && static_cast<size_t>(e) < rules.nodes().size());
    fuzz::require(rules.nodes().size() <= limits.max_expressions);
  } catch (const Error& e) {
    fuzz::require(e.status() == Status::invalid_argument && !e.text().empty());
  }
  return 0;
}
