// Everything that may vary between decoder families, as data. A family is one declaration in
// arch/NAME.cc and one line in arch/list.cc; the forward pass is written once (forward.cc).
#pragma once
#include <span>
#include <string_view>

namespace orlop {

struct Arch {
  const char* name;            // Config::arch
  bool qk_norm = false;        // RMS norm over head_dim of every query and key head (Qwen3)
  // GGUF files of this family keep the rows of q and k in the order of the original release
  // (rotary pairs side by side); ours are Hugging Face's (pairs half a head apart).
  bool gguf_pairs_adjacent = false;
};

// Null when the name is not known.
const Arch* find_arch(std::string_view name);
std::span<const Arch* const> all_archs();

}  // namespace orlop
