// Character classes as automata over UTF-8 (Unicode 15, table 3-7). Equal parts are kept once.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/guide_program.h"

namespace orlop {

class ClassBuilder {
 public:
  explicit ClassBuilder(Program& program) : program_(program) {}
  // ranges: sorted, disjoint, no surrogates, not empty. The number of the class.
  uint32_t add(std::span<const CharRange> ranges);
  uint64_t take_steps() { return std::exchange(steps_, 0); }  // since the last call

 private:
  // The node that takes `bytes` more bytes of the code points of [base, base + 64^bytes), or none.
  uint32_t block(std::span<const CharRange> ranges, uint32_t base, int bytes);
  uint32_t intern(const std::vector<Program::Edge>& edges);

  Program& program_;
  std::unordered_multimap<uint64_t, uint32_t> known_;  // hash of the edges -> node
  uint64_t steps_ = 0;
};

}  // namespace orlop
