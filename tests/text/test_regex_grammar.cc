// Regular expressions as rules. The second opinion is PCRE2, on generated expressions and all short
// texts; what texts follow the rules is tried out by rules_match.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <random>

#include "../check.h"
#include "rules_match.h"
#include "text/grammar/guide.h"
#include "text/grammar/regex.h"
#include "text/grammar/unicode.h"

using namespace orlop;
using namespace orlop::test;

namespace {

Rules regex(std::string_view pattern, bool whole = true) {
  Rules rules;
  RegexOptions options;
  options.whole = whole;
  rules.set_root(regex_expr(rules, pattern, options));
  return rules;
}

bool full(std::string_view pattern, std::string_view text) {
  return follows(regex(pattern), text);
}
bool found(std::string_view pattern, std::string_view text) {
  return follows(regex(pattern, false), text);
}

class Pcre2 {
 public:
  explicit Pcre2(const std::string& pattern)
      : code_(compile(pattern), pcre2_code_free),
        data_(code_ ? pcre2_match_data_create(1, nullptr) : nullptr, pcre2_match_data_free) {}
  bool valid() const { return code_ != nullptr; }
  bool matches(std::string_view text, bool whole) const {
    const int rc =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                    whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0, data_.get(), nullptr);
    if (rc < PCRE2_ERROR_NOMATCH) throw std::runtime_error(cat("pcre2_match: ", rc));
    return rc >= 0;  // 0: there were groups, whose places nobody asked for
  }

 private:
  static pcre2_code* compile(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                         PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &error, &at, nullptr);
  }
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_;
};

// Whether a guide takes the whole text and lets it end.
bool taken(Guide& guide, std::string_view text) {
  Guide::State state = guide.start();
  const bool all = guide.push_bytes(state, text) == text.size() && guide.complete(state);
  guide.release(state);
  return all;
}

using Random = std::mt19937;
size_t below(Random& r, size_t n) {
  return static_cast<size_t>(r() % n);
}

constexpr const char* counts[] = {"*",     "+",  "?",  "{2}", "{0}",   "{1,}", "{0,2}",
                                  "{1,3}", "*?", "+?", "??",  "{2,}?", "{1}"};

// Letters a, b and é; anchors anywhere if asked for.
std::string random_pattern(Random& r, int depth, bool anchors) {
  std::string out;
  const size_t alternatives = below(r, 4) == 0 ? 2 + below(r, 2) : 1;
  for (size_t a = 0; a < alternatives; ++a) {
    if (a) out += '|';
    const size_t parts = below(r, 4);
    for (size_t p = 0; p < parts; ++p) {
      if (anchors && below(r, 4) == 0) {
        out += below(r, 2) ? '^' : '$';
        continue;
      }
      switch (below(r, depth > 0 ? 8 : 5)) {
        case 0:
          out += 'a';
          break;
        case 1:
          out += 'b';
          break;
        case 2:
          out += "é";
          break;
        case 3:
          out += "[a-c]";
          break;
        case 4:
          out += below(r, 2) ? "." : "[^a]";
          break;
        default:
          out += below(r, 2) ? "(" : "(?:";
          out += random_pattern(r, depth - 1, anchors);
          out += ')';
      }
      if (below(r, 3) == 0) out += counts[below(r, std::size(counts))];
    }
  }
  return out;
}

std::vector<std::string> short_texts(size_t longest) {
  std::vector<std::string> all = {""};
  for (size_t i = 0, end = 1, n = 0; n < longest; ++n, i = end, end = all.size())
    for (size_t k = i; k < end; ++k)
      for (const char* c : {"a", "b", "é"}) all.push_back(all[k] + c);
  return all;
}

void compare(uint32_t seed, size_t rounds, bool anchors) {
  Random r(seed);
  const std::vector<std::string> texts = short_texts(4);
  size_t matched = 0, impossible = 0;
  for (size_t i = 0; i < rounds; ++i) {
    const std::string pattern = random_pattern(r, 3, anchors);
    const Pcre2 other(pattern);
    CHECK(other.valid());
    for (const bool whole : {true, false}) {
      Rules rules;
      bool none = false;
      try {
        rules = regex(pattern, whole);
      } catch (const Error& e) {
        // The one error that patterns made like this have.
        none = e.text().find("its anchors leave no text") != std::string::npos;
        CHECK(none);
        if (!none) {
          std::fprintf(stderr, "%s: %s\n", pattern.c_str(), e.text().c_str());
          return;
        }
        ++impossible;
      }
      const std::shared_ptr<Guide> guide = none ? nullptr : Guide::create(rules, nullptr);
      for (const std::string& text : texts) {
        const bool expected = other.matches(text, whole);
        const bool ours = !none && follows(rules, text), guided = !none && taken(*guide, text);
        matched += expected;
        if (ours == expected && guided == expected) continue;
        std::fprintf(stderr, "%s %s on '%s': PCRE2 says %d, rules %d, guide %d\n",
                     whole ? "whole" : "search", pattern.c_str(), text.c_str(), expected, ours,
                     guided);
        CHECK(ours == expected && guided == expected);
        return;
      }
    }
  }
  CHECK(matched > rounds);
  CHECK(!anchors || impossible > 0);
}

}  // namespace

TEST(regex_agrees_with_pcre2) {
  compare(1, is_short() ? 100 : 4000, false);
}
TEST(regex_anchors_agree_with_pcre2) {
  compare(2, is_short() ? 100 : 6000, true);
}

TEST(regex_classes_agree_with_pcre2) {
  Random r(3);
  constexpr const char* pieces[] = {"a",       "f-m",       "\\d",     "\\w",   "\\D",
                                    "\\W",     "é",         "à-ü",     "\\x41", "\\n",
                                    "\\-",     "\\]",       "\\\\",    "[",     "^",
                                    "\\p{Lu}", "\\P{L}",    "\\p{Nd}", ".",     "\\u00e0-\\u00ff",
                                    "\\t",     "0-9",       "$",       "|",     "(",
                                    "\\.",     "\\p{Latin}"};
  for (size_t i = 0; i < (is_short() ? 40u : 400u); ++i) {
    std::string pattern = below(r, 3) == 0 ? "[^" : "[";
    for (size_t n = 1 + below(r, 4); n > 0; --n) {
      const char* piece = pieces[below(r, std::size(pieces))];
      pattern += pattern == "[" && *piece == '^' ? "a" : piece;
    }
    pattern += below(r, 4) == 0 ? "-]" : "]";
    const Pcre2 other(pattern);
    CHECK(other.valid());
    const Rules rules = regex(pattern);
    // PCRE2 10.42 takes [^\D\p{Lu}] for more than it says beyond U+FF.
    const bool latin1 =
        pattern.find("\\D") != std::string::npos || pattern.find("\\W") != std::string::npos;
    for (uint32_t c = 1; c < (latin1 ? 0x100 : 0x250); ++c) {
      std::string text;
      utf8_append(text, c);
      const bool ours = follows(rules, text), theirs = other.matches(text, true);
      if (ours != theirs)
        std::fprintf(stderr, "%s on U+%04X: PCRE2 says %d\n", pattern.c_str(), c, theirs);
      CHECK(ours == theirs);
      if (ours != theirs) return;
    }
  }
}

TEST(regex_escapes) {
  CHECK(full("\\x41\\u0042\\u{43}\\u{1F600}\\ud83d\\ude01\\U0001F602", "ABC😀😁😂"));
  CHECK(full("\\t\\n\\v\\f\\r\\0\\cA\\ca", std::string_view("\t\n\v\f\r\0\1\1", 8)));
  CHECK(full("\\.\\*\\/\\-\\_\\ \\é", ".*/-_ é"));
  CHECK(full("[\\b]", "\b"));
  CHECK(full("[\\ud83d\\ude00-\\ud83d\\ude02]", "😁") &&
        !full("[\\ud83d\\ude00-\\ud83d\\ude02]", "😃"));
  CHECK(full("[^\\ud800-\\udfff]", "a") && full("[\\ud800-\\udfff]?", ""));
  CHECK(full("\\d", "7") && !full("\\d", "٣") && !full("\\w", "é") && full("\\W", "é"));
  for (const char* c :
       {" ", "\t", "\n", "\v", "\f", "\r", "\u00a0", "\u2003", "\u2028", "\ufeff"}) {
    CHECK(full("\\s", c) && !full("\\S", c) && !full("[^\\s]", c));
  }
  for (const char* c : {"\u0085", "\u180e", "\u200b", "x", "\x1c"}) CHECK(!full("\\s", c));
  for (const char* c : {"\n", "\r", "\u2028", "\u2029"})
    CHECK(!full(".", c) && full("[\\s\\S]", c));
  CHECK(full(".", "\u0085") && full("..", "é😀"));
  // No count, so literals.
  CHECK(full("{}", "{}") && full("x{1", "x{1") && full("]", "]"));
  CHECK(full("a{ 1}", "a{ 1}") && full("{a}{2}", "{a}}"));
  CHECK(full("(?<year>\\d{4})-(?P<m_1>\\d\\d)", "2024-05"));
  CHECK(full("", "") && full("()", "") && full("|a", "") && full("a||b", ""));
  CHECK(full(std::string_view("a\0\r\nb", 5), std::string_view("a\0\r\nb", 5)));
}

TEST(regex_anchors) {
  CHECK(full("^a$", "a") && full("(^a$)", "a") && full("^(?:a|^b)$|c$", "b") && full("^^a$$", "a"));
  CHECK(full("a*^b", "b") && !full("a*^b", "ab") && full("(^|x)+a", "xa") && full("(^$)*", ""));
  CHECK(found("^a|b$", "ax") && found("^a|b$", "xb") && !found("^a|b$", "xax"));
  CHECK(found("(^|,)a(,|$)", "a") && found("(^|,)a(,|$)", "x,a,y") && !found("(^|,)a(,|$)", "ba"));
  CHECK(found("", "abc") && found("b", "abc") && !found("^b", "abc") && found("^$", "") &&
        !found("^$", "a"));
  CHECK(found("a.c", "xxabcxx\n") && found("^[^é]+$", "abc") && !found("^[^é]+$", "aéc"));
  // $ is the end alone, not before a last line end.
  CHECK(!found("a$", "a\n") && !found("^b", "a\nb"));
  CHECK_THROWS(invalid_argument, "its anchors leave no text", regex("a^b"));
  CHECK_THROWS(invalid_argument, "its anchors leave no text", regex("a$b", false));
}

TEST(regex_unicode) {
  CHECK(
      full("\\p{Lu}\\p{Uppercase_Letter}\\p{gc=Lu}\\p{General_Category=Uppercase_Letter}", "AÉΑД"));
  CHECK(!full("\\p{Lu}", "a") && full("\\P{Lu}", "a") && full("[^\\p{Lu}]", "a") &&
        full("[\\P{Lu}x]", "a"));
  CHECK(full("\\p{L}+", "añαд中") && !full("\\p{L}", "1") && full("\\p{N}\\p{Nd}", "½٣"));
  CHECK(full("\\p{Greek}\\p{Script=Greek}\\p{sc=Grek}\\p{scx=Greek}", "αβγδ") &&
        !full("\\p{Greek}", "a"));
  CHECK(full("\\p{Script=Han}+", "中文") && full("\\p{Emoji}", "😀") &&
        full("\\p{Alphabetic}", "é"));
  // U+3099 is of several scripts: of Hiragana by its extensions alone.
  CHECK(full("\\p{scx=Hiragana}", "\u3099") && !full("\\p{sc=Hiragana}", "\u3099"));
  CHECK(full("\\p{Any}\\p{ASCII}\\p{Assigned}", "😀aa") && !full("\\p{ASCII}", "é") &&
        !full("\\p{Assigned}", "\u0378"));
  CHECK(full("\\p{P}\\p{punct}\\p{S}\\p{Sc}\\p{Zs}\\p{Cc}\\p{M}", "!?+€\u00a0\n\u0301"));
  CHECK(unicode_property("Cs") && unicode_property("Cs")->empty());
  CHECK(unicode_property("Lu") == unicode_property("Lu"));
  for (const char* name :
       {"Xan", "Xwd", "L&", "Nope", "", "=", "gc=", "gc=Nope", "sc=L", "sc=Nope", "sc=Emoji", "x=L",
        "Script", "bidi_class:AL", "bidiAL", "sc=Greek=", "}", "^L", "é"})
    CHECK(!unicode_property(name));
  // The planes without characters are not asked about one by one.
  const CharRanges& none = *unicode_property("Noncharacter_Code_Point");
  CHECK(none.size() == 18 && none[0].first == 0xfdd0 && none[17].last == 0x10ffff);
  for (size_t i = 1; i < none.size(); ++i)
    CHECK(none[i].first == i * 0x10000 - 2 && none[i].last == none[i].first + 1);
  const CharRanges unknown = *unicode_property("sc=Unknown"), known = complement_ranges(unknown);
  for (const CharRange c : *unicode_property("Co"))
    CHECK(std::none_of(known.begin(), known.end(),
                       [&](CharRange k) { return k.first <= c.last && c.first <= k.last; }));
  // All categories together are all code points, once.
  uint64_t sum = 0;
  for (const char* name : {"L", "M", "N", "P", "S", "Z", "C"})
    for (const CharRange c : *unicode_property(name)) sum += c.last - c.first + 1;
  CHECK(sum == 0x110000 - 0x800);
}

TEST(regex_refusals) {
  const struct {
    const char *pattern, *words;
  } cases[] = {
      {"a(?=b)", "byte 1: look-ahead"},
      {"a(?!b)", "byte 1: look-ahead"},
      {"(?<=b)", "byte 0: look-behind"},
      {"(?<!b)", "byte 0: look-behind"},
      {"(a)\\1", "byte 3: back references (\\1)"},
      {"(?<a>x)\\k<a>", "byte 7: back references (\\k)"},
      {"(?P<a>x)(?P=a)", "byte 8: back references (?P="},
      {"é\\b", "byte 2: word borders"},
      {"\\B", "byte 0: word borders"},
      {"a++", "byte 2: possessive"},
      {"a{2}+", "byte 4: possessive"},
      {"(?>a)", "byte 0: atomic"},
      {"(?(1)a|b)", "byte 0: conditionals"},
      {"(?i)a", "byte 0: inline flags"},
      {"x(?-s:a)", "byte 1: inline flags"},
      {"(?#c)", "byte 0: comments"},
      {"(?|a)", "byte 0: branch resets"},
      {"(?R)", "byte 0: recursion"},
      {"(?1)", "byte 0: recursion"},
      {"(?&a)", "byte 0: recursion"},
      {"(?P>a)", "byte 0: recursion"},
      {"(*FAIL)", "byte 0: verbs"},
      {"(?", "byte 0: a ( without its )"},
      {"(?'a'x)", "byte 0: a group of unknown kind"},
      {"(?<1>x)", "byte 0: a group's name"},
      {"(?<a", "byte 0: a group's name"},
      {"(?<a>x)(?<a>y)", "byte 7: two groups of the same name"},
      {"(a", "byte 0: a ( without its )"},
      {"a)", "byte 1: a ) without its ("},
      {"[a", "byte 0: a [ without its ]"},
      {"[", "byte 0: a [ without its ]"},
      {"[a-", "byte 0: a [ without its ]"},
      {"[]a]", "byte 0: an empty class"},
      {"[^]", "byte 0: an empty class"},
      {"[b-a]", "byte 1: a range whose end"},
      {"[\\d-z]", "byte 1: a range from or to a set"},
      {"[a-\\w]", "byte 1: a range from or to a set"},
      {"[[:alpha:]]", "byte 1: POSIX classes"},
      {"[\\1]", "byte 1: octal"},
      {"\\01", "byte 0: octal"},
      {"*a", "byte 0: nothing before * to repeat"},
      {"a|+", "byte 2: nothing before + to repeat"},
      {"(?:?)", "byte 3: nothing before ? to repeat"},
      {"{2}", "byte 0: nothing before { to repeat"},
      {"^*", "byte 1: an anchor cannot be repeated"},
      {"a**", "byte 2: a count of a count"},
      {"a{2}{3}", "byte 4: a count of a count"},
      {"a???", "byte 3: a count of a count"},
      {"a{2,1}", "byte 1: the count's upper bound"},
      {"a{,2}", "byte 1: {,n} means one thing here"},
      {"a{,}", "byte 1: {,n} means one thing here"},
      {"a{99999999999}", "byte 1: a count beyond"},
      {"\\", "byte 0: a backslash at the end"},
      {"\\x4", "byte 0: \\x needs two"},
      {"\\u00e", "byte 0: \\u needs four"},
      {"\\u{}", "byte 0: \\u{ needs"},
      {"\\u{41", "byte 0: \\u{ needs"},
      {"\\u{110000}", "byte 0: \\u{...} is beyond"},
      {"\\u{41414141414141}", "byte 0: \\u{...} is beyond"},
      {"\\U0011FFFF", "byte 0: \\U is beyond"},
      {"\\U41", "byte 0: \\U needs eight"},
      {"\\ud800", "byte 0: a lone surrogate"},
      {"\\udc00\\ud800", "byte 0: a lone surrogate"},
      {"\\c1", "byte 0: \\c needs a letter"},
      {"\\pL", "byte 0: \\p and \\P need a name"},
      {"\\p{L", "byte 0: \\p{ has no }"},
      {"\\p{Nope}", "byte 0: \\p{Nope}: no Unicode property"},
      {"a\\A", "byte 1: \\A is not supported, write ^"},
      {"a\\Z", "byte 1: \\Z is not supported, write $"},
      {"a\\z", "byte 1: \\z is not supported, write $"},
      {"\\Qa\\E", "byte 0: unknown escape \\Q"},
      {"\\a", "byte 0: unknown escape \\a"},
      {"ab\xff", "byte 2: not valid UTF-8"},
      {"ab\xe2\x82", "byte 2: not valid UTF-8"},
  };
  for (const auto& c : cases) CHECK_THROWS(invalid_argument, c.words, regex(c.pattern));
}

TEST(regex_hostile) {
  const std::string deep = repeated("(", 30000) + "a" + repeated(")", 30000);
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "byte 256: groups nested deeper than 256", regex(deep));
        }) < 1);
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "nested deeper", regex(repeated("(a|", 300000)));
        }) < 1);
  CHECK(full(repeated("(", 256) + "a" + repeated(")", 256), "a"));
  CHECK(full("a{1,999999999}", "aaa") && full("((a{1000}){1000}){1000}|b", "b") &&
        full("(a+)+b", "aaaab"));
  CHECK(full("(a|a)*c", repeated("a", 60) + "c"));
  // Many classes, and big ones.
  CHECK(seconds([&] { regex(repeated("\\p{L}", 200000)); }) < 3);
  CHECK(seconds([&] { regex("[" + repeated("\\p{L}\\P{N}", 100000) + "]"); }) < 3);
  std::string many;
  for (uint32_t c = 0x100; many.size() < 900000; ++c) {
    many += "[\\p{L}";
    if (c < 0xd800 || c > 0xdfff) utf8_append(many, c);
    many += "]";
  }
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "the classes have more than", regex(many));
        }) < 3);
  CHECK(seconds([&] { regex(repeated("a|", 500000)); }) < 3);
  CHECK(seconds([&] { regex("[" + repeated("a-z", 300000) + "]"); }) < 3);
  // Anchors inside: the parts beside them are counted.
  CHECK(seconds([&] {
          CHECK_THROWS(invalid_argument, "parts beside anchors",
                       regex(repeated("a?", 5000) + "(^|b)"));
        }) < 3);
  CHECK(seconds([&] { regex("^" + repeated("a?", 100000) + "$"); }) < 3);
  CHECK(full(repeated("(^|$|a)", 60), repeated("a", 60)));
  CHECK(full("(" + repeated("(^|$|a)?", 20) + "){2,999999999}", repeated("a", 60)));
  CHECK_THROWS(invalid_argument, "the limit is", regex(std::string((size_t{1} << 20) + 1, 'a')));
}

// To the end of a compiled guide: it works, or one typed error says which limit.
TEST(regex_hostile_guides) {
  const auto try_out = [](std::string_view pattern, std::string_view text, bool whole = true) {
    bool answer = false;
    const double t = seconds([&] {
      try {
        answer = taken(*Guide::create(regex(pattern, whole), nullptr), text);
      } catch (const Error& e) {
        CHECK(e.status() == Status::invalid_argument);
        std::printf("  %.40s: %s\n", std::string(pattern).c_str(), e.text().c_str());
      }
    });
    if (t > 0.5) std::printf("  %.40s: %.0f ms\n", std::string(pattern).c_str(), t * 1e3);
    CHECK(t < (is_short() ? 30 : 5));
    return answer;
  };
  const std::string as = repeated("a", 2000);
  CHECK(try_out("(a+)+b", as + "b") && try_out("(a|a)*b", as + "b") && try_out("(a|aa)+", as));
  CHECK(try_out("a{1,999999999}", as) && try_out("(a{0,5}){0,999999999}b", as + "b"));
  CHECK(try_out("(.*)*x(.*)*", as + "x", false) && try_out("(a?){2000}a{2000}", as));
  CHECK(try_out("\\p{L}+(\\p{Lu}|\\p{Greek}|[^\\p{Han}])*", "aé😀"));
  try_out("((a{1000}){1000}){1000}", as);
  try_out("(.*a){50}.*b", as, false);
  try_out("(^|" + repeated("a?", 200) + "){2,}" + repeated("(b|$)?", 100), as);
  std::string nested = "(^|a|$)?";
  for (int i = 0; i < 100; ++i) nested = "(" + nested + "b?)*c?";
  try_out(nested, as);
  try_out(repeated("[^a]?\\p{L}{0,50}", 100), as);
  try_out(repeated("a?", 500000), as);
  try_out(repeated("(a|b)", 150000), as);
  try_out("[ab]*a[ab]{0,3000}", as);
}

// Inside of a quoted string: what is wrapped around a match is made of those characters too.
TEST(regex_characters) {
  const auto quoted = [](Rules& rules, std::span<const CharRange> ranges) {
    std::vector<Rules::Expr> ways;
    CharRanges plain;
    for (const CharRange r : ranges) {
      for (uint32_t c = r.first; c <= r.last && c < 0x80; ++c)
        if (c != '"' && c != '\\') plain.push_back({c, c});
      if (r.last >= 0x80) plain.push_back({std::max(r.first, 0x80u), r.last});
      for (const uint32_t c : {'"', '\\'})
        if (r.first <= c && c <= r.last)
          ways.push_back(rules.literal(std::string("\\") + static_cast<char>(c)));
    }
    ways.push_back(rules.chars(plain));
    return rules.choice(ways);
  };
  const auto check = [&](std::string_view pattern, bool whole, std::string_view text) {
    Rules rules;
    rules.set_root(regex_expr(rules, pattern, {whole, quoted}));
    return follows(rules, text);
  };
  CHECK(check("a\"\\\\", true, "a\\\"\\\\") && !check("a\"", true, "a\""));
  CHECK(check("[^a]+", true, "\\\"x\\\\é") && !check("[^a]+", true, "\""));
  CHECK(check("b", false, "\\\"b\\\\") && !check("b", false, "\"b"));
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
