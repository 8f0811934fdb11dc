// Rules compiled to a pushdown automaton over bytes. Each entity (a rule, the body of a counted
// loop, an expression that several places share) is a nondeterministic automaton of its own; a call
// stacks the node to return to, and a counted loop stacks its count as a number.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/grammar/rules.h"

namespace orlop {

// What a vocabulary can write at all, where it is not every text: tokens of one byte, and of one
// whole code point. Null in its place: everything.
struct Spelling {
  std::array<bool, 256> byte{};
  bool continues = false;  // bytes 80 to bf: part of a character can always be ended
  std::vector<uint32_t> characters;  // that are tokens; sorted
  std::vector<CharRange> wide;       // characters from 80 on that can be written; sorted, disjoint
  bool has(uint32_t code) const;
  bool has(std::string_view bytes) const;
};

struct Program {
  enum class Op : uint8_t { bytes, chars, split, call, loop, end, accept };
  struct Node {
    Op op = Op::accept;
    // chars: the class, the node after; call: the entity, the node to return to; loop: the body's
    // entity, the node after; end: the entity.
    uint32_t a = 0, b = 0;
    // bytes: in edges; split: in targets; loop: least and most (unbounded: no_limit).
    uint32_t begin = 0, count = 0;
  };
  struct Edge {  // bytes low to high, both included; of one node: sorted, disjoint
    uint8_t low, high;
    uint32_t target;
  };
  struct Class {
    std::array<uint64_t, 2> ascii{};
    uint32_t begin = 0, count = 0;  // in edges: first bytes of longer code points
    std::vector<CharRange> ranges;
    bool has_ascii(uint8_t b) const { return ascii[b >> 6] >> (b & 63) & 1; }
    // Roughly how much of a vocabulary it takes.
    int size() const {
      return std::popcount(ascii[0]) + std::popcount(ascii[1]) + (count > 0 ? 16 : 0);
    }
  };
  // Entities that begin by calling each other (left recursion) share one frame: see Machine.
  struct Group {
    bool recursive = false;
    uint32_t begin = 0, count = 0;              // in members
    uint32_t takes_begin = 0, takes_count = 0;  // in first: bytes and chars nodes met on entry
    uint32_t calls_begin = 0, calls_count = 0;  // in first: call and loop nodes into other groups
  };
  struct Entity {
    uint32_t entry = 0;
    uint32_t group = 0;
    bool nullable = false;
    uint32_t returns_begin = 0,
             returns_count = 0;  // in first: calls of it on entry of its own group
  };
  static constexpr uint32_t no_limit = UINT32_MAX;
  static constexpr uint32_t accept_node = 0;  // where the root returns to
  static constexpr uint32_t char_entity = 0;  // the bytes of a code point after its first
  static constexpr uint32_t char_end = 1;     // the end of those

  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<uint32_t> targets;
  std::vector<Class> classes;
  std::vector<Entity> entities;
  std::vector<Group> groups;  // callers have higher numbers than those they call on entry
  std::vector<uint32_t> members, first;
  uint32_t root = 0;  // entity
  std::array<uint8_t, 256> byte_class{};
  std::vector<uint8_t> class_byte;  // one byte of each class

  size_t bytes() const;
};

// Error(invalid_argument): see Guide::create.
Program compile_rules(const Rules& rules, const Spelling* spelling);

}  // namespace orlop
