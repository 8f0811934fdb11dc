// GGUF's tokenizer.ggml.* keys (ggml's docs/gguf.md) -> TokenizerSpec.
#include <utility>

#include "base/error.h"
#include "text/tokenizer.h"

namespace orlop {
namespace {

enum TokenType : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

}  // namespace

TokenizerSpec tokenizer_spec_from_gguf(GgufTokenizer parts) {
  TokenizerSpec spec;
  const bool llama = parts.model == "llama";
  if (!llama && parts.model != "gpt2")
    fail(Status::unsupported, "tokenizer.ggml.model: the tokenizer '", parts.model,
         "' is unknown (gpt2 and llama are known)");
  const size_t count = parts.tokens.size();
  if (!parts.token_types.empty() && parts.token_types.size() != count)
    fail(Status::bad_format, "tokenizer.ggml.token_type: ", parts.token_types.size(),
         " types for ", count, " tokens");
  if (!parts.scores.empty() && parts.scores.size() != count)
    fail(Status::bad_format, "tokenizer.ggml.scores: ", parts.scores.size(), " scores for ", count,
         " tokens");

  spec.bos = parts.bos;
  spec.eos = parts.eos;
  spec.unk = parts.unk;
  spec.pad = parts.pad;
  if (llama) {
    spec.kind = TokenizerSpec::Kind::sentencepiece_bpe;
    spec.byte_fallback = true;
    spec.escape_spaces = true;
    const bool prefix = parts.add_space_prefix.value_or(true);
    spec.dummy_prefix = prefix ? TokenizerSpec::Prefix::always : TokenizerSpec::Prefix::none;
    spec.strip_dummy_prefix = prefix;
    spec.add_bos = true;
    spec.scores = std::move(parts.scores);
    if (parts.merges.empty() && spec.scores.empty())
      fail(Status::bad_format, "tokenizer.ggml: neither scores nor merges");
    // The ids that the format supposes where the keys are absent.
    const auto suppose = [&](int32_t& id, int32_t usual) {
      if (id < 0 && static_cast<size_t>(usual) < count) id = usual;
    };
    suppose(spec.unk, 0);
    suppose(spec.bos, 1);
    suppose(spec.eos, 2);
  } else {
    if (parts.merges.empty()) fail(Status::bad_format, "tokenizer.ggml.merges: absent or empty");
    tokenizer_pre_from_name(parts.pre, spec);
    spec.add_prefix_space = parts.add_space_prefix.value_or(false);
    spec.add_bos = spec.add_bos && spec.bos >= 0;
  }
  if (parts.add_bos) spec.add_bos = *parts.add_bos;
  if (parts.add_eos) spec.add_eos = *parts.add_eos;

  for (size_t i = 0; i < parts.token_types.size(); ++i) {
    const int32_t type = parts.token_types[i];
    if (type < normal || type > byte)
      fail(Status::bad_format, "tokenizer.ggml.token_type: type ", type, " of token ", i);
    if (type == unused) {
      spec.unmergeable.resize(count);
      spec.unmergeable[i] = 1;
    }
    if (type == control || type == unknown || type == user_defined) {
      AddedToken added;
      added.id = static_cast<int32_t>(i);
      added.text = parts.tokens[i];
      added.special = type != user_defined;
      spec.added.push_back(std::move(added));
    }
  }
  spec.merges.reserve(parts.merges.size());
  for (size_t i = 0; i < parts.merges.size(); ++i) {
    const std::string& merge = parts.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size())
      fail(Status::bad_format, "tokenizer.ggml.merges: merge ", i, " ('", merge,
           "') is not two pieces");
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  spec.vocab = std::move(parts.tokens);
  return spec;
}

}  // namespace orlop
