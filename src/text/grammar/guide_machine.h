// The automaton at work. A state is the set of all ways to read the text so far: pairs of a node
// that takes the next byte and a frame, the stack below it. Frames are immutable and kept once
// each; a frame has an edge to each place that its group of entities was called from at one
// position (a graph-structured stack: Tomita, Generalized LR parsing, 1991; Scott and Johnstone,
// GLL parsing, 2010). Calls on entry within a group (left recursion) are known from the program and
// need no edge. States and the steps between them are built as they are met, and forgotten when
// there are too many. Not thread-safe: see Guide.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/guide_program.h"
#include "text/grammar/guide_tables.h"

namespace orlop {

class Machine {
 public:
  explicit Machine(Program program);

  static constexpr uint32_t dead = 0;  // the state of a text that begins none of the language
  uint32_t start() const { return start_; }
  uint32_t step(uint32_t state, uint8_t byte) {
    const uint32_t to = next_[state * stride_ + program_.byte_class[byte]];
    return to != unknown ? to : build(state, program_.byte_class[byte]);
  }
  bool complete(uint32_t state) const {
    const auto items = states_[state];
    return !items.empty() && items[0] == accept;
  }
  bool exhausted(uint32_t state) const { return states_[state].size() == complete(state); }

  void retain(uint32_t state) { ++refs_[state]; }
  void release(uint32_t state) { --refs_[state]; }
  uint32_t refs(uint32_t state) const { return refs_[state]; }

  // Forgets all states but those retained and these, and what they do not need.
  void collect(std::span<const uint32_t> pinned);
  size_t bytes() const;
  size_t ids() const { return states_.ids(); }  // of states: below
  size_t built() const { return program_.nodes.size() + states_.used() + frames_.used(); }

  // How many characters of a class may come one after the other from this state, whichever they
  // are: so many and no more (no_limit: at least `most`); not_known when that depends on the
  // characters.
  static constexpr uint32_t not_known = UINT32_MAX - 1;
  uint32_t run_of(uint32_t state, uint32_t char_class, uint32_t most);
  bool offers(uint32_t state, uint32_t char_class) const;  // one of its nodes takes that class
  static std::vector<uint32_t> widest_classes(const Program& program, size_t most);
  uint64_t spent() const { return spent_; }  // steps of building states, ever
  const Program& program() const { return program_; }

 private:
  using Item = uint64_t;  // node << 32 | frame
  static constexpr Item accept = 0;
  static constexpr uint32_t unknown = UINT32_MAX;
  struct Edge {
    uint32_t entity;  // what was called
    uint32_t node;    // where to go on; of a counted loop: its node
    uint32_t counts;  // of a counted loop: how often it may have run through; else 0
    uint32_t parent;  // frame
    auto operator<=>(const Edge&) const = default;
  };
  struct Interval {
    uint32_t first, last;
  };
  static Item item(uint32_t node, uint32_t frame) { return Item{node} << 32 | frame; }
  static uint32_t node_of(Item i) { return static_cast<uint32_t>(i >> 32); }
  static uint32_t frame_of(Item i) { return static_cast<uint32_t>(i); }

  uint32_t build(uint32_t state, uint8_t byte_class);
  enum class Takes : uint8_t { unknown, none, some, all };
  Takes takes(const Program::Node& n, uint32_t char_class);
  bool loops(Item i);
  void begin();
  void add(uint32_t node, uint32_t frame) { todo_.push_back(item(node, frame)); }
  void close();  // todo_ -> items_
  void visit(Item i);
  void finish(uint32_t entity, uint32_t frame);
  void resume(uint32_t node, uint32_t counts, uint32_t parent);
  void call(const Program::Node& n, uint32_t node, uint32_t parent);
  void enter(Edge edge);
  void enter_group(uint32_t group);
  uint32_t put_frame(std::span<const Edge> edges);
  uint32_t put_state();
  uint32_t merge_counts(std::span<const Edge> edges, const Program::Node& loop);
  uint32_t normal_counts(std::vector<Interval>& counts, const Program::Node& loop);
  void work(uint64_t steps);

  Program program_;
  size_t program_bytes_ = 0;
  uint32_t stride_ = 0;
  uint32_t start_ = 0;
  uint32_t zero_ = 0;  // counts: {0}
  ListTable<Item> states_;
  ListTable<Edge> frames_;
  ListTable<Interval> counts_;
  std::vector<uint32_t> next_;  // [states, byte classes]
  std::vector<uint32_t> refs_;

  // While a state is built.
  std::vector<Item> todo_, items_;
  NumberSet seen_;
  std::vector<std::vector<Edge>> pending_;  // by group
  std::vector<uint32_t> groups_;            // a heap of those that are not empty
  std::vector<Interval> run_;
  uint64_t steps_ = 0, spent_ = 0;
  // Of two classes: how much of the first the second takes.
  std::unordered_map<uint64_t, Takes> takes_;
};

}  // namespace orlop
