// Linear layers of a model of 1.2 billion weights (hidden 2048, 8192 inside the feed-forward layers)
// on a processor with AMX, beside what it can do at most: tile products with nothing to load, and
// reading memory; both by the same threads, measured before each group of cases.
//   bench_ops_amx [threads] [prefill|decode|host|all] [case, as far as printed: a8, "w4    g128"]
// ORLOP_ISA=avx512bf16 shows the same without AMX.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <immintrin.h>

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

#include "backend/cpu/amx_tiles.inl"

struct Memory {
  explicit Memory(size_t n) : bytes((n + (2u << 20)) >> 21 << 21) {
    p = static_cast<unsigned char*>(std::aligned_alloc(2 << 20, bytes));
    madvise(p, bytes, MADV_HUGEPAGE);
  }
  ~Memory() { std::free(p); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  unsigned char* p;
  size_t bytes;
};

constexpr int peak_steps = 20000;
template <bool Bf16>
void peak_body(const void*, int64_t, int64_t, int) {
  TileConfig c;
  for (int t = 0; t < 8; ++t) c.bytes[t] = 64, c.rows[t] = 16;
  tile_config(c);
  alignas(64) unsigned char data[1024];
  for (int i = 0; i < 1024; ++i) data[i] = static_cast<unsigned char>(Bf16 ? (i % 2 ? 0x3f : i) : i * 37);
  tile_load<4>(data, 64), tile_load<5>(data, 64), tile_load<6>(data, 64), tile_load<7>(data, 64);
  tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  for (int i = 0; i < peak_steps; ++i) {
    if constexpr (Bf16)
      tile_bf16<0, 4, 6>(), tile_bf16<1, 4, 7>(), tile_bf16<2, 5, 6>(), tile_bf16<3, 5, 7>();
    else
      tile_signed<0, 4, 6>(), tile_signed<1, 4, 7>(), tile_signed<2, 5, 6>(), tile_signed<3, 5, 7>();
  }
  tile_release();
}
double peak(cpu::ThreadPool& pool, bool bf16, int times = 8) {  // operations a second
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    const double t = now();
    pool.run(bf16 ? peak_body<true> : peak_body<false>, nullptr, pool.size());
    best = std::min(best, now() - t);
  }
  return 4.0 * peak_steps * pool.size() * 16 * 16 * (bf16 ? 32 : 64) * 2 / best;
}

[[gnu::target("avx512f")]] void read_all(const void* p, int64_t begin, int64_t end, int) {
  const unsigned char* from = static_cast<const Memory*>(p)->p;
  __m512i sum[8] = {};
  for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i * 512 + 64 * j + 4096), _MM_HINT_T0);
      sum[j] = _mm512_xor_si512(sum[j], _mm512_load_si512(from + i * 512 + 64 * j));
    }
  }
  for (auto& v : sum) asm volatile("" : : "v"(v));
}
double bandwidth(cpu::ThreadPool& pool, const Memory& m, int times) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    const double t = now();
    pool.run(read_all, &m, static_cast<int64_t>(m.bytes / 512));
    best = std::min(best, now() - t);
  }
  return static_cast<double>(m.bytes) / best;
}

class Codes final : public QuantRows {
 public:
  Codes(int64_t k, int32_t group, int bits)
      : k_(k), shares_(group ? (k + group - 1) / group : 1), mask_(static_cast<uint32_t>((1 << bits) - 1)) {}
  void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
    uint32_t v = static_cast<uint32_t>(r) * 2654435761u + 12345;
    for (int64_t i = 0; i < k_; ++i) v = v * 1664525u + 1013904223u, code[i] = static_cast<uint8_t>(v >> 20 & mask_);
    for (int64_t i = 0; i < shares_; ++i) scale[i] = min[i] = 0.01f;
  }

 private:
  int64_t k_, shares_;
  uint32_t mask_;
};

struct Case {
  FileType type;
  int32_t group;
  Compute compute;
};
struct Layer {
  LinearDesc desc;
  Memory packed;
  static LinearDesc describe(const Case& c, int64_t k, int64_t n, bool gated) {
    LinearDesc d;
    d.k = k;
    d.part_count = gated ? 2 : 1;
    d.type[0] = d.type[1] = c.type;
    d.group[0] = d.group[1] = c.group;
    d.part_n[0] = d.part_n[1] = n;
    d.glu = gated ? Glu::silu : Glu::none;
    d.compute = c.compute;
    return d;
  }
  Layer(const Case& c, int64_t k, int64_t n, bool gated, cpu::ThreadPool& pool)
      : desc(describe(c, k, n, gated)), packed(cpu::linear_bytes(desc)) {
    const FileTypeInfo& f = info(c.type);
    const Codes codes(k, c.group, f.block_elems == 1 || format_info(c.type).code_bits == 8 ? 8 : 4);
    std::vector<unsigned char> row(static_cast<size_t>(k / f.block_elems * f.block_bytes));
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<unsigned char>((i * 37 + i / 64) & 0x3b);
    struct Args {
      Layer* layer;
      LinearSource source;
    } args{this, {}};
    args.source.rows[0] = args.source.rows[1] = row.data();
    args.source.quant[0] = args.source.quant[1] = &codes;
    pool.run([](const void* p, int64_t begin, int64_t end, int) {
      const Args& a = *static_cast<const Args*>(p);
      cpu::linear_pack(a.layer->desc, a.source, begin, end, a.layer->packed.p);
    }, &args, cpu::linear_tiles(desc));
  }
  double macs(int64_t m) const { return static_cast<double>(m * desc.k * desc.n()) * (desc.glu != Glu::none ? 2 : 1); }
};
const char* label(const Case& c) {
  static char text[64];
  std::snprintf(text, sizeof text, "%-5s g%-3d %-4s", info(c.type).name, c.group, name(c.compute));
  return text;
}

struct Run {
  cpu::ThreadPool& pool;
  Kernels kernels = cpu::make_kernels(cpu::chosen_isa());
  std::vector<float> x, out;
  Memory work;
  Run(cpu::ThreadPool& p, int64_t m)
      : pool(p), x(static_cast<size_t>(m * 8192)), out(static_cast<size_t>(m * 16384)), work(size_t{128 << 20}) {
    uint32_t v = 1;
    for (float& f : x) v = v * 1664525u + 1013904223u, f = static_cast<float>(static_cast<int32_t>(v)) * 0x1p-31f;
  }
  void operator()(const Layer& l, int64_t m) {
    const Exec exec{&kernels, nullptr, &pool};
    kernels.matmul(exec, {&l.desc, l.packed.p, x.data(), l.desc.k, out.data(), l.desc.n(), m, nullptr, false, work.p});
  }
};

void prefill(cpu::ThreadPool& pool, const Case& c, int64_t m) {
  Run run(pool, m);
  double total = 0, macs = 0, most = 0;
  std::printf("%s m %3d ", label(c), int(m));
  struct Size {
    int64_t k, n;
    bool gated;
  };
  constexpr Size sizes[] = {{2048, 8192, true},  {8192, 2048, false}, {2048, 3072, false},
                            {2048, 2048, false}, {2048, 32, false},   {8192, 32, false}};
  for (const Size& s : sizes) {
    const Layer l(c, s.k, s.n, s.gated, pool);
    double best = 1e9;
    const double begin = now();
    for (int i = 0; i < 60 && (i < 5 || now() - begin < 0.15); ++i) {
      const double t = now();
      run(l, m);
      best = std::min(best, now() - t);
      if (i % 4 == 0) most = std::max(most, peak(pool, c.compute == Compute::bf16, 1));
    }
    std::printf("| %5.0f us %5.2f", best * 1e6, 2e-12 * l.macs(m) / best);
    if (s.n > 32) total += best, macs += l.macs(m);
  }
  std::printf("| all %5.2f TOP/s %5.1f %% of %.1f\n", 2e-12 * macs / total, 200 * macs / total / most, 1e-12 * most);
  std::fflush(stdout);
}

// All layers once, one after the other: nothing is left in a cache from the last time.
void decode(cpu::ThreadPool& pool, const Case& c, int layers) {
  std::vector<Layer*> all;
  double bytes = 0;
  for (int i = 0; i < layers; ++i) {
    all.push_back(new Layer(c, 2048, 3072, false, pool));
    all.push_back(new Layer(c, 2048, 2048, false, pool));
    all.push_back(new Layer(c, 2048, 8192, true, pool));
    all.push_back(new Layer(c, 8192, 2048, false, pool));
  }
  for (const Layer* l : all) bytes += static_cast<double>(cpu::linear_bytes(l->desc));
  Run run(pool, 64);
  const Memory area(size_t{1} << 30);
  std::memset(area.p, 1, area.bytes);
  std::printf("%s %d layers, %.0f MB ", label(c), layers, bytes * 1e-6);
  for (const int64_t m : {1, 4, 8, 16, 32}) {
    double best = 1e9, most = 0;
    for (int i = 0; i < 6; ++i) {
      const double t = now();
      for (const Layer* l : all) run(*l, m);
      best = std::min(best, now() - t);
      if (i < 3) most = std::max(most, bandwidth(pool, area, 1));
    }
    std::printf("| m %2d %6.2f ms %5.1f GB/s %5.1f %%", int(m), best * 1e3, 1e-9 * bytes / best,
                100 * bytes / best / most);
    if (m == 32) std::printf(" of %.0f\n", 1e-9 * most);
  }
  std::fflush(stdout);
  for (const Layer* l : all) delete l;
}

void host(cpu::ThreadPool& pool) {
  double best = 1e9, sum = 0;
  const auto nothing = [](const void*, int64_t, int64_t, int) {};
  for (int i = 0; i < 2000; ++i) {
    const double t = now();
    pool.run(nothing, nullptr, pool.size());
    best = std::min(best, now() - t), sum += now() - t;
  }
  Memory area(size_t{1} << 30);
  struct Fill {
    unsigned char* p;
  } fill{area.p};
  pool.run([](const void* p, int64_t begin, int64_t end, int) {
    std::memset(static_cast<const Fill*>(p)->p + (begin << 20), 1, static_cast<size_t>(end - begin) << 20);
  }, &fill, 1024);
  std::printf("threads %2d: fork and join %.1f us (least %.1f), reads %.1f GB/s, tiles int8 %.2f TOP/s, bf16 %.2f\n",
              pool.size(), sum / 2000 * 1e6, best * 1e6, 1e-9 * bandwidth(pool, area, 6), 1e-12 * peak(pool, false),
              1e-12 * peak(pool, true));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (!cpu::feature("amx")) {
    std::puts("this processor has no AMX, or the system does not let it be used");
    return 1;
  }
  const int threads = argc > 1 ? std::atoi(argv[1]) : cpu::default_threads().threads;
  const std::string what = argc > 2 ? argv[2] : "all";
  const char* only = argc > 3 ? argv[3] : nullptr;
  using enum FileType;
  if (what == "host" || what == "all") {
    for (int t = 1; t < threads; t *= 2) {
      cpu::ThreadPool few(t);
      host(few);
    }
  }
  cpu::ThreadPool pool(threads);
  host(pool);
  constexpr Case cases[] = {{w8, 0, Compute::a8},      {w4, 0, Compute::a8},    {w4, 128, Compute::a8},
                            {w4z, 64, Compute::a8},    {w4, 32, Compute::a8},   {w8, 0, Compute::int8},
                            {w4, 128, Compute::int8},  {w4, 32, Compute::int8}, {q4_0, 0, Compute::int8},
                            {q8_0, 0, Compute::int8},  {q4_k, 0, Compute::int8}, {bf16, 0, Compute::bf16},
                            {w8, 0, Compute::bf16},    {w4, 128, Compute::bf16}, {q4_0, 0, Compute::bf16},
                            {f8, 128, Compute::bf16}};
  if (what == "prefill" || what == "all") {
    std::puts("prefill: 2048 -> 2 x 8192 | 8192 -> 2048 | 2048 -> 3072 | 2048 -> 2048 | rows of 2048, 8192 prepared");
    for (const Case& c : cases)
      for (const int64_t m : {512, 128})
        if ((m == 512 || c.group == 0) && (!only || std::strstr(label(c), only))) prefill(pool, c, m);
  }
  if (what == "decode" || what == "all")
    for (const Case& c : {Case{w8, 0, Compute::a8}, {w4, 128, Compute::a8}, {w8, 0, Compute::int8},
                          {w4, 128, Compute::int8}, {w4, 32, Compute::int8}, {q4_0, 0, Compute::int8},
                          {q8_0, 0, Compute::int8}, {bf16, 0, Compute::bf16}, {w4, 128, Compute::bf16}})
      if (!only || std::strstr(label(c), only)) decode(pool, c, c.type == bf16 ? 4 : 8);
}
