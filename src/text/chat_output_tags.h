// The marks around reasoning and tool calls.
#pragma once
#include <string_view>

namespace orlop {

constexpr std::string_view think_open = "<think>", think_close = "</think>";
constexpr std::string_view hermes_open = "<tool_call>", hermes_close = "</tool_call>";
constexpr std::string_view llama3_open = "<|python_tag|>";

}  // namespace orlop
