// KV memory as the scheduler's tests see it: every position holds a hash of the tokens up to it and
// the identity under which it was computed. Executes plans as the engine does and checks that each
// row finds in its pages, in every position that it sees, what its tokens say.
#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/scheduler.h"

namespace orlop::test {

inline void demand(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// A sequence with what the tests know of it.
struct Life : Sequence {
  uint64_t tag = 0;              // of its identity
  std::vector<uint64_t> hashes;  // [tokens] of the tokens up to each
  size_t target = 0;             // tokens at which it ends
  uint64_t seed = 0;
  uint32_t seen_life = 0;
  bool over = false;

  const std::vector<uint64_t>& up_to_date() {
    while (hashes.size() < tokens.size()) {
      uint64_t h = hashes.empty() ? 0x51ed270b : hashes.back();
      h = (h ^ static_cast<uint64_t>(tokens[hashes.size()] + 1)) * 0x9e3779b97f4a7c15;
      hashes.push_back(h ^ h >> 31);
    }
    return hashes;
  }
};

class PageModel {
 public:
  static constexpr uint64_t poison = 0xdeaddeaddeaddead;

  PageModel(PagePools& pools, const SchedulerLimits& limits, uint64_t shared_tag)
      : pools_(pools), limits_(limits), b_(pools.page_tokens()), shared_tag_(shared_tag) {
    for (int g = 0; g < pools.groups(); ++g) {
      device_.emplace_back(static_cast<size_t>(pools.group(g).total() * b_));
      host_.emplace_back(static_cast<size_t>(limits.host_slots[g] * b_));
    }
    tails_.resize(static_cast<size_t>(limits.max_seqs));
  }

  // What a plan needs before its rows. Done once: the lists are empty afterwards.
  void move(StepPlan& plan, std::vector<PagePools::Freed>& freed) {
    for (const PageOut& o : plan.out) copy(&device_[o.group], o.page, &host_[o.group], o.slot);
    for (const PagePools::Freed& f : freed)
      for (int i = 0; i < b_; ++i) device_[f.group][f.page * b_ + i] = {poison, poison};
    freed.clear();
    for (const PageIn& i : plan.in) copy(&host_[i.group], i.slot, &device_[i.group], i.page);
    for (const PageCopy& c : plan.copies) copy(&device_[c.group], c.from, &device_[c.group], c.to);
    for (const SeatCopy& s : plan.seats) tails_[s.to] = tails_[s.from];
    plan.out.clear();
    plan.in.clear();
    plan.copies.clear();
    plan.seats.clear();
  }

  // Reads the plan's page tables, so that the next plan may be made before its rows are computed.
  void pack(const StepPlan& plan) {
    rows_.clear();
    for (const PlanSeq& p : plan.seqs) {
      Rows r{static_cast<Life*>(p.sequence), p.begin, p.rows, p.sequence->seat, {}};
      for (int g = 0; g < pools_.groups(); ++g) {
        r.pages[g] = p.sequence->pages[g];
        for (int32_t pos = p.begin; pos < p.begin + p.rows; ++pos)
          demand(pools_.group(g).owner(page_at(r, g, pos)) < 0, "a row goes to a cached page");
      }
      rows_.push_back(std::move(r));
    }
  }

  void run() {
    for (const Rows& r : rows_) {
      const auto& hashes = r.life->up_to_date();
      demand(r.begin + r.rows <= static_cast<int32_t>(hashes.size()), "a row's token is not known");
      for (int g = 0; g < pools_.groups(); ++g)
        for (int32_t pos = r.begin; pos < r.begin + r.rows; ++pos) {
          const int32_t page = page_at(r, g, pos);
          device_[g][page * b_ + pos % b_] = {hashes[pos], r.life->tag};
        }
    }
    for (const Rows& r : rows_) {
      look_back(r, r.begin);
      if (r.rows > 1) look_back(r, r.begin + r.rows - 1);
      Tail& t = tails_[r.seat];
      if (limits_.tile_tokens > 1) {
        // Keys of the first row's tile that were computed before come from the seat.
        for (int32_t p = tile(r.begin); p < r.begin; ++p) {
          const int32_t i = p - t.first;
          demand(t.first == tile(r.begin) && i < static_cast<int32_t>(t.keys.size()) &&
                     t.keys[i] == r.life->hashes[p],
                 "a seat's tail is not this sequence's");
        }
      }
      const int32_t last = r.begin + r.rows - 1;
      t.first = tile(last);
      t.keys.assign(r.life->hashes.begin() + t.first, r.life->hashes.begin() + last + 1);
    }
  }

  // As after a step that failed half way.
  void spoil() {
    for (const Rows& r : rows_)
      for (int g = 0; g < pools_.groups(); ++g)
        for (int32_t pos = r.begin; pos < r.begin + r.rows; ++pos)
          device_[g][page_at(r, g, pos) * b_ + pos % b_] = {poison, poison};
  }

  void fill(const PrefixCache::Hit& hit, Life& content) {
    const auto& hashes = content.up_to_date();
    for (int g = 0; g < pools_.groups(); ++g)
      for (size_t i = 0; i < hit.pages[g].size(); ++i)
        if (const int32_t page = hit.pages[g][i]; page >= 0)
          for (int32_t o = 0; o < b_; ++o)
            device_[g][page * b_ + o] = {hashes[i * static_cast<size_t>(b_) + o], content.tag};
  }

  // That a hit's pages hold these tokens.
  void check(const PrefixCache::Hit& hit, Life& content) {
    for (int g = 0; g < pools_.groups(); ++g) {
      demand(static_cast<int32_t>(hit.pages[g].size()) * b_ == hit.tokens, "a hit's pages");
      const int32_t window = limits_.windows[g];
      for (int32_t p = window ? std::max(0, hit.tokens - window + 1) : 0; p < hit.tokens; ++p)
        see(content, g, hit.pages[g][p / b_], p);
    }
  }

  uint64_t positions_checked = 0;

 private:
  struct Cell {
    uint64_t hash = poison, tag = poison;
  };
  struct Tail {
    int32_t first = 0;
    std::vector<uint64_t> keys;
  };
  struct Rows {
    Life* life;
    int32_t begin, rows, seat;
    std::vector<int32_t> pages[max_page_groups];
  };

  int32_t tile(int32_t position) const { return position - position % limits_.tile_tokens; }
  void copy(const std::vector<Cell>* from, int32_t f, std::vector<Cell>* to, int32_t t) {
    for (int i = 0; i < b_; ++i) (*to)[t * b_ + i] = (*from)[f * b_ + i];
  }
  int32_t page_at(const Rows& r, int g, int32_t position) const {
    const auto i = static_cast<size_t>(position / b_);
    demand(i < r.pages[g].size() && r.pages[g][i] >= 0, "a position without a page");
    return r.pages[g][i];
  }
  void see(Life& life, int g, int32_t page, int32_t position) {
    demand(page >= 0, "a position without a page is seen");
    const Cell& c = device_[g][page * b_ + position % b_];
    demand(c.hash != poison, "a poisoned position is seen");
    demand(c.hash == life.up_to_date()[position], "a position holds what other tokens left");
    demand(c.tag == life.tag || c.tag == shared_tag_, "a position of another identity is seen");
    ++positions_checked;
  }
  void look_back(const Rows& r, int32_t position) {
    for (int g = 0; g < pools_.groups(); ++g) {
      const int32_t window = limits_.windows[g];
      for (int32_t p = window ? std::max(0, position - window + 1) : 0; p <= position; ++p)
        see(*r.life, g, page_at(r, g, p), p);
    }
  }

  PagePools& pools_;
  const SchedulerLimits& limits_;
  const int32_t b_;
  const uint64_t shared_tag_;
  std::vector<std::vector<Cell>> device_, host_;  // [groups] of pages * page_tokens
  std::vector<Tail> tails_;
  std::vector<Rows> rows_;
};

}  // namespace orlop::test
