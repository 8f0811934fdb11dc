// The pre-tokenizers that GGUF names in tokenizer.ggml.pre, with the cuts of the Hugging Face
// tokenizers that the names stand for. The names are those of llama.cpp's conversion script.
#include <array>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

namespace orlop {
namespace {

constexpr const char* gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* tekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* gpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* digits = R"(\p{N})";
constexpr const char* digits_by_three = R"(\p{N}{1,3})";
constexpr const char* cjk = "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+";
constexpr const char* deepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Pre {
  std::string_view name;
  std::array<const char*, 3> patterns;
  bool ignore_merges = false, nfc = false, add_bos = false;
};

constexpr Pre pres[] = {
    {"default", {gpt2}},
    {"gpt-2", {gpt2}},
    {"phi-2", {gpt2}},
    {"roberta-bpe", {gpt2}},
    {"olmo", {gpt2}, false, true},
    {"mpt", {gpt2}, false, true},
    {"exaone4", {gpt2}},
    {"granite-docling", {gpt2}},
    {"smollm", {digits, gpt2}},
    {"starcoder", {digits, gpt2}},
    {"refact", {digits, gpt2}},
    {"codeshell", {digits, gpt2}},
    {"command-r", {digits, gpt2}, false, true},
    {"minerva-7b", {digits, gpt2}},
    {"llama-bpe", {llama3}, true, false, true},
    {"llama3", {llama3}, true, false, true},
    {"llama-v3", {llama3}, true, false, true},
    {"smaug-bpe", {llama3}, true, false, true},
    {"dbrx", {llama3}},
    {"qwen2", {qwen2}, false, true},
    {"deepseek-r1-qwen", {qwen2}, false, true},
    {"stablelm2", {qwen2}, false, true},
    {"qwen35", {qwen35}, false, true},
    {"tekken", {tekken}, true, false, true},
    {"gpt-4o", {gpt4o}},
    {"llama4", {gpt4o}, false, false, true},
    {"deepseek-v3", {digits_by_three, cjk, deepseek3}},
};

}  // namespace

void tokenizer_pre_from_name(std::string_view name, TokenizerSpec& spec) {
  if (name.empty()) name = "default";
  for (const Pre& pre : pres) {
    if (pre.name != name) continue;
    spec.splits.clear();
    for (const char* pattern : pre.patterns)
      if (pattern) spec.splits.push_back({pattern, SplitRule::Behavior::isolated, false});
    spec.ignore_merges = pre.ignore_merges;
    spec.nfc = pre.nfc;
    spec.add_bos = pre.add_bos;
    return;
  }
  fail(Status::unsupported, "tokenizer.ggml.pre: the pre-tokenizer '", name, "' is unknown");
}

}  // namespace orlop
