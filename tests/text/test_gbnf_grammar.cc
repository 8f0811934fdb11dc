// GBNF as rules; what texts follow them is tried out by rules_match.h.
#include "../check.h"
#include "rules_match.h"
#include "text/grammar/gbnf.h"

using namespace orlop;
using namespace orlop::test;

namespace {

Rules gbnf(std::string_view grammar) {
  Rules rules;
  gbnf_rules(rules, grammar);
  return rules;
}

}  // namespace

TEST(gbnf_grammars) {
  const Rules json = gbnf(R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# a comment
ws ::= | " " | "\n" [ \t]{0,20}
)");
  CHECK(follows(json, R"({"a": [1, -2.5e3, {"b": null}], "é\n\u00e9": "\""})"));
  CHECK(follows(json, "{}") && !follows(json, "[]") && !follows(json, "{\"a\" 1}") &&
        !follows(json, "{\"\n\": 1}"));
  const Rules sum = gbnf(
      "root ::= expr \"=\"\r\nexpr ::= term ([-+*/] term)*\r\nterm ::= num | \"(\" expr "
      "\")\"\r\nnum ::= [0-9]+");
  CHECK(follows(sum, "1+(2*30)-4=") && !follows(sum, "1+=") && !follows(sum, "(1="));
  const Rules all = gbnf(
      "root ::= Aa-1_b | \"\\x41\\u00e9\\U0001F600\\ud83d\\ude01\\n\\r\\t\\\\\\\"\\[\\]\"\n"
      "  # between\n  | . . | [^a-c] \"!\"{2,3} |\n  [a-] [-b] [\\]x]\n\nAa-1_b ::= \"\"\n\n");
  CHECK(follows(all, "") && follows(all, "Aé😀😁\n\r\t\\\"[]") && follows(all, "\n😀"));
  CHECK(follows(all, "é!!") && follows(all, "é!!!") && !follows(all, "é!!!!") &&
        !follows(all, "a!!!"));
  CHECK(follows(all, "--]") && follows(all, "abx") && !follows(all, "xbx"));
  for (const char* counted :
       {"\"a\"{2}", "\"a\" { 2 }", "\"a\"{2,2}", "(\"a\"){2}", "\"a\"+{2}?"}) {
    if (counted[3] == '+') {
      CHECK_THROWS(invalid_argument, "line 1, column 14: a count of a count",
                   gbnf(std::string("root ::= ") + counted));
      continue;
    }
    const Rules r = gbnf(std::string("root ::= ") + counted);
    CHECK(follows(r, "aa") && !follows(r, "a") && !follows(r, "aaa"));
  }
  for (const char* counted :
       {"\"a\"+?", "\"a\"?+", "\"a\"*", "\"a\"+*?", "\"a\"{0,}", "\"a\"??+"}) {
    const Rules r = gbnf(std::string("root ::= ") + counted);
    CHECK(follows(r, "") && follows(r, "a") && follows(r, "aaaa"));
  }
  CHECK(!follows(gbnf("root ::= \"a\"++"), "") && follows(gbnf("root ::= \"a\"++"), "aaa"));
  CHECK(!follows(gbnf("root ::= \"a\"??"), "aa") && follows(gbnf("root ::= \"a\"??"), "a"));
  CHECK(follows(gbnf("root ::= \"a\n\"  # no end"), "a\n") &&
        follows(gbnf("root::=x\nx::=( # c\n\n\"b\" #d\n)"), "b"));
  CHECK(follows(gbnf(std::string_view("root ::= \"\0\"", 12)), std::string_view("\0", 1)));
}

TEST(gbnf_refusals) {
  const struct {
    std::string_view grammar;
    const char* words;
  } cases[] = {
      {"", "line 1, column 1: no rule is named root"},
      {"a ::= \"x\"", "column 10: no rule is named root"},
      {"root ::= a\nb ::= c", "line 1, column 10: rule 'a' is not defined"},
      {"root ::= b\nb ::= \"é\" c", "line 2, column 11: rule 'c' is not defined"},
      {"a ::= root", "column 11: no rule is named root"},
      {"root ::= \"a\"\r\n\r\nroot ::= \"b\"", "line 3, column 1: rule 'root' is defined twice"},
      {"root = \"a\"", "line 1, column 6: ::= is expected after the rule name 'root'"},
      {"::= \"a\"", "line 1, column 1: a rule is expected"},
      {"root ::= \"a", "line 1, column 10: a literal without its closing"},
      {"root ::= [a", "line 1, column 10: a [ without its ]"},
      {"root ::= [a-", "line 1, column 10: a [ without its ]"},
      {"root ::= []", "line 1, column 10: an empty class"},
      {"root ::= [^]", "line 1, column 10: an empty class"},
      {"root ::= [b-a]", "line 1, column 11: a range whose end"},
      {"root ::= (\"a\"", "line 1, column 10: a ( without its )"},
      {"root ::= \"a\")", "line 1, column 13: a ) without its ("},
      {"root ::= * \"a\"", "line 1, column 10: nothing before * to repeat"},
      {"root ::= (+)", "line 1, column 11: nothing before + to repeat"},
      {"root ::= \"a\"{2,1}", "line 1, column 13: the count's upper bound"},
      {"root ::= \"a\"{,2}", "line 1, column 13: a count is {m}"},
      {"root ::= \"a\"{}", "line 1, column 13: a count is {m}"},
      {"root ::= \"a\"{2", "line 1, column 13: a count is {m}"},
      {"root ::= \"a\"{99999999999}", "line 1, column 13: a count beyond"},
      {"root ::= \"\\d\"", "line 1, column 11: unknown escape"},
      {"root ::= \"\\x4\"", "line 1, column 11: the escape needs 2"},
      {"root ::= \"\\U00110000\"", "line 1, column 11: the escape is beyond"},
      {"root ::= \"\\ud800\"", "line 1, column 11: a lone surrogate"},
      {"root ::= \"a\\", "line 1, column 12: a backslash at the end"},
      {"root ::= <think>", "line 1, column 10: tokens"},
      {"root ::= !<[1]>", "line 1, column 10: tokens"},
      {"root ::= 'a'", "line 1, column 10: ''' is no part"},
      {"root ::= \"é\" é", "line 1, column 14: 'é' is no part"},
      {"root ::=\nb ::= \"x\"", "line 2, column 3: another rule begins here"},
      {"root ::= \"a\"\n\"b\"", "line 2, column 1: a rule is expected"},
      {std::string_view("root ::= \0", 10), "line 1, column 10: byte 0 is no part"},
      {"root ::= \"\xff\"", "byte 10: not valid UTF-8"},
  };
  for (const auto& c : cases) CHECK_THROWS(invalid_argument, c.words, gbnf(c.grammar));
}

TEST(gbnf_hostile) {
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "column 266: groups nested deeper than 256",
                       gbnf("root ::= " + repeated("(", 30000)));
        }) < 1);
  CHECK(seconds([&] { gbnf("root ::= \"a\"" + repeated("*", 500000)); }) < 3);
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "not defined",
                       gbnf("root ::= a" + repeated("\n", 900000)));
        }) < 3);
  CHECK(seconds([&] { gbnf("root ::= \"\"" + repeated(" | \"a\"", 150000)); }) < 3);
  std::string names = "root ::= a0";
  for (int i = 0; i < 50000; ++i) names += cat("\na", i, " ::= a", i + 1);
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "rule 'a50000' is not defined", gbnf(names));
        }) < 3);
  CHECK(follows(gbnf("root ::= \"a\"{1,999999999}"), "aaa"));
  CHECK_THROWS(invalid_argument, "the limit is", gbnf(std::string((size_t{1} << 20) + 1, ' ')));
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
