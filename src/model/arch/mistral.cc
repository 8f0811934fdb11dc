// Mistral 7B with and without sliding window. Jiang et al. 2023, arXiv:2310.06825.
#include "model/arch/declare.h"

namespace orlop::arch {
const Arch mistral = {.name = "mistral", .gguf_pairs_adjacent = true};
}  // namespace orlop::arch
