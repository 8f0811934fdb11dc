// Regular expressions as ECMA-262 with the u flag (JSON Schema's dialect) and Python's re write them,
// where both agree: literals, escapes, classes, groups (capturing or not; names), alternation, greedy and
// lazy counts (the same language).
//
// What classes mean is ECMA-262's meaning; Python's differs where said:
//   \d  0-9                              (Python: every decimal digit of Unicode, unless re.ASCII)
//   \w  A-Z a-z 0-9 _                    (Python: letters and digits of Unicode, unless re.ASCII)
//   \s  TAB LF VT FF CR, space separators of Unicode, U+2028, U+2029, U+FEFF
//                                        (Python: U+1C-1F and U+85 too, without U+FEFF)
//   .   all but LF, CR, U+2028, U+2029   (Python: all but LF)
//   $   the end of the text              (Python: before a last LF too)
//   \p{...}, \P{...}: general categories, scripts, binary properties, see unicode.h (Python: none)
// { } ] that cannot be taken otherwise are literals, as Python and browsers take them.
//
// Refused by name: back references, look-around, word borders, possessive counts, atomic groups,
// conditionals, recursion, inline flags (so case-insensitive matching too), POSIX and empty classes, octal
// escapes, lone surrogates outside of classes.
#pragma once
#include <string_view>

#include "text/grammar/rules.h"

namespace orlop {

struct RegexOptions {
  // true: the whole text must match. false: a match anywhere in the text, as JSON Schema's pattern.
  // ^ and $ are true at the borders of the text, wherever in the expression they are.
  bool whole = true;
  // What a code point of the pattern becomes in the text; null: itself. (Inside a JSON string some are
  // escaped.) Gets sorted disjoint ranges without surrogates, at least one; gives the expression of one
  // such character.
  Rules::Expr (*characters)(Rules&, std::span<const CharRange>) = nullptr;
};

// Error(invalid_argument) with the byte of the pattern (from 0) and the reason.
Rules::Expr regex_expr(Rules& rules, std::string_view pattern, const RegexOptions& options = {});

}  // namespace orlop
