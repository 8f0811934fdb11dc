// ECMA-262, sections 22.2.1 (AtomEscape, ClassEscape) and 22.2.2.9 (the sets of \d, \w, \s).
#include "text/grammar/regex_escape.h"

#include "text/utf8.h"

namespace orlop {
namespace {

const CharRanges digits = {{'0', '9'}};
const CharRanges word_characters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// WhiteSpace and LineTerminator.
const CharRanges white_space = {
    {0x9, 0xd},       {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Exactly n hexadecimal digits, or false and no move.
bool read_hex(RegexCursor& in, size_t n, uint32_t& value) {
  if (in.text.size() - in.pos < n) return false;
  uint32_t v = 0;
  for (size_t i = 0; i < n; ++i) {
    const int d = hex_value(in.text[in.pos + i]);
    if (d < 0) return false;
    v = v << 4 | static_cast<uint32_t>(d);
  }
  in.pos += n;
  value = v;
  return true;
}

// After \u. start: of the escape, for messages.
uint32_t read_unicode(RegexCursor& in, size_t start, bool in_class) {
  uint32_t code = 0;
  if (in.take('{')) {
    size_t n = 0;
    for (; !in.done() && hex_value(in.text[in.pos]) >= 0; ++in.pos, ++n) {
      code = code << 4 | static_cast<uint32_t>(hex_value(in.text[in.pos]));
      if (code > last_code_point) in.refuse(start, "\\u{...} is beyond U+10FFFF");
    }
    if (n == 0 || !in.take('}')) in.refuse(start, "\\u{ needs hexadecimal digits and }");
  } else {
    if (!read_hex(in, 4, code)) in.refuse(start, "\\u needs four hexadecimal digits, or {...}");
    if (code >= 0xd800 && code < 0xdc00 && in.at("\\u")) {
      RegexCursor second = in;
      second.pos += 2;
      uint32_t low = 0;
      if (read_hex(second, 4, low) && low >= 0xdc00 && low < 0xe000) {
        in = second;
        return 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
      }
    }
  }
  // Classes exclude or span them; no text has them, so they change nothing there.
  if (!in_class && code >= 0xd800 && code < 0xe000)
    in.refuse(start, "a lone surrogate is in no text");
  return code;
}

// After \p or \P.
RegexEscape read_property(RegexCursor& in, size_t start, bool negated) {
  if (!in.take('{')) in.refuse(start, "\\p and \\P need a name in braces, as in \\p{L}");
  const size_t begin = in.pos, end = in.text.find('}', begin);
  if (end == std::string_view::npos) in.refuse(start, "\\p{ has no }");
  const std::string_view name = in.text.substr(begin, end - begin);
  const CharRanges* set = unicode_property(name);
  if (!set)
    in.refuse(start, "\\p{", name.substr(0, utf8_valid_prefix(name.substr(0, 64))),
              "}: no Unicode property of this name");
  in.pos = end + 1;
  return {set, negated, 0};
}

}  // namespace

uint32_t read_code_point(RegexCursor& in) {
  const Utf8Step step = utf8_step(in.text, in.pos);
  in.pos += step.length;
  return step.code;
}

RegexEscape read_escape(RegexCursor& in, bool in_class) {
  const size_t start = in.pos++;
  if (in.done()) in.refuse(start, "a backslash at the end");
  const char c = in.text[in.pos];
  if (static_cast<uint8_t>(c) >= 0x80) return {nullptr, false, read_code_point(in)};
  ++in.pos;
  const auto one = [](uint32_t code) { return RegexEscape{nullptr, false, code}; };
  switch (c) {
    case 'd':
      return {&digits, false, 0};
    case 'D':
      return {&digits, true, 0};
    case 'w':
      return {&word_characters, false, 0};
    case 'W':
      return {&word_characters, true, 0};
    case 's':
      return {&white_space, false, 0};
    case 'S':
      return {&white_space, true, 0};
    case 'p':
      return read_property(in, start, false);
    case 'P':
      return read_property(in, start, true);
    case 't':
      return one('\t');
    case 'n':
      return one('\n');
    case 'v':
      return one('\v');
    case 'f':
      return one('\f');
    case 'r':
      return one('\r');
    case 'b':
      if (in_class) return one('\b');
      [[fallthrough]];
    case 'B':
      in.refuse(start, "word borders (\\b, \\B) are not supported");
    case '0':
      if (!in.done() && is_digit(in.text[in.pos]))
        in.refuse(start, "octal escapes are not supported, write \\x");
      return one(0);
    case 'c':
      if (in.done() || !is_letter(in.text[in.pos])) in.refuse(start, "\\c needs a letter");
      return one(static_cast<uint32_t>(in.text[in.pos++]) & 31);
    case 'x': {
      uint32_t code = 0;
      if (!read_hex(in, 2, code)) in.refuse(start, "\\x needs two hexadecimal digits");
      return one(code);
    }
    case 'u':
      return one(read_unicode(in, start, in_class));
    case 'U': {
      uint32_t code = 0;
      if (!read_hex(in, 8, code)) in.refuse(start, "\\U needs eight hexadecimal digits");
      if (code > last_code_point) in.refuse(start, "\\U is beyond U+10FFFF");
      if (!in_class && code >= 0xd800 && code < 0xe000)
        in.refuse(start, "a lone surrogate is in no text");
      return one(code);
    }
    case 'k':
      in.refuse(start, "back references (\\k) are not supported");
    case 'A':
      in.refuse(start, "\\A is not supported, write ^");
    case 'z':
    case 'Z':
      in.refuse(start, "\\", c, " is not supported, write $");
    default:
      break;
  }
  if (is_digit(c)) {
    if (in_class) in.refuse(start, "octal escapes are not supported, write \\x");
    in.refuse(start, "back references (\\", c, ") are not supported");
  }
  if (is_letter(c)) in.refuse(start, "unknown escape \\", c);
  return one(static_cast<uint8_t>(c));
}

}  // namespace orlop
