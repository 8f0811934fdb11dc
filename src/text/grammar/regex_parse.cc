// ECMA-262, section 22.2.1 (Pattern), with the u flag's strictness where Annex B and Python's re do
// not agree with each other.
#include <set>
#include <string>
#include <unordered_map>

#include "text/grammar/regex_escape.h"
#include "text/grammar/regex_tree.h"
#include "text/utf8.h"

namespace orlop {
namespace {

using Kind = RegexTree::Kind;
using Node = RegexTree::Node;

class Parser {
 public:
  Parser(std::string_view pattern, const GrammarLimits& limits) : in_{pattern}, limits_(limits) {}

  RegexTree parse() {
    tree_.root = alternatives();
    if (!in_.done()) in_.refuse(in_.pos, "a ) without its (");
    return std::move(tree_);
  }

 private:
  uint32_t add(Node node) {
    tree_.nodes.push_back(node);
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }

  uint32_t add(Kind kind, const std::vector<uint32_t>& children) {
    if (children.size() == 1) return children[0];
    Node n{.kind = kind};
    n.begin = static_cast<uint32_t>(tree_.parts.size());
    n.count = static_cast<uint32_t>(children.size());
    n.nullable = kind == Kind::sequence;
    for (uint32_t c : children) {
      const Node& child = tree_.nodes[c];
      n.starts |= child.starts;
      n.ends |= child.ends;
      n.nullable =
          kind == Kind::sequence ? n.nullable && child.nullable : n.nullable || child.nullable;
      tree_.parts.push_back(c);
    }
    return add(n);
  }

  uint32_t alternatives() {
    std::vector<uint32_t> all;
    do all.push_back(sequence());
    while (in_.take('|'));
    return add(Kind::choice, all);
  }

  uint32_t sequence() {
    std::vector<uint32_t> all;
    while (!in_.done() && !in_.at("|") && !in_.at(")")) all.push_back(counted());
    return add(Kind::sequence, all);
  }

  uint32_t counted() {
    const bool anchor = in_.at("^") || in_.at("$");
    const uint32_t what = atom();
    const size_t start = in_.pos;
    int32_t least = 0, most = 0;
    if (!count(least, most)) return what;
    if (anchor) in_.refuse(start, "an anchor cannot be repeated");
    // Lazy counts match the same texts.
    if (!in_.take('?') && in_.at("+")) in_.refuse(in_.pos, "possessive counts are not supported");
    const size_t again = in_.pos;
    int32_t a = 0, b = 0;
    if (count(a, b)) in_.refuse(again, "a count of a count, group what it applies to");
    if (least == 1 && most == 1) return what;
    Node n{.kind = Kind::repeat};
    n.starts = tree_.nodes[what].starts;
    n.ends = tree_.nodes[what].ends;
    n.nullable = least == 0 || tree_.nodes[what].nullable;
    n.least = least;
    n.most = most;
    n.begin = static_cast<uint32_t>(tree_.parts.size());
    n.count = 1;
    tree_.parts.push_back(what);
    return add(n);
  }

  // *, +, ?, {m}, {m,}, {m,n}; false for anything else, braces that are no count too.
  bool count(int32_t& least, int32_t& most) {
    if (in_.take('*')) {
      least = 0, most = Rules::unbounded;
    } else if (in_.take('+')) {
      least = 1, most = Rules::unbounded;
    } else if (in_.take('?')) {
      least = 0, most = 1;
    } else if (in_.at("{")) {
      return braces(least, most);
    } else {
      return false;
    }
    return true;
  }

  bool braces(int32_t& least, int32_t& most) {
    const size_t start = in_.pos++;
    const bool has_least = number(start, least);
    most = least;
    bool has_most = false;
    if (in_.take(',')) {
      most = Rules::unbounded;
      has_most = number(start, most);
      if (!has_least && in_.at("}"))
        in_.refuse(start, "{,n} means one thing here and another there, write {0,n}");
    }
    if (!has_least || !in_.take('}')) {
      in_.pos = start;
      return false;
    }
    if (has_most && most < least)
      in_.refuse(start, "the count's upper bound is below its lower one");
    return true;
  }

  bool number(size_t start, int32_t& value) {
    int64_t v = 0;
    bool any = false;
    for (; !in_.done() && in_.text[in_.pos] >= '0' && in_.text[in_.pos] <= '9'; ++in_.pos) {
      any = true;
      v = v * 10 + (in_.text[in_.pos] - '0');
      if (v > INT32_MAX) in_.refuse(start, "a count beyond ", INT32_MAX);
    }
    if (any) value = static_cast<int32_t>(v);
    return any;
  }

  uint32_t atom() {
    const size_t start = in_.pos;
    const char c = in_.text[start];
    switch (c) {
      case '(':
        return group();
      case '[':
        return char_class();
      case '.': {
        ++in_.pos;
        return set(start, [] {
          CharRanges r = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
          return complement_ranges(r);
        });
      }
      case '^':
        ++in_.pos;
        return add(Node{.kind = Kind::start, .starts = true});
      case '$':
        ++in_.pos;
        return add(Node{.kind = Kind::end, .ends = true});
      case '*':
      case '+':
      case '?':
        in_.refuse(start, "nothing before ", c, " to repeat");
      case '{': {
        int32_t a = 0, b = 0;
        if (braces(a, b)) in_.refuse(start, "nothing before { to repeat");
        break;
      }
      case '\\': {
        const RegexEscape e = read_escape(in_, false);
        if (!e.set) return literal(e.code);
        return set(start, [&] { return e.negated ? complement_ranges(*e.set) : *e.set; });
      }
      default:
        break;
    }
    return literal(read_code_point(in_));
  }

  uint32_t literal(uint32_t code) { return add(Node{.kind = Kind::literal, .value = code}); }

  // The set that the pattern's text from start on writes; made once for each way to write it.
  template <class Make>
  uint32_t set(size_t start, Make make) {
    const std::string_view key = in_.text.substr(start, in_.pos - start);
    const auto [it, fresh] = set_ids_.try_emplace(key, static_cast<uint32_t>(tree_.sets.size()));
    if (fresh) {
      tree_.sets.push_back(make());
      ranges_ += tree_.sets.back().size();
      if (ranges_ > limits_.max_expressions)
        in_.refuse(start, "the classes have more than ", limits_.max_expressions, " ranges");
    }
    const CharRanges& s = tree_.sets[it->second];
    if (s.size() == 1 && s[0].first == s[0].last) return literal(s[0].first);
    return add(Node{.kind = Kind::set, .value = it->second});
  }

  uint32_t group() {
    const size_t start = in_.pos++;
    if (++depth_ > limits_.max_depth)
      in_.refuse(start, "groups nested deeper than ", limits_.max_depth);
    if (in_.at("*")) in_.refuse(start, "verbs (* are not supported");
    if (in_.take('?')) group_kind(start);
    const uint32_t inside = alternatives();
    if (!in_.take(')')) in_.refuse(start, "a ( without its )");
    --depth_;
    return inside;
  }

  // After "(?": a group with or without a name, or a reason why not.
  void group_kind(size_t start) {
    if (in_.take(':')) return;
    if (in_.at("=") || in_.at("!")) in_.refuse(start, "look-ahead is not supported");
    if (in_.at("<=") || in_.at("<!")) in_.refuse(start, "look-behind is not supported");
    if (in_.at(">")) in_.refuse(start, "atomic groups are not supported");
    if (in_.at("(")) in_.refuse(start, "conditionals are not supported");
    if (in_.at("#")) in_.refuse(start, "comments (?# are not supported");
    if (in_.at("|")) in_.refuse(start, "branch resets (?| are not supported");
    if (in_.at("P=")) in_.refuse(start, "back references (?P= are not supported");
    if (in_.at("P>") || in_.at("&") || in_.at("R") ||
        (!in_.done() && in_.text[in_.pos] >= '0' && in_.text[in_.pos] <= '9'))
      in_.refuse(start, "recursion is not supported");
    if (in_.at("P<")) ++in_.pos;
    if (!in_.take('<')) {
      if (in_.done()) in_.refuse(start, "a ( without its )");
      const char c = in_.text[in_.pos];
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '^')
        in_.refuse(start, "inline flags are not supported");
      in_.refuse(start, "a group of unknown kind");
    }
    const size_t begin = in_.pos;
    const auto in_name = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
             (c >= '0' && c <= '9' && in_.pos > begin);
    };
    while (!in_.done() && in_name(in_.text[in_.pos])) ++in_.pos;
    const std::string_view name = in_.text.substr(begin, in_.pos - begin);
    if (name.empty() || !in_.take('>'))
      in_.refuse(start, "a group's name is of ASCII letters, digits and _, and ends with >");
    if (!names_.insert(name).second) in_.refuse(start, "two groups of the same name");
  }

  struct ClassAtom {
    bool is_set = false;
    uint32_t code = 0;
  };

  uint32_t char_class() {
    const size_t start = in_.pos++;
    const bool negated = in_.take('^');
    if (in_.at("]"))
      in_.refuse(start, "an empty class; write \\] for a ] that belongs to the class");
    CharRanges ranges;
    // Each named set is taken once, so that a long class of them stays small.
    std::set<std::pair<const CharRanges*, bool>> taken;
    const auto next = [&]() -> ClassAtom {
      if (in_.done()) in_.refuse(start, "a [ without its ]");
      if (in_.text[in_.pos] != '\\') {
        refuse_posix();
        return {false, read_code_point(in_)};
      }
      const RegexEscape e = read_escape(in_, true);
      if (!e.set) return {false, e.code};
      if (taken.insert({e.set, e.negated}).second) {
        const CharRanges s = e.negated ? complement_ranges(*e.set) : *e.set;
        ranges.insert(ranges.end(), s.begin(), s.end());
      }
      return {true, 0};
    };
    while (!in_.take(']')) {
      const size_t at = in_.pos;
      const ClassAtom low = next();
      ClassAtom high = low;
      if (in_.at("-") && !in_.at("-]")) {
        ++in_.pos;
        high = next();
        if (low.is_set || high.is_set) in_.refuse(at, "a range from or to a set of characters");
        if (high.code < low.code) in_.refuse(at, "a range whose end is before its beginning");
      }
      if (!low.is_set) ranges.push_back({low.code, high.code});
    }
    return set(start, [&] {
      normalize_ranges(ranges);
      return negated ? complement_ranges(ranges) : std::move(ranges);
    });
  }

  // [[:alpha:]] means something else to ECMA-262 than its writer does.
  void refuse_posix() {
    if (!in_.at("[:")) return;
    size_t end = in_.pos + 2;
    while (end < in_.text.size() && in_.text[end] >= 'a' && in_.text[end] <= 'z') ++end;
    if (in_.text.substr(end).starts_with(":]"))
      in_.refuse(in_.pos, "POSIX classes are not supported, write \\p{...}");
  }

  RegexCursor in_;
  const GrammarLimits& limits_;
  RegexTree tree_;
  int32_t depth_ = 0;
  size_t ranges_ = 0;
  std::set<std::string_view> names_;
  std::unordered_map<std::string_view, uint32_t> set_ids_;
};

}  // namespace

RegexTree parse_regex(std::string_view pattern, const GrammarLimits& limits) {
  if (pattern.size() > limits.max_source)
    fail(Status::invalid_argument, "regular expression: ", pattern.size(), " bytes; the limit is ",
         limits.max_source);
  if (const size_t valid = utf8_valid_prefix(pattern); valid < pattern.size())
    fail(Status::invalid_argument, "regular expression: byte ", valid, ": not valid UTF-8");
  return Parser(pattern, limits).parse();
}

}  // namespace orlop
