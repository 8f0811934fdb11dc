// A tokenizer of given tokens, helpers to build rules and ask guides, and an oracle that decides by
// brute force whether a text begins one of the language of some rules. The oracle shares no idea
// with the automaton: it fills tables over all expressions and positions until nothing changes.
#pragma once
#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../check.h"
#include "text/grammar/guide.h"
#include "text/utf8.h"

namespace orlop::test {

class FakeTokenizer final : public Tokenizer {
 public:
  FakeTokenizer(std::vector<std::string> tokens, std::set<int32_t> special)
      : tokens_(std::move(tokens)), special_(std::move(special)) {}
  std::vector<int32_t> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  std::string_view token_bytes(int32_t id, bool skip_special) const override {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) return {};
    return tokens_[static_cast<size_t>(id)];
  }
  bool is_special(int32_t id) const override { return special_.contains(id); }
  int32_t find(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  const TokenizerSpec& spec() const override { return spec_; }

 private:
  std::vector<std::string> tokens_;
  std::set<int32_t> special_;
  TokenizerSpec spec_;
};

// Whether the first bytes of a longer code point (a cut sequence) begin one of the ranges.
inline bool begins_one(std::string_view bytes, std::span<const CharRange> ranges) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const uint32_t want = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code = lead & (0x7fu >> want);
  for (size_t i = 1; i < bytes.size(); ++i)
    code = code << 6 | (static_cast<uint8_t>(bytes[i]) & 0x3fu);
  const auto open = 6 * (want - static_cast<uint32_t>(bytes.size()));
  const uint32_t least = want == 2 ? 0x80 : want == 3 ? 0x800 : 0x10000;
  const uint32_t first = std::max(code << open, least), last = (code << open) + (1u << open) - 1;
  for (const CharRange& r : ranges)
    if (r.first <= last && r.last >= first) return true;
  return false;
}

class Oracle {
 public:
  explicit Oracle(const Rules& rules) : rules_(rules), nodes_(rules.nodes()) {
    productive_.assign(nodes_.size(), false);
    for (bool more = true; more;) {
      more = false;
      for (size_t e = 0; e < nodes_.size(); ++e)
        if (!productive_[e] && produces(e)) productive_[e] = more = true;
    }
  }
  bool matches_any() const { return productive_[static_cast<size_t>(rules_.root())]; }
  void read(std::string_view text) {
    text_ = text;
    const size_t n = text.size() + 1;
    ends_.assign(nodes_.size() * n, std::vector<bool>(n, false));
    begins_.assign(nodes_.size() * n, false);
    for (bool more = true; more;) {
      more = false;
      for (size_t e = 0; e < nodes_.size(); ++e)
        for (size_t i = 0; i < n; ++i) more |= update(e, i);
    }
  }
  bool prefix() const {
    return begins_[static_cast<size_t>(rules_.root()) * (text_.size() + 1)] || whole();
  }
  bool whole() const {
    return ends_[static_cast<size_t>(rules_.root()) * (text_.size() + 1)][text_.size()];
  }

 private:
  size_t part(const Rules::Node& n, uint32_t i) const {
    return static_cast<size_t>(rules_.parts()[n.begin + i]);
  }
  size_t body(const Rules::Node& n) const {
    return static_cast<size_t>(rules_.rules()[static_cast<size_t>(n.a)].body);
  }
  bool produces(size_t e) const {
    const Rules::Node& n = nodes_[e];
    switch (n.kind) {
      case Rules::Kind::empty:
      case Rules::Kind::literal:
      case Rules::Kind::chars:
        return true;
      case Rules::Kind::sequence:
        for (uint32_t i = 0; i < n.count; ++i)
          if (!productive_[part(n, i)]) return false;
        return true;
      case Rules::Kind::choice:
        for (uint32_t i = 0; i < n.count; ++i)
          if (productive_[part(n, i)]) return true;
        return false;
      case Rules::Kind::repeat:
        return n.a == 0 || productive_[part(n, 0)];
      case Rules::Kind::call:
        return productive_[body(n)];
    }
    return false;
  }
  // Fills ends (where a match from i may end) and begins (the rest of the text begins a match that
  // needs more bytes).
  bool update(size_t e, size_t i) {
    const size_t n = text_.size() + 1;
    std::vector<bool> ends = ends_[e * n + i];
    bool begins = begins_[e * n + i];
    const Rules::Node& node = nodes_[e];
    const std::string_view rest = std::string_view(text_).substr(i);
    switch (node.kind) {
      case Rules::Kind::empty:
        ends[i] = true;
        break;
      case Rules::Kind::literal: {
        const auto text = std::string_view(rules_.bytes()).substr(node.begin, node.count);
        if (rest.starts_with(text)) ends[i + text.size()] = true;
        begins |= text.size() > rest.size() && text.starts_with(rest);
        break;
      }
      case Rules::Kind::chars: {
        const std::span ranges(rules_.ranges().data() + node.begin, node.count);
        if (rest.empty()) {
          begins = true;
          break;
        }
        const Utf8Step step = utf8_step(rest, 0);
        if (step.whole) {
          for (const CharRange& r : ranges)
            if (r.first <= step.code && step.code <= r.last) ends[i + step.length] = true;
        } else if (step.cut) {
          begins = begins || begins_one(rest, ranges);
        }
        break;
      }
      case Rules::Kind::sequence: {
        if (!productive_[e]) break;
        std::vector<bool> at(n, false);
        at[i] = true;
        for (uint32_t p = 0; p < node.count; ++p) {
          std::vector<bool> next(n, false);
          for (size_t j = i; j < n; ++j) {
            if (!at[j]) continue;
            begins |= begins_[part(node, p) * n + j];
            merge(next, ends_[part(node, p) * n + j]);
          }
          at = next;
        }
        merge(ends, at);
        break;
      }
      case Rules::Kind::choice:
        for (uint32_t p = 0; p < node.count; ++p) {
          if (!productive_[part(node, p)]) continue;
          merge(ends, ends_[part(node, p) * n + i]);
          begins |= begins_[part(node, p) * n + i];
        }
        break;
      case Rules::Kind::repeat: {
        if (!productive_[e]) break;
        const size_t p = part(node, 0);
        std::set<std::pair<size_t, int32_t>> seen;
        std::vector<std::pair<size_t, int32_t>> todo{{i, 0}};
        // Counts past what matters are as good as that.
        const int32_t cap = node.b == Rules::unbounded ? node.a : node.b;
        while (!todo.empty()) {
          const auto [j, c] = todo.back();
          todo.pop_back();
          if (!seen.insert({j, c}).second) continue;
          if (c >= node.a) ends[j] = true;
          if ((node.b != Rules::unbounded && c >= node.b) || !productive_[p]) continue;
          begins |= begins_[p * n + j];
          for (size_t k = j; k < n; ++k)
            if (ends_[p * n + j][k]) todo.push_back({k, std::min(c + 1, cap)});
        }
        break;
      }
      case Rules::Kind::call:
        merge(ends, ends_[body(node) * n + i]);
        begins |= begins_[body(node) * n + i];
        break;
    }
    if (ends == ends_[e * n + i] && begins == begins_[e * n + i]) return false;
    ends_[e * n + i] = ends;
    begins_[e * n + i] = begins;
    return true;
  }
  static void merge(std::vector<bool>& into, const std::vector<bool>& from) {
    for (size_t i = 0; i < into.size(); ++i)
      if (from[i]) into[i] = true;
  }

  const Rules& rules_;
  const std::vector<Rules::Node>& nodes_;
  std::vector<bool> productive_;
  std::string text_;
  std::vector<std::vector<bool>> ends_;  // [expressions, positions] -> [positions]
  std::vector<bool> begins_;             // [expressions, positions]
};

using Expr = Rules::Expr;
constexpr int32_t inf = Rules::unbounded;

inline double now_ms() {
  return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// All bytes as tokens of their own, then these; the last one ends.
inline std::shared_ptr<const TokenTrie> trie_of(std::vector<std::string> more,
                                                std::vector<std::string>* all, bool bytes = true) {
  std::vector<std::string> tokens;
  if (bytes)
    for (int b = 0; b < 256; ++b) tokens.push_back(std::string(1, static_cast<char>(b)));
  tokens.insert(tokens.end(), more.begin(), more.end());
  tokens.push_back("a");  // a control token, though its text would do
  tokens.push_back("</s>");
  const auto last = static_cast<int32_t>(tokens.size()) - 1;
  const FakeTokenizer tokenizer(tokens, {last - 1, last});
  if (all) *all = tokens;
  return TokenTrie::build(tokenizer, last + 3, {last});  // two rows of padding
}

inline bool bit(const std::vector<uint32_t>& mask, int32_t t) {
  return mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1;
}

inline std::vector<uint32_t> mask_of(Guide& g, Guide::State s, const TokenTrie& trie) {
  std::vector<uint32_t> mask(static_cast<size_t>(trie.words()), 0xdeadbeef);
  g.mask(s, mask.data());
  return mask;
}

// Takes the text? Whole: and it may end there.
inline bool takes(Guide& g, std::string_view text, bool whole = true) {
  Guide::State s = g.start();
  const bool ok = g.push_bytes(s, text) == text.size() && (!whole || g.complete(s));
  g.release(s);
  return ok;
}
inline bool begins(Guide& g, std::string_view text) {
  return takes(g, text, false);
}

struct Maker {
  Rules rules;
  Expr lit(std::string_view s) { return rules.literal(s); }
  Expr cls(std::vector<CharRange> r) { return rules.chars(r); }
  Expr seq(std::vector<Expr> p) { return rules.sequence(p); }
  Expr any(std::vector<Expr> p) { return rules.choice(p); }
  Expr rep(Expr e, int32_t a, int32_t b) { return rules.repeat(e, a, b); }
  std::shared_ptr<Guide> guide(Expr root, std::shared_ptr<const TokenTrie> trie = nullptr) {
    rules.set_root(root);
    return Guide::create(rules, std::move(trie));
  }
};

}  // namespace orlop::test
