// CPUID leaves and XCR0 bits: Intel SDM volume 2A (CPUID) and volume 1, section 14.3.
#include <cstdlib>

#include "backend/cpu/cpu.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace orlop::cpu {
namespace {

#if defined(__x86_64__)
// Linux saves the tile registers of a process only if it asks, once: arch_prctl(ARCH_REQ_XCOMP_PERM,
// XFEATURE_XTILEDATA) of Documentation/arch/x86/xstate.rst. It holds for threads yet to come, too.
bool tiles_allowed() {
  static const bool allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return allowed;
}
#endif

struct Found {
  bool avx2 = false, avx512 = false, bf16 = false, amx = false;
};

Found find() {
  Found found;
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  const bool osxsave = c >> 27 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
  if (!osxsave) return found;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const bool ymm = (low & 0x06) == 0x06, zmm = (low & 0xe6) == 0xe6;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const unsigned leaves = a;
  // BF16, TILE and INT8 of EDX; XCR0: tile configuration and data.
  const bool tiles = (d >> 22 & 1) && (d >> 24 & 1) && (d >> 25 & 1) && (low & 0x60000) == 0x60000;
  found.avx2 = ymm && fma && f16c && (b >> 5 & 1);
  // F, DQ, BW, VL of EBX and VNNI of ECX.
  found.avx512 = found.avx2 && zmm && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) &&
                 (b >> 31 & 1) && (c >> 11 & 1);
  if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
    found.bf16 = found.avx512 && (a >> 5 & 1);
  found.amx = found.bf16 && tiles && tiles_allowed();
#endif
  return found;
}

}  // namespace

IsaChoice best_isa() {
  const Found found = find();
  if (found.avx512) return {Isa::avx512, found.bf16, true, found.amx};
  if (found.avx2) return {Isa::avx2, false, false};
  return {};
}

IsaChoice isa_named(const std::string& word) {
  const Found found = find();
  if (word == "ref") return {};
  if (word == "avx2" && found.avx2) return {Isa::avx2, false, false};
  if (word == "avx512" && found.avx512) return {Isa::avx512, false, true};
  if (word == "avx512bf16" && found.bf16) return {Isa::avx512, true, true};
  if (word == "amx" && found.amx) return {Isa::avx512, true, true, true};
  if (word == "avx2" || word == "avx512" || word == "avx512bf16" || word == "amx")
    fail(Status::invalid_argument, "ORLOP_ISA: this processor has no \"", word, "\"");
  fail(Status::invalid_argument, "ORLOP_ISA: \"", word,
       "\" is none of ref, avx2, avx512, avx512bf16, amx");
}

IsaChoice chosen_isa() {
  const char* word = std::getenv("ORLOP_ISA");
  return word && *word ? isa_named(word) : best_isa();
}

bool feature(const std::string& name) {
  const Found found = find();
  if (name == "cpu" || name == "ref") return true;
  if (name == "avx2") return found.avx2;
  if (name == "avx512" || name == "avx512vnni") return found.avx512;
  if (name == "avx512bf16") return found.bf16;
  if (name == "amx") return found.amx;
  return false;
}

}  // namespace orlop::cpu
