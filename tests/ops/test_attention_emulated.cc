// Attention of a GPU's decode steps (backend/cuda/attention_decode.cuh) on the processor, a thread for each of the GPU's:
// outputs against the formula in double, the rows that it stores against kv_store's to the bit, and the same outputs
// whether it stores them or finds them stored. Beside it every address is one of this process: sanitizers see them all.
// Nothing here says how fast it is, or what a GPU's memory does in which order; copies are there at once.
#include <cstdio>
#include <thread>

#include "attention_rig.h"
#include "backend/cpu/kv_layout.h"
#include "backend/cuda/attention_decode.cuh"
#include "backend/cuda/attention_turns.cuh"

namespace orlop::test {
namespace {

using namespace orlop::cuda;

template <class K>
void run(const DecodeArgs& a, const StoreArgs& s, int tiles) {
  const int together = std::max(1, a.shared_by);
  for (int y = 0; y < a.splits; ++y)
    for (int x = 0; x < tiles; ++x) {
      EmulatedCluster own(together * K::Folds::threads);
      std::vector<std::unique_ptr<EmulatedBlock>> blocks;
      for (int i = 0; i < together; ++i) {
        blocks.push_back(std::make_unique<EmulatedBlock>(K::shared, K::Folds::threads, static_cast<unsigned>(x * together + i)));
        std::memset(blocks.back()->memory.get(), 0xff, K::shared);
        own.blocks.push_back(blocks.back().get());
        blocks.back()->cluster = &own;
      }
      std::vector<std::thread> running;
      for (int i = 0; i < together; ++i)
        for (int t = 0; t < K::Folds::threads; ++t)
          running.emplace_back([&, i, t] {
            block = own.blocks[static_cast<size_t>(i)];
            blockIdx = {block->number, static_cast<unsigned>(y)};
            threadIdx.x = static_cast<unsigned>(t);
            decode::attend<K>(a, s);
          });
      for (std::thread& t : running) t.join();
    }
}

// Blocks that take one row's head after another.
template <class K>
void run_turns(const DecodeArgs& a, const StoreArgs& s, int blocks, const CUtensorMap& map) {
  std::vector<std::unique_ptr<EmulatedBlock>> all;
  std::vector<std::thread> running;
  gridDim.x = static_cast<unsigned>(blocks);
  for (int i = 0; i < blocks; ++i) {
    all.push_back(std::make_unique<EmulatedBlock>(K::shared, K::Folds::threads, static_cast<unsigned>(i)));
    std::memset(all.back()->memory.get(), 0xff, K::shared);
    for (int t = 0; t < K::Folds::threads; ++t)
      running.emplace_back([&, own = all.back().get(), t] {
        block = own;
        blockIdx = {own->number, 0};
        threadIdx.x = static_cast<unsigned>(t);
        decode::attend_turns<K>(a, s, map);
      });
  }
  for (std::thread& t : running) t.join();
}

// How the work is cut: chunks of so many tokens, walked by one block or each one's; or shared by a cluster; or so many
// blocks take turns.
struct Cut {
  int chunk;
  bool walks = false;
  int shared_by = 0;
  int turns = 0;
};

template <KvType type, int dims, int columns, int warps>
void check(Random& random, int group, int kv_heads, int page_tokens, int window, int half, bool norms, const Cut& cut, const std::vector<int>& contexts) {
  using K = decode::Plain<type, dims, columns, warps, (warps == whole_warps ? whole_stages(dims) : dims > 128 ? 2 : 3)>;
  const Shape s{group * kv_heads, kv_heads, dims, page_tokens, type, window};
  const KvDesc kv{type, kv_heads, dims, page_tokens};
  const cuda::KvLayout l(kv);
  const auto n = static_cast<int>(contexts.size());
  const auto number = [](uint16_t x) { return type == KvType::f16 ? f16_to_f32(x) : bf16_to_f32(x); };
  const auto bits = [](float x) { return type == KvType::f16 ? f32_to_f16(x) : f32_to_bf16(x); };

  // Pages in any order, poisoned where nothing is stored yet: each context's last position.
  std::vector<int32_t> first, table, slots;
  for (const int c : contexts) {
    first.push_back(static_cast<int32_t>(table.size()));
    table.resize(table.size() + static_cast<size_t>((c + page_tokens - 1) / page_tokens));
  }
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), random.engine);
  std::vector<unsigned char> pages(static_cast<size_t>(l.page_bytes) * table.size(), 0xff);
  std::vector<AttentionSeq> seqs;
  const auto at = [&](int i, int t, int head, bool value) {
    const int32_t page = table[static_cast<size_t>(first[static_cast<size_t>(i)] + t / page_tokens)];
    return reinterpret_cast<uint16_t*>(pages.data() + l.head_at(page, head) + (value ? l.values_at : 0)) + t % page_tokens * dims;
  };
  for (int i = 0; i < n; ++i) {
    const int last = contexts[static_cast<size_t>(i)] - 1;
    seqs.push_back({i, 1, last, first[static_cast<size_t>(i)], 0});
    slots.push_back(table[static_cast<size_t>(first[static_cast<size_t>(i)] + last / page_tokens)] * page_tokens + last % page_tokens);
    for (int t = 0; t < last; ++t)
      for (int h = 0; h < kv_heads; ++h)
        for (int d = 0; d < dims; ++d) at(i, t, h, false)[d] = bits(random.normal()), at(i, t, h, true)[d] = bits(random.normal());
  }

  Rows qkv = random.normals(static_cast<size_t>(n * s.row()));
  const Rows given = qkv, cos = random.normals(static_cast<size_t>(n * half + 1)), sin = random.normals(cos.size());
  const Rows q_norm = random.normals(static_cast<size_t>(dims)), k_norm = random.normals(static_cast<size_t>(dims));
  StoreArgs store{};
  store.qkv = qkv.data();
  store.slots = slots.data();
  store.cos = cos.data();
  store.sin = sin.data();
  store.q_norm = norms ? q_norm.data() : nullptr;
  store.k_norm = norms ? k_norm.data() : nullptr;
  store.pages = pages.data();
  store.qkv_stride = s.row();
  store.heads = s.heads;
  store.kv_heads = kv_heads;
  store.head_dim = dims;
  store.page_tokens = page_tokens;
  store.half = half;
  store.rows = n;
  store.type = type;
  store.eps = 1e-5f;

  Rows out(static_cast<size_t>(n * s.heads * dims), nan);
  DecodeArgs a{};
  a.q = qkv.data();
  a.out = out.data();
  a.seqs = seqs.data();
  a.page_table = table.data();
  a.pages = pages.data();
  a.q_stride = s.row();
  a.out_stride = s.heads * dims;
  a.head_bytes = l.head_bytes;
  a.page_bytes = static_cast<uint32_t>(l.page_bytes);
  a.values_at = static_cast<uint32_t>(l.values_at);
  a.kv_heads = kv_heads;
  a.group = group;
  a.head_parts = (group + columns - 1) / columns;
  a.part_heads = (group + a.head_parts - 1) / a.head_parts;
  a.page_tokens = page_tokens;
  a.page_magic = page_magic(page_tokens);
  a.seq_count = n;
  a.one_each = 1;
  a.too_many = 1 << 30;
  a.tile_rows = 1;
  a.tile_columns = a.part_heads;
  a.window = window;
  a.chunk = cut.chunk;
  a.walks = cut.walks;
  a.shared_by = cut.shared_by;
  const int longest = *std::max_element(contexts.begin(), contexts.end());
  a.splits = cut.walks || cut.shared_by ? 1 : (longest - 1) / cut.chunk + 1;
  a.scale_log2 = 1.44269504f / std::sqrt(static_cast<float>(dims));
  const int tiles = n * kv_heads * a.head_parts;
  std::vector<float> records(static_cast<size_t>(tiles * a.splits * a.tile_columns * (dims + 4)), nan);
  std::vector<uint32_t> done(static_cast<size_t>(tiles), 0);
  a.records = records.data();
  a.done = done.data();
  const auto run_all = [&](const StoreArgs& by) {
    if constexpr ((dims == 64 || dims == 128) && columns == 8)
      if (cut.turns) {
        using Turns = decode::Turns<type, dims>;
        const int64_t lines = static_cast<int64_t>(pages.size()) / Turns::row_bytes;
        return run_turns<Turns>(a, by, cut.turns,
                                {.from = pages.data(), .bytes = 2, .swizzle = true, .sizes = {64, lines, dims / 64, 2}, .strides = {Turns::row_bytes, 128, l.values_at}, .boxes = {64, 16, dims / 64, 2}});
      }
    run<K>(a, by, tiles);
  };
  run_all(store);
  CHECK(same_bits(qkv, given));
  for (const uint32_t d : done) CHECK(d == 0);

  // The rows as kv_store leaves them, in pages of its own.
  Rows stored = qkv;
  const KvDesc apart{type, kv_heads, dims, 16};
  std::vector<unsigned char> others(static_cast<size_t>(cpu::KvLayout(apart).page * (n / 16 + 1)));
  std::vector<int32_t> places(static_cast<size_t>(n));
  std::iota(places.begin(), places.end(), 0);
  KvStoreArgs k{};
  k.kv = apart;
  k.heads = s.heads;
  k.qkv = stored.data();
  k.qkv_stride = s.row();
  k.rows = n;
  k.slots = places.data();
  k.cos = cos.data();
  k.sin = sin.data();
  k.half = half;
  k.q_norm = store.q_norm;
  k.k_norm = store.k_norm;
  k.eps = store.eps;
  k.pages = others.data();
  cpu::ref::kv_store(k, 0, n);

  double worst = 0;
  bool same = true;
  for (int i = 0; i < n; ++i) {
    const int last = contexts[static_cast<size_t>(i)] - 1, oldest = window ? std::max(0, last - window + 1) : 0;
    const float* row = &stored[static_cast<size_t>(i * s.row())];
    for (int h = 0; h < kv_heads; ++h)
      for (int d = 0; d < dims; ++d)
        same &= at(i, last, h, false)[d] == bits(row[(s.heads + h) * dims + d]) && at(i, last, h, true)[d] == bits(row[(s.heads + kv_heads + h) * dims + d]);
    for (int h = 0; h < s.heads; ++h) {
      std::vector<double> scores, o(static_cast<size_t>(dims));
      double most = -1e30, sum = 0;
      for (int t = oldest; t <= last; ++t) {
        double dot = 0;
        for (int d = 0; d < dims; ++d) dot += double{number(bits(row[h * dims + d]))} * double{number(at(i, t, h / group, false)[d])};
        scores.push_back(dot / std::sqrt(static_cast<double>(dims)));
        most = std::max(most, scores.back());
      }
      for (int t = oldest; t <= last; ++t) {
        const double weight = std::exp(scores[static_cast<size_t>(t - oldest)] - most);
        sum += weight;
        for (int d = 0; d < dims; ++d) o[static_cast<size_t>(d)] += weight * double{number(at(i, t, h / group, true)[d])};
      }
      for (int d = 0; d < dims; ++d) {
        const double off = std::fabs(o[static_cast<size_t>(d)] / sum - double{out[static_cast<size_t>((i * s.heads + h) * dims + d)]});
        worst = off <= worst ? worst : off == off ? off : 1e30;
      }
    }
  }
  const Rows once = out;
  a.q = stored.data();
  run_all(StoreArgs{});
  const bool again = same_bits(once, out), good = worst < (type == KvType::f16 ? 2e-3 : 1.5e-2) && same && again;
  if (!good)
    std::printf("  %s of %d, %d of %d a group, %d columns, %d warps, pages of %d, window %d, half %d, chunk %d, shared by %d, %d take turns: off by %g, stored %d, apart %d\n", name(type), dims,
                group, kv_heads, columns, warps, page_tokens, window, half, cut.chunk, cut.shared_by, cut.turns, worst, same, again);
  CHECK(good);
}

TEST(decode_attention_stores_its_rows) {
  Random random(1);
  constexpr KvType b = KvType::bf16, f = KvType::f16;
  check<b, 64, 8, 4>(random, 3, 2, 16, 0, 32, true, {64}, {70, 1, 33});
  check<f, 80, 16, 4>(random, 12, 1, 8, 0, 20, true, {64}, {129, 64, 65});
  check<f, 128, 8, 4>(random, 8, 1, 8, 50, 0, false, {64}, {64, 128, 65});
  check<b, 256, 8, 4>(random, 12, 1, 16, 0, 128, true, {64}, {90});
  check<b, 64, 8, 4>(random, 5, 1, 64, 20, 16, true, {64, true}, {129, 70});
  check<f, 96, 8, 4>(random, 7, 1, 48, 0, 45, true, {256, false, 1}, {200, 16});
  check<f, 64, 8, 4>(random, 2, 1, 8, 0, 32, false, {4096}, {2345});
}

TEST(decode_attention_of_whole_contexts) {
  Random random(2);
  constexpr KvType b = KvType::bf16, f = KvType::f16;
  check<b, 128, 8, whole_warps>(random, 4, 1, 32, 0, 64, false, {256, false, 1}, {200, 17});
  check<f, 96, 16, whole_warps>(random, 16, 1, 48, 30, 45, true, {128, false, 1}, {100, 2});
  check<b, 128, 8, whole_warps>(random, 4, 1, 16, 0, 64, true, {512, false, 2}, {400, 1, 33});
  check<f, 80, 8, whole_warps>(random, 7, 1, 8, 0, 20, true, {512, false, 4}, {400, 17});
  check<b, 64, 8, whole_warps>(random, 8, 1, 48, 90, 32, false, {768, false, 8}, {700});
  check<b, 64, 16, whole_warps>(random, 12, 1, 32, 0, 32, true, {1024, false, 8}, {1000, 129});
}

TEST(decode_attention_by_turns) {
  Random random(3);
  constexpr KvType b = KvType::bf16, f = KvType::f16;
  check<b, 128, 8, 4>(random, 4, 2, 16, 0, 64, true, {256, false, 1, 2}, {200, 1, 17, 16, 15, 130, 64, 65});
  check<f, 128, 8, 4>(random, 8, 1, 32, 0, 64, false, {256, false, 1, 2}, {100, 33, 256});
  check<b, 128, 8, 4>(random, 5, 1, 48, 90, 20, true, {512, false, 1, 1}, {400, 91, 90, 30});
  check<f, 64, 8, 4>(random, 7, 2, 16, 0, 32, true, {256, false, 1, 4}, {200, 1, 2, 129});
  check<b, 64, 8, 4>(random, 3, 1, 64, 0, 16, false, {4096, false, 1, 2}, {2345, 64, 7});
  check<b, 128, 8, 4>(random, 2, 3, 16, 0, 64, false, {128, false, 1, 11}, {70, 80, 5});  // blocks have one item, or none
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::test_main(count, values); }
