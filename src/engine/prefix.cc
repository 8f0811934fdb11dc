#include "engine/prefix.h"

#include <algorithm>

#include "base/error.h"

namespace orlop {

const std::string shared_identity("\0shared", 7);

namespace {
template <class T>
std::vector<T> padded(std::vector<T> v, int groups) {
  v.resize(static_cast<size_t>(groups));
  return v;
}
}  // namespace

PrefixCache::PrefixCache(PagePools& pools, const PrefixLimits& limits)
    : pools_(pools),
      limits_{padded(limits.windows, pools.groups()), padded(limits.host_slots, pools.groups()),
              limits.tile_tokens, limits.hash_seed, limits.hash_mask},
      page_tokens_(pools.page_tokens()) {
  size_t most = 0;
  for (int g = 0; g < pools.groups(); ++g) {
    const int64_t slots = limits_.host_slots[g];
    if (slots < 0 || slots >= std::numeric_limits<int32_t>::max())
      fail(Status::invalid_argument, "host slots: ", slots, " is out of range");
    if (limits_.windows[g] < 0)
      fail(Status::invalid_argument, "window: ", limits_.windows[g], " is negative");
    HostTier& tier = host_.emplace_back(static_cast<size_t>(slots));
    tier.free.reserve(tier.slots.size());
    for (int64_t s = slots; s-- > 0;) tier.free.push_back(static_cast<int32_t>(s));
    most += static_cast<size_t>(pools.group(g).total() + slots);
  }
  if (limits_.tile_tokens < 1) fail(Status::invalid_argument, "tile_tokens: must be positive");
  nodes_.reserve(most);
  free_nodes_.reserve(most);
  tokens_.reserve(most * static_cast<size_t>(page_tokens_));
  size_t buckets = 16;
  while (buckets < 2 * most) buckets *= 2;
  buckets_.assign(buckets, -1);
}

// ---- identities

int32_t PrefixCache::enter_private() {
  if (free_identities_.empty()) {
    const size_t n = identities_.size();
    if (free_identities_.capacity() <= n)
      free_identities_.reserve(2 * n + 8);  // leave() allocates nothing
    identities_.emplace_back();
    free_identities_.push_back(static_cast<int32_t>(n));
  }
  const int32_t id = free_identities_.back();
  free_identities_.pop_back();
  identities_[id] = {nullptr, 1};
  return id;
}

int32_t PrefixCache::enter(const std::string& identity) {
  if (const auto at = names_.find(identity); at != names_.end()) {
    ++identities_[at->second].uses;
    return at->second;
  }
  const int32_t id = enter_private();
  try {
    identities_[id].name = &names_.emplace(identity, id).first->first;
  } catch (...) {
    leave(id);
    throw;
  }
  return id;
}

void PrefixCache::leave(int32_t id) {
  Identity& i = identities_[id];
  if (--i.uses) return;
  if (i.name) names_.erase(names_.find(*i.name));
  i.name = nullptr;
  free_identities_.push_back(id);
}

int32_t PrefixCache::shared_id() const {
  const auto at = names_.find(shared_identity);
  return at == names_.end() ? -1 : at->second;
}

// ---- nodes

uint64_t PrefixCache::hash_of(int32_t parent, int32_t identity, const int32_t* tokens) const {
  constexpr uint64_t odd = 0x9e3779b97f4a7c15;
  uint64_t h = limits_.hash_seed ^
               (uint64_t{static_cast<uint32_t>(parent)} << 32 | static_cast<uint32_t>(identity));
  h *= odd;
  for (int32_t i = 0; i < page_tokens_; ++i) {
    h ^= h >> 32;
    h = (h ^ static_cast<uint32_t>(tokens[i])) * odd;
  }
  h ^= h >> 29;
  return h & limits_.hash_mask;
}

int32_t PrefixCache::lookup(int32_t parent, int32_t identity, const int32_t* tokens,
                            uint64_t hash) const {
  for (int32_t n = buckets_[hash & (buckets_.size() - 1)]; n >= 0; n = nodes_[n].next) {
    const Node& node = nodes_[n];
    if (node.hash == hash && node.parent == parent && node.identity == identity &&
        std::equal(tokens, tokens + page_tokens_, tokens_.begin() + int64_t{n} * page_tokens_))
      return n;
  }
  return -1;
}

int32_t PrefixCache::add_node(int32_t parent, int32_t identity, const int32_t* tokens,
                              uint64_t hash) {
  int32_t n;
  if (free_nodes_.empty()) {
    const size_t count = nodes_.size() + 1;
    if (count > buckets_.size()) rehash(buckets_.size() * 2);
    if (free_nodes_.capacity() < count)
      free_nodes_.reserve(2 * count);  // pruning allocates nothing
    tokens_.resize(count * static_cast<size_t>(page_tokens_));
    nodes_.emplace_back();
    n = static_cast<int32_t>(count) - 1;
  } else {
    n = free_nodes_.back();
    free_nodes_.pop_back();
  }
  int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  Node& node = nodes_[n];
  node = {hash, parent, identity, bucket, 0, 0, 0, {}, {}};
  std::fill(std::begin(node.page), std::end(node.page), -1);
  std::fill(std::begin(node.slot), std::end(node.slot), -1);
  bucket = n;
  std::copy_n(tokens, page_tokens_, tokens_.begin() + int64_t{n} * page_tokens_);
  if (parent >= 0) ++nodes_[parent].children;
  ++identities_[identity].uses;
  return n;
}

void PrefixCache::rehash(size_t buckets) {
  buckets_.assign(buckets, -1);
  for (size_t n = 0; n < nodes_.size(); ++n) {  // called while no node is free
    int32_t& bucket = buckets_[nodes_[n].hash & (buckets - 1)];
    nodes_[n].next = bucket;
    bucket = static_cast<int32_t>(n);
  }
}

// Removes a node that stands for nothing any more, then its parents likewise.
void PrefixCache::prune(int32_t n) {
  while (n >= 0) {
    Node& node = nodes_[n];
    if (node.children || node.pins || node.held) return;
    int32_t* at = &buckets_[node.hash & (buckets_.size() - 1)];
    while (*at != n) at = &nodes_[*at].next;
    *at = node.next;
    const int32_t parent = node.parent;
    leave(node.identity);
    free_nodes_.push_back(n);
    if (parent >= 0) --nodes_[parent].children;
    n = parent;
  }
}

void PrefixCache::unpin(int32_t node) {
  --nodes_[node].pins;
  prune(node);
}

int32_t PrefixCache::insert(int32_t parent, int32_t identity, const int32_t* tokens,
                            const int32_t (&pages)[max_page_groups]) {
  const uint64_t hash = hash_of(parent, identity, tokens);
  int32_t n = lookup(parent, identity, tokens, hash);
  if (n < 0) n = add_node(parent, identity, tokens, hash);
  Node& node = nodes_[n];
  for (int g = 0; g < pools_.groups(); ++g) {
    if (pages[g] < 0 || node.page[g] >= 0 || pools_.group(g).owner(pages[g]) >= 0) continue;
    pools_.group(g).keep(pages[g], n);
    node.page[g] = pages[g];
    ++node.held;
  }
  return n;
}

void PrefixCache::forget(int32_t n) {
  const int32_t last = n;
  if (last < 0) return;
  pin(last);
  for (; n >= 0; n = nodes_[n].parent) {
    Node& node = nodes_[n];
    for (int g = 0; g < pools_.groups(); ++g) {
      const int32_t page = node.page[g];
      if (page >= 0 && pools_.group(g).references(page) == 0) {
        node.page[g] = -1;
        --node.held;
        pools_.forget(g, page);
      }
      if (node.slot[g] >= 0) drop_slot(n, g);
    }
  }
  // From the last one up, so that each is pruned when it has no child left.
  unpin(last);
}

// ---- hits

int32_t PrefixCache::first_seen(int g, int32_t pages) const {
  const int32_t window = limits_.windows[g];
  if (window <= 0) return 0;
  const int64_t first = int64_t{pages} * page_tokens_ - window + 1;
  return first > 0 ? static_cast<int32_t>(first / page_tokens_) : 0;
}

// One way down from the root: by the identity's own nodes, or by shared ones as far as they go.
void PrefixCache::walk(int32_t identity, std::span<const int32_t> tokens, int32_t limit,
                       bool through_shared, bool device_only, Found& found) const {
  found.nodes.clear();
  found.pages = 0;
  const int groups = pools_.groups();
  const int32_t most = std::min<int32_t>(limit, static_cast<int32_t>(tokens.size())) / page_tokens_;
  const int32_t shared = through_shared ? shared_id() : -1;
  bool on_shared = shared >= 0;
  int32_t unbroken[max_page_groups] = {};  // pages in a row up to here that the group has
  int32_t node = -1;
  const auto on_device = [&](const Node& n) {
    for (int g = 0; g < groups; ++g)
      if (n.page[g] < 0 && limits_.windows[g] == 0) return false;
    return true;
  };
  for (int32_t k = 1; k <= most; ++k) {
    const int32_t* page = tokens.data() + int64_t{k - 1} * page_tokens_;
    int32_t next = on_shared ? child(node, shared, page) : -1;
    // A shared node whose pages are on the host only gives way to an own one that has them here.
    if (next < 0 || (device_only && !on_device(nodes_[next]))) {
      const int32_t own = identity >= 0 ? child(node, identity, page) : -1;
      if (next < 0 || own >= 0) {
        on_shared = false;
        next = own;
      }
    }
    if (next < 0) return;
    node = next;
    found.nodes.push_back(node);
    bool hit = int64_t{k} * page_tokens_ % limits_.tile_tokens == 0;
    for (int g = 0; g < groups; ++g) {
      const Node& n = nodes_[node];
      const bool has = n.page[g] >= 0 || (!device_only && n.slot[g] >= 0);
      if (!has && limits_.windows[g] == 0) return;
      unbroken[g] = has ? unbroken[g] + 1 : 0;
      if (unbroken[g] < k - first_seen(g, k)) hit = false;
    }
    if (hit) found.pages = k;
  }
}

void PrefixCache::find_best(int32_t identity, std::span<const int32_t> tokens, int32_t limit,
                            bool device_only, Found& found) {
  walk(identity, tokens, limit, false, device_only, found);
  const bool is_private = identity >= 0 && !identities_[identity].name;
  if (const int32_t shared = shared_id(); shared >= 0 && shared != identity && !is_private) {
    walk(identity, tokens, limit, true, device_only, other_);
    if (other_.pages > found.pages) std::swap(found, other_);
  }
  found.nodes.resize(static_cast<size_t>(found.pages));
}

void PrefixCache::find(int32_t identity, std::span<const int32_t> tokens, int32_t limit,
                       Found& found) {
  find_best(identity, tokens, limit, false, found);
}

PrefixCache::Hit PrefixCache::match(const std::string& identity, std::span<const int32_t> tokens,
                                    int32_t limit) {
  const auto at = names_.find(identity);
  Found found;
  find_best(at == names_.end() ? -1 : at->second, tokens, limit, true, found);
  Hit hit;
  hit.tokens = found.pages * page_tokens_;
  for (int g = 0; g < pools_.groups(); ++g) {
    hit.pages[g].assign(static_cast<size_t>(found.pages), -1);
    for (int32_t i = first_seen(g, found.pages); i < found.pages; ++i)
      hit.pages[g][i] = nodes_[found.nodes[i]].page[g];
  }
  return hit;
}

}  // namespace orlop
