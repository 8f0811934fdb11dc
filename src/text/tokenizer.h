// Text <-> token ids. Immutable once built; every call is thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/spec.h"

namespace orlop {

// Bytes [begin, end) of a text that came from outside (message content): no control token may be
// made from them, not even in part.
struct ByteRange {
  size_t begin = 0, end = 0;
};

struct EncodeOptions {
  bool add_special = false;    // BOS/EOS as the tokenizer's own configuration says
  bool parse_special = false;  // control tokens spelled in the text become themselves
  std::span<const ByteRange> untrusted;  // sorted, disjoint; overrides parse_special inside
};

class Tokenizer {
 public:
  // Checks the spec (holes, ids out of range, merges of unknown tokens, sizes): Error(bad_format).
  static std::unique_ptr<Tokenizer> create(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  // `text` must be UTF-8: Error(invalid_argument) names the first byte that is not.
  virtual std::vector<int32_t> encode(std::string_view text, const EncodeOptions&) const = 0;
  // As the reference's decode: exact bytes of the ids in context (dummy prefix handled). Always
  // UTF-8: bytes that are not become U+FFFD. Ids outside the vocabulary (padding rows of the output
  // matrix) decode to nothing.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  // The raw bytes of one token with no context rule (a sentencepiece piece keeps its space).
  // "" for control tokens when skip_special. The view lives as long as the tokenizer.
  virtual std::string_view token_bytes(int32_t id, bool skip_special) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // The id whose text is exactly this (added and ordinary tokens), or -1.
  virtual int32_t find(std::string_view text) const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual const TokenizerSpec& spec() const = 0;
};

// tokenizer.json (+ tokenizer_config.json, may be empty) -> spec. Error(bad_format | unsupported)
// names the part that is wrong or unknown.
TokenizerSpec tokenizer_spec_from_json(std::string_view tokenizer_json,
                                       std::string_view tokenizer_config_json);

// The cuts of a GGUF tokenizer.ggml.pre name ("smollm", "llama-bpe", "qwen2", "default", ...);
// Error(unsupported) names an unknown one. Sets splits, ignore_merges, nfc and add_bos.
void tokenizer_pre_from_name(std::string_view name, TokenizerSpec& spec);

// The tokenizer.ggml.* metadata of a GGUF file, as read; absent keys keep what stands here.
struct GgufTokenizer {
  std::string model;                // "gpt2" or "llama"
  std::string pre;                  // gpt2 only; absent: "default"
  std::vector<std::string> tokens;
  std::vector<int32_t> token_types;  // 1 normal 2 unknown 3 control 4 user defined 5 unused 6 byte
  std::vector<std::string> merges;   // "a b"
  std::vector<float> scores;
  int32_t bos = -1, eos = -1, unk = -1, pad = -1;
  // Absent: BOS is added for llama and for those pre names whose models want it.
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};
TokenizerSpec tokenizer_spec_from_gguf(GgufTokenizer parts);

}  // namespace orlop
