// AMX: bf16 products have an order of their own, told in matmul.h and by amx_emulated.inl. Checked here
// against that order written out once more, and processor against emulation, bit for bit.
#include "matmul_rig.h"

namespace orlop::test {
namespace {

float flush(float v) { return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v; }

// Two chains over 32 k: even and odd places in the order 0 2 1 3 of every four.
float dot_of(const float* a, const float* w) {
  float chain[2] = {};
  for (int i = 0; i < 32; ++i) {
    const int k = i / 4 * 4 + (i % 4 == 1 ? 2 : i % 4 == 2 ? 1 : i % 4);
    chain[i % 2] = flush(std::fma(flush(a[k]), flush(w[k]), chain[i % 2]));
  }
  return flush(chain[0] + chain[1]);
}

std::vector<Kernel> amx_kernels() {
  std::vector<Kernel> found;
  for (const Kernel& k : kernels())
    if (std::strncmp(k.name, "amx", 3) == 0) found.push_back(k);
  return found;
}

TEST(order_of_bf16_sums) {
  for (const float size : {1.0f, 0x1p-70f}) {  // the second: products and sums that are denormal
    const int64_t k = 200, n = 21, m = 19;
    const Layer l(k, {{FileType::bf16, n}}, Compute::bf16);
    auto x = random_x(m, k);
    for (float& v : x) v = bf16_to_f32(f32_to_bf16(v * size * (size < 1 ? 0x1p-52f : 1)));
    for (const Kernel& kernel : amx_kernels()) {
      const auto out = apply(kernel.run, l, x, m);
      bool same = true;
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < n; ++c) {
          float sum = 0;
          for (int64_t g = 0; g < k; g += 32) {
            float a[32] = {}, w[32] = {};
            for (int64_t i = g; i < std::min(k, g + 32); ++i) {
              a[i - g] = x[static_cast<size_t>(r * k + i)];
              w[i - g] = l.weight[static_cast<size_t>(c)][static_cast<size_t>(i)];
            }
            sum = flush(sum + dot_of(a, w));
          }
          same = same && std::bit_cast<uint32_t>(sum) == std::bit_cast<uint32_t>(out[static_cast<size_t>(r * n + c)]);
        }
      CHECK(same);
    }
  }
}

TEST(processor_and_emulation) {
  const auto both = amx_kernels();
  if (both.size() < 2) {
    std::puts("no AMX here: only its emulation is tested");
    return;
  }
  for (int t = 0; t < ggml_type_count; ++t)
    for (const Compute compute : {Compute::bf16, Compute::int8})
      for (const int64_t m : {1, 3, 16, 37, 300}) {
        const int64_t k = 256 * pick(1, 3), n = pick(1, 70);
        const Layer l(k, {{type_at(t), n}}, compute);
        const auto x = random_x(m, k);
        CHECK(same_bits(apply(both[0].run, l, x, m), apply(both[1].run, l, x, m)));
      }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
