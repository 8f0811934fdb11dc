// The guide's automaton: against the oracle for random grammars and texts, and case by case for counts,
// recursion, parts of code points, limits, memory and threads.
#include "text/grammar/guide.h"

#include <chrono>
#include <ctime>
#include <thread>

#include "guide_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

using Expr = Rules::Expr;
constexpr int32_t inf = Rules::unbounded;

double now_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// All bytes as tokens of their own, then these; the last one ends.
std::shared_ptr<const TokenTrie> trie_of(std::vector<std::string> more, std::vector<std::string>* all,
                                         bool bytes = true) {
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

bool bit(const std::vector<uint32_t>& mask, int32_t t) {
  return mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1;
}

std::vector<uint32_t> mask_of(Guide& g, Guide::State s, const TokenTrie& trie) {
  std::vector<uint32_t> mask(static_cast<size_t>(trie.words()), 0xdeadbeef);
  g.mask(s, mask.data());
  return mask;
}

// Takes the text? Whole: and may end there.
bool takes(Guide& g, std::string_view text, bool whole = true) {
  Guide::State s = g.start();
  const bool ok = g.push_bytes(s, text) == text.size() && (!whole || g.complete(s));
  g.release(s);
  return ok;
}
bool begins(Guide& g, std::string_view text) { return takes(g, text, false); }

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

// Every bit of the mask, completeness and the end against the oracle, after `text`.
struct Counts {
  long masks = 0, bits = 0, allowed = 0;
};
bool agrees(Guide& g, Guide::State s, const std::string& text, Oracle& oracle, const TokenTrie& trie,
            const std::vector<std::string>& tokens, Counts& counts) {
  const auto mask = mask_of(g, s, trie);
  const auto last = static_cast<int32_t>(tokens.size()) - 1;
  oracle.read(text);
  const bool whole = oracle.whole();
  bool good = g.complete(s) == whole && bit(mask, last) == whole && !bit(mask, last - 1) &&
              !bit(mask, last + 1) && !bit(mask, last + 2);
  bool some = false;
  ++counts.masks;
  // Of the other bytes none is in the grammars.
  const std::string_view bytes = "abcx!\x80\x82\x98\x9f\xa9\xac\xc3\xe2\xf0\xff";
  for (int32_t t = 0; t < last - 1; ++t) {
    if (t < 256 && bytes.find(static_cast<char>(t)) == bytes.npos) {
      // U+00EA, U+20AD and U+1F601 end in other bytes: what is allowed of these is asked below.
      if (!bit(mask, t)) continue;
    }
    oracle.read(text + tokens[static_cast<size_t>(t)]);
    const bool expected = oracle.prefix() && !tokens[static_cast<size_t>(t)].empty();
    some |= expected;
    ++counts.bits;
    counts.allowed += expected;
    if (bit(mask, t) == expected) continue;
    std::fprintf(stderr, "  after '%s': token '%s' %s\n", text.c_str(),
                 tokens[static_cast<size_t>(t)].c_str(), expected ? "is missing" : "is wrong");
    good = false;
  }
  return good && g.exhausted(s) == !some;
}

// A random grammar of few letters: everything that rules can be, nested and recursive.
void random_rules(Maker& m, std::mt19937& rng) {
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  std::vector<Expr> e;
  const int rules = 1 + pick(3);
  for (int r = 0; r < rules; ++r) m.rules.declare("r" + std::to_string(r));
  e.push_back(m.lit("a"));
  e.push_back(m.lit(pick(2) ? "ab" : "\xc3\xa9"));
  e.push_back(m.cls({{'a', 'c'}, {0xe9, 0xea}, {0x20ac, 0x20ad}, {0x1f600, 0x1f601}}));
  for (int r = 0; r < rules; ++r) e.push_back(m.rules.call(r));
  const auto some = [&] { return e[static_cast<size_t>(pick(static_cast<int>(e.size())))]; };
  const int count = 3 + pick(8);
  for (int i = 0; i < count; ++i) {
    std::vector<Expr> parts;
    for (int n = pick(4); n >= 0; --n) parts.push_back(some());
    switch (pick(5)) {
      case 0: e.push_back(m.any(parts)); break;
      case 1:
      case 2: e.push_back(m.seq(parts)); break;
      case 3: {
        const int least = pick(3);
        e.push_back(m.rep(some(), least, pick(3) ? least + pick(3) : inf));
        break;
      }
      case 4:
        // Counts that stay numbers, of bodies that end in calls.
        if (pick(4) == 0)
          e.push_back(m.rules.empty());
        else
          e.push_back(m.rep(m.seq({m.any(parts), m.rules.call(pick(rules))}), pick(4), 18 + pick(3)));
        if (pick(3) == 0) e.push_back(m.rep(m.any(parts), pick(20), 20 + pick(3)));
        break;
    }
  }
  for (int r = 0; r < rules; ++r) m.rules.define(r, e[e.size() - 1 - static_cast<size_t>(pick(4))]);
  m.rules.set_root(e.back());
}

}  // namespace

TEST(agrees_with_the_oracle) {
  std::vector<std::string> full;
  const auto all = trie_of({"aa", "ab", "abab", "ba", "aaa", "\xc3\xa9", "\xc3\xa9\xc3", "\xe2\x82\xac",
                            "\xe2\x82", "\xf0\x9f", "\x98\x80", "a\xf0\x9f\x98", "", "abc", "a\xc3"},
                           &full);
  std::mt19937 rng(20240607);
  Counts counts;
  int grammars = 0, refused = 0;
  const int rounds = is_short() ? 60 : 600;
  for (int round = 0; round < rounds; ++round) {
    Maker m;
    random_rules(m, rng);
    Oracle oracle(m.rules);
    if (!oracle.matches_any()) {
      CHECK_THROWS(invalid_argument, "no text matches", Guide::create(m.rules, all));
      ++refused;
      continue;
    }
    const auto g = Guide::create(m.rules, all);
    ++grammars;
    bool good = true;
    for (int walk = 0; walk < 3 && good; ++walk) {
      Guide::State s = g->start();
      std::string text;
      for (int step = 0; step < 5 && good; ++step) {
        good = agrees(*g, s, text, oracle, *all, full, counts);
        const auto mask = mask_of(*g, s, *all);
        std::vector<int32_t> allowed;
        for (int32_t t = 0; t + 2 < static_cast<int32_t>(full.size()); ++t)
          if (bit(mask, t)) allowed.push_back(t);
        if (allowed.empty() || text.size() > 9) break;
        const int32_t t = allowed[rng() % allowed.size()];
        const Guide::State before = s;
        CHECK(g->push(s, t) && (s.id != before.id || true));
        text += full[static_cast<size_t>(t)];
      }
      g->release(s);
    }
    CHECK(good);
    if (!good) std::fprintf(stderr, "  round %d\n", round);
  }
  std::printf("oracle: %d grammars, %d refused, %ld masks, %ld bits, %ld allowed\n", grammars, refused,
              counts.masks, counts.bits, counts.allowed);
  CHECK(grammars > rounds / 2);
}

TEST(counts) {
  const auto made = [](int32_t least, int32_t most, const char* what) {
    Maker m;
    return m.guide(m.seq({m.rep(m.lit(what), least, most), m.lit("!")}));
  };
  struct Row {
    int32_t least, most;
  };
  for (const Row r : {Row{0, 3}, {2, 3}, {3, 3}, {0, 40}, {5, 40}, {40, 40}, {17, inf}, {1, inf}, {0, inf}})
    for (const char* what : {"a", "ab"}) {
      const auto g = made(r.least, r.most, what);
      std::string text;
      for (int32_t n = 0; n < 60; ++n) {
        const bool fits = r.most == inf || n <= r.most;
        CHECK(takes(*g, text + "!") == (n >= r.least && fits));
        CHECK(begins(*g, text) == fits);
        text += what;
      }
    }
  // A count is a number: a hundred thousand costs nothing.
  const double start = now_ms();
  const auto g = made(99'990, 100'000, "a");
  CHECK(now_ms() - start < 20);
  for (const size_t n : {99'989, 99'990, 100'000, 100'001})
    CHECK(takes(*g, std::string(n, 'a') + "!") == (n >= 99'990 && n <= 100'000));
  CHECK(g->bytes() < size_t{56} << 20);

  // Ambiguous: how many times it ran is an interval.
  Maker m;
  const auto amb = m.guide(m.rep(m.any({m.lit("a"), m.lit("aa")}), 20, 30));
  for (size_t n = 0; n < 70; ++n) CHECK(takes(*amb, std::string(n, 'a')) == (n >= 20 && n <= 60));
  Maker k;
  const auto gaps = k.guide(k.rep(k.any({k.lit("aaa"), k.lit("aaaaaaa")}), 30, 40));
  for (size_t n = 80; n < 300; ++n) {
    bool fits = false;
    for (size_t times = 30; times <= 40; ++times)
      fits |= n >= 3 * times && n <= 7 * times && (n - 3 * times) % 4 == 0;
    CHECK(takes(*gaps, std::string(n, 'a')) == fits);
  }
  // Counts in counts, and bodies that match nothing.
  Maker n;
  const auto nested =
      n.guide(n.rep(n.seq({n.rep(n.lit("a"), 20, 21), n.lit("b")}), 100, 1000));
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    CHECK(!begins(*nested, text + "b"));
    text += std::string(i % 2 ? 20 : 21, 'a') + "b";
    if (i % 50 == 49 || i == 98) CHECK(takes(*nested, text) == (i >= 99));
  }
  CHECK(!begins(*nested, text + "a"));
  Maker o;
  const auto nothing = o.guide(o.rep(o.rep(o.lit("a"), 0, 2), 50, 70));
  for (size_t i = 0; i < 150; ++i) CHECK(takes(*nothing, std::string(i, 'a')) == (i <= 140));
}

// A body that ends in a call: the loop goes on from where that returns to.
TEST(counted_lists) {
  Maker m;
  const auto item = m.rules.declare("item");
  const Expr more = m.rep(m.seq({m.lit(","), m.rules.call(item)}), 1, 19);
  m.rules.define(item, m.any({m.lit("x"), m.seq({m.lit("["), m.rules.call(item), more, m.lit("]")})}));
  const auto g = m.guide(m.rules.call(item));
  std::string text = "[x";
  for (int i = 1; i <= 20; ++i) {
    CHECK(begins(*g, text) && takes(*g, text + "]") == (i >= 2));
    text += i % 2 ? ",x" : ",[[x,x],x,x]";
  }
  CHECK(!begins(*g, text));
}

TEST(recursion) {
  {  // left, with precedence
    Maker m;
    const auto e = m.rules.declare("e"), t = m.rules.declare("t"), f = m.rules.declare("f");
    m.rules.define(e, m.any({m.seq({m.rules.call(e), m.lit("+"), m.rules.call(t)}), m.rules.call(t)}));
    m.rules.define(t, m.any({m.seq({m.rules.call(t), m.lit("*"), m.rules.call(f)}), m.rules.call(f)}));
    m.rules.define(f, m.any({m.seq({m.lit("("), m.rules.call(e), m.lit(")")}), m.cls({{'0', '9'}})}));
    const auto g = m.guide(m.rules.call(e));
    CHECK(takes(*g, "1") && takes(*g, "1+2*3") && takes(*g, "((1))*(2+3*4)+5"));
    CHECK(!begins(*g, "1++") && !begins(*g, "*") && !takes(*g, "(1") && !begins(*g, "(1))"));
    std::string sum = "1";
    for (int i = 0; i < 20'000; ++i) sum += i % 3 ? "+2" : "*3";
    CHECK(takes(*g, sum));
    CHECK(g->bytes() < size_t{8} << 20);  // states come again
  }
  {  // indirect and hidden behind what may match nothing
    Maker m;
    const auto a = m.rules.declare("a"), b = m.rules.declare("b"), n = m.rules.declare("n");
    m.rules.define(n, m.rep(m.lit("n"), 0, 1));
    m.rules.define(a, m.any({m.seq({m.rules.call(n), m.rules.call(b), m.lit("x")}), m.lit("y")}));
    m.rules.define(b, m.any({m.seq({m.rules.call(n), m.rules.call(a), m.lit("z")}), m.lit("w")}));
    const auto g = m.guide(m.rules.call(a));
    for (const char* ok : {"y", "wx", "yzx", "nwx", "nnyzx", "yzxzx", "nnnnyzxzx", "nynzx"}) {
      const bool expected = std::string(ok) != "nynzx";
      CHECK(takes(*g, ok) == expected);
    }
  }
  {  // cycles of nothing
    Maker m;
    const auto s = m.rules.declare("s");
    m.rules.define(s, m.any({m.rules.call(s), m.seq({m.rules.call(s), m.rules.call(s)}), m.lit("a"),
                             m.rules.empty(), m.rep(m.rules.call(s), 0, inf)}));
    const auto g = m.guide(m.rules.call(s));
    CHECK(takes(*g, "") && takes(*g, "a") && takes(*g, std::string(40, 'a')) && !begins(*g, "b"));
  }
  {  // stars of stars, (a+)+b
    Maker m;
    const auto g = m.guide(m.seq({m.rep(m.rep(m.rep(m.lit("a"), 0, inf), 1, inf), 0, inf), m.lit("b")}));
    CHECK(takes(*g, std::string(5'000, 'a') + "b") && !begins(*g, std::string(50, 'a') + "c"));
    CHECK(g->bytes() < size_t{1} << 20);
  }
  {  // right recursion does not stack, nesting does
    Maker m;
    const auto list = m.rules.declare("list");
    m.rules.define(list, m.any({m.lit("a"), m.seq({m.lit("a,"), m.rules.call(list)})}));
    const auto g = m.guide(m.rules.call(list));
    std::string text = "a";
    for (int i = 0; i < 30'000; ++i) text += ",a";
    CHECK(takes(*g, text) && g->bytes() < size_t{1} << 20);
  }
  {
    Maker m;
    const auto s = m.rules.declare("s");
    m.rules.define(s, m.any({m.seq({m.lit("("), m.rules.call(s), m.lit(")")}), m.lit("")}));
    const auto g = m.guide(m.rules.call(s));
    const size_t deep = is_short() ? 3'000 : 30'000;
    CHECK(takes(*g, std::string(deep, '(') + std::string(deep, ')')));
    CHECK(!begins(*g, std::string(deep, '(') + std::string(deep + 1, ')')));
  }
}

TEST(parts_of_code_points) {
  std::vector<std::string> tokens;
  const auto trie = trie_of({"\xc3\xa9", "\xc3\xa9\xe2\x82", "\xac", "\xac\xf0\x9f", "\x82\xac", "\xed\xa0",
                             "\xed\x9f", "\xe0\x80", "\xe0\xa0", "\xf4\x90", "\xf4\x8f", "\xf0\x80", "\xf0\x90",
                             "\xc0\x80", "\xf5\x80"},
                            &tokens);
  Maker m;
  const auto g = m.guide(m.rep(m.cls({{0, 0xd7ff}, {0xd000, 0x10ffff}}), 0, inf), trie);
  const auto allowed = [&](Guide::State s) {
    std::set<std::string> out;
    const auto mask = mask_of(*g, s, *trie);
    for (size_t t = 0; t + 2 < tokens.size(); ++t)
      if (bit(mask, static_cast<int32_t>(t))) out.insert(tokens[t]);
    return out;
  };
  Guide::State s = g->start();
  auto now = allowed(s);
  for (int b = 0; b < 256; ++b)
    CHECK(now.contains(std::string(1, static_cast<char>(b))) == (b < 0x80 || (b >= 0xc2 && b <= 0xf4)));
  for (const char* no : {"\xed\xa0", "\xe0\x80", "\xf4\x90", "\xf0\x80", "\xc0\x80", "\xf5\x80", "\xac"})
    CHECK(!now.contains(no));
  for (const char* yes : {"\xed\x9f", "\xe0\xa0", "\xf4\x8f", "\xf0\x90", "\xc3\xa9\xe2\x82"})
    CHECK(now.contains(yes));
  CHECK(g->complete(s));
  CHECK(g->push(s, 256 + 1) && !g->complete(s));  // e9, and two bytes of the next
  now = allowed(s);
  CHECK(now.size() == 64 + 1);  // all that can follow, and the one that goes on from there
  CHECK(now.contains("\xac\xf0\x9f") && !now.contains("\x82\xac") && !now.contains("a"));
  CHECK(!g->push(s, 'a') && g->push(s, 256 + 2) && g->complete(s));
  g->release(s);

  // One class, by its code points: every one of a block and none beside it.
  Maker k;
  const auto some = k.guide(k.cls({{0x7e, 0x81}, {0x7ff, 0x801}, {0xd7f0, 0xe010}, {0xfffe, 0x10001},
                                   {0x3ffff, 0x40000}, {0x10fffe, 0x110000}}));
  for (uint32_t c = 0; c < 0x110000; c += c % 0x1000 < 0x20 || c % 0x1000 > 0xfe0 ? 1 : 0x101) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string one;
    utf8_append(one, c);
    const bool in = (c >= 0x7e && c <= 0x81) || (c >= 0x7ff && c <= 0x801) || (c >= 0xd7f0 && c <= 0xe010) ||
                    (c >= 0xfffe && c <= 0x10001) || c == 0x3ffff || c == 0x40000 || c >= 0x10fffe;
    CHECK(takes(*some, one) == in);
  }
}

// A vocabulary that cannot write everything: what it cannot is no part of the language.
TEST(poor_vocabularies) {
  std::vector<std::string> tokens;
  const auto trie = trie_of({"a", "b", "ab", "\xc3\xa9", "\xc3", "\xe2\x82\xac\xe2", "bx"}, &tokens, false);
  Maker m;
  const auto g = m.guide(m.rep(m.cls({{'a', 0x10ffff}}), 2, 3), trie);
  Guide::State s = g->start();
  auto mask = mask_of(*g, s, *trie);
  for (const int32_t t : {0, 1, 2, 3}) CHECK(bit(mask, t));
  for (const int32_t t : {4, 5, 6}) CHECK(!bit(mask, t) && !g->push(s, t));
  CHECK(g->push(s, 3) && g->push(s, 2) && g->complete(s) && g->exhausted(s));
  g->release(s);
  CHECK_THROWS(invalid_argument, "vocabulary", {
    Maker x;
    x.guide(x.lit("axa"), trie);
  });
  CHECK_THROWS(invalid_argument, "vocabulary", {
    Maker x;
    x.guide(x.lit("\xc3\xaa"), trie);
  });
}

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
    for (int i = 0; i < 30'000; ++i) parts.push_back(m.lit("name" + std::to_string(i * 7919 % 30'000)));
    const auto g = m.guide(m.any(parts));
    CHECK(takes(*g, "name29999") && takes(*g, "name0") && !begins(*g, "name30000"));
  });
  within("a chain of rules, last first", 200, [] {
    Maker m;
    const int n = 20'000;
    for (int i = 0; i < n; ++i) m.rules.declare("r" + std::to_string(i));
    for (int i = 0; i < n; ++i)
      m.rules.define(i, i + 1 < n ? m.any({m.rules.call(i + 1), m.seq({m.rules.call((i * 7) % n), m.lit("x")})})
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

// A JSON text of strings with and without lengths, numbers, nested lists: masks come from plain tokens,
// other tokens and what is known already, and must be what taking each token says.
Expr json_like(Maker& m) {
  const CharRange digits[] = {{'0', '9'}, {'a', 'f'}};
  const Expr hex = m.rep(m.rules.chars(digits), 4, 4);
  const Expr plain = m.cls({{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}});
  const Expr escape =
      m.seq({m.lit("\\"), m.any({m.cls({{'"', '"'}, {'\\', '\\'}, {'n', 'n'}}), m.seq({m.lit("u"), hex})})});
  const Expr one = m.any({plain, escape});
  const auto string = [&](int32_t least, int32_t most) {
    return m.seq({m.lit("\""), m.rep(one, least, most), m.lit("\"")});
  };
  const auto value = m.rules.declare("value");
  const Expr list = m.seq({m.lit("["), m.rules.call(value),
                           m.rep(m.seq({m.lit(","), m.rules.call(value)}), 0, 30), m.lit("]")});
  const Expr number = m.seq({m.rep(m.lit("-"), 0, 1), m.rep(m.cls({{'0', '9'}}), 1, 20)});
  const Expr words = m.seq({m.lit("'"), m.rep(m.cls({{'a', 'z'}, {'A', 'Z'}, {' ', ' '}}), 5, inf), m.lit("'")});
  // Lengths in lengths, and the same characters taken in two ways.
  const Expr wrapped = m.seq({m.lit("\"w"), m.rep(m.rep(plain, 5, 5), 3, 9), m.lit("\"")});
  const Expr either = m.seq({m.lit("e"), m.any({string(2, 20), m.seq({m.lit("\""), m.rep(m.cls({{' ', 'z'}}), 0, 30)})})});
  m.rules.define(value, m.any({string(0, inf), m.seq({m.lit("s"), string(3, 40)}), wrapped, either,
                               m.seq({m.lit("t"), string(20, inf)}), list, number, words}));
  return m.rules.call(value);
}

std::vector<std::string> random_tokens(std::mt19937& rng, int count) {
  const std::string parts[] = {"a",  "b", " ", "the", "e",  "\"", "\\", "\\\"", "]",        ",",
                               "[",  "1", "9", "-",   "\n", "n",  "u00", "\xc3\xa9", "\xe2\x82", "\xac",
                               "\xf0\x9f\x98\x80", "\"]", "\",\"", "s\"", "''", "  ", "word"};
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    std::string t;
    for (unsigned n = 1 + rng() % (i % 40 ? 5 : 150); n > 0; --n) t += parts[rng() % std::size(parts)];
    out.push_back(t);
  }
  return out;
}

// Masks against taking each token; returns a number that stands for all that was seen.
uint64_t walk_and_check(Guide& g, const TokenTrie& trie, const std::vector<std::string>& tokens, int texts,
                        unsigned seed, bool check) {
  std::mt19937 rng(seed);
  uint64_t seen = 0;
  for (int text = 0; text < texts; ++text) {
    Guide::State s = g.start();
    const char* const begun[] = {"", "[", "s\"", "t\"", "[[t\"", "'", "\"w", "e\"", "\"wabcd", "[s\"\\u", "[[1],[1,s\"abc"};
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
    threads.emplace_back([&, i] { seen[i] = walk_and_check(*s, *trie, tokens, texts, 11 + i, false); });
  for (auto& t : threads) t.join();
  CHECK(seen[0] == expected[0] && seen[1] == expected[1]);
}

int main(int c, char** v) { return orlop::test::test_main(c, v); }
