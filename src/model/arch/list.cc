// The explicit list of decoder families: one line each.
#include "model/arch/declare.h"

namespace orlop {
namespace {
constexpr const Arch* list[] = {
    &arch::llama,
    &arch::mistral,
    &arch::qwen2,
    &arch::qwen3,
};
}  // namespace

std::span<const Arch* const> all_archs() { return list; }

const Arch* find_arch(std::string_view name) {
  for (const Arch* arch : list)
    if (name == arch->name) return arch;
  return nullptr;
}

}  // namespace orlop
