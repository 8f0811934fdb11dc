// Cuts a text into the pieces within which merges happen.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/spec.h"

namespace orlop {

struct Piece {
  size_t begin = 0, end = 0;
};

class Pretokenizer {
 public:
  // Compiles the patterns: Error(bad_format | unsupported) names the one that is wrong.
  explicit Pretokenizer(const std::vector<SplitRule>& rules);
  ~Pretokenizer();
  Pretokenizer(const Pretokenizer&) = delete;
  Pretokenizer& operator=(const Pretokenizer&) = delete;

  // `text` is UTF-8. Replaces `pieces` by the non-empty pieces in order. Thread-safe.
  // Error(unsupported) when a pattern passes the match limit.
  void split(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  struct Rule;
  std::vector<std::unique_ptr<Rule>> rules_;
};

// Oniguruma's syntax, as tokenizer.json uses it, in PCRE2's. Error(unsupported) names what has no
// counterpart.
std::string pcre2_pattern(std::string_view pattern);

// A pattern that matches just this text.
std::string quoted_pattern(std::string_view text);

}  // namespace orlop
