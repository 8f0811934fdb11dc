// The syntax: grammars/README.md of https://github.com/ggml-org/llama.cpp and what its parser
// takes.
#include "text/grammar/gbnf.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "text/grammar/unicode.h"
#include "text/utf8.h"

namespace orlop {
namespace {

using Expr = Rules::Expr;

bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class Parser {
 public:
  Parser(Rules& rules, std::string_view text) : rules_(rules), text_(text) {}

  void parse() {
    space(true);
    while (!done()) rule();
    const auto root = names_.find("root");
    if (root == names_.end() || !root->second.defined)
      refuse(text_.size(), "no rule is named root");
    for (const auto& [name, rule] : names_)
      if (!rule.defined && (missing_.empty() || rule.place < names_.at(missing_).place))
        missing_ = name;
    if (!missing_.empty())
      refuse(names_.at(missing_).place, "rule '", missing_.substr(0, 100), "' is not defined");
    rules_.set_root(rules_.call(root->second.id));
  }

 private:
  struct Name {
    int32_t id = 0;
    size_t place = 0;  // where it comes first
    bool defined = false;
    Expr call = -1;
  };

  template <class... Parts>
  [[noreturn]] void refuse(size_t at, const Parts&... parts) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; ++i) {
      if (text_[i] == '\n' || (text_[i] == '\r' && !text_.substr(i + 1).starts_with('\n'))) {
        ++line;
        column = 1;
      } else if ((text_[i] & 0xc0) != 0x80) {
        ++column;
      }
    }
    fail(Status::invalid_argument, "grammar: line ", line, ", column ", column, ": ", parts...);
  }

  bool done() const { return pos_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[pos_]; }
  bool at(char c) const { return !done() && text_[pos_] == c; }

  // Blanks and comments; line ends if they may come here.
  void space(bool lines) {
    for (; !done(); ++pos_) {
      const char c = text_[pos_];
      if (c == '#') {
        pos_ = std::min(text_.find_first_of("\r\n", pos_), text_.size());
        if (!lines || done()) return;
      } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
        return;
      }
    }
  }

  std::string_view name() {
    const size_t begin = pos_;
    while (!done() && in_name(text_[pos_])) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }

  Name& named(std::string_view name, size_t place) {
    const auto [it, fresh] = names_.try_emplace(name);
    if (fresh) it->second = {rules_.declare(std::string(name)), place, false, -1};
    return it->second;
  }

  void rule() {
    const size_t start = pos_;
    const std::string_view what = name();
    if (what.empty()) refuse(start, "a rule is expected: name ::= ...");
    space(false);
    if (!text_.substr(pos_).starts_with("::="))
      refuse(pos_, "::= is expected after the rule name '", what.substr(0, 100), "'");
    pos_ += 3;
    {
      Name& n = named(what, start);
      if (n.defined) refuse(start, "rule '", what.substr(0, 100), "' is defined twice");
      n.defined = true;
    }
    space(true);
    const Expr body = alternatives(true);
    rules_.define(names_.at(what).id, body);
    if (at(')')) refuse(pos_, "a ) without its (");
    if (!done() && !at('\n') && !at('\r')) refuse(pos_, unexpected());
    space(true);
  }

  std::string unexpected() const {
    const char c = peek();
    if (c == '<' || c == '!') return "tokens (<...>, !<...>) are not supported, write their text";
    if (text_.substr(pos_).starts_with("::="))
      return "another rule begins here; a rule of the empty text is written \"\"";
    if (c == '*' || c == '+' || c == '?' || c == '{')
      return cat("nothing before ", c, " to repeat");
    const Utf8Step step = utf8_step(text_, pos_);
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f)
      return cat("byte ", static_cast<int>(static_cast<uint8_t>(c)), " is no part of a rule");
    return cat("'", text_.substr(pos_, step.length), "' is no part of a rule");
  }

  Expr alternatives(bool top) {
    std::vector<Expr> all;
    for (;;) {
      all.push_back(sequence(top));
      // The next line may begin with the bar.
      const size_t end = pos_;
      space(true);
      if (!at('|')) {
        pos_ = end;
        break;
      }
      ++pos_;
      space(true);
    }
    return rules_.choice(all);
  }

  Expr sequence(bool top) {
    std::vector<Expr> all;
    for (;;) {
      const char c = peek();
      Expr item = -1;
      if (done()) {
        break;
      } else if (c == '"') {
        item = literal();
      } else if (c == '[') {
        item = char_class();
      } else if (c == '(') {
        item = group();
      } else if (c == '.') {
        ++pos_;
        if (any_ < 0) any_ = rules_.chars(complement_ranges({}));
        item = any_;
      } else if (in_name(c)) {
        const size_t start = pos_;
        Name& n = named(name(), start);
        if (n.call < 0) n.call = rules_.call(n.id);
        item = n.call;
      } else {
        break;
      }
      space(!top);
      all.push_back(counted(item, top));
    }
    // Inside ( ) only | and ) go on; what else is there is named here, where it is.
    if (!top && !done() && !at('|') && !at(')')) refuse(pos_, unexpected());
    return rules_.sequence(all);
  }

  // Counts of counts: *, + and ? become one; more than that would nest without a ( to show it.
  Expr counted(Expr item, bool top) {
    int32_t least = 1, most = 1;
    bool simple = true;
    for (;; space(!top)) {
      const size_t start = pos_;
      int32_t l = 0, m = Rules::unbounded;
      if (at('*')) {
        ++pos_;
      } else if (at('+')) {
        ++pos_;
        l = 1;
      } else if (at('?')) {
        ++pos_;
        m = 1;
      } else if (at('{')) {
        if (least != 1 || most != 1)
          refuse(start, "a count of a count, put what it applies to in ( )");
        braces(least, most);
        simple = false;
        continue;
      } else {
        return least == 1 && most == 1 ? item : rules_.repeat(item, least, most);
      }
      if (!simple) refuse(start, "a count of a count, put what it applies to in ( )");
      least *= l;
      if (m == Rules::unbounded) most = m;
    }
  }

  void braces(int32_t& least, int32_t& most) {
    const size_t start = pos_++;
    space(false);
    least = most = number(start);
    space(false);
    if (at(',')) {
      ++pos_;
      space(false);
      most = at('}') ? Rules::unbounded : number(start);
      space(false);
    }
    if (!at('}')) refuse(start, "a count is {m}, {m,} or {m,n}");
    ++pos_;
    if (most != Rules::unbounded && most < least)
      refuse(start, "the count's upper bound is below its lower one");
  }

  int32_t number(size_t start) {
    int64_t v = 0;
    const size_t begin = pos_;
    for (; !done() && text_[pos_] >= '0' && text_[pos_] <= '9'; ++pos_) {
      v = v * 10 + (text_[pos_] - '0');
      if (v > INT32_MAX) refuse(start, "a count beyond ", INT32_MAX);
    }
    if (pos_ == begin) refuse(start, "a count is {m}, {m,} or {m,n}");
    return static_cast<int32_t>(v);
  }

  Expr group() {
    const size_t start = pos_++;
    if (++depth_ > rules_.limits().max_depth)
      refuse(start, "groups nested deeper than ", rules_.limits().max_depth);
    space(true);
    const Expr inside = alternatives(false);
    space(true);
    if (!at(')')) refuse(start, "a ( without its )");
    ++pos_;
    --depth_;
    return inside;
  }

  Expr literal() {
    const size_t start = pos_++;
    std::string bytes;
    while (!at('"')) {
      if (done()) refuse(start, "a literal without its closing \"");
      const size_t place = pos_;
      const uint32_t code = character();
      if (code >= 0xd800 && code < 0xe000) refuse(place, "a lone surrogate is in no text");
      utf8_append(bytes, code);
    }
    ++pos_;
    return rules_.literal(bytes);
  }

  Expr char_class() {
    const size_t start = pos_++;
    const bool negated = at('^');
    if (negated) ++pos_;
    if (at(']')) refuse(start, "an empty class; write \\] for a ] that belongs to the class");
    CharRanges ranges;
    while (!at(']')) {
      if (done()) refuse(start, "a [ without its ]");
      const size_t place = pos_;
      const uint32_t low = character();
      uint32_t high = low;
      if (at('-') && !text_.substr(pos_).starts_with("-]")) {
        ++pos_;
        if (done()) refuse(start, "a [ without its ]");
        high = character();
        if (high < low) refuse(place, "a range whose end is before its beginning");
      }
      ranges.push_back({low, high});
    }
    ++pos_;
    normalize_ranges(ranges);
    if (negated) ranges = complement_ranges(ranges);
    return rules_.chars(ranges);
  }

  // One code point or escape of a literal or class.
  uint32_t character() {
    const size_t start = pos_;
    if (text_[pos_] != '\\') {
      const Utf8Step step = utf8_step(text_, pos_);
      pos_ += step.length;
      return step.code;
    }
    ++pos_;
    if (done()) refuse(start, "a backslash at the end");
    const char c = text_[pos_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<uint8_t>(c);
      case 'x':
        return hex(start, 2);
      case 'U':
        return hex(start, 8);
      case 'u': {
        const uint32_t code = hex(start, 4);
        if (code < 0xd800 || code >= 0xdc00 || !text_.substr(pos_).starts_with("\\u")) return code;
        const size_t second = pos_;
        pos_ += 2;
        const uint32_t low = hex(second, 4);
        if (low >= 0xdc00 && low < 0xe000)
          return 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
        pos_ = second;
        return code;
      }
      default:
        refuse(start,
               "unknown escape; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    }
  }

  uint32_t hex(size_t start, int digits) {
    uint32_t v = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = peek();
      uint32_t d = 0;
      if (c >= '0' && c <= '9')
        d = static_cast<uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        d = static_cast<uint32_t>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        d = static_cast<uint32_t>(c - 'A' + 10);
      else
        refuse(start, "the escape needs ", digits, " hexadecimal digits");
      v = v << 4 | d;
      ++pos_;
    }
    if (v > last_code_point) refuse(start, "the escape is beyond U+10FFFF");
    return v;
  }

  Rules& rules_;
  const std::string_view text_;
  size_t pos_ = 0;
  int32_t depth_ = 0;
  std::unordered_map<std::string_view, Name> names_;
  std::string_view missing_;
  Expr any_ = -1;
};

}  // namespace

void gbnf_rules(Rules& rules, std::string_view grammar) {
  if (grammar.size() > rules.limits().max_source)
    fail(Status::invalid_argument, "grammar: ", grammar.size(), " bytes; the limit is ",
         rules.limits().max_source);
  if (const size_t valid = utf8_valid_prefix(grammar); valid < grammar.size())
    fail(Status::invalid_argument, "grammar: byte ", valid, ": not valid UTF-8");
  Parser(rules, grammar).parse();
}

}  // namespace orlop
