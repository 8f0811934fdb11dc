// The prefix cache's pages on the move: eviction, the second tier in host memory, states from
// outside.
#include <algorithm>

#include "base/error.h"
#include "engine/prefix.h"

namespace orlop {

void PrefixCache::set_costs(double recompute_token_ns, double copy_page_ns) {
  recompute_token_ns_ = recompute_token_ns;
  copy_page_ns_ = copy_page_ns;
}

bool PrefixCache::worth_moving() const {
  return recompute_token_ns_ <= 0 || 2 * copy_page_ns_ < recompute_token_ns_ * page_tokens_;
}

int64_t PrefixCache::host_pages() const {
  size_t sum = 0;
  for (const HostTier& t : host_) sum += t.slots.size() - t.free.size();
  return static_cast<int64_t>(sum);
}

int32_t PrefixCache::take(int g, StepPlan* plan) {
  if (pools_.group(g).free() == 0) evict(g, plan);
  return pools_.group(g).take();
}

// The content of an evicted page is there when the plan begins: the cache holds committed pages and
// pages that came from a slot, and those still have their slot (touch_slot).
void PrefixCache::evict(int g, StepPlan* plan) {
  const int32_t page = pools_.group(g).oldest();
  if (page < 0) fail(Status::internal, "KV pages of group ", g, ": none is left");
  const int32_t n = pools_.group(g).owner(page);
  if (plan && nodes_[n].slot[g] < 0 && worth_moving()) {
    if (const int32_t slot = take_slot(g); slot >= 0) {
      host_[g].slots[slot].node = n;
      host_[g].lru.append(slot);
      nodes_[n].slot[g] = slot;
      ++nodes_[n].held;
      plan->out.push_back({g, page, slot});
      ++counters_.host_out;
    }
  }
  nodes_[n].page[g] = -1;
  --nodes_[n].held;
  pools_.forget(g, page);
  ++counters_.evicted_pages;
  prune(n);
}

// A slot that nobody uses; -1: none. A slot that this plan reads is not given away: the plan writes
// all slots before it reads any.
int32_t PrefixCache::take_slot(int g) {
  HostTier& tier = host_[g];
  if (tier.free.empty()) {
    const int32_t oldest = tier.lru.front();
    if (oldest < 0 || tier.slots[oldest].serial == serial_) return -1;
    const int32_t n = tier.slots[oldest].node;
    drop_slot(n, g);
    prune(n);
  }
  const int32_t slot = tier.free.back();
  tier.free.pop_back();
  return slot;
}

void PrefixCache::touch_slot(int g, int32_t slot) {
  host_[g].lru.erase(slot);
  host_[g].lru.append(slot);
  host_[g].slots[slot].serial = serial_;
}

void PrefixCache::drop_slot(int32_t n, int g) {
  const int32_t slot = nodes_[n].slot[g];
  nodes_[n].slot[g] = -1;
  --nodes_[n].held;
  host_[g].lru.erase(slot);
  host_[g].slots[slot] = {};
  host_[g].free.push_back(slot);
}

void PrefixCache::keep_slots(const Found& found) {
  for (int g = 0; g < pools_.groups(); ++g)
    for (int32_t i = first_seen(g, found.pages); i < found.pages; ++i) {
      const Node& node = nodes_[found.nodes[i]];
      if (node.page[g] < 0) touch_slot(g, node.slot[g]);
    }
}

int32_t PrefixCache::bring_in(int32_t n, int g, StepPlan& plan) {
  plan.in.push_back({g, nodes_[n].slot[g], -1});
  const int32_t page = take(g, &plan);
  plan.in.back().page = page;
  pools_.group(g).keep(page, n);
  nodes_[n].page[g] = page;
  ++nodes_[n].held;
  ++counters_.host_in;
  return page;
}

void PrefixCache::clear() {
  for (int g = 0; g < pools_.groups(); ++g) {
    for (int32_t page; (page = pools_.group(g).oldest()) >= 0;) {
      const int32_t n = pools_.group(g).owner(page);
      nodes_[n].page[g] = -1;
      --nodes_[n].held;
      pools_.forget(g, page);
      prune(n);
    }
    for (int32_t slot; (slot = host_[g].lru.front()) >= 0;) {
      const int32_t n = host_[g].slots[slot].node;
      drop_slot(n, g);
      prune(n);
    }
  }
}

PrefixCache::Hit PrefixCache::adopt(const std::string& identity, std::span<const int32_t> tokens) {
  if (tokens.size() % static_cast<size_t>(page_tokens_))
    fail(Status::invalid_argument, "prefix: ", tokens.size(), " tokens are no whole pages of ",
         page_tokens_);
  const auto count = static_cast<int32_t>(tokens.size() / static_cast<size_t>(page_tokens_));
  Hit hit;
  hit.tokens = static_cast<int32_t>(tokens.size());
  for (int g = 0; g < pools_.groups(); ++g) hit.pages[g].assign(static_cast<size_t>(count), -1);
  if (count == 0) return hit;

  // Every node first: nothing is evicted meanwhile, and pinned they survive what follows.
  const int32_t id = enter(identity);
  std::vector<int32_t> nodes;
  nodes.reserve(static_cast<size_t>(count));
  try {
    for (int32_t i = 0, parent = -1; i < count; ++i) {
      const int32_t* page = tokens.data() + int64_t{i} * page_tokens_;
      const uint64_t hash = hash_of(parent, id, page);
      int32_t n = lookup(parent, id, page, hash);
      if (n < 0) n = add_node(parent, id, page, hash);
      pin(n);
      nodes.push_back(n);
      parent = n;
    }
  } catch (...) {
    for (size_t i = nodes.size(); i-- > 0;) unpin(nodes[i]);
    leave(id);
    throw;
  }
  // What is there already must not be evicted for the rest.
  bool fits = true;
  for (int g = 0; g < pools_.groups(); ++g) {
    int64_t lack = 0;
    for (int32_t i = first_seen(g, count); i < count; ++i) {
      const int32_t page = nodes_[nodes[i]].page[g];
      page >= 0 ? pools_.group(g).share(page) : void(++lack);
    }
    if (lack > pools_.group(g).available()) fits = false;
  }
  for (int g = 0; g < pools_.groups(); ++g) {
    for (int32_t i = count; i-- > first_seen(g, count);) {
      Node& node = nodes_[nodes[i]];
      if (node.page[g] >= 0 || !fits) continue;
      const int32_t page = take(g, nullptr);
      pools_.unfree(g, page);
      pools_.group(g).keep(page, nodes[i]);
      nodes_[nodes[i]].page[g] = page;
      ++nodes_[nodes[i]].held;
      hit.pages[g][i] = page;
    }
    for (int32_t i = count; i-- > first_seen(g, count);)
      if (const int32_t page = nodes_[nodes[i]].page[g]; page >= 0) pools_.release(g, page);
  }
  for (int32_t i = count; i-- > 0;) unpin(nodes[i]);
  leave(id);
  if (!fits)
    fail(Status::out_of_memory, "prefix of ", tokens.size(), " tokens: too few KV pages are free");
  return hit;
}

}  // namespace orlop
