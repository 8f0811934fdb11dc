// JSON's texts: RFC 8259.
#include "text/grammar/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop::schema {
namespace {

constexpr int32_t max_indent = 32;
constexpr int32_t max_trie_levels =
    64;  // then plain alternatives: expressions must not nest deeply

// The character after the backslash, or 0.
char short_escape(uint32_t code) {
  switch (code) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

bool must_escape(uint32_t code) {
  return code < 0x20 || code == '"' || code == '\\';
}

Expr escaped_or_raw(Rules& rules, std::span<const CharRange> ranges, bool key) {
  std::vector<CharRange> raw, shorts;
  std::array<std::vector<CharRange>, 2> low;  // the last hex digits of \u000x and \u001x
  for (const CharRange& r : ranges) {
    uint32_t next = r.first;
    for (uint32_t code = r.first; code <= r.last && code <= '\\'; ++code) {
      if (code == '/' && !key) shorts.push_back({'/', '/'});
      if (!must_escape(code)) continue;
      if (code > next) raw.push_back({next, code - 1});
      next = code + 1;
      const char c = short_escape(code);
      if (c) shorts.push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
      if (code < 0x20 && !(key && c)) {
        const uint32_t digit = code % 16;
        std::vector<CharRange>& digits = low[code / 16];
        if (digit < 10) {
          digits.push_back({'0' + digit, '0' + digit});
        } else {
          digits.push_back({'a' + digit - 10, 'a' + digit - 10});
          if (!key) digits.push_back({'A' + digit - 10, 'A' + digit - 10});
        }
      }
    }
    if (next <= r.last) raw.push_back({next, r.last});
  }
  std::vector<Expr> all, escapes;
  if (!raw.empty()) all.push_back(rules.chars(raw));
  if (!shorts.empty()) escapes.push_back(rules.chars(shorts));
  for (size_t i = 0; i < 2; ++i) {
    if (low[i].empty()) continue;
    const Expr parts[] = {rules.literal(i ? "u001" : "u000"), rules.chars(low[i])};
    escapes.push_back(rules.sequence(parts));
  }
  if (!escapes.empty()) {
    const Expr parts[] = {rules.literal("\\"),
                          escapes.size() == 1 ? escapes[0] : rules.choice(escapes)};
    all.push_back(rules.sequence(parts));
  }
  return all.size() == 1 ? all[0] : rules.choice(all);
}

}  // namespace

Expr string_chars(Rules& rules, std::span<const CharRange> ranges) {
  return escaped_or_raw(rules, ranges, false);
}

Expr key_chars(Rules& rules, std::span<const CharRange> ranges) {
  return escaped_or_raw(rules, ranges, true);
}

std::string string_text(std::string_view text) {
  static const char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const uint8_t code = static_cast<uint8_t>(c);
    if (!must_escape(code)) {
      out.push_back(c);
    } else if (const char s = short_escape(code)) {
      out.push_back('\\');
      out.push_back(s);
    } else {
      out += "\\u00";
      out.push_back(hex[code / 16]);
      out.push_back(hex[code % 16]);
    }
  }
  out.push_back('"');
  return out;
}

std::string double_text(double value) {
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view all(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = all.find('e');
  std::string digits;
  for (const char c : all.substr(0, e))
    if (c >= '0' && c <= '9') digits.push_back(c);
  const int exponent = std::stoi(std::string(all.substr(e + 1)));
  std::string out = value < 0 ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (count > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const int size = std::abs(exponent);
    if (size < 10) out.push_back('0');
    return out + std::to_string(size);
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

JsonText::JsonText(Rules& rules) : rules_(rules) {
  newline_ = named("json.newline", [&] {
    return sequence(
        std::array{rules_.literal("\n"), rules_.repeat(rules_.literal(" "), 0, max_indent)});
  });
  comma_ =
      sequence(std::array{rules_.literal(","), optional(choice({rules_.literal(" "), newline_}))});
  colon_ = sequence(std::array{rules_.literal(":"), optional(rules_.literal(" "))});
  const CharRange every[] = {{0, max_code}};
  string_char_ = string_chars(rules_, every);
}

Expr JsonText::sequence(std::span<const Expr> parts) {
  if (std::ranges::find(parts, nothing) != parts.end()) return nothing;
  if (parts.empty()) return rules_.empty();
  return parts.size() == 1 ? parts[0] : rules_.sequence(parts);
}

Expr JsonText::choice(std::vector<Expr> parts) {
  std::erase(parts, nothing);
  if (parts.empty()) return nothing;
  return parts.size() == 1 ? parts[0] : rules_.choice(parts);
}

Expr JsonText::optional(Expr part) {
  return part == nothing ? rules_.empty() : rules_.repeat(part, 0, 1);
}

Expr JsonText::one_of(std::vector<std::string>& texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? nothing : trie(texts, 0, 0);
}

// The texts share their first `depth` bytes: what may follow these.
Expr JsonText::trie(std::span<const std::string> texts, size_t depth, int32_t level) {
  const std::string& first = texts.front();
  if (texts.size() == 1) return rules_.literal(std::string_view(first).substr(depth));
  std::vector<Expr> ways;
  if (level == max_trie_levels) {
    for (const std::string& t : texts)
      ways.push_back(rules_.literal(std::string_view(t).substr(depth)));
    return choice(std::move(ways));
  }
  size_t i = 0;
  if (first.size() == depth) {
    ways.push_back(rules_.empty());
    i = 1;
  }
  while (i < texts.size()) {
    size_t end = i + 1;
    while (end < texts.size() && texts[end][depth] == texts[i][depth]) ++end;
    // Sorted: what the first and the last of them share, all do.
    const std::string &low = texts[i], &high = texts[end - 1];
    size_t shared = depth + 1;
    while (shared < low.size() && shared < high.size() && low[shared] == high[shared]) ++shared;
    if (end - i == 1) shared = low.size();
    const Expr head = rules_.literal(std::string_view(low).substr(depth, shared - depth));
    const auto group = texts.subspan(i, end - i);
    ways.push_back(group.size() == 1 ? head
                                     : sequence(std::array{head, trie(group, shared, level + 1)}));
    i = end;
  }
  return choice(std::move(ways));
}

Expr JsonText::open(char bracket) {
  return sequence(std::array{rules_.literal(std::string_view(&bracket, 1)), optional(newline_)});
}

Expr JsonText::close(char bracket) {
  return sequence(std::array{optional(newline_), rules_.literal(std::string_view(&bracket, 1))});
}

// Several schemas may be put into one grammar (tools): they share these rules.
Expr JsonText::named(const char* name, const std::function<Expr()>& body) {
  if (const auto it = named_.find(name); it != named_.end()) return it->second;
  const auto& all = rules_.rules();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return named_[name] = rules_.call(static_cast<int32_t>(i));
  const int32_t rule = rules_.declare(name);
  const Expr call = named_[name] = rules_.call(rule);
  rules_.define(rule, body());
  return call;
}

Expr JsonText::value() {
  return named("json.value", [&] {
    return choice({object(), array(), string(), number(), rules_.literal("true"),
                   rules_.literal("false"), rules_.literal("null")});
  });
}

// The white space inside comes with a first member alone.
Expr JsonText::object() {
  return named("json.object", [&] {
    const Expr member = sequence(std::array{key(), colon_, value()});
    const Expr some[] = {optional(newline_), member,
                         rules_.repeat(sequence(std::array{comma_, member}), 0, Rules::unbounded),
                         optional(newline_)};
    return sequence(std::array{rules_.literal("{"), optional(sequence(some)), rules_.literal("}")});
  });
}

Expr JsonText::array() {
  return named("json.array", [&] {
    const Expr item = value();
    const Expr some[] = {optional(newline_), item,
                         rules_.repeat(sequence(std::array{comma_, item}), 0, Rules::unbounded),
                         optional(newline_)};
    return sequence(std::array{rules_.literal("["), optional(sequence(some)), rules_.literal("]")});
  });
}

Expr JsonText::string() {
  return named("json.string", [&] {
    return sequence(std::array{rules_.literal("\""),
                               rules_.repeat(string_char_, 0, Rules::unbounded),
                               rules_.literal("\"")});
  });
}

Expr JsonText::key() {
  return named("json.key", [&] {
    const CharRange every[] = {{0, max_code}};
    return sequence(std::array{rules_.literal("\""),
                               rules_.repeat(key_chars(rules_, every), 0, Rules::unbounded),
                               rules_.literal("\"")});
  });
}

Expr JsonText::integer() {
  return named("json.integer", [&] {
    const CharRange one_nine[] = {{'1', '9'}}, digit[] = {{'0', '9'}};
    const Expr some[] = {optional(rules_.literal("-")), rules_.chars(one_nine),
                         rules_.repeat(rules_.chars(digit), 0, max_digits - 1)};
    return choice({rules_.literal("0"), sequence(some)});
  });
}

Expr JsonText::number() {
  return named("json.number", [&] {
    const auto digits = [&](char first, char last) {
      const CharRange range[] = {{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}};
      return rules_.chars(range);
    };
    const auto text = [&](const char* t) { return rules_.literal(t); };
    const Expr digit = digits('0', '9'), zero = text("0");
    const Expr point =
        optional(sequence(std::array{text("."), rules_.repeat(digit, 1, max_digits)}));
    const Expr whole = choice(
        {zero, sequence(std::array{digits('1', '9'), rules_.repeat(digit, 0, max_digits - 1)})});
    // Up to 99 with leading zeros; then to the last power of ten that every double with one digit
    // before the point has, and down to where doubles become 0.
    const Expr small = sequence(std::array{optional(zero), rules_.repeat(digit, 1, 2)});
    const Expr hundreds = sequence(std::array{digits('1', '2'), digit, digit});
    const Expr up = choice({small, hundreds, sequence(std::array{text("30"), digits('0', '7')})});
    const Expr down =
        choice({small, hundreds, sequence(std::array{text("3"), digits('0', '1'), digit}),
                sequence(std::array{text("32"), digits('0', '4')})});
    const CharRange e[] = {{'e', 'e'}, {'E', 'E'}};
    const Expr power = choice(
        {sequence(std::array{optional(text("+")), up}), sequence(std::array{text("-"), down})});
    return sequence(std::array{
        optional(text("-")), choice({sequence(std::array{whole, point}),
                                     sequence(std::array{digit, point, rules_.chars(e), power})})});
  });
}

Expr JsonText::literal(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::string:
      return rules_.literal(string_text(value.get_ref<const std::string&>()));
    case OrderedJson::value_t::number_float: {
      // 2.0 is 2 in JSON Schema, and programs write either.
      const double number = value.get<double>();
      const std::string text = double_text(number);
      if (!text.ends_with(".0")) return rules_.literal(text);
      const std::string whole = text.substr(text[0] == '-' && number == 0 ? 1 : 0);
      std::vector<std::string> texts = {text, whole.substr(0, whole.size() - 2)};
      return one_of(texts);
    }
    case OrderedJson::value_t::object:
    case OrderedJson::value_t::array: {
      const bool object = value.is_object();
      if (value.empty()) return rules_.literal(object ? "{}" : "[]");
      std::vector<Expr> parts = {open(object ? '{' : '[')};
      for (auto it = value.begin(); it != value.end(); ++it) {
        if (parts.size() > 1) parts.push_back(comma_);
        if (object) {
          parts.push_back(rules_.literal(string_text(it.key())));
          parts.push_back(colon_);
        }
        parts.push_back(literal(it.value()));
      }
      parts.push_back(close(object ? '}' : ']'));
      return sequence(parts);
    }
    default:
      return rules_.literal(value.dump());
  }
}

}  // namespace orlop::schema
