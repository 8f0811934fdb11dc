#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop {
namespace {

// Everything below U+0300 is its own NFC and never changes what stands before it.
bool surely_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

void compose(std::string_view chunk, std::vector<utf8proc_int32_t>& codes, std::string& out) {
  codes.clear();
  for (size_t pos = 0; pos < chunk.size();) {
    const Utf8Step step = utf8_step(chunk, pos);
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.code), parts, 32,
                                UTF8PROC_DECOMPOSE, &boundary);
    if (n < 0 || n > 32) fail(Status::internal, "NFC: U+", step.code, " does not decompose");
    codes.insert(codes.end(), parts, parts + n);
    pos += step.length;
  }
  // The canonical order, here and not by utf8proc, whose exchange sort is quadratic in the marks.
  const auto ccc = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < codes.size();) {
    size_t end = i;
    while (end < codes.size() && ccc(codes[end])) ++end;
    if (end - i > 1)
      std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(i),
                       codes.begin() + static_cast<ptrdiff_t>(end),
                       [&](auto a, auto b) { return ccc(a) < ccc(b); });
    i = end + (end == i);
  }
  const utf8proc_ssize_t n = utf8proc_normalize_utf32(
      codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) fail(Status::internal, "NFC: ", utf8proc_errmsg(n));
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    utf8_append(out, static_cast<uint32_t>(codes[static_cast<size_t>(i)]));
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& buffer, std::vector<ByteRange>* origin) {
  if (surely_nfc(text)) {
    if (origin) {
      origin->clear();
      for (size_t i = 0; i < text.size(); ++i) origin->push_back({i, i + 1});
    }
    return text;
  }
  buffer.clear();
  buffer.reserve(text.size() + 16);
  if (origin) origin->clear();
  std::vector<utf8proc_int32_t> codes;
  const auto is_low = [&](size_t i) { return static_cast<uint8_t>(text[i]) < 0xcc; };
  const auto is_start = [&](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xc0) != 0x80; };
  size_t pos = 0;
  while (pos < text.size()) {
    // One character below U+0300 (if there is one) and all above that follow belong together.
    size_t end = pos + 1;
    while (end < text.size() && !is_start(end)) ++end;
    const bool low_first = is_low(pos);
    const size_t first_end = end;
    while (end < text.size() && (!is_start(end) || !is_low(end))) ++end;
    if (low_first && end == first_end)
      buffer.append(text, pos, end - pos);
    else
      compose(text.substr(pos, end - pos), codes, buffer);
    if (origin) origin->resize(buffer.size(), ByteRange{pos, end});
    pos = end;
  }
  return buffer;
}

std::string_view escape_spaces(std::string_view text, bool prefix, std::string& buffer,
                               std::vector<ByteRange>* origin) {
  buffer.clear();
  buffer.reserve(text.size() + text.size() / 2 + 3);
  if (origin) origin->clear();
  if (prefix) buffer += escaped_space;
  if (origin) origin->resize(buffer.size(), ByteRange{0, 0});
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ')
      buffer += escaped_space;
    else
      buffer += text[i];
    if (origin) origin->resize(buffer.size(), ByteRange{i, i + 1});
  }
  return buffer;
}

}  // namespace orlop
