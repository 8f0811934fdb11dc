// How the KV budget becomes pages: of each cache group, and the seats beside them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/config.h"
#include "model/model.h"
#include "ops/kernels.h"

namespace orlop::api {

struct KvPlan {
  std::vector<CacheGroup> groups;
  std::vector<int64_t> pages;  // [groups]
  int64_t seats_bytes = 0;     // what running sequences keep beside pages, all seats
  int64_t bytes = 0;           // pages and seats: never more than kv_bytes
  struct Side {
    int64_t seats_bytes = 0, bytes = 0;
  };
  std::vector<Side> sides;  // what lies where each part of the model runs
  std::string why;
  int32_t max_context = 0;

  int64_t pages_in_all() const;
  int64_t tokens(size_t group, int32_t block_size) const { return pages[group] * block_size; }
};

// A part of the model, and its memory.
struct KvSide {
  Part part;
  uint64_t left = 0;    // bytes that weights and workspace leave
  double fraction = 0;  // of them, where kv_fraction is left out
};

// Of a model's bytes of weights what each side has, by the sizes of its matrices: the first the embedding, the last
// the head, each its own where they share one.
uint64_t weights_of_side(const Config& model, std::span<const KvSide> sides, size_t side, uint64_t weights);

// kv_bytes is the budget of all sides together; where it is not given, each side has kv_fraction of what is left
// there. Pages have the same numbers on all sides: the side that holds the fewest decides.
// Error(invalid_argument) if kv_bytes does not hold a page of each group, or max_context exceeds the
// model's.
KvPlan plan_kv(const EngineConfig& config, const Config& model, KvType type, std::span<const KvSide> sides);

}  // namespace orlop::api
