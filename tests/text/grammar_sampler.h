// Random texts of a grammar: what the rules say, without the automaton.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/rules.h"
#include "text/utf8.h"

namespace orlop::test {

class GrammarSampler {
 public:
  explicit GrammarSampler(const Rules& rules) : rules_(rules), cost_(rules.nodes().size(), none) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t e = 0; e < cost_.size(); ++e) {
        const uint32_t now = cost_of(rules_.nodes()[e]);
        if (now < cost_[e]) {
          cost_[e] = now;
          moved = true;
        }
      }
    }
  }

  bool any() const { return cost_[static_cast<size_t>(rules_.root())] != none; }

  // About the steps that the shortest text takes.
  uint32_t shortest() const { return cost_[static_cast<size_t>(rules_.root())]; }

  // Grows freely for about so many steps, then ends as soon as it can.
  std::string sample(std::mt19937_64& random, int32_t steps = 300) const {
    std::string out;
    write(rules_.root(), random, steps, out);
    return out;
  }

 private:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max() / 2;

  size_t part(const Rules::Node& n, uint32_t i) const {
    return static_cast<size_t>(rules_.parts()[n.begin + i]);
  }

  // About the steps of the shortest text.
  uint32_t cost_of(const Rules::Node& n) const {
    uint64_t sum = 1;
    switch (n.kind) {
      case Rules::Kind::sequence:
        for (uint32_t i = 0; i < n.count; ++i) sum += cost_[part(n, i)];
        break;
      case Rules::Kind::choice:
        sum = none;
        for (uint32_t i = 0; i < n.count; ++i)
          sum = std::min<uint64_t>(sum, cost_[part(n, i)] + 1u);
        break;
      case Rules::Kind::repeat:
        if (n.a > 0) sum += uint64_t{cost_[part(n, 0)]} * static_cast<uint32_t>(n.a);
        break;
      case Rules::Kind::call: {
        const Rules::Expr body = rules_.rules()[static_cast<size_t>(n.a)].body;
        sum = body < 0 ? none : cost_[static_cast<size_t>(body)] + 1;
        break;
      }
      default:
        break;
    }
    return static_cast<uint32_t>(std::min<uint64_t>(sum, none));
  }

  static uint64_t below(std::mt19937_64& random, uint64_t n) { return random() % n; }

  void write(Rules::Expr e, std::mt19937_64& random, int32_t& steps, std::string& out) const {
    const Rules::Node& n = rules_.nodes()[static_cast<size_t>(e)];
    --steps;
    switch (n.kind) {
      case Rules::Kind::empty:
        break;
      case Rules::Kind::literal:
        out.append(rules_.bytes(), n.begin, n.count);
        break;
      case Rules::Kind::chars: {
        // Any range is as likely as the others, its ends more than what is between.
        const CharRange& r = rules_.ranges()[n.begin + below(random, n.count)];
        const uint32_t size = r.last - r.first + 1;
        const uint64_t how = below(random, 8);
        uint32_t code = how == 0 ? r.first : how == 1 ? r.last : 0;
        if (how > 1)
          code =
              r.first + static_cast<uint32_t>(below(random, how < 6 ? std::min(size, 96u) : size));
        utf8_append(out, code);
        break;
      }
      case Rules::Kind::sequence:
        for (uint32_t i = 0; i < n.count; ++i)
          write(rules_.parts()[n.begin + i], random, steps, out);
        break;
      case Rules::Kind::choice: {
        std::vector<uint32_t> ways;
        uint32_t best = none;
        for (uint32_t i = 0; i < n.count; ++i) best = std::min(best, cost_[part(n, i)]);
        for (uint32_t i = 0; i < n.count; ++i)
          if (cost_[part(n, i)] != none && (steps > 0 || cost_[part(n, i)] == best))
            ways.push_back(i);
        write(rules_.parts()[n.begin + ways[below(random, ways.size())]], random, steps, out);
        break;
      }
      case Rules::Kind::repeat: {
        int64_t times = n.a;
        const int64_t more = n.b == Rules::unbounded ? 40 : std::min(n.b - n.a, 40);
        if (cost_[part(n, 0)] != none && steps > 0 && more > 0) {
          const uint64_t how = below(random, 4);
          if (how == 1) times += 1;
          if (how == 2)
            times += static_cast<int64_t>(
                below(random, static_cast<uint64_t>(std::min<int64_t>(more, 5)) + 1));
          if (how == 3)
            times += static_cast<int64_t>(below(random, static_cast<uint64_t>(more) + 1));
        }
        for (int64_t i = 0; i < times && (i < n.a || steps > 0); ++i)
          write(rules_.parts()[n.begin], random, steps, out);
        break;
      }
      case Rules::Kind::call:
        write(rules_.rules()[static_cast<size_t>(n.a)].body, random, steps, out);
        break;
    }
  }

  const Rules& rules_;
  std::vector<uint32_t> cost_;
};

}  // namespace orlop::test
