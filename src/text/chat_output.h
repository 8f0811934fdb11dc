// What a chat model writes, taken apart as it streams: reasoning, content, tool calls. And the
// grammar of tool calls, for a guide.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/rules.h"

namespace orlop {

// How a model writes its tool calls.
//   hermes   <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>, any number (Hermes, Qwen)
//   llama3   {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>, several joined by ;
//   json     {"name": ..., "arguments": {...}} or an array of them, as the whole content
//   none     there are no tools
enum class ToolFormat : uint8_t { none, hermes, llama3, json };
// Of its name; nothing for another.
std::optional<ToolFormat> tool_format(std::string_view name);
// As a chat template tells: the format whose marks it prints, else json.
ToolFormat template_tool_format(std::string_view chat_template);
// Whether it knows of <think>; whether a prompt ends with one that is open.
bool template_has_reasoning(std::string_view chat_template);
bool leaves_reasoning_open(std::string_view prompt);

struct ChatOutputOptions {
  ToolFormat tools = ToolFormat::none;
  bool reasoning = false;         // <think> ... </think> before the content is split off
  bool reasoning_open = false;    // the prompt ended with <think> already
  std::vector<std::string> names;  // the tools' names; empty: any
  // Texts of control tokens that end a turn (<|im_end|>, …): dropped where one ends the output.
  std::vector<std::string> ends;
};

struct ChatEvent {
  enum class Kind : uint8_t { reasoning, content, tool_call, tool_arguments };
  Kind kind;
  int32_t call = -1;  // which tool call, from 0
  std::string text;   // what is new; tool_call: the name
};

class ChatOutputParser {
 public:
  static std::unique_ptr<ChatOutputParser> create(const ChatOutputOptions& options);
  virtual ~ChatOutputParser() = default;
  // Text of one sample in any pieces; events are appended. Concatenating the texts of one kind (and
  // call) does not depend on how the text was cut. What is no well-formed call of a known tool is
  // content, nothing lost: the white space around calls and reasoning alone is dropped. A call is
  // told when its name and the start of its arguments are known, so a later fault cannot take it
  // back: the arguments then end before the fault (in the middle, as they do where the output ends
  // in them) and what follows is content. Control characters in the strings of arguments, which
  // JSON does not allow, come escaped.
  virtual void push(std::string_view text, std::vector<ChatEvent>& events) = 0;
  virtual void finish(std::vector<ChatEvent>& events) = 0;
};

// The names of OpenAI's array of tools. Error(invalid_argument) says where it is wrong.
std::vector<std::string> tool_names(const OrderedJson& tools);

// tools: OpenAI's array [{"type": "function", "function": {"name", "parameters", ...}}].
// choice: "auto" (plain text is free, every call valid), "required", "none" (plain text without a
// call), or {"type": "function", "function": {"name": ...}}.
Rules::Expr tool_calls_expr(Rules& rules, const OrderedJson& tools, const OrderedJson& choice,
                            ToolFormat format, bool parallel);

}  // namespace orlop
