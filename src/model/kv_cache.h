// KV pools: for every cache group and layer one array of pages, and their page geometry.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop {

// The groups of a model: its layers by window, in the order of their first layers.
std::vector<CacheGroup> cache_groups(const Config& config, size_t layer_page_bytes);

class KvCache {
 public:
  KvCache(const Config& config, const ModelLimits& limits, const Exec& exec);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  int group_of(int32_t layer) const { return layer_group_[static_cast<size_t>(layer)]; }
  const KvDesc& desc() const { return desc_; }
  // This layer's pool; null before allocate().
  void* pages(int32_t layer) const { return layer_pages_[static_cast<size_t>(layer)]; }

  // This layer's tails, [seats]; null if the type keeps none, and before allocate().
  void* tails(int32_t layer) const {
    return tail_bytes_ ? tails_.as<unsigned char>() + layer_tails(layer) : nullptr;
  }
  size_t seat_bytes() const { return tail_bytes_ * layer_pages_.size(); }  // tails of one seat

  void allocate(const std::vector<int64_t>& pages, int32_t seats);
  void poison(int group, int32_t page);  // fills it with bytes 0xff: NaN wherever floats stand
  // A page in all layers of its group; on the host layer after layer, groups()[g].page_bytes.
  void copy_page(int group, int32_t from, int32_t to);
  void copy_seat(int32_t from, int32_t to);
  // The host has the page once a later ticket of the device was waited for, and write_page() from there sees to it.
  void read_page(int group, int32_t page, void* host);
  void write_page(int group, int32_t page, const void* host);
  void synced() { reads_.clear(); }  // all pages that were read are there

 private:
  // The page in each layer of its group, in order.
  template <class Each>
  void each_layer(int group, int32_t page, const Each& each);
  size_t layer_tails(int32_t layer) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(seats_) * tail_bytes_;
  }

  const Exec& exec_;
  KvDesc desc_;
  size_t layer_page_bytes_;
  size_t tail_bytes_;  // of one seat and layer
  int32_t seats_ = 0;
  DeviceBuffer tails_;  // [layers][seats]
  std::vector<CacheGroup> groups_;
  std::vector<int> layer_group_;
  std::vector<void*> layer_pages_;
  std::vector<DeviceBuffer> pools_;  // one a group
  std::vector<int64_t> page_count_;  // by group
  std::unordered_map<const void*, uint64_t> reads_;  // tickets, by where on the host the page goes
};

}  // namespace orlop
