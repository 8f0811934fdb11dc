// KV pools: for every cache group and layer one array of pages, and their page geometry.
#pragma once
#include <cstdint>
#include <vector>

#include "model/model.h"
#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop {

class KvCache {
 public:
  KvCache(const Config& config, const ModelLimits& limits, const Exec& exec);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  int group_of(int32_t layer) const { return layer_group_[static_cast<size_t>(layer)]; }
  const KvDesc& desc() const { return desc_; }
  // This layer's pool; null before allocate().
  void* pages(int32_t layer) const { return layer_pages_[static_cast<size_t>(layer)]; }

  void allocate(const std::vector<int64_t>& pages);
  void poison(int group, int32_t page);

 private:
  const Exec& exec_;
  KvDesc desc_;
  size_t layer_page_bytes_;
  std::vector<CacheGroup> groups_;
  std::vector<int> layer_group_;
  std::vector<void*> layer_pages_;
  std::vector<DeviceBuffer> pools_;  // one a group
  std::vector<int64_t> page_count_;
};

}  // namespace orlop
