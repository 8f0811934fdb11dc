#include "text/bpe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace orlop {

uint64_t hash_seed() {
  // The address is random where the system randomizes layouts; the clock helps where it does not.
  static const uint64_t seed = [] {
    int here = 0;
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    return hash_mix(reinterpret_cast<uintptr_t>(&here) ^ static_cast<uint64_t>(now));
  }();
  return seed;
}

namespace {

constexpr uint32_t no_rank = UINT32_MAX;
// Up to here a scan for the best pair beats a heap.
constexpr size_t scan_limit = 48;

void merge_by_scan(const MergeTable& table, std::vector<int32_t>& ids) {
  uint32_t ranks[scan_limit];
  int32_t merged[scan_limit];
  size_t n = ids.size();
  const auto look = [&](size_t i) {
    const MergeTable::Slot* hit = table.find(ids[i], ids[i + 1]);
    ranks[i] = hit ? hit->rank : no_rank;
    merged[i] = hit ? hit->id : 0;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == no_rank) break;
    ids[best] = merged[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --n;
    if (best > 0) look(best - 1);
    if (best + 1 < n) look(best);
  }
  ids.resize(n);
}

void merge_by_heap(const MergeTable& table, std::vector<int32_t>& ids, BpeScratch& scratch) {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.pos > b.pos;
  };
  const int32_t n = static_cast<int32_t>(ids.size());
  symbols.resize(ids.size());
  heap.clear();
  for (int32_t i = 0; i < n; ++i) symbols[i] = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  const auto candidate = [&](int32_t pos, bool push) {
    const int32_t next = pos < 0 ? -1 : symbols[pos].next;
    if (next < 0) return;
    const int32_t left = symbols[pos].id, right = symbols[next].id;
    const MergeTable::Slot* hit = table.find(left, right);
    if (!hit) return;
    heap.push_back({hit->rank, pos, left, right, hit->id});
    if (push) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int32_t i = 0; i + 1 < n; ++i) candidate(i, false);
  std::make_heap(heap.begin(), heap.end(), later);
  constexpr int32_t gone = INT32_MIN;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Candidate c = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[c.pos];
    // Stale when either side has merged since.
    if (left.id != c.left || left.next < 0 || symbols[left.next].id != c.right) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    right.id = gone;
    left.id = c.merged;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].prev = c.pos;
    candidate(left.prev, true);
    candidate(c.pos, true);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace

void bpe_merge(const MergeTable& table, std::vector<int32_t>& ids, BpeScratch& scratch) {
  if (ids.size() < 2) return;
  if (ids.size() <= scan_limit)
    merge_by_scan(table, ids);
  else
    merge_by_heap(table, ids, scratch);
}

}  // namespace orlop
