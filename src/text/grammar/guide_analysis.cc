#include "text/grammar/guide_analysis.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop {

using Kind = Rules::Kind;

void StepCounter::add(uint64_t steps) {
  steps_ += steps;
  if (steps_ > most_)
    fail(Status::invalid_argument, "grammar: compiling takes more than ", most_,
         " steps (max_compile_steps)");
}

bool Spelling::has(uint32_t code) const {
  if (code < 0x80) return byte[code];
  const auto it = std::partition_point(wide.begin(), wide.end(),
                                       [&](const CharRange& r) { return r.last < code; });
  return it != wide.end() && it->first <= code;
}

bool Spelling::has(std::string_view text) const {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    // Bytes outside characters can only come one by one; the tree holds such tokens where characters
    // can be continued.
    bool spelled = step.whole ? has(step.code) : continues;
    for (uint32_t i = 0; i < step.length && !step.whole; ++i)
      spelled &= byte[static_cast<uint8_t>(text[pos + i])];
    if (!spelled) return false;
    pos += step.length;
  }
  return true;
}

namespace {

std::vector<CharRange> spelled_ranges(std::span<const CharRange> ranges, const Spelling& spelling,
                                      StepCounter& steps) {
  std::vector<CharRange> out;
  const auto put = [&](uint32_t first, uint32_t last) {
    if (!out.empty() && out.back().last + 1 == first)
      out.back().last = last;
    else
      out.push_back({first, last});
  };
  const auto& wide = spelling.wide;
  for (const CharRange& r : ranges) {
    steps.add(1);
    for (uint32_t code = r.first; code <= r.last && code < 0x80; ++code)
      if (spelling.has(code)) put(code, code);
    const uint32_t first = std::max(r.first, 0x80u);
    if (first > r.last) continue;
    for (auto it = std::partition_point(wide.begin(), wide.end(),
                                        [&](const CharRange& w) { return w.last < first; });
         it != wide.end() && it->first <= r.last; ++it) {
      put(std::max(it->first, first), std::min(it->last, r.last));
      steps.add(1);
    }
  }
  return out;
}

class Analyzer {
 public:
  Analyzer(const Rules& rules, const Spelling* spelling, StepCounter& steps)
      : rules_(rules), nodes_(rules.nodes()), spelling_(spelling), steps_(steps) {}

  RulesAnalysis run() {
    if (rules_.root() < 0 || at(rules_.root()) >= nodes_.size())
      fail(Status::invalid_argument, "grammar: it has no root");
    reach();
    link();
    if (spelling_) {
      a_.spelled.resize(nodes_.size());
      for (size_t e = 0; e < nodes_.size(); ++e)
        if (a_.reached[e] && nodes_[e].kind == Kind::chars)
          a_.spelled[e] = spelled_ranges(ranges(nodes_[e]), *spelling_, steps_);
    }
    a_.productive = spread([&](size_t e) { return productive_alone(e); });
    a_.nullable = spread([&](size_t e) {
      return nodes_[e].kind == Kind::empty || (nodes_[e].kind == Kind::repeat && nodes_[e].a == 0);
    });
    if (!a_.productive[at(rules_.root())]) fail_unproductive();
    return std::move(a_);
  }

 private:
  static size_t at(Rules::Expr e) { return static_cast<size_t>(e); }
  std::span<const CharRange> ranges(const Rules::Node& n) const {
    return {rules_.ranges().data() + n.begin, n.count};
  }
  // Calls f with each expression that e is made of (a call: the rule's body).
  template <class F>
  void children(size_t e, F&& f) {
    const Rules::Node& n = nodes_[e];
    if (n.kind == Kind::sequence || n.kind == Kind::choice || n.kind == Kind::repeat) {
      for (uint32_t i = 0; i < n.count; ++i) f(at(rules_.parts()[n.begin + i]));
    } else if (n.kind == Kind::call) {
      f(at(rules_.rules()[at(n.a)].body));
    }
  }

  void reach() {
    a_.reached.assign(nodes_.size(), 0);
    a_.uses.assign(nodes_.size(), 0);
    std::vector<size_t> todo{at(rules_.root())};
    a_.reached[todo[0]] = 1;
    a_.uses[todo[0]] = 1;
    while (!todo.empty()) {
      const size_t e = todo.back();
      todo.pop_back();
      if (nodes_[e].kind == Kind::call) {
        const Rules::Rule& rule = rules_.rules()[at(nodes_[e].a)];
        if (rule.body < 0)
          fail(Status::invalid_argument, "grammar: rule '", rule.name, "' is not defined");
      }
      steps_.add(1 + nodes_[e].count);
      children(e, [&](size_t child) {
        ++a_.uses[child];
        if (a_.reached[child]) return;
        a_.reached[child] = 1;
        todo.push_back(child);
      });
    }
  }

  // Who is made of whom, the other way round.
  void link() {
    begin_.assign(nodes_.size() + 1, 0);
    for (size_t e = 0; e < nodes_.size(); ++e)
      if (a_.reached[e]) children(e, [&](size_t child) { ++begin_[child + 1]; });
    for (size_t e = 0; e < nodes_.size(); ++e) begin_[e + 1] += begin_[e];
    parents_.resize(begin_.back());
    std::vector<uint32_t> fill(begin_.begin(), begin_.end() - 1);
    for (size_t e = 0; e < nodes_.size(); ++e)
      if (a_.reached[e])
        children(e, [&](size_t child) { parents_[fill[child]++] = static_cast<uint32_t>(e); });
    steps_.add(nodes_.size() + parents_.size());
  }

  bool productive_alone(size_t e) {
    const Rules::Node& n = nodes_[e];
    switch (n.kind) {
      case Kind::empty:
        return true;
      case Kind::literal:
        return !spelling_ ||
               spelling_->has(std::string_view(rules_.bytes()).substr(n.begin, n.count));
      case Kind::chars:
        return !spelling_ || !a_.spelled[e].empty();
      case Kind::repeat:
        return n.a == 0;
      default:
        return false;
    }
  }

  // The least set that holds `alone`, sequences of which all parts and others of which one is in
  // it.
  template <class F>
  std::vector<uint8_t> spread(F&& alone) {
    std::vector<uint8_t> in(nodes_.size(), 0);
    std::vector<uint32_t> lacks(nodes_.size(), 1);
    std::vector<size_t> todo;
    for (size_t e = 0; e < nodes_.size(); ++e) {
      if (!a_.reached[e]) continue;
      if (nodes_[e].kind == Kind::sequence) lacks[e] = nodes_[e].count;
      if (alone(e)) {
        in[e] = 1;
        todo.push_back(e);
      }
    }
    steps_.add(nodes_.size() + parents_.size());
    while (!todo.empty()) {
      const size_t e = todo.back();
      todo.pop_back();
      for (uint32_t i = begin_[e]; i < begin_[e + 1]; ++i) {
        const size_t parent = parents_[i];
        if (in[parent] || --lacks[parent] > 0) continue;
        in[parent] = 1;
        todo.push_back(parent);
      }
    }
    return in;
  }

  [[noreturn]] void fail_unproductive() {
    // A rule at fault: follow what cannot end until a rule comes back, or something has no match at
    // all.
    std::vector<uint8_t> seen(nodes_.size(), 0);
    size_t e = at(rules_.root());
    const std::string* name = nullptr;
    while (!seen[e]) {
      seen[e] = 1;
      if (nodes_[e].kind == Kind::call) name = &rules_.rules()[at(nodes_[e].a)].name;
      size_t next = e;
      children(e, [&](size_t child) {
        if (next == e && !a_.productive[child]) next = child;
      });
      if (next == e) {
        if (name)
          fail(Status::invalid_argument, "grammar: no text matches, nor rule '", *name, "'",
               spelling_ ? ", in this vocabulary" : "");
        fail(Status::invalid_argument, "grammar: no text matches",
             spelling_ ? " that this vocabulary can write" : "");
      }
      e = next;
    }
    fail(Status::invalid_argument, "grammar: no text matches: rule '", name ? *name : "",
         "' calls itself without end");
  }

  const Rules& rules_;
  const std::vector<Rules::Node>& nodes_;
  const Spelling* spelling_;
  StepCounter& steps_;
  RulesAnalysis a_;
  std::vector<uint32_t> begin_, parents_;  // parents of e: [begin[e], begin[e + 1])
};

}  // namespace

RulesAnalysis analyze_rules(const Rules& rules, const Spelling* spelling, StepCounter& steps) {
  return Analyzer(rules, spelling, steps).run();
}

}  // namespace orlop
