// Byte pair merges over ids (Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with
// Subword Units, 2016): the adjacent pair of the lowest rank merges first, the leftmost of equals.
#pragma once
#include <cstdint>
#include <vector>

#include "text/piece_table.h"

namespace orlop {

// Buffers that a caller keeps from piece to piece.
struct BpeScratch {
  struct Symbol {
    int32_t id, prev, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t pos, left, right, merged;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// Merges `ids` in place. O(n log n) in the number of ids.
void bpe_merge(const MergeTable& table, std::vector<int32_t>& ids, BpeScratch& scratch);

}  // namespace orlop
