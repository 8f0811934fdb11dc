// A grammar as its front ends (regular expression, GBNF, JSON Schema, choice, tools) build it:
// expressions over bytes, and named rules that may call each other and themselves. guide.h compiles
// it. Everything added counts against GrammarLimits: Error(invalid_argument) names the limit.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orlop {

struct GrammarLimits {
  size_t max_source = size_t{1} << 20;       // bytes of a schema, pattern, grammar or list
  int32_t max_depth = 256;                   // nesting of a source
  size_t max_expressions = size_t{1} << 20;  // of a grammar
  size_t max_states = size_t{1} << 20;       // of its automaton, at once
  uint64_t max_compile_steps = 50'000'000;   // of all that compiling does; well under a second
};

struct CharRange {
  uint32_t first, last;  // code points, both included
};

class Rules {
 public:
  using Expr = int32_t;
  static constexpr int32_t unbounded = -1;

  explicit Rules(const GrammarLimits& limits = {}) : limits_(limits) {}
  const GrammarLimits& limits() const { return limits_; }

  Expr empty();                          // the empty text
  Expr literal(std::string_view bytes);  // exactly these bytes
  // One code point of these ranges (any order, may overlap), as UTF-8. Surrogates are left out. No
  // range or none left: nothing matches.
  Expr chars(std::span<const CharRange> ranges);
  Expr sequence(std::span<const Expr> parts);
  Expr choice(std::span<const Expr> parts);  // of none: nothing matches
  // least >= 0; most >= least, or unbounded. The work and memory of large counts stay small: a
  // count is kept as a number, not unrolled.
  Expr repeat(Expr what, int32_t least, int32_t most);
  int32_t declare(std::string name);     // a rule, to be defined later
  void define(int32_t rule, Expr body);  // once
  Expr call(int32_t rule);
  void set_root(Expr root) { root_ = root; }
  Expr root() const { return root_; }

  enum class Kind : uint8_t { empty, literal, chars, sequence, choice, repeat, call };
  struct Node {
    Kind kind;
    int32_t a = 0, b = 0;           // repeat: least, most; call: the rule; else unused
    uint32_t begin = 0, count = 0;  // literal: in bytes(); chars: in ranges(); others: in parts()
  };
  struct Rule {
    std::string name;
    Expr body = -1;  // -1: declared only
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Rule>& rules() const { return rules_; }
  const std::string& bytes() const { return bytes_; }
  const std::vector<CharRange>& ranges() const { return ranges_; }
  const std::vector<Expr>& parts() const { return parts_; }

 private:
  Expr add(Node node);
  Expr add_parts(Kind kind, std::span<const Expr> parts);
  void check(Expr e) const;
  void reserve_entries(size_t have, size_t more, const char* what) const;

  GrammarLimits limits_;
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  std::string bytes_;
  std::vector<CharRange> ranges_;  // of each chars node: sorted, disjoint, without surrogates
  std::vector<Expr> parts_;
  std::unordered_multimap<uint64_t, Expr> known_chars_;  // by a hash of their ranges
  Expr root_ = -1;
};

}  // namespace orlop
