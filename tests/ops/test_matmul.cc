// Linear layers: every file type, every compute setting, every ISA of this machine. Against double
// precision over dequantize_row, bit for bit between ISAs, and the same-bits rule.
#include "matmul_rig.h"

namespace orlop::test {
namespace {

// What a kernel sees of a row of activations for this weight type.
std::vector<double> seen(const float* x, int64_t k, FileType type, Compute compute) {
  std::vector<double> a(x, x + k);
  if (compute == Compute::fp32) return a;
  if (compute == Compute::bf16 || is_float(type)) {
    for (double& v : a) v = bf16_to_f32(f32_to_bf16(static_cast<float>(v)));
    return a;
  }
  for (int64_t g = 0; g < k; g += 32) {
    float amax = 0;
    for (int64_t i = g; i < std::min(g + 32, k); ++i) amax = std::max(amax, std::fabs(x[i]));
    const float scale = amax / 127.0f, inverse = 127.0f / amax;
    for (int64_t i = g; i < std::min(g + 32, k); ++i)
      a[static_cast<size_t>(i)] = amax == 0 ? 0 : static_cast<double>(scale) * std::nearbyint(x[i] * inverse);
  }
  return a;
}

FileType type_of_row(const LinearDesc& d, int64_t row) {
  int p = 0;
  while (row >= d.part_n[p]) row -= d.part_n[p++];
  return d.type[p];
}

void expect(const Layer& l, int64_t row, const float* x, double* value, double* bound) {
  const auto a = seen(x, l.desc.k, type_of_row(l.desc, row), l.desc.compute);
  double sum = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * static_cast<double>(l.weight[static_cast<size_t>(row)][i]);
    size += std::fabs(a[i]) * static_cast<double>(l.size[static_cast<size_t>(row)][i]);
  }
  *value = sum;
  *bound = static_cast<double>(l.desc.k + 8) * 0x1p-24 * size + 1e-30;
}

int64_t step_of(FileType t) { return is_float(t) ? 1 : info(t).block_elems; }

// All types: near the exact value, equal between ISAs, a row alone equal to a row among others.
TEST(every_type) {
  double worst = 0;
  for (int t = 0; t < ggml_type_count; ++t) {
    for (const Compute compute : computes) {
      for (int round = 0; round < (is_short() ? 1 : 3); ++round) {
        const FileType type = type_at(t);
        const int64_t step = step_of(type);
        const int64_t k = step == 256 ? 256 * pick(1, 4) : step == 32 ? 32 * pick(1, 20) : pick(1, 300);
        const int64_t n = pick(1, 70), m = round ? pick(1, 20) : is_short() ? 13 : 37;
        const Layer l(k, {{type, n}}, compute);
        const auto x = random_x(m, k);
        const auto ref = apply(cpu::matmul_ref, l, x, m);
        for (const Kernel& kernel : kernels()) {
          const auto out = apply(kernel.run, l, x, m);
          if (!kernel.own_bf16 || (compute == Compute::fp32) ||
              (compute == Compute::int8 && !is_float(type))) {
            const bool same = same_bits(out, ref);
            CHECK(same);
            if (!same) std::fprintf(stderr, "  %s %s %s m %d n %d k %d\n", kernel.name, info(type).name,
                                    name(compute), int(m), int(n), int(k));
          }
          int wrong = 0;
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t c = 0; c < n; ++c) {
              double value, bound;
              expect(l, c, x.data() + r * k, &value, &bound);
              const double error = std::fabs(static_cast<double>(out[static_cast<size_t>(r * n + c)]) - value);
              worst = std::max(worst, error / bound);
              if (!(error <= bound)) ++wrong;
            }
          }
          CHECK(wrong == 0);
          if (wrong)
            std::fprintf(stderr, "  %s %s %s: %d of %d wrong\n", kernel.name, info(type).name,
                         name(compute), wrong, int(m * n));
          for (int64_t r = 0; r < m; r += round == 0 ? 1 : 5) {
            const std::vector<float> one(x.begin() + r * k, x.begin() + (r + 1) * k);
            const auto alone = apply(kernel.run, l, one, 1);
            CHECK(same_bits(alone, std::vector<float>(out.begin() + r * n, out.begin() + (r + 1) * n)));
          }
        }
      }
    }
  }
  std::printf("largest error / bound: %.3f\n", worst);
}

TEST(threads_do_not_change_bits) {
  cpu::ThreadPool two(2), three(3);
  for (const Compute compute : computes) {
    for (const int64_t m : {1, 2, 7, 64, 70}) {
      if (is_short() && m != 7) continue;
      const Layer l(512, {{FileType::q4_1, 96}, {FileType::q6_k, 40}, {FileType::bf16, 17}}, compute);
      const Layer wide(512, {{FileType::q4_0, 400}, {FileType::q4_0, 400}}, compute, Glu::silu);
      for (const Layer* layer : {&l, &wide}) {
        const auto x = random_x(m, 512);
        for (const Kernel& kernel : kernels()) {
          const auto one = apply(kernel.run, *layer, x, m);
          CHECK(same_bits(one, apply(kernel.run, *layer, x, m, nullptr, nullptr, &two)));
          CHECK(same_bits(one, apply(kernel.run, *layer, x, m, nullptr, nullptr, &three)));
        }
      }
    }
  }
}

TEST(fused_parts_bias_accumulate) {
  for (const Compute compute : computes) {
    const int64_t k = 256, m = 11;
    const Layer l(k, {{FileType::q4_k, 35}, {FileType::f16, 18}, {FileType::q8_0, 16}, {FileType::f32, 1}},
                  compute, Glu::none, true);
    const int64_t n = l.desc.n();
    CHECK(n == 70);
    const auto x = random_x(m, k);
    const auto bias = random_x(1, n), start = random_x(m, n);
    for (const Kernel& kernel : kernels()) {
      const auto plain = apply(kernel.run, l, x, m);
      const auto biased = apply(kernel.run, l, x, m, bias.data());
      const auto both = apply(kernel.run, l, x, m, bias.data(), &start);
      const auto added = apply(kernel.run, l, x, m, nullptr, &start);
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t c = 0; c < n; ++c) {
          const size_t i = static_cast<size_t>(r * n + c);
          const float b = bias[static_cast<size_t>(c)];
          double value, bound;
          expect(l, c, x.data() + r * k, &value, &bound);
          CHECK(std::fabs(static_cast<double>(plain[i]) - value) <= bound);
          CHECK(biased[i] == plain[i] + b);
          CHECK(both[i] == start[i] + (plain[i] + b));
          CHECK(added[i] == start[i] + plain[i]);
        }
      }
    }
  }
}

TEST(gated_pairs) {
  for (const Compute compute : computes) {
    for (const Glu glu : {Glu::silu, Glu::gelu_tanh}) {
      const int64_t k = 256, n = 45, m = 13;
      const Layer l(k, {{FileType::q5_0, n}, {FileType::q3_k, n}}, compute, glu);
      auto x = random_x(m, k);
      for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i)] *= 30;  // saturated gates, both ways
      const auto bias = random_x(1, 2 * n), start = random_x(m, n);  // of gate, then of up
      const auto ref = apply(cpu::matmul_ref, l, x, m);
      for (const Kernel& kernel : kernels()) {
        const auto out = apply(kernel.run, l, x, m);
        if (!kernel.own_bf16 || compute != Compute::bf16) CHECK(same_bits(out, ref));
        const auto biased = apply(kernel.run, l, x, m, bias.data());
        const auto both = apply(kernel.run, l, x, m, bias.data(), &start);
        int wrong = 0, wrong_biased = 0;
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < n; ++c) {
            const size_t i = static_cast<size_t>(r * n + c);
            double gate, gate_bound, up, up_bound;
            expect(l, c, x.data() + r * k, &gate, &gate_bound);
            expect(l, n + c, x.data() + r * k, &up, &up_bound);
            const auto within = [&](float got, double g, double u) {
              const double act =
                  glu == Glu::silu
                      ? g / (1 + std::exp(-g))
                      : 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
              // |act'| < 1.2; the activation itself within 1e-6 of |g|
              const double bound = (1.2 * gate_bound + 1e-6 * std::fabs(g)) * std::fabs(u) +
                                   (std::fabs(act) + gate_bound) * up_bound + 1e-30;
              return std::fabs(static_cast<double>(got) - act * u) <= bound;
            };
            if (!within(out[i], gate, up)) ++wrong;
            if (!within(biased[i], gate + static_cast<double>(bias[static_cast<size_t>(c)]),
                        up + static_cast<double>(bias[static_cast<size_t>(n + c)])))
              ++wrong_biased;
            CHECK(both[i] == start[i] + biased[i]);
          }
        }
        CHECK(wrong == 0 && wrong_biased == 0);
      }
    }
  }
}

// What no model should hand over, but may.
TEST(hostile_activations) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> values = {0.0f, -0.0f, 1e-45f, -1e-40f, 1e-36f, 3e38f, -3e38f,
                                     inf,  -inf,  nan,    1e-20f,  1e20f};
  for (int t = 0; t < ggml_type_count; ++t) {
    for (const Compute compute : computes) {
      const int64_t k = 256, n = 20, m = static_cast<int64_t>(values.size()) + 1;
      const Layer l(k, {{type_at(t), n}}, compute);
      auto x = random_x(m, k);
      for (size_t r = 0; r < values.size(); ++r) {
        if (std::isfinite(values[r]) && std::fabs(values[r]) < 1e30f)
          for (int64_t i = 0; i < k; ++i) x[r * k + static_cast<size_t>(i)] = i % 3 ? values[r] : -values[r];
        else
          x[r * k + 77] = values[r];
      }
      for (const Kernel& kernel : kernels()) {
        const auto out = apply(kernel.run, l, x, m);
        for (int64_t r = 0; r < m; ++r) {
          const std::vector<float> one(x.begin() + r * k, x.begin() + (r + 1) * k);
          const std::vector<float> row(out.begin() + r * n, out.begin() + (r + 1) * n);
          CHECK(same_bits(apply(kernel.run, l, one, 1), row));
          const float v = static_cast<size_t>(r) < values.size() ? values[static_cast<size_t>(r)] : 1.0f;
          for (const float o : row) {
            if (std::isnan(v)) CHECK(std::isnan(o));
            if (std::isinf(v)) CHECK(!std::isfinite(o));
            if (v == 0) CHECK(o == 0);
            if (std::fabs(v) <= 1e20f) CHECK(std::isfinite(o));
          }
        }
      }
    }
  }
}

// Blocks as a hostile file may hold them: any bits, so any float16 scale, NaN and infinity included.
TEST(hostile_weights) {
  for (int t = 0; t < ggml_type_count; ++t) {
    const FileType type = type_at(t);
    for (const Compute compute : computes) {
      Layer l(256, {{type, 33}}, compute);
      for (auto& b : l.files[0]) b = static_cast<unsigned char>(rng());
      LinearSource source;
      source.rows[0] = l.files[0].data();
      source.row_bytes[0] = l.files[0].size() / 33;
      cpu::linear_pack(l.desc, source, 0, cpu::linear_tiles(l.desc), l.packed);
      const auto x = random_x(9, 256);
      const auto ref = apply(cpu::matmul_ref, l, x, 9);
      for (const Kernel& kernel : kernels())
        if (!kernel.own_bf16 || compute == Compute::fp32)
          CHECK(same_bits(apply(kernel.run, l, x, 9), ref));
        else
          apply(kernel.run, l, x, 9);
    }
  }
}

TEST(embed_is_the_file) {
  cpu::ThreadPool two(2);
  for (int t = 0; t < ggml_type_count; ++t) {
    for (const Compute compute : computes) {
      const FileType type = type_at(t);
      const int64_t k = is_float(type) ? 37 : 512, n = 50;
      const Layer l(k, {{type, n}}, compute);
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(pick(0, n - 1)));
      std::vector<float> out(static_cast<size_t>(n * k));
      const Exec exec{nullptr, nullptr, &two};
      cpu::embed(exec, {&l.desc, l.packed, ids.data(), 1.0f, out.data(), n});
      bool same = true;
      for (size_t r = 0; r < ids.size(); ++r) {
        const auto& w = l.weight[static_cast<size_t>(ids[r])];
        same = same && std::memcmp(w.data(), out.data() + r * static_cast<size_t>(k), w.size() * 4) == 0;
      }
      CHECK(same);
      cpu::embed(exec, {&l.desc, l.packed, ids.data(), 8.0f, out.data(), 2});
      CHECK(out[1] == 8.0f * l.weight[static_cast<size_t>(ids[0])][1]);
      // Tokens that the step before drew, by their place; where it could draw none, token 0.
      const std::vector<SampleResult> drawn = {{ids[7], 0.0f}, {-1, 0.0f}, {ids[9], 0.0f}};
      const std::vector<int32_t> named = {-3, ids[4], -1, -2, -1, ids[2]};
      const int32_t meant[] = {ids[9], ids[4], ids[7], 0, ids[7], ids[2]};
      cpu::embed(exec, {&l.desc, l.packed, named.data(), 1.0f, out.data(), std::ssize(named), drawn.data()});
      for (size_t r = 0; r < named.size(); ++r) {
        const auto& w = l.weight[static_cast<size_t>(meant[r])];
        CHECK(std::memcmp(w.data(), out.data() + r * static_cast<size_t>(k), w.size() * 4) == 0);
      }
    }
  }
}

// Packed weights take what the file takes, up to byte-wide sub-scales of the K types.
TEST(packed_size) {
  for (int t = 0; t < ggml_type_count; ++t) {
    LinearDesc d;
    d.k = 2048;
    d.part_count = 1;
    d.type[0] = type_at(t);
    d.part_n[0] = 512;
    d.compute = Compute::int8;
    const double file = 512.0 * 2048 / info(d.type[0]).block_elems * info(d.type[0]).block_bytes;
    CHECK(static_cast<double>(cpu::linear_bytes(d)) <= file * 1.04);
  }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
