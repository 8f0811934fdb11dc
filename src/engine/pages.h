// KV pages as numbers: who holds which page of which cache group. A page is held by sequences
// (counted), by the prefix cache, or by both; one that the cache alone holds counts as available,
// since it can be evicted. Host integers only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orlop {

constexpr int max_page_groups = 4;

// A list of some of the numbers 0 to n - 1, in the order in which they were appended. Any of them
// leaves in O(1).
class IndexList {
 public:
  explicit IndexList(size_t n) : links_(n + 1) { links_[n] = {int32_t(n), int32_t(n)}; }

  int32_t front() const {  // -1: empty
    const int32_t f = links_.back().next;
    return f == end() ? -1 : f;
  }
  void append(int32_t i) {
    const int32_t last = links_.back().before;
    links_[i] = {last, end()};
    links_[last].next = i;
    links_.back().before = i;
  }
  void erase(int32_t i) {
    links_[links_[i].before].next = links_[i].next;
    links_[links_[i].next].before = links_[i].before;
  }

 private:
  struct Link {
    int32_t before, next;
  };
  int32_t end() const { return static_cast<int32_t>(links_.size()) - 1; }
  std::vector<Link> links_;  // the last one is both ends
};

// The pages of one cache group.
class PagePool {
 public:
  explicit PagePool(int64_t pages);

  int64_t total() const { return static_cast<int64_t>(pages_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached() const { return cached_; }                   // held by the prefix cache alone
  int64_t used() const { return total() - free() - cached_; }  // held by sequences
  int64_t available() const { return free() + cached_; }
  int64_t shared() const { return shared_; }  // held by several sequences

  // A free page with one reference. The caller has checked free().
  int32_t take();
  void share(int32_t page);  // one reference more
  // One reference less; true if nobody holds the page any more.
  bool release(int32_t page);
  int32_t references(int32_t page) const { return pages_[page].references; }

  // The prefix cache's hold on a page, under a number of its own; a page has one owner at most.
  void keep(int32_t page, int32_t owner);
  bool forget(int32_t page);  // true if nobody holds the page any more
  int32_t owner(int32_t page) const { return pages_[page].owner; }  // -1: the cache has no hold
  // Of the pages that the cache alone holds, the one that was released first; -1: there is none.
  int32_t oldest() const { return lru_.front(); }

 private:
  struct Page {
    int32_t references = 0;
    int32_t owner = -1;
  };
  std::vector<Page> pages_;
  std::vector<int32_t> free_;  // last freed is taken first: touched memory is touched again
  IndexList lru_;
  int64_t cached_ = 0;
  int64_t shared_ = 0;
};

// The pools of all groups of a model.
class PagePools {
 public:
  PagePools(const std::vector<int64_t>& pages, int32_t page_tokens, bool record_freed);

  int groups() const { return static_cast<int>(pools_.size()); }
  int32_t page_tokens() const { return page_tokens_; }
  PagePool& group(int g) { return pools_[g]; }
  const PagePool& group(int g) const { return pools_[g]; }

  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  // Pages that n positions in a row touch at most, wherever they begin.
  int64_t pages_across(int64_t n) const {
    return n <= 0 ? 0 : (n + page_tokens_ - 2) / page_tokens_ + 1;
  }
  // Tokens that one sequence may have. A window group (windows[g] > 0) limits it only if it cannot
  // hold the window and one step's rows.
  int64_t capacity(const std::vector<int32_t>& windows, int32_t step_tokens) const;
  int64_t total() const;          // of the smallest group
  int64_t used_in_all() const;    // held by sequences
  int64_t cached_in_all() const;  // held by the prefix cache alone
  int64_t shared_in_all() const;  // held by several sequences
  int64_t free_in_all() const;
  int64_t total_in_all() const;

  void release(int g, int32_t page);
  void forget(int g, int32_t page);

  // Pages that lost their last holder since the list was last cleared, for poisoning; only kept if
  // record_freed. Some may have a new holder already, but nothing is in them that anyone will read:
  // whatever a plan brings into them comes after its poisoning. Order of a step: plan.out, poison
  // these and clear the list, plan.in, plan.copies, plan.seats, rows.
  struct Freed {
    int group;
    int32_t page;
  };
  std::vector<Freed>& freed() { return freed_; }
  void unfree(int g, int32_t page);  // it is filled at once: takes it off that list

 private:
  std::vector<PagePool> pools_;
  int32_t page_tokens_;
  bool record_freed_;
  std::vector<Freed> freed_;
};

}  // namespace orlop
