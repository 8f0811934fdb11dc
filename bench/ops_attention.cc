// What each KV type costs: attention of single rows over a long context (decode) and of a block of
// rows (prefill), and kv_store, relative to bf16 in the same run. Decode walks over the caches of
// many layers, so that they come from memory as in a real step; its bytes a second stand beside what
// plain reading of the same memory reaches, in turns (of each layer the least of several walks).
// `bench_ops_attention [threads [context [layers [isa]]]]`
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/threads.h"
#include "timing.h"

using namespace orlop;
using namespace orlop::timing;

namespace {

struct Cost {
  double decode, prefill, store;  // seconds: a layer's row; a row of 512; a row
  double read;                    // seconds: the layer's cache, read
  double bytes;                   // of a token and head
};

// Seconds a layer: walks over all of them, the least time of each.
template <class F>
double walk(int walks, int layers, const F& f) {
  std::vector<double> best(static_cast<size_t>(layers), 1e9);
  for (int w = 0; w < walks; ++w)
    for (int i = 0; i < layers; ++i) {
      const double begin = now();
      f(i);
      best[static_cast<size_t>(i)] = std::min(best[static_cast<size_t>(i)], now() - begin);
    }
  return std::accumulate(best.begin(), best.end(), 0.0) / layers;
}

// Lines [begin, end) of a pool.
void read_lines(const void* p, int64_t begin, int64_t end, int) {
  const uint64_t* at = static_cast<const uint64_t*>(p);
  uint64_t sum[8] = {};
  for (int64_t i = begin; i < end; ++i)
    for (int j = 0; j < 8; ++j) sum[j] |= at[i * 8 + j];
  for (const uint64_t& s : sum) asm volatile("" : : "r"(s));
}

Cost measure(const Exec& e, KvType type, int heads, int kv_heads, int dim, int context,
             int layers) {
  const Kernels& k = *e.kernels;
  const KvDesc kv{type, kv_heads, dim, 16};
  const int stride = (heads + 2 * kv_heads) * dim, pages = (context + 15) / 16;
  const size_t page_bytes = k.kv_page_bytes(kv);
  std::vector<DeviceBuffer> pools;
  for (int i = 0; i < layers; ++i)
    pools.emplace_back(*e.device, page_bytes * static_cast<size_t>(pages));
  const size_t pool_bytes = page_bytes * static_cast<size_t>(pages);
  DeviceBuffer tails(*e.device, k.kv_tail_bytes(kv));
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> qkv(static_cast<size_t>(context) * static_cast<size_t>(stride));
  for (float& x : qkv) x = normal(engine);
  std::vector<int32_t> slots, table;
  for (int i = 0; i < context; ++i) slots.push_back(i);
  for (int i = 0; i < pages; ++i) table.push_back(i);
  const AttentionSeq all{0, context, 0, 0, 0};
  KvStoreArgs s{};
  s.kv = kv;
  s.heads = heads;
  s.qkv = qkv.data();
  s.qkv_stride = stride;
  s.rows = context;
  s.slots = slots.data();
  s.seqs = &all;
  s.seq_count = 1;
  s.tails = tails.data();
  for (const DeviceBuffer& pool : pools) {
    s.pages = pool.data();
    k.kv_store(e, s);
  }
  Cost cost{};
  cost.store = best_of(2, [&] { k.kv_store(e, s); }) / context;
  if (tails.data())
    k.kv_tail(e, {kv, qkv.data() + heads * dim, stride, context, &all, 1, tails.data()});
  cost.bytes = static_cast<double>(page_bytes) / 16 / kv_heads;

  const auto attend = [&](int rows, int count) {
    const AttentionSeq seq{0, rows, context - rows, 0, 0};
    std::vector<float> out(static_cast<size_t>(rows * heads * dim));
    DeviceBuffer workspace(*e.device, k.attention_workspace(kv, heads, rows, context));
    AttentionArgs a{};
    a.kv = kv;
    a.heads = heads;
    a.q = qkv.data() + static_cast<size_t>(context - rows) * static_cast<size_t>(stride);
    a.q_stride = stride;
    a.k = a.q + heads * dim;
    a.k_stride = stride;
    a.tails = tails.data();
    a.out = out.data();
    a.out_stride = heads * dim;
    a.seqs = &seq;
    a.seq_count = 1;
    a.rows = rows;
    a.max_context = context;
    a.page_table = table.data();
    a.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    a.workspace = workspace.data();
    return walk(rows > 1 ? 2 : 7, count, [&](int layer) {
      a.pages = pools[static_cast<size_t>(layer)].data();
      k.attention(e, a);
    });
  };
  cost.decode = cost.read = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    cost.decode = std::min(cost.decode, attend(1, layers));
    cost.read = std::min(cost.read, walk(7, layers, [&](int layer) {
                           static_cast<cpu::ThreadPool*>(e.queue)->run(
                               read_lines, pools[static_cast<size_t>(layer)].data(),
                               static_cast<int64_t>(pool_bytes / 64));
                         }));
  }
  cost.prefill = attend(512, 1) / 512;
  return cost;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : cpu::default_threads().threads;
  const int context = argc > 2 ? std::atoi(argv[2]) : 4096;
  const int layers = argc > 3 ? std::atoi(argv[3]) : 30;
  alone = threads == 1;
  cpu::ThreadPool pool(threads);
  const auto device = cpu::make_device();
  for (const char* isa : {"avx2", "avx512", "avx512bf16"}) {
    if (argc > 4 && std::string(argv[4]) != isa) continue;
    cpu::IsaChoice choice;
    try {
      choice = cpu::isa_named(isa);
    } catch (const std::exception&) {
      continue;
    }
    const Kernels k = cpu::make_kernels(choice);
    const Exec e{&k, device.get(), &pool, threads};
    const struct { int heads, kv_heads, dim; } shapes[] = {{9, 3, 64}, {32, 8, 64}, {32, 8, 128}};
    for (const auto& shape : shapes) {
      std::printf("%s, %d threads, %d/%d heads of %d, context %d, %d layers\n", isa, threads,
                  shape.heads, shape.kv_heads, shape.dim, context, layers);
      Cost one{};
      for (const KvType type :
           {KvType::bf16, KvType::f32, KvType::f16, KvType::int8, KvType::uint4}) {
        const Cost c = measure(e, type, shape.heads, shape.kv_heads, shape.dim, context,
                               shape.dim > 64 ? layers / 4 : layers);
        if (type == KvType::bf16) one = c;
        std::printf(
            "  %-5s %4.0f bytes; decode %7.1f us a layer (%.2f x bf16; %.1f GB/s, %.0f %% of reading), "
            "prefill %6.2f us a row (%.2f x), kv_store %.2f us a row (%.2f x)\n",
            name(type), c.bytes, c.decode * 1e6, c.decode / one.decode,
            c.bytes * shape.kv_heads * context / c.decode * 1e-9, 100 * c.read / c.decode, c.prefill * 1e6,
            c.prefill / one.prefill, c.store * 1e6, c.store / one.store);
      }
    }
  }
}
