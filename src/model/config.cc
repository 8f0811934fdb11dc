// Hyperparameters, whatever kind of checkpoint states them: what both kinds are held to.
#include "model/config.h"

#include <algorithm>

#include "base/error.h"
#include "model/config_read.h"

namespace orlop {

void add_eos(Config& c, int64_t id, const std::string& file, const char* key) {
  if (id < 0) return;  // -1: none
  if (id >= c.vocab)
    fail(Status::bad_format, file, ": ", key, " is ", id, ", the vocabulary has ", c.vocab);
  const int32_t token = static_cast<int32_t>(id);
  if (std::find(c.eos.begin(), c.eos.end(), token) == c.eos.end()) c.eos.push_back(token);
}

std::string base_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t begin = path.find_last_of('/', end);
  const size_t from = begin == std::string::npos ? 0 : begin + 1;
  return path.substr(from, end + 1 - from);
}

void check_config(const Config& c, const std::string& file) {
  if (c.heads % c.kv_heads != 0)
    fail(Status::bad_format, file, ": ", c.heads, " attention heads are no multiple of ",
         c.kv_heads, " key/value heads");
  if (c.head_dim % 2 != 0)
    fail(Status::bad_format, file, ": head_dim is ", c.head_dim, ", an even number is needed");
  if (c.rope.dim < 2 || c.rope.dim > c.head_dim || c.rope.dim % 2 != 0)
    fail(Status::bad_format, file, ": ", c.rope.dim, " elements of a head of ", c.head_dim,
         " are rotated, an even number from 2 is needed");
  if (c.rope.type == RopeConfig::Type::dynamic && c.rope.dim == 2)
    fail(Status::bad_format, file, ": dynamic rotary scaling needs more than 2 rotated elements");
}

Config read_config(const Checkpoint& checkpoint) {
  return checkpoint.kind == Checkpoint::Kind::gguf ? read_gguf_config(checkpoint)
                                                   : read_folder_config(checkpoint);
}

uint64_t matrix_parameters(const Config& c) {
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const uint64_t attention = u(c.head_dim) * u(2 * c.heads + 2 * c.kv_heads);
  return u(c.layers) * u(c.dim) * (attention + 3 * u(c.ffn_dim)) +
         u(c.vocab) * u(c.dim) * (c.tied_embeddings ? 1 : 2);
}

GenerationDefaults read_generation_defaults(const Checkpoint& checkpoint) {
  return checkpoint.kind == Checkpoint::Kind::gguf ? read_gguf_generation_defaults(checkpoint)
                                                   : read_folder_generation_defaults(checkpoint);
}

}  // namespace orlop
