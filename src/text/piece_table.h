// Flat hash tables of the tokenizer: open addressing, linear probing, one allocation each. Hashes
// start from a seed of the process, so that no vocabulary can be made to collide on purpose.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace orlop {

uint64_t hash_seed();  // the same for the life of the process

inline uint64_t hash_mix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ x >> 29;
}

inline uint64_t hash_bytes(std::string_view text, uint64_t seed) {
  uint64_t h = seed ^ text.size();
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    h = hash_mix(h ^ word);
  }
  uint64_t word = 0;
  std::memcpy(&word, text.data() + i, text.size() - i);
  return hash_mix(h ^ word);
}

inline size_t table_slots(size_t count) { return std::bit_ceil(count + count / 2 + 8); }

// Piece text -> id. The texts stay in the vector they came in.
class PieceTable {
 public:
  void build(const std::vector<std::string>& pieces) {
    pieces_ = &pieces;
    seed_ = hash_seed();
    slots_.assign(table_slots(pieces.size()), Slot{});
    mask_ = slots_.size() - 1;
  }
  // The id that already has this text, or `id`, which is then stored.
  int32_t insert(int32_t id) {
    const std::string_view text = (*pieces_)[static_cast<size_t>(id)];
    const uint64_t hash = hash_bytes(text, seed_);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.id < 0) {
        slot = {tag(hash), id};
        return id;
      }
      if (slot.tag == tag(hash) && (*pieces_)[static_cast<size_t>(slot.id)] == text) return slot.id;
    }
  }
  int32_t find(std::string_view text) const {
    return slots_.empty() ? -1 : find(text, hash(text));
  }
  // The parts of find(), for callers that look up many texts and want the memory waits to overlap:
  // hash() and touch() for all, then touch_piece() for all, then find().
  uint64_t hash(std::string_view text) const { return hash_bytes(text, seed_); }
  void touch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }
  void touch_piece(uint64_t hash) const {
    const Slot& slot = slots_[hash & mask_];
    if (slot.id >= 0) __builtin_prefetch(&(*pieces_)[static_cast<size_t>(slot.id)]);
  }
  int32_t find(std::string_view text, uint64_t hash) const {
    for (size_t i = hash & mask_; slots_[i].id >= 0; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.tag == tag(hash) && (*pieces_)[static_cast<size_t>(slot.id)] == text) return slot.id;
    }
    return -1;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  const std::vector<std::string>* pieces_ = nullptr;
  std::vector<Slot> slots_;
  uint64_t seed_ = 0;
  size_t mask_ = 0;
};

// (left id, right id) -> what they merge to, and how early.
class MergeTable {
 public:
  struct Slot {
    uint64_t key = empty;
    uint32_t rank = 0;
    int32_t id = 0;
  };
  void build(size_t count) {
    seed_ = hash_seed();
    slots_.assign(table_slots(count), Slot{});
    mask_ = slots_.size() - 1;
  }
  // A pair that comes twice keeps its last rank, as the reference does.
  void put(int32_t left, int32_t right, uint32_t rank, int32_t id) {
    const uint64_t key = pair(left, right);
    size_t i = hash_mix(key ^ seed_) & mask_;
    while (slots_[i].key != empty && slots_[i].key != key) i = (i + 1) & mask_;
    slots_[i] = {key, rank, id};
  }
  const Slot* find(int32_t left, int32_t right) const {
    const uint64_t key = pair(left, right);
    size_t i = hash_mix(key ^ seed_) & mask_;
    while (slots_[i].key != key) {
      if (slots_[i].key == empty) return nullptr;
      i = (i + 1) & mask_;
    }
    return &slots_[i];
  }

 private:
  static constexpr uint64_t empty = ~uint64_t{0};
  static uint64_t pair(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  std::vector<Slot> slots_;
  uint64_t seed_ = 0;
  size_t mask_ = 0;
};

}  // namespace orlop
