// The prefix cache: computed pages of token sequences, found again by content. Page-granular and
// exact: a hit compares identity, parent and every token id; hashes only say where to look. Host
// integers only.
//
// A node stands for one page's worth of tokens after a certain parent, under a certain identity.
// In each group it has a page on the device, a slot in host memory, both or neither. Pages that the
// cache alone holds are evicted in the order in which sequences gave them back; a sequence gives
// back its last page first, so leaves go before their parents.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/pages.h"
#include "engine/plan.h"

namespace orlop {

// Prefixes under this identity serve every identity (states that a trusted key signed). Begins with
// a NUL, as no caller's string does.
extern const std::string shared_identity;

struct PrefixLimits {
  std::vector<int32_t> windows;     // [groups] 0: every position is kept
  std::vector<int64_t> host_slots;  // [groups] pages of the second tier
  int32_t tile_tokens = 1;          // a hit ends at a multiple of it, and of page_tokens
  uint64_t hash_seed = 0;
  uint64_t hash_mask = ~uint64_t{0};  // tests: few bits make collisions
};

class PrefixCache {
 public:
  struct Hit {
    int32_t tokens = 0;                           // a multiple of page_tokens
    std::vector<int32_t> pages[max_page_groups];  // -1 behind a window
  };
  struct Counters {
    uint64_t lookups = 0, hit_tokens = 0;  // prompts admitted for the first time
    uint64_t evicted_pages = 0;            // from the device
    uint64_t host_out = 0, host_in = 0;    // pages copied to the second tier and back
  };

  PrefixCache(PagePools& pools, const PrefixLimits& limits);

  // The longest computed prefix of tokens on the device, at most `limit` tokens. Takes no
  // reference: valid until the next call that takes pages.
  Hit match(const std::string& identity, std::span<const int32_t> tokens, int32_t limit);
  // Takes pages from the pools (evicting others), to be filled by the caller before the next step,
  // and makes them the prefix of tokens (a multiple of page_tokens). What is cached already is kept
  // and marked -1 in the answer, as is what lies behind a window. Error(out_of_memory) with nothing
  // changed if pages lack. Not while a plan is made and not yet run.
  Hit adopt(const std::string& identity, std::span<const int32_t> tokens);
  // Forgets every prefix that no running sequence uses, and all of the second tier.
  void clear();
  int64_t pages() const { return pools_.cached_in_all(); }  // held by the cache alone, all groups
  int64_t host_pages() const;                               // slots in use, all groups
  size_t nodes() const { return nodes_.size() - free_nodes_.size(); }
  const Counters& counters() const { return counters_; }
  // What it takes to compute one token again, and to copy one page to host memory or back. A page
  // is only moved to the second tier if two copies cost less than its tokens. Zeros: always.
  void set_costs(double recompute_token_ns, double copy_page_ns);

  // ---- The scheduler's part.
  // Identities as numbers; each enter() wants a leave().
  int32_t enter(const std::string& identity);
  int32_t enter_private();  // one that no string leads to
  void leave(int32_t identity);

  struct Found {
    std::vector<int32_t> nodes;  // the first `pages` are the hit
    int32_t pages = 0;
  };
  // The longest prefix on the device or in host memory, at most `limit` tokens.
  void find(int32_t identity, std::span<const int32_t> tokens, int32_t limit, Found& found);
  int32_t page(int32_t node, int g) const { return nodes_[node].page[g]; }  // -1: not on the device
  // First of the pages before `pages` whole ones that a query after them still sees.
  int32_t first_seen(int g, int32_t pages) const;
  void pin(int32_t node) { ++nodes_[node].pins; }  // it and its parents stay; -1 is not a node
  void unpin(int32_t node);
  // Until the next plan no slot of these nodes is given to others.
  void keep_slots(const Found& found);
  // A page with one reference. Evicts into plan.out; without a plan evicted pages are lost.
  int32_t take(int g, StepPlan* plan);
  // The node's page of a group, brought back from host memory, with one reference.
  int32_t bring_in(int32_t node, int g, StepPlan& plan);
  // The child of `parent` (-1: none) with these tokens, made if need be. Pages (-1: none) that are
  // new to it become the cache's too.
  int32_t insert(int32_t parent, int32_t identity, const int32_t* tokens,
                 const int32_t (&pages)[max_page_groups]);
  // Drops what no sequence holds from a node and its parents.
  void forget(int32_t node);
  void begin_plan(uint64_t serial) { serial_ = serial; }
  void count(int32_t hit_tokens) {
    ++counters_.lookups;
    counters_.hit_tokens += static_cast<uint64_t>(hit_tokens);
  }

 private:
  struct Node {
    uint64_t hash;
    int32_t parent, identity;
    int32_t next;  // in its bucket
    int32_t children;
    int32_t pins;
    int32_t held;  // pages and slots
    int32_t page[max_page_groups], slot[max_page_groups];
  };
  struct Slot {
    int32_t node = -1;
    uint64_t serial = 0;  // the plan that reads it
  };
  struct HostTier {  // of one group
    explicit HostTier(size_t n) : slots(n), lru(n) {}
    std::vector<Slot> slots;
    std::vector<int32_t> free;
    IndexList lru;
  };
  struct Identity {
    const std::string* name = nullptr;  // the map's key; null: private
    int32_t uses = 0;
  };

  uint64_t hash_of(int32_t parent, int32_t identity, const int32_t* tokens) const;
  int32_t lookup(int32_t parent, int32_t identity, const int32_t* tokens, uint64_t hash) const;
  int32_t child(int32_t parent, int32_t identity, const int32_t* tokens) const {
    return lookup(parent, identity, tokens, hash_of(parent, identity, tokens));
  }
  int32_t add_node(int32_t parent, int32_t identity, const int32_t* tokens, uint64_t hash);
  void prune(int32_t node);
  void rehash(size_t buckets);
  int32_t shared_id() const;
  void walk(int32_t identity, std::span<const int32_t> tokens, int32_t limit, bool through_shared,
            bool device_only, Found& found) const;
  void find_best(int32_t identity, std::span<const int32_t> tokens, int32_t limit, bool device_only,
                 Found& found);

  void evict(int g, StepPlan* plan);
  int32_t take_slot(int g);
  void touch_slot(int g, int32_t slot);
  void drop_slot(int32_t node, int g);
  bool worth_moving() const;

  PagePools& pools_;
  const PrefixLimits limits_;
  const int32_t page_tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // [nodes, page_tokens]
  std::vector<int32_t> free_nodes_;
  std::vector<int32_t> buckets_;  // first node of each, a power of two of them
  std::vector<HostTier> host_;    // [groups]
  std::unordered_map<std::string, int32_t> names_;
  std::vector<Identity> identities_;
  std::vector<int32_t> free_identities_;
  Found other_;  // scratch
  Counters counters_;
  uint64_t serial_ = 0;
  double recompute_token_ns_ = 0, copy_page_ns_ = 0;
};

}  // namespace orlop
