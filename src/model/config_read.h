// Shared by config.cc, config_folder.cc and config_gguf.cc: bounds that both kinds of file are held to.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>

#include "format/json_keys.h"
#include "model/config.h"

namespace orlop {

constexpr int64_t max_layers = 1000;
constexpr int64_t max_dim = int64_t{1} << 20;
constexpr int64_t max_heads = 4096;
constexpr int64_t max_head_dim = 4096;
constexpr int64_t max_ffn_dim = int64_t{1} << 22;
constexpr int64_t max_vocab = int64_t{1} << 24;
constexpr int64_t max_positions = int64_t{1} << 30;
constexpr int64_t max_eos = 64;
constexpr double max_theta = 1e15;
constexpr double max_factor = 1e6;

Config read_gguf_config(const Checkpoint& checkpoint);
Config read_folder_config(const Checkpoint& checkpoint);
GenerationDefaults read_folder_generation_defaults(const Checkpoint& checkpoint);
GenerationDefaults read_gguf_generation_defaults(const Checkpoint& checkpoint);
// What follows from the fields together: head counts, rotary size, window flags, ids.
void check_config(const Config& config, const std::string& file);
// Adds an id once.
void add_eos(Config& config, int64_t id, const std::string& file, const char* key);

// The last part of a path, for a name where the files give none.
std::string base_name(const std::string& path);

}  // namespace orlop
