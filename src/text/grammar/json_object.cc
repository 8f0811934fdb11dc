// Objects: the named keys in order, then others.
#include <algorithm>

#include "base/error.h"
#include "text/grammar/json_builder.h"

namespace orlop::schema {
namespace {

constexpr size_t max_nesting = 64;        // of expressions; then rules
constexpr uint64_t max_counted = 50'000;  // pairs of a key and how many came before
constexpr size_t max_patterns = 60;       // bits of a label, one for the names

}  // namespace

Expr Builder::object(const Shape& s) {
  const Members m = merger_.members(s);
  const bool bare = std::ranges::none_of(s.nodes, [&](Node::Id id) { return doc_.at(id).members; });
  if (bare && m.keys.empty() && s.min_properties == 0 && s.max_properties < 0)
    return text_.object();
  std::vector<Expr> members;
  int64_t required = 0;
  for (const Key& key : m.keys) {
    const Expr v = value(key.value);
    if (key.required && v == nothing) return nothing;
    members.push_back(seq({rules_.literal(string_text(key.name)), text_.colon(), v}));
    required += key.required;
  }
  const Expr other = other_member(s, m.taken);
  const int64_t named = static_cast<int64_t>(m.keys.size());
  // Keys that are not named may come twice, which counts once: all that is sure is that one came.
  if (other != nothing && s.min_properties > std::max<int64_t>(required, 0) + 1)
    fail(Status::unsupported, merger_.where(s, "minProperties"),
         ": not supported: ", s.min_properties, " with ", required,
         " required and additional properties, which may come twice; at most ", required + 1,
         ", or additionalProperties false");
  const bool bounded = s.max_properties >= 0 && (other != nothing || s.max_properties < named);
  const bool some = s.min_properties == 1 && required == 0;  // at least one, whichever
  const bool many = s.min_properties > required && !some;
  Expr inside =
      bounded || many ? counted(s, m.keys, members, other) : ordered(m.keys, members, other);
  std::vector<Expr> ways = {seq({text_.open('{'), inside, text_.close('}')})};
  if (required == 0 && s.min_properties == 0) ways.push_back(rules_.literal("{}"));
  return text_.choice(std::move(ways));
}

// At least one member.
Expr Builder::ordered(const std::vector<Key>& keys, const std::vector<Expr>& members, Expr other) {
  const size_t n = keys.size();
  size_t last_first = 0;  // the last key that may be the first that comes
  while (last_first < n && !keys[last_first].required) ++last_first;
  const auto after = [&](size_t i) {
    const Expr member = seq({text_.comma(), members[i]});
    return keys[i].required ? member : text_.optional(member);
  };
  std::vector<Expr> ways, rest;
  if (last_first == n) ways.push_back(list_of(other, 1, -1));
  // What may come after key `last_first`, then after those before it.
  for (size_t i = last_first + 1; i < n; ++i) rest.push_back(after(i));
  rest.push_back(times(seq({text_.comma(), other}), 0, -1));
  Expr tail = text_.sequence(rest);
  size_t nesting = 0;
  for (size_t i = std::min(last_first + 1, n); i-- > 0;) {
    ways.push_back(seq({members[i], tail}));
    if (i > 0) tail = seq({after(i), tail});
    if (++nesting % max_nesting == 0) tail = in_rule(tail, "json.members");
  }
  return text_.choice(std::move(ways));
}

// At least one member, and as many as the shape allows.
Expr Builder::counted(const Shape& s, const std::vector<Key>& keys,
                      const std::vector<Expr>& members, Expr other) {
  const size_t n = keys.size();
  const int64_t least = std::max<int64_t>(s.min_properties, 1);
  int64_t most = s.max_properties;
  if (other == nothing && (most < 0 || most > static_cast<int64_t>(n)))
    most = static_cast<int64_t>(n);
  if (most >= 0 && least > most) return nothing;
  // More of them than this make no difference.
  const int64_t full = std::min<int64_t>(most >= 0 ? most : least, static_cast<int64_t>(n));
  const size_t width = static_cast<size_t>(full) + 1;
  if ((n + 1) * width > max_counted)
    fail(Status::unsupported, merger_.where(s, most >= 0 ? "maxProperties" : "minProperties"),
         ": not supported: together with ", n, " properties");
  std::vector<Expr> next(width);  // after so many members, before key i
  for (size_t c = 0; c < width; ++c) {
    const int64_t have = static_cast<int64_t>(c);
    const int64_t lack = std::max<int64_t>(least - have, 0), left = most < 0 ? -1 : most - have;
    if (left == 0 || other == nothing)
      next[c] = lack == 0 ? rules_.empty() : nothing;
    else if (lack > 1)
      next[c] = nothing;
    else
      next[c] =
          c == 0 ? list_of(other, lack, left) : times(seq({text_.comma(), other}), lack, left);
  }
  for (size_t i = n; i-- > 0;) {
    std::vector<Expr> here(width);
    for (size_t c = 0; c < width; ++c) {
      std::vector<Expr> ways;
      const bool room = most < 0 || static_cast<int64_t>(c) < most;
      if (room) {
        const Expr rest = next[std::min(c + 1, width - 1)];
        ways.push_back(c == 0 ? seq({members[i], rest}) : seq({text_.comma(), members[i], rest}));
      }
      if (!keys[i].required) ways.push_back(next[c]);
      const bool both = ways.size() > 1;
      here[c] = text_.choice(std::move(ways));
      if (both && here[c] != next[c]) here[c] = in_rule(here[c], "json.members");
    }
    next = std::move(here);
  }
  return next[0];
}

// A member whose key has no place in the order.
Expr Builder::other_member(const Shape& s, const std::vector<std::string>& taken) {
  const auto patterns = merger_.key_patterns(s);
  const auto chars = [&](const std::vector<CharRange>& r) { return key_chars(rules_, r); };
  const Expr quote = rules_.literal("\"");
  if (patterns.empty() && taken.empty()) {
    const Expr v = value(merger_.other_value(s, {}));
    return seq({text_.key(), text_.colon(), v});
  }
  if (patterns.empty() && value(merger_.other_value(s, {})) == nothing) return nothing;
  const Node::Id node = patterns.empty() ? s.nodes[0] : patterns[0].second;
  const char* keyword = patterns.empty() ? "properties" : "patternProperties";
  if (patterns.size() >= max_patterns)
    fail(Status::unsupported, doc_.path(node), "/patternProperties: not supported: more than ",
         max_patterns, " patterns");
  Work& work = merger_.work(node, keyword);
  const Language names = Language::of_texts(taken, work);
  std::vector<const Language*> all = {&names};
  for (const auto& [text, id] : patterns)
    all.push_back(
        &merger_.language(merger_.pattern(text, id, "patternProperties"), id, "patternProperties"));
  const Language joint = Language::product(all, false, merger_.work(node, keyword));
  std::vector<Expr> ways;
  for (const uint64_t label : joint.labels()) {
    if (label & 1) continue;  // one of the names
    std::vector<std::string> matched;
    for (size_t i = 0; i < patterns.size(); ++i)
      if (label >> (i + 1) & 1) matched.push_back(patterns[i].first);
    const Expr v = value(merger_.other_value(s, matched));
    if (v == nothing) continue;
    Work& cost = merger_.work(node, keyword);
    const Expr key = joint.only(label, cost).expr(text_, rules_, chars, cost);
    ways.push_back(seq({quote, key, quote, text_.colon(), v}));
  }
  return text_.choice(std::move(ways));
}

}  // namespace orlop::schema
