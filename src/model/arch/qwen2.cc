// Qwen2 and Qwen2.5: Llama's form with biases on q, k and v. Yang et al. 2024, arXiv:2407.10671.
#include "model/arch/declare.h"

namespace orlop::arch {
const Arch qwen2 = {.name = "qwen2"};
}  // namespace orlop::arch
