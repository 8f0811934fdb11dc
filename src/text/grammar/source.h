// What a caller asks for as a guide -> its rules.
#pragma once
#include <cstdint>
#include <string_view>

#include "text/chat_output.h"
#include "text/grammar/rules.h"

namespace orlop {

enum class GuideKind : int32_t {
  none = 0,
  json_object = 1,  // no source
  json_schema = 2,  // the schema
  regex = 3,        // the pattern, of the whole text
  grammar = 4,      // GBNF
  choice = 5,       // a JSON array of strings
  tools = 6,        // tool calls, see chat_output.h: {"tools": [...], "tool_choice": ..., "format": ...}
};

// Error(invalid_argument | unsupported) says what is wrong and where. tool_format: of tools whose
// "format" is absent or "auto"; none: they are refused.
Rules guide_rules(GuideKind kind, std::string_view source,
                  ToolFormat tool_format = ToolFormat::none, const GrammarLimits& limits = {});

}  // namespace orlop
