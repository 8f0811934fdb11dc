#include "engine/pages.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace orlop {
namespace {
size_t checked_count(int64_t pages) {
  if (pages < 0 || pages >= std::numeric_limits<int32_t>::max())
    fail(Status::invalid_argument, "KV pages: ", pages, " is out of range");
  return static_cast<size_t>(pages);
}
}  // namespace

PagePool::PagePool(int64_t pages) : pages_(checked_count(pages)), lru_(pages_.size()) {
  free_.reserve(pages_.size());
  for (int64_t i = pages; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
}

int32_t PagePool::take() {
  if (free_.empty()) fail(Status::internal, "KV page pool: no page is free");
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[page].references = 1;
  return page;
}

void PagePool::share(int32_t page) {
  Page& p = pages_[page];
  if (p.references == 0) {
    if (p.owner < 0) fail(Status::internal, "KV page ", page, " is shared while free");
    lru_.erase(page);
    --cached_;
  }
  if (++p.references == 2) ++shared_;
}

bool PagePool::release(int32_t page) {
  Page& p = pages_[page];
  if (p.references <= 0) fail(Status::internal, "KV page ", page, " is released twice");
  if (--p.references) {
    if (p.references == 1) --shared_;
    return false;
  }
  if (p.owner >= 0) {
    lru_.append(page);
    ++cached_;
    return false;
  }
  free_.push_back(page);  // never allocates: reserved for all pages
  return true;
}

void PagePool::keep(int32_t page, int32_t owner) {
  Page& p = pages_[page];
  if (p.references <= 0 || p.owner >= 0)
    fail(Status::internal, "KV page ", page, " is cached while free or twice");
  p.owner = owner;
}

bool PagePool::forget(int32_t page) {
  Page& p = pages_[page];
  if (p.owner < 0) fail(Status::internal, "KV page ", page, " is forgotten twice");
  p.owner = -1;
  if (p.references) return false;
  lru_.erase(page);
  --cached_;
  free_.push_back(page);
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

int64_t PagePools::capacity(const std::vector<int32_t>& windows, int32_t step_tokens) const {
  int64_t least = std::numeric_limits<int32_t>::max();
  for (int g = 0; g < groups(); ++g) {
    const int64_t total = pools_[g].total();
    const int64_t window = static_cast<size_t>(g) < windows.size() ? windows[g] : 0;
    if (window > 0 && total >= pages_across(window - 1 + step_tokens)) continue;
    least = std::min(least, total * page_tokens_);
  }
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

int64_t PagePools::cached_in_all() const {
  int64_t sum = 0;
  for (const PagePool& p : pools_) sum += p.cached();
  return sum;
}

int64_t PagePools::shared_in_all() const {
  int64_t sum = 0;
  for (const PagePool& p : pools_) sum += p.shared();
  return sum;
}

int64_t PagePools::free_in_all() const {
  int64_t sum = 0;
  for (const PagePool& p : pools_) sum += p.free();
  return sum;
}

int64_t PagePools::total_in_all() const {
  int64_t sum = 0;
  for (const PagePool& p : pools_) sum += p.total();
  return sum;
}

void PagePools::release(int g, int32_t page) {
  if (pools_[g].release(page) && record_freed_) freed_.push_back({g, page});
}

void PagePools::forget(int g, int32_t page) {
  if (pools_[g].forget(page) && record_freed_) freed_.push_back({g, page});
}

void PagePools::unfree(int g, int32_t page) {
  std::erase_if(freed_, [&](const Freed& f) { return f.group == g && f.page == page; });
}

}  // namespace orlop
