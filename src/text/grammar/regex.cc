// From a regular expression's tree to rules. Rules know no anchors, so these are resolved here:
// what a part of the expression matches depends on whether the text before it is empty (^ holds)
// and the text after it is (! $ holds). Each part is built for those of the four cases that come
// up, apart into the texts of one character or more and the empty one, since only the empty one
// leaves ^ or $ true for a neighbour.
#include "text/grammar/regex.h"

#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "text/grammar/regex_tree.h"
#include "text/utf8.h"

namespace orlop {
namespace {

using Expr = Rules::Expr;
using Kind = RegexTree::Kind;
using Node = RegexTree::Node;

// What a part matches; no text: only the empty one, or nothing.
struct Split {
  std::optional<Expr> text;  // one character or more
  bool empty = false;
};

class Builder {
 public:
  Builder(Rules& rules, const RegexTree& tree, const RegexOptions& options)
      : rules_(rules),
        tree_(tree),
        options_(options),
        plain_(tree.nodes.size(), -1),
        sets_(tree.sets.size(), -1) {}

  Expr build() {
    const Node& root = tree_.nodes[tree_.root];
    std::vector<Expr> ways;
    const auto add = [&](bool start, bool end) {
      const std::optional<Expr> inside = whole(tree_.root, start, end);
      if (!inside) return;
      std::vector<Expr> parts;
      if (!options_.whole && !(root.starts && start)) parts.push_back(filler(root.starts));
      parts.push_back(*inside);
      if (!options_.whole && !(root.ends && end)) parts.push_back(filler(root.ends));
      ways.push_back(rules_.sequence(parts));
    };
    const bool starts = !options_.whole && root.starts, ends = !options_.whole && root.ends;
    add(true, true);
    if (starts) add(false, true);
    if (ends) add(true, false);
    if (starts && ends) add(false, false);
    if (ways.empty())
      fail(Status::invalid_argument, "regular expression: its anchors leave no text that matches");
    return rules_.choice(ways);
  }

 private:
  const Node& node(uint32_t id) const { return tree_.nodes[id]; }
  std::span<const uint32_t> children(const Node& n) const {
    return {tree_.parts.data() + n.begin, n.count};
  }

  // Any characters; at_least_one where no character at all is another case.
  Expr filler(bool at_least_one) {
    if (!any_) any_ = characters(complement_ranges({}));
    return rules_.repeat(*any_, at_least_one ? 1 : 0, Rules::unbounded);
  }

  Expr characters(std::span<const CharRange> ranges) {
    if (ranges.empty()) return rules_.choice({});
    return options_.characters ? options_.characters(rules_, ranges) : rules_.chars(ranges);
  }

  Expr literal(uint32_t code) {
    const auto [it, fresh] = literals_.try_emplace(code, -1);
    if (fresh) {
      const CharRange one{code, code};
      std::string bytes;
      utf8_append(bytes, code);
      it->second =
          options_.characters ? options_.characters(rules_, {&one, 1}) : rules_.literal(bytes);
    }
    return it->second;
  }

  // ---- without anchors ----

  Expr plain(uint32_t id) {
    if (plain_[id] < 0) plain_[id] = make_plain(id);
    return plain_[id];
  }

  Expr make_plain(uint32_t id) {
    const Node& n = node(id);
    switch (n.kind) {
      case Kind::literal:
        return literal(n.value);
      case Kind::set:
        if (sets_[n.value] < 0) sets_[n.value] = characters(tree_.sets[n.value]);
        return sets_[n.value];
      case Kind::sequence:
        return run(children(n));
      case Kind::repeat:
        return rules_.repeat(plain(children(n)[0]), n.least, n.most);
      case Kind::choice: {
        std::vector<Expr> all;
        all.reserve(n.count);
        for (uint32_t c : children(n)) all.push_back(plain(c));
        return rules_.choice(all);
      }
      default:
        fail(Status::internal, "regular expression: an anchor where none is");
    }
  }

  // Parts one after the other; characters that need no escape become one literal.
  Expr run(std::span<const uint32_t> parts) {
    std::vector<Expr> all;
    for (size_t i = 0; i < parts.size();) {
      std::string bytes;
      size_t end = i;
      for (; end < parts.size() && !options_.characters && node(parts[end]).kind == Kind::literal;
           ++end)
        utf8_append(bytes, node(parts[end]).value);
      if (end > i + 1) {
        all.push_back(rules_.literal(bytes));
        i = end;
      } else {
        all.push_back(plain(parts[i++]));
      }
    }
    return rules_.sequence(all);
  }

  bool nullable(std::span<const uint32_t> parts) const {
    for (uint32_t p : parts)
      if (!node(p).nullable) return false;
    return true;
  }

  // What a part that also matches the empty text matches besides.
  std::optional<Expr> some(uint32_t id) {
    const Node& n = node(id);
    if (!n.nullable) return plain(id);
    switch (n.kind) {
      case Kind::sequence:
        return some(children(n));
      case Kind::choice: {
        std::vector<Expr> all;
        for (uint32_t c : children(n))
          if (const auto text = some(c)) all.push_back(*text);
        return any_of(all);
      }
      case Kind::repeat: {
        const auto text = some(children(n)[0]);
        if (!text || n.most == 0) return std::nullopt;
        return rules_.repeat(*text, 1, n.most);
      }
      default:
        return std::nullopt;
    }
  }

  std::optional<Expr> some(std::span<const uint32_t> parts) {
    if (!nullable(parts)) return run(parts);
    std::optional<Expr> rest;  // of the parts behind, what is not empty
    for (size_t i = parts.size(); i-- > 0;) {
      spend();
      const auto text = some(parts[i]);
      std::vector<Expr> ways;
      if (text) ways.push_back(rest ? followed(*text, optional(*rest)) : *text);
      if (rest) ways.push_back(*rest);
      rest = any_of(ways);
    }
    return rest;
  }

  // ---- with anchors ----

  // What a part matches where ^ (start) and $ (end) hold at its borders.
  std::optional<Expr> whole(uint32_t id, bool start, bool end) {
    const Node& n = node(id);
    if (!n.anchored()) return plain(id);
    start &= n.starts;
    end &= n.ends;
    switch (n.kind) {
      case Kind::choice: {
        std::vector<Expr> all;
        for (uint32_t c : children(n))
          if (const auto text = whole(c, start, end)) all.push_back(*text);
        return any_of(all);
      }
      case Kind::sequence:
        return whole_sequence(children(n), start, end);
      default:
        return join(split(id, start, end));
    }
  }

  // Where every ^ is left of every $, what is between them stands for itself.
  std::optional<Expr> whole_sequence(std::span<const uint32_t> parts, bool start, bool end) {
    size_t head = parts.size(), tail = 0;  // the parts up to the last ^; from the first $ on
    while (head > 0 && !node(parts[head - 1]).starts) --head;
    while (tail < parts.size() && !node(parts[tail]).ends) ++tail;
    if (head > tail) return join(split(parts, start, end));
    const auto side = [&](std::span<const uint32_t> some_parts, bool s, bool e) {
      return some_parts.size() == 1 ? whole(some_parts[0], s, e) : join(split(some_parts, s, e));
    };
    std::vector<Expr> all;
    if (head > 0) {
      const auto text = side(parts.first(head), start, false);
      if (!text) return std::nullopt;
      all.push_back(*text);
    }
    if (head < tail) all.push_back(run(parts.subspan(head, tail - head)));
    if (tail < parts.size()) {
      const auto text = side(parts.subspan(tail), false, end);
      if (!text) return std::nullopt;
      all.push_back(*text);
    }
    return rules_.sequence(all);
  }

  Split split(uint32_t id, bool start, bool end) {
    const Node& n = node(id);
    start &= n.starts;
    end &= n.ends;
    const uint64_t key = uint64_t{id} << 2 | (start ? 2u : 0u) | (end ? 1u : 0u);
    if (const auto it = splits_.find(key); it != splits_.end()) return it->second;
    const Split made = make_split(id, start, end);
    splits_.emplace(key, made);
    return made;
  }

  Split make_split(uint32_t id, bool start, bool end) {
    const Node& n = node(id);
    if (!n.anchored()) return {some(id), n.nullable};
    switch (n.kind) {
      case Kind::start:
        return {std::nullopt, start};
      case Kind::end:
        return {std::nullopt, end};
      case Kind::sequence:
        return split(children(n), start, end);
      case Kind::repeat:
        return split_repeat(n, start, end);
      default:
        break;
    }
    std::vector<Expr> all;
    bool empty = false;
    for (uint32_t c : children(n)) {
      const Split s = split(c, start, end);
      if (s.text) all.push_back(*s.text);
      empty |= s.empty;
    }
    return {any_of(all), empty};
  }

  // From the right: what the parts behind match, where ^ does not hold before them and where it
  // does as before the whole.
  Split split(std::span<const uint32_t> parts, bool start, bool end) {
    Split inner{std::nullopt, true}, first{std::nullopt, true};
    for (size_t right = parts.size(); right > 0;) {
      size_t left = right - 1;  // one anchored part, or as many without as there are
      const bool anchored = node(parts[left]).anchored();
      while (!anchored && left > 0 && !node(parts[left - 1]).anchored()) --left;
      const auto block = parts.subspan(left, right - left);
      right = left;
      spend();
      Split fixed;
      if (!anchored) fixed = {some(block), nullable(block)};
      const auto item = [&](bool s, bool e) { return anchored ? split(block[0], s, e) : fixed; };
      const auto before = [&](bool s) {
        const Split middle = item(s, false), last = item(s, end);
        const Split& same = s ? first : inner;  // when the item is empty
        std::vector<Expr> ways;
        if (middle.text && inner.text && inner.empty && middle.text == last.text) {
          ways.push_back(followed(*middle.text, optional(*inner.text)));
        } else {
          if (middle.text && inner.text) ways.push_back(followed(*middle.text, *inner.text));
          if (last.text && inner.empty) ways.push_back(*last.text);
        }
        if (middle.empty && same.text) ways.push_back(*same.text);
        return Split{any_of(ways), last.empty && same.empty};
      };
      const Split new_first = before(start);
      inner = start ? before(false) : new_first;
      first = new_first;
    }
    return first;
  }

  // Rounds that match nothing fill up a count; of those that match something only the first may
  // have ^ true before it and only the last $ behind it.
  Split split_repeat(const Node& n, bool start, bool end) {
    if (n.most == 0) return {std::nullopt, true};
    const uint32_t what = children(n)[0];
    const Split only = split(what, start, end), first = split(what, start, false);
    const Split middle = split(what, false, false), last = split(what, false, end);
    const int32_t least = first.empty || last.empty ? 0 : n.least;
    std::vector<Expr> ways;
    if (least <= 1 && only.text) ways.push_back(*only.text);
    if (n.most != 1 && first.text && last.text) {
      const int32_t fewest = least > 2 ? least - 2 : 0;
      const int32_t most = n.most == Rules::unbounded ? n.most : n.most - 2;
      if (middle.text)
        ways.push_back(rules_.sequence(
            std::vector{*first.text, rules_.repeat(*middle.text, fewest, most), *last.text}));
      else if (fewest == 0)
        ways.push_back(followed(*first.text, *last.text));
    }
    return {any_of(ways), n.least == 0 || only.empty};
  }

  // ---- small things ----

  std::optional<Expr> any_of(const std::vector<Expr>& ways) {
    if (ways.empty()) return std::nullopt;
    return rules_.choice(ways);
  }
  std::optional<Expr> join(const Split& s) {
    if (s.text) return s.empty ? optional(*s.text) : *s.text;
    if (s.empty) return rules_.empty();
    return std::nullopt;
  }
  Expr followed(Expr a, Expr b) { return rules_.sequence(std::vector{a, b}); }
  Expr optional(Expr what) { return rules_.repeat(what, 0, 1); }

  // What is split apart nests expressions beyond the pattern's own nesting.
  void spend() {
    if (++spent_ > 4 * rules_.limits().max_depth)
      fail(Status::invalid_argument, "regular expression: more than ",
           4 * rules_.limits().max_depth, " parts beside anchors that are inside it");
  }

  Rules& rules_;
  const RegexTree& tree_;
  const RegexOptions& options_;
  std::vector<Expr> plain_, sets_;  // -1: not yet made
  std::unordered_map<uint32_t, Expr> literals_;
  std::unordered_map<uint64_t, Split> splits_;
  std::optional<Expr> any_;
  int32_t spent_ = 0;
};

}  // namespace

Rules::Expr regex_expr(Rules& rules, std::string_view pattern, const RegexOptions& options) {
  const RegexTree tree = parse_regex(pattern, rules.limits());
  return Builder(rules, tree, options).build();
}

}  // namespace orlop
