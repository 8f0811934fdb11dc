// What a chat template and a prompt say about the output to come.
#include "text/chat_output.h"
#include "text/chat_output_json.h"
#include "text/chat_output_tags.h"

namespace orlop {

std::optional<ToolFormat> tool_format(std::string_view name) {
  if (name == "hermes") return ToolFormat::hermes;
  if (name == "llama3") return ToolFormat::llama3;
  if (name == "json") return ToolFormat::json;
  if (name == "none") return ToolFormat::none;
  return std::nullopt;
}

ToolFormat template_tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view mark) {
    return chat_template.find(mark) != std::string_view::npos;
  };
  if (has(hermes_open)) return ToolFormat::hermes;
  if (has(llama3_open) || has("ipython")) return ToolFormat::llama3;
  return ToolFormat::json;
}

bool template_has_reasoning(std::string_view chat_template) {
  return chat_template.find(think_open) != std::string_view::npos ||
         chat_template.find(think_close) != std::string_view::npos;
}

bool leaves_reasoning_open(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(json_space);
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(think_open);
}

}  // namespace orlop
