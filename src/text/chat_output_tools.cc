// The grammar of tool calls. Calls are written as the models' templates print them, so that a guide
// forces the tokens a model would choose by itself; ChatOutputParser reads every text of it.
#include <set>

#include "base/error.h"
#include "text/chat_output.h"
#include "text/grammar/json_schema.h"

namespace orlop {
namespace {

using Expr = Rules::Expr;

constexpr size_t max_name = 256;
constexpr CharRange any_char[] = {{0, 0x10ffff}};

struct Tool {
  std::string name;
  const OrderedJson* parameters = nullptr;  // null: takes none
};

const OrderedJson* member(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::vector<Tool> read_tools(const OrderedJson& tools) {
  if (!tools.is_array())
    fail(Status::invalid_argument, "tools: must be an array, got ", tools.type_name());
  std::vector<Tool> out;
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string path = cat("tools[", i, "]");
    const OrderedJson& tool = tools[i];
    if (!tool.is_object()) fail(Status::invalid_argument, path, ": must be an object");
    const OrderedJson* type = member(tool, "type");
    if (type && *type != "function")
      fail(Status::unsupported, path, ".type: must be \"function\"");
    const OrderedJson* function = member(tool, "function");
    if (!function || !function->is_object())
      fail(Status::invalid_argument, path, ".function: must be an object");
    const OrderedJson* name = member(*function, "name");
    if (!name || !name->is_string() || name->get_ref<const std::string&>().empty() ||
        name->get_ref<const std::string&>().size() > max_name)
      fail(Status::invalid_argument, path, ".function.name: must be a string of 1 to ", max_name,
           " bytes");
    out.push_back({name->get<std::string>(), member(*function, "parameters")});
    if (!names.insert(out.back().name).second)
      fail(Status::invalid_argument, path, ".function.name: \"", out.back().name,
           "\" is the name of two tools");
  }
  return out;
}

class Builder {
 public:
  Builder(Rules& rules, const OrderedJson& tools, ToolFormat format, bool parallel)
      : rules_(rules), tools_(read_tools(tools)), format_(format), parallel_(parallel) {
    if (tools_.empty()) fail(Status::invalid_argument, "tools: is empty");
  }

  Expr build(const OrderedJson& choice) {
    if (choice.is_null() || choice == "auto") return with_text(calls({}));
    if (choice == "required") return calls({});
    if (choice == "none") return with_text(-1);
    const std::string* name = nullptr;
    if (choice.is_object() && choice.value("type", OrderedJson("function")) == "function")
      if (const OrderedJson* f = member(choice, "function"); f && f->is_object())
        if (const OrderedJson* given = member(*f, "name"); given && given->is_string())
          name = given->get_ptr<const std::string*>();
    if (!name)
      fail(Status::invalid_argument,
           "tool_choice: must be \"auto\", \"required\", \"none\" or {\"type\": \"function\", "
           "\"function\": {\"name\": ...}}");
    for (const Tool& tool : tools_)
      if (tool.name == *name) return calls(*name);
    fail(Status::invalid_argument, "tool_choice: \"", name->substr(0, 100),
         "\" is none of the tools");
  }

 private:
  Expr text(std::string_view bytes) { return rules_.literal(bytes); }
  Expr seq(std::initializer_list<Expr> parts) {
    return rules_.sequence({parts.begin(), parts.size()});
  }
  Expr any(std::initializer_list<Expr> parts) {
    return rules_.choice({parts.begin(), parts.size()});
  }
  Expr many(Expr what) { return rules_.repeat(what, 0, Rules::unbounded); }
  Expr maybe(Expr what) { return rules_.repeat(what, 0, 1); }
  // One character that is none of these (ASCII, sorted).
  Expr other_than(std::string_view chars) {
    std::vector<CharRange> ranges;
    uint32_t first = 0;
    for (const char c : chars) {
      const uint32_t code = static_cast<uint8_t>(c);
      if (code > first) ranges.push_back({first, code - 1});
      first = code + 1;
    }
    ranges.push_back({first, 0x10ffff});
    return rules_.chars(ranges);
  }

  Expr arguments(const Tool& tool) {
    if (!tool.parameters) return text("{}");
    const OrderedJson& schema = *tool.parameters;
    if (schema.is_boolean() && schema.get<bool>()) return json_object_expr(rules_);
    if (!schema.is_object())
      fail(Status::invalid_argument, "must be a JSON Schema of an object");
    const OrderedJson* type = member(schema, "type");
    if (type && *type != "object")
      fail(Status::invalid_argument, "type: must be \"object\": arguments are named");
    if (type) return json_schema_expr(rules_, schema);
    // A schema that leaves the type open means an object here. Where another keyword gives the
    // schema, that is left to decide.
    for (const char* key : {"$ref", "anyOf", "oneOf", "allOf", "const", "enum"})
      if (schema.contains(key)) return json_schema_expr(rules_, schema);
    OrderedJson object = schema;
    object["type"] = "object";
    return json_schema_expr(rules_, object);
  }

  // One call of the named tool, or of any.
  Expr call(const std::string& only) {
    std::vector<Expr> each;
    const char* key = format_ == ToolFormat::llama3 ? ", \"parameters\": " : ", \"arguments\": ";
    for (size_t i = 0; i < tools_.size(); ++i) {
      const Tool& tool = tools_[i];
      if (!only.empty() && tool.name != only) continue;
      Expr body;
      try {
        body = arguments(tool);
      } catch (const Error& e) {
        throw Error(e.status(), cat("tools[", i, "].function.parameters: ", e.text()));
      }
      each.push_back(seq({text(OrderedJson(tool.name).dump() + key), body}));
    }
    return seq({text("{\"name\": "), rules_.choice(each), text("}")});
  }

  Expr calls(const std::string& only) {
    Expr one = call(only);
    const char* between = "\n";
    if (format_ == ToolFormat::hermes)
      one = seq({text("<tool_call>\n"), one, text("\n</tool_call>")});
    if (format_ == ToolFormat::llama3) between = "; ";
    if (!parallel_) return one;
    if (format_ != ToolFormat::json) return separated(one, between);
    // Two uses of one expression: a rule of its own keeps it in one place.
    const int32_t rule = rules_.declare("tool-call");
    rules_.define(rule, one);
    one = rules_.call(rule);
    return any({one, seq({text("["), separated(one, ", "), text("]")})});
  }
  Expr separated(Expr one, const char* between) {
    const int32_t rule = rules_.declare("tool-calls");
    rules_.define(rule, one);
    one = rules_.call(rule);
    return seq({one, many(seq({text(between), one}))});
  }

  // Free text, or free text with calls after it where a tag opens them, or calls alone. calls < 0:
  // none.
  Expr with_text(Expr calls) {
    if (format_ == ToolFormat::hermes) {
      const Free f = free_text("<tool_call>");
      const Expr plain = seq({many(f.unit), many(f.open)});
      return calls < 0 ? plain : seq({plain, maybe(calls)});
    }
    // A bracket that begins the output opens a call.
    constexpr CharRange spaces[] = {{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}};
    const Expr space = many(rules_.chars(spaces));
    Expr rest;
    if (format_ == ToolFormat::llama3) {
      const Free f = free_text("<|python_tag|>");
      const Expr run = many(f.open);
      const Expr first = any({other_than("\t\n\r <{"), f.broken});
      rest = any({seq({first, many(f.unit), run}), rules_.repeat(f.open, 1, Rules::unbounded)});
    } else {
      rest = seq({other_than("\t\n\r [{"), many(rules_.chars(any_char))});
    }
    const Expr plain = seq({space, maybe(rest)});
    return calls < 0 ? plain : any({calls, plain});
  }

  // Text without the tag in it, as unit* open*. The tag's first character is nowhere else in it, so
  // that any later one begins anew:
  //   open    that character and a proper beginning of the rest of the tag
  //   broken  open* and an open one whose next character is neither the tag's next nor its first
  //   unit    another character, or broken
  struct Free {
    Expr unit, broken, open;
  };
  Free free_text(std::string_view tag) {
    const std::string_view rest = tag.substr(1);
    Expr open = rules_.empty(), broken = -1;
    for (size_t i = rest.size(); i-- > 0;) {
      std::string stops = {tag[0], rest[i]};
      if (stops[0] > stops[1]) std::swap(stops[0], stops[1]);
      const Expr other = other_than(stops);
      broken = broken < 0 ? other : any({other, seq({text(rest.substr(i, 1)), broken})});
      if (i > 0) open = maybe(seq({text(rest.substr(i - 1, 1)), open}));
    }
    Free f;
    f.open = seq({text(tag.substr(0, 1)), open});
    f.broken = seq({many(f.open), text(tag.substr(0, 1)), broken});
    f.unit = any({other_than(tag.substr(0, 1)), f.broken});
    return f;
  }

  Rules& rules_;
  std::vector<Tool> tools_;
  ToolFormat format_;
  bool parallel_;
};

}  // namespace

std::vector<std::string> tool_names(const OrderedJson& tools) {
  std::vector<std::string> names;
  for (Tool& tool : read_tools(tools)) names.push_back(std::move(tool.name));
  return names;
}

Rules::Expr tool_calls_expr(Rules& rules, const OrderedJson& tools, const OrderedJson& choice,
                            ToolFormat format, bool parallel) {
  if (format == ToolFormat::none)
    fail(Status::invalid_argument, "format: \"none\" has no tool calls");
  return Builder(rules, tools, format, parallel).build(choice);
}

}  // namespace orlop
