// The tables behind a tokenizer, checked and built once from its spec.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/piece_table.h"
#include "text/spec.h"

namespace orlop {

constexpr size_t max_vocabulary = 16'000'000;
constexpr size_t max_merges = 64'000'000;
constexpr size_t max_scored_piece = 1024;  // bytes: every cut of it is looked up

class Vocabulary {
 public:
  // Keeps a reference to `spec`, fills its is_byte and empties its merges.
  // Error(bad_format) names the item that is wrong.
  explicit Vocabulary(TokenizerSpec& spec);

  int32_t size() const { return size_; }
  bool special(int32_t id) const { return flags_[static_cast<size_t>(id)] & is_special; }
  int32_t find(std::string_view text) const { return table_.find(text); }
  // A piece that plain text may become whole, or -1.
  int32_t find_plain(std::string_view text) const {
    const int32_t id = table_.find(text);
    return id >= 0 && !flags_[static_cast<size_t>(id)] ? id : -1;
  }
  std::string_view bytes(int32_t id) const {
    const size_t i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(begin_[i], begin_[i + 1] - begin_[i]);
  }
  const MergeTable& merges() const { return merges_; }
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }  // -1: no token
  bool all_bytes() const { return all_bytes_; }
  // sentencepiece: the symbol of a character before merges, or -1. Symbols >= size() stand for
  // characters that are no token by themselves but part of one; they are bytes in the end.
  int32_t character(std::string_view one) const;
  std::string_view character_text(int32_t symbol) const {
    return extra_[static_cast<size_t>(symbol - size_)];
  }
  // Whether no merge joins a character and a U+2581 that follows it.
  bool words_apart() const { return words_apart_; }

 private:
  enum : uint8_t { is_special = 1, is_added = 2, is_byte_token = 4, is_unmergeable = 8, twice = 16 };
  // Added tokens that are no control tokens may be plain text as well.
  bool mergeable(int32_t id) const {
    return !(flags_[static_cast<size_t>(id)] & (is_special | is_byte_token | is_unmergeable));
  }
  void check_pieces();
  void index_bytes();
  void add_merges();
  void add_merge(size_t rank, const std::string& joined, const uint64_t (&hashes)[3]);
  void add_scored_merges();

  TokenizerSpec& spec_;
  int32_t size_ = 0;
  std::vector<uint8_t> flags_;
  PieceTable table_;
  MergeTable merges_;
  std::string bytes_;
  std::vector<uint32_t> begin_;
  std::array<int32_t, 256> byte_ids_{};
  std::array<int32_t, 128> ascii_{};
  std::vector<std::string> extra_;
  PieceTable extra_table_;
  bool all_bytes_ = false, words_apart_ = false;
};

}  // namespace orlop
