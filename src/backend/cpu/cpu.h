// What the CPU backend's files know of each other.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop::cpu {

enum class Isa { ref, avx2, avx512, neon };
constexpr const char* name(Isa isa) {
  return isa == Isa::neon ? "neon" : isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "ref";
}

// The kernels to use and the extensions they may count on.
struct IsaChoice {
  Isa level = Isa::ref;
  bool bf16 = false;  // avx512 only: VDPBF16PS
  bool vnni = false;  // avx512 only, and then always true: VPDPBUSD
  bool amx = false;   // avx512 with bf16 only: tiles, int8 and bf16; the system saves them
  bool dot = false;   // neon only: SDOT
  bool i8mm = false;  // neon with dot only: USDOT, SMMLA, BFDOT
  bool sve = false;   // neon only: SVE, whatever the length of its vectors
};

// The best this processor and operating system allow.
IsaChoice best_isa();
// As best_isa, or lower if ORLOP_ISA says so: ref, avx2, avx512, avx512bf16, amx (avx512 leaves
// BF16 instructions out, avx512bf16 AMX); on ARM ref, neon, neondot, i8mm, sve.
// Error(invalid_argument) on any other word or on more than there is.
IsaChoice chosen_isa();
IsaChoice isa_named(const std::string& word);

// A complete table.
Kernels make_kernels(const IsaChoice& isa);

std::unique_ptr<Device> make_device();
std::unique_ptr<Backend> make_backend(int threads);  // 0: default_threads()
bool feature(const std::string& name);

}  // namespace orlop::cpu
