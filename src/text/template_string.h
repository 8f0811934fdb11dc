// String operations of the chat-template language, in code points as Python counts them; each keeps
// the marks of the bytes it copies.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_value.h"

namespace orlop::tmpl {

// Bytes of the character that starts at `at` (valid UTF-8).
inline size_t char_bytes(std::string_view t, size_t at) {
  const unsigned char c = static_cast<unsigned char>(t[at]);
  const size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
  return n < t.size() - at ? n : t.size() - at;
}
uint32_t char_at(std::string_view t, size_t at);  // its code point
size_t count_chars(std::string_view t);
size_t byte_of_char(std::string_view t, size_t chars);  // clipped to the end
void append_utf8(std::string& out, uint32_t cp);
size_t bad_utf8(std::string_view t);  // first wrong byte, or npos
bool is_space(uint32_t cp);      // as str.isspace
bool is_printable(uint32_t cp);  // as str.isprintable

// Says for growing byte positions whether they are untrusted.
class MarkCursor {
 public:
  explicit MarkCursor(const Str& s) : s_(s) {}
  bool untrusted(size_t byte) {
    while (at_ < s_.marks.size() && s_.marks[at_].end <= byte) ++at_;
    return at_ < s_.marks.size() && s_.marks[at_].begin <= byte;
  }

 private:
  const Str& s_;
  size_t at_ = 0;
};

// Linear in hay + needle in the worst case.
size_t find_bytes(std::string_view hay, std::string_view needle, size_t from);
size_t rfind_bytes(std::string_view hay, std::string_view needle);  // last occurrence

enum class Side { both, left, right };
// chars null: white space.
Value strip(Run& run, const Value& s, const Str* chars, Side side);
// sep null: runs of white space. max < 0: no limit.
Value split(Run& run, const Value& s, const Str* sep, int64_t max, bool from_right);
Value split_lines(Run& run, const Value& s, bool keep_ends);
Value replace(Run& run, const Value& s, const Str& from, const Str& to, int64_t max);
Value join(Run& run, const Str& sep, const std::vector<Value>& parts);  // parts: strings
Value partition(Run& run, const Value& s, const Str& sep, bool from_right);
Value repeat(Run& run, const Value& s, Int times);
Value slice_string(Run& run, const Value& s, int64_t start, int64_t step, int64_t count);
Value reverse_string(Run& run, const Value& s);
Value escape_html(Run& run, const Value& s);

enum class Case { upper, lower, title, capitalize, swap, casefold, title_words };
Value change_case(Run& run, const Value& s, Case how);

enum class CharTest { alpha, digit, decimal, numeric, alnum, space, lower, upper, ascii, printable };
bool all_chars(Run& run, std::string_view t, CharTest test);

}  // namespace orlop::tmpl
