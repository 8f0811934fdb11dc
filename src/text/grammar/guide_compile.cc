#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "text/grammar/guide_analysis.h"
#include "text/grammar/guide_classes.h"
#include "text/grammar/guide_program.h"

namespace orlop {

// guide_entry.cc: what is met on entry of each entity, its groups, and the classes of bytes.
void finish_program(Program& program, StepCounter& steps);

namespace {

using Kind = Rules::Kind;
using Expr = Rules::Expr;
using Op = Program::Op;

constexpr uint32_t none = UINT32_MAX;
constexpr uint64_t too_big = uint64_t{1} << 40;
// An expression that several places share is written out at each while it is this small.
constexpr uint64_t small_shared = 64, small_rule = 24;
// A count is unrolled while it makes this few nodes of this few copies. Loops over most characters
// stay loops: a mask takes those as a whole.
constexpr uint64_t small_unrolled = 64;
constexpr int64_t few_copies = 16, few_wide_copies = 2;
constexpr int wide_class = 40;  // ASCII characters of a class

size_t at(Expr e) {
  return static_cast<size_t>(e);
}

class Compiler {
 public:
  Compiler(const Rules& rules, const Spelling* spelling)
      : rules_(rules),
        exprs_(rules.nodes()),
        steps_(rules.limits().max_compile_steps),
        a_(analyze_rules(rules, spelling, steps_)),
        classes_(program_) {}

  Program run() {
    plan();
    program_.nodes.push_back({.op = Op::accept});
    program_.nodes.push_back({.op = Op::end, .a = Program::char_entity});
    program_.entities.push_back({.entry = Program::char_end});
    program_.root = entity(rules_.root());
    for (size_t i = 0; i < todo_.size(); ++i) {
      const Expr e = todo_[i];
      const uint32_t id = entity_of_[at(e)];
      const uint32_t end = add({.op = Op::end, .a = id});
      program_.entities[id].entry = compile(e, end);
      program_.entities[id].nullable = a_.nullable[at(e)];
    }
    finish_program(program_, steps_);
    return std::move(program_);
  }

 private:
  struct Task {
    Expr e;
    uint32_t next;       // the node after
    uint32_t stage = 0;  // parts done
    uint32_t skip = 0;   // first parts of a sequence left out
    uint32_t own = 0;    // a node made before the parts, or where in values_ the parts' nodes begin
    uint32_t led = 0;    // where in led_ this choice's begin
  };
  struct Led {  // an alternative that begins with a literal
    std::string_view text;
    uint32_t after;
  };

  const Rules::Node& expr(Expr e) const { return exprs_[at(e)]; }
  Expr part(Expr e, uint32_t i) const { return rules_.parts()[expr(e).begin + i]; }
  std::string_view text(Expr e) const {
    return std::string_view(rules_.bytes()).substr(expr(e).begin, expr(e).count);
  }
  std::span<const CharRange> ranges(Expr e) const {
    if (!a_.spelled.empty()) return a_.spelled[at(e)];
    return {rules_.ranges().data() + expr(e).begin, expr(e).count};
  }

  uint32_t add(Program::Node node) {
    if (program_.nodes.size() >= rules_.limits().max_states)
      fail(Status::invalid_argument, "grammar: its automaton takes more than ",
           rules_.limits().max_states, " states (max_states)");
    steps_.add(1);
    program_.nodes.push_back(node);
    return static_cast<uint32_t>(program_.nodes.size() - 1);
  }
  uint32_t entity(Expr e) {
    uint32_t& id = entity_of_[at(e)];
    if (id == none) {
      id = static_cast<uint32_t>(program_.entities.size());
      program_.entities.push_back({});
      todo_.push_back(e);
    }
    return id;
  }

  void plan();
  uint64_t cost(Expr e) const { return shared_[at(e)] ? 1 : size_[at(e)]; }
  uint64_t size_of(Expr e, bool rules_too);
  bool counted(Expr e) const;
  uint32_t compile(Expr e, uint32_t next);
  void push(Expr e, uint32_t next);
  void step(Task& t);
  void sequence(Task& t);
  void choice(Task& t);
  void repeat(Task& t);
  uint32_t split(std::vector<uint32_t>& targets);
  uint32_t literal(std::string_view bytes, uint32_t next);
  uint32_t literals(std::span<Led> led);
  void done(uint32_t node) {
    result_ = node;
    tasks_.pop_back();
  }

  const Rules& rules_;
  const std::vector<Rules::Node>& exprs_;
  StepCounter steps_;
  RulesAnalysis a_;
  Program program_;
  ClassBuilder classes_;
  std::vector<uint64_t> size_, flat_;   // nodes where it is written out; flat: calls are too big
  std::vector<uint8_t> shared_, wide_;  // an entity of its own; holds a class of most of ASCII
  std::vector<uint32_t> entity_of_, class_of_;
  std::vector<Expr> todo_;
  std::vector<Task> tasks_;
  std::vector<uint32_t> values_;
  std::vector<Led> led_;
  uint32_t result_ = 0;
};

// A repetition that keeps its count on the stack.
bool Compiler::counted(Expr e) const {
  const Rules::Node& n = expr(e);
  const bool endless = n.b == Rules::unbounded;
  const Expr what = part(e, 0);
  if (endless && (n.a <= 1 || a_.nullable[at(what)])) return false;
  if (!endless && n.b == 1) return false;
  const int64_t copies = endless ? int64_t{n.a} + 1 : n.b;
  return copies > (wide_[at(what)] ? few_wide_copies : few_copies) ||
         static_cast<uint64_t>(copies) * cost(what) > small_unrolled;
}

uint64_t Compiler::size_of(Expr e, bool rules_too) {
  const Rules::Node& n = expr(e);
  uint64_t size = 1;
  bool wide = false;
  switch (n.kind) {
    case Kind::empty:
      return 0;
    case Kind::literal:
      return n.count;
    case Kind::chars: {
      uint64_t ascii = 0;
      for (const CharRange& r : ranges(e))
        if (r.first < 0x80) ascii += std::min(r.last, 0x7fu) - r.first + 1;
      wide_[at(e)] = ascii >= static_cast<uint64_t>(wide_class);
      return 1;
    }
    case Kind::call: {
      if (!rules_too) return too_big;
      const size_t body = at(rules_.rules()[at(n.a)].body);
      if (flat_[body] > small_rule) return 1;
      wide_[at(e)] = wide_[body];
      return flat_[body];
    }
    case Kind::repeat: {
      const Expr what = part(e, 0);
      if (!a_.productive[at(what)]) return 0;
      wide_[at(e)] = wide_[at(what)];
      if (cost(what) >= too_big) return too_big;  // a call, while those are not looked into
      if (counted(e)) return 1;
      const uint64_t copies = n.b == Rules::unbounded ? std::max<uint64_t>(1, at(n.a)) : at(n.b);
      return std::min(too_big, copies * (cost(what) + 1));
    }
    case Kind::sequence:
    case Kind::choice:
      for (uint32_t i = 0; i < n.count; ++i) {
        const size_t p = at(part(e, i));
        if (!a_.productive[p]) continue;
        size = std::min(too_big, size + cost(part(e, i)));
        wide |= wide_[p];
      }
      wide_[at(e)] = wide;
      return size;
  }
  return size;
}

void Compiler::plan() {
  const size_t count = exprs_.size();
  entity_of_.assign(count, none);
  class_of_.assign(count, none);
  // Parts have lower numbers than what is made of them. Twice: first without the rules.
  for (const bool rules_too : {false, true}) {
    shared_.assign(count, 0);
    wide_.assign(count, 0);
    size_.assign(count, 0);
    for (size_t i = 0; i < count; ++i) {
      if (!a_.reached[i] || !a_.productive[i]) continue;
      steps_.add(1 + exprs_[i].count);
      size_[i] = size_of(static_cast<Expr>(i), rules_too);
      shared_[i] = rules_too && a_.uses[i] > 1 && size_[i] > small_shared;
    }
    if (!rules_too) flat_ = size_;
  }
}

void Compiler::push(Expr e, uint32_t next) {
  if (shared_[at(e)])
    result_ = add({.op = Op::call, .a = entity(e), .b = next});
  else
    tasks_.push_back({.e = e, .next = next});
}

uint32_t Compiler::compile(Expr e, uint32_t next) {
  tasks_.push_back({.e = e, .next = next});
  while (!tasks_.empty()) {
    steps_.add(1);
    step(tasks_.back());
  }
  return result_;
}

void Compiler::step(Task& t) {
  const Rules::Node& n = expr(t.e);
  switch (n.kind) {
    case Kind::empty:
      return done(t.next);
    case Kind::literal:
      return done(literal(text(t.e), t.next));
    case Kind::chars: {
      uint32_t& id = class_of_[at(t.e)];
      if (id == none) {
        id = classes_.add(ranges(t.e));
        steps_.add(classes_.take_steps());
      }
      return done(add({.op = Op::chars, .a = id, .b = t.next}));
    }
    case Kind::call: {
      const Expr body = rules_.rules()[at(n.a)].body;
      const bool inlined = flat_[at(body)] <= small_rule && !shared_[at(body)];
      if (!inlined) return done(add({.op = Op::call, .a = entity(body), .b = t.next}));
      t.e = body;
      return;
    }
    case Kind::sequence:
      return sequence(t);
    case Kind::choice:
      return choice(t);
    case Kind::repeat:
      return repeat(t);
  }
}

// From the last part to the first: what comes after is known.
void Compiler::sequence(Task& t) {
  const uint32_t count = expr(t.e).count - t.skip;
  if (t.stage > 0) t.next = result_;
  if (t.stage == count) return done(t.next);
  const uint32_t i = expr(t.e).count - 1 - t.stage++;
  push(part(t.e, i), t.next);  // t is not valid from here
}

void Compiler::choice(Task& t) {
  if (t.stage == 0) {
    t.own = static_cast<uint32_t>(values_.size());
    t.led = static_cast<uint32_t>(led_.size());
  } else if (t.skip == 0) {
    values_.push_back(result_);
  } else {
    led_.back().after = result_;
  }
  const uint32_t count = expr(t.e).count;
  while (t.stage < count && !a_.productive[at(part(t.e, t.stage))]) ++t.stage;
  if (t.stage < count) {
    const Expr p = part(t.e, t.stage++);
    const Rules::Node& n = expr(p);
    t.skip = 0;
    if (!shared_[at(p)] && n.kind == Kind::literal) {
      led_.push_back({text(p), 0});
      t.skip = 1;
      result_ = t.next;
    } else if (!shared_[at(p)] && n.kind == Kind::sequence &&
               expr(part(p, 0)).kind == Kind::literal && !shared_[at(part(p, 0))]) {
      led_.push_back({text(part(p, 0)), 0});
      t.skip = 1;
      tasks_.push_back({.e = p, .next = t.next, .skip = 1});
    } else {
      push(p, t.next);
    }
    return;
  }
  std::vector<uint32_t> targets(values_.begin() + t.own, values_.end());
  values_.resize(t.own);
  if (led_.size() > t.led) {
    targets.push_back(literals(std::span(led_).subspan(t.led)));
    led_.resize(t.led);
  }
  done(split(targets));
}

void Compiler::repeat(Task& t) {
  const Rules::Node& n = expr(t.e);
  const Expr what = part(t.e, 0);
  const uint32_t after = t.next;
  if (!a_.productive[at(what)]) return done(after);
  const bool endless = n.b == Rules::unbounded;
  const bool nullable = a_.nullable[at(what)];
  if (counted(t.e))
    // Times that take no byte need not be counted.
    return done(add({.op = Op::loop,
                     .a = entity(what),
                     .b = after,
                     .begin = nullable ? 0 : static_cast<uint32_t>(n.a),
                     .count = endless ? Program::no_limit : static_cast<uint32_t>(n.b)}));
  const auto copies = static_cast<uint32_t>(endless ? std::max(1, n.a) : n.b);
  const auto optional = static_cast<uint32_t>(endless ? 0 : n.b - n.a);
  if (t.stage == 0) {
    // own: where each copy may leave to. Endless: the last copy may come again.
    t.own = endless ? add({.op = Op::split}) : after;
    ++t.stage;
    return push(what, t.own);
  }
  uint32_t entry = result_;
  if (endless && t.stage == 1) {
    program_.nodes[t.own].begin = static_cast<uint32_t>(program_.targets.size());
    program_.nodes[t.own].count = 2;
    program_.targets.insert(program_.targets.end(), {entry, after});
    if (n.a == 0 || nullable) return done(t.own);
  }
  if (t.stage <= optional) {
    std::vector<uint32_t> ways{entry, after};
    entry = split(ways);
  }
  if (t.stage == copies) return done(entry);
  ++t.stage;
  push(what, entry);
}

uint32_t Compiler::split(std::vector<uint32_t>& targets) {
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  if (targets.size() == 1) return targets[0];
  steps_.add(targets.size());
  const auto begin = static_cast<uint32_t>(program_.targets.size());
  program_.targets.insert(program_.targets.end(), targets.begin(), targets.end());
  return add({.op = Op::split, .begin = begin, .count = static_cast<uint32_t>(targets.size())});
}

uint32_t Compiler::literal(std::string_view bytes, uint32_t next) {
  for (size_t i = bytes.size(); i-- > 0;) {
    const auto b = static_cast<uint8_t>(bytes[i]);
    const auto begin = static_cast<uint32_t>(program_.edges.size());
    program_.edges.push_back({b, b, next});
    next = add({.op = Op::bytes, .begin = begin, .count = 1});
  }
  return next;
}

// One tree of all the texts, so that a choice of thousands is one node to begin with.
uint32_t Compiler::literals(std::span<Led> led) {
  std::sort(led.begin(), led.end(), [](const Led& a, const Led& b) { return a.text < b.text; });
  struct Open {
    std::vector<Program::Edge> edges;
    std::vector<uint32_t> ends;
  };
  std::vector<Open> path(1);  // path[i]: after i bytes of the last text
  const auto close = [&](Open& o) {
    if (!o.edges.empty()) {
      const auto begin = static_cast<uint32_t>(program_.edges.size());
      program_.edges.insert(program_.edges.end(), o.edges.begin(), o.edges.end());
      o.ends.push_back(
          add({.op = Op::bytes, .begin = begin, .count = static_cast<uint32_t>(o.edges.size())}));
    }
    return split(o.ends);
  };
  const auto close_to = [&](std::string_view last, size_t length) {
    while (path.size() > length + 1) {
      const uint32_t node = close(path.back());
      path.pop_back();
      const auto b = static_cast<uint8_t>(last[path.size() - 1]);
      path.back().edges.push_back({b, b, node});
    }
  };
  std::string_view last;
  for (const Led& l : led) {
    const size_t most = std::min(last.size(), l.text.size());
    const size_t common = static_cast<size_t>(
        std::mismatch(last.begin(), last.begin() + static_cast<ptrdiff_t>(most), l.text.begin())
            .first -
        last.begin());
    steps_.add(common + 1);
    close_to(last, common);
    path.resize(l.text.size() + 1);
    path.back().ends.push_back(l.after);
    last = l.text;
  }
  close_to(last, 0);
  return close(path[0]);
}

}  // namespace

Program compile_rules(const Rules& rules, const Spelling* spelling) {
  return Compiler(rules, spelling).run();
}

size_t Program::bytes() const {
  size_t total = sizeof(Program) + nodes.capacity() * sizeof(Node) +
                 edges.capacity() * sizeof(Edge) +
                 (targets.capacity() + members.capacity() + first.capacity()) * sizeof(uint32_t) +
                 classes.capacity() * sizeof(Class) + entities.capacity() * sizeof(Entity) +
                 groups.capacity() * sizeof(Group);
  for (const Class& c : classes) total += c.ranges.capacity() * sizeof(CharRange);
  return total;
}

}  // namespace orlop
