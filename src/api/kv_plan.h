// How the KV budget becomes pages: of each cache group, and the seats beside them.
#pragma once
#include <cstdint>
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
  std::string why;
  int32_t max_context = 0;

  int64_t pages_in_all() const;
  int64_t tokens(size_t group, int32_t block_size) const { return pages[group] * block_size; }
};

// Of `left` bytes, the memory that weights and workspace leave, kv_fraction is the budget unless kv_bytes is
// given; `fraction` where the key is left out.
// Error(invalid_argument) if kv_bytes does not hold a page of each group, or max_context exceeds the
// model's.
KvPlan plan_kv(const EngineConfig& config, const Config& model, const Exec& exec, KvType type,
               uint64_t left, double fraction);

}  // namespace orlop::api
