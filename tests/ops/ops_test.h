// Shared by the op tests: every ISA this machine has, thread pools, random data, comparisons.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/threads.h"
#include "../check.h"

namespace orlop::test {

struct IsaUnderTest {
  const char* name;
  Kernels kernels;
};

// ref first.
inline const std::vector<IsaUnderTest>& isas() {
  static const std::vector<IsaUnderTest> all = [] {
    std::vector<IsaUnderTest> list;
    const cpu::IsaChoice best = cpu::best_isa();
    Kernels k{};
    cpu::fill_ops_ref(k);
    list.push_back({"ref", k});
#if defined(__x86_64__)
    if (best.level >= cpu::Isa::avx2) {
      cpu::fill_ops_avx2(k);
      list.push_back({"avx2", k});
    }
    if (best.level >= cpu::Isa::avx512) {
      cpu::fill_ops_avx512(k, false);
      list.push_back({"avx512", k});
    }
    if (best.bf16) {
      cpu::fill_ops_avx512(k, true);
      list.push_back({"avx512bf16", k});
    }
#elif defined(__aarch64__)
    if (best.level >= cpu::Isa::neon) {
      cpu::fill_ops_neon(k);
      list.push_back({"neon", k});
    }
#endif
    // Emulated processors: the reference is the same code everywhere, and slow.
    if (std::getenv("ORLOP_TEST_ISA") && list.size() > 1) list.erase(list.begin());
    std::printf("kernels:");
    for (const IsaUnderTest& isa : list) std::printf(" %s", isa.name);
    std::printf("\n");
    return list;
  }();
  return all;
}

inline cpu::ThreadPool& pool(int threads) {
  static std::unique_ptr<cpu::ThreadPool> pools[5];
  auto& p = pools[threads];
  if (!p) p = std::make_unique<cpu::ThreadPool>(threads);
  return *p;
}

inline Exec exec(const IsaUnderTest& isa, int threads) {
  return {&isa.kernels, nullptr, &pool(threads)};
}

struct Random {
  std::mt19937 engine;
  explicit Random(uint32_t seed) : engine(seed) {}
  float normal(float sigma = 1.0f) {
    return std::normal_distribution<float>(0.0f, sigma)(engine);
  }
  int below(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  std::vector<float> normals(size_t n, float sigma = 1.0f) {
    std::vector<float> v(n);
    for (float& x : v) x = normal(sigma);
    return v;
  }
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace orlop::test
