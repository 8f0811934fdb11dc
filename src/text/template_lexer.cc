// The rules are those of Jinja's documentation (Template Designer Documentation, "Whitespace
// Control") and of its reference lexer, as far as they can be seen from outside.
#include "text/template_lexer.h"

#include <charconv>

#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // keep_trailing_newline is off
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), s_(source_) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) root();
    push(Tok::end, "");
    return std::move(out_);
  }

 private:
  bool ahead(std::string_view what, size_t at) const { return s_.substr(at, what.size()) == what; }
  bool ahead(std::string_view what) const { return ahead(what, at_); }

  // Moves to `to`, counting lines.
  void advance(size_t to) {
    for (size_t i = at_; i < to; ++i) line_ += s_[i] == '\n';
    line_starting_ = to > at_ && s_[to - 1] == '\n';
    at_ = to;
  }
  size_t skip_space(size_t at) const {
    while (at < s_.size() && is_space(char_at(s_, at))) at += char_bytes(s_, at);
    return at;
  }
  void push(Tok kind, std::string text) {
    Token t;
    t.kind = kind;
    t.line = line_;
    t.text = std::move(text);
    out_.push_back(std::move(t));
  }

  // Text up to the next tag, and the tag's opening.
  void root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= s_.size()) {
        push(Tok::data, std::string(s_.substr(at_)));
        return advance(s_.size());
      }
      if (s_[tag + 1] == '%' || s_[tag + 1] == '{' || s_[tag + 1] == '#') break;
    }
    const char type = s_[tag + 1];
    size_t after = tag + 2;
    char sign = 0;
    if (after < s_.size() && (s_[after] == '-' || s_[after] == '+')) sign = s_[after++];

    std::string_view text = s_.substr(at_, tag - at_);
    if (sign == '-') {
      while (!text.empty()) {
        size_t last = text.size() - 1;
        while (last && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
        if (!is_space(char_at(text, last))) break;
        text = text.substr(0, last);
      }
    } else if (sign != '+' && type != '{') {
      const size_t newline = text.rfind('\n');
      const size_t from = newline == std::string_view::npos ? 0 : newline + 1;
      if (from > 0 || line_starting_) {
        size_t i = from;
        while (i < text.size() && is_space(char_at(text, i))) i += char_bytes(text, i);
        if (i == text.size()) text = text.substr(0, from);
      }
    }
    if (!text.empty()) push(Tok::data, std::string(text));
    advance(tag);

    if (type == '%') {
      // {% raw %}: everything up to {% endraw %} is text.
      size_t i = skip_space(after);
      if (ahead("raw", i)) {
        i = skip_space(i + 3);
        if (ahead("-%}", i)) return raw(skip_space(i + 3));
        if (ahead("%}", i)) return raw(i + 2);
      }
      push(Tok::block_begin, "");
      advance(after);
      return code(true);
    }
    if (type == '#') return comment(after);
    push(Tok::variable_begin, "");
    advance(after);
    code(false);
  }

  void comment(size_t from) {
    const size_t end = s_.find("#}", from);
    if (end == std::string_view::npos) syntax_error(line_, "missing end of comment");
    size_t after = end + 2;
    const char sign = end > from ? s_[end - 1] : 0;
    if (sign == '-')
      after = skip_space(after);
    else if (sign != '+' && after < s_.size() && s_[after] == '\n')
      ++after;
    advance(after);
  }

  void raw(size_t from) {
    const uint32_t start_line = line_;
    advance(from);
    for (size_t tag = at_;; ++tag) {
      tag = s_.find("{%", tag);
      if (tag == std::string_view::npos) syntax_error(start_line, "missing end of raw block");
      size_t i = tag + 2;
      char sign = 0;
      if (i < s_.size() && (s_[i] == '-' || s_[i] == '+')) sign = s_[i++];
      i = skip_space(i);
      if (!ahead("endraw", i)) continue;
      i = skip_space(i + 6);
      size_t after;
      if (ahead("+%}", i))
        after = i + 3;
      else if (ahead("-%}", i))
        after = skip_space(i + 3);
      else if (ahead("%}", i))
        after = i + 2 + (i + 2 < s_.size() && s_[i + 2] == '\n');
      else
        continue;
      std::string_view text = s_.substr(at_, tag - at_);
      if (sign == '-') {
        size_t keep = text.size();
        while (keep) {
          size_t last = keep - 1;
          while (last && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
          if (!is_space(char_at(text, last))) break;
          keep = last;
        }
        text = text.substr(0, keep);
      } else if (sign != '+') {
        const size_t newline = text.rfind('\n');
        const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
        if ((start > 0 || line_starting_) && skip_space_in(text, start) == text.size())
          text = text.substr(0, start);
      }
      if (!text.empty()) push(Tok::data, std::string(text));
      return advance(after);
    }
  }
  static size_t skip_space_in(std::string_view t, size_t at) {
    while (at < t.size() && is_space(char_at(t, at))) at += char_bytes(t, at);
    return at;
  }

  // Tokens up to the end of the tag.
  void code(bool block) {
    std::string open;  // brackets that wait for their closing
    for (;;) {
      if (at_ >= s_.size()) {
        push(Tok::end, "");
        syntax_error(line_, "the template ends inside a tag");
      }
      if (open.empty() && end_of_tag(block)) return;
      const char c = s_[at_];
      if (is_space(char_at(s_, at_))) {
        advance(skip_space(at_));
      } else if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        size_t end = at_;
        while (end < s_.size() && is_name_char(s_[end])) ++end;
        push(Tok::name, std::string(s_.substr(at_, end - at_)));
        advance(end);
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        oper(open);
      }
    }
  }

  bool end_of_tag(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    size_t after;
    if (s_[at_] == '-' && ahead(close, at_ + 1))
      after = skip_space(at_ + 3);
    else if (block && s_[at_] == '+' && ahead(close, at_ + 1))
      after = at_ + 3;
    else if (ahead(close))
      after = at_ + 2 + (block && at_ + 2 < s_.size() && s_[at_ + 2] == '\n');
    else
      return false;
    push(block ? Tok::block_end : Tok::variable_end, "");
    advance(after);
    return true;
  }

  size_t digits(size_t at) const {  // \d+(_\d+)*
    while (at < s_.size() && is_digit(s_[at])) {
      ++at;
      if (at + 1 < s_.size() && s_[at] == '_' && is_digit(s_[at + 1])) ++at;
    }
    return at;
  }

  void number() {
    const bool after_dot = at_ > 0 && s_[at_ - 1] == '.';
    size_t end = digits(at_);
    bool real = false;
    if (!after_dot) {
      if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) {
        end = digits(end + 1);
        real = true;
      }
      if (end < s_.size() && (s_[end] == 'e' || s_[end] == 'E')) {
        size_t e = end + 1;
        if (e < s_.size() && (s_[e] == '+' || s_[e] == '-')) ++e;
        if (e < s_.size() && is_digit(s_[e])) {
          end = digits(e);
          real = true;
        }
      }
    }
    int base = 10;
    if (!real && s_[at_] == '0') {
      const char x = at_ + 1 < s_.size() ? static_cast<char>(s_[at_ + 1] | 0x20) : 0;
      base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
      const auto fits = [&](size_t i) {
        return i < s_.size() && hex_digit(s_[i]) >= 0 && hex_digit(s_[i]) < base;
      };
      if (base != 10) {
        size_t i = at_ + 2;
        const size_t first = i;
        while (fits(i) || (i < s_.size() && s_[i] == '_' && fits(i + 1))) ++i;
        if (i == first) base = 10;
        end = i;
        if (base == 10) end = at_ + 1;
      } else {  // a number does not start with 0
        end = at_ + 1;
        while (end < s_.size() && (s_[end] == '0' || (s_[end] == '_' && end + 1 < s_.size() &&
                                                      s_[end + 1] == '0')))
          ++end;
      }
    }
    std::string text;
    for (char c : s_.substr(at_, end - at_))
      if (c != '_') text += c;
    Token t;
    t.line = line_;
    if (real) {
      t.kind = Tok::real;
      const auto r = std::from_chars(text.data(), text.data() + text.size(), t.real);
      if (r.ec != std::errc()) t.real = strtod(text.c_str(), nullptr);
    } else {
      t.kind = Tok::integer;
      for (char c : base == 10 ? text : text.substr(2)) {
        if (__builtin_mul_overflow(t.integer, Int{base}, &t.integer) ||
            __builtin_add_overflow(t.integer, Int{hex_digit(c)}, &t.integer))
          unsupported(line_, "an integer beyond 128 bits");
      }
    }
    out_.push_back(std::move(t));
    advance(end);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) syntax_error(line_, "a string that does not end");
    push(Tok::string, unescape(s_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  std::string unescape(std::string_view t) const {
    std::string out;
    for (size_t i = 0; i < t.size();) {
      if (t[i] != '\\' || i + 1 >= t.size()) {
        out += t[i++];
        continue;
      }
      const char c = t[i + 1];
      i += 2;
      switch (c) {
        case '\n': break;
        case '\\': case '\'': case '"': out += c; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x': put_code(out, t, i, 2); break;
        case 'u': put_code(out, t, i, 4); break;
        case 'U': put_code(out, t, i, 8); break;
        case 'N': unsupported(line_, "\\N{} in a string");
        default:
          if (c >= '0' && c <= '7') {
            uint32_t v = static_cast<uint32_t>(c - '0');
            for (int k = 0; k < 2 && i < t.size() && t[i] >= '0' && t[i] <= '7'; ++k)
              v = v * 8 + static_cast<uint32_t>(t[i++] - '0');
            append_utf8(out, v);
          } else if (static_cast<unsigned char>(c) < 0x80) {
            out += '\\';
            out += c;
          } else {
            // The reference escapes the character first, so that the backslash meets its escape.
            const uint32_t cp = char_at(t, i - 1);
            char hex[16];
            std::snprintf(hex, sizeof hex,
                          cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x",
                          static_cast<unsigned>(cp));
            out += hex;
            i += char_bytes(t, i - 1) - 1;
          }
      }
    }
    return out;
  }

  void put_code(std::string& out, std::string_view t, size_t& i, int count) const {
    uint32_t v = 0;
    for (int k = 0; k < count; ++k, ++i) {
      const int d = i < t.size() ? hex_digit(t[i]) : -1;
      if (d < 0) syntax_error(line_, "a truncated escape in a string");
      v = v << 4 | static_cast<uint32_t>(d);
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
      syntax_error(line_, "an escape in a string that is no character");
    append_utf8(out, v);
  }

  void oper(std::string& open) {
    static constexpr std::string_view two[] = {"**", "//", "==", "!=", "<=", ">="};
    for (std::string_view op : two)
      if (ahead(op)) {
        push(Tok::op, std::string(op));
        return advance(at_ + 2);
      }
    const char c = s_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      syntax_error(line_, "unexpected character '", std::string(1, c), "'");
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        syntax_error(line_, "unexpected '", std::string(1, c), "'");
      open.pop_back();
    }
    push(Tok::op, std::string(1, c));
    advance(at_ + 1);
  }

  std::string source_;
  std::string_view s_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const RenderLimits& limits) {
  if (source.size() > limits.max_source)
    fail(Status::bad_format, "chat template: ", source.size(),
         " bytes of source, the limit is ", limits.max_source, " (max_source)");
  const size_t bad = bad_utf8(source);
  if (bad != std::string::npos)
    fail(Status::bad_format, "chat template: byte ", bad, " is not valid UTF-8");
  return Lexer(source).run();
}

std::string describe(const Token& t) {
  switch (t.kind) {
    case Tok::data: return "text";
    case Tok::variable_begin: return "'{{'";
    case Tok::variable_end: return "'}}'";
    case Tok::block_begin: return "'{%'";
    case Tok::block_end: return "'%}'";
    case Tok::string: return "a string";
    case Tok::integer:
    case Tok::real: return "a number";
    case Tok::end: return "the end of the template";
    case Tok::name:
    case Tok::op: break;
  }
  return "'" + t.text.substr(0, 60) + "'";
}

}  // namespace orlop::tmpl
