// Guides for models that have no words: every token is one or two letters.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/guide.h"
#include "text/guide_rig.h"

namespace orlop::test {

// Shared by all engines of a vocabulary, as an engine's requests share them. None has an end token: a
// text ends where nothing can follow.
inline const std::vector<std::shared_ptr<Guide>>& guides(int32_t vocab) {
  static std::map<int32_t, std::vector<std::shared_ptr<Guide>>> made;
  std::vector<std::shared_ptr<Guide>>& all = made[vocab];
  if (!all.empty()) return all;
  std::vector<std::string> texts;
  for (int32_t i = 0; i < vocab; ++i) {
    texts.push_back(std::string(1, static_cast<char>('a' + i % 26)));
    if (i >= 26) texts.back() += static_cast<char>('a' + i / 26 % 26);
  }
  const FakeTokenizer tokenizer(texts, {});
  const std::shared_ptr<const TokenTrie> trie = TokenTrie::build(tokenizer, vocab, {});
  const CharRange letter[] = {{'a', 'z'}}, vowel[] = {{'a', 'a'}, {'e', 'e'}, {'i', 'i'}, {'o', 'o'}};
  const auto add = [&](auto&& build) {
    Rules rules;
    rules.set_root(build(rules));
    all.push_back(Guide::create(rules, trie));
  };
  add([&](Rules& r) { return r.repeat(r.chars(letter), 24, 24); });
  add([&](Rules& r) {  // consonant-free words of a length, then z
    const Rules::Expr parts[] = {r.repeat(r.chars(vowel), 3, 20), r.literal("z")};
    return r.sequence(parts);
  });
  add([&](Rules& r) {  // s = "a" s "b" | "cc"
    const int32_t s = r.declare("s");
    const Rules::Expr nested[] = {r.literal("a"), r.call(s), r.literal("b")};
    const Rules::Expr either[] = {r.sequence(nested), r.literal("cc")};
    r.define(s, r.choice(either));
    return r.call(s);
  });
  return all;
}

}  // namespace orlop::test
