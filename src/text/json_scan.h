// A pull reader of JSON for the two long members of tokenizer.json (vocab and merges), which take
// most of a start when they become a document tree first. Everything else goes through base/json.h.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop {

class JsonScan {
 public:
  JsonScan(std::string_view text, const char* what) : text_(text), what_(what) {}

  size_t pos() const { return pos_; }
  char peek() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n' ||
                                   text_[pos_] == '\r' || text_[pos_] == '\t'))
      ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong(cat("'", c, "' is missing"));
  }
  // Calls item() at the start of each element or key until the closing bracket is taken.
  template <class Item>
  void items(char open, char close, Item&& item) {
    expect(open);
    if (take(close)) return;
    do item();
    while (take(','));
    expect(close);
  }
  void string(std::string& out) {
    expect('"');
    out.clear();
    for (;;) {
      const size_t start = pos_;
      while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\\' &&
             static_cast<uint8_t>(text_[pos_]) >= 0x20)
        ++pos_;
      out.append(text_, start, pos_ - start);
      if (pos_ == text_.size()) wrong("a string has no end");
      const char c = text_[pos_];
      if (c == '"') break;
      if (c != '\\') wrong("a control character in a string");
      ++pos_;
      escape(out);
    }
    ++pos_;
    if (utf8_valid_prefix(out) != out.size()) wrong("a string is not UTF-8");
  }
  int64_t integer() {
    const bool negative = take('-');
    peek();
    const size_t start = pos_;
    int64_t value = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9' && pos_ - start < 16)
      value = value * 10 + (text_[pos_++] - '0');
    const char c = pos_ < text_.size() ? text_[pos_] : ',';
    const bool ends = c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' ||
                      c == '\t';
    if (pos_ == start || !ends) wrong("an integer is expected");
    return negative ? -value : value;
  }
  // Over one value of any kind; what is inside is not checked beyond its brackets and strings.
  void skip() {
    size_t depth = 0;
    do {
      const char c = peek();
      if (pos_ == text_.size()) wrong("the text ends too early");
      if (c == '"') {
        string(scratch_);
      } else if (c == '{' || c == '[') {
        ++depth;
        ++pos_;
        continue;
      } else if (c == '}' || c == ']') {
        if (depth == 0) wrong("a bracket that closes nothing");
        --depth;
        ++pos_;
      } else if (c == ',' || c == ':') {
        if (depth == 0) wrong("a value is missing");
        ++pos_;
        continue;
      } else {
        while (pos_ < text_.size() && std::string_view(",:]}[{\" \n\r\t").find(text_[pos_]) == std::string_view::npos)
          ++pos_;
      }
    } while (depth > 0);
  }
  [[noreturn]] void wrong(std::string_view why) const {
    fail(Status::bad_format, what_, ": ", why, " at byte ", pos_);
  }

 private:
  uint32_t hex4() {
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i, ++pos_) {
      const char c = pos_ < text_.size() ? text_[pos_] : '\0';
      uint32_t d;
      if (c >= '0' && c <= '9')
        d = static_cast<uint32_t>(c - '0');
      else if ((c | 32) >= 'a' && (c | 32) <= 'f')
        d = static_cast<uint32_t>((c | 32) - 'a' + 10);
      else
        wrong("\\u without four hexadecimal digits");
      v = v << 4 | d;
    }
    return v;
  }
  void escape(std::string& out) {
    const char c = pos_ < text_.size() ? text_[pos_++] : '\0';
    switch (c) {
      case '"': case '\\': case '/': out += c; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': break;
      default: wrong("an unknown escape");
    }
    uint32_t code = hex4();
    if (code >= 0xd800 && code < 0xdc00) {
      if (!text_.substr(pos_).starts_with("\\u")) wrong("half a surrogate pair");
      pos_ += 2;
      const uint32_t low = hex4();
      if (low < 0xdc00 || low > 0xdfff) wrong("half a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
      wrong("half a surrogate pair");
    }
    utf8_append(out, code);
  }

  std::string_view text_;
  const char* what_;
  size_t pos_ = 0;
  std::string scratch_;
};

}  // namespace orlop
