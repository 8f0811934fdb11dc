// CPUID leaves and XCR0 bits: Intel SDM volume 2A (CPUID) and volume 1, section 14.3. ARM: the bits of
// AT_HWCAP and AT_HWCAP2 in Linux's Documentation/arch/arm64/elf_hwcaps.rst.
#include <cstdlib>

#include "backend/cpu/cpu.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
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
  bool neon = false, dot = false, i8mm = false, sve = false;
  int sve_bytes = 0;  // of a vector
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
#ifdef ORLOP_WITHOUT_AVX512
  found.avx512 = false;  // those kernels were left out
#endif
  if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
    found.bf16 = found.avx512 && (a >> 5 & 1);
  found.amx = found.bf16 && tiles && tiles_allowed();
#elif defined(__aarch64__)
  const unsigned long caps = getauxval(16), caps2 = getauxval(26);  // AT_HWCAP, AT_HWCAP2
  found.neon = caps >> 1 & 1;                                      // ASIMD
  found.dot = found.neon && (caps >> 20 & 1);                      // ASIMDDP
  found.i8mm = found.dot && (caps2 >> 13 & 1) && (caps2 >> 14 & 1);  // I8MM, BF16
  found.sve = found.neon && (caps >> 22 & 1);
  if (found.sve) {
    const int length = prctl(51);  // PR_SVE_GET_VL: of this thread, with flags above 16 bits
    found.sve_bytes = length < 0 ? 0 : length & 0xffff;
    found.sve = found.sve_bytes >= 16;
  }
#endif
  return found;
}

IsaChoice neon(bool dot, bool i8mm, bool sve) {
  IsaChoice choice{Isa::neon};
  choice.dot = dot;
  choice.i8mm = i8mm;
  choice.sve = sve;
  return choice;
}

}  // namespace

IsaChoice best_isa() {
  const Found found = find();
  if (found.avx512) return {Isa::avx512, found.bf16, true, found.amx};
  if (found.avx2) return {Isa::avx2, false, false};
  // SVE as such gains over NEON what its vectors are longer; USMMLA and BFMMLA do twice and four times
  // the products of a vector of 128 bits.
  if (found.sve_bytes > (found.i8mm ? 32 : 16)) return neon(found.dot, found.i8mm, true);
  if (found.neon) return neon(found.dot, found.i8mm, false);
  return {};
}

IsaChoice isa_named(const std::string& word) {
  const Found found = find();
  if (word == "ref") return {};
  if (word == "avx2" && found.avx2) return {Isa::avx2, false, false};
  if (word == "avx512" && found.avx512) return {Isa::avx512, false, true};
  if (word == "avx512bf16" && found.bf16) return {Isa::avx512, true, true};
  if (word == "amx" && found.amx) return {Isa::avx512, true, true, true};
  if (word == "neon" && found.neon) return neon(false, false, false);
  if (word == "neondot" && found.dot) return neon(true, false, false);
  if (word == "i8mm" && found.i8mm) return neon(true, true, false);
  if (word == "sve" && found.sve) return neon(found.dot, found.i8mm, true);
  for (const char* known : {"avx2", "avx512", "avx512bf16", "amx", "neon", "neondot", "i8mm", "sve"})
    if (word == known)
      fail(Status::invalid_argument, "ORLOP_ISA: this processor (or this build) has no \"", word, "\"");
  fail(Status::invalid_argument, "ORLOP_ISA: \"", word,
       "\" is none of ref, avx2, avx512, avx512bf16, amx, neon, neondot, i8mm, sve");
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
  if (name == "neon") return found.neon;
  if (name == "neondot") return found.dot;
  if (name == "i8mm") return found.i8mm;
  if (name == "sve") return found.sve;
  return false;
}

}  // namespace orlop::cpu
