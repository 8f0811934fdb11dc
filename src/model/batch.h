// One ragged step as the model sees it: host arrays, uploaded once. Built by engine/runner.cc.
#pragma once
#include <cstdint>
#include <span>

#include "ops/kernels.h"

namespace orlop {

constexpr int max_cache_groups = 4;

struct Batch {
  // [rows]; below 0: -1 - i is the token that kept row i of the batch before this one drew (0 if it could
  // draw none), which the host need not know yet.
  std::span<const int32_t> tokens;
  std::span<const int32_t> positions;  // [rows] rope positions
  // Per cache group: sequences with their page_begin in that group's page_table, and the cache
  // slot (page * page_tokens + offset) of every row.
  struct Group {
    std::span<const AttentionSeq> seqs;
    std::span<const int32_t> page_table;
    std::span<const int32_t> slots;  // [rows]
  };
  Group groups[max_cache_groups];
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  std::span<const SampleRow> samples;   // [logit_rows] what to do with each, host pointers inside;
                                        // empty: sample() is not called
  int32_t max_context = 0;              // largest position + 1
  bool last_part_only = false;          // Model's parts before the last stand still: see warm_up()
};

}  // namespace orlop
