// Llama 2 and 3.x, and every checkpoint of that form (SmolLM2, Mistral as GGUF, …).
// Touvron et al. 2023, arXiv:2307.09288; Grattafiori et al. 2024, arXiv:2407.21783.
#include "model/arch/declare.h"

namespace orlop::arch {
const Arch llama = {.name = "llama", .gguf_pairs_adjacent = true};
}  // namespace orlop::arch
