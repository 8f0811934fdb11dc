// What guides cost and how much they hold: refusals, rules made to cost much, masks of strings,
// memory, references and threads.
#include <cstdlib>
#include <iterator>
#include <thread>

#include "guide_rig.h"
#include "text/grammar/guide.h"

using namespace orlop;
using namespace orlop::test;

TEST(refusals) {
  CHECK_THROWS(invalid_argument, "no root", Guide::create(Rules(), nullptr));
  CHECK_THROWS(invalid_argument, "rule 'gone' is not defined", {
    Maker m;
    m.guide(m.rules.call(m.rules.declare("gone")));
  });
  CHECK_THROWS(invalid_argument, "rule 'x' calls itself without end", {
    Maker m;
    const auto x = m.rules.declare("x");
    m.rules.define(x, m.seq({m.lit("a"), m.rules.call(x)}));
    m.guide(m.rules.call(x));
  });
  CHECK_THROWS(invalid_argument, "no text matches", {
    Maker m;
    m.guide(m.seq({m.lit("a"), m.cls({{0xd800, 0xdfff}})}));
  });
  CHECK_THROWS(invalid_argument, "max_compile_steps", {
    GrammarLimits limits;
    limits.max_compile_steps = 1000;
    Rules rules(limits);
    std::vector<Expr> parts;
    for (int i = 0; i < 2000; ++i) parts.push_back(rules.literal("ab"));
    rules.set_root(rules.sequence(parts));
    Guide::create(rules, nullptr);
  });
  CHECK_THROWS(invalid_argument, "max_states", {
    GrammarLimits limits;
    limits.max_states = 1000;
    Rules rules(limits);
    std::vector<Expr> parts;
    for (int i = 0; i < 2000; ++i) parts.push_back(rules.literal("ab"));
    rules.set_root(rules.sequence(parts));
    Guide::create(rules, nullptr);
  });
  CHECK_THROWS(invalid_argument, "max_expressions", {
    GrammarLimits limits;
    limits.max_expressions = 10;
    Rules rules(limits);
    for (int i = 0; i < 11; ++i) rules.empty();
  });
  Rules rules;
  const Expr a = rules.literal("a");
  const int32_t r = rules.declare("r");
  rules.define(r, a);
  CHECK_THROWS(invalid_argument, "defined twice", rules.define(r, a));
  CHECK_THROWS(invalid_argument, "no rule", rules.call(7));
  CHECK_THROWS(invalid_argument, "no expression", rules.repeat(99, 0, 1));
  CHECK_THROWS(invalid_argument, "repetition", rules.repeat(a, 3, 2));
  CHECK_THROWS(invalid_argument, "repetition", rules.repeat(a, -1, 2));
  rules.set_root(a);
  const auto g = Guide::create(rules, nullptr);
  uint32_t word = 0;
  const Guide::State s = g->start();
  CHECK_THROWS(invalid_argument, "without a vocabulary", g->mask(s, &word));
  g->release(s);
  CHECK_THROWS(invalid_argument, "not one that was given out", g->copy({12345}));
  CHECK_THROWS(invalid_argument, "not one that was given out", g->complete({0}));
}

// Sources made to cost much: each is done, or refused, in milliseconds.
TEST(hostile_rules) {
  const auto within = [](const char* what, double ms, auto&& f) {
    const double start = now_ms();
    try {
      f();
    } catch (const Error& e) {
      CHECK(e.status() == Status::invalid_argument);
    }
    const double took = now_ms() - start;
    // Sanitizers and unoptimized builds are slow.
    if (std::getenv("ORLOP_TEST_TIMES")) std::printf("  %s: %.1f ms\n", what, took);
    if (took > ms * (is_short() ? 20 : 1)) std::fprintf(stderr, "  %s: %.1f ms\n", what, took);
    CHECK(took <= ms * (is_short() ? 20 : 1));
  };
  within("nested sequences", 200, [] {
    Maker m;
    Expr e = m.lit("a");
    for (int i = 0; i < 100'000; ++i) e = m.any({m.seq({e, m.rules.empty()}), m.rules.empty()});
    CHECK(takes(*m.guide(e), "a"));
  });
  within("doubled sequences", 20, [] {
    Maker m;
    Expr e = m.lit("a");
    for (int i = 0; i < 16; ++i) e = m.seq({e, e});
    CHECK(takes(*m.guide(e), std::string(1 << 16, 'a')));
  });
  within("sixty-four times doubled", 20, [] {
    Maker m;
    Expr e = m.lit("a");
    for (int i = 0; i < 64; ++i) e = m.seq({e, e});
    CHECK(begins(*m.guide(e), std::string(1000, 'a')));
  });
  within("counts of counts", 500, [] {
    Maker m;
    Expr e = m.any({m.lit("a"), m.lit("aa")});
    for (int i = 0; i < 20; ++i) e = m.rep(e, 0, 100'000);
    CHECK(takes(*m.guide(e), std::string(300, 'a')));
  });
  within("a chain of optionals", 200, [] {
    Maker m;
    std::vector<Expr> parts;
    for (int i = 0; i < 5'000; ++i) parts.push_back(m.rep(m.lit("a"), 0, 1));
    begins(*m.guide(m.seq(parts)), std::string(20, 'a'));
  });
  within("thirty thousand literals", 300, [] {
    Maker m;
    std::vector<Expr> parts;
    for (int i = 0; i < 30'000; ++i)
      parts.push_back(m.lit("name" + std::to_string(i * 7919 % 30'000)));
    const auto g = m.guide(m.any(parts));
    CHECK(takes(*g, "name29999") && takes(*g, "name0") && !begins(*g, "name30000"));
  });
  within("a chain of rules, last first", 200, [] {
    Maker m;
    const int n = 20'000;
    for (int i = 0; i < n; ++i) m.rules.declare("r" + std::to_string(i));
    for (int i = 0; i < n; ++i)
      m.rules.define(i, i + 1 < n ? m.any({m.rules.call(i + 1),
                                           m.seq({m.rules.call((i * 7) % n), m.lit("x")})})
                                  : m.lit("a"));
    takes(*m.guide(m.rules.call(0)), "axxx");
  });
  // Masks of grammars whose every text leads to a state of its own.
  std::mt19937 rng(3);
  std::vector<std::string> tokens;
  for (int i = 0; i < 6000; ++i) {
    tokens.emplace_back();
    for (unsigned n = 1 + rng() % 20; n > 0; --n) tokens.back() += "aabc "[rng() % 5];
  }
  const auto trie = trie_of(tokens, nullptr);
  const auto masks = [&](Maker& m, Expr root) {
    const auto g = m.guide(root, trie);
    Guide::State s = g->start();
    for (int i = 0; i < 10; ++i) {
      mask_of(*g, s, *trie);
      g->push_bytes(s, "ab");
    }
    g->release(s);
  };
  within("a far look back", 2000, [&] {
    Maker m;
    const Expr any = m.cls({{0, 0x10ffff}});
    masks(m, m.seq({m.rep(any, 0, inf), m.lit("a"), m.rep(any, 30, 30)}));
  });
  within("far looks back, counted", 2000, [&] {
    Maker m;
    const Expr any = m.cls({{0, 0x10ffff}});
    Expr e = m.lit("b");
    for (int i = 0; i < 40; ++i) e = m.seq({m.rep(any, 0, 500 + i), m.lit("a"), m.rep(e, 0, 1)});
    masks(m, e);
  });
  within("optionals of anything", 2000, [&] {
    Maker m;
    const Expr any = m.cls({{0, 0x10ffff}});
    std::vector<Expr> parts;
    for (int i = 0; i < 5'000; ++i) parts.push_back(m.rep(any, 0, 1));
    masks(m, m.seq(parts));
  });
  within("all concatenations", 2000, [] {
    Maker m;
    const auto s = m.rules.declare("s");
    m.rules.define(s, m.any({m.seq({m.rules.call(s), m.rules.call(s)}), m.lit("a")}));
    const auto g = m.guide(m.rules.call(s));
    Guide::State state = g->start();
    g->push_bytes(state, std::string(400, 'a'));
    g->release(state);
  });
}

namespace {

// A JSON text of strings with and without lengths, numbers, nested lists: masks come from plain
// tokens, other tokens and what is known already, and must be what taking each token says.
Expr json_like(Maker& m) {
  const CharRange digits[] = {{'0', '9'}, {'a', 'f'}};
  const Expr hex = m.rep(m.rules.chars(digits), 4, 4);
  const Expr plain = m.cls({{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}});
  const Expr escape =
      m.seq({m.lit("\\"),
             m.any({m.cls({{'"', '"'}, {'\\', '\\'}, {'n', 'n'}}), m.seq({m.lit("u"), hex})})});
  const Expr one = m.any({plain, escape});
  const auto string = [&](int32_t least, int32_t most) {
    return m.seq({m.lit("\""), m.rep(one, least, most), m.lit("\"")});
  };
  const auto value = m.rules.declare("value");
  const Expr list = m.seq({m.lit("["), m.rules.call(value),
                           m.rep(m.seq({m.lit(","), m.rules.call(value)}), 0, 30), m.lit("]")});
  const Expr number = m.seq({m.rep(m.lit("-"), 0, 1), m.rep(m.cls({{'0', '9'}}), 1, 20)});
  const Expr words =
      m.seq({m.lit("'"), m.rep(m.cls({{'a', 'z'}, {'A', 'Z'}, {' ', ' '}}), 5, inf), m.lit("'")});
  // Lengths in lengths, and the same characters taken in two ways.
  const Expr wrapped = m.seq({m.lit("\"w"), m.rep(m.rep(plain, 5, 5), 3, 9), m.lit("\"")});
  const Expr either =
      m.seq({m.lit("e"),
             m.any({string(2, 20), m.seq({m.lit("\""), m.rep(m.cls({{' ', 'z'}}), 0, 30)})})});
  m.rules.define(value, m.any({string(0, inf), m.seq({m.lit("s"), string(3, 40)}), wrapped, either,
                               m.seq({m.lit("t"), string(20, inf)}), list, number, words}));
  return m.rules.call(value);
}

std::vector<std::string> random_tokens(std::mt19937& rng, int count) {
  const std::string parts[] = {
      "a",    "b",     " ",   "the",      "e",        "\"",   "\\",
      "\\\"", "]",     ",",   "[",        "1",        "9",    "-",
      "\n",   "n",     "u00", "\xc3\xa9", "\xe2\x82", "\xac", "\xf0\x9f\x98\x80",
      "\"]",  "\",\"", "s\"", "''",       "  ",       "word"};
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    std::string t;
    for (unsigned n = 1 + rng() % (i % 40 ? 5 : 150); n > 0; --n)
      t += parts[rng() % std::size(parts)];
    out.push_back(t);
  }
  return out;
}

// Masks against taking each token; returns a number that stands for all that was seen.
uint64_t walk_and_check(Guide& g, const TokenTrie& trie, const std::vector<std::string>& tokens,
                        int texts, unsigned seed, bool check) {
  std::mt19937 rng(seed);
  uint64_t seen = 0;
  for (int text = 0; text < texts; ++text) {
    Guide::State s = g.start();
    const char* const begun[] = {"",    "[",   "s\"",     "t\"",     "[[t\"",         "'",
                                 "\"w", "e\"", "\"wabcd", "[s\"\\u", "[[1],[1,s\"abc"};
    const std::string_view prefix = begun[rng() % std::size(begun)];
    CHECK(g.push_bytes(s, prefix) == prefix.size());
    for (int step = 0; step < 40; ++step) {
      const auto mask = mask_of(g, s, trie);
      std::vector<int32_t> allowed;
      for (int32_t t = 0; t < trie.vocab(); ++t) {
        if (check) {
          Guide::State c = g.copy(s);
          CHECK(g.push(c, t) == bit(mask, t));
          g.release(c);
        }
        if (bit(mask, t) && t + 1 < static_cast<int32_t>(tokens.size())) allowed.push_back(t);
      }
      for (const uint32_t word : mask) seen = seen * 1'000'003 + word;
      CHECK(allowed.empty() == g.exhausted(s));
      if (allowed.empty()) break;
      CHECK(g.push(s, allowed[rng() % allowed.size()]));
    }
    g.release(s);
  }
  return seen;
}

}  // namespace

TEST(plain_tokens) {
  std::mt19937 rng(7);
  std::vector<std::string> tokens;
  const auto trie = trie_of(random_tokens(rng, 800), &tokens);
  Maker m;
  const auto g = m.guide(json_like(m), trie);
  walk_and_check(*g, *trie, tokens, is_short() ? 20 : 300, 1, true);
  CHECK(trie->bytes() < size_t{4} << 20);
}

// Few states at once: what no one holds is forgotten, and found again the same.
TEST(memory_is_bounded) {
  std::mt19937 rng(8);
  std::vector<std::string> tokens;
  const auto trie = trie_of(random_tokens(rng, 500), &tokens);
  Maker big;
  const auto all = big.guide(json_like(big), trie);
  GrammarLimits limits;
  limits.max_states = 3000;
  Maker m;
  m.rules = Rules(limits);
  const auto few = m.guide(json_like(m), trie);
  Guide::State held = few->start();
  CHECK(few->push_bytes(held, "[[\"a") == 4);
  const auto before = mask_of(*few, held, *trie);
  const int texts = is_short() ? 40 : 400;
  CHECK(walk_and_check(*few, *trie, tokens, texts, 3, false) ==
        walk_and_check(*all, *trie, tokens, texts, 3, false));
  CHECK(few->bytes() < all->bytes() && few->bytes() < size_t{4} << 20);
  CHECK(mask_of(*few, held, *trie) == before);  // what is held stays
  CHECK(few->push_bytes(held, "b\"],-7]") == 7 && few->complete(held));
  few->release(held);

  // States all held, more than there may be: refused, and well again once they are given back.
  std::vector<Guide::State> hoard;
  CHECK_THROWS(invalid_argument, "max_states", {
    Guide::State s = few->start();
    hoard.push_back(s);
    for (int i = 0; i < 4000; ++i) {
      s = few->copy(s);
      hoard.push_back(s);
      CHECK(few->push_bytes(hoard.back(), "[") == 1);
      s = hoard.back();
    }
  });
  for (const Guide::State s : hoard) few->release(s);
  CHECK(takes(*few, "[[1,2],3]"));

  // A text of a quarter of a million states.
  Maker k;
  const auto counted = k.guide(k.rep(k.any({k.lit("ab"), k.lit("c")}), 0, 1'000'000), trie);
  Guide::State s = counted->start();
  size_t most = 0;
  for (int i = 0; i < (is_short() ? 20 : 250); ++i) {
    std::string text;
    for (int n = 0; n < 500; ++n) text += n % 3 ? "ab" : "c";
    CHECK(counted->push_bytes(s, text) == text.size());
    mask_of(*counted, s, *trie);
    most = std::max(most, counted->bytes());
  }
  counted->release(s);
  CHECK(most < size_t{72} << 20);
}

TEST(states_are_counted) {
  Maker m;
  const auto g = m.guide(m.rep(m.lit("ab"), 0, 1000));
  Guide::State s = g->start();
  CHECK(g->push_bytes(s, "aba") == 3);
  const Guide::State one = g->copy(s), two = g->copy(one);
  CHECK(one.id == s.id && two.id == s.id);
  Guide::State t = g->start();
  CHECK(g->push_bytes(t, "abax") == 3 && t.id == s.id);  // equal states are one
  g->release(t);
  g->release(one);
  g->release(two);
  CHECK(!g->complete(s));
  g->release(s);
  CHECK_THROWS(invalid_argument, "not one that was given out", g->complete(s));
  g->release(s);  // no harm
  g->release({0});
  CHECK(takes(*g, "abab"));
}

// Masks on one thread while the other takes tokens; both see what one alone sees.
TEST(two_threads) {
  std::mt19937 rng(9);
  std::vector<std::string> tokens;
  const auto trie = trie_of(random_tokens(rng, 600), &tokens);
  GrammarLimits limits;
  limits.max_states = 5000;  // forgetting goes on while they work
  Maker alone, shared;
  shared.rules = Rules(limits);
  const auto a = alone.guide(json_like(alone), trie), s = shared.guide(json_like(shared), trie);
  const int texts = is_short() ? 30 : 300;
  const uint64_t expected[2] = {walk_and_check(*a, *trie, tokens, texts, 11, false),
                                walk_and_check(*a, *trie, tokens, texts, 12, false)};
  uint64_t seen[2] = {0, 0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i)
    threads.emplace_back(
        [&, i] { seen[i] = walk_and_check(*s, *trie, tokens, texts, 11 + i, false); });
  for (auto& t : threads) t.join();
  CHECK(seen[0] == expected[0] && seen[1] == expected[1]);
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
