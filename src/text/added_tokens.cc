#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop {

bool overlaps(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                       [&](const ByteRange& r) { return r.end <= begin; });
  return it != ranges.end() && it->begin < end && it->begin < it->end;
}

namespace {

bool is_space(uint32_t c) {  // White_Space
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool is_word(uint32_t c) {  // \w of UTS 18: alphabetic, mark, decimal number, connector
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200c || c == 0x200d;
  }
}

// The code point that ends at `pos` (> 0) and where it begins.
uint32_t code_before(std::string_view text, size_t pos, size_t& begin) {
  begin = pos - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return utf8_step(text, begin).code;
}

}  // namespace

void AddedMatcher::add(std::string_view text, const AddedToken& token) {
  if (text.empty() || text.size() > max_added_token_bytes)
    fail(Status::bad_format, "added token ", token.id, ": ", text.size(),
         " bytes of text, 1 to ", max_added_token_bytes, " are possible");
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    uint32_t next = i == 0 ? roots_[byte] : child(node, text[i]);
    if (!next) {
      next = static_cast<uint32_t>(nodes_.size());
      Node fresh;
      fresh.byte = text[i];
      if (i == 0) {
        roots_[byte] = next;
      } else {
        fresh.sibling = nodes_[node].first_child;
        nodes_[node].first_child = next;
      }
      nodes_.push_back(fresh);
    }
    node = next;
  }
  if (nodes_[node].token >= 0)
    fail(Status::bad_format, "added tokens ", tokens_[nodes_[node].token].id, " and ", token.id,
         " have the same text '", token.text, "'");
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.special, token.lstrip, token.rstrip, token.single_word});
  any_special_ |= token.special;
}

bool AddedMatcher::place(std::string_view text, const Entry& token, size_t done, size_t& begin,
                         size_t& end) {
  size_t before;
  if (token.single_word) {
    if (begin > 0 && is_word(code_before(text, begin, before))) return false;
    if (end < text.size() && is_word(utf8_step(text, end).code)) return false;
  }
  if (token.lstrip)
    while (begin > done && is_space(code_before(text, begin, before))) begin = before;
  if (token.rstrip) {
    while (end < text.size()) {
      const Utf8Step step = utf8_step(text, end);
      if (!is_space(step.code)) break;
      end += step.length;
    }
  }
  return true;
}

}  // namespace orlop
