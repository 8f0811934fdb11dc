// What every accepted input must hold. A broken rule traps, so that the fuzzer reports it.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/error.h"
#include "format/checkpoint.h"
#include "model/config.h"

namespace orlop::fuzz {

inline void require(bool rule) {
  if (!rule) __builtin_trap();
}

// Runs f; a typed error is a good answer, an internal one is not. Other exceptions end the run.
template <class F>
void orderly(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    require(e.status() == Status::bad_format || e.status() == Status::unsupported);
    require(!e.text().empty());
  }
}

inline void check_tensor(const FileTensor& t) {
  uint64_t elements = 1;
  for (int64_t n : t.shape) {
    require(n > 0);
    elements *= static_cast<uint64_t>(n);
  }
  require(t.data.size() == elements / info(t.type).block_elems * info(t.type).block_bytes);
  unsigned sum = 0;
  for (std::byte b : t.data) sum += static_cast<unsigned>(b);
  volatile unsigned sink = sum;
  (void)sink;
}

inline void check_config(const Checkpoint& checkpoint) {
  const Config c = read_config(checkpoint);
  require(c.layers >= 1 && c.layers <= 1000 && c.dim >= 1 && c.dim <= 1 << 20);
  require(c.vocab >= 1 && c.vocab <= 1 << 24 && c.heads >= 1 && c.kv_heads >= 1);
  require(c.heads % c.kv_heads == 0 && c.head_dim >= 2 && c.head_dim % 2 == 0);
  require(c.head_dim <= 4096 && c.ffn_dim >= 1 && c.max_position >= 1);
  require(c.norm_eps > 0 && c.norm_eps < 1 && c.window >= 0);
  require(c.layer_window.size() == static_cast<size_t>(c.layers));
  for (uint8_t w : c.layer_window) require(w == 0 || (w == 1 && c.window > 0));
  require(c.bos >= -1 && c.bos < c.vocab && c.pad >= -1 && c.pad < c.vocab);
  for (int32_t id : c.eos) require(id >= 0 && id < c.vocab);
  require(c.rope.dim >= 2 && c.rope.dim <= c.head_dim && c.rope.dim % 2 == 0);
  for (int32_t context : {1, c.max_position}) {
    const RopeFrequencies f = rope_frequencies(c.rope, c.max_position, context);
    require(f.inv_freq.size() == static_cast<size_t>(c.rope.dim / 2));
    for (float v : f.inv_freq) require(std::isfinite(v) && v >= 0);
    require(std::isfinite(f.scale));
  }
  const GenerationDefaults d = read_generation_defaults(checkpoint);
  require(d.temperature >= 0 && d.top_p >= 0 && d.top_p <= 1 && d.top_k >= 0);
  require(d.min_p >= 0 && d.min_p <= 1 && d.repetition_penalty > 0);
}

}  // namespace orlop::fuzz
