// The grammar of tool calls: what is drawn from it comes back from the parser as calls that validate,
// and what it leaves free is content.
#include <algorithm>

#include "chat_output_seen.h"
#include "grammar_sampler.h"
#include "../check.h"
#include "text/grammar/guide.h"

using namespace orlop;
using namespace orlop::test;

namespace {

const char* const tools_json = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "x", "strict": true, "parameters": {
    "type": "object", "additionalProperties": false, "required": ["city"],
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7},
                   "unit": {"enum": ["c", "f"]}}}}},
  {"type": "function", "function": {"name": "now"}},
  {"function": {"name": "any \"thing\" é", "parameters": {"properties": {"a": {"type": "array", "items": {"type": "number"}}},
    "required": ["a"]}}},
  {"type": "function", "function": {"name": "tree", "parameters": {
    "type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "required": ["root"], "additionalProperties": false,
    "$defs": {"node": {"type": "object", "properties": {"v": {"type": "string"},
      "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["v"], "additionalProperties": false}}}}}
])";

bool node_holds(const Json& node) {
  if (!node.is_object() || !node.contains("v") || !node["v"].is_string()) return false;
  for (const auto& [key, value] : node.items())
    if (key != "v" && (key != "kids" || !value.is_array() || !std::all_of(value.begin(), value.end(), node_holds)))
      return false;
  return true;
}

// The tools' schemas, by hand.
bool arguments_hold(const std::string& name, const Json& a) {
  if (!a.is_object()) return false;
  if (name == "now") return a.empty();
  if (name == "tree") return a.size() == 1 && a.contains("root") && node_holds(a["root"]);
  if (name == "get_weather") {
    if (!a.contains("city")) return false;
    for (const auto& [key, value] : a.items()) {
      const bool good = key == "city"   ? value.is_string()
                        : key == "days" ? value.is_number_integer() && value >= 1 && value <= 7
                        : key == "unit" ? value == "c" || value == "f"
                                        : false;
      if (!good) return false;
    }
    return true;
  }
  return a.contains("a") && a["a"].is_array() &&
         std::all_of(a["a"].begin(), a["a"].end(), [](const Json& v) { return v.is_number(); });
}

OrderedJson tools() { return OrderedJson::parse(tools_json); }

Rules rules_of(ToolFormat format, const OrderedJson& choice, bool parallel) {
  Rules rules;
  rules.set_root(tool_calls_expr(rules, tools(), choice, format, parallel));
  return rules;
}

ChatOutputOptions options_of(ToolFormat format) {
  ChatOutputOptions o;
  o.tools = format;
  o.names = tool_names(tools());
  return o;
}

// Each call's arguments hold its schema.
bool calls_hold(const Seen& seen) {
  for (const auto& [name, arguments] : seen.calls()) {
    const Json a = Json::parse(arguments, nullptr, false);
    if (a.is_discarded() || !arguments_hold(name, a)) {
      std::fprintf(stderr, "%s(%s)\n", name.c_str(), arguments.c_str());
      return false;
    }
  }
  return true;
}

constexpr ToolFormat formats[] = {ToolFormat::hermes, ToolFormat::llama3, ToolFormat::json};

}  // namespace

TEST(drawn_calls_come_back) {
  const OrderedJson named = OrderedJson::parse(R"({"type": "function", "function": {"name": "get_weather"}})");
  const int rounds = is_short() ? 60 : 1000;
  for (const ToolFormat format : formats) {
    for (const OrderedJson& choice : {OrderedJson("required"), named}) {
      for (const bool parallel : {false, true}) {
        const Rules rules = rules_of(format, choice, parallel);
        const GrammarSampler sampler(rules);
        std::mt19937_64 random(5);
        size_t most = 0;
        std::vector<std::string> names;
        for (int i = 0; i < rounds; ++i) {
          const std::string text = sampler.sample(random);
          const Seen seen = take_apart(text, options_of(format), i % 2 ? 7 : 0);
          const bool good = seen.content().empty() && !seen.calls().empty() && calls_hold(seen);
          if (!good) std::fprintf(stderr, "%s\n  gave %s\n", text.c_str(), seen.line().c_str());
          CHECK(good);
          if (!good) return;
          most = std::max(most, seen.calls().size());
          for (const auto& call : seen.calls()) names.push_back(call.first);
        }
        CHECK(parallel ? most > 1 : most == 1);
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        CHECK(names.size() == (choice == "required" ? 4u : 1u));
      }
    }
  }
}

TEST(drawn_text_with_calls) {
  const int rounds = is_short() ? 60 : 2000;
  for (const ToolFormat format : formats) {
    for (const char* choice : {"auto", "none"}) {
      const Rules rules = rules_of(format, choice, true);
      const GrammarSampler sampler(rules);
      std::mt19937_64 random(9);
      int with = 0, without = 0;
      for (int i = 0; i < rounds; ++i) {
        const std::string text = sampler.sample(random);
        const Seen seen = take_apart(text, options_of(format), i % 2 ? 5 : 0);
        CHECK(calls_hold(seen));
        if (seen.calls().empty()) {
          CHECK(seen.content() == text);
          ++without;
        } else {
          ++with;
        }
      }
      CHECK(without > rounds / 10);
      CHECK(std::string(choice) == "none" ? with == 0 : with > rounds / 10);
    }
  }
}

TEST(written_as_templates_do) {
  const OrderedJson now = OrderedJson::parse(R"({"type": "function", "function": {"name": "now"}})");
  const std::pair<ToolFormat, const char*> rows[] = {
      {ToolFormat::hermes, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
      {ToolFormat::llama3, "{\"name\": \"now\", \"parameters\": {}}"},
      {ToolFormat::json, "{\"name\": \"now\", \"arguments\": {}}"}};
  for (const auto& [format, text] : rows) {
    const Rules rules = rules_of(format, now, false);
    std::mt19937_64 random(1);
    CHECK(GrammarSampler(rules).sample(random) == text);
  }
}

TEST(faults) {
  Rules rules;
  const auto expr = [&](const char* list, const char* choice = "\"auto\"", ToolFormat format = ToolFormat::hermes) {
    tool_calls_expr(rules, OrderedJson::parse(list), OrderedJson::parse(choice), format, true);
  };
  const char* one = R"([{"function": {"name": "f", "parameters": {"type": "object"}}}])";
  expr(one);
  CHECK_THROWS(invalid_argument, "tools: must be an array", expr("{}"));
  CHECK_THROWS(invalid_argument, "tools: is empty", expr("[]"));
  CHECK_THROWS(invalid_argument, "tools[0].function.name", expr(R"([{"function": {"name": ""}}])"));
  CHECK_THROWS(invalid_argument, "tools[0].function.parameters: type: must be \"object\"",
               expr(R"([{"function": {"name": "f", "parameters": {"type": "array"}}}])"));
  CHECK_THROWS(invalid_argument, "tools[0].function.parameters: must be a JSON Schema",
               expr(R"([{"function": {"name": "f", "parameters": []}}])"));
  CHECK_THROWS(unsupported, "tools[0].function.parameters: ",
               expr(R"([{"function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"uniqueItems": true}}}}}])"));
  CHECK_THROWS(invalid_argument, "tool_choice: \"g\" is none of the tools",
               expr(one, R"({"type": "function", "function": {"name": "g"}})"));
  for (const char* choice : {"\"any\"", "1", "{}", "[]", R"({"type": "x", "function": {"name": "f"}})"})
    CHECK_THROWS(invalid_argument, "tool_choice: must be", expr(one, choice));
  CHECK_THROWS(invalid_argument, "format", expr(one, "\"auto\"", ToolFormat::none));
}

// The other direction: what the grammar takes is free text, or calls that hold; and text in which no call
// opens is taken whole.
TEST(free_text) {
  const std::vector<std::string> parts = {
      "<", "<tool", "<tool_call", "<tool_call>", "</tool_call>", "<|", "<|python_tag", "<|python_tag|>", "{", "[", " ",
      "\n", "x", ">", "t", "l>", "é", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
      "{\"name\": \"now\", \"parameters\": {}}", "{\"name\": \"now\", \"arguments\": {}}", "; ", "_call>"};
  std::mt19937_64 random(3);
  for (const ToolFormat format : formats) {
    for (const char* choice : {"auto", "none"}) {
      const auto guide = Guide::create(rules_of(format, choice, true), nullptr);
      int whole = 0, stopped = 0;
      for (int round = 0; round < (is_short() ? 500 : 6000); ++round) {
        std::string text;
        for (size_t n = random() % 9; n > 0; --n) text += parts[random() % parts.size()];
        Guide::State state = guide->start();
        const size_t taken = guide->push_bytes(state, text);
        const bool complete = guide->complete(state);
        guide->release(state);
        const Seen all = take_apart(text, options_of(format));
        const Seen seen = take_apart(text.substr(0, taken), options_of(format));
        if (taken == text.size() && complete) CHECK(calls_hold(seen));
        if (std::string(choice) == "none" && taken == text.size()) CHECK(seen.calls().empty());
        const size_t first = text.find_first_not_of(" \n");
        const bool bracket = first != std::string::npos && (text[first] == '{' || (text[first] == '[' && format == ToolFormat::json));
        const bool opens = format == ToolFormat::hermes ? text.find("<tool_call>") != std::string::npos
                           : format == ToolFormat::llama3 ? bracket || text.find("<|python_tag|>") != std::string::npos
                                                          : bracket;
        if (!opens) {
          CHECK(taken == text.size() && complete && all.content() == text);
          ++whole;
        } else {
          stopped += taken < text.size();
        }
      }
      CHECK(whole > 100 && stopped > 20);
    }
  }
}

int main(int c, char** v) { return orlop::test::test_main(c, v); }
