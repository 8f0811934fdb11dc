#include "model/kv_cache.h"

#include "base/checked.h"

namespace orlop {

KvCache::KvCache(const Config& config, const ModelLimits& limits, const Exec& exec)
    : exec_(exec),
      desc_{limits.kv_type, config.kv_heads, config.head_dim, limits.page_tokens},
      layer_page_bytes_(exec.kernels->kv_page_bytes(desc_)),
      layer_pages_(static_cast<size_t>(config.layers)) {
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const bool windowed =
        config.window > 0 && !config.layer_window.empty() &&
        config.layer_window[static_cast<size_t>(layer)];
    const int32_t window = windowed ? config.window : 0;
    size_t g = 0;
    while (g < groups_.size() && groups_[g].window != window) ++g;
    if (g == groups_.size()) {
      groups_.emplace_back();
      groups_.back().window = window;
    }
    groups_[g].layers.push_back(layer);
    groups_[g].page_bytes += layer_page_bytes_;
    layer_group_.push_back(static_cast<int>(g));
  }
}

void KvCache::allocate(const std::vector<int64_t>& pages) {
  if (pages.size() != groups_.size())
    fail(Status::internal, "KV cache: ", pages.size(), " page counts for ", groups_.size(),
         " groups");
  page_count_ = pages;
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

void KvCache::poison(int group, int32_t page) {
  const CacheGroup& g = groups_[static_cast<size_t>(group)];
  if (page < 0 || page >= page_count_[static_cast<size_t>(group)])
    fail(Status::internal, "KV cache: page ", page, " does not exist");
  for (int32_t layer : g.layers)
    exec_.device->fill(static_cast<unsigned char*>(pages(layer)) +
                           static_cast<size_t>(page) * layer_page_bytes_,
                       0xff, layer_page_bytes_);
}

}  // namespace orlop
