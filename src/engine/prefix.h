// The prefix cache: computed pages of token sequences, found again by content. Page-granular and
// exact: a hit compares identity, parent and every token id. Host integers only.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/pages.h"

namespace orlop {

// Prefixes under this identity serve every identity (states that a trusted key signed).
extern const std::string shared_identity;

class PrefixCache {
 public:
  struct Hit {
    int32_t tokens = 0;                           // a multiple of page_tokens
    std::vector<int32_t> pages[max_page_groups];  // -1 behind a window
  };
  struct Counters {
    uint64_t lookups, hit_tokens, evicted_pages, host_out, host_in;
  };

  // The longest computed prefix of tokens on the device, at most `limit` tokens. Takes no reference:
  // valid until the next call that takes pages.
  Hit match(const std::string& identity, std::span<const int32_t> tokens, int32_t limit);
  // Takes pages from the pools (evicting others), to be filled by the caller before the next step,
  // and makes them the prefix of tokens (a multiple of page_tokens). What is cached already is kept
  // and marked -1 in the answer. Error(out_of_memory) with nothing changed if pages lack.
  Hit adopt(const std::string& identity, std::span<const int32_t> tokens);
  // Forgets every prefix that no running sequence uses.
  void clear();
  int64_t pages() const;  // held by the cache alone, all groups
  const Counters& counters() const;
};

}  // namespace orlop
