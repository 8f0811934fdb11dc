#include "text/grammar/rules.h"

#include <algorithm>

#include "base/error.h"
#include "text/piece_table.h"

namespace orlop {
namespace {

constexpr uint32_t last_code = 0x10ffff, first_surrogate = 0xd800, last_surrogate = 0xdfff;
// What the lists behind the expressions may hold, each: parts, ranges and bytes an expression.
constexpr size_t entries_an_expression = 8;

// Sorted, disjoint, not touching, without surrogates and what lies past Unicode.
std::vector<CharRange> normal_ranges(std::span<const CharRange> ranges) {
  std::vector<CharRange> cut;
  for (const CharRange& r : ranges) {
    const uint32_t last = std::min(r.last, last_code);
    if (r.first > last) continue;
    if (r.first < first_surrogate) cut.push_back({r.first, std::min(last, first_surrogate - 1)});
    if (last > last_surrogate) cut.push_back({std::max(r.first, last_surrogate + 1), last});
  }
  std::sort(cut.begin(), cut.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  std::vector<CharRange> out;
  for (const CharRange& r : cut) {
    if (!out.empty() && r.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, r.last);
    else
      out.push_back(r);
  }
  return out;
}

bool same(const CharRange& a, const CharRange& b) {
  return a.first == b.first && a.last == b.last;
}

}  // namespace

Rules::Expr Rules::add(Node node) {
  if (nodes_.size() >= limits_.max_expressions)
    fail(Status::invalid_argument, "grammar: more than ", limits_.max_expressions,
         " expressions (max_expressions)");
  nodes_.push_back(node);
  return static_cast<Expr>(nodes_.size() - 1);
}

void Rules::reserve_entries(size_t have, size_t more, const char* what) const {
  // More than 2^28 would not fit the 32 bits that count them.
  const size_t most = std::min(limits_.max_expressions, size_t{1} << 28) * entries_an_expression;
  if (more > most || have > most - more)
    fail(Status::invalid_argument, "grammar: more than ", most, " ", what,
         " (max_expressions times ", entries_an_expression, ")");
}

void Rules::check(Expr e) const {
  if (e < 0 || static_cast<size_t>(e) >= nodes_.size())
    fail(Status::invalid_argument, "grammar: ", e, " is no expression of these rules");
}

Rules::Expr Rules::empty() {
  return add({.kind = Kind::empty});
}

Rules::Expr Rules::literal(std::string_view bytes) {
  if (bytes.empty()) return empty();
  reserve_entries(bytes_.size(), bytes.size(), "bytes of literals");
  const Expr e = add({.kind = Kind::literal,
                      .begin = static_cast<uint32_t>(bytes_.size()),
                      .count = static_cast<uint32_t>(bytes.size())});
  bytes_ += bytes;
  return e;
}

Rules::Expr Rules::chars(std::span<const CharRange> ranges) {
  const std::vector<CharRange> normal = normal_ranges(ranges);
  if (normal.empty()) return choice({});
  // Classes come again and again; one set of ranges is kept once.
  const uint64_t hash =
      hash_bytes({reinterpret_cast<const char*>(normal.data()), normal.size() * sizeof(CharRange)},
                 hash_seed());
  const auto [begin, end] = known_chars_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Node& n = nodes_[static_cast<size_t>(it->second)];
    if (n.count == normal.size() &&
        std::equal(normal.begin(), normal.end(), ranges_.begin() + n.begin, same))
      return it->second;
  }
  reserve_entries(ranges_.size(), normal.size(), "character ranges");
  const Expr e = add({.kind = Kind::chars,
                      .begin = static_cast<uint32_t>(ranges_.size()),
                      .count = static_cast<uint32_t>(normal.size())});
  ranges_.insert(ranges_.end(), normal.begin(), normal.end());
  known_chars_.emplace(hash, e);
  return e;
}

Rules::Expr Rules::add_parts(Kind kind, std::span<const Expr> parts) {
  for (const Expr e : parts) check(e);
  if (parts.size() == 1) return parts[0];
  reserve_entries(parts_.size(), parts.size(), "parts of sequences and choices");
  const Expr e = add({.kind = kind,
                      .begin = static_cast<uint32_t>(parts_.size()),
                      .count = static_cast<uint32_t>(parts.size())});
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  return e;
}

Rules::Expr Rules::sequence(std::span<const Expr> parts) {
  return parts.empty() ? empty() : add_parts(Kind::sequence, parts);
}

Rules::Expr Rules::choice(std::span<const Expr> parts) {
  return add_parts(Kind::choice, parts);
}

Rules::Expr Rules::repeat(Expr what, int32_t least, int32_t most) {
  check(what);
  if (least < 0 || (most != unbounded && most < least))
    fail(Status::invalid_argument, "grammar: a repetition of ", least, " to ", most, " times");
  if (most == 0) return empty();
  if (least == 1 && most == 1) return what;
  reserve_entries(parts_.size(), 1, "parts of sequences and choices");
  const Expr e = add({.kind = Kind::repeat,
                      .a = least,
                      .b = most,
                      .begin = static_cast<uint32_t>(parts_.size()),
                      .count = 1});
  parts_.push_back(what);
  return e;
}

int32_t Rules::declare(std::string name) {
  if (rules_.size() >= limits_.max_expressions)
    fail(Status::invalid_argument, "grammar: more than ", limits_.max_expressions,
         " rules (max_expressions)");
  rules_.push_back({std::move(name), -1});
  return static_cast<int32_t>(rules_.size() - 1);
}

void Rules::define(int32_t rule, Expr body) {
  check(body);
  if (rule < 0 || static_cast<size_t>(rule) >= rules_.size())
    fail(Status::invalid_argument, "grammar: ", rule, " is no rule of these");
  Rule& r = rules_[static_cast<size_t>(rule)];
  if (r.body >= 0) fail(Status::invalid_argument, "grammar: rule '", r.name, "' is defined twice");
  r.body = body;
}

Rules::Expr Rules::call(int32_t rule) {
  if (rule < 0 || static_cast<size_t>(rule) >= rules_.size())
    fail(Status::invalid_argument, "grammar: ", rule, " is no rule of these");
  return add({.kind = Kind::call, .a = rule});
}

}  // namespace orlop
