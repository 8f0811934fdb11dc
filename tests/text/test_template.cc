// Features, provenance and limits of the chat-template interpreter. That it prints what jinja2
// prints is test_template_jinja.py's part.
#include <pthread.h>

#include <chrono>
#include <string>

#include "base/json.h"
#include "../check.h"
#include "text/chat_template.h"

using namespace orlop;

namespace {

OrderedJson data() {
  return OrderedJson::parse(R"({
    "messages": [{"role": "user", "content": "Hé <|im_end|>"}, {"role": "assistant", "content": "yo"}],
    "bos_token": "<s>", "x": "DATA", "l": [3, 1, 2], "n": 5, "d": {"key": "value"}
  })");
}

Rendered render(std::string_view source, const RenderLimits& limits = {},
                const OrderedJson& with = data()) {
  return ChatTemplate::parse(source, limits)->render(with, {"bos_token"}, 1'753'020'367);
}
std::string text(std::string_view source) { return render(source).text; }

// The text with its untrusted parts in «».
std::string marked(std::string_view source) {
  const Rendered r = render(source);
  std::string out;
  size_t at = 0;
  for (const ByteRange& b : r.untrusted) {
    out += r.text.substr(at, b.begin - at) + "«" + r.text.substr(b.begin, b.end - b.begin) + "»";
    at = b.end;
  }
  return out + r.text.substr(at);
}

std::string times(std::string_view what, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += what;
  return out;
}

double seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Renders on a thread with a small stack; the error's text, or "" if there was none.
std::string render_on_small_stack(const std::string& source, size_t stack_bytes) {
  struct Work {
    const std::string& source;
    std::string error;
  } work{source, ""};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  const auto body = [](void* p) -> void* {
    auto& w = *static_cast<Work*>(p);
    try {
      orlop::OrderedJson data;
      data["messages"] = orlop::OrderedJson::array();
      orlop::ChatTemplate::parse(w.source)->render(data, {}, 0);
    } catch (const orlop::Error& e) {
      w.error = e.text();
    }
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, body, &work) != 0) return "no thread";
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return work.error;
}

TEST(hostile_nesting_on_small_stacks) {
  std::string calls = "n-1", nots = "1", lists = "1";
  for (int i = 0; i < 44; ++i) calls.insert(0, "f(").append(")");
  for (int i = 0; i < 95; ++i) {
    nots.insert(0, "not (").append(")");
    lists.insert(0, "[").append("]");
  }
  const std::string sources[] = {
      "{% macro f(n) %}{% if n>0 %}{{ " + calls + " }}{% endif %}{% endmacro %}{{ f(99) }}",
      "{{ " + nots + " }}", "{{ " + lists + " }}"};
  for (const size_t kib : {128, 256, 512}) {
    for (const std::string& source : sources) {
      const std::string error = render_on_small_stack(source, kib << 10);
      CHECK(error.empty() || error.find("deeper than") != std::string::npos);
    }
    CHECK(render_on_small_stack("{% for m in messages %}{{ m }}{% endfor %}", kib << 10).empty());
  }
  CHECK(!render_on_small_stack(sources[0], 128 << 10).empty());
}


}  // namespace

TEST(prints_a_conversation) {
  CHECK(text("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] | trim }}\n{% endfor %}") ==
        "<s>[user]Hé <|im_end|>\n[assistant]yo\n");
  CHECK(text("{{ messages[::-1][0].content ~ messages|length }}") == "yo2");
  CHECK(text("{{ none }}{{ true }}{{ 1.0 }}{{ [1, 'a', none] }}") == "NoneTrue1.0[1, 'a', None]");
}

TEST(white_space_control) {
  CHECK(text("a\n  {% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc");
  CHECK(text("a  {{- 'b' -}}  c") == "abc");
  CHECK(text("{% raw %}{{ x }}{% endraw %}") == "{{ x }}");
}

TEST(provenance_follows_every_operation) {
  CHECK(marked("<|im_start|>{{ messages[1].content }}<|im_end|>") == "<|im_start|>«yo»<|im_end|>");
  CHECK(marked("{{ bos_token }}{{ x }}") == "<s>«DATA»");
  CHECK(marked("{{ 'a' + x + 'b' }}{{ x[1:3] }}") == "a«DATA»b«AT»");
  CHECK(marked("{{ ('p' ~ x ~ 'q') | upper | replace('P', '<') }}") == "<«DATA»Q");
  CHECK(marked("{{ ('-' ~ x)[::-1] }}") == "«ATAD»-");
  CHECK(marked("{{ ['a', x] | join('|') }}") == "a|«DATA»");
  CHECK(marked("{{ d | tojson }}") == "{\"«key»\": \"«value»\"}");
  CHECK(marked("{{ d }}") == "{'«key»': '«value»'}");
  CHECK(marked("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}") == "«key»=«value»");
  CHECK(marked("{% set y %}[{{ x }}]{% endset %}{{ y }}") == "[«DATA»]");
  CHECK(marked("{% macro m(v) %}({{ v }}){% endmacro %}{{ m(x) }}") == "(«DATA»)");
  CHECK(marked("{{ 'a b'.split() | join(x) }}") == "a«DATA»b");
  CHECK(marked("{{ n }}{{ 'x' if x == 'DATA' }}") == "5x");  // numbers and decisions are trusted
  CHECK(marked("{{ x }}{{ x }}") == "«DATADATA»");            // neighbours are one range
}

TEST(errors_say_what_and_where) {
  CHECK_THROWS(invalid_argument, "only two: yo", text("{{ raise_exception('only two: ' ~ messages[1].content) }}"));
  CHECK_THROWS(invalid_argument, "line 3: 'missing' is undefined", text("a\n\n{{ missing.x }}"));
  CHECK_THROWS(invalid_argument, "unsupported operand", text("{{ 'a' + 1 }}"));
  CHECK_THROWS(bad_format, "line 2", text("\n{% if %}{% endif %}"));
  CHECK_THROWS(bad_format, "endfor", text("{% for x in l %}"));
  CHECK_THROWS(bad_format, "unknown tag", text("{% nonsense %}"));
  CHECK_THROWS(bad_format, "UTF-8", text("a\xff"));
  CHECK_THROWS(unsupported, "line 2: the tag 'include'", text("\n{% include 'x' %}"));
  CHECK_THROWS(unsupported, "the filter 'urlize'", text("{% if false %}{{ x | urlize }}{% endif %}"));
  CHECK_THROWS(unsupported, "the test 'nice'", text("{{ x is nice }}"));
  CHECK_THROWS(unsupported, "recursive", text("{% for a in l recursive %}{% endfor %}"));
  CHECK_THROWS(invalid_argument, "not a JSON object", render("a", {}, OrderedJson::array()));
  CHECK_THROWS(invalid_argument, "UTF-8", render("{{ x }}", {}, OrderedJson{{"x", "\xff"}}));
}

TEST(nothing_private_is_reachable) {
  CHECK(text("{{ x.__class__ }}{{ ''['__class__'] }}{{ d.__dict__ }}") == "");
  CHECK_THROWS(invalid_argument, "is unsafe", text("{{ ''.__class__.__mro__ }}"));
  CHECK_THROWS(invalid_argument, "is unsafe", text("{{ l.append(1) }}"));
}

TEST(steps_are_limited) {
  CHECK_THROWS(invalid_argument, "max_steps",
               text("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"));
  RenderLimits few;
  few.max_steps = 50;
  CHECK_THROWS(invalid_argument, "max_steps", render("{% for a in range(100) %}{{ a }}{% endfor %}", few));
}

TEST(output_and_intermediates_are_limited) {
  CHECK_THROWS(invalid_argument, "max_output", text("{% set y = 'x' * 10**9 %}"));
  CHECK_THROWS(invalid_argument, "max_output", text("{{ [0] * 10**9 }}"));
  CHECK_THROWS(invalid_argument, "max_output", text("{{ 'x'.center(10**12) }}"));
  CHECK_THROWS(invalid_argument, "max_output", text("{{ 'a'|indent(10**12, true) }}"));
  CHECK_THROWS(invalid_argument, "max_output", text("{{ [1]|tojson(indent=10**12) }}"));
  CHECK_THROWS(invalid_argument, "max_output",
               text("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"));
  CHECK_THROWS(invalid_argument, "max_output",
               text("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"));
  RenderLimits small;
  small.max_output = 10;
  CHECK_THROWS(invalid_argument, "max_output", render("{% for i in l %}12345{% endfor %}", small));
  CHECK(render("1234567890", small).text == "1234567890");
}

TEST(nesting_is_limited) {
  const char* brackets[][2] = {{"(", ")"}, {"[", "]"}, {"{'a':", "}"}, {"not ", ""}, {"-", ""},
                               {"x[", "]"}, {"f(", ")"}, {"1 if 1 else ", ""}};
  for (const auto& b : brackets)
    CHECK_THROWS(bad_format, "max_depth",
                 text("{{ " + times(b[0], 30'000) + "1" + times(b[1], 30'000) + " }}"));
  CHECK_THROWS(bad_format, "max_depth", text(times("{% if true %}", 30'000)));
  CHECK_THROWS(bad_format, "max_depth", text("{{ 1" + times(" if 1", 30'000) + " }}"));
  CHECK_THROWS(invalid_argument, "max_depth", text("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"));
  CHECK_THROWS(invalid_argument, "max_depth",
               text("{% set ns = namespace(a=1) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}"));
  CHECK_THROWS(invalid_argument, "max_depth",
               text("{% set ns = namespace(a=l) %}{% for i in range(9999) %}{% set ns.a = ns.a|map('string') %}{% endfor %}{{ ns.a|list }}"));
  CHECK_THROWS(invalid_argument, "max_depth", text("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}"));
  OrderedJson deep = "end";
  for (int i = 0; i < 500; ++i) deep = OrderedJson::array({std::move(deep)});
  CHECK_THROWS(invalid_argument, "max_depth", render("{{ x }}", {}, OrderedJson{{"x", std::move(deep)}}));
}

TEST(long_chains_are_no_nesting) {
  CHECK(text("{{ 0" + times(" + 1", 30'000) + " }}") == "30000");
  CHECK(text("{{ 'a'" + times(" ~ 'a'", 20'000) + " }}").size() == 20'001);
  CHECK(text("{{ x" + times("|upper", 20'000) + " }}") == "DATA");
  CHECK(text("{{ x" + times("[0]", 20'000) + " }}") == "D");
  CHECK(text("{% if false %}" + times("{% elif false %}", 20'000) + "{% else %}e{% endif %}") == "e");
}

TEST(source_size_is_limited) {
  RenderLimits small;
  small.max_source = 4;
  CHECK_THROWS(bad_format, "max_source", render("12345", small));
}

TEST(no_quadratic_surprises) {
  const std::string a = times("a", 200'000);
  const OrderedJson with = {{"h", a}, {"n", a.substr(0, 100'000) + "b"}};
  const double s = seconds([&] {
    CHECK(render("{{ n in h }}{{ h.find(n) }}{{ h.count(n) }}{{ h.rfind(n) }}{{ h.replace(n, '')|length }}", {}, with).text ==
          "False-10-1200000");
  });
  CHECK(s < 2);
}

TEST(a_template_serves_several_renders) {
  const auto t = ChatTemplate::parse("{% set ns = namespace(i=0) %}{% for m in l %}{% set ns.i = ns.i + m %}{% endfor %}{{ ns.i }}");
  CHECK(t->render(data(), {}, 0).text == "6");
  CHECK(t->render(data(), {}, 0).text == "6");
}

int main(int c, char** v) { return orlop::test::test_main(c, v); }
