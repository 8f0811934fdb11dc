// Hyperparameters from GGUF metadata: the keys of ggml's docs/gguf.md, read as llama.cpp reads them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"
#include "format/safetensors.h"
#include "model/config.h"
#include "model/config_read.h"

namespace orlop {
namespace {

class Meta {
 public:
  explicit Meta(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), file_(checkpoint.path) {}

  const std::string& file() const { return file_; }
  const MetaValue* find(const std::string& key) const {
    const auto it = checkpoint_.meta.find(key);
    return it == checkpoint_.meta.end() ? nullptr : &it->second;
  }

  std::optional<int64_t> integer(const std::string& key, int64_t low, int64_t high) const {
    const MetaValue* v = find(key);
    if (!v) return {};
    if (const auto* i = std::get_if<int64_t>(v)) return in_range(key, *i, low, high);
    if (const auto* u = std::get_if<uint64_t>(v)) return in_range(key, *u, low, high);
    // Per layer: taken when all layers agree.
    if (const auto* array = std::get_if<MetaArray>(v))
      if (const auto* list = std::get_if<std::vector<int64_t>>(array)) {
        if (list->empty()) fail(Status::bad_format, file_, ": ", key, " is an empty list");
        if (std::any_of(list->begin(), list->end(), [&](int64_t n) { return n != (*list)[0]; }))
          fail(Status::unsupported, file_, ": ", key,
               " differs from layer to layer, which is not supported");
        return in_range(key, (*list)[0], low, high);
      }
    wrong(key, "a whole number");
  }
  int32_t count(const std::string& key, int64_t high) const {
    const auto v = integer(key, 1, high);
    if (!v) fail(Status::bad_format, file_, ": ", key, " is missing");
    return static_cast<int32_t>(*v);
  }
  std::optional<double> number(const std::string& key, double low, double high) const {
    const MetaValue* v = find(key);
    if (!v) return {};
    double d = 0;
    if (const auto* f = std::get_if<double>(v))
      d = *f;
    else if (const auto* i = std::get_if<int64_t>(v))
      d = static_cast<double>(*i);
    else if (const auto* u = std::get_if<uint64_t>(v))
      d = static_cast<double>(*u);
    else
      wrong(key, "a number");
    return checked_number(d, low, high, file_, key.c_str());
  }
  std::optional<std::string> text(const std::string& key) const {
    const MetaValue* v = find(key);
    if (!v) return {};
    if (const auto* s = std::get_if<std::string>(v)) return *s;
    wrong(key, "a string");
  }
  template <class T>
  const std::vector<T>* list(const std::string& key, const char* wanted) const {
    const MetaValue* v = find(key);
    if (!v) return nullptr;
    if (const auto* array = std::get_if<MetaArray>(v))
      if (const auto* l = std::get_if<std::vector<T>>(array)) return l;
    wrong(key, wanted);
  }

 private:
  [[noreturn]] void wrong(const std::string& key, const char* wanted) const {
    fail(Status::bad_format, file_, ": ", key, " has the wrong type, ", wanted, " is needed");
  }
  template <class T>
  int64_t in_range(const std::string& key, T v, int64_t low, int64_t high) const {
    if (std::cmp_less(v, low) || std::cmp_greater(v, high))
      fail(Status::bad_format, file_, ": ", key, " is ", v, ", ", low, " to ", high,
           " is allowed");
    return static_cast<int64_t>(v);
  }

  const Checkpoint& checkpoint_;
  const std::string& file_;
};

// Keys that would change the arithmetic of these architectures in ways that are not supported.
constexpr const char* foreign_keys[] = {
    "attention.scale",         "logit_scale",           "residual_scale",
    "embedding_scale",         "attn_logit_softcapping", "final_logit_softcapping",
    "attention.temperature_scale"};

// Texts of control tokens that end a turn or a document: a file states one id as eos, but models
// were trained with several (llama.cpp looks for them by text as well).
constexpr std::string_view end_texts[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<|end|>",    "<|endofturn|>", "<end_of_turn>", "<|eot|>", "<EOT>"};
constexpr int64_t control_token = 3;  // tokenizer.ggml.token_type

void read_ids(const Meta& m, Config& c) {
  const auto id = [&](const char* name) -> int32_t {
    const std::string key = cat("tokenizer.ggml.", name);
    // All bits set in 32 bits is how some writers say "none".
    const auto v = m.integer(key, -1, UINT32_MAX);
    if (!v || *v == UINT32_MAX || *v < 0) return -1;
    if (*v >= c.vocab)
      fail(Status::bad_format, m.file(), ": ", key, " is ", *v, ", the vocabulary has ", c.vocab);
    return static_cast<int32_t>(*v);
  };
  c.bos = id("bos_token_id");
  c.pad = id("padding_token_id");
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    add_eos(c, id(name), m.file(), name);

  const auto* tokens = m.list<std::string>("tokenizer.ggml.tokens", "a list of strings");
  const auto* types = m.list<int64_t>("tokenizer.ggml.token_type", "a list of numbers");
  if (!tokens || !types) return;
  const size_t n = std::min({tokens->size(), types->size(), static_cast<size_t>(c.vocab)});
  for (size_t i = 0; i < n; ++i)
    if ((*types)[i] == control_token &&
        std::find(std::begin(end_texts), std::end(end_texts), (*tokens)[i]) != std::end(end_texts))
      add_eos(c, static_cast<int64_t>(i), m.file(), "tokenizer.ggml.tokens");
}

RopeConfig read_rope(const Meta& m, const std::string& prefix, const Checkpoint& checkpoint,
                     const Config& c) {
  RopeConfig r;
  r.theta = m.number(prefix + "rope.freq_base", 1.0, max_theta).value_or(10000.0);
  if (r.theta == 1.0)
    fail(Status::bad_format, m.file(), ": ", prefix, "rope.freq_base is 1, more is needed");
  r.dim = static_cast<int32_t>(
      m.integer(prefix + "rope.dimension_count", 1, max_head_dim).value_or(c.head_dim));

  const std::string scaling = prefix + "rope.scaling.";
  const auto type = m.text(scaling + "type");
  // The older key states a linear factor alone.
  const auto old_factor = m.number(prefix + "rope.scale_linear", 0.0, max_factor);
  double factor = m.number(scaling + "factor", 0.0, max_factor).value_or(old_factor.value_or(0.0));
  if (factor == 0.0) factor = 1.0;  // llama.cpp: 0 is "not scaled"
  if (factor < 1e-6)
    fail(Status::bad_format, m.file(), ": ", scaling, "factor is ", factor,
         ", a larger number is needed");
  if (!type || *type == "linear") {
    // llama.cpp scales linearly when a factor is given without a type.
    if (factor != 1.0) {
      r.type = RopeConfig::Type::linear;
      r.factor = factor;
    }
  } else if (*type == "yarn") {
    r.type = RopeConfig::Type::yarn;
    r.factor = factor;
    r.original_max_position = static_cast<int32_t>(
        m.integer(scaling + "original_context_length", 1, max_positions).value_or(c.max_position));
    r.beta_fast = m.number(scaling + "yarn_beta_fast", 1e-6, max_factor).value_or(32.0);
    r.beta_slow = m.number(scaling + "yarn_beta_slow", 1e-6, max_factor).value_or(1.0);
    // Here the key multiplies the derived factor; in config.json it takes its place.
    const double multiplier = m.number(scaling + "attn_factor", 1e-6, max_factor).value_or(1.0);
    if (multiplier != 1.0)
      r.attention_factor = multiplier * (factor > 1.0 ? 0.1 * std::log(factor) + 1.0 : 1.0);
  } else if (*type != "none") {
    fail(Status::unsupported, m.file(), ": ", scaling, "type \"", printable(*type),
         "\" is not supported; known are none, linear, yarn");
  }

  if (const FileTensor* t = checkpoint.find("rope_freqs.weight")) {
    const std::string where = cat(m.file(), ": tensor \"rope_freqs.weight\"");
    if (t->type != FileType::f32)
      fail(Status::unsupported, where, " has type ", info(t->type).name, ", f32 is needed");
    const size_t n = static_cast<size_t>(r.dim) / 2;
    if (t->shape.size() != 1 || t->shape[0] != static_cast<int64_t>(n))
      fail(Status::bad_format, where, " has ", t->shape.size(), " dimensions, the first ",
           t->shape[0], "; one of ", n, " is needed");
    r.factors.resize(n);
    std::memcpy(r.factors.data(), t->data.data(), n * sizeof(float));
    for (float f : r.factors) checked_number(f, 1e-6, 1e31, where, "an element");
  }
  return r;
}

}  // namespace

GenerationDefaults read_gguf_generation_defaults(const Checkpoint& checkpoint) {
  const Meta m(checkpoint);
  GenerationDefaults d;
  const auto take = [&](const char* key, double low, double high, bool& has, double& value) {
    const auto v = m.number(cat("general.sampling.", key), low, high);
    has = v.has_value();
    if (v) value = *v;
  };
  take("temp", 0.0, 1e6, d.has_temperature, d.temperature);
  take("top_p", 0.0, 1.0, d.has_top_p, d.top_p);
  take("min_p", 0.0, 1.0, d.has_min_p, d.min_p);
  take("penalty_repeat", 1e-6, 1e6, d.has_repetition_penalty, d.repetition_penalty);
  const auto top_k = m.integer("general.sampling.top_k", 0, INT32_MAX);
  d.has_top_k = top_k.has_value();
  d.top_k = static_cast<int32_t>(top_k.value_or(0));
  return d;
}

Config read_gguf_config(const Checkpoint& checkpoint) {
  const Meta m(checkpoint);
  if (const auto type = m.text("general.type"); type && *type != "model")
    fail(Status::unsupported, m.file(), ": general.type is \"", printable(*type),
         "\"; only files of type \"model\" hold a model");
  if (const auto parts = m.integer("split.count", 0, UINT16_MAX); parts && *parts > 1)
    fail(Status::unsupported, m.file(), ": is one of ", *parts,
         " parts; GGUF files in parts are not supported, merge them first");
  const auto arch = m.text("general.architecture");
  if (!arch) fail(Status::bad_format, m.file(), ": general.architecture is missing");
  if (*arch != "llama" && *arch != "qwen2" && *arch != "qwen3")
    fail(Status::unsupported, m.file(), ": architecture \"", printable(*arch),
         "\" is not supported; known are llama (Mistral included), qwen2, qwen3");
  const std::string p = *arch + ".";
  for (const char* key : foreign_keys)
    if (m.find(p + key))
      fail(Status::unsupported, m.file(), ": ", p, key, " is not supported");
  if (m.integer(p + "expert_count", 0, UINT16_MAX).value_or(0) > 0)
    fail(Status::unsupported, m.file(), ": ", p, "expert_count is set; models of experts are not "
         "supported");

  Config c;
  c.arch = *arch;
  c.model_name = m.text("general.name").value_or(base_name(checkpoint.path));
  c.layers = m.count(p + "block_count", max_layers);
  c.dim = m.count(p + "embedding_length", max_dim);
  c.ffn_dim = m.count(p + "feed_forward_length", max_ffn_dim);
  c.heads = m.count(p + "attention.head_count", max_heads);
  c.kv_heads = static_cast<int32_t>(
      m.integer(p + "attention.head_count_kv", 1, max_heads).value_or(c.heads));
  c.max_position = m.count(p + "context_length", max_positions);
  const std::string eps = p + "attention.layer_norm_rms_epsilon";
  const auto eps_value = m.number(eps, 1e-12, 0.1);
  if (!eps_value) fail(Status::bad_format, m.file(), ": ", eps, " is missing");
  c.norm_eps = static_cast<float>(*eps_value);

  const auto key_length = m.integer(p + "attention.key_length", 1, max_head_dim);
  const auto value_length = m.integer(p + "attention.value_length", 1, max_head_dim);
  if ((!key_length || !value_length) && c.dim % c.heads != 0)
    fail(Status::bad_format, m.file(), ": ", p, "embedding_length (", c.dim,
         ") is no multiple of attention.head_count (", c.heads,
         ") and attention.key_length and value_length are not both given");
  const int64_t keys = key_length.value_or(c.dim / c.heads);
  const int64_t values = value_length.value_or(c.dim / c.heads);
  if (keys != values)
    fail(Status::unsupported, m.file(), ": ", p, "attention.key_length is ", keys,
         " and value_length is ", values, "; different lengths are not supported");
  if (keys < 1 || keys > max_head_dim)
    fail(Status::bad_format, m.file(), ": heads of ", keys, " elements, 1 to ", max_head_dim,
         " are allowed");
  c.head_dim = static_cast<int32_t>(keys);

  const auto vocab = m.integer(p + "vocab_size", 1, max_vocab);
  const auto* tokens = m.list<std::string>("tokenizer.ggml.tokens", "a list of strings");
  if (!vocab && !tokens)
    fail(Status::bad_format, m.file(), ": neither ", p,
         "vocab_size nor tokenizer.ggml.tokens gives the size of the vocabulary");
  const int64_t rows = vocab ? *vocab : static_cast<int64_t>(tokens->size());
  if (rows < 1 || rows > max_vocab)
    fail(Status::bad_format, m.file(), ": a vocabulary of ", rows, " tokens, 1 to ", max_vocab,
         " are allowed");
  if (tokens && tokens->size() > static_cast<size_t>(rows))
    fail(Status::bad_format, m.file(), ": tokenizer.ggml.tokens lists ", tokens->size(),
         " tokens, ", p, "vocab_size is ", rows);
  c.vocab = static_cast<int32_t>(rows);

  c.tied_embeddings = !checkpoint.find("output.weight");
  c.attention_bias = c.arch == "qwen2" || checkpoint.find("blk.0.attn_q.bias");
  c.attention_out_bias = checkpoint.find("blk.0.attn_output.bias");
  c.mlp_bias = checkpoint.find("blk.0.ffn_gate.bias");

  const auto window = m.integer(p + "attention.sliding_window", 0, max_positions);
  c.window = static_cast<int32_t>(window.value_or(0));
  c.layer_window.assign(static_cast<size_t>(c.layers), c.window ? 1 : 0);
  c.rope = read_rope(m, p, checkpoint, c);
  read_ids(m, c);
  check_config(c, m.file());
  return c;
}

}  // namespace orlop
