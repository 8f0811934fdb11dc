// Attention over caches of floats: against the formula in double, and bit for bit over every way to
// cut the same work. The quantized types: test_kv.cc.
#include "attention_rig.h"

namespace orlop::test {
namespace {

const Shape shapes[] = {
    {9, 3, 64, 16, KvType::bf16, 0},  {9, 3, 64, 32, KvType::f32, 0},
    {4, 4, 32, 16, KvType::bf16, 0},  {8, 1, 16, 48, KvType::bf16, 0},
    {2, 1, 80, 16, KvType::bf16, 37}, {4, 2, 128, 64, KvType::bf16, 300},
    {2, 2, 24, 16, KvType::f32, 5},   {3, 1, 256, 16, KvType::bf16, 1},
    {40, 1, 8, 16, KvType::bf16, 0},  {6, 3, 96, 16, KvType::f32, 256},
    {5, 1, 64, 16, KvType::bf16, 17}, {2, 1, 40, 16, KvType::bf16, 0},
};

TEST(attention_equals_the_formula) {
  Random random(1);
  for (const Shape& s : shapes) {
    const std::vector<Rows> qkv = random_sequences(s, {1, 33, 290}, random);
    std::vector<Rows> want;
    for (const Rows& r : qkv) want.push_back(formula(s, r));
    for (const IsaUnderTest& isa : isas()) {
      const std::vector<Rows> got = feed(isa, 2, s, qkv, whole(s, qkv), 7);
      // Values are normal numbers, weights add up to one: bf16 weights are off by 2^-9 at most, in
      // float only sums round.
      const double bound = s.type == KvType::bf16 ? 8e-3 : 1e-5;
      for (size_t i = 0; i < qkv.size(); ++i) {
        const double e = worst(got[i], want[i]);
        if (!(e <= bound))
          std::fprintf(stderr, "%s heads %d/%d dim %d window %d seq %zu: error %g\n", isa.name,
                       s.heads, s.kv_heads, s.dim, s.window, i, e);
        CHECK(e <= bound);
      }
    }
  }
}

// One call, random pieces and row by row; alone and in a batch; 1, 2, 3 threads; pages elsewhere.
TEST(attention_bits_do_not_depend_on_the_cut) {
  Random random(2);
  for (const Shape& s : shapes) {
    const std::vector<Rows> qkv = random_sequences(s, {270, 31, 2, is_short() ? 20 : 150}, random);
    for (const IsaUnderTest& isa : isas()) {
      if (!std::strcmp(isa.name, "ref") && s.dim > 64)
        continue;  // slow, and no vectors to get wrong
      if (is_short() && s.heads * s.dim > 400) continue;
      const std::vector<Rows> want = feed(isa, 1, s, qkv, whole(s, qkv), 1);
      for (const Rows& r : want)
        CHECK(std::none_of(r.begin(), r.end(), [](float x) { return x != x; }));
      for (int threads = 1; threads <= 3; ++threads)
        for (const int most : {1, 7, 40, 270}) {
          if (is_short() && (threads == 2 || most == 7 || most == 270)) continue;
          const std::vector<Rows> got = feed(isa, threads, s, qkv, pieces(s, qkv, random, most),
                                             static_cast<uint32_t>(threads * 1000 + most));
          for (size_t i = 0; i < qkv.size(); ++i) {
            const bool same = same_bits(got[i], want[i]);
            if (!same)
              std::fprintf(stderr, "%s heads %d/%d dim %d window %d threads %d pieces %d seq %zu\n",
                           isa.name, s.heads, s.kv_heads, s.dim, s.window, threads, most, i);
            CHECK(same);
          }
        }
      for (size_t i = 0; i < qkv.size(); ++i) {
        const std::vector<Rows> alone = {qkv[i]};
        CHECK(same_bits(feed(isa, 3, s, alone, whole(s, alone), 99)[0], want[i]));
      }
    }
  }
}

// A context long enough that single rows are split into chunks over threads.
TEST(attention_split_decode_is_the_same) {
  Random random(3);
  const int first = is_short() ? 540 : 1500, second = is_short() ? 300 : 1100;
  for (const int window : {0, first * 3 / 5}) {
    const Shape s{6, 2, 64, 16, KvType::bf16, window};
    const std::vector<Rows> qkv = random_sequences(s, {first, second}, random);
    for (const IsaUnderTest& isa : isas()) {
      const std::vector<Rows> want = feed(isa, 1, s, qkv, whole(s, qkv), 1);
      std::vector<Step> steps = {{{0, first - 10}, {1, second - 10}}};
      for (int i = 0; i < 10; ++i) steps.push_back({{0, 1}, {1, 1}});
      CHECK(feed(isa, 3, s, qkv, steps, 5) == want);
      CHECK(feed(isa, 1, s, qkv, steps, 6) == want);
    }
  }
}

// Contexts so long that a block decodes several key heads, chunk by chunk (attention_pages.h).
TEST(attention_long_decode_is_the_same) {
  Random random(5);
  const Shape long_shapes[] = {{6, 2, 64, 16, KvType::bf16, 0}, {2, 2, 8, 32, KvType::f32, 0},
                               {12, 2, 24, 16, KvType::f16, 2100}, {5, 1, 80, 48, KvType::bf16, 0}};
  for (const Shape& s : long_shapes) {
    if (is_short() && s.dim > 8) continue;
    const std::vector<Rows> qkv = random_sequences(s, {2330, 2049, 30}, random);
    for (const IsaUnderTest& isa : isas()) {
      if (!std::strcmp(isa.name, "ref") && s.dim > 8) continue;  // slow
      const std::vector<Rows> want = feed(isa, 3, s, qkv, whole(s, qkv), 1);
      std::vector<Step> steps = {{{0, 2325}, {1, 2045}, {2, 26}}};
      for (int i = 0; i < 4; ++i) steps.push_back({{0, 1}, {1, 1}, {2, 1}});
      steps.push_back({{0, 1}});
      for (const int threads : {1, 3}) CHECK(feed(isa, threads, s, qkv, steps, 5) == want);
    }
  }
}

// Scores beyond what exp can take, infinite ones, and a NaN that must stay in its own future.
TEST(attention_hostile_values) {
  Random random(4);
  for (const KvType type : {KvType::f32, KvType::bf16}) {
    const Shape s{4, 2, 32, 16, type, 0};
    for (const IsaUnderTest& isa : isas()) {
      std::vector<Rows> qkv = random_sequences(s, {300}, random, 1e4f);
      const std::vector<Rows> huge = feed(isa, 2, s, qkv, whole(s, qkv), 1);
      const Rows want = formula(s, qkv[0]);
      // One key wins almost everywhere; near ties are decided by rounding, so count agreements.
      size_t near = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK(std::isfinite(huge[0][i]));
        near += std::fabs(huge[0][i] - want[i]) <= 0.02f * 1e4f;
      }
      CHECK(near > want.size() * 97 / 100);

      // A key whose score is -inf for every query gets no weight.
      qkv = random_sequences(s, {40}, random);
      for (int t = 0; t < 40; ++t)
        for (int d = 0; d < (s.heads + s.kv_heads) * s.dim; ++d)
          qkv[0][static_cast<size_t>(t * s.row() + d)] =
              t == 0 && d >= s.heads * s.dim ? -3e38f : 2.0f;
      const std::vector<Rows> barred = feed(isa, 2, s, qkv, whole(s, qkv), 1);
      for (int t = 1; t < 40; ++t)
        for (int d = 0; d < s.heads * s.dim; ++d)
          CHECK(std::isfinite(barred[0][static_cast<size_t>(t * s.heads * s.dim + d)]));

      // NaN in one token's value and key: rows before it keep their bits, in one call as alone.
      for (const int bad : {17, 18, 33, 256, 257}) {
        qkv = random_sequences(s, {290}, random);
        const std::vector<Rows> clean = feed(isa, 1, s, qkv, whole(s, qkv), 1);
        for (int d = s.heads * s.dim; d < s.row(); ++d)
          qkv[0][static_cast<size_t>(bad * s.row() + d)] = nan;
        const std::vector<Rows> got = feed(isa, 2, s, qkv, whole(s, qkv), 1);
        const size_t before = static_cast<size_t>(bad * s.heads * s.dim);
        CHECK(std::memcmp(got[0].data(), clean[0].data(), before * sizeof(float)) == 0);
        for (size_t i = before; i < got[0].size(); ++i) CHECK(got[0][i] != got[0][i]);
      }
    }
  }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) {
  return orlop::test::test_main(argc, argv);
}
