// Times the ops apart from matmul on this machine: fork and join, attention (decode with one long
// sequence, prefill), norm, kv_store, sampling. `bench_ops_small [threads]`; the best of several
// repetitions, with bytes moved or products made a second.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/threads.h"
#include "timing.h"

using namespace orlop;
using namespace orlop::timing;

namespace {

std::vector<float> normals(size_t n) {
  std::mt19937 engine(1);
  std::normal_distribution<float> d;
  std::vector<float> v(n);
  for (float& x : v) x = d(engine);
  return v;
}

void attention(const Kernels& k, cpu::ThreadPool& pool, KvType type, int heads, int kv_heads, int dim,
               int context, int rows) {
  const Exec e{&k, nullptr, &pool};
  const KvDesc kv{type, kv_heads, dim, 16};
  const int stride = (heads + 2 * kv_heads) * dim, pages = (context + 15) / 16;
  const auto device = cpu::make_device();
  const size_t page_bytes = k.kv_page_bytes(kv);
  DeviceBuffer pool_memory(*device, page_bytes * static_cast<size_t>(pages));
  std::vector<float> qkv = normals(static_cast<size_t>(context) * static_cast<size_t>(stride));
  std::vector<int32_t> slots, table;
  for (int i = 0; i < context; ++i) slots.push_back(i);
  for (int i = 0; i < pages; ++i) table.push_back(i);
  KvStoreArgs s{};
  s.kv = kv;
  s.heads = heads;
  s.qkv = qkv.data();
  s.qkv_stride = stride;
  s.rows = context;
  s.slots = slots.data();
  s.pages = pool_memory.data();
  const double store = best_of(3, [&] { k.kv_store(e, s); });
  const AttentionSeq seq{0, rows, context - rows, 0, 0};
  std::vector<float> out(static_cast<size_t>(rows * heads * dim));
  DeviceBuffer workspace(*device, k.attention_workspace(kv, heads, rows, context));
  AttentionArgs a{};
  a.kv = kv;
  a.heads = heads;
  a.q = qkv.data() + static_cast<size_t>(context - rows) * static_cast<size_t>(stride);
  a.q_stride = stride;
  a.out = out.data();
  a.out_stride = heads * dim;
  a.seqs = &seq;
  a.seq_count = 1;
  a.rows = rows;
  a.max_context = context;
  a.page_table = table.data();
  a.pages = pool_memory.data();
  a.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  a.workspace = workspace.data();
  const double t = best_of(rows > 1 ? 5 : 30, [&] { k.attention(e, a); });
  const double bytes = static_cast<double>(page_bytes) * pages;
  double pairs = 0;
  for (int r = 0; r < rows; ++r) pairs += context - rows + r + 1;
  const double products = pairs * heads * dim * 2;
  std::printf("  attention %s %d/%d heads x %d, context %d, rows %d: %.1f us, cache %.1f GB/s, %.1f "
              "G products/s; kv_store %.3f us/row\n",
              name(type), heads, kv_heads, dim, context, rows, t * 1e6, bytes / t / 1e9,
              products / t / 1e9, store * 1e6 / context);
}

void rows_and_sampling(const Kernels& k, cpu::ThreadPool& pool) {
  const Exec e{&k, nullptr, &pool};
  const int vocab = 49152;
  const std::vector<float> x = normals(static_cast<size_t>(vocab));
  std::vector<float> out(static_cast<size_t>(vocab));
  const std::vector<float> weight(576, 1.0f);
  NormArgs n{x.data(), 576, weight.data(), 1e-5f, out.data(), 576, 1, 576};
  const double norm = best_of(50, [&] { for (int i = 0; i < 100; ++i) k.norm(e, n); }) / 100;
  SampleRow p{};
  p.top_p = 1;
  p.repetition_penalty = 1;
  p.given = -1;
  SampleResult result;
  TokenLogprob top[8];
  std::vector<char> workspace(k.sample_workspace(1, vocab));
  SampleArgs a{x.data(), vocab, 1, vocab, &p, &result, top, 8, workspace.data()};
  const auto timed = [&] { return 1e6 * best_of(20, [&] { k.sample(e, a); }); };
  p.n_logprobs = -2;
  const double greedy = timed();
  p.n_logprobs = 5;
  const double logprobs = timed();
  p.n_logprobs = -2;
  p.temperature = 0.8f;
  const double plain = timed();
  p.top_p = 0.9f;
  const double nucleus = timed();
  p.top_k = 40;
  const double top_k = timed();
  std::printf("  norm of 576: %.2f us; sample from %d: greedy %.1f us, with 5 logprobs %.1f, temperature "
              "%.1f, top_p %.1f, top_k 40 and top_p %.1f\n",
              norm * 1e6, vocab, greedy, logprobs, plain, nucleus, top_k);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : cpu::default_threads().threads;
  cpu::ThreadPool pool(threads);
  alone = threads == 1;
  // Regions of some microseconds of arithmetic each, against the same work in one piece.
  const auto chain = [](const void*, int64_t begin, int64_t end, int) {
    volatile float x = 1;
    for (int64_t i = begin; i < end; ++i) x = x * 0.999f;
  };
  const int64_t work = 1000 * threads;
  const double one = best_of(20, [&] { for (int i = 0; i < 200; ++i) chain(nullptr, 0, 1000, 0); }) / 200;
  const double fork = best_of(20, [&] { for (int i = 0; i < 200; ++i) pool.run(chain, nullptr, work); }) / 200;
  std::printf("%d threads, fork and join %.2f us around %.2f us of work\n", threads,
              (fork - one) * 1e6, one * 1e6);
  for (const char* isa : {"ref", "avx2", "avx512", "avx512bf16"}) {
    cpu::IsaChoice choice;
    try {
      choice = cpu::isa_named(isa);
    } catch (const std::exception&) {
      continue;
    }
    const Kernels k = cpu::make_kernels(choice);
    std::printf("%s\n", isa);
    for (const KvType type : {KvType::bf16, KvType::f32}) {
      attention(k, pool, type, 9, 3, 64, 256, 1);
      attention(k, pool, type, 9, 3, 64, 8192, 1);
      attention(k, pool, type, 9, 3, 64, 512, 512);
      attention(k, pool, type, 32, 8, 128, 8192, 1);
    }
    rows_and_sampling(k, pool);
  }
}
