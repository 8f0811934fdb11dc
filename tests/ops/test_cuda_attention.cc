// Caches and attention of the CUDA backend: codes, tails and queries against the CPU's reference to the bit,
// outputs against the formula in double, rows alone and in any cut of the work. Without a GPU it is skipped,
// saying why.
#include "cuda_attention_rig.h"

namespace orlop::test {
namespace {

TEST(cuda_attention_is_the_formula) {
  Random random(1);
  double seen[5] = {};
  for (int round = 0; round < 40; ++round) {
    const KvType type = types[round % 5];
    const Shape s = random_shape(random, type, round / 5 % 4 == 3);
    const std::vector<Rows> qkv = random_sequences(s, {1, random.between(2, 40), random.between(200, 330), random.between(1, 70)}, random);
    const bool deterministic = round / 5 % 2;
    const int most[] = {1, 3, 30, 400};
    const std::vector<Rows> got = feed_gpu(gpu(deterministic), s, qkv, pieces(s, qkv, random, most[random.below(4)]), 7);
    for (size_t i = 0; i < qkv.size(); ++i) {
      const Rows want = formula(s, qkv[i]);
      CHECK(close(s, got[i], want, 0, deterministic ? "deterministic" : "fast"));
      seen[round % 5] = std::max(seen[round % 5], worst(got[i], want));
    }
  }
  for (int i = 0; i < 5; ++i) std::printf("  %s: largest error %.2g\n", name(types[i]), seen[i]);
}

// Contexts of many chunks, one row at a time, alone and together; the last rows against the formula.
TEST(cuda_long_contexts_are_split) {
  Random random(2);
  for (int round = 0; round < 10; ++round) {
    const KvType type = types[round % 5];
    Shape s = random_shape(random, type, false);
    s.dim = round % 2 ? 128 : 64;
    s.kv_heads = 2;
    s.heads = round % 3 ? 8 : 4;
    s.page_tokens = round % 2 ? 32 : 16;
    s.key_tile = type == KvType::int8 && round % 2 ? 32 : 16;
    s.window = round >= 5 ? 700 : 0;
    const std::vector<int> lengths = {3000, 1030, 257};
    const std::vector<Rows> qkv = random_sequences(s, lengths, random);
    std::vector<Step> steps = {{{0, lengths[0] - 3}, {1, lengths[1] - 3}, {2, lengths[2] - 3}}, {{0, 1}}, {{0, 1}, {1, 1}, {2, 1}}, {{1, 2}, {0, 1}, {2, 2}}};
    for (const bool deterministic : {false, true}) {
      const std::vector<Rows> got = feed_gpu(gpu(deterministic), s, qkv, steps, 5);
      for (size_t i = 0; i < qkv.size(); ++i) CHECK(close(s, got[i], formula(s, qkv[i], false, lengths[i] - 5), lengths[i] - 5, "long"));
    }
  }
}

TEST(cuda_attention_narrow) {
  Random random(3);
  for (int round = 0; round < 10; ++round) {
    const Shape s = random_shape(random, types[round % 5], round >= 5);
    const std::vector<Rows> qkv = random_sequences(s, {100, 30}, random);
    for (const bool deterministic : {false, true}) {
      const auto steps = pieces(s, qkv, random, 40);
      const auto wide = feed_gpu(gpu(deterministic), s, qkv, steps, 1), narrow = feed_gpu(gpu(deterministic), s, qkv, steps, 1, {.narrow = true});
      for (size_t i = 0; i < qkv.size(); ++i)
        for (size_t j = 0; j < wide[i].size(); ++j) CHECK(bf16_to_f32(f32_to_bf16(wide[i][j])) == narrow[i][j]);
    }
  }
}

// One call, random pieces, row by row; alone and in a batch; pages and seats elsewhere: deterministic mode has
// the same bits, outputs and pages.
TEST(cuda_bits_do_not_depend_on_the_cut) {
  Random random(4);
  for (int round = 0; round < 15; ++round) {
    const Shape s = random_shape(random, types[round % 5], round >= 10);
    const std::vector<Rows> qkv = random_sequences(s, {round % 3 ? 90 : 700, 31, 2}, random);
    std::vector<unsigned char> want_pages, pages, want_tails, tails;
    const Exec& e = gpu(true);
    const std::vector<Rows> want = feed_gpu(e, s, qkv, whole(s, qkv), 1, {}, &want_pages, &want_tails);
    for (const int most : {1, 40, 300}) {
      if (most < 30 && round % 3 == 0) continue;
      const std::vector<Rows> got = feed_gpu(e, s, qkv, pieces(s, qkv, random, most), static_cast<uint32_t>(most), {}, &pages, &tails);
      bool same = true;
      for (size_t i = 0; i < qkv.size(); ++i) same &= same_bits(got[i], want[i]);
      if (!same) std::printf("  %s: pieces of %d differ\n", words(s).c_str(), most);
      CHECK(same);
      CHECK(pages == want_pages);
    }
    for (size_t i = 0; i < qkv.size(); i += 2) {
      const std::vector<Rows> alone = {qkv[i]};
      CHECK(same_bits(feed_gpu(e, s, alone, pieces(s, alone, random, 60), 99)[0], want[i]));
    }
    // Fast mode: equal calls have equal bits.
    const auto steps = pieces(s, qkv, random, 20);
    const auto once = feed_gpu(gpu(false), s, qkv, steps, 3), again = feed_gpu(gpu(false), s, qkv, steps, 3);
    for (size_t i = 0; i < qkv.size(); ++i) CHECK(same_bits(once[i], again[i]));
  }
}

// Pages of one sequence, which are numbered from 0, as the reference fills them.
std::vector<unsigned char> pages_of_reference(const Shape& s, const Rows& qkv, const std::vector<Step>& steps) {
  const KvDesc kv{s.type, s.kv_heads, s.dim, s.page_tokens};
  const cpu::KvLayout layout(kv);
  const int n = static_cast<int>(qkv.size()) / s.row();
  std::vector<unsigned char> pages(static_cast<size_t>(layout.page * ((n + s.page_tokens - 1) / s.page_tokens)), 0xff);
  std::vector<unsigned char> tails(static_cast<size_t>(layout.tail), 0xff);
  int done = 0;
  for (const Step& step : steps) {
    const int rows = step[0].rows;
    Rows in(qkv.begin() + done * s.row(), qkv.begin() + (done + rows) * s.row());
    std::vector<int32_t> slots(static_cast<size_t>(rows));
    std::iota(slots.begin(), slots.end(), done);
    const AttentionSeq seq{0, rows, done, 0, 0};
    KvStoreArgs a{};
    a.kv = kv;
    a.heads = s.heads;
    a.qkv = in.data();
    a.qkv_stride = s.row();
    a.rows = rows;
    a.slots = slots.data();
    a.pages = pages.data();
    a.seqs = &seq;
    a.seq_count = 1;
    a.tails = tails.data();
    cpu::ref::kv_store(a, 0, rows);
    cpu::ref::kv_seal(a, 0, s.kv_heads);
    cpu::ref::kv_tail({kv, in.data() + s.heads * s.dim, s.row(), rows, &seq, 1, tails.data()}, 0, s.kv_heads);
    done += rows;
  }
  return pages;
}

// Codes and grids are those of the CPU's caches; scales as far as they matter beside the tile's largest.
TEST(cuda_codes_are_the_references) {
  Random random(5);
  for (int round = 0; round < 24; ++round) {
    const KvType type = round % 2 ? KvType::int8 : KvType::uint4;
    Shape s = random_shape(random, type, round % 3 == 2);
    s.window = 0;
    const int n = random.between(60, 150);
    std::vector<Rows> qkv = random_sequences(s, {n}, random, round % 4 == 3 ? 1e-3f : 1.0f);
    if (round % 5 == 4)
      for (float& x : qkv[0])
        if (random.below(200) == 0) x = random.below(2) ? 1e4f : 0.0f;
    std::vector<unsigned char> pages;
    const auto steps = pieces(s, qkv, random, round % 3 ? 1 : 30);
    const std::vector<unsigned char> cpu_pages = pages_of_reference(s, qkv[0], steps);
    feed_gpu(gpu(round % 3 == 0), s, qkv, steps, 1, {}, &pages);
    const KvDesc kv{type, s.kv_heads, s.dim, s.page_tokens};
    const cuda::KvLayout l(kv);
    const cpu::KvLayout c(kv);
    const bool int8 = type == KvType::int8;
    const int width = cpu::padded_dim(s.dim);
    const auto u16 = [](const unsigned char* p, int64_t i) {
      uint16_t v;
      std::memcpy(&v, p + 2 * i, 2);
      return v;
    };
    int wrong = 0;
    for (int t = 0; t < n; ++t)
      for (int h = 0; h < s.kv_heads; ++h) {
        const int page = t / s.page_tokens, in_page = t % s.page_tokens;
        const unsigned char* mine = pages.data() + l.head_at(page, h);
        const unsigned char* theirs = cpu_pages.data() + page * c.page + h * c.head_block;
        const unsigned char* key_tile = theirs + in_page / 16 * c.key_tile;
        const unsigned char* value_tile = theirs + c.values_at + in_page / 16 * c.value_tile;
        const bool sealed = t / l.key_tile < n / l.key_tile;
        const unsigned char* grids = mine + l.key_grids_of(in_page);
        float unit;
        std::memcpy(&unit, mine + l.key_unit_of(in_page), 4);
        for (int d = 0; d < s.dim; ++d) {
          const cuda::CodePlace k = cuda::key_code(int8, l.lane_words, in_page % 16, d), v = cuda::value_code(int8, l.lane_words, in_page % 16, d);
          const int shift = int8 ? 128 : 0;
          const int key = ((mine[l.key_codes_of(in_page) + k.byte] >> k.shift) - shift) & (int8 ? 255 : 15);
          const int value = ((mine[l.value_codes_of(in_page) + v.byte] >> v.shift) - shift) & (int8 ? 255 : 15);
          const int token = in_page % 16;
          int want_key, want_value;
          uint16_t centre = u16(key_tile + c.key_extra, d), scale = u16(key_tile + c.key_extra, s.dim + d);
          if (int8) {
            want_key = key_tile[(d / 2 * 16 + token) * 2 + d % 2];
            want_value = value_tile[(token / 2 * width + d) * 2 + token % 2];
          } else {
            want_key = key_tile[d / 2 * 16 + token] >> d % 2 * 4 & 15;
            want_value = value_tile[token / 2 * width + d] >> token % 2 * 4 & 15;
          }
          if (l.key_tile == 32 && sealed) {  // the same grid over more tokens
            float x[32];
            const int begin = t / 32 * 32;
            for (int i = 0; i < 32; ++i)
              x[i] = bf16_to_f32(f32_to_bf16(qkv[0][static_cast<size_t>((begin + i) * s.row() + (s.heads + h) * s.dim + d)]));
            const cpu::Grid g = cpu::grid_of(cpu::range_of(x, 32), 127, 127, true);
            centre = g.centre;
            scale = g.scale;
            want_key = cpu::code_of((x[t - begin] - f16_to_f32(centre)) * cpu::inverse_of(scale), -127.0f, 127.0f) & 255;
          }
          if (sealed) wrong += key != want_key || u16(grids, cuda::grid_at(d)) != centre || std::fabs(f16_to_f32(u16(grids, cuda::grid_at(d) + cuda::grid_share)) * unit - bf16_to_f32(scale)) > unit * 0x1p-25f;
          wrong += value != want_value;
        }
        const unsigned char* scales = mine + l.value_grid_of(in_page);
        wrong += u16(scales, 0) != u16(value_tile + c.value_extra, in_page % 16);
        if (!int8) wrong += u16(scales, l.block_tokens) != u16(value_tile + c.value_extra, 16 + in_page % 16);
      }
    if (wrong) std::printf("  %s: %d codes or grids differ\n", words(s).c_str(), wrong);
    CHECK(wrong == 0);
  }
}

// Norm, rotation and plain stores have the reference's bits.
TEST(cuda_kv_store_is_the_reference) {
  Random random(6);
  for (int round = 0; round < 30; ++round) {
    const KvType type = types[round % 3];
    const Shape s = random_shape(random, type, round % 2);
    const int rows = random.between(1, 60), half = round % 4 == 0 ? 0 : round % 4 == 1 ? s.dim / 4 : s.dim / 2;
    const KvDesc kv{type, s.kv_heads, s.dim, s.page_tokens};
    Rows x = random.normals(static_cast<size_t>(rows * s.row()), 3.0f);
    if (round % 7 == 6) x[5] = nan, x[100] = infinity, x[static_cast<size_t>(s.row()) - 1] = 1e20f;
    const Rows cos = random.normals(static_cast<size_t>(rows * std::max(1, half))), sin = random.normals(cos.size());
    const Rows q_norm = random.normals(static_cast<size_t>(s.dim)), k_norm = random.normals(static_cast<size_t>(s.dim));
    const int page_count = rows / s.page_tokens + 2;
    std::vector<int32_t> slots(static_cast<size_t>(page_count * s.page_tokens));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random.engine);
    slots.resize(static_cast<size_t>(rows));
    const Exec& e = gpu(round % 2);
    const bool norms = round % 3;
    const On dx(e, x), dc(e, cos), ds(e, sin), dq(e, q_norm), dk(e, k_norm), dslots(e, slots);
    const On pages(e, e.kernels->kv_page_bytes(kv) * static_cast<size_t>(page_count), 0xff);
    KvStoreArgs a{};
    a.kv = kv;
    a.heads = s.heads;
    a.qkv = dx.as<float>();
    a.qkv_stride = s.row();
    a.rows = rows;
    a.slots = dslots.as<int32_t>();
    a.cos = dc.as<float>();
    a.sin = ds.as<float>();
    a.half = half;
    a.q_norm = norms ? dq.as<float>() : nullptr;
    a.k_norm = norms ? dk.as<float>() : nullptr;
    a.eps = 1e-5f;
    a.pages = pages.as<void>();
    e.kernels->kv_store(e, a);
    const cpu::KvLayout c(kv);
    std::vector<unsigned char> cpu_pages(static_cast<size_t>(c.page * page_count), 0xff);
    Rows want = x;
    a.qkv = want.data();
    a.slots = slots.data();
    a.cos = cos.data();
    a.sin = sin.data();
    a.q_norm = norms ? q_norm.data() : nullptr;
    a.k_norm = norms ? k_norm.data() : nullptr;
    a.pages = cpu_pages.data();
    cpu::ref::kv_store(a, 0, rows);
    const Rows got = dx.read<float>();
    int wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) wrong += std::memcmp(&got[i], &want[i], 4) != 0 && (got[i] == got[i] || want[i] == want[i]);
    if (wrong) std::printf("  %s half %d: %d of qkv differ\n", words(s).c_str(), half, wrong);
    CHECK(wrong == 0);
    const auto mine = pages.read<unsigned char>();
    const cuda::KvLayout l(kv);
    const int width = cpu::padded_dim(s.dim), tokens = c.tokens;
    wrong = 0;
    for (const int32_t slot : slots)
      for (int h = 0; h < s.kv_heads; ++h)
        for (int d = 0; d < s.dim; ++d)
          for (int value = 0; value < 2; ++value) {
            const int in_page = slot % s.page_tokens, t = in_page % tokens;
            const int64_t size = type == KvType::f32 ? 4 : 2;
            const unsigned char* m = mine.data() + l.head_at(slot / s.page_tokens, h) + value * l.values_at + (int64_t{in_page} * s.dim + d) * size;
            const unsigned char* w = cpu_pages.data() + slot / s.page_tokens * c.page + h * c.head_block +
                                     (value ? c.values_at + in_page / tokens * c.value_tile : in_page / tokens * c.key_tile);
            w += size * (type == KvType::bf16 ? (value ? (t / 2 * width + d) * 2 + t % 2 : (d / 2 * tokens + t) * 2 + d % 2)
                                              : (value ? t * width + d : d * tokens + t));
            if (std::memcmp(m, w, static_cast<size_t>(size)) == 0) continue;
            const int64_t at = (int64_t{&slot - slots.data()}) * s.row() + (s.heads + value * s.kv_heads + h) * s.dim + d;
            wrong += want[static_cast<size_t>(at)] == want[static_cast<size_t>(at)];  // NaN has many bits
          }
    if (wrong) std::printf("  %s: %d stored elements differ\n", words(s).c_str(), wrong);
    CHECK(wrong == 0);
  }
}

// A sequence of NaN, infinities or huge numbers has no effect on its neighbours; its own rows are not taken for
// numbers where there is a NaN; and rows before one that is not finite stay what they were.
TEST(cuda_hostile_values) {
  Random random(7);
  for (int round = 0; round < 20; ++round) {
    const KvType type = types[round % 5];
    const Shape s = random_shape(random, type, round >= 15);
    std::vector<Rows> qkv = random_sequences(s, {90, 50, 70}, random);
    const auto steps = round % 2 ? whole(s, qkv) : pieces(s, qkv, random, 9);
    for (const bool deterministic : {false, true}) {
      const auto want = feed_gpu(gpu(deterministic), s, qkv, steps, 1);
      std::vector<Rows> bad = qkv;
      const float kinds[] = {nan, infinity, -infinity, 3e38f};
      for (size_t i = 0; i < bad[1].size(); ++i)
        if (random.below(50) == 0) bad[1][i] = kinds[random.below(4)];
      // Of the third, the last row alone: its value and key are seen by nobody else.
      for (int d = 0; d < s.row(); ++d) bad[2][static_cast<size_t>(69 * s.row() + d)] = nan;
      const auto got = feed_gpu(gpu(deterministic), s, bad, steps, 1);
      CHECK(same_bits(got[0], want[0]));
      const auto width = static_cast<size_t>(s.heads * s.dim);
      bool others = true, last = true;
      for (size_t i = 0; i < 64 * width; ++i) others &= got[2][i] == want[2][i];
      for (size_t i = 69 * width; i < 70 * width; ++i) last &= got[2][i] != got[2][i];
      if (!others || !last) std::printf("  %s: NaN in the last row: rows before it %d, itself %d\n", words(s).c_str(), others, last);
      CHECK(others && last);
    }
  }
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::attention_test_main(count, values); }
