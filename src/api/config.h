// The engine's configuration: one JSON object, every key checked.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "format/mapped_file.h"
#include "model/quant_options.h"

namespace orlop::api {

struct EngineConfig {
  std::string model;
  FileRange part;  // of the model's file: model_offset, model_bytes
  std::string device = "cpu";
  std::optional<Compute> compute;  // empty: the backend's choice
  QuantOptions quant;
  std::optional<KvType> kv_type;   // empty: fp32 with compute fp32, else bf16
  int32_t block_size = 16;         // tokens a page
  std::optional<int64_t> kv_bytes;
  std::optional<double> kv_fraction;   // of the memory that is left, where kv_bytes is not given
  std::optional<int32_t> gpu_layers;   // n_gpu_layers
  int32_t max_running_seqs = 64;
  int32_t max_waiting = 16384;
  std::optional<int32_t> max_context;
  int32_t step_tokens = 0;  // 0: 512 (2,048 where memory is the device's own), or what the longest prompt needs where prompts are not cut
  bool deterministic = true;  // BackendOptions'
  int32_t threads = 0;      // 0: from the machine
  LoadMode load = LoadMode::mmap;
  bool prefix_cache = true;
  bool guides_ready = false;    // the vocabulary's trie is made at load, not with the first guide
  bool host_tier = false;
  int64_t host_tier_bytes = 0;  // 0: 1 GiB, or half of the memory if that is less
  bool chunked = true;          // false: step_tokens holds the longest prompt unless given
  bool fcfs = false;            // scheduling: else "fair"
  double itl_target_ms = 0;     // 0: throughput
  int64_t output_bytes = int64_t{1} << 20;  // of one request, not yet taken
  bool plan_ahead = false;                  // plans the next step while one runs
  std::optional<bool> run_ahead;            // EngineOptions'
  bool debug_poison = false;
};

// Error(invalid_argument) names the key, the value and the nearest known key; Error(unsupported)
// a key or value that this version does not serve.
EngineConfig parse_engine_config(std::string_view json);

// A text of the caller for a message: in quotes, with JSON's escapes (a NUL would end the message).
std::string in_quotes(std::string_view text);

}  // namespace orlop::api
