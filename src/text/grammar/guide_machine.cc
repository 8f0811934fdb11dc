#include "text/grammar/guide_machine.h"

#include <algorithm>

#include "base/error.h"

namespace orlop {
namespace {

using Op = Program::Op;

// A text so far may be read in this many ways at once, found in this many steps.
constexpr size_t max_items = size_t{1} << 14;
constexpr uint64_t max_steps = uint64_t{1} << 19;
constexpr size_t most_copied_edges = 16;
constexpr int wide_class = 40;

}  // namespace

Machine::Machine(Program program)
    : program_(std::move(program)),
      stride_(static_cast<uint32_t>(program_.class_byte.size())),
      pending_(program_.groups.size()) {
  program_bytes_ = program_.bytes();
  next_.assign(stride_, dead);
  refs_.assign(1, 0);
  const Interval zero{0, 0};
  zero_ = counts_.put({&zero, 1}).first;
  begin();
  enter({program_.root, Program::accept_node, 0, 0});
  if (program_.entities[program_.root].nullable) items_.push_back(accept);
  close();
  start_ = put_state();
  retain(start_);
}

void Machine::work(uint64_t steps) {
  steps_ += steps;
  spent_ += steps;
  if (steps_ > max_steps || items_.size() > max_items) {
    for (auto& edges : pending_) edges.clear();
    groups_.clear();
    fail(Status::invalid_argument,
         "grammar: too ambiguous: the text so far can be read in too many ways (more than ",
         max_items, " at once)");
  }
}

void Machine::begin() {
  todo_.clear();
  items_.clear();
  seen_.clear();
  steps_ = 0;
}

uint32_t Machine::build(uint32_t state, uint8_t byte_class) {
  const uint8_t byte = program_.class_byte[byte_class];
  begin();
  const std::span<const Item> items = states_[state];
  for (const Item i : items) {
    if (i == accept) continue;
    const Program::Node& n = program_.nodes[node_of(i)];
    const bool chars = n.op == Op::chars;
    const Program::Class* c = chars ? &program_.classes[n.a] : nullptr;
    if (chars && byte < 0x80) {
      if (c->has_ascii(byte)) add(n.b, frame_of(i));
      continue;
    }
    const Program::Edge* edges = program_.edges.data() + (chars ? c->begin : n.begin);
    const Program::Edge* end = edges + (chars ? c->count : n.count);
    const Program::Edge* e =
        std::partition_point(edges, end, [&](const Program::Edge& x) { return x.high < byte; });
    if (e == end || e->low > byte) continue;
    if (chars) {
      const Edge back{Program::char_entity, n.b, 0, frame_of(i)};
      add(e->target, put_frame({&back, 1}));
    } else {
      add(e->target, frame_of(i));
    }
  }
  work(items.size());
  close();
  const uint32_t to = put_state();
  next_[state * stride_ + byte_class] = to;
  return to;
}

// All that can be reached without a byte. First what begins in frames that were there before; then,
// from those that call to those that are called, the groups that are entered here: by then all
// their edges are known.
void Machine::close() {
  while (!todo_.empty()) {
    const Item i = todo_.back();
    todo_.pop_back();
    work(1);
    if (seen_.insert(i)) visit(i);
  }
  while (!groups_.empty()) {
    std::pop_heap(groups_.begin(), groups_.end());
    const uint32_t group = groups_.back();
    groups_.pop_back();
    enter_group(group);
  }
  std::sort(items_.begin(), items_.end());
  items_.erase(std::unique(items_.begin(), items_.end()), items_.end());
}

void Machine::visit(Item i) {
  const uint32_t node = node_of(i), frame = frame_of(i);
  const Program::Node& n = program_.nodes[node];
  switch (n.op) {
    case Op::bytes:
    case Op::chars:
      items_.push_back(i);
      break;
    case Op::split:
      work(n.count);
      for (uint32_t t = 0; t < n.count; ++t) add(program_.targets[n.begin + t], frame);
      break;
    case Op::call:
      call(n, node, frame);
      if (program_.entities[n.a].nullable) add(n.b, frame);
      break;
    case Op::loop:
      call(n, node, frame);
      if (n.begin == 0) add(n.b, frame);
      break;
    case Op::end:
      finish(n.a, frame);
      break;
    case Op::accept:
      items_.push_back(accept);
      break;
  }
}

// The entity is matched: on to wherever it was called from.
void Machine::finish(uint32_t entity, uint32_t frame) {
  for (const Edge& e : frames_[frame]) {
    work(1);
    if (e.entity == entity) resume(e.node, e.counts, e.parent);
  }
  const Program::Entity& called = program_.entities[entity];
  for (uint32_t i = 0; i < called.returns_count; ++i) {
    work(1);
    const uint32_t node = program_.first[called.returns_begin + i];
    const Program::Node& n = program_.nodes[node];
    if (n.op == Op::loop)
      resume(node, zero_, frame);
    else
      add(n.b, frame);
  }
}

void Machine::resume(uint32_t node, uint32_t counts, uint32_t parent) {
  if (counts == 0) return add(node, parent);
  const Program::Node& loop = program_.nodes[node];
  // Once more through.
  run_.clear();
  for (const Interval& r : counts_[counts]) run_.push_back({r.first + 1, r.last + 1});
  work(run_.size());
  if (run_.back().last >= loop.begin) add(loop.b, parent);
  const uint32_t more = normal_counts(run_, loop);
  if (more != 0) enter({loop.a, node, more, parent});
}

// Of the counts with which the loop may run once more: those that matter, as sorted intervals.
// Among those that have enough, the lowest can do all that the others can.
uint32_t Machine::normal_counts(std::vector<Interval>& counts, const Program::Node& loop) {
  std::sort(counts.begin(), counts.end(),
            [](const Interval& a, const Interval& b) { return a.first < b.first; });
  size_t out = 0;
  for (Interval r : counts) {
    if (r.last >= loop.begin) r.last = std::max(r.first, loop.begin);
    if (loop.count == Program::no_limit && r.first > loop.begin) r = {loop.begin, loop.begin};
    if (loop.count != Program::no_limit) {
      if (r.first >= loop.count) continue;
      r.last = std::min(r.last, loop.count - 1);
    }
    // Nothing above a count that has enough.
    if (out > 0 && counts[out - 1].last >= loop.begin) break;
    if (out > 0 && r.first <= counts[out - 1].last + 1)
      counts[out - 1].last = std::max(counts[out - 1].last, r.last);
    else
      counts[out++] = r;
  }
  counts.resize(out);
  return counts_.put(counts).first;
}

void Machine::call(const Program::Node& n, uint32_t node, uint32_t parent) {
  if (n.op == Op::loop) return enter({n.a, node, zero_, parent});
  const Program::Node& after = program_.nodes[n.b];
  // A call that ends its own entity returns to where that was called from, so that right recursion
  // does not stack.
  const auto edges = frames_[parent];
  if (after.op == Op::end && edges.size() <= most_copied_edges &&
      program_.entities[after.a].returns_count == 0) {
    for (const Edge& e : edges)
      if (e.entity == after.a) enter({n.a, e.node, e.counts, e.parent});
    return;
  }
  enter({n.a, n.b, 0, parent});
}

void Machine::enter(Edge edge) {
  const uint32_t group = program_.entities[edge.entity].group;
  if (pending_[group].empty()) {
    groups_.push_back(group);
    std::push_heap(groups_.begin(), groups_.end());
  }
  pending_[group].push_back(edge);
  work(1);
}

void Machine::enter_group(uint32_t group) {
  std::vector<Edge>& edges = pending_[group];
  if (edges.size() > 1) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    // Several counts of one loop over one stack become one set.
    size_t out = 0;
    for (size_t i = 0; i < edges.size();) {
      size_t end = i + 1;
      while (edges[i].counts != 0 && end < edges.size() && edges[end].entity == edges[i].entity &&
             edges[end].node == edges[i].node && edges[end].parent == edges[i].parent)
        ++end;
      Edge e = edges[i];
      if (end > i + 1) e.counts = merge_counts({edges.data() + i, end - i}, program_.nodes[e.node]);
      edges[out++] = e;
      i = end;
    }
    edges.resize(out);
  }
  const uint32_t frame = put_frame(edges);
  edges.clear();
  const Program::Group& g = program_.groups[group];
  work(g.takes_count + g.calls_count);
  for (uint32_t i = 0; i < g.takes_count; ++i)
    items_.push_back(item(program_.first[g.takes_begin + i], frame));
  for (uint32_t i = 0; i < g.calls_count; ++i) {
    const uint32_t node = program_.first[g.calls_begin + i];
    call(program_.nodes[node], node, frame);
  }
}

uint32_t Machine::merge_counts(std::span<const Edge> edges, const Program::Node& loop) {
  run_.clear();
  for (const Edge& e : edges) {
    const auto counts = counts_[e.counts];
    run_.insert(run_.end(), counts.begin(), counts.end());
  }
  work(run_.size());
  return normal_counts(run_, loop);
}

uint32_t Machine::put_frame(std::span<const Edge> edges) {
  return frames_.put(edges).first;
}

uint32_t Machine::put_state() {
  if (items_.size() > max_items) work(max_steps + 1);
  const auto [id, fresh] = states_.put(items_);
  if (fresh) {
    if (next_.size() < states_.ids() * stride_) next_.resize(states_.ids() * stride_, unknown);
    if (refs_.size() < states_.ids()) refs_.resize(states_.ids(), 0);
    std::fill_n(next_.begin() + static_cast<ptrdiff_t>(size_t{id} * stride_), stride_, unknown);
    refs_[id] = 0;
  }
  return id;
}

void Machine::collect(std::span<const uint32_t> pinned) {
  std::vector<uint8_t> live(states_.ids(), 0), frames(frames_.ids(), 0), counts(counts_.ids(), 0);
  for (uint32_t id = 0; id < live.size(); ++id) live[id] = refs_[id] > 0;
  for (const uint32_t id : pinned) live[id] = 1;
  live[dead] = 1;
  counts[zero_] = 1;
  std::vector<uint32_t> todo;
  const auto mark = [&](uint32_t frame) {
    if (frames[frame]) return;
    frames[frame] = 1;
    todo.push_back(frame);
  };
  for (uint32_t id = 0; id < live.size(); ++id) {
    if (!live[id]) continue;
    for (const Item i : states_[id]) mark(frame_of(i));
    while (!todo.empty()) {
      const uint32_t frame = todo.back();
      todo.pop_back();
      for (const Edge& e : frames_[frame]) {
        counts[e.counts] = 1;
        mark(e.parent);
      }
    }
  }
  for (uint32_t id = 1; id < live.size(); ++id) {
    if (!live[id]) continue;
    for (uint32_t c = 0; c < stride_; ++c) {
      uint32_t& to = next_[size_t{id} * stride_ + c];
      if (to != unknown && !live[to]) to = unknown;
    }
  }
  states_.sweep(live);
  frames_.sweep(frames);
  counts_.sweep(counts);
}

size_t Machine::bytes() const {
  return program_bytes_ + states_.bytes() + frames_.bytes() + counts_.bytes() +
         (next_.size() + refs_.size()) * sizeof(uint32_t);
}

std::vector<uint32_t> Machine::widest_classes(const Program& program, size_t most) {
  std::vector<uint32_t> out;
  for (uint32_t c = 0; c < program.classes.size(); ++c)
    if (program.classes[c].size() >= wide_class) out.push_back(c);
  std::stable_sort(out.begin(), out.end(), [&](uint32_t a, uint32_t b) {
    return program.classes[a].size() > program.classes[b].size();
  });
  if (out.size() > most) out.resize(most);
  return out;
}

bool Machine::offers(uint32_t state, uint32_t char_class) const {
  const auto items = states_[state];
  return std::any_of(items.begin(), items.end(), [&](Item i) {
    const Program::Node& n = program_.nodes[node_of(i)];
    return n.op == Op::chars && n.a == char_class;
  });
}

// Whether any character of its class leads back to the item: then any number of them may come.
bool Machine::loops(Item i) {
  begin();
  add(program_.nodes[node_of(i)].b, frame_of(i));  // where any one of them leads
  close();
  return std::binary_search(items_.begin(), items_.end(), i);
}

// How much of the class the node takes.
Machine::Takes Machine::takes(const Program::Node& n, uint32_t char_class) {
  const Program::Class& c = program_.classes[char_class];
  if (n.op == Op::accept) return Takes::none;
  if (n.op == Op::bytes) {
    for (uint32_t i = 0; i < n.count; ++i) {
      const Program::Edge& e = program_.edges[n.begin + i];
      for (uint32_t b = e.low; b <= e.high && b < 0x80; ++b)
        if (c.has_ascii(static_cast<uint8_t>(b))) return Takes::some;
      if (e.high >= 0xc2 && c.count > 0) return Takes::some;
    }
    return Takes::none;
  }
  if (n.a == char_class) return Takes::all;
  Takes& known = takes_[uint64_t{char_class} << 32 | n.a];
  if (known != Takes::unknown) return known;
  bool any = false, all = true;
  const std::vector<CharRange>& other = program_.classes[n.a].ranges;
  for (const CharRange& r : c.ranges) {
    const auto it = std::partition_point(other.begin(), other.end(),
                                         [&](const CharRange& o) { return o.last < r.first; });
    any |= it != other.end() && it->first <= r.last;
    all &= it != other.end() && it->first <= r.first && it->last >= r.last;
  }
  work(c.ranges.size());
  return known = all ? Takes::all : any ? Takes::some : Takes::none;
}

uint32_t Machine::run_of(uint32_t state, uint32_t char_class, uint32_t most) {
  const Program::Class& c = program_.classes[char_class];
  // The text may go on with these and otherwise too: that does not matter where they may go on for
  // ever.
  int tries = 0;
  const std::vector<Item> items(states_[state].begin(), states_[state].end());
  for (const Item i : items) {
    const Program::Node& n = program_.nodes[node_of(i)];
    if (n.op != Op::chars || n.a != char_class) continue;
    if (tries++ == 8) break;  // a state of very many items: no search without end
    if (loops(i)) return Program::no_limit;
  }
  // Where each node takes all of the class or nothing of it, all its characters lead to the same
  // state, and one of them tells of all.
  const auto one = static_cast<uint8_t>(c.ascii[0] ? std::countr_zero(c.ascii[0])
                                                   : 64 + std::countr_zero(c.ascii[1]));
  if (!c.has_ascii(one)) return not_known;
  for (uint32_t count = 0; count < most; ++count) {
    begin();
    work(states_[state].size());
    bool any = false;
    for (const Item i : states_[state]) {
      const Takes t = takes(program_.nodes[node_of(i)], char_class);
      if (t == Takes::some) return not_known;
      any |= t == Takes::all;
    }
    if (!any) return count;
    state = step(state, one);
  }
  return Program::no_limit;
}

}  // namespace orlop
