#include "text/grammar/token_trie.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "text/utf8.h"

namespace orlop {
namespace {

constexpr size_t longest_token = 4096;  // bytes; longer ones are never allowed
constexpr size_t plain_kept = 8;
constexpr uint8_t not_plain = PlainTokens::most_characters + 1;  // fits seven bits: see add

bool in_ranges(const std::vector<CharRange>& ranges, uint32_t code) {
  const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                       [&](const CharRange& r) { return r.last < code; });
  return it != ranges.end() && it->first <= code;
}

void add_spelling(std::string_view token, Spelling& s) {
  if (token.empty()) return;
  if (token.size() == 1) s.byte[static_cast<uint8_t>(token[0])] = true;
  const Utf8Step step = utf8_step(token, 0);
  if (step.whole && step.length == token.size()) s.characters.push_back(step.code);
}

// Whether every text can be written.
bool finish_spelling(Spelling& s) {
  std::sort(s.characters.begin(), s.characters.end());
  s.characters.erase(std::unique(s.characters.begin(), s.characters.end()), s.characters.end());
  s.continues = true;
  bool all = true;
  for (uint32_t b = 0; b < 0x80; ++b) all &= s.byte[b];
  for (uint32_t b = 0x80; b < 0xc0; ++b) s.continues &= s.byte[b];
  // A byte that begins characters, and bytes that go on, write all of them; else those that are tokens.
  const auto add = [&](uint32_t first, uint32_t last) {
    if (!s.wide.empty() && s.wide.back().last + 1 == first)
      s.wide.back().last = last;
    else
      s.wide.push_back({first, last});
  };
  for (uint32_t lead = 0xc2; lead <= 0xf4; ++lead) {
    const uint32_t more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    const uint32_t base = (lead - (more == 1 ? 0xc0u : more == 2 ? 0xe0u : 0xf0u)) << (6 * more);
    const uint32_t first = std::max(base, more == 1 ? 0x80u : more == 2 ? 0x800u : 0x10000u);
    const uint32_t last = std::min(base + (1u << (6 * more)) - 1, 0x10ffffu);
    if (s.continues && s.byte[lead]) {
      add(first, last);
      continue;
    }
    all = false;
    for (auto it = std::lower_bound(s.characters.begin(), s.characters.end(), first);
         it != s.characters.end() && *it <= last; ++it)
      add(*it, *it);
  }
  return all && s.continues;
}

}  // namespace

size_t PlainTokens::bytes() const {
  return sizeof(*this) + ranges.capacity() * sizeof(CharRange) + count.capacity() +
         all.capacity() * sizeof(uint32_t) + others.bytes();
}

void PlainTokens::add(uint32_t most, uint32_t* mask) const {
  if (most == Program::no_limit) {
    for (size_t w = 0; w < all.size(); ++w) mask[w] |= all[w];
    return;
  }
  // Eight counts at a time: the top bit of (count + 128 - limit - 1) says that the count is above
  // the limit.
  constexpr uint64_t ones = 0x0101010101010101u, tops = ones << 7;
  const uint64_t above = ones * (std::min<uint64_t>(most, not_plain - 1) + 1);
  for (size_t w = 0; w < all.size(); ++w) {
    uint32_t bits = 0;
    for (uint32_t part = 0; part < 4; ++part) {
      uint64_t counts;
      std::memcpy(&counts, count.data() + w * 32 + part * 8, 8);
      if constexpr (std::endian::native == std::endian::big) counts = __builtin_bswap64(counts);
      const uint64_t within = (((counts | tops) - above) & tops) ^ tops;
      // The eight top bits side by side.
      bits |= static_cast<uint32_t>((within >> 7) * 0x0102040810204080u >> 56) << (8 * part);
    }
    mask[w] |= bits;
  }
}

TokenTrieImpl::TokenTrieImpl(const Tokenizer& tokenizer, int32_t vocab,
                             std::vector<int32_t> end_tokens)
    : vocab_(vocab), end_tokens_(std::move(end_tokens)) {
  if (vocab < 1) fail(Status::invalid_argument, "guide: a vocabulary of ", vocab, " tokens");
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
  std::erase_if(end_tokens_, [&](int32_t t) { return t < 0 || t >= vocab; });
  // A token for what cannot be written has no text of its own.
  const auto bytes_of = [&, known = std::min(vocab, tokenizer.vocab_size())](int32_t t) {
    if (t >= known || tokenizer.is_special(t) || t == tokenizer.spec().unk || is_end(t))
      return std::string_view();
    const std::string_view bytes = tokenizer.token_bytes(t, true);
    return bytes.size() <= longest_token ? bytes : std::string_view();
  };
  auto spelling = std::make_unique<Spelling>();
  for (int32_t t = 0; t < vocab; ++t) add_spelling(bytes_of(t), *spelling);
  const bool everything = finish_spelling(*spelling);
  begin_.reserve(static_cast<size_t>(vocab) + 1);
  begin_.push_back(0);
  for (int32_t t = 0; t < vocab; ++t) {
    const std::string_view bytes = bytes_of(t);
    // Part of a character might be a dead end where not all its bytes can follow.
    if (!bytes.empty() && (spelling->continues || utf8_valid_prefix(bytes) == bytes.size())) {
      text_ += bytes;
      sorted_.push_back(t);
    }
    begin_.push_back(checked_cast<uint32_t>(text_.size(), "guide: bytes of the vocabulary"));
  }
  if (!everything) spelling_ = std::move(spelling);
  std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  tree_ = make_tree(sorted_);
}

bool TokenTrieImpl::is_end(int32_t token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

TokenTree TokenTrieImpl::make_tree(std::span<const int32_t> sorted) const {
  TokenTree tree;
  std::vector<uint32_t> path;  // path[i]: the node of the last text's first i + 1 bytes
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      tree.nodes[path.back()].skip = static_cast<uint32_t>(tree.nodes.size());
  };
  for (const int32_t t : sorted) {
    const std::string_view bytes = text(t);
    const size_t most = std::min(last.size(), bytes.size());
    const size_t common = static_cast<size_t>(
        std::mismatch(last.begin(), last.begin() + static_cast<ptrdiff_t>(most), bytes.begin())
            .first -
        last.begin());
    close(common);
    for (size_t i = common; i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(tree.nodes.size()));
      tree.nodes.push_back({0, static_cast<uint32_t>(tree.tokens.size()),
                            static_cast<uint16_t>(i + 1), static_cast<uint8_t>(bytes[i])});
    }
    tree.tokens.push_back(t);
    tree.depth = std::max(tree.depth, static_cast<uint32_t>(bytes.size()));
    last = bytes;
  }
  close(0);
  tree.nodes.push_back({static_cast<uint32_t>(tree.nodes.size()) + 1,
                        static_cast<uint32_t>(tree.tokens.size()), 0, 0});
  tree.nodes.shrink_to_fit();
  return tree;
}

std::shared_ptr<PlainTokens> TokenTrieImpl::make_plain(const std::vector<CharRange>& ranges) const {
  auto out = std::make_shared<PlainTokens>();
  out->ranges = ranges;
  out->all.assign(static_cast<size_t>(words()), 0);
  out->count.assign(out->all.size() * 32, not_plain);
  std::array<bool, 128> ascii{};
  for (uint32_t c = 0; c < 128; ++c) ascii[c] = in_ranges(ranges, c);
  std::vector<int32_t> others;
  for (const int32_t t : sorted_) {
    const std::string_view bytes = text(t);
    size_t count = 0, pos = 0;
    while (pos < bytes.size()) {
      const Utf8Step step = utf8_step(bytes, pos);
      if (!step.whole || !(step.code < 128 ? ascii[step.code] : in_ranges(ranges, step.code)))
        break;
      pos += step.length;
      ++count;
    }
    if (pos < bytes.size() || count >= not_plain) {
      others.push_back(t);
      continue;
    }
    const size_t i = static_cast<size_t>(t);
    out->count[i] = static_cast<uint8_t>(count);
    out->all[i / 32] |= 1u << (i % 32);
  }
  out->others = make_tree(others);
  return out;
}

std::shared_ptr<const PlainTokens> TokenTrieImpl::plain(
    const std::vector<CharRange>& ranges) const {
  const auto find = [&]() -> std::shared_ptr<const PlainTokens> {
    for (auto it = plain_.begin(); it != plain_.end(); ++it) {
      const bool same = std::equal(ranges.begin(), ranges.end(), (*it)->ranges.begin(),
                                   (*it)->ranges.end(), [](const CharRange& a, const CharRange& b) {
                                     return a.first == b.first && a.last == b.last;
                                   });
      if (!same) continue;
      plain_.splice(plain_.begin(), plain_, it);
      return plain_.front();
    }
    return nullptr;
  };
  {
    std::lock_guard lock(mutex_);
    if (auto known = find()) return known;
  }
  auto made = make_plain(ranges);  // not under the lock: it takes milliseconds
  std::lock_guard lock(mutex_);
  if (auto known = find()) return known;
  plain_.push_front(std::move(made));
  if (plain_.size() > plain_kept) plain_.pop_back();
  return plain_.front();
}

size_t TokenTrieImpl::bytes() const {
  size_t total = sizeof(*this) + text_.capacity() + begin_.capacity() * sizeof(uint32_t) +
                 (sorted_.capacity() + end_tokens_.capacity()) * sizeof(int32_t) + tree_.bytes();
  std::lock_guard lock(mutex_);
  for (const auto& p : plain_) total += p->bytes();
  return total;
}

std::shared_ptr<const TokenTrie> TokenTrie::build(const Tokenizer& tokenizer, int32_t vocab,
                                                  std::vector<int32_t> end_tokens) {
  return std::make_shared<TokenTrieImpl>(tokenizer, vocab, std::move(end_tokens));
}

}  // namespace orlop
