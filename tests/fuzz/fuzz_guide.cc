// Builds rules as the bytes say (a stack machine of expressions), compiles them for a small
// vocabulary and takes tokens as the rest of the bytes says. A grammar is refused with a typed
// error or works: masks are what taking each token says, no state is a dead end, and small grammars
// agree with the oracle.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "../text/guide_rig.h"

namespace {

using namespace orlop;
using namespace orlop::test;

const std::vector<std::string>& tokens() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> t;
    for (int b = 0; b < 256; ++b) t.push_back(std::string(1, static_cast<char>(b)));
    for (const char* more : {"ab", "aa", "abab", "ba", "\xc3\xa9", "\xc3\xa9\xc3", "\xe2\x82\xac",
                             "\xe2\x82", "b\xf0\x9f", "\x98\x80", "aaaaaaaa", ", \"", "</s>"})
      t.push_back(more);
    return t;
  }();
  return all;
}
const int32_t last = static_cast<int32_t>(tokens().size()) - 1;

struct Bytes {
  const uint8_t* at;
  const uint8_t* end;
  bool empty() const { return at == end; }
  uint32_t next() { return at == end ? 0 : *at++; }
};

// Whether the oracle can read the rules in reasonable time.
bool build(Rules& rules, Bytes& in) {
  constexpr CharRange ranges[] = {{'a', 'a'},       {'a', 'c'},       {0xe9, 0xea},
                                  {0x20, 0x7e},     {0x20ac, 0x20ac}, {0x1f600, 0x1f601},
                                  {0xd000, 0xe100}, {0, 0x10ffff}};
  constexpr const char* literals[] = {"a",  "b", "ab", "aba", "\xc3\xa9", "\xe2\x82\xac",
                                      "\"", ", "};
  constexpr int32_t counts[] = {0, 1, 2, 3, 5, 17, 40, 100'000};
  std::vector<Rules::Expr> stack{rules.empty()};
  const int32_t known = 4;
  for (int32_t r = 0; r < known; ++r) rules.declare("r" + std::to_string(r));
  bool small = true;
  while (!in.empty()) {
    const uint32_t op = in.next(), with = op >> 3;
    if (op == 0xff) break;
    const auto top = [&](size_t count) {
      count = std::min(count, stack.size());
      return std::vector<Rules::Expr>(stack.end() - static_cast<ptrdiff_t>(count), stack.end());
    };
    switch (op & 7) {
      case 0:
        stack.push_back(rules.literal(literals[with % 8]));
        break;
      case 1: {
        const CharRange two[] = {ranges[with % 8], ranges[in.next() % 8]};
        stack.push_back(rules.chars(two));
        break;
      }
      case 2:
        stack.push_back(rules.sequence(top(with % 6)));
        break;
      case 3:
        stack.push_back(rules.choice(top(with % 6)));
        break;
      case 4: {
        const int32_t least = counts[with % 8], more = counts[in.next() % 8];
        small &= least < 1000 && more < 1000;
        stack.push_back(
            rules.repeat(stack.back(), least, with >= 24 ? Rules::unbounded : least + more));
        break;
      }
      case 5:
        stack.push_back(rules.call(static_cast<int32_t>(with) % known));
        break;
      case 6: {
        const int32_t rule = static_cast<int32_t>(with) % known;
        if (rules.rules()[static_cast<size_t>(rule)].body < 0) rules.define(rule, stack.back());
        break;
      }
      case 7:
        if (stack.size() > 1) std::swap(stack.back(), stack[with % stack.size()]);
        break;
    }
  }
  for (int32_t r = 0; r < known; ++r)
    if (rules.rules()[static_cast<size_t>(r)].body < 0)
      rules.define(r, stack[static_cast<size_t>(r) % stack.size()]);
  rules.set_root(stack.back());
  return small && rules.nodes().size() <= 24;
}

void follow(Guide& guide, const TokenTrie& trie, Oracle* oracle, Bytes in) {
  Guide::State s = guide.start();
  std::string text;
  std::vector<uint32_t> mask(static_cast<size_t>(trie.words()));
  for (int step = 0; step < 8; ++step) {
    guide.mask(s, mask.data());
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < last; ++t) {
      Guide::State c = guide.copy(s);
      if (guide.push(c, t) != bit(mask, t)) std::abort();
      guide.release(c);
      if (bit(mask, t)) allowed.push_back(t);
      // Some of the single bytes: the oracle is slow.
      const bool asked = oracle && text.size() <= 5 && (t >= 256 || t % 16 == step % 16);
      if (!asked) continue;
      oracle->read(text + tokens()[static_cast<size_t>(t)]);
      if (oracle->prefix() != bit(mask, t)) std::abort();
    }
    if (oracle && text.size() <= 6) {
      oracle->read(text);
      if (oracle->whole() != guide.complete(s)) std::abort();
    }
    if (bit(mask, last) != guide.complete(s) || allowed.empty() != guide.exhausted(s)) std::abort();
    if (allowed.empty() && !guide.complete(s)) std::abort();
    if (allowed.empty()) break;
    const int32_t t = allowed[in.next() % allowed.size()];
    if (!guide.push(s, t)) std::abort();
    text += tokens()[static_cast<size_t>(t)];
  }
  guide.release(s);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const auto trie = TokenTrie::build(FakeTokenizer(tokens(), {last}),
                                            static_cast<int32_t>(tokens().size()), {last});
  Bytes in{bytes, bytes + std::min<size_t>(size, 4096)};
  GrammarLimits limits;
  limits.max_expressions = 4096;
  limits.max_states = 20'000;
  limits.max_compile_steps = 200'000;
  Rules rules(limits);
  try {
    const bool small = build(rules, in);
    const auto guide = Guide::create(rules, trie);
    if (small) {
      Oracle oracle(rules);
      if (!oracle.matches_any()) std::abort();
      follow(*guide, *trie, &oracle, in);
    } else {
      follow(*guide, *trie, nullptr, in);
    }
  } catch (const Error& e) {
    if (e.status() != Status::invalid_argument) std::abort();
  }
  return 0;
}
