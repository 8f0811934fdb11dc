// KV pools: for every cache group and layer one array of pages, and their page geometry.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop {

// The groups of a model: its layers by window, in the order of their first layers. layer_page_bytes: [layers]
std::vector<CacheGroup> cache_groups(const Config& config, std::span<const size_t> layer_page_bytes);
// What a page takes in each layer, where the parts run. [layers]
std::vector<size_t> layer_page_bytes(const KvDesc& desc, std::span<const Part> parts);

class KvCache {
 public:
  // Each part's pages lie where it runs; pages and seats have the same numbers in all parts.
  KvCache(const Config& config, const ModelLimits& limits, std::span<const Part> parts);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  int group_of(int32_t layer) const { return layer_group_[static_cast<size_t>(layer)]; }
  const KvDesc& desc() const { return desc_; }
  // This layer's pool; null before allocate().
  void* pages(int32_t layer) const { return layer_pages_[static_cast<size_t>(layer)]; }

  // This layer's tails, [seats]; null if the type keeps none, and before allocate().
  void* tails(int32_t layer) const { return layer_tails_[static_cast<size_t>(layer)]; }
  size_t seat_bytes() const;  // tails of one seat

  void allocate(const std::vector<int64_t>& pages, int32_t seats);
  void poison(int group, int32_t page);  // fills it with bytes 0xff: NaN wherever floats stand
  // A page in all layers of its group; on the host layer after layer, groups()[g].page_bytes.
  void copy_page(int group, int32_t from, int32_t to);
  void copy_seat(int32_t from, int32_t to);
  // The host has the page once a later ticket of every part's device was waited for, and write_page() from there sees to it.
  void read_page(int group, int32_t page, void* host);
  void write_page(int group, int32_t page, const void* host);
  void synced();  // all pages that were read are there

 private:
  struct Side {  // a part's
    Device* device;
    int32_t begin, end;  // layers
    size_t page_bytes;   // of one layer
    size_t tail_bytes;   // of one seat and layer
    DeviceBuffer tails;                // [layers][seats]
    std::vector<DeviceBuffer> pools;   // [groups][the group's layers][pages]
    std::vector<size_t> group_layers;  // [groups]
    std::unordered_map<const void*, uint64_t> reads;  // tickets, by where on the host the page goes
  };
  void check_page(int group, int32_t page) const;
  // The page in the first of the group's layers that the side has: that of the next is layer_bytes() behind it.
  static unsigned char* page_in_first(const Side& side, size_t group, int32_t page) {
    return side.pools[group].as<unsigned char>() + static_cast<size_t>(page) * side.page_bytes;
  }
  // The page in each layer of its group, in order.
  template <class Each>
  void each_layer(int group, int32_t page, const Each& each);
  size_t layer_bytes(const Side& side, size_t group) const {
    return static_cast<size_t>(page_count_[group]) * side.page_bytes;
  }

  KvDesc desc_;
  int32_t seats_ = 0;
  std::vector<CacheGroup> groups_;
  std::vector<int> layer_group_;
  std::vector<void*> layer_pages_, layer_tails_;  // [layers]
  std::vector<Side> sides_;
  std::vector<int64_t> page_count_;  // by group
};

}  // namespace orlop
