// The guide's automaton: against the oracle for random grammars and texts, and case by case for
// counts, recursion, parts of code points and vocabularies that cannot write everything.
#include "text/grammar/guide.h"

#include "guide_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

// Every bit of the mask, completeness and the end against the oracle, after `text`.
struct Counts {
  long masks = 0, bits = 0, allowed = 0;
};
bool agrees(Guide& g, Guide::State s, const std::string& text, Oracle& oracle,
            const TokenTrie& trie, const std::vector<std::string>& tokens, Counts& counts) {
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
      case 0:
        e.push_back(m.any(parts));
        break;
      case 1:
      case 2:
        e.push_back(m.seq(parts));
        break;
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
          e.push_back(
              m.rep(m.seq({m.any(parts), m.rules.call(pick(rules))}), pick(4), 18 + pick(3)));
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
  const auto all =
      trie_of({"aa", "ab", "abab", "ba", "aaa", "\xc3\xa9", "\xc3\xa9\xc3", "\xe2\x82\xac",
               "\xe2\x82", "\xf0\x9f", "\x98\x80", "a\xf0\x9f\x98", "", "abc", "a\xc3"},
              &full);
  std::mt19937 rng(20240607);
  Counts counts;
  int grammars = 0, refused = 0;
  const int rounds = is_short() ? 30 : 600;
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
  std::printf("oracle: %d grammars, %d refused, %ld masks, %ld bits, %ld allowed\n", grammars,
              refused, counts.masks, counts.bits, counts.allowed);
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
  for (const Row r :
       {Row{0, 3}, {2, 3}, {3, 3}, {0, 40}, {5, 40}, {40, 40}, {17, inf}, {1, inf}, {0, inf}})
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
  const auto nested = n.guide(n.rep(n.seq({n.rep(n.lit("a"), 20, 21), n.lit("b")}), 100, 1000));
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
  m.rules.define(item,
                 m.any({m.lit("x"), m.seq({m.lit("["), m.rules.call(item), more, m.lit("]")})}));
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
    m.rules.define(e,
                   m.any({m.seq({m.rules.call(e), m.lit("+"), m.rules.call(t)}), m.rules.call(t)}));
    m.rules.define(t,
                   m.any({m.seq({m.rules.call(t), m.lit("*"), m.rules.call(f)}), m.rules.call(f)}));
    m.rules.define(f,
                   m.any({m.seq({m.lit("("), m.rules.call(e), m.lit(")")}), m.cls({{'0', '9'}})}));
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
    const auto g =
        m.guide(m.seq({m.rep(m.rep(m.rep(m.lit("a"), 0, inf), 1, inf), 0, inf), m.lit("b")}));
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
  const auto trie = trie_of({"\xc3\xa9", "\xc3\xa9\xe2\x82", "\xac", "\xac\xf0\x9f", "\x82\xac",
                             "\xed\xa0", "\xed\x9f", "\xe0\x80", "\xe0\xa0", "\xf4\x90", "\xf4\x8f",
                             "\xf0\x80", "\xf0\x90", "\xc0\x80", "\xf5\x80"},
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
    CHECK(now.contains(std::string(1, static_cast<char>(b))) ==
          (b < 0x80 || (b >= 0xc2 && b <= 0xf4)));
  for (const char* no :
       {"\xed\xa0", "\xe0\x80", "\xf4\x90", "\xf0\x80", "\xc0\x80", "\xf5\x80", "\xac"})
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
  const auto some = k.guide(k.cls({{0x7e, 0x81},
                                   {0x7ff, 0x801},
                                   {0xd7f0, 0xe010},
                                   {0xfffe, 0x10001},
                                   {0x3ffff, 0x40000},
                                   {0x10fffe, 0x110000}}));
  for (uint32_t c = 0; c < 0x110000; c += c % 0x1000 < 0x20 || c % 0x1000 > 0xfe0 ? 1 : 0x101) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string one;
    utf8_append(one, c);
    const bool in = (c >= 0x7e && c <= 0x81) || (c >= 0x7ff && c <= 0x801) ||
                    (c >= 0xd7f0 && c <= 0xe010) || (c >= 0xfffe && c <= 0x10001) || c == 0x3ffff ||
                    c == 0x40000 || c >= 0x10fffe;
    CHECK(takes(*some, one) == in);
  }
}

// A vocabulary that cannot write everything: what it cannot is no part of the language.
TEST(poor_vocabularies) {
  std::vector<std::string> tokens;
  const auto trie =
      trie_of({"a", "b", "ab", "\xc3\xa9", "\xc3", "\xe2\x82\xac\xe2", "bx"}, &tokens, false);
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

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
