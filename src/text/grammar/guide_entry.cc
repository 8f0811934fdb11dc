// What is known of a compiled program before any byte comes: which nodes an entity begins with,
// which entities begin by calling each other (strongly connected components: Tarjan, Depth-first
// search and linear graph algorithms, 1972), and which bytes no node tells apart.
#include <algorithm>

#include "text/grammar/guide_analysis.h"
#include "text/grammar/guide_program.h"

namespace orlop {

void finish_program(Program& program, StepCounter& steps);

namespace {

using Op = Program::Op;

struct Entry {
  std::vector<uint32_t> takes, calls;
};

// The nodes that entity e can begin with. A call that may match nothing can be passed by.
void find_entry(const Program& p, uint32_t e, std::vector<uint32_t>& seen, Entry& out,
                StepCounter& steps) {
  std::vector<uint32_t> todo{p.entities[e].entry};
  while (!todo.empty()) {
    const uint32_t id = todo.back();
    todo.pop_back();
    if (seen[id] == e + 1) continue;
    seen[id] = e + 1;
    const Program::Node& n = p.nodes[id];
    steps.add(1);
    switch (n.op) {
      case Op::bytes:
      case Op::chars:
        out.takes.push_back(id);
        break;
      case Op::split:
        steps.add(n.count);
        for (uint32_t i = 0; i < n.count; ++i) todo.push_back(p.targets[n.begin + i]);
        break;
      case Op::call:
        out.calls.push_back(id);
        if (p.entities[n.a].nullable) todo.push_back(n.b);
        break;
      case Op::loop:
        out.calls.push_back(id);
        if (n.begin == 0) todo.push_back(n.b);
        break;
      case Op::end:
      case Op::accept:
        break;
    }
  }
}

// Sets the group of each entity. Groups come out callees first.
void find_groups(Program& p, const std::vector<Entry>& entries) {
  const auto count = static_cast<uint32_t>(p.entities.size());
  constexpr uint32_t unseen = UINT32_MAX;
  std::vector<uint32_t> order(count, unseen), low(count, 0), open;
  std::vector<uint8_t> is_open(count, 0);
  struct Visit {
    uint32_t entity;
    size_t call;
  };
  std::vector<Visit> path;
  uint32_t next = 0;
  const auto enter = [&](uint32_t e) {
    order[e] = low[e] = next++;
    open.push_back(e);
    is_open[e] = 1;
    path.push_back({e, 0});
  };
  for (uint32_t start = 0; start < count; ++start) {
    if (order[start] != unseen) continue;
    enter(start);
    while (!path.empty()) {
      Visit& v = path.back();
      const uint32_t e = v.entity;
      if (v.call < entries[e].calls.size()) {
        const uint32_t callee = p.nodes[entries[e].calls[v.call++]].a;
        if (order[callee] == unseen)
          enter(callee);
        else if (is_open[callee])
          low[e] = std::min(low[e], order[callee]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().entity] = std::min(low[path.back().entity], low[e]);
      if (low[e] != order[e]) continue;
      Program::Group group;
      group.begin = static_cast<uint32_t>(p.members.size());
      for (uint32_t member = unseen; member != e;) {
        member = open.back();
        open.pop_back();
        is_open[member] = 0;
        p.entities[member].group = static_cast<uint32_t>(p.groups.size());
        p.members.push_back(member);
        ++group.count;
      }
      p.groups.push_back(group);
    }
  }
}

void find_byte_classes(Program& p) {
  std::array<bool, 257> cut{};
  for (const Program::Edge& e : p.edges) cut[e.low] = cut[e.high + 1u] = true;
  for (const Program::Class& c : p.classes)
    for (uint32_t b = 1; b <= 0x80; ++b)
      if (c.has_ascii(static_cast<uint8_t>(b - 1)) !=
          (b < 0x80 && c.has_ascii(static_cast<uint8_t>(b))))
        cut[b] = true;
  for (uint32_t b = 0; b < 256; ++b) {
    if (b == 0 || cut[b]) p.class_byte.push_back(static_cast<uint8_t>(b));
    p.byte_class[b] = static_cast<uint8_t>(p.class_byte.size() - 1);
  }
}

}  // namespace

void finish_program(Program& p, StepCounter& steps) {
  const size_t count = p.entities.size();
  std::vector<Entry> entries(count);
  std::vector<uint32_t> seen(p.nodes.size(), 0);
  for (uint32_t e = 0; e < count; ++e) find_entry(p, e, seen, entries[e], steps);
  find_groups(p, entries);
  std::vector<std::vector<uint32_t>> returns(count);
  for (Program::Group& group : p.groups) {
    const auto members = std::span(p.members).subspan(group.begin, group.count);
    const auto id = static_cast<uint32_t>(&group - p.groups.data());
    group.takes_begin = static_cast<uint32_t>(p.first.size());
    for (const uint32_t e : members)
      p.first.insert(p.first.end(), entries[e].takes.begin(), entries[e].takes.end());
    group.takes_count = static_cast<uint32_t>(p.first.size()) - group.takes_begin;
    group.calls_begin = static_cast<uint32_t>(p.first.size());
    for (const uint32_t e : members)
      for (const uint32_t node : entries[e].calls) {
        const uint32_t callee = p.nodes[node].a;
        if (p.entities[callee].group == id)
          returns[callee].push_back(node);
        else
          p.first.push_back(node);
      }
    group.calls_count = static_cast<uint32_t>(p.first.size()) - group.calls_begin;
    for (const uint32_t e : members) {
      Program::Entity& entity = p.entities[e];
      entity.returns_begin = static_cast<uint32_t>(p.first.size());
      entity.returns_count = static_cast<uint32_t>(returns[e].size());
      p.first.insert(p.first.end(), returns[e].begin(), returns[e].end());
      group.recursive |= entity.returns_count > 0;
    }
  }
  find_byte_classes(p);
}

}  // namespace orlop
