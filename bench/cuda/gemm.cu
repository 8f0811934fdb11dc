// Products of many rows: right against double on samples, and how fast, alone and as a layer's chain, on one
// GPU. Built with the plugin's files; libcublasLt must be where the plugin finds it.
//   gemm [check|mixed|layer|time]   (all if none is named)
#include "gemm_check.cuh"

namespace {

// ---- time --------------------------------------------------------------------------------------

// Microseconds of what `put` adds to the list, `times` over, as one graph; the median of seven.
template <class Put>
double time_of(Context* c, int times, Put put) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> all;
  PluginStatus status;
  for (int round = 0; round < 9; ++round) {
    for (int i = 0; i < times; ++i) put(i);
    must(cudaEventRecord(begin, c->stream), "record");
    c->launches.run(c->stream, &status);
    must(cudaEventRecord(end, c->stream), "record");
    must(cudaEventSynchronize(end), "timing");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (round >= 2) all.push_back(ms);
  }
  if (status.code) std::printf("timing: %s\n", status.text);
  std::sort(all.begin(), all.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return all[all.size() / 2] * 1e3 / times;
}

struct Shape5 {
  int64_t n, k;
};
constexpr Shape5 shapes[] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}};
constexpr int64_t many_m[] = {64, 128, 256, 450, 1024, 2048, 4096};

void time_products(Context* c) {
  const size_t pool_bytes = size_t{2} << 30;
  unsigned char* pool = room<unsigned char>(pool_bytes);
  unsigned char* x = room<unsigned char>(size_t{4096} * 14336 * 2);
  unsigned char* out = room<unsigned char>(size_t{4096} * 128256 * 4);
  float* scales = room<float>(131072);
  fill_floats<<<64, 256>>>(scales, 131072, 3, 0.001f, 0.01f);
  Products* p = products(c);
  const struct {
    const char* name;
    Elem elem;
    Raw raw;
    int accumulate;
    double ceiling;
  } kinds[] = {{"bf16 -> f32 +=", Elem::bf16, Raw::f32, 1, 793}, {"bf16 -> f32", Elem::bf16, Raw::f32, 0, 793}, {"bf16 -> bf16", Elem::bf16, Raw::bf16, 0, 793}, {"e4m3 -> f32 +=", Elem::e4m3, Raw::f32, 1, 1400},
               {"e4m3 -> bf16", Elem::e4m3, Raw::bf16, 0, 1400}, {"i8 -> i32", Elem::i8, Raw::i32, 0, 928}};
  std::printf("products alone: microseconds (TFLOP/s, share of the ceiling measured)\n%-15s %14s", "", "n x k");
  for (const int64_t m : many_m) std::printf("        m %5lld", static_cast<long long>(m));
  std::printf("\n");
  for (const auto& kind : kinds) {
    if (kind.elem == Elem::bf16) {
      fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(pool), pool_bytes / 2, 1, 0.03f);
      fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(x), 4096 * 14336, 2, 1.0f);
    } else {
      fill_bytes<<<2048, 256>>>(pool, pool_bytes, 1, kind.elem == Elem::e4m3 ? 0xbf : 0xff);
      fill_bytes<<<2048, 256>>>(x, 4096 * 14336, 2, kind.elem == Elem::e4m3 ? 0xbf : 0xff);
    }
    must(cudaDeviceSynchronize(), "filling");
    double total[std::size(many_m)] = {};
    for (const Shape5& s : shapes) {
      std::printf("%-15s %6lldx%-7lld", kind.name, static_cast<long long>(s.n), static_cast<long long>(s.k));
      for (size_t i = 0; i < std::size(many_m); ++i) {
        const int64_t m = many_m[i];
        GemmArgs g;
        g.elem = kind.elem, g.raw = kind.raw, g.accumulate = kind.accumulate;
        g.m = m, g.n = s.n, g.k = s.k;
        g.x = x, g.out = out, g.x_stride = g.w_stride = s.k, g.out_stride = s.n;
        if (kind.elem == Elem::e4m3) g.x_scales = scales, g.w_scales = scales;
        const int64_t bytes = s.n * s.k * (kind.elem == Elem::bf16 ? 2 : 1);
        const int rotate = static_cast<int>(std::min<int64_t>(8, static_cast<int64_t>(pool_bytes) / bytes));
        g.w = pool;
        if (!gemm_possible(c, p, g)) {
          std::printf("   not possible");
          continue;
        }
        const double us = time_of(c, 8, [&](int r) {
          g.w = pool + r % rotate * bytes;
          gemm(c, p, g);
        });
        const double rate = 2.0 * static_cast<double>(m * s.n * s.k) / us * 1e-6;
        std::printf(" %7.1f %4.0f %.2f", us, rate, rate / kind.ceiling);
        total[i] += us * (s.n == 128256 ? 1 : 32);
      }
      std::printf("\n");
    }
    std::printf("%-15s %14s", kind.name, "8B ms");
    for (const double t : total) std::printf(" %14.2f", t * 1e-3);
    std::printf("\n");
  }
  for (void* q : {static_cast<void*>(pool), static_cast<void*>(x), static_cast<void*>(out), static_cast<void*>(scales)}) cudaFree(q);
}

void time_small(Context* c) {
  const int64_t m = 4096, k = 4096, n = 14336;
  float* x = room<float>(static_cast<size_t>(m * 2 * n));
  unsigned char* to = room<unsigned char>(static_cast<size_t>(m * n * 4));
  float* scales = room<float>(static_cast<size_t>(m));
  fill_floats<<<2048, 256>>>(x, m * 2 * n, 3, 1.0f, 0.0f);
  const auto report = [](const char* name, double us, double bytes) { std::printf("%-40s %8.1f us %7.0f GB/s\n", name, us, bytes / us * 1e-3); };
  for (const int64_t rows : {int64_t{4096}, int64_t{256}}) {
    for (const auto& [name, elem, size] : {std::tuple{"bf16", Elem::bf16, 2}, std::tuple{"e4m3", Elem::e4m3, 1}, std::tuple{"i8", Elem::i8, 1}}) {
      const auto go = [&](bool norm, bool narrow, int64_t width) {
        RowsArgs r{.x = x, .x_stride = width, .norm_weight = norm ? x : nullptr, .to = to, .scales = scales, .m = rows, .k = width, .k_padded = width, .eps = 1e-5f, .narrow = narrow};
        const double us = time_of(c, 8, [&](int i) {
          r.x = reinterpret_cast<unsigned char*>(x) + (narrow || width == k ? i % 2 * rows * width * 4 : 0);
          prepare_rows(c, elem, r);
        });
        char words[100];
        std::snprintf(words, sizeof words, "rows %lld x %lld %s%s -> %s", static_cast<long long>(rows), static_cast<long long>(width), narrow ? "bf16" : "f32", norm ? " norm" : "", name);
        report(words, us, static_cast<double>(rows * width * ((narrow ? 2 : 4) + size)));
      };
      go(true, false, k);
      go(false, true, k);
      go(false, true, n);
    }
    for (const Raw raw : {Raw::bf16, Raw::i32}) {
      FinishArgs f;
      f.raw = x, f.raw_stride = 2 * n, f.type = raw, f.out = to, f.out_stride = n, f.m = rows, f.n = n, f.glu = Glu::silu, f.narrow = true;
      const double us = time_of(c, 8, [&](int) { finish(c, f); });
      report(raw == Raw::bf16 ? "gate bf16 -> bf16" : "gate i32 -> bf16", us, static_cast<double>(rows * n * (raw == Raw::bf16 ? 6 : 10)));
    }
  }
  cudaFree(x);
  cudaFree(to);
  cudaFree(scales);
  size_t bytes = 0;
  unsigned char* buffer = weights_buffer(c, products(c), &bytes);
  using enum FileType;
  for (const auto& [name, type, group] : {std::tuple{"int4 g128", w4, 128}, std::tuple{"q4_k", q4_k, 0}, std::tuple{"q6_k", q6_k, 0}, std::tuple{"int8 rows", w8, 0}, std::tuple{"e4m3 g128", f8, 128},
                                          std::tuple{"e4m3 rows", f8, 0}}) {
    const Matrix w({28672}, 4096, type, group, Compute::bf16, Glu::none);
    const Piece l = Pieces(w.d).piece[0];
    const double us = time_of(c, 8, [&](int) { dequantize(c, l, w.packed, 0, l.rows, buffer); });
    char words[100];
    std::snprintf(words, sizeof words, "dequantize 28672 x 4096 %s", name);
    report(words, us, static_cast<double>(l.bytes + l.rows * l.k_padded * 2));
  }
}

// Products of tiled weights as they are, alone.
void time_mixed(Context* c) {
  using enum FileType;
  unsigned char* x = room<unsigned char>(size_t{1024} * 14336 * 2);
  float* out = room<float>(size_t{1024} * 28672);
  fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(x), 1024 * 14336, 2, 1.0f);
  std::printf("mixed products alone: microseconds (TFLOP/s)\n");
  for (const auto& [name, type, group] : {std::tuple{"int4 g128", w4, 128}, std::tuple{"q4_k", q4_k, 0}, std::tuple{"q6_k", q6_k, 0}, std::tuple{"e4m3 g128", f8, 128}})
    for (const Shape5& s : shapes) {
      if (s.n == 128256) continue;
      const bool gated = s.n == 28672;
      std::vector<std::unique_ptr<Matrix>> w;
      for (int i = 0; i < (s.n * s.k > 40000000 ? 2 : 6); ++i)
        w.push_back(gated ? std::make_unique<Matrix>(std::vector<int64_t>{s.n / 2, s.n / 2}, s.k, type, group, Compute::bf16, Glu::silu)
                          : std::make_unique<Matrix>(std::vector<int64_t>{s.n}, s.k, type, group, Compute::bf16, Glu::none));
      std::printf("%-10s %6lldx%-6lld", name, static_cast<long long>(s.n), static_cast<long long>(s.k));
      for (const int64_t m : {int64_t{16}, int64_t{32}, int64_t{64}, int64_t{96}, int64_t{128}, int64_t{256}, int64_t{450}, int64_t{600}}) {
        MixedArgs g;
        g.x = x, g.out = out, g.m = m, g.n = gated ? s.n / 2 : s.n, g.out_stride = g.n;
        g.narrow_out = gated, g.accumulate = s.n == 4096;
        g.glu = gated ? 1 : 0;
        g.up_row = gated ? s.n / 2 : 0;
        mixed_room(products(c), &g.partials, &g.counters);
        PluginStatus status;
        const double us = time_of(c, 12, [&](int i) {
          const Matrix& mine = *w[static_cast<size_t>(i) % w.size()];
          g.l = Pieces(mine.d).piece[0];
          g.low = g.high = mine.packed;
          mixed(c, g, &status);
        });
        std::printf(" m %3lld %6.1f %4.0f", static_cast<long long>(m), us, 2.0 * static_cast<double>(m * s.n * s.k) / us * 1e-6);
      }
      std::printf("\n");
    }
  cudaFree(x);
  cudaFree(out);
}

// A layer's four products with all that belongs to them, eight layers' weights in turn, as matmul_many() has them: of up to
// 32 rows of most weights a step has other kernels (few.cuh), which bench_cuda_products times.
void time_layer(Context* c) {
  using enum FileType;
  std::printf("a layer's products, whole (norm, rounding, dequantization, gate): microseconds; x 32 ms. Up to 32 rows: not what a step does\n");
  for (const auto& [name, type, group, compute] :
       {std::tuple{"bf16", bf16, 0, Compute::bf16}, std::tuple{"int4 g128", w4, 128, Compute::bf16}, std::tuple{"q4_k", q4_k, 0, Compute::bf16},
        std::tuple{"int8 rows", w8, 0, Compute::bf16}, std::tuple{"int8 a8", w8, 0, Compute::a8}, std::tuple{"e4m3 a8", f8, 0, Compute::a8}}) {
    std::vector<std::unique_ptr<Matrix>> w;
    constexpr int layers = 3;
    for (int l = 0; l < layers; ++l) {
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{4096, 1024, 1024}, 4096, type, group, compute, Glu::none));
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{4096}, 4096, type, group, compute, Glu::none));
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{14336, 14336}, 4096, type, group, compute, Glu::silu));
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{4096}, 14336, type, group, compute, Glu::none));
    }
    float *x = room<float>(4096 * 4096), *attended = room<float>(4096 * 4096 / 2), *qkv = room<float>(4096 * 6144), *ffn = room<float>(4096 * 14336 / 2), *norm = room<float>(4096);
    fill_floats<<<1024, 256>>>(x, 4096 * 4096, 1, 1.0f, 0.0f);
    fill_floats<<<1024, 256>>>(norm, 4096, 1, 0.1f, 0.05f);
    fill_halves<<<1024, 256>>>(reinterpret_cast<__nv_bfloat16*>(attended), 4096 * 4096, 2, 0.1f);
    unsigned char* work = room<unsigned char>(static_cast<size_t>(many_workspace_bytes(w[2]->d, 4096)) + 4096 * 14336 * 2);
    std::printf("%-12s", name);
    for (const int64_t m : {int64_t{16}, int64_t{32}, int64_t{64}, int64_t{96}, int64_t{128}, int64_t{256}, int64_t{450}, int64_t{600}, int64_t{1024}, int64_t{4096}}) {
      PluginStatus status;
      bool possible = true;
      const double us = time_of(c, 4, [&](int i) {
        const auto product = [&](int at, const float* from, int64_t from_stride, float* to, int64_t to_stride, bool normed, bool accumulate, bool narrow_x, bool narrow_out) {
          const Matrix& mine = *w[static_cast<size_t>(i % layers * 4 + at)];
          MatmulArgs a{&mine.d, mine.packed, from, from_stride, to, to_stride, m, nullptr, accumulate, work};
          a.norm_weight = normed ? norm : nullptr;
          a.norm_eps = 1e-5f;
          a.narrow_x = narrow_x, a.narrow_out = narrow_out;
          possible = matmul_many(c, a, &status) && possible;
        };
        product(0, x, 4096, qkv, 6144, true, false, false, false);
        product(1, attended, 4096, x, 4096, false, true, true, false);
        product(2, x, 4096, ffn, 14336, true, false, false, true);
        product(3, ffn, 14336, x, 4096, false, true, true, false);
      });
      std::printf("  m %4lld %7.1f (%6.2f)", static_cast<long long>(m), possible ? us : 0.0, possible ? us * 32e-3 : 0.0);
    }
    std::printf("\n");
    for (void* q : {static_cast<void*>(x), static_cast<void*>(attended), static_cast<void*>(qkv), static_cast<void*>(ffn), static_cast<void*>(norm), static_cast<void*>(work)}) cudaFree(q);
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  cudaDeviceProp p;
  must(cudaGetDeviceProperties(&p, 0), "no GPU");
  Context c;
  c.multiprocessors = p.multiProcessorCount;
  c.capability = 10 * p.major + p.minor;
  c.block_shared = p.sharedMemPerBlockOptin;
  c.fast = c.may_wait = true;
  c.launches.set(p.major >= 9, c.block_shared);
  must(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking), "stream");
  char library[200];
  describe_products(&c, library, sizeof library);
  std::printf("%s; %s\n", p.name, library);
  bool good = true;
  if (what.empty() || what == "check") good = check_all(&c);
  if (what.empty() || what == "mixed") time_mixed(&c);
  if (what.empty() || what == "layer") time_layer(&c);
  if (what.empty() || what == "time") time_small(&c), time_products(&c);
  c.launches.clear();
  close_products(&c);
  return good ? 0 : 1;
}
