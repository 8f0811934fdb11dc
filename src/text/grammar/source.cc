#include "text/grammar/source.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/regex.h"

namespace orlop {
namespace {

OrderedJson parse(std::string_view source, const char* what, const GrammarLimits& limits) {
  try {
    return parse_ordered_json(
        source, what,
        {.max_depth = static_cast<size_t>(limits.max_depth), .max_bytes = limits.max_source});
  } catch (const Error& e) {
    if (e.status() != Status::bad_format) throw;
    throw Error(Status::invalid_argument, e.text());
  }
}

Rules::Expr choice_expr(Rules& rules, const OrderedJson& list) {
  if (!list.is_array())
    fail(Status::invalid_argument, "choice: a JSON array of strings is expected");
  if (list.empty()) fail(Status::invalid_argument, "choice: the list is empty");
  std::vector<Rules::Expr> all;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string())
      fail(Status::invalid_argument, "choice: [", i, "] is ", list[i].type_name(),
           ", not a string");
    const std::string& text = list[i].get_ref<const std::string&>();
    if (const auto [it, fresh] = seen.try_emplace(text, i); !fresh)
      fail(Status::invalid_argument, "choice: [", i, "] is the same as [", it->second, "]");
    all.push_back(rules.literal(text));
  }
  return rules.choice(all);
}

// Of an optional key; null is as good as none.
const OrderedJson* member(const OrderedJson& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Rules::Expr tools_expr(Rules& rules, const OrderedJson& source, ToolFormat untold) {
  if (!source.is_object()) fail(Status::invalid_argument, "tools: a JSON object is expected");
  const std::vector<std::string_view> known = {"tools", "tool_choice", "format", "parallel"};
  for (const auto& [key, value] : source.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_key(key, known);
    fail(Status::invalid_argument, "tools: unknown key \"", key.substr(0, 100), "\"",
         near.empty() ? "" : "; did you mean \"" + near + "\"?");
  }
  const OrderedJson* tools = member(source, "tools");
  if (!tools || !tools->is_array())
    fail(Status::invalid_argument, "tools.tools: a list of tools is expected");
  const OrderedJson* name = member(source, "format");
  std::optional<ToolFormat> format;
  if (!name || *name == "auto")
    format = untold;
  else if (name->is_string())
    format = tool_format(name->get_ref<const std::string&>());
  if (!format || *format == ToolFormat::none)
    fail(Status::invalid_argument, "tools.format: \"hermes\", \"llama3\" or \"json\" is expected");
  const OrderedJson* parallel = member(source, "parallel");
  if (parallel && !parallel->is_boolean())
    fail(Status::invalid_argument, "tools.parallel: true or false is expected");
  const OrderedJson* choice = member(source, "tool_choice");
  return tool_calls_expr(rules, *tools, choice ? *choice : OrderedJson("auto"), *format,
                         !parallel || parallel->get<bool>());
}

}  // namespace

Rules guide_rules(GuideKind kind, std::string_view source, ToolFormat tool_format,
                  const GrammarLimits& limits) {
  if (source.size() > limits.max_source)
    fail(Status::invalid_argument, "guide: a source of ", source.size(), " bytes; the limit is ",
         limits.max_source);
  Rules rules(limits);
  switch (kind) {
    case GuideKind::json_object:
      if (!source.empty()) fail(Status::invalid_argument, "guide: any JSON object needs no source");
      rules.set_root(json_object_expr(rules));
      return rules;
    case GuideKind::json_schema:
      rules.set_root(json_schema_expr(rules, parse(source, "schema", limits)));
      return rules;
    case GuideKind::regex:
      rules.set_root(regex_expr(rules, source));
      return rules;
    case GuideKind::grammar:
      gbnf_rules(rules, source);
      return rules;
    case GuideKind::choice:
      rules.set_root(choice_expr(rules, parse(source, "choice", limits)));
      return rules;
    case GuideKind::tools:
      rules.set_root(tools_expr(rules, parse(source, "tools", limits), tool_format));
      return rules;
    case GuideKind::none:
      break;
  }
  fail(Status::invalid_argument, "guide: kind ", static_cast<int32_t>(kind), " is none of 1 to 6");
}

}  // namespace orlop
