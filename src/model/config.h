// Hyperparameters of a decoder, from config.json or GGUF metadata, checked.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "format/checkpoint.h"
#include "ops/kernels.h"

namespace orlop {

struct RopeConfig {
  enum class Type { standard, linear, dynamic, llama3, yarn };
  Type type = Type::standard;
  double theta = 10000.0;
  double factor = 1.0;
  int32_t dim = 0;  // rotated elements of a head (head_dim unless partial)
  // llama3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  // llama3, yarn, dynamic: the context the model was trained with before scaling
  int32_t original_max_position = 0;
  // yarn
  double beta_fast = 32.0, beta_slow = 1.0;
  double attention_factor = 0.0;  // 0: derived
  double mscale = 0.0, mscale_all_dim = 0.0;
  bool truncate = true;
  // [dim / 2] each frequency is divided by its factor, or empty (GGUF tensor rope_freqs.weight,
  // which holds llama3 scaling)
  std::vector<float> factors;
};

struct Config {
  std::string arch;  // a name of arch/list.cc: "llama", "qwen2", "qwen3", "mistral"
  std::string model_name;
  int32_t layers = 0, dim = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_dim = 0, vocab = 0;
  int32_t max_position = 0;
  float norm_eps = 1e-5f;
  bool tied_embeddings = false;
  bool attention_bias = false;    // q, k, v have biases
  bool attention_out_bias = false;
  bool mlp_bias = false;
  Glu activation = Glu::silu;
  int32_t window = 0;                 // sliding window, 0: none
  std::vector<uint8_t> layer_window;  // [layers]: 1 if the layer uses `window`
  RopeConfig rope;
  int32_t bos = -1, pad = -1;
  std::vector<int32_t> eos;  // every end-of-turn id that the files name
};

// Sampling defaults that the checkpoint states (generation_config.json); unset: negative / NaN-free
// sentinel as noted.
struct GenerationDefaults {
  bool has_temperature = false, has_top_p = false, has_top_k = false, has_min_p = false,
       has_repetition_penalty = false;
  double temperature = 1.0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  int32_t top_k = 0;
  bool do_sample = false, has_do_sample = false;
};

// Error(bad_format | unsupported) names the file, the key and the value.
Config read_config(const Checkpoint& checkpoint);
// Weights of the matrices that such a decoder has, however a file packs them.
uint64_t matrix_parameters(const Config& config);
GenerationDefaults read_generation_defaults(const Checkpoint& checkpoint);

// inv_freq [rope.dim / 2] and the factor on cos/sin, as Hugging Face computes them in float32.
// `dynamic` fixes its base for `max_context` at load.
struct RopeFrequencies {
  std::vector<float> inv_freq;
  float scale = 1.0f;
};
RopeFrequencies rope_frequencies(const RopeConfig& rope, int32_t max_position,
                                 int32_t max_context);

}  // namespace orlop
