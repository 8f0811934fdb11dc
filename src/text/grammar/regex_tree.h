// A regular expression as read, before its anchors are resolved.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/grammar/unicode.h"

namespace orlop {

struct RegexTree {
  enum class Kind : uint8_t { literal, set, sequence, choice, repeat, start, end };
  struct Node {
    Kind kind;
    bool starts = false;            // ^ is inside
    bool ends = false;              // $ is inside
    bool nullable = false;          // matches the empty text, if neither is inside
    int32_t least = 0, most = 0;    // repeat; most may be Rules::unbounded
    uint32_t value = 0;             // literal: the code point; set: which of sets
    uint32_t begin = 0, count = 0;  // the others: children in parts
    bool anchored() const { return starts || ends; }
  };
  std::vector<Node> nodes;
  std::vector<uint32_t> parts;
  std::vector<CharRanges> sets;  // normalized
  uint32_t root = 0;
};

// Error(invalid_argument) as regex.h says.
RegexTree parse_regex(std::string_view pattern, const GrammarLimits& limits);

}  // namespace orlop
