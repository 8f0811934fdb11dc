// The small ops on rows of the CUDA backend: against the CPU's, at sizes and alignments that take different ways, and a
// row alone and among others. Without a GPU it is skipped, saying why.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/ops.h"
#include "gpu_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

std::mt19937& engine() {
  static std::mt19937 e(7);
  return e;
}
int below(int64_t n) { return static_cast<int>(engine()() % static_cast<unsigned>(n)); }
std::vector<float> randoms(size_t n, float sigma = 1) {
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> v(n);
  for (float& x : v) x = normal(engine());
  return v;
}

template <class T>
On<T> poisoned(size_t n) {
  T value;
  std::memset(&value, 0xee, sizeof value);
  return On<T>(std::vector<T>(n, value));
}

// Bit for bit, positions beyond a million and angles beyond 100,000 among them.
TEST(rope_tables_are_the_references) {
  for (const int half : {1, 16, 32, 48, 64, 65, 128}) {
    const int64_t rows = half == 64 ? 2000 : 1 + below(40);
    std::vector<int32_t> positions(static_cast<size_t>(rows));
    for (auto& p : positions) p = below(below(2) ? 4096 : 2000000);
    positions[0] = 0;
    std::vector<float> frequency;
    for (int i = 0; i < half; ++i) frequency.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / half)));
    const size_t n = static_cast<size_t>(rows * half);
    std::vector<float> want_cos(n), want_sin(n);
    cpu::ref::rope_table({positions.data(), frequency.data(), 1.25f, rows, half, want_cos.data(), want_sin.data()}, 0, rows);
    const On<int32_t> at(positions);
    const On<float> f(frequency);
    const On<float> cosine = poisoned<float>(n), sine = poisoned<float>(n);
    gpu().exec().kernels->rope_table(gpu().exec(), {at.at(), f.at(), 1.25f, rows, half, cosine.at(), sine.at()});
    CHECK(std::memcmp(cosine.read().data(), want_cos.data(), n * sizeof(float)) == 0);
    CHECK(std::memcmp(sine.read().data(), want_sin.data(), n * sizeof(float)) == 0);
  }
}

TEST(norms) {
  for (const int64_t dim : {1, 3, 4, 255, 256, 1023, 1024, 4096, 5120, 16384})
    for (const int64_t gap : {0, 4, 1}) {
      const int64_t rows = dim > 4096 ? 3 : 1 + below(20), stride = dim + gap;
      const std::vector<float> x = randoms(static_cast<size_t>(rows * stride), 3), w = randoms(static_cast<size_t>(dim));
      const On<float> d_x(x), d_w(w), out = poisoned<float>(x.size());
      gpu().exec().kernels->norm(gpu().exec(), {d_x.at(), stride, d_w.at(), 1e-5f, out.at(), stride, rows, dim});
      std::vector<float> want(x.size());
      cpu::ref::norm({x.data(), stride, w.data(), 1e-5f, want.data(), stride, rows, dim}, 0, rows);
      const std::vector<float> got = out.read();
      bool close = true, between = true;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < stride; ++i) {
          const auto at = static_cast<size_t>(r * stride + i);
          uint32_t bits;
          std::memcpy(&bits, &got[at], 4);
          if (i < dim)
            close &= std::fabs(got[at] - want[at]) <= 3e-6f * std::max(1.0f, std::fabs(want[at]));
          else
            between &= bits == 0xeeeeeeeeu;
        }
      CHECK(close);
      CHECK(between);
      // Alone, and differently aligned: the same bits.
      const auto r = static_cast<size_t>(below(rows));
      std::vector<float> one(1);
      one.insert(one.end(), x.begin() + static_cast<long>(r * static_cast<size_t>(stride)), x.begin() + static_cast<long>(r * static_cast<size_t>(stride) + static_cast<size_t>(dim)));
      const On<float> d_one(one), alone = poisoned<float>(static_cast<size_t>(dim));
      gpu().exec().kernels->norm(gpu().exec(), {d_one.at() + 1, dim, d_w.at(), 1e-5f, alone.at(), dim, 1, dim});
      CHECK(std::memcmp(alone.read().data(), got.data() + r * static_cast<size_t>(stride), static_cast<size_t>(dim) * 4) == 0);
    }
}

TEST(gathers) {
  for (const int64_t dim : {1, 4, 7, 1000, 1024, 1028, 4096, 4099})
    for (const int64_t gap : {0, 3}) {
      const int64_t rows = 1 + below(30), stride = dim + gap, wanted = 1 + below(50);
      const std::vector<float> x = randoms(static_cast<size_t>(rows * stride));
      std::vector<int32_t> index(static_cast<size_t>(wanted));
      for (auto& i : index) i = below(rows);
      const On<float> d_x(x), out = poisoned<float>(static_cast<size_t>(wanted * dim));
      const On<int32_t> d_index(index);
      gpu().exec().kernels->gather(gpu().exec(), {d_x.at(), stride, d_index.at(), out.at(), wanted, dim});
      const std::vector<float> got = out.read();
      for (size_t r = 0; r < index.size(); ++r)
        CHECK(std::memcmp(&got[r * static_cast<size_t>(dim)], &x[static_cast<size_t>(index[r] * stride)], static_cast<size_t>(dim) * 4) == 0);
    }
}

// Ids, and ids that say which of the last step's results is meant.
TEST(embeddings_of_tokens_just_drawn) {
  for (const int64_t k : {1, 5, 64, 1000, 4096}) {
    const int64_t vocab = 50;
    const std::vector<float> table = randoms(static_cast<size_t>(vocab * k));
    LinearDesc d;
    d.k = k;
    d.part_count = 1;
    d.type[0] = FileType::f32;
    d.part_n[0] = vocab;
    d.compute = Compute::fp32;
    const Kernels& kernels = *gpu().exec().kernels;
    const On<unsigned char> packed = poisoned<unsigned char>(kernels.linear_bytes(d));
    LinearSource source;
    source.rows[0] = reinterpret_cast<const unsigned char*>(table.data());
    source.row_bytes[0] = static_cast<size_t>(k) * 4;
    kernels.linear_pack(d, source, 0, kernels.linear_tiles(d), packed.at());
    const std::vector<SampleResult> drawn = {{7, 0}, {-1, 0}, {49, 0}};
    const std::vector<int32_t> ids = {3, -1, -2, -3, 0, 49, -1}, want = {3, 7, 0, 49, 0, 49, 7};
    const On<SampleResult> d_drawn(drawn);
    const On<int32_t> d_ids(ids);
    const On<float> out = poisoned<float>(ids.size() * static_cast<size_t>(k));
    kernels.embed(gpu().exec(), {.desc = &d, .packed = packed.at(), .ids = d_ids.at(), .scale = 0.5f, .out = out.at(),
                                 .rows = static_cast<int64_t>(ids.size()), .previous = d_drawn.at()});
    const std::vector<float> got = out.read();
    for (size_t r = 0; r < ids.size(); ++r)
      for (size_t i = 0; i < static_cast<size_t>(k); ++i)
        CHECK(got[r * static_cast<size_t>(k) + i] == table[static_cast<size_t>(want[r]) * static_cast<size_t>(k) + i] * 0.5f);
  }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
