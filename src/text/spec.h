// What a tokenizer is made of, whichever file it came from (tokenizer.json or GGUF metadata).
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orlop {

struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;  // a control token: skipped by skip_special, never made from plain content
  bool lstrip = false, rstrip = false, single_word = false, normalized = false;
};

// One cut of the text before merges. Rules apply in order, each to the pieces of the one before.
struct SplitRule {
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  std::string pattern;  // as tokenizer.json writes it: Oniguruma syntax, Unicode classes
  Behavior behavior = Behavior::isolated;
  bool invert = false;  // the gaps between matches count as the matches
};

struct TokenizerSpec {
  enum class Kind { byte_bpe, sentencepiece_bpe };
  enum class Prefix { none, first, always };  // first: only where the text itself begins

  Kind kind = Kind::byte_bpe;
  std::vector<SplitRule> splits;
  bool ignore_merges = false;     // a piece that is a token stays whole
  bool add_prefix_space = false;  // byte_bpe: a space before text that does not begin with one
  bool nfc = false;               // normalize to NFC first

  // sentencepiece_bpe
  bool byte_fallback = false;
  bool fuse_unk = false;        // a run of unknown characters is one unk
  bool escape_spaces = false;   // ' ' -> U+2581
  Prefix dummy_prefix = Prefix::none;  // U+2581 before the text between added tokens
  // Metaspace: both happen after added tokens are found, and no prefix where one is there already.
  bool metaspace = false;
  bool strip_dummy_prefix = false;     // decoding removes one leading space

  std::vector<std::string> vocab;  // by id; byte_bpe entries in the GPT-2 byte alphabet
  // Best first. Emptied by Tokenizer::create once its tables are built.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<float> scores;       // sentencepiece without merges: higher merges first
  std::vector<AddedToken> added;
  std::vector<uint8_t> is_byte;    // sentencepiece <0xNN> entries (empty: create finds them by name)
  std::vector<uint8_t> unmergeable;  // empty, or 1: ids that scores never merge to (GGUF: unused)

  int32_t bos = -1, eos = -1, unk = -1, pad = -1;
  bool add_bos = false, add_eos = false;
  // What add_special puts around the text where that is more than BOS and EOS (else empty).
  std::vector<int32_t> before, after;
};

}  // namespace orlop
