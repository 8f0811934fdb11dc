// Tables of the guide's automaton: lists that are kept once each, and a set that empties at no
// cost.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "text/piece_table.h"

namespace orlop {

// Lists of plain values, each once, by number; 0 is the empty list. Numbers stay until a sweep.
template <class T>
class ListTable {
  static_assert(std::has_unique_object_representations_v<T>);

 public:
  ListTable() : entries_(1), slots_(64, 0) {}

  std::span<const T> operator[](uint32_t id) const {
    return {values_.data() + entries_[id].begin, entries_[id].count};
  }
  // The list's number, and whether it is new. `list` must not point into this table.
  std::pair<uint32_t, bool> put(std::span<const T> list) {
    if (list.empty()) return {0, false};
    const uint64_t hash = hash_of(list);
    for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const uint32_t id = slots_[i];
      if (id == 0) break;
      const Entry& e = entries_[id];
      if (e.hash == hash && e.count == list.size() &&
          std::memcmp(values_.data() + e.begin, list.data(), list.size_bytes()) == 0)
        return {id, false};
    }
    uint32_t id;
    if (free_.empty()) {
      id = static_cast<uint32_t>(entries_.size());
      entries_.push_back({});
    } else {
      id = free_.back();
      free_.pop_back();
    }
    entries_[id] = {hash, values_.size(), static_cast<uint32_t>(list.size())};
    values_.insert(values_.end(), list.begin(), list.end());
    if (++used_ * 2 > slots_.size())
      rebuild(slots_.size() * 2);
    else
      place(id);
    return {id, true};
  }
  // Forgets the lists whose number is not marked.
  void sweep(const std::vector<uint8_t>& live) {
    std::vector<T> kept;
    free_.clear();
    used_ = 0;
    for (uint32_t id = static_cast<uint32_t>(entries_.size()); id-- > 1;) {
      Entry& e = entries_[id];
      if (!live[id]) {
        e = {};
        free_.push_back(id);
        continue;
      }
      const size_t begin = kept.size();
      kept.insert(kept.end(), values_.begin() + static_cast<ptrdiff_t>(e.begin),
                  values_.begin() + static_cast<ptrdiff_t>(e.begin + e.count));
      e.begin = begin;
      ++used_;
    }
    values_ = std::move(kept);
    rebuild(std::max<size_t>(64, std::bit_ceil(used_ * 2 + 1)));
  }
  size_t ids() const { return entries_.size(); }  // numbers are below
  size_t used() const { return used_; }
  size_t bytes() const {
    return values_.size() * sizeof(T) + entries_.size() * sizeof(Entry) +
           (slots_.size() + free_.size()) * sizeof(uint32_t);
  }

 private:
  struct Entry {
    uint64_t hash = 0;
    size_t begin = 0;
    uint32_t count = 0;  // 0: free
  };
  static uint64_t hash_of(std::span<const T> list) {
    return hash_bytes({reinterpret_cast<const char*>(list.data()), list.size_bytes()}, hash_seed());
  }
  void place(uint32_t id) {
    size_t i = entries_[id].hash & (slots_.size() - 1);
    while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = id;
  }
  void rebuild(size_t slots) {
    slots_.assign(slots, 0);
    for (uint32_t id = 1; id < entries_.size(); ++id)
      if (entries_[id].count > 0) place(id);
  }

  std::vector<T> values_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_, free_;
  size_t used_ = 0;
};

// A set of numbers other than the greatest.
class NumberSet {
 public:
  NumberSet() : keys_(256, empty), marks_(256, 0) {}
  void clear() {
    count_ = 0;
    if (++mark_ == 0) {
      std::fill(marks_.begin(), marks_.end(), 0);
      mark_ = 1;
    }
    if (keys_.size() > 4096) *this = NumberSet();
  }
  bool insert(uint64_t key) {
    if (count_ * 2 >= keys_.size()) grow();
    for (size_t i = hash_mix(key ^ seed_) & (keys_.size() - 1);; i = (i + 1) & (keys_.size() - 1)) {
      if (marks_[i] != mark_) {
        marks_[i] = mark_;
        keys_[i] = key;
        ++count_;
        return true;
      }
      if (keys_[i] == key) return false;
    }
  }

 private:
  static constexpr uint64_t empty = ~uint64_t{0};
  void grow() {
    std::vector<uint64_t> old;
    for (size_t i = 0; i < keys_.size(); ++i)
      if (marks_[i] == mark_) old.push_back(keys_[i]);
    keys_.assign(keys_.size() * 2, empty);
    marks_.assign(keys_.size(), 0);
    mark_ = 1;
    count_ = 0;
    for (const uint64_t key : old) insert(key);
  }
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> marks_;
  uint32_t mark_ = 1;
  size_t count_ = 0;
  uint64_t seed_ = hash_seed();
};

}  // namespace orlop
