// norm, rope_table, kv_store and gather against formulas in double, every ISA; same bits whatever
// the number of rows and threads.
#include <algorithm>

#include "backend/cpu/kv_layout.h"
#include "base/half.h"
#include "ops_test.h"

namespace orlop::test {
namespace {

TEST(norm_equals_the_formula) {
  Random random(1);
  for (const int dim : {1, 8, 15, 16, 17, 64, 576, 1000})
    for (const IsaUnderTest& isa : isas()) {
      const int rows = 37, stride = dim + 3;
      const std::vector<float> x = random.normals(static_cast<size_t>(rows * stride), 3.0f);
      const std::vector<float> weight = random.normals(static_cast<size_t>(dim));
      std::vector<float> out(static_cast<size_t>(rows * dim) + 16, nan);
      NormArgs a{x.data(), stride, weight.data(), 1e-5f, out.data(), dim, rows, dim};
      isa.kernels.norm(exec(isa, 3), a);
      for (int r = 0; r < rows; ++r) {
        double sum = 0;
        const auto in = [&](int i) { return static_cast<double>(x[static_cast<size_t>(r * stride + i)]); };
        for (int i = 0; i < dim; ++i) sum += in(i) * in(i);
        const double inverse = 1 / std::sqrt(sum / dim + 1e-5);
        for (int i = 0; i < dim; ++i) {
          const double want = in(i) * inverse * static_cast<double>(weight[static_cast<size_t>(i)]);
          CHECK(std::fabs(static_cast<double>(out[static_cast<size_t>(r * dim + i)]) - want) <=
                1e-6 * std::fabs(want) + 1e-30);
        }
      }
      for (size_t i = static_cast<size_t>(rows * dim); i < out.size(); ++i) CHECK(out[i] != out[i]);
      // Alone, and in place.
      for (const int r : {0, 11, 36}) {
        std::vector<float> alone(x.begin() + r * stride, x.begin() + r * stride + dim);
        NormArgs one{alone.data(), dim, weight.data(), 1e-5f, alone.data(), dim, 1, dim};
        isa.kernels.norm(exec(isa, 1), one);
        CHECK(std::equal(alone.begin(), alone.end(), out.begin() + r * dim));
      }
    }
}

TEST(norm_of_zeros_and_hostile_rows) {
  for (const IsaUnderTest& isa : isas()) {
    std::vector<float> x(64, 0.0f), weight(64, 1.0f), out(64);
    NormArgs a{x.data(), 32, weight.data(), 1e-6f, out.data(), 32, 2, 32};
    x[32] = nan;
    isa.kernels.norm(exec(isa, 1), a);
    for (int i = 0; i < 32; ++i) CHECK(out[static_cast<size_t>(i)] == 0.0f);
    for (int i = 32; i < 64; ++i) CHECK(out[static_cast<size_t>(i)] != out[static_cast<size_t>(i)]);
  }
}

TEST(rope_table_equals_the_formula) {
  for (const IsaUnderTest& isa : isas())
    for (const int half : {1, 16, 32, 40}) {
      std::vector<float> inv_freq;
      for (int i = 0; i < half; ++i)
        inv_freq.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / half)));
      std::vector<int32_t> positions;
      for (int r = 0; r < 70; ++r) positions.push_back(r < 60 ? r : 1 << (r - 50));
      const size_t n = positions.size() * inv_freq.size();
      std::vector<float> cos(n, nan), sin(n, nan);
      RopeTableArgs a{positions.data(), inv_freq.data(), 1.25f, 70, half, cos.data(), sin.data()};
      isa.kernels.rope_table(exec(isa, 3), a);
      for (size_t r = 0; r < positions.size(); ++r)
        for (size_t i = 0; i < inv_freq.size(); ++i) {
          // The angle itself is a float product: that is the definition.
          const float angle = static_cast<float>(positions[r]) * inv_freq[i];
          const size_t at = r * inv_freq.size() + i;
          CHECK(std::fabs(1.25 * std::cos(static_cast<double>(angle)) - static_cast<double>(cos[at])) <= 2e-7);
          CHECK(std::fabs(1.25 * std::sin(static_cast<double>(angle)) - static_cast<double>(sin[at])) <= 2e-7);
        }
    }
}

TEST(gather_picks_rows) {
  Random random(2);
  for (const IsaUnderTest& isa : isas()) {
    const std::vector<float> x = random.normals(20 * 70);
    std::vector<int32_t> index;
    for (int i = 0; i < 300; ++i) index.push_back(random.below(20));
    std::vector<float> out(300 * 64, nan);
    GatherArgs a{x.data(), 70, index.data(), out.data(), 300, 64};
    isa.kernels.gather(exec(isa, 3), a);
    for (size_t r = 0; r < 300; ++r)
      CHECK(std::equal(&out[r * 64], &out[r * 64] + 64, &x[static_cast<size_t>(index[r]) * 70]));
  }
}

struct Stored {
  std::vector<float> qkv;
  std::vector<unsigned char> pages;
};

Stored store(const IsaUnderTest& isa, int threads, const KvDesc& kv, int heads,
             std::vector<float> qkv, const std::vector<int32_t>& slots, int half,
             const std::vector<float>& cos, const std::vector<float>& sin, const float* q_norm,
             const float* k_norm, int first, int rows, std::vector<unsigned char> pages) {
  KvStoreArgs a{};
  const int stride = (heads + 2 * kv.kv_heads) * kv.head_dim;
  a.kv = kv;
  a.heads = heads;
  a.qkv = qkv.data() + first * stride;
  a.qkv_stride = stride;
  a.rows = rows;
  a.slots = slots.data() + first;
  a.cos = cos.data() + first * half;
  a.sin = sin.data() + first * half;
  a.half = half;
  a.q_norm = q_norm;
  a.k_norm = k_norm;
  a.eps = 1e-6f;
  a.pages = pages.data();
  isa.kernels.kv_store(exec(isa, threads), a);
  return {std::move(qkv), std::move(pages)};
}

TEST(kv_store_equals_the_formula) {
  Random random(3);
  struct {
    int heads, kv_heads, dim, half, page_tokens;
    bool norm;
  } const shapes[] = {{9, 3, 64, 32, 16, false}, {4, 2, 32, 16, 48, true}, {2, 1, 80, 40, 16, true},
                      {3, 3, 24, 8, 32, true},   {2, 2, 128, 0, 16, false}, {2, 1, 40, 12, 16, false}};
  for (const auto& s : shapes)
    for (const KvType type : {KvType::bf16, KvType::f32})
      for (const IsaUnderTest& isa : isas()) {
        const KvDesc kv{type, s.kv_heads, s.dim, s.page_tokens};
        const int rows = 41, stride = (s.heads + 2 * s.kv_heads) * s.dim, pages_n = 5;
        const std::vector<float> qkv = random.normals(static_cast<size_t>(rows * stride));
        const std::vector<float> qn = random.normals(static_cast<size_t>(s.dim)),
                                 kn = random.normals(static_cast<size_t>(s.dim));
        std::vector<float> cos, sin;
        for (int i = 0; i < rows * s.half; ++i) {
          const float angle = random.normal(3.0f);
          cos.push_back(std::cos(angle));
          sin.push_back(std::sin(angle));
        }
        // Distinct slots, neighbours among them: a pair of tokens is often split between threads.
        std::vector<int32_t> slots;
        for (int i = 0; i < pages_n * s.page_tokens; ++i) slots.push_back(i);
        std::shuffle(slots.begin(), slots.end(), random.engine);
        slots.resize(static_cast<size_t>(rows));
        const std::vector<unsigned char> blank(isa.kernels.kv_page_bytes(kv) * pages_n + 64, 0xff);
        const float* q_norm = s.norm ? qn.data() : nullptr;
        const float* k_norm = s.norm ? kn.data() : nullptr;
        const Stored got = store(isa, 3, kv, s.heads, qkv, slots, s.half, cos, sin, q_norm, k_norm,
                                 0, rows, blank);
        for (size_t i = blank.size() - 64; i < blank.size(); ++i) CHECK(got.pages[i] == 0xff);
        // Row by row on one thread: the same bits, in q as in the pages.
        Stored slow{qkv, blank};
        for (int r = 0; r < rows; ++r)
          slow = store(isa, 1, kv, s.heads, slow.qkv, slots, s.half, cos, sin, q_norm, k_norm, r, 1,
                       slow.pages);
        CHECK(slow.pages == got.pages);
        CHECK(slow.qkv == got.qkv);

        const cpu::KvLayout layout(kv);
        const int width = cpu::padded_dim(s.dim);
        for (int r = 0; r < rows; ++r)
          for (int h = 0; h < s.heads + 2 * s.kv_heads; ++h) {
            const bool is_q = h < s.heads, is_v = h >= s.heads + s.kv_heads;
            std::vector<double> x;
            for (int d = 0; d < s.dim; ++d)
              x.push_back(static_cast<double>(qkv[static_cast<size_t>(r * stride + h * s.dim + d)]));
            if (!is_v && s.norm) {
              double sum = 0;
              for (const double v : x) sum += v * v;
              for (int d = 0; d < s.dim; ++d)
                x[static_cast<size_t>(d)] *= static_cast<double>((is_q ? qn : kn)[static_cast<size_t>(d)]) /
                                             std::sqrt(sum / s.dim + 1e-6);
            }
            if (!is_v)
              for (int i = 0; i < s.half; ++i) {
                double& p = x[static_cast<size_t>(i)];
                double& q = x[static_cast<size_t>(i + s.half)];
                const double c = static_cast<double>(cos[static_cast<size_t>(r * s.half + i)]),
                             n = static_cast<double>(sin[static_cast<size_t>(r * s.half + i)]);
                const double a = p * c - q * n, b = q * c + p * n;
                p = a;
                q = b;
              }
            const int slot = slots[static_cast<size_t>(r)], page = slot / s.page_tokens,
                      offset = slot % s.page_tokens, in_tile = offset % 16;
            const int g = is_v ? h - s.heads - s.kv_heads : h - s.heads;
            for (int d = 0; d < s.dim; ++d) {
              double have, tolerance = 4e-6;
              if (is_q) {
                have = static_cast<double>(got.qkv[static_cast<size_t>(r * stride + h * s.dim + d)]);
              } else {
                const unsigned char* at = got.pages.data() + page * layout.page +
                                          g * layout.head_block +
                                          (is_v ? layout.values_at + offset / 16 * layout.value_tile
                                                : offset / 16 * layout.key_tile);
                if (type == KvType::bf16) {
                  const int i = is_v ? (in_tile / 2 * width + d) * 2 + in_tile % 2
                                     : (d / 2 * 16 + in_tile) * 2 + d % 2;
                  uint16_t bits;
                  std::memcpy(&bits, at + i * 2, 2);
                  have = static_cast<double>(bf16_to_f32(bits));
                  tolerance = 4e-6 + std::fabs(x[static_cast<size_t>(d)]) * 0x1p-8;
                } else {
                  float value;
                  std::memcpy(&value, at + (is_v ? in_tile * width + d : d * 16 + in_tile) * 4, 4);
                  have = static_cast<double>(value);
                }
              }
              CHECK(std::fabs(have - x[static_cast<size_t>(d)]) <= tolerance);
            }
          }
      }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
