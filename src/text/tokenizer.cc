#include "text/tokenizer.h"

#include <algorithm>

#include "base/checked.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/detokenize.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace orlop {
namespace {

constexpr size_t max_text = size_t{1} << 30;  // symbols are counted in 32 bits

class TokenizerImpl final : public Tokenizer {
 public:
  explicit TokenizerImpl(TokenizerSpec spec)
      : spec_(std::move(spec)), vocabulary_(spec_), pretokenizer_(spec_.splits) {
    for (const AddedToken& token : spec_.added) {
      if (!token.normalized) {
        raw_.add(token.text, token);
        continue;
      }
      std::string buffer, escaped;
      normalized_.add(normalize(token.text, true, buffer, escaped, nullptr), token);
    }
    // unk must not hand out a control token that means something to the model.
    unk_ = spec_.unk == spec_.bos || spec_.unk == spec_.eos ? -1 : spec_.unk;
    if (!sentencepiece() && unk_ >= 0 && vocabulary_.special(unk_)) unk_ = -1;
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    Detokenizer detokenizer(*this, skip_special, false);
    std::string out;
    for (const int32_t id : ids) detokenizer.push(id, out);
    detokenizer.finish(out);
    return out;
  }
  std::string_view token_bytes(int32_t id, bool skip_special) const override {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) return {};
    return vocabulary_.bytes(id);
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocab_size() && vocabulary_.special(id);
  }
  int32_t find(std::string_view text) const override { return vocabulary_.find(text); }
  int32_t vocab_size() const override { return vocabulary_.size(); }
  const TokenizerSpec& spec() const override { return spec_; }

 private:
  struct Work {
    std::vector<int32_t>& out;
    const EncodeOptions& options;
    std::string nfc_text, escaped, prefixed, spelled;
    std::vector<AddedMatcher::Match> parts;
    std::vector<Piece> pieces;
    std::vector<int32_t> symbols;
    BpeScratch scratch;
  };

  bool wants_prefix(bool at_start) const {
    return spec_.dummy_prefix == TokenizerSpec::Prefix::always ||
           (spec_.dummy_prefix == TokenizerSpec::Prefix::first && at_start);
  }
  bool sentencepiece() const { return spec_.kind == TokenizerSpec::Kind::sentencepiece_bpe; }
  // Both buffers are the result's; `at_start`: the text begins here.
  std::string_view normalize(std::string_view text, bool at_start, std::string& first,
                             std::string& second, std::vector<ByteRange>* origin) const;
  void encode_plain(std::string_view text, size_t offset, Work& work) const;
  void encode_pieces(std::string_view text, bool at_start, Work& work) const;
  void encode_bytes(std::string_view piece, Work& work) const;
  void encode_characters(std::string_view piece, Work& work) const;
  void encode_word(std::string_view word, Work& work) const;
  // A character without a symbol: its bytes, else unk, else (as the reference) nothing.
  void push_unknown(std::string_view one, std::vector<int32_t>& ids) const;

  TokenizerSpec spec_;
  Vocabulary vocabulary_;
  Pretokenizer pretokenizer_;
  AddedMatcher raw_, normalized_;
  int32_t unk_ = -1;
};

std::vector<int32_t> TokenizerImpl::encode(std::string_view text,
                                           const EncodeOptions& options) const {
  if (text.size() > max_text)
    fail(Status::invalid_argument, "tokenizer: a text of ", text.size(), " bytes, the limit is ",
         max_text);
  if (const size_t bad = utf8_valid_prefix(text); bad != text.size())
    fail(Status::invalid_argument, "tokenizer: the text is not UTF-8 at byte ", bad);
  std::vector<int32_t> out;
  out.reserve(text.size() / 4 + 8);
  if (options.add_special) {
    if (!spec_.before.empty())
      out = spec_.before;
    else if (spec_.add_bos)
      out.push_back(spec_.bos);
  }
  Work work{out, options, {}, {}, {}, {}, {}, {}, {}, {}};
  std::vector<AddedMatcher::Match> parts;
  const auto special = [&](size_t begin, size_t end) {
    return options.parse_special && !overlaps(options.untrusted, begin, end);
  };
  raw_.find(text, special, parts);
  for (const auto& part : parts) {
    if (part.id >= 0)
      out.push_back(part.id);
    else
      encode_plain(text.substr(part.begin, part.end - part.begin), part.begin, work);
  }
  if (options.add_special) {
    if (!spec_.after.empty())
      out.insert(out.end(), spec_.after.begin(), spec_.after.end());
    else if (spec_.add_eos)
      out.push_back(spec_.eos);
  }
  return out;
}

std::string_view TokenizerImpl::normalize(std::string_view text, bool at_start, std::string& first,
                                          std::string& second,
                                          std::vector<ByteRange>* origin) const {
  std::vector<ByteRange> inner;
  if (spec_.nfc) text = nfc(text, first, origin ? &inner : nullptr);
  if (sentencepiece() && spec_.escape_spaces && !spec_.metaspace) {
    text = escape_spaces(text, wants_prefix(at_start), second, origin);
  } else if (origin) {
    origin->clear();
    for (size_t i = 0; i < text.size(); ++i) origin->push_back({i, i + 1});
  }
  if (origin && spec_.nfc)
    for (ByteRange& r : *origin)
      if (r.begin < r.end) r = {inner[r.begin].begin, inner[r.end - 1].end};
  return text;
}

void TokenizerImpl::encode_plain(std::string_view text, size_t offset, Work& work) const {
  std::vector<ByteRange> origin;
  const bool trace = normalized_.any_special() && work.options.parse_special &&
                     !work.options.untrusted.empty();
  text = normalize(text, offset == 0, work.nfc_text, work.escaped, trace ? &origin : nullptr);
  if (normalized_.empty()) return encode_pieces(text, offset == 0, work);
  const auto special = [&](size_t begin, size_t end) {
    if (!work.options.parse_special) return false;
    if (!trace) return true;
    for (size_t i = begin; i < end; ++i)
      if (origin[i].begin < origin[i].end &&
          overlaps(work.options.untrusted, offset + origin[i].begin, offset + origin[i].end))
        return false;
    return true;
  };
  work.parts.clear();
  normalized_.find(text, special, work.parts);
  for (const auto& part : work.parts) {
    if (part.id >= 0)
      work.out.push_back(part.id);
    else
      encode_pieces(text.substr(part.begin, part.end - part.begin), offset + part.begin == 0, work);
  }
}

void TokenizerImpl::encode_pieces(std::string_view text, bool at_start, Work& work) const {
  if (spec_.add_prefix_space && !sentencepiece() && !text.starts_with(' ')) {
    work.prefixed.assign(" ").append(text);
    text = work.prefixed;
  }
  if (spec_.metaspace) {
    const bool there = text.starts_with(' ') || text.starts_with(escaped_space);
    text = escape_spaces(text, wants_prefix(at_start) && !there, work.escaped, nullptr);
  }
  pretokenizer_.split(text, work.pieces);
  for (const Piece& p : work.pieces) {
    const std::string_view piece = text.substr(p.begin, p.end - p.begin);
    if (sentencepiece())
      encode_characters(piece, work);
    else
      encode_bytes(piece, work);
  }
}

void TokenizerImpl::encode_bytes(std::string_view piece, Work& work) const {
  if (spec_.ignore_merges) {
    work.spelled.clear();
    for (const char c : piece) utf8_append(work.spelled, byte_alphabet.code[static_cast<uint8_t>(c)]);
    if (const int32_t id = vocabulary_.find_plain(work.spelled); id >= 0) {
      work.out.push_back(id);
      return;
    }
  }
  work.symbols.clear();
  for (const char c : piece) {
    const int32_t id = vocabulary_.byte_id(static_cast<uint8_t>(c));
    if (id >= 0)
      work.symbols.push_back(id);
    else
      push_unknown({}, work.symbols);
  }
  bpe_merge(vocabulary_.merges(), work.symbols, work.scratch);
  work.out.insert(work.out.end(), work.symbols.begin(), work.symbols.end());
}

void TokenizerImpl::encode_characters(std::string_view piece, Work& work) const {
  if (!vocabulary_.words_apart()) return encode_word(piece, work);
  // No merge reaches over the border before a U+2581, so short words can merge alone.
  size_t begin = 0, pos = 0;
  while (pos < piece.size()) {
    // Past the U+2581 that open the word, then up to the next.
    while (piece.substr(pos).starts_with(escaped_space)) pos += escaped_space.size();
    pos = std::min(piece.find(escaped_space, pos), piece.size());
    encode_word(piece.substr(begin, pos - begin), work);
    begin = pos;
  }
}

void TokenizerImpl::push_unknown(std::string_view one, std::vector<int32_t>& ids) const {
  if (spec_.byte_fallback && !one.empty()) {
    const bool all = vocabulary_.all_bytes() ||
                     std::all_of(one.begin(), one.end(), [&](char c) {
                       return vocabulary_.byte_id(static_cast<uint8_t>(c)) >= 0;
                     });
    if (all) {
      for (const char c : one) ids.push_back(vocabulary_.byte_id(static_cast<uint8_t>(c)));
      return;
    }
  }
  if (unk_ < 0) return;
  if (spec_.fuse_unk && !ids.empty() && ids.back() == unk_) return;
  ids.push_back(unk_);
}

void TokenizerImpl::encode_word(std::string_view word, Work& work) const {
  if (spec_.ignore_merges) {
    if (const int32_t id = vocabulary_.find_plain(word); id >= 0) {
      work.out.push_back(id);
      return;
    }
  }
  auto& symbols = work.symbols;
  symbols.clear();
  for (size_t pos = 0; pos < word.size();) {
    const std::string_view one = word.substr(pos, utf8_step(word, pos).length);
    const int32_t symbol = vocabulary_.character(one);
    if (symbol >= 0)
      symbols.push_back(symbol);
    else
      push_unknown(one, symbols);
    pos += one.size();
  }
  bpe_merge(vocabulary_.merges(), symbols, work.scratch);
  for (const int32_t symbol : symbols) {
    if (symbol < vocabulary_.size())
      work.out.push_back(symbol);
    else
      push_unknown(vocabulary_.character_text(symbol), work.out);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  return std::make_unique<TokenizerImpl>(std::move(spec));
}

}  // namespace orlop
