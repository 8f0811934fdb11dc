#include "model/kv_cache.h"

#include "base/checked.h"

namespace orlop {

std::vector<CacheGroup> cache_groups(const Config& config, size_t layer_page_bytes) {
  std::vector<CacheGroup> groups;
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const bool windowed = config.window > 0 && !config.layer_window.empty() &&
                          config.layer_window[static_cast<size_t>(layer)];
    const int32_t window = windowed ? config.window : 0;
    size_t g = 0;
    while (g < groups.size() && groups[g].window != window) ++g;
    if (g == groups.size()) {
      groups.emplace_back();
      groups.back().window = window;
    }
    groups[g].layers.push_back(layer);
    groups[g].page_bytes += layer_page_bytes;
  }
  return groups;
}

KvCache::KvCache(const Config& config, const ModelLimits& limits, const Exec& exec)
    : exec_(exec),
      desc_{limits.kv_type, config.kv_heads, config.head_dim, limits.page_tokens},
      layer_page_bytes_(exec.kernels->kv_page_bytes(desc_)),
      tail_bytes_(exec.kernels->kv_tail_bytes(desc_)),
      layer_group_(static_cast<size_t>(config.layers)),
      layer_pages_(static_cast<size_t>(config.layers)) {
  groups_ = cache_groups(config, layer_page_bytes_);
  for (size_t g = 0; g < groups_.size(); ++g)
    for (const int32_t layer : groups_[g].layers)
      layer_group_[static_cast<size_t>(layer)] = static_cast<int>(g);
}

void KvCache::allocate(const std::vector<int64_t>& pages, int32_t seats) {
  if (pages.size() != groups_.size())
    fail(Status::internal, "KV cache: ", pages.size(), " page counts for ", groups_.size(),
         " groups");
  if (seats < 0) fail(Status::internal, "KV cache: ", seats, " seats");
  page_count_ = pages;
  seats_ = seats;
  tails_ = DeviceBuffer(*exec_.device,
                        checked_mul(static_cast<size_t>(seats), seat_bytes(), "KV tails' bytes"));
  pools_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t layer_bytes =
        checked_mul(static_cast<size_t>(pages[g]), layer_page_bytes_, "KV cache bytes");
    pools_.emplace_back(*exec_.device,
                        checked_mul(layer_bytes, groups_[g].layers.size(), "KV cache bytes"));
    auto* base = pools_.back().as<unsigned char>();
    for (size_t i = 0; i < groups_[g].layers.size(); ++i)
      layer_pages_[static_cast<size_t>(groups_[g].layers[i])] = base + i * layer_bytes;
  }
}

template <class Each>
void KvCache::each_layer(int group, int32_t page, const Each& each) {
  if (group < 0 || static_cast<size_t>(group) >= pools_.size() || page < 0 ||
      page >= page_count_[static_cast<size_t>(group)])
    fail(Status::internal, "KV cache: page ", page, " of group ", group, " does not exist");
  size_t at = 0;  // on the host
  for (int32_t layer : groups_[static_cast<size_t>(group)].layers) {
    each(static_cast<unsigned char*>(pages(layer)) + static_cast<size_t>(page) * layer_page_bytes_,
         at);
    at += layer_page_bytes_;
  }
}

void KvCache::poison(int group, int32_t page) {
  each_layer(group, page,
             [&](unsigned char* at, size_t) { exec_.device->fill(at, 0xff, layer_page_bytes_); });
}

void KvCache::copy_page(int group, int32_t from, int32_t to) {
  each_layer(group, from, [](unsigned char*, size_t) {});  // that it exists
  if (from == to) return;
  const auto distance =
      (static_cast<ptrdiff_t>(from) - to) * static_cast<ptrdiff_t>(layer_page_bytes_);
  each_layer(group, to, [&](unsigned char* at, size_t) {
    exec_.device->copy(at, at + distance, layer_page_bytes_);
  });
}

void KvCache::read_page(int group, int32_t page, void* host) {
  unsigned char* first = nullptr;
  each_layer(group, page, [&](unsigned char* at, size_t offset) {
    if (offset == 0) first = at;
  });
  const auto g = static_cast<size_t>(group);
  reads_[host] = exec_.device->download_rows_later(
      host, first, groups_[g].layers.size(), layer_page_bytes_,
      static_cast<size_t>(page_count_[g]) * layer_page_bytes_);
}

void KvCache::write_page(int group, int32_t page, const void* host) {
  if (const auto read = reads_.find(host); read != reads_.end()) exec_.device->wait(read->second);
  each_layer(group, page, [&](unsigned char* at, size_t offset) {
    exec_.device->upload(at, static_cast<const unsigned char*>(host) + offset, layer_page_bytes_);
  });
}

void KvCache::copy_seat(int32_t from, int32_t to) {
  if (from < 0 || from >= seats_ || to < 0 || to >= seats_)
    fail(Status::internal, "KV cache: seat ", from, " or ", to, " is none of ", seats_);
  if (tail_bytes_ == 0 || from == to) return;
  for (size_t layer = 0; layer < layer_pages_.size(); ++layer) {
    auto* base = static_cast<unsigned char*>(tails(static_cast<int32_t>(layer)));
    exec_.device->copy(base + static_cast<size_t>(to) * tail_bytes_,
                       base + static_cast<size_t>(from) * tail_bytes_, tail_bytes_);
  }
}

}  // namespace orlop
