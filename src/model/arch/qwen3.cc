// Qwen3 (dense): no biases, RMS norm on every query and key head. Yang et al. 2025,
// arXiv:2505.09388.
#include "model/arch/declare.h"

namespace orlop::arch {
const Arch qwen3 = {.name = "qwen3", .qk_norm = true};
}  // namespace orlop::arch
