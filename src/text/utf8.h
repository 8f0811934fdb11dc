// UTF-8, byte by byte (Unicode 15, table 3-7: well-formed sequences; chapter 3, "U+FFFD
// substitution of maximal subparts").
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orlop {

struct Utf8Step {
  uint32_t code = 0;     // the code point when whole
  uint32_t length = 0;   // bytes of the sequence, or of the maximal subpart when it is not whole
  bool whole = false;
  bool cut = false;      // not whole only because the text ends
};

inline Utf8Step utf8_step(std::string_view text, size_t pos) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(pos);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xc2 || lead > 0xf4) return {0, 1, false, false};
  const uint32_t want = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte is narrower after four leads: no overlong forms, surrogates, or code > 10FFFF.
  uint8_t low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  uint32_t code = lead & (0x7fu >> want);
  for (uint32_t i = 1; i < want; ++i) {
    if (pos + i >= text.size()) return {0, i, false, true};
    const uint8_t b = at(pos + i);
    if (b < low || b > high) return {0, i, false, false};
    code = code << 6 | (b & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  return {code, want, true, false};
}

// The offset of the first byte that does not belong to UTF-8, or text.size().
inline size_t utf8_valid_prefix(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    if (static_cast<uint8_t>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Step step = utf8_step(text, pos);
    if (!step.whole) break;
    pos += step.length;
  }
  return pos;
}

inline void utf8_append(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t b) { out.push_back(static_cast<char>(b)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

constexpr std::string_view utf8_replacement = "\xef\xbf\xbd";  // U+FFFD
constexpr std::string_view escaped_space = "\xe2\x96\x81";     // U+2581

}  // namespace orlop
