// Characters and escapes of a regular expression.
#pragma once
#include <string_view>

#include "base/error.h"
#include "text/grammar/unicode.h"

namespace orlop {

// The place in a pattern, which is valid UTF-8.
struct RegexCursor {
  std::string_view text;
  size_t pos = 0;

  bool done() const { return pos >= text.size(); }
  bool at(std::string_view what) const { return text.substr(pos).starts_with(what); }
  bool take(char c) {
    if (done() || text[pos] != c) return false;
    ++pos;
    return true;
  }
  template <class... Parts>
  [[noreturn]] void refuse(size_t byte, const Parts&... parts) const {
    fail(Status::invalid_argument, "regular expression: byte ", byte, ": ", parts...);
  }
};

struct RegexEscape {
  const CharRanges* set = nullptr;  // null: one code point
  bool negated = false;             // all but set
  uint32_t code = 0;
};

// After one code point, not a backslash.
uint32_t read_code_point(RegexCursor& in);
// From a backslash to after the escape. in_class: between [ and ].
RegexEscape read_escape(RegexCursor& in, bool in_class);

}  // namespace orlop
