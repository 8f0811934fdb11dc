// What compiling must know of each expression before it makes nodes of it.
#pragma once
#include <cstdint>
#include <vector>

#include "text/grammar/guide_program.h"
#include "text/grammar/rules.h"

namespace orlop {

// Counts all the work of compiling. Error(invalid_argument) past the limit.
class StepCounter {
 public:
  explicit StepCounter(uint64_t most) : most_(most) {}
  void add(uint64_t steps);

 private:
  uint64_t most_, steps_ = 0;
};

struct RulesAnalysis {
  std::vector<uint8_t> reached;     // of each expression: met from the root
  std::vector<uint32_t> uses;       // by other expressions, rules and the root
  std::vector<uint8_t> productive;  // matches some text
  std::vector<uint8_t> nullable;    // matches the empty text
  // Of each chars expression: its ranges that can be spelled. Elsewhere empty.
  std::vector<std::vector<CharRange>> spelled;  // empty when everything can be
};

// Error(invalid_argument): no root, rules without a body, a grammar that matches no text.
RulesAnalysis analyze_rules(const Rules& rules, const Spelling* spelling, StepCounter& steps);

}  // namespace orlop
