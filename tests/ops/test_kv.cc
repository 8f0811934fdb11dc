// Caches of every type and page size: each ISA against the formula over what the type is said to
// hold, bit for bit over every way to cut the same work, errors against exact attention on data of
// several kinds, hostile values, pages on the move.
#include "attention_rig.h"

namespace orlop::test {
namespace {

constexpr KvType types[] = {KvType::f32, KvType::bf16, KvType::f16, KvType::int8, KvType::uint4};

bool coded(KvType type) {
  return type == KvType::int8 || type == KvType::uint4;
}
bool takes(KvType type, int page_tokens) {
  return !coded(type) || page_tokens % 16 == 0;
}

Shape random_shape(Random& random, KvType type) {
  const int dims[] = {8, 16, 24, 40, 64, 72, 80, 96, 128, 256};
  const int pages[] = {8, 16, 32, 48, 256};
  const int groups[] = {1, 2, 3, 5};
  Shape s{};
  s.dim = dims[random.below(10)];
  s.kv_heads = random.between(1, s.dim > 96 ? 1 : 3);
  s.heads = s.kv_heads * groups[random.below(s.dim > 96 ? 2 : 4)];
  do s.page_tokens = pages[random.below(5)];
  while (!takes(type, s.page_tokens));
  s.type = type;
  s.window = random.below(2) ? 0 : random.between(1, 300);
  return s;
}

void show(const IsaUnderTest& isa, const Shape& s, const char* what, double e) {
  std::fprintf(stderr, "%s %s heads %d/%d dim %d pages of %d window %d: %s %g\n", isa.name,
               name(s.type), s.heads, s.kv_heads, s.dim, s.page_tokens, s.window, what, e);
}

// Values are normal numbers and weights add up to one. Weights in bf16 are off by 2^-9 of
// themselves; the integers of codes by 2^-16 of the largest (queries' elements, a chunk's weights).
// A value that lies between two codes may be rounded to the other one here, as sums are made in
// another order: one step, a fifteenth of the range or less, spread over a block; rare, so the mean
// square stays small.
double bound(KvType type) {
  return type == KvType::bf16    ? 1e-2
         : type == KvType::int8  ? 1e-2
         : type == KvType::uint4 ? 5e-2
                                 : 2e-5;
}
double mean_bound(KvType type) {
  return type == KvType::bf16 ? 4e-3 : coded(type) ? 1e-3 : 5e-6;
}

double relative_error(const Rows& got, const Rows& want) {
  double error = 0, square = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += e * e;
    square += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(error / square);
}

TEST(kv_large_heads_are_done_too) {
  Random random(10);
  for (const Shape& s :
       {Shape{2, 1, 520, 16, KvType::int8, 0}, Shape{2, 1, 520, 16, KvType::uint4, 9},
        Shape{2, 1, 520, 8, KvType::bf16, 0}, Shape{1, 1, 520, 16, KvType::f16, 0},
        Shape{1, 1, 512, 16, KvType::int8, 0}, Shape{1, 1, 504, 16, KvType::uint4, 0}}) {
    const std::vector<Rows> qkv = random_sequences(s, {40}, random);
    const Rows want = formula(s, qkv[0]);
    for (const IsaUnderTest& isa : isas()) {
      const double e = worst(feed(isa, 2, s, qkv, pieces(s, qkv, random, 20), 7)[0], want);
      if (!(e <= bound(s.type))) show(isa, s, "error", e);
      CHECK(e <= bound(s.type));
    }
  }
}

TEST(kv_every_isa_holds_what_the_type_says) {
  Random random(11);
  double most[5] = {};
  for (int round = 0; round < (is_short() ? 15 : 60); ++round) {
    const KvType type = types[round % 5];
    const Shape s = random_shape(random, type);
    const std::vector<Rows> qkv = random_sequences(s, {1, random.between(2, 40), 275}, random);
    std::vector<Rows> want;
    for (const Rows& r : qkv) want.push_back(formula(s, r));
    for (const IsaUnderTest& isa : isas()) {
      const std::vector<Rows> got = feed(isa, 2, s, qkv, whole(s, qkv), 7);
      for (size_t i = 0; i < qkv.size(); ++i) {
        const double e = worst(got[i], want[i]);
        if (!(e <= bound(type))) show(isa, s, "error", e);
        CHECK(e <= bound(type));
        const double mean = relative_error(got[i], want[i]);
        if (!(mean <= mean_bound(type))) show(isa, s, "mean error", mean);
        CHECK(mean <= mean_bound(type));
        most[round % 5] = std::max(most[round % 5], e);
      }
    }
  }
  for (int i = 0; i < 5; ++i) std::printf("  %s: largest error %.2g\n", name(types[i]), most[i]);
}

// One call, random pieces and row by row; alone and in a batch; 1 to 4 threads; pages and seats
// elsewhere. The pages' bytes are the same too, so that a cached prefix is as good as a computed
// one.
TEST(kv_bits_do_not_depend_on_the_cut) {
  Random random(12);
  for (int round = 0; round < (is_short() ? 5 : 20); ++round) {
    const KvType type = types[round % 5];
    Shape s = random_shape(random, type);
    for (const IsaUnderTest& isa : isas()) {
      const bool ref = !std::strcmp(isa.name, "ref");
      if (ref && s.dim > 80) continue;  // slow, and the same code for every size
      const std::vector<Rows> qkv =
          random_sequences(s, {ref ? 70 : 275, 31, 2, ref ? 20 : 150}, random);
      std::vector<unsigned char> want_pages, pages;
      const std::vector<Rows> want = feed(isa, 1, s, qkv, whole(s, qkv), 1, &want_pages);
      for (const Rows& r : want)
        CHECK(std::none_of(r.begin(), r.end(), [](float x) { return x != x; }));
      for (int threads = 1; threads <= 4; ++threads) {
        const int most[] = {1, 7, 40, 275};
        const std::vector<Rows> got =
            feed(isa, threads, s, qkv, pieces(s, qkv, random, most[(threads + round) % 4]),
                 static_cast<uint32_t>(threads * 1000 + round), &pages);
        const bool same = std::equal(got.begin(), got.end(), want.begin(), same_bits);
        if (!same) show(isa, s, "threads", threads);
        CHECK(same);
        CHECK(pages == want_pages);
      }
      for (size_t i = 0; i < qkv.size(); i += 3) {
        const std::vector<Rows> alone = {qkv[i]};
        CHECK(same_bits(feed(isa, 3, s, alone, whole(s, alone), 99)[0], want[i]));
      }
    }
  }
}

// A context long enough that single rows are split into chunks over threads.
TEST(kv_split_decode_is_the_same) {
  Random random(13);
  const int first = is_short() ? 540 : 1500, second = is_short() ? 300 : 1100;
  for (const KvType type : {KvType::f16, KvType::int8, KvType::uint4}) {
    const Shape s{6, 2, 64, 16, type, random.below(2) ? first * 3 / 5 : 0};
    const std::vector<Rows> qkv = random_sequences(s, {first, second}, random);
    for (const IsaUnderTest& isa : isas()) {
      if (!std::strcmp(isa.name, "ref")) continue;  // its chunks: kv_bits_do_not_depend_on_the_cut
      const std::vector<Rows> want = feed(isa, 1, s, qkv, whole(s, qkv), 1);
      std::vector<Step> steps = {{{0, first - 25}, {1, second - 25}}};
      for (int i = 0; i < 25; ++i) steps.push_back({{0, 1}, {1, 1}});
      CHECK(feed(isa, 4, s, qkv, steps, 5) == want);
      CHECK(feed(isa, 1, s, qkv, steps, 6) == want);
    }
  }
}

// ---- how much a type costs: errors of the outputs against exact attention

enum class Data { normal, outliers, bias };

// outliers: two key and two value channels eight times as large. bias: every key channel has an
// offset of up to 50, as models with biases of k have them; queries small enough that the softmax
// is alive.
Rows data_of(Data kind, const Shape& s, int tokens, Random& random) {
  Rows r = random.normals(static_cast<size_t>(tokens * s.row()));
  Rows offset(static_cast<size_t>(s.kv_heads * s.dim));
  for (float& x : offset) x = 50.0f * (2.0f * static_cast<float>(random.below(1000)) / 999.0f - 1);
  const int k = s.heads * s.dim, v = k + s.kv_heads * s.dim;
  for (int t = 0; t < tokens; ++t) {
    float* row = &r[static_cast<size_t>(t * s.row())];
    if (kind == Data::outliers)
      for (int h = 0; h < s.kv_heads; ++h)
        for (const int d : {3, s.dim - 5}) {
          row[k + h * s.dim + d] *= 8;
          row[v + h * s.dim + d] *= 8;
        }
    if (kind == Data::bias)
      for (int d = 0; d < s.kv_heads * s.dim; ++d) row[k + d] += offset[static_cast<size_t>(d)];
  }
  return r;
}

// Bounds, as parts of the outputs' root mean square over 400 tokens. Scores are q.k / sqrt(dim)
// with q and k of size 1: a key's relative error e adds noise e to a score, a weight is off by e of
// itself, and so is a value: outputs by about e sqrt(2).
//   bf16: 2^-9 / sqrt(3) of each factor: 0.2 %.   f16: an eighth.
//   int8: keys have steps of range / 254 over 16 tokens, range 3.5: 0.4 %; values max / 127,
//   max 2.6
//     (dim 64): 0.6 %.
//   uint4: keys range / 15: 7 %; values, range 5: 10 %.
// Codes of keys are per channel, so that outliers cost nothing; values are turned, so that they
// cost what they add to the whole (their own part of the output is larger by as much). bf16 and f16
// feel them where they lie. With offsets of 50 bf16 keys carry noise 50 * 2^-9 / sqrt(3) * 0.6 = 3
// %: codes do not see the offset, but they are made of keys in bf16, and the own tile's are in
// bf16.
TEST(kv_errors_are_those_of_the_format) {
  Random random(14);
  const struct {
    KvType type;
    double normal, outliers, bias;
  } bounds[] = {{KvType::f32, 1e-5, 1e-5, 1e-4},
                {KvType::f16, 6e-4, 1e-3, 6e-3},
                {KvType::bf16, 4e-3, 1e-2, 5e-2},
                {KvType::int8, 1e-2, 1.3e-2, 5e-2},
                {KvType::uint4, 1.5e-1, 1.5e-1, 1.6e-1}};
  const Shape base{4, 2, 64, 16, KvType::f32, 0};
  const int tokens = is_short() ? 100 : 400;
  for (const Data kind : {Data::normal, Data::outliers, Data::bias}) {
    const Rows rows = data_of(kind, base, tokens, random);
    const Rows exact = formula(base, rows, true);
    for (const auto& b : bounds) {
      Shape s = base;
      s.type = b.type;
      const double most = kind == Data::normal     ? b.normal
                          : kind == Data::outliers ? b.outliers
                                                   : b.bias;
      for (const IsaUnderTest& isa : isas()) {
        const double e = relative_error(feed(isa, 2, s, {rows}, whole(s, {rows}), 3)[0], exact);
        if (!(e <= most)) show(isa, s, "relative error", e);
        CHECK(e <= most);
        if (&isa == &isas().back())
          std::printf("  %s, %s data: %.3g of the output\n", name(b.type),
                      kind == Data::normal     ? "normal"
                      : kind == Data::outliers ? "outlier"
                                               : "offset",
                      e);
      }
    }
  }
}

// ---- hostile values

bool finite(const Rows& r) {
  return std::all_of(r.begin(), r.end(), [](float x) { return std::isfinite(x); });
}

TEST(kv_hostile_values_stay_at_home) {
  Random random(15);
  for (const KvType type : types) {
    const Shape s{4, 2, 24, 16, type, 0};
    for (const IsaUnderTest& isa : isas()) {
      const auto run = [&](const std::vector<Rows>& qkv) {
        return feed(isa, 2, s, qkv, whole(s, qkv), 1);
      };
      const int tokens = 70, out = s.heads * s.dim;
      const auto fill = [&](Rows& r, int t, int from, float x) {
        std::fill_n(r.begin() + t * s.row() + from, s.row() - from, x);
      };
      // Keys and values all zero, all equal, denormal, huge and of mixed size: finite outputs.
      for (const float x : {0.0f, 3.25f, -1e-40f, 1e-30f, 60000.0f, -1e5f}) {
        std::vector<Rows> qkv = random_sequences(s, {tokens}, random);
        for (int t = 0; t < tokens; ++t)
          if (t % 3 != 1) fill(qkv[0], t, out, x);
        const Rows got = run(qkv)[0];
        CHECK(finite(got));
        // Token 0 is alone: its values, as near as the type comes to them (uint4: steps of a
        // fifteenth of an element that holds all of a block).
        const float near = type == KvType::f16 ? std::clamp(x, -65504.0f, 65504.0f) : x;
        const float part = type == KvType::uint4 ? 0.06f : 0.01f;
        const bool close = std::all_of(got.begin(), got.begin() + out, [&](float y) {
          return std::fabs(y - near) <= std::fabs(near) * part + 1e-15f;
        });
        if (!close) show(isa, s, "instead of a constant", got[0] / near);
        CHECK(close);
      }
      // NaN or infinity in one token's key and value: queries before it, and other sequences in the
      // same call, keep their bits; queries from it on are NaN.
      for (const float x : {nan, infinity, -infinity})
        for (const int bad : {0, 17, 31, 32, 69}) {
          std::vector<Rows> qkv = random_sequences(s, {tokens, 40}, random);
          const std::vector<Rows> clean = run(qkv);
          fill(qkv[0], bad, out, x);
          const std::vector<Rows> got = run(qkv);
          const size_t before = static_cast<size_t>(bad * out);
          CHECK(std::memcmp(got[0].data(), clean[0].data(), before * sizeof(float)) == 0);
          CHECK(same_bits(got[1], clean[1]));
          // Infinite keys may get no weight, and fp16 makes them finite.
          if (x != x)
            CHECK(std::none_of(got[0].begin() + bad * out, got[0].end(),
                               [](float y) { return y == y; }));
        }
      // The largest floats: nothing overflows on the way into the cache.
      std::vector<Rows> qkv = random_sequences(s, {tokens, 40}, random);
      const std::vector<Rows> clean = run(qkv);
      for (int t = 3; t < tokens; t += 2)
        for (int d = out; d < s.row(); ++d)
          qkv[0][static_cast<size_t>(t * s.row() + d)] = random.below(2) ? 3.4e38f : -3.4e38f;
      const std::vector<Rows> got = run(qkv);
      CHECK(std::memcmp(got[0].data(), clean[0].data(), static_cast<size_t>(3 * out) * 4) == 0);
      CHECK(same_bits(got[1], clean[1]));
    }
  }
}

// ---- sizes and pages

TEST(kv_page_bytes_are_those_stated) {
  const Kernels& k = isas().front().kernels;
  const struct {
    KvType type;
    size_t at_64, at_24;  // a token and head; 24 dimensions: values take 32
  } stated[] = {{KvType::f32, 512, 4 * 24 + 4 * 32},
                {KvType::bf16, 256, 2 * 24 + 2 * 32},
                {KvType::f16, 256, 2 * 24 + 2 * 32},
                {KvType::int8, 146, 30 + 34},
                {KvType::uint4, 84, 18 + 20}};
  for (const auto& e : stated)
    for (const int page : {8, 16, 32, 48, 256}) {
      if (!takes(e.type, page)) continue;
      CHECK(k.kv_page_bytes({e.type, 3, 64, page}) == 3 * e.at_64 * static_cast<size_t>(page));
      CHECK(k.kv_page_bytes({e.type, 1, 24, page}) == e.at_24 * static_cast<size_t>(page));
      CHECK(k.kv_tail_bytes({e.type, 3, 64, page}) ==
            (coded(e.type) ? size_t{3 * 64 * 16 * 2} : 0u));
    }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) {
  return orlop::test::test_main(argc, argv);
}
