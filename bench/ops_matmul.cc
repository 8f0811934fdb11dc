// Speed of linear layers against what this machine can do, both measured in this process and in
// turns: multiply-add throughput (vpdpbusd, vdpbf16ps, f32 fma) and read bandwidth.
//   bench_ops_matmul [gemm|gemv|cached|all] [threads] [m] [type]
// Times are the least of several short runs, so other work on the machine shows as little as can be.
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/threads.h"
#include "base/half.h"
#include "base/quant_rows.h"
#include "ops/format.h"
#include "timing.h"

using namespace orlop;
using namespace orlop::timing;

namespace {

struct Memory {
  explicit Memory(size_t n) : p(static_cast<unsigned char*>(std::aligned_alloc(1 << 21, (n >> 21 << 21) + (2 << 21)))), bytes(n) {
    std::memset(p, 1, n);
  }
  ~Memory() { std::free(p); }
  unsigned char* p;
  size_t bytes;
};

constexpr int peak_steps = 20000;
[[gnu::target("avx512f,avx512vnni")]] void peak_int8(const void*, int64_t, int64_t, int) {
  __m512i a[12], b = _mm512_set1_epi8(1);
  for (auto& v : a) v = _mm512_setzero_si512();
  for (int i = 0; i < peak_steps; ++i) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm512_dpbusd_epi32(v, b, b);
    asm volatile("" : "+v"(b));
  }
  for (auto& v : a) asm volatile("" : : "v"(v));
}
[[gnu::target("avx512f,avx512bf16")]] void peak_bf16(const void*, int64_t, int64_t, int) {
  __m512 a[12];
  __m512i b = _mm512_set1_epi16(0x3f80);
  for (auto& v : a) v = _mm512_setzero_ps();
  for (int i = 0; i < peak_steps; ++i) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm512_dpbf16_ps(v, (__m512bh)b, (__m512bh)b);
    asm volatile("" : "+v"(b));
  }
  for (auto& v : a) asm volatile("" : : "v"(v));
}
[[gnu::target("avx512f")]] void peak_fp32(const void*, int64_t, int64_t, int) {
  __m512 a[12], b = _mm512_set1_ps(1);
  for (auto& v : a) v = _mm512_setzero_ps();
  for (int i = 0; i < peak_steps; ++i) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm512_fmadd_ps(b, b, v);
    asm volatile("" : "+v"(b));
  }
  for (auto& v : a) asm volatile("" : : "v"(v));
}
[[gnu::target("avx512f")]] void read_all(const void* p, int64_t begin, int64_t end, int) {
  const unsigned char* from = static_cast<const Memory*>(p)->p;
  __m512i sum[8] = {};
  for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i * 512 + 64 * j + 2048), _MM_HINT_T0);
      sum[j] = _mm512_xor_si512(sum[j], _mm512_load_si512(from + i * 512 + 64 * j));
    }
  }
  for (auto& v : sum) asm volatile("" : : "v"(v));
}

double peak(cpu::ThreadPool& pool, Compute c, bool floats) {  // multiply-adds a second, all threads
  const bool ints = (c == Compute::int8 || c == Compute::a8) && !floats;
  const auto body = c == Compute::fp32 ? peak_fp32 : ints ? peak_int8 : peak_bf16;
  const double t = now();
  pool.run(body, nullptr, pool.size());
  return (c == Compute::fp32 ? 16 : ints ? 64 : 32) * 12.0 * peak_steps * pool.size() / (now() - t);
}

struct Case {
  FileType type;
  int64_t k, n;
  Glu glu;
  int32_t group = 0;  // types with scales of their own
};

// Every row the same.
class SameRows final : public QuantRows {
 public:
  SameRows(int64_t k, int32_t group) : k_(k), shares_(group ? (k + group - 1) / group : 1) {}
  void row(int64_t, uint8_t* code, float* scale, float* min) const override {
    for (int64_t i = 0; i < k_; ++i) code[i] = static_cast<uint8_t>((i * 37) & 15);
    for (int64_t i = 0; i < shares_; ++i) scale[i] = min[i] = 0.01f;
  }

 private:
  int64_t k_, shares_;
};

void bench(cpu::ThreadPool& pool, const Case& c, Compute compute, int64_t m, bool bandwidth) {
  const bool pair = c.glu != Glu::none;
  LinearDesc d;
  d.k = c.k;
  d.part_count = pair ? 2 : 1;
  d.type[0] = d.type[1] = c.type;
  d.part_n[0] = d.part_n[1] = c.n;
  d.glu = c.glu;
  d.compute = compute;
  d.group[0] = d.group[1] = c.group;
  const SameRows same(c.k, c.group);
  const FileTypeInfo& f = info(c.type);
  std::vector<unsigned char> row(static_cast<size_t>(c.k / f.block_elems * f.block_bytes));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<unsigned char>((i * 37) & 0x3f);
  LinearSource source;  // every row the same: row_bytes 0
  source.rows[0] = source.rows[1] = row.data();
  source.quant[0] = source.quant[1] = &same;
  Memory packed(cpu::linear_bytes(d));
  cpu::linear_pack(d, source, 0, cpu::linear_tiles(d), packed.p);
  std::vector<float> x(static_cast<size_t>(m * c.k)), out(static_cast<size_t>(m * c.n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 6;
  Memory work(cpu::matmul_workspace(d, m));
  const cpu::IsaChoice isa = cpu::chosen_isa();
  const Kernels kernels = cpu::make_kernels(isa);
  const Exec exec{&kernels, nullptr, &pool};
  const MatmulArgs args{&d, packed.p, x.data(), c.k, out.data(), c.n, m, nullptr, false, work.p};
  double best = 1e30, limit = 0;
  const double begin = now();
  for (int i = 0; i < 25 && (i < 4 || now() - begin < 0.6); ++i) {
    const int repeat = packed.bytes < (1 << 20) && m == 1 ? 20 : 1;
    const double t = now();
    for (int j = 0; j < repeat; ++j) kernels.matmul(exec, args);
    best = std::min(best, (now() - t) / repeat);
    if (bandwidth) {
      const double r = now();
      pool.run(read_all, &packed, static_cast<int64_t>(packed.bytes / 512));
      limit = std::max(limit, static_cast<double>(packed.bytes) / (now() - r));
    } else {
      limit = std::max(limit, peak(pool, compute, is_float(c.type)));
    }
  }
  const double macs = static_cast<double>(m * c.n * c.k) * (pair ? 2 : 1) / best;
  const double bytes = static_cast<double>(packed.bytes) / best;
  std::printf("%-6s %3d %-5s m %3d k %5d n %6d%s  %8.1f us  %7.1f GOPS  %6.2f GB/s  %5.1f %% of %.1f %s\n",
              f.name, c.group, name(compute), int(m), int(c.k), int(c.n), pair ? "x2" : "  ", best * 1e6,
              2e-9 * macs, 1e-9 * bytes, 100 * (bandwidth ? bytes : macs) / limit,
              limit * (bandwidth ? 1e-9 : 2e-9), bandwidth ? "GB/s" : "GOPS");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cpu::ThreadPool pool(argc > 2 ? std::atoi(argv[2]) : 2);
  const int64_t m = argc > 3 ? std::atoi(argv[3]) : 512;
  alone = pool.size() == 1;
  std::printf("threads %d%s\n", pool.size(), alone ? ", CPU time" : "");
  using enum FileType;
  const std::string only = argc > 4 ? argv[4] : "";
  const auto wanted = [&](FileType t) { return only.empty() || only == info(t).name; };
  const auto fits = [](FileType t, Compute c) {  // computed as it says
    if (is_float(t) || t == f8) return c == Compute::bf16 || c == Compute::fp32;
    return c != Compute::a8 || has_groups(t);
  };
  constexpr Compute computes[] = {Compute::int8, Compute::a8, Compute::bf16, Compute::fp32};
  constexpr FileType types[] = {q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, bf16, f32, f8, w4, w4z, w8, w8z};
  const auto group_of = [](FileType t) { return !has_groups(t) ? 0 : t == w8 || t == w8z ? 0 : 128; };
  for (const FileType t : types) {
    for (const Compute compute : computes) {
      if (!wanted(t) || !fits(t, compute)) continue;
      const int32_t group = group_of(t);
      if (what == "cached") {  // weights in the second-level cache: what the kernel itself can eat
        bench(pool, {t, 1024, is_float(t) ? 128 : 512, Glu::none, group}, compute, 1, true);
        continue;
      }
      if (what != "gemv" && compute != Compute::fp32) {
        bench(pool, {t, 512, 1536, Glu::silu, group}, compute, m, false);
        bench(pool, {t, 1536, 576, Glu::none, group}, compute, m, false);
        bench(pool, {t, 2048, 8192, Glu::silu, group}, compute, m, false);
        bench(pool, {t, 8192, 2048, Glu::none, group}, compute, m, false);
      }
      if (what != "gemm") bench(pool, {t, 4096, is_float(t) ? 8192 : 32768, Glu::none, group}, compute, 1, true);
    }
  }
}
