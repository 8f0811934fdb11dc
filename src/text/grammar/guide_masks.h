// Masks that were found, by state; the least recently used go first. Each keeps its state alive.
#pragma once
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/guide_machine.h"

namespace orlop {

class MaskCache {
 public:
  MaskCache(Machine& machine, size_t most_bytes) : machine_(machine), most_(most_bytes) {}

  // Null when there is none. Good until the next put or clear.
  const std::vector<uint32_t>* find(uint32_t state) {
    const auto it = by_state_.find(state);
    if (it == by_state_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, it->second);
    return &it->second->bits;
  }
  void put(uint32_t state, std::span<const uint32_t> bits) {
    if (by_state_.contains(state)) return;
    const size_t size = cost(bits.size());
    while (!kept_.empty() && bytes_ + size > most_) drop();
    if (size > most_) return;
    kept_.push_front({state, {bits.begin(), bits.end()}});
    by_state_.emplace(state, kept_.begin());
    machine_.retain(state);
    bytes_ += size;
  }
  void clear() {
    while (!kept_.empty()) drop();
  }
  size_t bytes() const { return bytes_; }
  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    uint32_t state;
    std::vector<uint32_t> bits;
  };
  static size_t cost(size_t words) { return words * sizeof(uint32_t) + sizeof(Kept) + 64; }
  void drop() {
    machine_.release(kept_.back().state);
    by_state_.erase(kept_.back().state);
    bytes_ -= cost(kept_.back().bits.size());
    kept_.pop_back();
  }

  Machine& machine_;
  size_t most_;
  std::list<Kept> kept_;
  std::unordered_map<uint32_t, std::list<Kept>::iterator> by_state_;
  size_t bytes_ = 0;
};

}  // namespace orlop
