// For tests of grammars: whether short texts follow rules, by trying everything; and small helpers.
#pragma once
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "text/grammar/rules.h"
#include "text/utf8.h"

namespace orlop::test {

// Sets of places in a text of at most 63 bytes, as bits.
class RulesMatch {
 public:
  RulesMatch(const Rules& rules, std::string_view text) : rules_(rules), text_(text) {
    if (text.size() > 63) throw std::runtime_error("RulesMatch: the text is too long");
  }
  bool matches(Rules::Expr e) { return ends(e, 1) >> text_.size() & 1; }

 private:
  uint64_t ends(Rules::Expr e, uint64_t from) {
    if (from == 0) return 0;
    if (++depth_ > 5000) throw std::runtime_error("RulesMatch: left recursion");
    const uint64_t to = step(rules_.nodes()[static_cast<size_t>(e)], from);
    --depth_;
    return to;
  }

  uint64_t step(const Rules::Node& n, uint64_t from) {
    using Kind = Rules::Kind;
    uint64_t to = 0;
    switch (n.kind) {
      case Kind::empty:
        return from;
      case Kind::literal: {
        const std::string_view bytes = std::string_view(rules_.bytes()).substr(n.begin, n.count);
        for (size_t i = 0; i <= text_.size(); ++i)
          if (from >> i & 1 && text_.substr(i).starts_with(bytes))
            to |= uint64_t{1} << (i + n.count);
        return to;
      }
      case Kind::chars:
        for (size_t i = 0; i < text_.size(); ++i) {
          if (!(from >> i & 1)) continue;
          const Utf8Step c = utf8_step(text_, i);
          if (!c.whole) continue;
          for (uint32_t k = 0; k < n.count; ++k) {
            const CharRange r = rules_.ranges()[n.begin + k];
            if (r.first <= c.code && c.code <= r.last) to |= uint64_t{1} << (i + c.length);
          }
        }
        return to;
      case Kind::sequence:
        to = from;
        for (uint32_t k = 0; k < n.count; ++k) to = ends(rules_.parts()[n.begin + k], to);
        return to;
      case Kind::choice:
        for (uint32_t k = 0; k < n.count; ++k) to |= ends(rules_.parts()[n.begin + k], from);
        return to;
      case Kind::repeat: {
        const Rules::Expr what = rules_.parts()[n.begin];
        uint64_t now = from;
        for (int32_t i = 0; i < n.a; ++i) {
          const uint64_t next = ends(what, now);
          if (next == now) break;  // stays so
          now = next;
        }
        to = now;
        for (int32_t i = n.a; n.b < 0 || i < n.b; ++i) {
          now = ends(what, now);
          if ((to | now) == to) break;
          to |= now;
        }
        return to;
      }
      case Kind::call:
        return ends(rules_.rules()[static_cast<size_t>(n.a)].body, from);
    }
    return 0;
  }

  const Rules& rules_;
  const std::string_view text_;
  int depth_ = 0;
};

inline bool follows(const Rules& rules, std::string_view text) {
  return RulesMatch(rules, text).matches(rules.root());
}

// Seconds that f took.
template <class F>
inline double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline std::string repeated(std::string_view what, size_t n) {
  std::string out;
  out.reserve(what.size() * n);
  for (size_t i = 0; i < n; ++i) out += what;
  return out;
}

}  // namespace orlop::test
