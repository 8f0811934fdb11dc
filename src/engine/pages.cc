#include "engine/pages.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace orlop {

PagePool::PagePool(int64_t pages) {
  if (pages < 0 || pages > std::numeric_limits<int32_t>::max())
    fail(Status::invalid_argument, "KV pages: ", pages, " is out of range");
  references_.assign(static_cast<size_t>(pages), 0);
  free_.reserve(static_cast<size_t>(pages));
  for (int64_t i = pages; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
}

int32_t PagePool::take() {
  if (free_.empty()) fail(Status::internal, "KV page pool: no page is free");
  const int32_t page = free_.back();
  free_.pop_back();
  references_[page] = 1;
  return page;
}

void PagePool::share(int32_t page) {
  if (references_[page] <= 0) fail(Status::internal, "KV page ", page, " is shared while free");
  ++references_[page];
}

bool PagePool::release(int32_t page) {
  if (references_[page] <= 0) fail(Status::internal, "KV page ", page, " is released twice");
  if (--references_[page]) return false;
  free_.push_back(page);  // never allocates: reserved for all pages
  return true;
}

PagePools::PagePools(const std::vector<int64_t>& pages, int32_t page_tokens, bool record_freed)
    : page_tokens_(page_tokens), record_freed_(record_freed) {
  if (pages.empty() || pages.size() > max_page_groups)
    fail(Status::invalid_argument, "cache groups: 1 to ", max_page_groups, " expected, got ",
         pages.size());
  if (page_tokens <= 0) fail(Status::invalid_argument, "page_tokens: must be positive");
  for (const int64_t n : pages) pools_.emplace_back(n);
}

int64_t PagePools::available() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const PagePool& p : pools_) least = std::min(least, p.available());
  return least;
}

int64_t PagePools::total() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const PagePool& p : pools_) least = std::min(least, p.total());
  return least;
}

int64_t PagePools::used_in_all() const {
  int64_t sum = 0;
  for (const PagePool& p : pools_) sum += p.used();
  return sum;
}

int64_t PagePools::total_in_all() const {
  int64_t sum = 0;
  for (const PagePool& p : pools_) sum += p.total();
  return sum;
}

bool PagePools::grow(std::vector<int32_t> (&tables)[max_page_groups], int64_t tokens) {
  const int64_t want = pages_for(tokens);
  for (int g = 0; g < groups(); ++g)
    if (want - static_cast<int64_t>(tables[g].size()) > pools_[g].available()) return false;
  for (int g = 0; g < groups(); ++g)
    while (static_cast<int64_t>(tables[g].size()) < want) tables[g].push_back(pools_[g].take());
  return true;
}

void PagePools::release_all(std::vector<int32_t> (&tables)[max_page_groups]) {
  for (int g = 0; g < groups(); ++g) {
    // Last page first, so that a sequence that starts again gets the same order of memory.
    while (!tables[g].empty()) {
      const int32_t page = tables[g].back();
      tables[g].pop_back();
      if (pools_[g].release(page) && record_freed_) freed_.push_back({g, page});
    }
  }
}

}  // namespace orlop
