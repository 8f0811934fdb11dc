#include "model/kv_cache.h"

#include "base/checked.h"

namespace orlop {

std::vector<CacheGroup> cache_groups(const Config& config, std::span<const size_t> layer_page_bytes) {
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
    groups[g].page_bytes += layer_page_bytes[static_cast<size_t>(layer)];
  }
  return groups;
}

std::vector<size_t> layer_page_bytes(const KvDesc& desc, std::span<const Part> parts) {
  std::vector<size_t> bytes;
  for (const Part& part : parts)
    bytes.resize(static_cast<size_t>(part.end), part.exec.kernels->kv_page_bytes(desc));
  return bytes;
}

KvCache::KvCache(const Config& config, const ModelLimits& limits, std::span<const Part> parts)
    : desc_{limits.kv_type, config.kv_heads, config.head_dim, limits.page_tokens},
      groups_(cache_groups(config, layer_page_bytes(desc_, parts))),
      layer_group_(static_cast<size_t>(config.layers)),
      layer_pages_(static_cast<size_t>(config.layers)),
      layer_tails_(static_cast<size_t>(config.layers)) {
  for (const Part& part : parts) {
    Side side{part.exec.device,
              part.begin,
              part.end,
              part.exec.kernels->kv_page_bytes(desc_),
              part.exec.kernels->kv_tail_bytes(desc_),
              {},
              {},
              std::vector<size_t>(groups_.size()),
              {}};
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const int32_t layer : groups_[g].layers) {
        layer_group_[static_cast<size_t>(layer)] = static_cast<int>(g);
        side.group_layers[g] += layer >= part.begin && layer < part.end;
      }
    sides_.push_back(std::move(side));
  }
}

size_t KvCache::seat_bytes() const {
  size_t bytes = 0;
  for (const Side& s : sides_) bytes += s.tail_bytes * static_cast<size_t>(s.end - s.begin);
  return bytes;
}

void KvCache::allocate(const std::vector<int64_t>& pages, int32_t seats) {
  if (pages.size() != groups_.size())
    fail(Status::internal, "KV cache: ", pages.size(), " page counts for ", groups_.size(),
         " groups");
  if (seats < 0) fail(Status::internal, "KV cache: ", seats, " seats");
  page_count_ = pages;
  seats_ = seats;
  for (Side& s : sides_) {
    const size_t tails = checked_mul(static_cast<size_t>(seats), s.tail_bytes, "KV tails' bytes");
    s.tails = DeviceBuffer(
        *s.device, checked_mul(tails, static_cast<size_t>(s.end - s.begin), "KV tails' bytes"));
    for (int32_t layer = s.begin; layer < s.end; ++layer)
      layer_tails_[static_cast<size_t>(layer)] =
          s.tail_bytes ? s.tails.as<unsigned char>() + static_cast<size_t>(layer - s.begin) * tails
                       : nullptr;
    s.pools.clear();
    for (size_t g = 0; g < groups_.size(); ++g) {
      checked_mul(static_cast<size_t>(pages[g]), s.page_bytes, "KV cache bytes");
      s.pools.emplace_back(*s.device,
                           checked_mul(layer_bytes(s, g), s.group_layers[g], "KV cache bytes"));
      auto* at = s.pools.back().as<unsigned char>();
      for (const int32_t layer : groups_[g].layers) {
        if (layer < s.begin || layer >= s.end) continue;
        layer_pages_[static_cast<size_t>(layer)] = at;
        at += layer_bytes(s, g);
      }
    }
  }
}

void KvCache::check_page(int group, int32_t page) const {
  if (group < 0 || static_cast<size_t>(group) >= page_count_.size() || page < 0 ||
      page >= page_count_[static_cast<size_t>(group)])
    fail(Status::internal, "KV cache: page ", page, " of group ", group, " does not exist");
}

template <class Each>
void KvCache::each_layer(int group, int32_t page, const Each& each) {
  check_page(group, page);
  const auto g = static_cast<size_t>(group);
  for (const Side& s : sides_)
    for (size_t i = 0; i < s.group_layers[g]; ++i)
      each(s, page_in_first(s, g, page) + i * layer_bytes(s, g));
}

void KvCache::poison(int group, int32_t page) {
  each_layer(group, page, [](const Side& s, unsigned char* at) {
    s.device->fill(at, 0xff, s.page_bytes);
  });
}

void KvCache::copy_page(int group, int32_t from, int32_t to) {
  check_page(group, from);
  if (from == to) return;
  const ptrdiff_t distance = static_cast<ptrdiff_t>(from) - to;
  each_layer(group, to, [&](const Side& s, unsigned char* at) {
    s.device->copy(at, at + distance * static_cast<ptrdiff_t>(s.page_bytes), s.page_bytes);
  });
}

void KvCache::read_page(int group, int32_t page, void* host) {
  check_page(group, page);
  const auto g = static_cast<size_t>(group);
  auto* to = static_cast<unsigned char*>(host);
  for (Side& s : sides_) {
    if (s.group_layers[g] == 0) continue;
    uint64_t& ticket = s.reads[host];  // first: without it nobody could wait for the copy
    ticket = s.device->download_rows_later(to, page_in_first(s, g, page), s.group_layers[g],
                                           s.page_bytes, layer_bytes(s, g));
    to += s.group_layers[g] * s.page_bytes;
  }
}

void KvCache::write_page(int group, int32_t page, const void* host) {
  check_page(group, page);
  const auto g = static_cast<size_t>(group);
  const auto* from = static_cast<const unsigned char*>(host);
  for (Side& s : sides_) {
    if (s.group_layers[g] == 0) continue;
    if (const auto read = s.reads.find(host); read != s.reads.end()) s.device->wait(read->second);
    s.device->upload_rows(page_in_first(s, g, page), from, s.group_layers[g], s.page_bytes, layer_bytes(s, g));
    from += s.group_layers[g] * s.page_bytes;
  }
}

void KvCache::synced() {
  for (Side& s : sides_) s.reads.clear();
}

void KvCache::copy_seat(int32_t from, int32_t to) {
  if (from < 0 || from >= seats_ || to < 0 || to >= seats_)
    fail(Status::internal, "KV cache: seat ", from, " or ", to, " is none of ", seats_);
  if (from == to) return;
  for (const Side& s : sides_) {
    if (s.tail_bytes == 0) continue;
    for (int32_t layer = s.begin; layer < s.end; ++layer) {
      auto* base = static_cast<unsigned char*>(tails(layer));
      s.device->copy(base + static_cast<size_t>(to) * s.tail_bytes,
                     base + static_cast<size_t>(from) * s.tail_bytes, s.tail_bytes);
    }
  }
}

}  // namespace orlop
