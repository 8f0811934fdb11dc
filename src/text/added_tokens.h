// Finds added tokens spelled in a text: leftmost, of those the longest, as Hugging Face does.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/spec.h"
#include "text/tokenizer.h"

namespace orlop {

constexpr size_t max_added_token_bytes = 1024;

// Whether [begin, end) meets one of the ranges (sorted, disjoint).
bool overlaps(std::span<const ByteRange> ranges, size_t begin, size_t end);

class AddedMatcher {
 public:
  struct Match {
    int32_t id;  // -1: the text between tokens
    size_t begin, end;
  };

  // `text` is what stands for the token in the texts that find() gets.
  void add(std::string_view text, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  bool any_special() const { return any_special_; }

  // Cuts `text` into tokens and the non-empty texts between. A special token counts only when
  // special(begin, end) says so.
  template <class Special>
  void find(std::string_view text, Special&& special, std::vector<Match>& out) const {
    size_t done = 0, pos = 0;
    while (pos < text.size()) {
      uint32_t node = roots_[static_cast<uint8_t>(text[pos])];
      int32_t best = -1;
      size_t end = pos;
      for (size_t i = pos + 1; node; ++i) {
        const int32_t t = nodes_[node].token;
        if (t >= 0 && (!tokens_[t].special || special(pos, i))) {
          best = t;
          end = i;
        }
        if (i == text.size()) break;
        node = child(node, text[i]);
      }
      if (best < 0) {
        ++pos;
        continue;
      }
      size_t begin = pos;
      pos = end;
      if (!place(text, tokens_[best], done, begin, end)) continue;
      if (begin > done) out.push_back({-1, done, begin});
      out.push_back({tokens_[best].id, begin, end});
      done = pos = end;
    }
    if (done < text.size()) out.push_back({-1, done, text.size()});
  }

 private:
  struct Node {
    uint32_t first_child = 0, sibling = 0;
    int32_t token = -1;
    char byte = 0;
  };
  struct Entry {
    int32_t id;
    bool special, lstrip, rstrip, single_word;
  };
  uint32_t child(uint32_t node, char byte) const {
    uint32_t c = nodes_[node].first_child;
    while (c && nodes_[c].byte != byte) c = nodes_[c].sibling;
    return c;
  }
  // Applies single_word, lstrip and rstrip; false: no match after all.
  static bool place(std::string_view text, const Entry& token, size_t done, size_t& begin,
                    size_t& end);
  uint32_t roots_[256] = {};
  std::vector<Node> nodes_{1};  // node 0 is "none"
  std::vector<Entry> tokens_;
  bool any_special_ = false;
};

}  // namespace orlop
