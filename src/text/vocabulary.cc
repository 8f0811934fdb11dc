#include "text/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace orlop {
namespace {

// The byte that a sentencepiece name <0xNN> stands for, or -1.
int byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  const int high = digit(name[3]), low = digit(name[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void check_id(int32_t id, int32_t size, const char* what) {
  if (id < -1 || id >= size)
    fail(Status::bad_format, "tokenizer: ", what, " id ", id, " is outside the vocabulary of ",
         size);
}

}  // namespace

Vocabulary::Vocabulary(TokenizerSpec& spec) : spec_(spec) {
  if (spec.vocab.empty()) fail(Status::bad_format, "tokenizer: the vocabulary is empty");
  if (spec.vocab.size() > max_vocabulary)
    fail(Status::bad_format, "tokenizer: ", spec.vocab.size(), " tokens, the limit is ",
         max_vocabulary);
  if (spec.merges.size() > max_merges)
    fail(Status::bad_format, "tokenizer: ", spec.merges.size(), " merges, the limit is ",
         max_merges);
  size_ = static_cast<int32_t>(spec.vocab.size());
  check_id(spec.bos, size_, "bos");
  check_id(spec.eos, size_, "eos");
  check_id(spec.unk, size_, "unk");
  check_id(spec.pad, size_, "pad");
  for (const auto* ids : {&spec.before, &spec.after})
    for (const int32_t id : *ids) {
      check_id(id, size_, "post-processor");
      if (id < 0) fail(Status::bad_format, "tokenizer: post-processor id -1");
    }
  if (spec.add_bos && spec.bos < 0)
    fail(Status::bad_format, "tokenizer: BOS is to be added, but has no id");
  if (spec.add_eos && spec.eos < 0)
    fail(Status::bad_format, "tokenizer: EOS is to be added, but has no id");

  flags_.assign(spec.vocab.size(), 0);
  for (const AddedToken& a : spec.added) {
    if (a.id < 0 || a.id >= size_)
      fail(Status::bad_format, "tokenizer: added token id ", a.id, " ('", a.text,
           "') is outside the vocabulary of ", size_);
    uint8_t& flags = flags_[static_cast<size_t>(a.id)];
    if (flags & is_added)
      fail(Status::bad_format, "tokenizer: added token id ", a.id, " comes twice");
    if (spec.vocab[static_cast<size_t>(a.id)] != a.text)
      fail(Status::bad_format, "tokenizer: id ", a.id, " is '",
           spec.vocab[static_cast<size_t>(a.id)], "' in the vocabulary and '", a.text,
           "' among the added tokens");
    flags |= a.special ? is_added | is_special : is_added;
  }
  if (!spec.unmergeable.empty()) {
    if (spec.unmergeable.size() != spec.vocab.size())
      fail(Status::bad_format, "tokenizer: ", spec.unmergeable.size(), " unmergeable flags for ",
           size_, " tokens");
    for (size_t i = 0; i < flags_.size(); ++i)
      if (spec.unmergeable[i]) flags_[i] |= is_unmergeable;
  }
  check_pieces();
  index_bytes();
  if (spec.kind == TokenizerSpec::Kind::sentencepiece_bpe && spec.merges.empty())
    add_scored_merges();
  else
    add_merges();
  std::vector<std::pair<std::string, std::string>>().swap(spec.merges);
}

void Vocabulary::check_pieces() {
  const bool spm = spec_.kind == TokenizerSpec::Kind::sentencepiece_bpe;
  table_.build(spec_.vocab);
  size_t total = 0;
  for (const std::string& piece : spec_.vocab)
    total = checked_add(total, piece.size(), "tokenizer: bytes of the vocabulary");
  checked_cast<uint32_t>(total, "tokenizer: bytes of the vocabulary");
  bytes_.reserve(total);
  begin_.reserve(spec_.vocab.size() + 1);
  begin_.push_back(0);
  spec_.is_byte.assign(spm ? spec_.vocab.size() : 0, 0);
  bool crossing = false;
  for (int32_t id = 0; id < size_; ++id) {
    const size_t i = static_cast<size_t>(id);
    const std::string& piece = spec_.vocab[i];
    if (piece.empty()) fail(Status::bad_format, "tokenizer: id ", id, " has no token");
    if (utf8_valid_prefix(piece) != piece.size())
      fail(Status::bad_format, "tokenizer: the token of id ", id, " is not UTF-8");
    const int32_t first = table_.insert(id);
    // Two ids of one text only matter where text has to become one of them: see add_merges.
    if (first != id) flags_[static_cast<size_t>(first)] |= twice, flags_[i] |= twice;
    if (!spm) {
      if (!alphabet_bytes(piece, bytes_)) bytes_ += piece;
    } else if (const int byte = byte_of_name(piece); byte >= 0) {
      spec_.is_byte[i] = 1;
      flags_[i] |= is_byte_token;
      bytes_.push_back(static_cast<char>(byte));
    } else {
      size_t pos = 0;
      for (size_t hit; (hit = piece.find(escaped_space, pos)) != std::string::npos;
           pos = hit + escaped_space.size()) {
        if (hit > pos) crossing |= !(flags_[i] & is_special);
        if (spec_.escape_spaces) {
          bytes_.append(piece, pos, hit - pos);
          bytes_.push_back(' ');
        } else {
          bytes_.append(piece, pos, hit + escaped_space.size() - pos);
        }
      }
      bytes_.append(piece, pos);
    }
    begin_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  words_apart_ = spm && !crossing && find_plain(escaped_space) >= 0;
}

void Vocabulary::index_bytes() {
  byte_ids_.fill(-1);
  ascii_.fill(-1);
  all_bytes_ = true;
  if (spec_.kind == TokenizerSpec::Kind::byte_bpe) {
    for (int b = 0; b < 256; ++b) {
      std::string name;
      utf8_append(name, byte_alphabet.code[static_cast<size_t>(b)]);
      const int32_t id = find(name);
      if (id >= 0 && special(id))
        fail(Status::bad_format, "tokenizer: id ", id, " ('", name,
             "') is a special token and the byte ", b, " of plain text");
      if (id >= 0 && flags_[static_cast<size_t>(id)] & twice)
        fail(Status::bad_format, "tokenizer: the byte ", b, " ('", name, "') has several ids");
      byte_ids_[static_cast<size_t>(b)] = id;
      all_bytes_ &= id >= 0;
    }
    return;
  }
  for (int32_t id = 0; id < size_; ++id) {
    if (!spec_.is_byte[static_cast<size_t>(id)]) continue;
    int32_t& at = byte_ids_[static_cast<uint8_t>(bytes(id)[0])];
    if (at < 0) at = id;
  }
  for (const int32_t id : byte_ids_) all_bytes_ &= id >= 0;
  for (int c = 0; c < 128; ++c) {
    const char one = static_cast<char>(c);
    const int32_t id = find({&one, 1});
    if (id >= 0 && mergeable(id)) ascii_[static_cast<size_t>(c)] = id;
  }
}

int32_t Vocabulary::character(std::string_view one) const {
  if (one.size() == 1) {
    const int32_t id = ascii_[static_cast<uint8_t>(one[0])];
    if (id >= 0 || extra_.empty()) return id;
  } else if (const int32_t id = table_.find(one); id >= 0 && mergeable(id)) {
    return id;
  }
  const int32_t extra = extra_table_.find(one);
  return extra < 0 ? -1 : size_ + extra;
}

void Vocabulary::add_merges() {
  merges_.build(spec_.merges.size());
  constexpr size_t block = 32;
  std::string joined[block];
  uint64_t hashes[block][3];
  for (size_t start = 0; start < spec_.merges.size(); start += block) {
    const size_t n = std::min(block, spec_.merges.size() - start);
    for (size_t i = 0; i < n; ++i) {
      const auto& [left, right] = spec_.merges[start + i];
      joined[i].assign(left).append(right);
      hashes[i][0] = table_.hash(left);
      hashes[i][1] = table_.hash(right);
      hashes[i][2] = table_.hash(joined[i]);
      for (const uint64_t h : hashes[i]) table_.touch(h);
    }
    for (size_t i = 0; i < n; ++i)
      for (const uint64_t h : hashes[i]) table_.touch_piece(h);
    for (size_t i = 0; i < n; ++i) add_merge(start + i, joined[i], hashes[i]);
  }
}

void Vocabulary::add_merge(size_t rank, const std::string& joined, const uint64_t (&hashes)[3]) {
  const auto& [left, right] = spec_.merges[rank];
  int32_t ids[3];
  const std::string* const texts[3] = {&left, &right, &joined};
  for (int i = 0; i < 3; ++i) {
    ids[i] = table_.find(*texts[i], hashes[i]);
    if (ids[i] < 0)
      fail(Status::bad_format, "tokenizer: merge ", rank, " ('", left, "' '", right, "'): '",
           *texts[i], "' is not in the vocabulary");
    if (flags_[static_cast<size_t>(ids[i])] & twice)
      fail(Status::bad_format, "tokenizer: merge ", rank, " ('", left, "' '", right, "'): '",
           *texts[i], "' has several ids");
  }
  // Plain text never becomes a control token, whatever the merges say.
  if (special(ids[2])) return;
  merges_.put(ids[0], ids[1], static_cast<uint32_t>(rank), ids[2]);
}

// SentencePiece's rule (Kudo, Richardson 2018): of all adjacent pairs whose joined text is a piece
// the one of the highest score merges first. Each way to split a piece in two is thus a merge.
void Vocabulary::add_scored_merges() {
  if (spec_.scores.size() != spec_.vocab.size())
    fail(Status::bad_format, "tokenizer: no merges, and ", spec_.scores.size(), " scores for ",
         size_, " tokens");
  std::vector<int32_t> order;
  for (int32_t id = 0; id < size_; ++id) {
    const size_t i = static_cast<size_t>(id);
    if (flags_[i] & (is_special | is_added | is_byte_token | is_unmergeable)) continue;
    if (flags_[i] & twice)
      fail(Status::bad_format, "tokenizer: '", spec_.vocab[i], "' (id ", id,
           ") is in the vocabulary more than once");
    if (std::isnan(spec_.scores[i]))
      fail(Status::bad_format, "tokenizer: the score of id ", id, " is not a number");
    order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return spec_.scores[static_cast<size_t>(a)] > spec_.scores[static_cast<size_t>(b)];
  });
  // Characters inside pieces that are no pieces.
  for (const int32_t id : order) {
    const std::string_view piece = spec_.vocab[static_cast<size_t>(id)];
    for (size_t pos = 0; pos < piece.size();) {
      const size_t length = utf8_step(piece, pos).length;
      if (length < piece.size() && find_plain(piece.substr(pos, length)) < 0)
        extra_.emplace_back(piece.substr(pos, length));
      pos += length;
    }
  }
  std::sort(extra_.begin(), extra_.end());
  extra_.erase(std::unique(extra_.begin(), extra_.end()), extra_.end());
  extra_table_.build(extra_);
  for (size_t i = 0; i < extra_.size(); ++i) extra_table_.insert(static_cast<int32_t>(i));

  struct Pair {
    int32_t left, right, id;
    uint32_t rank;
  };
  std::vector<Pair> pairs;
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t id = static_cast<size_t>(order[i]);
    if (i && spec_.scores[id] != spec_.scores[static_cast<size_t>(order[i - 1])]) ++rank;
    const std::string_view piece = spec_.vocab[id];
    if (piece.size() > max_scored_piece)
      fail(Status::bad_format, "tokenizer: id ", id, " is ", piece.size(), " bytes long, ",
           max_scored_piece, " are possible in a vocabulary with scores");
    const auto symbol = [&](std::string_view part) {
      const int32_t plain = find_plain(part);
      if (plain >= 0 || utf8_step(part, 0).length < part.size()) return plain;
      return character(part);
    };
    for (size_t cut = utf8_step(piece, 0).length; cut < piece.size();
         cut += utf8_step(piece, cut).length) {
      const int32_t left = symbol(piece.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = symbol(piece.substr(cut));
      if (right >= 0) pairs.push_back({left, right, order[i], rank});
    }
  }
  merges_.build(pairs.size());
  for (const Pair& p : pairs) merges_.put(p.left, p.right, p.rank, p.id);
}

}  // namespace orlop
