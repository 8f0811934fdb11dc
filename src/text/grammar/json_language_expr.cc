// Automata back to expressions, and lengths of expressions.
#include <algorithm>
#include <array>
#include <map>

#include "text/grammar/json_language.h"
#include "text/utf8.h"

namespace orlop::schema {
namespace {

constexpr int32_t max_nesting = 32;        // of expressions; deeper states are rules of their own
constexpr int64_t far = int64_t{1} << 40;  // lengths that only have to be large

}  // namespace

Expr Language::expr(JsonText& text, Rules& rules, const Chars& chars, Work& work) const {
  if (empty()) return nothing;
  const size_t n = states_.size();
  std::vector<int32_t> entries(n, 0);  // states that lead here, itself left out
  for (size_t s = 0; s < n; ++s) {
    std::vector<int32_t> to;
    for (const Edge& e : states_[s].edges) to.push_back(e.to);
    std::ranges::sort(to);
    to.erase(std::unique(to.begin(), to.end()), to.end());
    for (const int32_t t : to) entries[static_cast<size_t>(t)] += t != static_cast<int32_t>(s);
  }
  ++entries[0];
  std::vector<int32_t> rule_of(n, -1);
  std::vector<size_t> open;  // states whose rules are to be defined
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, Expr> known;
  const auto chars_of = [&](const std::vector<CharRange>& ranges) {
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (const CharRange& r : ranges) key.emplace_back(r.first, r.last);
    work.spend(key.size() + 4);
    const auto it = known.find(key);
    if (it != known.end()) return it->second;
    const Expr e = chars(ranges);
    known.emplace(std::move(key), e);
    return e;
  };

  // What may follow in state s. A state that leads to itself is a repetition, then the rest.
  const std::function<Expr(size_t, int32_t)> body = [&](size_t s, int32_t nesting) -> Expr {
    std::map<int32_t, std::vector<CharRange>> moves;
    for (const Edge& e : states_[s].edges) moves[e.to].push_back({e.first, e.last});
    Expr loop = nothing;
    std::vector<Expr> ways;
    if (states_[s].label) ways.push_back(rules.empty());
    for (const auto& [to, ranges] : moves) {
      const size_t t = static_cast<size_t>(to);
      const Expr one = chars_of(ranges);
      if (t == s) {
        loop = rules.repeat(one, 0, Rules::unbounded);
        continue;
      }
      Expr rest;
      if (entries[t] == 1 && nesting < max_nesting) {
        rest = body(t, nesting + 1);
      } else {
        if (rule_of[t] < 0) {
          rule_of[t] = rules.declare("json.text");
          open.push_back(t);
        }
        rest = rules.call(rule_of[t]);
      }
      ways.push_back(text.sequence(std::array{one, rest}));
    }
    const Expr rest = text.choice(std::move(ways));
    return loop == nothing ? rest : text.sequence(std::array{loop, rest});
  };

  const Expr start = body(0, 0);
  while (!open.empty()) {
    const size_t s = open.back();
    open.pop_back();
    rules.define(rule_of[s], body(s, 0));
  }
  return start;
}

LengthRange length_range(const Rules& rules, Expr expr) {
  const Rules::Node& node = rules.nodes()[static_cast<size_t>(expr)];
  const auto part = [&](uint32_t i) { return length_range(rules, rules.parts()[node.begin + i]); };
  switch (node.kind) {
    case Rules::Kind::literal: {
      const std::string_view bytes = std::string_view(rules.bytes()).substr(node.begin, node.count);
      const int64_t n = std::ranges::count_if(
          bytes, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
      return {n, n};
    }
    case Rules::Kind::chars:
      return {1, 1};
    case Rules::Kind::sequence: {
      LengthRange all{0, 0};
      for (uint32_t i = 0; i < node.count; ++i) {
        const LengthRange r = part(i);
        all.least = std::min(far, all.least + r.least);
        all.most = all.most < 0 || r.most < 0 ? -1 : all.most + r.most;
        if (all.most > far) all.most = -1;
      }
      return all;
    }
    case Rules::Kind::choice: {
      LengthRange all{far, 0};
      for (uint32_t i = 0; i < node.count; ++i) {
        const LengthRange r = part(i);
        all.least = std::min(all.least, r.least);
        all.most = all.most < 0 || r.most < 0 ? -1 : std::max(all.most, r.most);
      }
      return all;
    }
    case Rules::Kind::repeat: {
      const LengthRange r = part(0);
      LengthRange all;
      all.least = node.a > 0 && r.least > far / node.a ? far : r.least * node.a;
      all.most = r.most == 0                           ? 0
                 : r.most < 0 || node.b < 0            ? -1
                 : node.b > 0 && r.most > far / node.b ? -1
                                                       : r.most * node.b;
      return all;
    }
    default:
      return {0, node.kind == Rules::Kind::empty ? 0 : -1};
  }
}

}  // namespace orlop::schema
