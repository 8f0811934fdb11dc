// What callers ask for as a guide -> rules.
#include "../check.h"
#include "rules_match.h"
#include "text/grammar/guide.h"
#include "text/grammar/source.h"

using namespace orlop;
using namespace orlop::test;

TEST(choice_lists) {
  const Rules rules = guide_rules(GuideKind::choice, R"(["yes", "no", "", "\u00e9\n", "yes!"])");
  for (const char* text : {"yes", "no", "", "é\n", "yes!"}) CHECK(follows(rules, text));
  for (const char* text : {"ye", "yesno", "no!", "é"}) CHECK(!follows(rules, text));
  CHECK(follows(guide_rules(GuideKind::choice, R"(["a\u0000b"])"), std::string_view("a\0b", 3)));
}

TEST(choice_refusals) {
  const struct {
    const char *source, *words;
  } cases[] = {
      {"[]", "choice: the list is empty"},
      {"{}", "choice: a JSON array of strings is expected"},
      {"\"a\"", "choice: a JSON array of strings is expected"},
      {"[\"a\", 1]", "choice: [1] is number, not a string"},
      {"[null]", "choice: [0] is null, not a string"},
      {"[\"a\", \"b\", \"a\"]", "choice: [2] is the same as [0]"},
      {"[\"a\", \"\\u0061\"]", "choice: [1] is the same as [0]"},
      {"[\"a\",]", "choice: not valid JSON at byte"},
      {"[\"a\"", "choice: not valid JSON at byte"},
      {"", "choice: not valid JSON at byte"},
      {"[\"\xff\"]", "choice: not valid JSON at byte"},
      {"[\"\\ud800\"]", "choice: not valid JSON at byte"},
  };
  for (const auto& c : cases)
    CHECK_THROWS(invalid_argument, c.words, guide_rules(GuideKind::choice, c.source));
  const std::string deep(30000, '[');
  CHECK_THROWS(invalid_argument, "nested deeper than 256", guide_rules(GuideKind::choice, deep));
}

TEST(choice_hostile) {
  std::string many = "[\"a0\"";
  for (int i = 1; many.size() < 1'000'000; ++i) many += cat(",\"a", i, "\"");
  many += "]";
  CHECK(seconds([&] { guide_rules(GuideKind::choice, many); }) < 3);
}

TEST(each_kind) {
  CHECK(follows(guide_rules(GuideKind::regex, "a+"), "aaa"));
  CHECK(!follows(guide_rules(GuideKind::regex, "a+"), "xaaa"));
  CHECK(follows(guide_rules(GuideKind::grammar, "root ::= \"a\"+"), "aaa"));
  CHECK(follows(guide_rules(GuideKind::json_object, ""), "{\"a\":[1,{}]}"));
  CHECK(!follows(guide_rules(GuideKind::json_object, ""), "[1]"));
  const Rules schema = guide_rules(GuideKind::json_schema, R"({"enum": ["x", 7]})");
  CHECK(follows(schema, "\"x\"") && follows(schema, "7") && !follows(schema, "8"));
  const Rules tools = guide_rules(
      GuideKind::tools, R"({"format": "json", "tool_choice": "required", "parallel": false,
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"const": {}}}}]})");
  CHECK(follows(tools, R"({"name": "f", "arguments": {}})") &&
        !follows(tools, R"({"name": "g", "arguments": {}})"));
}

TEST(tools_defaults) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  for (const char* more : {"", R"(, "tool_choice": null, "parallel": null)",
                           R"(, "tool_choice": "auto")", R"(, "parallel": true)"}) {
    const Rules rules =
        guide_rules(GuideKind::tools, "{\"format\": \"hermes\", " + tools + more + "}");
    const auto guide = Guide::create(rules, nullptr);
    const auto takes = [&](std::string_view text) {
      Guide::State state = guide->start();
      const bool all = guide->push_bytes(state, text) == text.size() && guide->complete(state);
      guide->release(state);
      return all;
    };
    const std::string one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    CHECK(takes("plain text") && takes(one) && takes(one + "\n" + one));
    CHECK(!takes("<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"));
  }
}

TEST(refusals) {
  CHECK_THROWS(invalid_argument, "kind 0 is none of 1 to 6", guide_rules(GuideKind::none, ""));
  CHECK_THROWS(invalid_argument, "kind 9 is none of 1 to 6",
               guide_rules(static_cast<GuideKind>(9), ""));
  CHECK_THROWS(invalid_argument, "needs no source", guide_rules(GuideKind::json_object, "{}"));
  CHECK_THROWS(invalid_argument, "schema: not valid JSON",
               guide_rules(GuideKind::json_schema, "{"));
  CHECK_THROWS(invalid_argument, "regular expression: byte 0", guide_rules(GuideKind::regex, "("));
  CHECK_THROWS(invalid_argument, "grammar: line 1, column 1", guide_rules(GuideKind::grammar, ""));
  const std::string big(size_t{1} << 21, ' ');
  for (int kind = 1; kind <= 6; ++kind)
    CHECK_THROWS(invalid_argument, "bytes; the limit is",
                 guide_rules(static_cast<GuideKind>(kind), big));
  const struct {
    const char *source, *words;
  } tools[] = {
      {"[]", "tools: a JSON object is expected"},
      {"{}", "tools.tools: a list of tools is expected"},
      {"{\"tool\": []}", "tools: unknown key \"tool\"; did you mean \"tools\"?"},
      {"{\"tools\": [], \"zzzzzzz\": 1}", "tools: unknown key \"zzzzzzz\""},
      {"{\"tools\": []}", "tools.format: "},
      {"{\"tools\": [], \"format\": \"auto\"}", "tools.format: "},
      {"{\"tools\": [], \"format\": 1}", "tools.format: "},
      {"{\"tools\": [], \"format\": \"none\"}", "tools.format: "},
      {"{\"tools\": [], \"format\": \"json\", \"parallel\": 1}", "tools.parallel: true or false"},
  };
  for (const auto& c : tools)
    CHECK_THROWS(invalid_argument, c.words, guide_rules(GuideKind::tools, c.source));
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
