// Calls of some rows after long contexts, in fast mode: blocks share the keys of a tile of queries. Against the
// formula in double for some of the rows; equal calls have equal bits, wherever their pages are; what is not finite
// stays with those who see it. Without a GPU it is skipped, saying why.
#include "cuda_attention_rig.h"

namespace orlop::test {
namespace {

// formula() for the row `t` and all heads, over what held() gives.
void row_of_formula(const Shape& s, const Rows& cache, const Rows& own, int t, std::vector<double>& out) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.dim));
  const int low = s.window > 0 ? std::max(0, t - s.window + 1) : 0;
  std::vector<double> p(static_cast<size_t>(t + 1));
  out.assign(static_cast<size_t>(s.heads * s.dim), 0);
  for (int h = 0; h < s.heads; ++h) {
    const int g = h / (s.heads / s.kv_heads);
    const float* q = &cache[static_cast<size_t>(t * s.row() + h * s.dim)];
    double most = -1e300, sum = 0;
    for (int j = low; j <= t; ++j) {
      const float* k = &(j / s.key_tile == t / s.key_tile ? own : cache)[static_cast<size_t>(j * s.row() + (s.heads + g) * s.dim)];
      double dot = 0;
      for (int d = 0; d < s.dim; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      p[static_cast<size_t>(j)] = dot * scale;
      most = std::max(most, dot * scale);
    }
    double* o = &out[static_cast<size_t>(h * s.dim)];
    for (int j = low; j <= t; ++j) {
      const double w = std::exp(p[static_cast<size_t>(j)] - most);
      sum += w;
      const float* v = &cache[static_cast<size_t>(j * s.row() + (s.heads + s.kv_heads + g) * s.dim)];
      for (int d = 0; d < s.dim; ++d) o[d] += w * static_cast<double>(v[d]);
    }
    for (int d = 0; d < s.dim; ++d) o[d] /= sum;
  }
}

// Of the last `rows` rows: the first, the last, and some between.
bool close(const Shape& s, const Rows& qkv, const Rows& got, int rows, Random& random) {
  const int n = static_cast<int>(qkv.size()) / s.row(), width = s.heads * s.dim;
  Rows own;
  const Rows cache = held(s, qkv, own);
  double error = 0, square = 0, most = 0;
  std::vector<double> want;
  for (int i = 0; i < 5; ++i) {
    const int t = i == 0 ? n - 1 : i == 1 ? n - rows : n - random.between(1, rows);
    row_of_formula(s, cache, own, t, want);
    for (int d = 0; d < width; ++d) {
      const double e = static_cast<double>(got[static_cast<size_t>(t * width + d)]) - want[static_cast<size_t>(d)];
      error += e * e;
      square += want[static_cast<size_t>(d)] * want[static_cast<size_t>(d)];
      most = std::fabs(e) <= most ? most : e == e ? std::fabs(e) : 1e30;
    }
  }
  const double mean = std::sqrt(error / square);
  const bool good = most <= bound(s.type) && mean <= mean_bound(s.type);
  if (!good) std::printf("  %s, %d rows of %d: off by %g, in the mean %g\n", words(s).c_str(), rows, n, most, mean);
  return good;
}

Shape long_shape(Random& random, KvType type) {
  Shape s = random_shape(random, type, false);
  const int groups[] = {1, 2, 4, 4, 7, 8};
  const int group = groups[random.below(6)];
  s.kv_heads = group > 2 ? 1 : random.between(1, 2);
  s.heads = s.kv_heads * group;
  s.window = random.below(3) ? 0 : random.between(100, 2500);
  return s;
}

// What was said before, then the rows that are meant, then some more of a few sequences.
std::vector<Step> steps_of(const std::vector<int>& past, const std::vector<int>& rows) {
  Step first, second;
  for (size_t i = 0; i < past.size(); ++i) {
    if (past[i]) first.push_back({static_cast<int>(i), past[i]});
    second.push_back({static_cast<int>(i), rows[i]});
  }
  return {first, second};
}

TEST(cuda_long_prompts_are_split) {
  Random random(11);
  for (int round = 0; round < (is_short() ? 4 : 16); ++round) {
    const KvType type = types[1 + round % 4];
    const Shape s = long_shape(random, type);
    std::vector<int> past, rows;
    const int count = round % 2 ? random.between(2, 4) : 1;
    for (int i = 0; i < count; ++i) {
      past.push_back(i == 0 ? random.between(2500, 4000) : random.between(0, 4000));
      rows.push_back(random.between(count == 1 ? 4 : 16, 130));
    }
    if (round % 4 == 3) rows[static_cast<size_t>(random.below(count))] = 1;  // a row of the other kernel
    std::vector<int> lengths;
    for (int i = 0; i < count; ++i) lengths.push_back(past[static_cast<size_t>(i)] + rows[static_cast<size_t>(i)]);
    const std::vector<Rows> qkv = random_sequences(s, lengths, random);
    const auto steps = steps_of(past, rows);
    const auto got = feed_gpu(gpu(false), s, qkv, steps, 3), again = feed_gpu(gpu(false), s, qkv, steps, 4);
    for (size_t i = 0; i < qkv.size(); ++i) {
      CHECK(close(s, qkv[i], got[i], rows[i], random));
      if (!same_bits(got[i], again[i])) std::printf("  %s: equal calls differ\n", words(s).c_str());
      CHECK(same_bits(got[i], again[i]));
    }
    if (round % 4 == round / 4) {
      const auto narrow = feed_gpu(gpu(false), s, qkv, steps, 3, {.narrow = true});
      bool same = true;
      for (size_t i = 0; i < qkv.size(); ++i)
        for (size_t j = 0; j < got[i].size(); ++j) same &= bf16_to_f32(f32_to_bf16(got[i][j])) == narrow[i][j];
      if (!same) std::printf("  %s: narrow rows differ\n", words(s).c_str());
      CHECK(same);
    }
  }
}

// Groups of many heads, tiles of few positions; key heads enough that tiles wait for each other; contexts shorter
// than there are blocks for their keys.
TEST(cuda_split_corners) {
  Random random(12);
  struct Corner {
    int heads, kv_heads, dim, page, window;
    std::vector<int> past, rows;
  };
  const Corner corners[] = {{32, 1, 64, 16, 0, {2000}, {40}}, {32, 8, 128, 16, 0, {1984}, {40}},    {16, 4, 64, 16, 0, {1000, 600, 0, 1500}, {33, 130, 64, 16}},
                            {14, 2, 64, 32, 0, {3900}, {128}}, {4, 4, 256, 16, 0, {900, 1300}, {65, 32}}, {2, 2, 64, 16, 200, {3000}, {130}},
                            {64, 1, 64, 16, 0, {900}, {17}},   {8, 8, 96, 48, 700, {1500, 40}, {16, 16}}, {8, 2, 128, 16, 0, {2500}, {5}}, {3, 1, 80, 16, 0, {640, 700}, {16, 50}}};
  for (const Corner& corner : corners)
    for (int i = 1; i < 5; ++i) {
      if (const auto at = &corner - corners; is_short() ? i != 1 + at % 4 : i % 2 != at % 2) continue;
      Shape s{corner.heads, corner.kv_heads, corner.dim, corner.page, types[i], corner.window};
      const int tile = cuda::KvLayout({s.type, s.kv_heads, s.dim, s.page_tokens}).key_tile;
      if (tile) s.key_tile = tile;
      std::vector<int> lengths;
      for (size_t j = 0; j < corner.past.size(); ++j) lengths.push_back(corner.past[j] + corner.rows[j]);
      const std::vector<Rows> qkv = random_sequences(s, lengths, random);
      const auto steps = steps_of(corner.past, corner.rows);
      const auto got = feed_gpu(gpu(false), s, qkv, steps, 3), again = feed_gpu(gpu(false), s, qkv, steps, 3);
      for (size_t j = 0; j < qkv.size(); ++j) {
        CHECK(close(s, qkv[j], got[j], corner.rows[j], random));
        CHECK(same_bits(got[j], again[j]));
      }
    }
}

// A sequence of what is not finite has no effect on its neighbours; a row's own value and key, seen by nobody else,
// none on the rows before it.
TEST(cuda_split_hostile_values) {
  Random random(13);
  for (int round = 0; round < (is_short() ? 2 : 8); ++round) {
    Shape s = long_shape(random, types[1 + round % 4]);
    if (s.dim == 256) s.dim = 128;
    const std::vector<int> past = {random.between(1000, 3000), random.between(1000, 3000), random.between(1000, 3000)}, rows = {40, 20, 70};
    std::vector<int> lengths;
    for (size_t i = 0; i < past.size(); ++i) lengths.push_back(past[i] + rows[i]);
    std::vector<Rows> qkv = random_sequences(s, lengths, random);
    const auto steps = steps_of(past, rows);
    const auto want = feed_gpu(gpu(false), s, qkv, steps, 1);
    const float kinds[] = {nan, infinity, -infinity, 3e38f};
    for (float& x : qkv[1])
      if (random.below(50) == 0) x = kinds[random.below(4)];
    std::fill(qkv[2].end() - s.row(), qkv[2].end(), nan);
    const auto got = feed_gpu(gpu(false), s, qkv, steps, 1);
    CHECK(same_bits(got[0], want[0]));
    const auto width = static_cast<size_t>(s.heads * s.dim), last = got[2].size() - width;
    // A coded tile takes the last row's key in once it is whole: others of the tile see their own keys still.
    bool others = true, itself = true;
    for (size_t i = 0; i < last; ++i) others &= got[2][i] == want[2][i];
    for (size_t i = last; i < got[2].size(); ++i) itself &= got[2][i] != got[2][i];
    if (!others || !itself) std::printf("  %s: NaN in the last row: rows before it %d, itself %d\n", words(s).c_str(), others, itself);
    CHECK(others && itself);
  }
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::attention_test_main(count, values); }
