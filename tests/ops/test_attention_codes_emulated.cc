// Attention of a GPU's decode steps over int8 and uint4 pages (backend/cuda/attention_coded.cuh) on the processor, a thread
// for each of the GPU's: against the formula in double over pages of any codes, poisoned wherever nothing is stored; the
// same bits however rows, chunks and stages are cut; and of what is no number, nothing in rows that do not see it. Nothing
// here says how fast it is, or what a GPU's memory does in which order; copies are there at once.
#include <cstdio>
#include <thread>

#include "attention_rig.h"
#include "backend/cuda/attention_coded.cuh"

namespace orlop::test {
namespace {

using namespace orlop::cuda;

template <class K>
void run(const DecodeArgs& a, int tiles) {
  for (int y = 0; y < a.splits; ++y)
    for (int x = 0; x < tiles; ++x) {
      EmulatedBlock own(static_cast<size_t>(K::shared(a.stages)), decode::threads, static_cast<unsigned>(x));
      std::memset(own.memory.get(), 0xff, static_cast<size_t>(K::shared(a.stages)));
      std::vector<std::thread> running;
      for (int t = 0; t < decode::threads; ++t)
        running.emplace_back([&, t] {
          block = &own;
          blockIdx = {static_cast<unsigned>(x), static_cast<unsigned>(y)};
          threadIdx.x = static_cast<unsigned>(t);
          decode::attend_codes<K>(a);
        });
      for (std::thread& t : running) t.join();
    }
}

struct Sequence {
  int before, rows;  // positions that earlier calls stored, rows of this one
};
struct Cut {
  int chunk, tile_rows, stages;
  bool walks;
};

// Sequences in a cache: what their tokens' keys and values are said to be, and the pages that say so.
template <KvType type, int dims>
struct Cache {
  static constexpr bool int8 = type == KvType::int8;
  const KvDesc kv;
  const cuda::KvLayout l;
  const int heads, window;
  std::vector<Sequence> sequences;
  std::vector<AttentionSeq> seqs;
  std::vector<int32_t> table;
  std::vector<unsigned char> page_memory, tail_memory;
  unsigned char *pages, *tails;
  std::vector<Rows> sealed, exact, values;  // of each sequence, [tokens][kv_heads][dims]; values turned
  Rows qkv;
  int rows = 0;

  static unsigned char* aligned(std::vector<unsigned char>& v, int64_t bytes) {
    v.assign(static_cast<size_t>(bytes) + 64, 0xff);
    return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64;
  }
  int row_floats() const { return (heads + 2 * kv.kv_heads) * dims; }
  size_t at(int t, int h, int d) const { return static_cast<size_t>((t * kv.kv_heads + h) * dims + d); }
  unsigned char* head_of(size_t i, int t, int h) const {
    return pages + l.head_at(table[static_cast<size_t>(seqs[i].page_begin + t / kv.page_tokens)], h);
  }
  static void put16(unsigned char* to, uint16_t bits) { std::memcpy(to, &bits, 2); }
  static void put_code(unsigned char* codes, CodePlace p, int code) {  // code: as it is stored
    if (int8)
      codes[p.byte] = static_cast<unsigned char>(code);
    else
      codes[p.byte] = static_cast<unsigned char>((codes[p.byte] & ~(15 << p.shift)) | code << p.shift);
  }

  Cache(Random& random, int group, int kv_heads, int page_tokens, int seen, const std::vector<Sequence>& given)
      : kv{type, kv_heads, dims, page_tokens}, l(kv), heads(group * kv_heads), window(seen), sequences(given) {
    const int zero = int8 ? 128 : 8, most = int8 ? 256 : 16;
    int32_t page_count = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      const int end = given[i].before + given[i].rows;
      seqs.push_back({rows, given[i].rows, given[i].before, page_count, static_cast<int32_t>(given.size() - 1 - i)});
      rows += given[i].rows;
      page_count += (end + page_tokens - 1) / page_tokens;
    }
    table.resize(static_cast<size_t>(page_count));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random.engine);
    pages = aligned(page_memory, l.page_bytes * page_count);
    tails = aligned(tail_memory, l.tail_bytes * static_cast<int64_t>(given.size()));
    qkv = random.normals(static_cast<size_t>(rows * row_floats()));
    for (size_t i = 0; i < given.size(); ++i) {
      const int end = given[i].before + given[i].rows;
      const auto count = static_cast<size_t>(end * kv_heads * dims);
      sealed.emplace_back(count), exact.emplace_back(count), values.emplace_back(count);
      for (int h = 0; h < kv_heads; ++h) {
        for (int tile = 0; tile < end / l.key_tile; ++tile) {
          const int begin = tile * l.key_tile, in_page = begin % page_tokens;
          unsigned char* head = head_of(i, begin, h);
          const float unit = std::ldexp(1.0f, random.between(-1, 1) - (int8 ? 7 : 3));
          std::memcpy(head + l.key_unit_of(in_page), &unit, 4);
          for (int d = 0; d < dims; ++d) {
            const uint16_t centre = f32_to_f16(0.5f * random.normal()), share = f32_to_f16(0.5f + 0.05f * static_cast<float>(random.below(30)));
            put16(head + l.key_grids_of(in_page) + 2 * grid_at(d), centre);
            put16(head + l.key_grids_of(in_page) + 2 * (grid_at(d) + grid_share), share);
            for (int t = begin; t < begin + l.key_tile; ++t) {
              const int code = random.below(most);
              put_code(head + l.key_codes_of(t % page_tokens), key_code(int8, l.lane_words, t % 16, d), code);
              sealed[i][at(t, h, d)] = f16_to_f32(centre) + unit * f16_to_f32(share) * static_cast<float>(code - zero);
            }
          }
        }
        for (int t = 0; t < end; ++t) {
          const int in_page = t % page_tokens;
          unsigned char* head = head_of(i, t, h);
          const uint16_t scale = f32_to_bf16(std::ldexp(1.0f + 0.1f * static_cast<float>(random.below(9)), int8 ? -7 : -3)), centre = f32_to_bf16(int8 ? 0.0f : random.normal());
          put16(head + l.value_grid_of(in_page), scale);
          if (!int8) put16(head + l.value_grid_of(in_page) + 2 * l.block_tokens, centre);
          for (int d = 0; d < dims; ++d) {
            const int code = random.below(most);
            put_code(head + l.value_codes_of(in_page), value_code(int8, l.lane_words, t % 16, d), code);
            values[i][at(t, h, d)] = bf16_to_f32(centre) + bf16_to_f32(scale) * static_cast<float>(code - zero);
            float& key = exact[i][at(t, h, d)];
            if (t >= given[i].before) {
              key = bf16_to_f32(f32_to_bf16(qkv[static_cast<size_t>((seqs[i].row_begin + t - given[i].before) * row_floats() + (heads + h) * dims + d)]));
            } else {
              key = bf16_to_f32(f32_to_bf16(random.normal()));
              if (t / l.key_tile == given[i].before / l.key_tile)
                put16(tails + seqs[i].seat * l.tail_bytes + h * l.tail_head + 2 * (t % l.key_tile * dims + d), f32_to_bf16(key));
            }
          }
        }
      }
      // Pages of which no row sees anything are gone.
      const int oldest = window ? std::max(0, given[i].before - window + 1) : 0;
      for (int p = 0; (p + 1) * page_tokens <= oldest / l.block_tokens * l.block_tokens; ++p) table[static_cast<size_t>(seqs[i].page_begin + p)] = 0x3fffffff;
    }
  }

  // Of all rows; columns: of the kernel's results.
  template <int columns>
  Rows outputs(const Cut& cut) const {
    using K = decode::Coded<type, dims, columns, 32>;
    using Small = decode::Coded<type, dims, columns, 16>;
    Rows out(static_cast<size_t>(rows * heads * dims), nan);
    DecodeArgs a{};
    a.q = qkv.data();
    a.k = qkv.data() + heads * dims;
    a.tails = tails;
    a.out = out.data();
    a.seqs = seqs.data();
    a.page_table = table.data();
    a.pages = pages;
    a.q_stride = a.k_stride = row_floats();
    a.out_stride = heads * dims;
    a.head_bytes = l.head_bytes;
    a.page_bytes = static_cast<uint32_t>(l.page_bytes);
    a.kv_heads = kv.kv_heads;
    a.group = heads / kv.kv_heads;
    a.head_parts = (a.group + columns - 1) / columns;
    a.part_heads = (a.group + a.head_parts - 1) / a.head_parts;
    a.page_tokens = kv.page_tokens;
    a.block_tokens = l.block_tokens;
    a.stages = cut.stages;
    a.page_magic = page_magic(kv.page_tokens);
    a.seq_count = static_cast<int32_t>(seqs.size());
    a.one_each = rows == a.seq_count;
    a.too_many = 1 << 30;
    a.tile_rows = cut.tile_rows;
    a.tile_columns = cut.tile_rows * a.part_heads;
    CHECK(a.tile_columns <= columns);
    a.window = window;
    a.chunk = cut.chunk;
    a.walks = cut.walks;
    int longest = 0;
    for (const Sequence& s : sequences) longest = std::max(longest, s.before + s.rows);
    a.splits = cut.walks ? 1 : (longest - 1) / cut.chunk + 1;
    a.scale_log2 = 1.44269504f / std::sqrt(static_cast<float>(dims));
    const int tiles = std::min(rows, rows / cut.tile_rows + 2 * a.seq_count) * kv.kv_heads * a.head_parts;  // as plan_decode() has them
    std::vector<float> records(static_cast<size_t>(tiles * a.splits * a.tile_columns * (dims + 4)), nan);
    std::vector<uint32_t> done(static_cast<size_t>(tiles), 0);
    a.records = records.data();
    a.done = done.data();
    if (a.block_tokens == 32)
      run<K>(a, tiles);
    else
      run<Small>(a, tiles);
    for (const uint32_t d : done) CHECK(d == 0);
    return out;
  }

  // The largest difference from the formula.
  double off(const Rows& out) const {
    double worst = 0;
    for (size_t i = 0; i < seqs.size(); ++i)
      for (int r = 0; r < sequences[i].rows; ++r)
        for (int h = 0; h < heads; ++h) {
          const int p = sequences[i].before + r, g = h / (heads / kv.kv_heads), row = seqs[i].row_begin + r;
          std::vector<double> scores, o(static_cast<size_t>(dims));
          double most = -1e30, sum = 0;
          const int oldest = window ? std::max(0, p - window + 1) : 0;
          for (int t = oldest; t <= p; ++t) {
            const Rows& keys = t / l.key_tile == p / l.key_tile ? exact[i] : sealed[i];
            double dot = 0;
            for (int d = 0; d < dims; ++d) dot += double{qkv[static_cast<size_t>(row * row_floats() + h * dims + d)]} * double{keys[at(t, g, d)]};
            scores.push_back(dot / std::sqrt(static_cast<double>(dims)));
            most = std::max(most, scores.back());
          }
          for (int t = oldest; t <= p; ++t) {
            const double weight = std::exp(scores[static_cast<size_t>(t - oldest)] - most);
            sum += weight;
            for (int d = 0; d < dims; ++d) o[static_cast<size_t>(d)] += weight * double{values[i][at(t, g, d)]};
          }
          constexpr int turned = dims & -dims;
          for (int step = 1; step < turned; step *= 2)
            for (int d = 0; d < dims; ++d)
              if (!(d & step)) {
                const double x = o[static_cast<size_t>(d)], y = o[static_cast<size_t>(d + step)];
                o[static_cast<size_t>(d)] = x + y, o[static_cast<size_t>(d + step)] = x - y;
              }
          for (int d = 0; d < dims; ++d) {
            const double e = std::fabs(o[static_cast<size_t>(d)] / sum / std::sqrt(double{turned}) - double{out[static_cast<size_t>((row * heads + h) * dims + d)]});
            worst = e <= worst ? worst : e == e ? e : 1e30;
          }
        }
    return worst;
  }

  // The last row of sequence i has no numbers for key and value.
  void poison(size_t i) {
    const int last = sequences[i].before + sequences[i].rows - 1, row = seqs[i].row_begin + sequences[i].rows - 1;
    for (int h = 0; h < kv.kv_heads; ++h) {
      unsigned char* grid = head_of(i, last, h) + l.value_grid_of(last % kv.page_tokens);
      put16(grid, 0x7fc0);
      if (!int8) put16(grid + 2 * l.block_tokens, 0x7fc0);
      for (int d = 0; d < dims; ++d) qkv[static_cast<size_t>(row * row_floats() + (heads + h) * dims + d)] = nan;
    }
  }
};

template <KvType type, int dims, int columns>
void check(Random& random, int group, int kv_heads, int page_tokens, int window, const std::vector<Sequence>& sequences, const std::vector<Cut>& cuts) {
  Cache<type, dims> cache(random, group, kv_heads, page_tokens, window, sequences);
  const auto width = static_cast<size_t>(cache.heads * dims);
  Rows first;
  for (const Cut& cut : cuts) {
    const Rows out = cache.template outputs<columns>(cut);
    const double off = cache.off(out);
    bool good = off < 1.5e-2;
    // Bits are those of the chunks alone.
    if (first.empty()) first = out;
    const bool same = cut.chunk != cuts[0].chunk || same_bits(first, out);
    Cache<type, dims> bad = cache;
    bad.pages = bad.page_memory.data() + (cache.pages - cache.page_memory.data());
    bad.tails = bad.tail_memory.data() + (cache.tails - cache.tail_memory.data());
    bad.poison(0);
    const Rows hurt = bad.template outputs<columns>(cut);
    size_t lost = 0, kept = 0;
    const size_t last = static_cast<size_t>(sequences[0].rows - 1) * width;
    for (size_t i = 0; i < out.size(); ++i)
      if (i >= last && i < last + width)
        kept += hurt[i] == hurt[i];
      else
        lost += std::memcmp(&hurt[i], &out[i], 4) != 0;
    good = good && same && lost == 0 && kept == 0;
    if (!good)
      std::printf("  %s of %d, %d heads of %d a group, %d columns, pages of %d, window %d; chunk %d, %d rows a tile, %d stages, walks %d: off by %g, same %d; a row of no numbers: %zu "
                  "of others' outputs changed, %zu of its own are numbers\n",
                  name(type), dims, kv_heads, group, columns, page_tokens, window, cut.chunk, cut.tile_rows, cut.stages, cut.walks, off, same, lost, kept);
    CHECK(good);
  }
}

constexpr KvType i = KvType::int8, u = KvType::uint4;

TEST(decode_attention_over_codes) {
  Random random(1);
  check<i, 128, 8>(random, 4, 1, 32, 0, {{299, 1}, {0, 1}, {63, 1}}, {{128, 1, 1, false}, {128, 1, 3, true}, {512, 1, 2, false}});
  check<u, 128, 8>(random, 4, 1, 64, 0, {{270, 1}, {31, 1}}, {{128, 1, 2, false}, {512, 1, 1, false}, {128, 1, 1, true}});
  check<i, 64, 8>(random, 3, 2, 16, 0, {{150, 1}, {16, 1}}, {{128, 1, 1, true}, {128, 1, 2, false}});
  check<u, 80, 8>(random, 7, 1, 48, 0, {{200, 1}, {15, 1}}, {{128, 1, 4, false}, {256, 1, 1, false}});
}

TEST(decode_attention_over_codes_of_many_pages) {  // more than a warp looks up at once, in one chunk
  Random random(4);
  check<i, 64, 8>(random, 2, 1, 16, 0, {{2300, 1}}, {{8192, 1, 2, false}});
  check<u, 64, 8>(random, 2, 1, 32, 0, {{4300, 1}}, {{8192, 1, 1, false}});
}

TEST(decode_attention_over_codes_in_windows) {
  Random random(2);
  check<i, 96, 8>(random, 2, 1, 16, 50, {{215, 1}, {20, 1}}, {{128, 1, 1, false}, {128, 1, 2, true}});
  check<u, 64, 8>(random, 5, 1, 16, 17, {{300, 1}, {144, 1}}, {{128, 1, 2, false}, {512, 1, 1, false}});
  check<i, 80, 16>(random, 10, 1, 32, 100, {{260, 3}, {30, 4}}, {{128, 1, 1, false}});
  check<u, 96, 8>(random, 2, 1, 32, 33, {{257, 6}}, {{128, 4, 2, false}, {128, 1, 1, true}, {128, 2, 1, true}});
}

TEST(decode_attention_of_several_rows_over_codes) {
  Random random(3);
  check<i, 64, 16>(random, 4, 1, 64, 0, {{90, 11}, {0, 5}}, {{128, 4, 1, false}, {128, 1, 2, true}, {128, 2, 4, false}});
  check<u, 64, 16>(random, 2, 1, 16, 0, {{125, 9}}, {{128, 8, 1, false}, {128, 1, 2, false}});
  check<u, 256, 8>(random, 2, 1, 32, 0, {{36, 5}}, {{128, 4, 1, false}, {128, 1, 2, false}});
  check<i, 256, 8>(random, 1, 1, 16, 0, {{20, 6}}, {{128, 8, 1, false}});
  check<i, 128, 16>(random, 12, 1, 48, 0, {{70, 2}}, {{128, 1, 2, false}});
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::test_main(count, values); }
