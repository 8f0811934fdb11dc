// Sets of code points, and those that Unicode names.
#pragma once
#include <string_view>
#include <vector>

#include "text/grammar/rules.h"

namespace orlop {

using CharRanges = std::vector<CharRange>;
constexpr uint32_t last_code_point = 0x10ffff;

// Sorted, disjoint, with gaps between; surrogates and what is beyond Unicode left out.
void normalize_ranges(CharRanges& ranges);
// All other code points. Of normalized ranges; normalized.
CharRanges complement_ranges(const CharRanges& ranges);

// What \p{name} stands for: a general category (Lu, Uppercase_Letter, gc=Lu), a script
// (Script=Greek, sc=Grek, scx=..., or the bare name), a binary property (Alphabetic, Emoji, ...),
// Any, ASCII, Assigned. Upper case and _ do not matter. Null: no such name. Lives on; the first use
// of a script or binary property costs some milliseconds, categories the first use of any.
const CharRanges* unicode_property(std::string_view name);

}  // namespace orlop
