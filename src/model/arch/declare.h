// The families, for arch/list.cc and the families' own files.
#pragma once
#include "model/arch.h"

namespace orlop::arch {
extern const Arch llama, mistral, qwen2, qwen3;
}  // namespace orlop::arch
