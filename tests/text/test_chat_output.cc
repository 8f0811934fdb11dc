// Chat output taken apart: every format, faults of every kind, any cuts, bounded memory and time.
#include "text/chat_output.h"

#include <chrono>

#include "chat_output_seen.h"
#include "../check.h"
#include "text/chat_output_json.h"

using namespace orlop;
using namespace orlop::test;

namespace {

ChatOutputOptions options_of(ToolFormat format) {
  ChatOutputOptions o;
  o.tools = format;
  o.names = {"f", "get_weather"};
  o.ends = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>"};
  return o;
}

struct Row {
  std::string text, want;
};

// Whole, byte by byte and cut at random, the answer is one.
void check_rows(const ChatOutputOptions& options, const std::vector<Row>& rows) {
  std::mt19937_64 random(7);
  for (const Row& row : rows) {
    const std::string whole = take_apart(row.text, options).line();
    if (whole != row.want)
      std::fprintf(stderr, "%s\n  gave %s\n  want %s\n", row.text.c_str(), whole.c_str(),
                   row.want.c_str());
    CHECK(whole == row.want);
    CHECK(take_apart(row.text, options, 1).line() == whole);
    for (int i = 0; i < 20; ++i)
      CHECK(take_apart(row.text, options, 1 + random() % 9, &random).line() == whole);
  }
}

std::string hermes(const std::string& body) {
  return "<tool_call>\n" + body + "\n</tool_call>";
}
const std::string f1 = R"({"name": "f", "arguments": {"a": 1}})";
const std::string w1 = R"({"name": "get_weather", "arguments": {"city": "Zürich \"x\" \\"}})";
const std::string f1_seen = R"(T0:fA0[{"a": 1}])";
const std::string w1_seen = R"(T1:get_weatherA1[{"city": "Zürich \"x\" \\"}])";

std::string content(const std::string& text) { return "C[" + text + "]"; }

}  // namespace

TEST(no_tools) {
  for (const ToolFormat format : {ToolFormat::none, ToolFormat::hermes, ToolFormat::llama3, ToolFormat::json})
    check_rows(options_of(format), {
        {"", ""},
        {"Hello", content("Hello")},
        {"  \n Hello \n\n world\n ", content("  \n Hello \n\n world\n ")},
        {" \n", content(" \n")},
        {"a < b <t <<|p <think>x</think> é\xf0\x9f\x98\x80", content("a < b <t <<|p <think>x</think> é\xf0\x9f\x98\x80")},
        {"<tool_cal", content("<tool_cal")},
        {"<|python_ta", content("<|python_ta")},
    });
  check_rows(options_of(ToolFormat::none), {
      {hermes(f1), content(hermes(f1))}, {f1, content(f1)}, {"<|python_tag|>" + f1, content("<|python_tag|>" + f1)}});
}

TEST(hermes_calls) {
  check_rows(options_of(ToolFormat::hermes), {
      {hermes(f1), f1_seen},
      {hermes(f1) + "\n" + hermes(w1), f1_seen + w1_seen},
      {hermes(f1) + hermes(w1) + "\n ", f1_seen + w1_seen},
      {"Let me see.\n\n" + hermes(f1), "C[Let me see.]" + f1_seen},
      {"Let me see. " + hermes(f1) + "\nDone.\n", "C[Let me see.]" + f1_seen + "C[\nDone.\n]"},
      {"<tool_call>" + f1 + "</tool_call>", f1_seen},
      {"<tool_call> \r\n\t" + f1 + "  \n </tool_call>", f1_seen},
      // Not closed, closed by the next one, several in one.
      {"<tool_call>\n" + f1, f1_seen},
      {"<tool_call>\n" + f1 + "\n</tool_", f1_seen},
      {"<tool_call>" + f1 + "<tool_call>" + w1 + "</tool_call>", f1_seen + w1_seen},
      {hermes(f1 + "\n" + w1), f1_seen + w1_seen},
      // The object, in any shape.
      {hermes(R"({"arguments": {"a": 1}, "name": "f"})"), f1_seen},
      {hermes(R"({ "name" :"f" , "arguments" :{"a": 1} } )"), f1_seen},
      {hermes(R"({"name":"f","arguments":{ "a" : [ 1.5e-3 , {}, [], null, true,false,-0 ] }})"),
       R"(T0:fA0[{ "a" : [ 1.5e-3 , {}, [], null, true,false,-0 ] }])"},
      {hermes(R"({"id": "x7", "type": "function", "name": "f", "arguments": {"a": 1}, "more": [{"name": "g"}]})"),
       f1_seen},
      {hermes(R"({"n\u0061me": "\u0066", "arguments": {"a": 1}})"), f1_seen},
      {hermes(R"({"name": "f", "parameters": {"a": 1}})"), f1_seen},
      {hermes(R"({"name": "f"})"), "T0:fA0[{}]"},
      {hermes(R"({"name": "f", "arguments": null})"), "T0:fA0[{}]"},
      {hermes(R"({"name": "f", "arguments": "{\"a\": 1}"})"), f1_seen},
      {hermes(R"({"arguments": "{\"a\": 1}", "name": "f"})"), f1_seen},
      // What ends a call elsewhere is text inside a string.
      {hermes(R"({"name": "f", "arguments": {"a": "</tool_call> <tool_call>{\"name\": \"f\"} \\"}})"),
       R"(T0:fA0[{"a": "</tool_call> <tool_call>{\"name\": \"f\"} \\"}])"},
      // Keys and values of other levels are not the call's.
      {hermes(R"({"x": {"name": "g", "arguments": {}}, "name": "f", "arguments": {"name": "g"}})"),
       R"(T0:fA0[{"name": "g"}])"},
      // Line breaks in strings, as models write them.
      {hermes("{\"name\": \"f\", \"arguments\": {\"a\": \"1\n2\t\x01\"}}"), R"(T0:fA0[{"a": "1\n2\t\u0001"}])"},
      {hermes("{\"arguments\": {\"a\": \"1\n2\"}, \"name\": \"f\"}"), R"(T0:fA0[{"a": "1\n2"}])"},
  });
}

TEST(hermes_faults) {
  std::vector<Row> rows;
  // None of these is a call: all of it is content.
  for (const char* body : {
           "", "x", "[]", "{}", "{", R"({"name": "g", "arguments": {}})", R"({"name": "F", "arguments": {}})",
           R"({"name": f, "arguments": {}})", R"({"name": "f", "arguments": [1]})", R"({"name": "f", "arguments": 1})",
           R"({"name": "f", "arguments": "x"})", R"({"name": "f", "arguments": "[1]"})", R"({"name": "f", "arguments": ""})",
           R"({"name": 1, "arguments": {}})", R"({"name": "", "arguments": {}})", R"({"name": ["f"], "arguments": {}})",
           R"({"arguments": {"a": 1}})", R"({'name': 'f', 'arguments': {}})", R"({"name": "f" "arguments": {}})",
           R"({"name": "f",, "arguments": {}})", R"({"name": "f", })", R"({"name": "f", "name": "f", "arguments": {}})",
           R"({"arguments": {}, "parameters": {}, "name": "f"})", R"({"name": "f", "arguments": nul})",
           R"({"x": 01, "name": "f", "arguments": {}})", R"({"x": "\q", "name": "f", "arguments": {}})",
           R"({"x": "\u12g4", "name": "f", "arguments": {}})", R"({"x": 1., "name": "f", "arguments": {}})",
           R"({"x": +1, "name": "f", "arguments": {}})", R"({"x": tru, "name": "f", "arguments": {}})",
           R"({"x": ], "name": "f", "arguments": {}})", R"({"name": "\ud800", "arguments": {}})"}) {
    rows.push_back({hermes(body), content(hermes(body))});
    rows.push_back({"a\n" + hermes(body) + " b", content("a\n" + hermes(body) + " b")});
  }
  // Cut off before anything was told.
  rows.push_back({"<tool_call>", content("<tool_call>")});
  rows.push_back({"<tool_call>\n{\"name\": \"f\", \"argum", content("<tool_call>\n{\"name\": \"f\", \"argum")});
  // And after.
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": [1, "x)", R"(T0:fA0[{"a": [1, "x])"});
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": 1})", f1_seen});
  // A fault after it was told: what follows is content.
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": 1,]}}</tool_call>)", R"(T0:fA0[{"a": 1,]C[]}}</tool_call>])"});
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": 1} x} y)", f1_seen + "C[x} y]"});
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": 1}, "arguments": {}} y)", f1_seen + R"(C[, "arguments": {}} y])"});
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": 1}, "name": "g"} y)", f1_seen + R"(C[, "name": "g"} y])"});
  rows.push_back({R"(<tool_call>{"name": "f", "arguments": {"a": 1}, "b": x} y)", f1_seen + "C[x} y]"});
  // Other text where a call should close.
  rows.push_back({"<tool_call>" + f1 + " and </tool_call>", f1_seen + "C[ and </tool_call>]"});
  rows.push_back({"<tool_call>" + f1 + "} " + hermes(w1), f1_seen + "C[}]" + w1_seen});
  rows.push_back({"<tool_call>" + f1 + " {\"x\": 2}", f1_seen + "C[ {\"x\": 2}]"});
  // Tags in tags: the last one counts.
  rows.push_back({"<tool_call><tool_call>" + f1 + "</tool_call></tool_call>",
                  "C[<tool_call>]" + f1_seen + "C[</tool_call>]"});
  rows.push_back({"<tool_call>{\"x\": \"<tool_call>" + f1, "C[<tool_call>{\"x\": \"]" + f1_seen});
  rows.push_back({"<<tool_call>" + f1, "C[<]" + f1_seen});
  rows.push_back({"<tool_<tool_call>" + f1, "C[<tool_]" + f1_seen});
  check_rows(options_of(ToolFormat::hermes), rows);
}

TEST(any_names) {
  ChatOutputOptions o = options_of(ToolFormat::hermes);
  o.names.clear();
  check_rows(o, {{hermes(R"({"name": "anything é", "arguments": {}})"), "T0:anything éA0[{}]"},
                 {hermes(R"({"name": "g"})"), "T0:gA0[{}]"}});
  o.tools = ToolFormat::json;
  check_rows(o, {{R"({"name": "g", "arguments": {}})", "T0:gA0[{}]"},
                 {R"({"name": "Bob"})", content(R"({"name": "Bob"})")}});
}

TEST(llama3) {
  const std::string p1 = R"({"name": "f", "parameters": {"a": 1}})";
  const std::string p2 = R"({"type": "function", "name": "get_weather", "parameters": {"city": "Zürich \"x\" \\"}})";
  check_rows(options_of(ToolFormat::llama3), {
      {p1, f1_seen},
      {"\n " + p1 + "\n", f1_seen},
      {"<|python_tag|>" + p1 + "<|eom_id|>", f1_seen},
      {p1 + "; " + p2, f1_seen + w1_seen},
      {p1 + ";" + p2 + ";", f1_seen + w1_seen},
      {p1 + "\n" + p2, f1_seen + w1_seen},
      {"<|python_tag|>" + p1 + "; <|python_tag|>" + p2, f1_seen + w1_seen},
      {"<|python_tag|>" + p1 + "<|python_tag|>" + p2, f1_seen + w1_seen},
      {"Let me look.<|python_tag|>" + p1, "C[Let me look.]" + f1_seen},
      {"Let me look. " + p1, content("Let me look. " + p1)},
      {"<|python_tag|>brave_search.call(query=\"x\")", content("<|python_tag|>brave_search.call(query=\"x\")")},
      {p1 + "; and", f1_seen + "C[; and]"},
      {p1 + "; {\"x\": 1}", f1_seen + "C[; {\"x\": 1}]"},
      {p1 + " and", f1_seen + "C[ and]"},
      {p1 + "; <|python_tag|>x", f1_seen + "C[; <|python_tag|>x]"},
      {p1 + "; <|python", f1_seen + "C[; <|python]"},
      {R"({"name": "g", "parameters": {}})", content(R"({"name": "g", "parameters": {}})")},
      {R"({"city": "Oslo", "name": "f", "parameters": {}})", content(R"({"city": "Oslo", "name": "f", "parameters": {}})")},
      {"[" + p1 + "]", content("[" + p1 + "]")},
      {R"({"name": "f", "parameters": {"a": "x)", R"(T0:fA0[{"a": "x])"},
  });
}

TEST(json) {
  check_rows(options_of(ToolFormat::json), {
      {f1, f1_seen},
      {" [" + f1 + "]", f1_seen},
      {"[" + f1 + ", " + w1 + "]\n", f1_seen + w1_seen},
      {"[\n  " + f1 + "\n ,\n" + w1 + "\n", f1_seen + w1_seen},
      {"[" + f1 + ",", f1_seen},
      {f1 + "\n" + w1, f1_seen + w1_seen},
      {R"({"name": "f"})", "T0:fA0[{}]"},
      {"[]", content("[]")},
      {"[[" + f1 + "]]", content("[[" + f1 + "]]")},
      {"[" + f1 + "; " + w1 + "]", f1_seen + content("; " + w1 + "]")},
      {"[" + f1 + " " + w1 + "]", f1_seen + content(" " + w1 + "]")},
      {"[" + f1 + ", 2]", f1_seen + content(", 2]")},
      {"[" + f1 + "] x", f1_seen + content(" x")},
      {"x " + f1, content("x " + f1)},
      {hermes(f1), content(hermes(f1))},
      {R"({"answer": 42})", content(R"({"answer": 42})")},
      {R"([{"name": "g", "arguments": {}}])", content(R"([{"name": "g", "arguments": {}}])")},
  });
}

TEST(reasoning) {
  ChatOutputOptions o = options_of(ToolFormat::hermes);
  o.reasoning = true;
  check_rows(o, {
      {"<think>\nHm, 2.\n\n</think>\n\nTwo.", "R[Hm, 2.]C[Two.]"},
      {"\n<think>a</think>b", "R[a]C[b]"},
      {"<think>\n\n</think>\n\nTwo.\n", "C[Two.\n]"},
      {"<think>a <think>b</think> c</think>", "R[a <think>b]C[c</think>]"},
      {"<think>a\n", "R[a\n]"},
      {"<think>a</thi", "R[a</thi]"},
      {"<think>", ""},
      {"<thin", content("<thin")},
      {"x <think>a</think>", content("x <think>a</think>")},
      {"  x", content("  x")},
      {"<think>" + hermes(f1) + "</think>\n" + hermes(f1) + "<|im_end|>", "R[" + hermes(f1) + "]" + f1_seen},
      {std::string(2000, ' ') + "<think>a", content(std::string(2000, ' ') + "<think>a")},
  });
  o.reasoning_open = true;
  check_rows(o, {
      {"a\n</think>\nb", "R[a]C[b]"},
      {"<think>a</think>b", "R[a]C[b]"},
      {"</think>b", "C[b]"},
      {"a", "R[a]"},
      {"", ""},
  });
  o.tools = ToolFormat::json;
  check_rows(o, {{"a</think> " + f1, "R[a]" + f1_seen}});
  o.reasoning = false;
  check_rows(o, {{"a</think>", content("a</think>")}});
}

TEST(ends) {
  check_rows(options_of(ToolFormat::none), {
      {"Hi<|im_end|>", content("Hi")},
      {"Hi <|im_end|>\n", content("Hi ")},
      {"Hi<|eot_id|><|im_end|>", content("Hi")},
      {"Hi<|im_end", content("Hi<|im_end")},
      {"Hi<|im_end|> there", content("Hi<|im_end|> there")},
      {"<|im_end|>", ""},
      {"<|im_end|><|im_", content("<|im_end|><|im_")},
      // Of a long run the last four.
      {"a<|im_end|><|im_end|><|im_end|><|im_end|><|im_end|>", content("a<|im_end|>")},
  });
  check_rows(options_of(ToolFormat::hermes), {{hermes(f1) + "<|im_end|>\n", f1_seen}});
  check_rows(options_of(ToolFormat::llama3), {{f1 + "<|eot_id|>", f1_seen}});
}

TEST(arguments_stream) {
  const auto parser = ChatOutputParser::create(options_of(ToolFormat::hermes));
  std::vector<ChatEvent> events;
  parser->push("Hm, <tool_call>\n{\"name\": \"f\"", events);
  CHECK(events.size() == 1 && events[0].text == "Hm,");
  parser->push(", \"arguments\": {\"a\": \"hel", events);
  CHECK(events.size() == 3 && events[1].text == "f" && events[2].text == "{\"a\": \"hel");
  parser->push("lo", events);  // events of earlier pushes stay as they are
  CHECK(events.size() == 4 && events[3].text == "lo" && events[3].call == 0);
}

TEST(content_streams) {
  for (const ToolFormat format : {ToolFormat::none, ToolFormat::hermes, ToolFormat::llama3, ToolFormat::json}) {
    const auto parser = ChatOutputParser::create(options_of(format));
    std::vector<ChatEvent> events;
    parser->push("A", events);
    CHECK(events.size() == 1 && events[0].text == "A");
    parser->push(" b<", events);
    parser->push("c", events);
    Seen seen;
    seen.add(events);
    CHECK(seen.content() == "A b<c");
  }
  // An answer in JSON that is no call does not wait for its end.
  const auto parser = ChatOutputParser::create(options_of(ToolFormat::json));
  std::vector<ChatEvent> events;
  parser->push("{\"answer\": 4", events);
  CHECK(events.size() == 1 && events[0].text == "{\"answer\": 4");
}

TEST(depth) {
  const std::string head = R"({"name": "f", "arguments": {"a": )";
  const size_t most = JsonSteps::max_depth - 2;  // the call's and the arguments' own
  const std::string good = std::string(most, '[') + std::string(most, ']');
  const Seen seen = take_apart(head + good + "}}", options_of(ToolFormat::json));
  CHECK(seen.calls().size() == 1 && seen.calls()[0].second == "{\"a\": " + good + "}");
  const Seen deep = take_apart(head + std::string(100'000, '['), options_of(ToolFormat::json), 1000);
  CHECK(deep.calls()[0].second == "{\"a\": " + std::string(most, '['));
  CHECK(deep.content() == std::string(100'000 - most, '['));
}

// What may still become a call is held up to a bound, and read again in linear time.
TEST(hostile) {
  const std::string pieces[] = {
      "<tool_call>{\"", "<tool_call>", "<tool_call>{\"a\": [", "<tool_call>{\"a\": \"b\", ", "<tool_call> ", "{", "<",
      "<tool_call>{\"arguments\": {\"x\": \"", "<|im_end|>", "<|im_end|> \n<|im_", "</think>", " ", "<tool_call>\\\"",
      "\"<tool_call>{\", ", "<tool_call>{\"a\": \"\\\"<tool_call>{\\\""};
  const size_t size = is_short() ? 100'000 : 3'000'000;
  for (const ToolFormat format : {ToolFormat::hermes, ToolFormat::llama3, ToolFormat::json}) {
    for (const std::string& piece : pieces) {
      std::string text = piece;
      while (text.size() < size) text += piece;
      ChatOutputOptions o = options_of(format);
      const auto start = std::chrono::steady_clock::now();
      const Seen seen = take_apart(text, o, 4096);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      CHECK(seconds < 20);
      CHECK(seen.calls().empty());
      const std::string content = seen.content();
      CHECK(text.starts_with(content) && content.size() + 100 >= text.size());
      const std::string small = text.substr(0, 20'000);
      CHECK(take_apart(small, o, 1).line() == take_apart(small, o).line());
    }
  }
}

TEST(held_text_is_bounded) {
  const auto parser = ChatOutputParser::create(options_of(ToolFormat::hermes));
  std::vector<ChatEvent> events;
  std::string text = "<tool_call>{\"arguments\": {\"x\": \"";
  parser->push(text, events);
  const std::string chunk(1 << 16, 'y');
  for (int i = 0; i < 64; ++i) {
    parser->push(chunk, events);
    text += chunk;
  }
  Seen seen;
  seen.add(events);
  CHECK(seen.content() == text);  // 4 MiB: it was let go long ago
  // The bound falls on the same byte whatever the cuts.
  for (const size_t extra : {0, 1, 2, 3}) {
    const size_t filler = (size_t{1} << 20) - 60 + extra * 20;
    const std::string long_call = "<tool_call>{\"x\": \"" + std::string(filler, 'z') +
                                  "\", \"name\": \"f\", \"arguments\": {}}</tool_call>";
    const std::string late = "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"" + std::string(filler, 'k') +
                             "\": 1, \"name\": 2}";
    for (const std::string& t : {long_call, late}) {
      const std::string whole = take_apart(t, options_of(ToolFormat::hermes)).line();
      CHECK(take_apart(t, options_of(ToolFormat::hermes), 4001).line() == whole);
      CHECK(take_apart(t, options_of(ToolFormat::hermes), 65536).line() == whole);
    }
  }
}

// Texts put together at random of what matters: cuts change nothing and nothing is lost.
TEST(random_texts) {
  const std::vector<std::string> parts = {
      "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "<|im_end|>", "<|eot_id|>", "\n", " ",
      "{", "}", "[", "]", ",", ":", ";", "\"", "\\", "\"name\"", "\"arguments\"", "\"parameters\"", "\"f\"", "\"g\"",
      ": ", ", ", "{\"name\": \"f\", \"arguments\": {", "{\"a\": 1}", "}}", f1, w1, hermes(f1), "1", "-0.5e3", "null",
      "true", "x", "é", "\xf0\x9f\x98\x80", "\"a\"", "<", "<tool", "\x01"};
  std::mt19937_64 random(11);
  int calls = 0, plain = 0;
  for (int round = 0; round < (is_short() ? 2000 : 40'000); ++round) {
    ChatOutputOptions o = options_of(static_cast<ToolFormat>(random() % 4));
    o.reasoning = random() % 3 == 0;
    o.reasoning_open = random() % 2 == 0;
    if (random() % 4 == 0) o.names.clear();
    if (random() % 2 == 0) o.ends.clear();
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) text += parts[random() % parts.size()];
    const Seen whole = take_apart(text, o);
    const std::string line = whole.line();
    const bool same = take_apart(text, o, 1).line() == line &&
                      take_apart(text, o, 1 + random() % 12, &random).line() == line;
    if (!same) std::fprintf(stderr, "cuts matter: %s\n", text.c_str());
    CHECK(same);
    if (whole.calls().empty() && !o.reasoning && o.ends.empty()) {
      CHECK(whole.content() == text);
      ++plain;
    }
    for (const auto& [name, arguments] : whole.calls()) {
      ++calls;
      CHECK(!name.empty() && arguments.starts_with("{"));
      if (is_json_object(arguments)) CHECK(Json::accept(arguments));
    }
  }
  CHECK(calls > 100 && plain > 100);
}

TEST(of_templates) {
  CHECK(template_tool_format("{{ '<tool_call>' }}") == ToolFormat::hermes);
  CHECK(template_tool_format("Environment: ipython") == ToolFormat::llama3);
  CHECK(template_tool_format("<|python_tag|>") == ToolFormat::llama3);
  CHECK(template_tool_format("{{ messages }}") == ToolFormat::json);
  CHECK(template_has_reasoning("x</think>y") && !template_has_reasoning("think"));
  CHECK(leaves_reasoning_open("a<think>\n") && !leaves_reasoning_open("<think>a") && !leaves_reasoning_open(" "));
  CHECK(tool_format("llama3") == ToolFormat::llama3 && !tool_format("auto") && !tool_format(""));
}

int main(int c, char** v) { return orlop::test::test_main(c, v); }
