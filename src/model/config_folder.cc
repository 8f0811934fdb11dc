// Hyperparameters from a Hugging Face config.json: the keys, defaults and precedence of
// transformers' configuration classes (5.24) and of its modeling_rope_utils.
#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "format/json_keys.h"
#include "format/safetensors.h"
#include "model/config_read.h"

namespace orlop {
namespace {

struct Family {
  const char* arch;        // ours, and Hugging Face's model_type
  const char* class_name;  // in "architectures"
  // Defaults for keys that a file leaves out.
  int32_t max_position;
  int32_t kv_heads;  // 0: as many as heads
  int32_t head_dim;  // 0: dim / heads
};
constexpr Family families[] = {
    {"llama", "LlamaForCausalLM", 2048, 0, 0},
    {"mistral", "MistralForCausalLM", 131072, 8, 0},
    {"qwen2", "Qwen2ForCausalLM", 32768, 32, 0},
    {"qwen3", "Qwen3ForCausalLM", 32768, 32, 128},
};

const Family& family_of(const Keys& config) {
  std::string name;
  if (const Json* list = config.find("architectures")) {
    if (!list->is_array()) config.wrong(*list, "architectures", "a list of strings");
    if (!list->empty()) {
      if (!(*list)[0].is_string()) config.wrong(*list, "architectures", "a list of strings");
      name = (*list)[0].get<std::string>();
      for (const Family& f : families)
        if (name == f.class_name) return f;
    }
  }
  if (name.empty()) {
    name = config.text("model_type", "");
    for (const Family& f : families)
      if (name == f.arch) return f;
  }
  std::string known;
  for (const Family& f : families) known += cat(known.empty() ? "" : ", ", f.class_name);
  if (name.empty())
    fail(Status::bad_format, config.file(), ": neither architectures nor model_type names the model");
  fail(Status::unsupported, config.file(), ": architecture \"", printable(name),
       "\" is not supported; known are ", known);
}

RopeConfig read_rope(const Keys& config, const Config& c) {
  // transformers: a non-empty rope_scaling comes before rope_parameters.
  const Json* object = nullptr;
  const char* object_name = "rope_scaling";
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* v = config.find(key);
    if (!v) continue;
    if (!v->is_object()) config.wrong(*v, key, "an object");
    if (v->empty()) continue;
    object = v;
    object_name = key;
    break;
  }
  static const Json empty = Json::object();
  const Keys rope(object ? *object : empty, config.file(), cat(object_name, "."));
  for (const char* key : {"full_attention", "sliding_attention"})
    if (rope.find(key))
      fail(Status::unsupported, rope.name(key), ": rotary parameters by layer type are not "
           "supported");

  RopeConfig r;
  r.theta = rope.find("rope_theta") ? rope.number("rope_theta", 1.0, max_theta)
                                    : config.number("rope_theta", 1.0, max_theta, 10000.0);
  // log(theta) divides: 1 itself turns every pair by the same angle.
  if (r.theta == 1.0) fail(Status::bad_format, config.file(), ": rope_theta is 1, more is needed");
  const double part = rope.find("partial_rotary_factor")
                          ? rope.number("partial_rotary_factor", 0.0, 1.0)
                          : config.number("partial_rotary_factor", 0.0, 1.0, 1.0);
  r.dim = static_cast<int32_t>(c.head_dim * part);

  const std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
  const double factor_low = 1e-6;
  if (type == "default") {
    r.type = RopeConfig::Type::standard;
  } else if (type == "linear") {
    r.type = RopeConfig::Type::linear;
    r.factor = rope.number("factor", factor_low, max_factor);
  } else if (type == "dynamic") {
    r.type = RopeConfig::Type::dynamic;
    r.factor = rope.number("factor", 1.0, max_factor);
    r.original_max_position = c.max_position;
  } else if (type == "llama3" || type == "yarn") {
    const char* key = "original_max_position_embeddings";
    r.original_max_position = static_cast<int32_t>(
        config.find(key) ? config.integer(key, 1, max_positions)
                         : rope.integer(key, 1, max_positions, c.max_position));
    if (type == "llama3") {
      r.type = RopeConfig::Type::llama3;
      r.factor = rope.number("factor", factor_low, max_factor);
      r.low_freq_factor = rope.number("low_freq_factor", factor_low, max_factor);
      r.high_freq_factor = rope.number("high_freq_factor", factor_low, max_factor);
      if (r.high_freq_factor <= r.low_freq_factor)
        fail(Status::bad_format, rope.name("high_freq_factor"), " is ", r.high_freq_factor,
             ", more than low_freq_factor (", r.low_freq_factor, ") is needed");
    } else {
      r.type = RopeConfig::Type::yarn;
      r.factor = rope.number("factor", factor_low, max_factor,
                             static_cast<double>(c.max_position) / r.original_max_position);
      r.attention_factor = rope.number("attention_factor", factor_low, max_factor, 0.0);
      // transformers takes 0 as "not given" for these four.
      r.beta_fast = rope.number("beta_fast", 0.0, max_factor, 0.0);
      if (r.beta_fast == 0.0) r.beta_fast = 32.0;
      r.beta_slow = rope.number("beta_slow", 0.0, max_factor, 0.0);
      if (r.beta_slow == 0.0) r.beta_slow = 1.0;
      r.mscale = rope.number("mscale", 0.0, max_factor, 0.0);
      r.mscale_all_dim = rope.number("mscale_all_dim", 0.0, max_factor, 0.0);
      r.truncate = rope.boolean("truncate", true);
    }
  } else {
    fail(Status::unsupported, rope.name("rope_type"), " \"", printable(type),
         "\" is not supported; known are default, linear, dynamic, llama3, yarn");
  }
  return r;
}

// Which layers see a window only. Positions (p - window, p] are visible at p.
void read_window(const Keys& config, const Family& family, Config& c) {
  const std::string arch = family.arch;
  c.layer_window.assign(static_cast<size_t>(c.layers), 0);
  if (arch == "mistral") {
    // Left out: the class's default; null: no window.
    c.window = static_cast<int32_t>(
        config.states("sliding_window") ? config.integer("sliding_window", 1, max_positions, 0)
                                        : 4096);
    if (c.window) c.layer_window.assign(static_cast<size_t>(c.layers), 1);
  } else if (arch != "llama" && config.boolean("use_sliding_window", false)) {
    c.window = static_cast<int32_t>(
        config.states("sliding_window") ? config.integer("sliding_window", 1, max_positions, 0)
                                        : 4096);
    const int64_t first = config.integer("max_window_layers", 0, max_positions, 28);
    if (c.window)
      for (int64_t i = first; i < c.layers; ++i) c.layer_window[static_cast<size_t>(i)] = 1;
  }

  if (const Json* types = config.find("layer_types")) {
    if (!types->is_array()) config.wrong(*types, "layer_types", "a list of strings");
    if (types->size() != static_cast<size_t>(c.layers))
      fail(Status::bad_format, config.name("layer_types"), " has ", types->size(),
           " entries for ", c.layers, " layers");
    for (size_t i = 0; i < types->size(); ++i) {
      const Json& type = (*types)[i];
      const bool sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention")
        fail(Status::unsupported, config.name("layer_types"), " holds ", Keys::show(type),
             "; full_attention and sliding_attention are known");
      if (sliding && c.window == 0)
        fail(Status::bad_format, config.name("layer_types"), " says that layer ", i,
             " has sliding attention, but no sliding window is set");
      // Llama and Mistral have one kind of layer; a list that says otherwise is another model.
      if ((arch == "llama" || arch == "mistral") && sliding != (c.layer_window[i] != 0))
        fail(Status::unsupported, config.name("layer_types"), ": layer ", i, " is ",
             Keys::show(type), ", which ", family.class_name, " does not have");
      c.layer_window[i] = sliding;
    }
  }
  if (std::find(c.layer_window.begin(), c.layer_window.end(), 1) == c.layer_window.end())
    c.window = 0;
}

void read_eos(const Keys& keys, Config& c) {
  const Json* v = keys.find("eos_token_id");
  if (!v) return;
  if (!v->is_array()) {
    add_eos(c, keys.integer_of(*v, "eos_token_id", -1, max_vocab), keys.file(), "eos_token_id");
    return;
  }
  if (v->size() > static_cast<size_t>(max_eos))
    fail(Status::bad_format, keys.name("eos_token_id"), " lists ", v->size(), " ids, at most ",
         max_eos, " are allowed");
  for (const Json& id : *v)
    add_eos(c, keys.integer_of(id, "eos_token_id", -1, max_vocab), keys.file(), "eos_token_id");
}

}  // namespace

Config read_folder_config(const Checkpoint& checkpoint) {
  const Keys k(checkpoint.config, cat(checkpoint.path, "/config.json"));
  const Family& family = family_of(k);
  const std::string arch = family.arch;

  Config c;
  c.arch = arch;
  c.model_name = base_name(checkpoint.path);
  const auto count = [&](const char* key, int64_t limit) {
    return static_cast<int32_t>(k.integer(key, 1, limit));
  };
  c.layers = count("num_hidden_layers", max_layers);
  c.dim = count("hidden_size", max_dim);
  c.heads = count("num_attention_heads", max_heads);
  c.ffn_dim = count("intermediate_size", max_ffn_dim);
  c.vocab = count("vocab_size", max_vocab);
  const bool kv_stated = k.states("num_key_value_heads");
  c.kv_heads = static_cast<int32_t>(
      k.integer("num_key_value_heads", 1, max_heads,
                kv_stated || family.kv_heads == 0 ? c.heads : family.kv_heads));
  if (k.find("head_dim")) {
    c.head_dim = count("head_dim", max_head_dim);
  } else if (family.head_dim && !k.states("head_dim")) {
    c.head_dim = family.head_dim;
  } else {
    if (c.dim % c.heads != 0)
      fail(Status::bad_format, k.name("hidden_size"), " (", c.dim,
           ") is no multiple of num_attention_heads (", c.heads, ") and head_dim is not given");
    c.head_dim = c.dim / c.heads;
  }
  c.max_position = static_cast<int32_t>(
      k.integer("max_position_embeddings", 1, max_positions, family.max_position));
  c.norm_eps = static_cast<float>(k.number("rms_norm_eps", 1e-12, 0.1, 1e-6));
  c.tied_embeddings = k.boolean("tie_word_embeddings", false);

  if (arch == "llama" || arch == "qwen3") {
    c.attention_bias = c.attention_out_bias = k.boolean("attention_bias", false);
  } else if (arch == "qwen2") {
    c.attention_bias = true;  // q, k, v always; the output projection never
  }
  if (arch == "llama") c.mlp_bias = k.boolean("mlp_bias", false);

  const std::string act = k.text("hidden_act", "silu");
  if (act == "silu")
    c.activation = Glu::silu;
  else if (act == "gelu_pytorch_tanh")
    c.activation = Glu::gelu_tanh;
  else
    fail(Status::unsupported, k.name("hidden_act"), " \"", printable(act),
         "\" is not supported; silu and gelu_pytorch_tanh are");

  read_window(k, family, c);
  c.rope = read_rope(k, c);

  const int64_t bos = k.integer("bos_token_id", -1, max_vocab, -1);
  if (bos >= c.vocab)
    fail(Status::bad_format, k.name("bos_token_id"), " is ", bos, ", the vocabulary has ", c.vocab);
  c.bos = static_cast<int32_t>(bos);
  // Padding is never fed to the model: an id outside the vocabulary only means there is none.
  const int64_t pad = k.integer("pad_token_id", -1, max_vocab, -1);
  c.pad = static_cast<int32_t>(pad < c.vocab ? pad : -1);
  read_eos(k, c);
  if (checkpoint.generation_config.is_object())
    read_eos(Keys(checkpoint.generation_config, cat(checkpoint.path, "/generation_config.json")), c);
  check_config(c, k.file());
  return c;
}

GenerationDefaults read_folder_generation_defaults(const Checkpoint& checkpoint) {
  GenerationDefaults d;
  const auto take = [](const Keys& k, const char* key, double low, double high, bool& has,
                       double& value) {
    has = k.find(key) != nullptr;
    if (has) value = k.number(key, low, high);
  };
  if (!checkpoint.generation_config.is_object()) return d;
  const Keys k(checkpoint.generation_config, cat(checkpoint.path, "/generation_config.json"));
  take(k, "temperature", 0.0, 1e6, d.has_temperature, d.temperature);
  take(k, "top_p", 0.0, 1.0, d.has_top_p, d.top_p);
  take(k, "min_p", 0.0, 1.0, d.has_min_p, d.min_p);
  take(k, "repetition_penalty", 1e-6, 1e6, d.has_repetition_penalty, d.repetition_penalty);
  d.has_top_k = k.find("top_k") != nullptr;
  if (d.has_top_k) d.top_k = static_cast<int32_t>(k.integer("top_k", 0, INT32_MAX));
  d.has_do_sample = k.find("do_sample") != nullptr;
  if (d.has_do_sample) d.do_sample = k.boolean("do_sample", false);
  return d;
}

}  // namespace orlop
