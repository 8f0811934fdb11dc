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

struct TokenizerSpec {
  enum class Kind { byte_bpe, sentencepiece_bpe };
  // How the text is cut before merges. The names follow the GGUF key tokenizer.ggml.pre where one
  // exists; `regex` takes `patterns` as they are (applied in order, each cutting the pieces of the
  // one before, as Hugging Face's Sequence of Split does).
  Kind kind = Kind::byte_bpe;
  std::vector<std::string> patterns;  // PCRE2 syntax, UTF
  bool split_digits = false;          // every decimal digit alone, before the patterns
  bool ignore_merges = false;         // a piece that is a token stays whole
  bool add_prefix_space = false;      // byte_bpe: a space before the first piece
  bool nfc = false;                   // normalize to NFC first

  // sentencepiece_bpe
  bool byte_fallback = false;
  bool escape_spaces = false;   // ' ' -> U+2581
  bool add_dummy_prefix = false;
  bool strip_dummy_prefix = false;  // decoding removes one leading space

  std::vector<std::string> vocab;  // by id; byte_bpe entries in the GPT-2 byte alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::vector<float> scores;       // sentencepiece without merges: higher merges first
  std::vector<AddedToken> added;
  std::vector<uint8_t> is_byte;    // sentencepiece <0xNN> entries (may be empty: found by name)

  int32_t bos = -1, eos = -1, unk = -1, pad = -1;
  bool add_bos = false, add_eos = false;
};

}  // namespace orlop
