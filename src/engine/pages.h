// KV pages as numbers: who holds which page of which cache group. Reference counted, so that
// several sequences (and later a prefix cache) may share a page. Host integers only.
#pragma once
#include <cstdint>
#include <vector>

namespace orlop {

constexpr int max_page_groups = 4;

// The pages of one cache group.
class PagePool {
 public:
  explicit PagePool(int64_t pages);

  int64_t total() const { return static_cast<int64_t>(references_.size()); }
  int64_t available() const { return static_cast<int64_t>(free_.size()); }
  int64_t used() const { return total() - available(); }

  // A free page with one reference. The caller has checked available().
  int32_t take();
  void share(int32_t page);  // one reference more
  // One reference less; true if the page became free.
  bool release(int32_t page);
  int32_t references(int32_t page) const { return references_[page]; }

 private:
  std::vector<int32_t> references_;  // [pages]
  std::vector<int32_t> free_;        // last freed is taken first: touched memory is touched again
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
  int64_t available() const;  // pages that every group still has
  int64_t total() const;      // of the smallest group
  int64_t used_in_all() const;
  int64_t total_in_all() const;

  // Grows a sequence's table in every group until `tokens` positions fit. False, with nothing
  // changed, if a group has too few free pages.
  bool grow(std::vector<int32_t> (&tables)[max_page_groups], int64_t tokens);
  void release_all(std::vector<int32_t> (&tables)[max_page_groups]);

  // Pages freed since the last call, for poisoning; only kept if record_freed.
  struct Freed {
    int group;
    int32_t page;
  };
  std::vector<Freed>& freed() { return freed_; }

 private:
  std::vector<PagePool> pools_;
  int32_t page_tokens_;
  bool record_freed_;
  std::vector<Freed> freed_;
};

}  // namespace orlop
