// The tokens of a vocabulary as a tree of their bytes, and what may be known of them for any
// grammar.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/guide.h"
#include "text/grammar/guide_program.h"

namespace orlop {

// Nodes in the order of their texts, each before those below it; the root is left out.
struct TokenTree {
  struct Node {
    uint32_t skip;    // the first node that is not below this one
    uint32_t tokens;  // its tokens: in `tokens`, up to those of the node after it
    uint16_t depth;   // bytes of its text, at least 1
    uint8_t byte;     // the last of them
  };
  std::vector<Node> nodes;  // and one more, where the tokens end
  std::vector<int32_t> tokens;
  uint32_t depth = 0;  // of the deepest

  size_t size() const { return nodes.size() - 1; }
  size_t bytes() const {
    return nodes.capacity() * sizeof(Node) + tokens.capacity() * sizeof(int32_t);
  }
};

// The tokens that consist of whole characters of one class, and the tree of all others.
struct PlainTokens {
  static constexpr uint8_t most_characters = 126;
  std::vector<CharRange> ranges;
  std::vector<uint8_t>
      count;  // of each token: its characters; more than most: it is among the others
  std::vector<uint32_t> all;  // a mask of those that are plain
  TokenTree others;
  size_t bytes() const;
  // Sets the bits of the plain tokens of at most `most` characters.
  void add(uint32_t most, uint32_t* mask) const;
};

class TokenTrieImpl final : public TokenTrie {
 public:
  TokenTrieImpl(const Tokenizer& tokenizer, int32_t vocab, std::vector<int32_t> end_tokens);

  int32_t vocab() const override { return vocab_; }
  size_t bytes() const override;

  const TokenTree& tree() const { return tree_; }
  // "" for tokens that no text holds.
  std::string_view text(int32_t token) const {
    const size_t t = static_cast<size_t>(token);
    return std::string_view(text_).substr(begin_[t], begin_[t + 1] - begin_[t]);
  }
  std::span<const int32_t> end_tokens() const { return end_tokens_; }
  bool is_end(int32_t token) const;
  // Null when every text can be written.
  const Spelling* spelling() const { return spelling_.get(); }
  // Built at the first call for these ranges; the last few are kept.
  std::shared_ptr<const PlainTokens> plain(const std::vector<CharRange>& ranges) const;

 private:
  TokenTree make_tree(std::span<const int32_t> sorted) const;
  std::shared_ptr<PlainTokens> make_plain(const std::vector<CharRange>& ranges) const;

  int32_t vocab_;
  std::vector<int32_t> end_tokens_;  // sorted
  std::string text_;
  std::vector<uint32_t> begin_;
  std::vector<int32_t> sorted_;  // tokens that take part, by their bytes
  TokenTree tree_;
  std::unique_ptr<Spelling> spelling_;
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const PlainTokens>> plain_;  // last used first
};

}  // namespace orlop
