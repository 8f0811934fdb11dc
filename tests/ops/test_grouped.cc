// Linear layers whose scales stand apart (w4, w4z, w8, w8z, f8): any group size, any compute
// setting, orders of k, every ISA of this machine. Against double precision over what the codes
// mean, bit for bit between ISAs, and the same-bits rule.
#include "matmul_rig.h"
#include "random_rows.h"

namespace orlop::test {
namespace {

constexpr FileType types[] = {FileType::f8, FileType::w4, FileType::w4z, FileType::w8,
                              FileType::w8z};
constexpr Compute all_computes[] = {Compute::fp32, Compute::bf16, Compute::int8, Compute::a8};

struct Grouped {
  LinearDesc desc;
  std::vector<RandomRows> rows;
  std::vector<int32_t> map;
  std::vector<unsigned char> memory;
  void* packed = nullptr;
  std::vector<std::vector<float>> weight, size;  // by row, in the order of the caller's k

  struct Given {
    FileType type;
    int64_t n;
    int32_t group;
  };
  Grouped(int64_t k, std::vector<Given> parts, Compute compute, Glu glu = Glu::none,
          bool mapped = false) {
    desc.k = k;
    desc.compute = compute;
    desc.glu = glu;
    if (mapped) {
      for (int32_t i = 0; i < k; ++i) map.push_back(i);
      std::shuffle(map.begin(), map.end(), rng);
      desc.k_map = map.data();
    }
    rows.reserve(parts.size());
    LinearSource source;
    for (const Given& p : parts) {
      const int i = desc.part_count++;
      desc.type[i] = p.type;
      desc.part_n[i] = p.n;
      desc.group[i] = p.group;
      rows.emplace_back(p.type, p.n, k, p.group ? (k + p.group - 1) / p.group : 1);
      source.quant[i] = &rows.back();
      std::vector<uint8_t> code(static_cast<size_t>(k));
      std::vector<float> scale(code.size()), min(code.size());
      for (int64_t r = 0; r < p.n; ++r) {
        rows.back().row(r, code.data(), scale.data(), min.data());
        auto& w = weight.emplace_back(code.size());
        auto& s = size.emplace_back(code.size());
        for (size_t j = 0; j < code.size(); ++j) {
          const size_t g = p.group ? j / static_cast<size_t>(p.group) : 0,
                       at = mapped ? static_cast<size_t>(map[j]) : j;
          w[at] = dequantize(p.type, code[j], scale[g], min[g]);
          s[at] = std::fabs(w[at]) + (format_info(p.type).has_min ? 2 * std::fabs(min[g]) : 0);
        }
      }
    }
    memory.assign(cpu::linear_bytes(desc) + 64, 0xee);
    packed = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    const int64_t tiles = cpu::linear_tiles(desc), cut = tiles / 2;
    cpu::linear_pack(desc, source, cut, tiles, packed);
    cpu::linear_pack(desc, source, 0, cut, packed);
  }
};

// What a kernel sees of a row of activations, and by how much each may be off through the scale.
std::vector<double> seen(const Grouped& l, const float* x, FileType type) {
  const int64_t k = l.desc.k;
  std::vector<double> a(x, x + k);
  if (l.desc.compute == Compute::fp32) return a;
  if (l.desc.compute == Compute::bf16 || type == FileType::f8) {
    for (double& v : a) v = bf16_to_f32(f32_to_bf16(static_cast<float>(v)));
    return a;
  }
  const auto at = [&](int64_t i) {
    return static_cast<size_t>(l.map.empty() ? i : l.map[static_cast<size_t>(i)]);
  };
  const int64_t span = l.desc.compute == Compute::a8 ? k : 32;
  for (int64_t g = 0; g < k; g += span) {
    float amax = 0;
    const int64_t end = std::min(g + span, k);
    for (int64_t i = g; i < end; ++i) amax = std::max(amax, std::fabs(x[at(i)]));
    const float scale = amax / 127.0f, inverse = 127.0f / amax;
    for (int64_t i = g; i < end; ++i)
      a[at(i)] = amax == 0 ? 0 : static_cast<double>(scale) * std::nearbyint(x[at(i)] * inverse);
  }
  return a;
}

bool integer(Compute c, FileType t) {
  return t != FileType::f8 && (c == Compute::int8 || c == Compute::a8);
}

void check(const Grouped& l, int64_t m) {
  const int64_t k = l.desc.k, n = l.desc.n();
  const auto x = random_x(m, k);
  const auto ref = apply(cpu::matmul_ref, l, x, m);
  for (const Kernel& kernel : kernels()) {
    const auto out = apply(kernel.run, l, x, m);
    bool exact = true;
    for (int p = 0; p < l.desc.part_count; ++p)
      exact = exact && (!kernel.own_bf16 || l.desc.compute == Compute::fp32 ||
                        integer(l.desc.compute, l.desc.type[p]));
    if (exact) CHECK(same_bits(out, ref));
    int wrong = 0;
    for (int64_t r = 0; r < m; ++r) {
      std::vector<double> a;
      for (int64_t c = 0, p = -1, end = 0; c < n; ++c) {
        if (c == end) {
          end += l.desc.part_n[++p];
          a = seen(l, x.data() + r * k, l.desc.type[p]);
        }
        double value = 0, size = 0;
        for (size_t i = 0; i < a.size(); ++i) {
          value += a[i] * static_cast<double>(l.weight[static_cast<size_t>(c)][i]);
          size += std::fabs(a[i]) * static_cast<double>(l.size[static_cast<size_t>(c)][i]);
        }
        const double bound = static_cast<double>(k + 8) * 0x1p-24 * size + 1e-30;
        if (!(std::fabs(static_cast<double>(out[static_cast<size_t>(r * n + c)]) - value) <= bound))
          ++wrong;
      }
    }
    CHECK(wrong == 0);
    if (wrong)
      std::fprintf(stderr, "  %s %s %s group %d m %d k %d: %d of %d\n", kernel.name,
                   info(l.desc.type[0]).name, name(l.desc.compute), l.desc.group[0], int(m), int(k),
                   wrong, int(m * n));
    for (int64_t r = 0; r < m; r += 3) {
      const std::vector<float> one(x.begin() + r * k, x.begin() + (r + 1) * k);
      CHECK(same_bits(apply(kernel.run, l, one, 1),
                      std::vector<float>(out.begin() + r * n, out.begin() + (r + 1) * n)));
    }
  }
}

TEST(every_type_group_and_compute) {
  for (const FileType type : types)
    for (const Compute compute : all_computes)
      for (const int32_t group : {0, 32, 64, 128, 96}) {
        if (is_short() && group && group != 96) continue;
        const int64_t k = group == 0 && pick(0, 1) ? pick(1, 700) : 32 * pick(1, 20);
        check(Grouped(k, {{type, pick(1, 50), group}}, compute), pick(1, 40));
      }
}

TEST(parts_differ) {
  for (const Compute compute : all_computes)
    check(Grouped(256,
                  {{FileType::w4, 40, 128},
                   {FileType::w8z, 17, 0},
                   {FileType::f8, 16, 128},
                   {FileType::w4z, 3, 32}},
                  compute),
          21);
}

TEST(order_of_k) {
  for (const FileType type : types)
    for (const Compute compute : all_computes)
      check(Grouped(320, {{type, 33, 64}, {type, 20, 128}}, compute, Glu::none, true), 19);
}

TEST(threads_and_gates) {
  cpu::ThreadPool two(2), three(3);
  for (const Compute compute : all_computes) {
    for (const bool mapped : {false, true}) {
      const Grouped l(288, {{FileType::w4, 100, 64}, {FileType::w4z, 100, 32}}, compute, Glu::silu,
                      mapped);
      const Grouped same(288, {{FileType::w8, 100, 0}, {FileType::w8, 100, 0}}, compute, Glu::silu,
                         mapped);
      for (const Grouped* g : {&l, &same})
        for (const int64_t m : {1, 6, 75}) {
          if (is_short() && m == 75) continue;
          const auto x = random_x(m, 288);
          const auto ref = apply(cpu::matmul_ref, *g, x, m);
          for (const Kernel& kernel : kernels()) {
            const auto one = apply(kernel.run, *g, x, m);
            if (!kernel.own_bf16 || compute != Compute::bf16) CHECK(same_bits(one, ref));
            CHECK(same_bits(one, apply(kernel.run, *g, x, m, nullptr, nullptr, &two)));
            CHECK(same_bits(one, apply(kernel.run, *g, x, m, nullptr, nullptr, &three)));
          }
        }
    }
  }
}

// The largest sums that a8 allows stay inside int32.
TEST(a8_at_its_largest_k) {
  const int64_t k = 65536;
  class Most final : public QuantRows {
   public:
    void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
      std::fill_n(code, 65536, static_cast<uint8_t>(r % 2 ? 255 : 0));
      *scale = 1;
      *min = 0;
    }
  } most;
  for (const FileType type : {FileType::w8, FileType::w8z}) {
    Grouped l(k, {{type, 2, 0}}, Compute::a8);
    LinearSource source;
    source.quant[0] = &most;
    cpu::linear_pack(l.desc, source, 0, 1, l.packed);
    const std::vector<float> x(static_cast<size_t>(k), -3.0f);
    for (const Kernel& kernel : kernels()) {
      const auto out = apply(kernel.run, l, x, 1);
      const double low = type == FileType::w8 ? -128 : 0, high = low + 255;
      CHECK(std::fabs(static_cast<double>(out[0]) - -3.0 * 65536 * low) <= 2);
      CHECK(std::fabs(static_cast<double>(out[1]) - -3.0 * 65536 * high) <= 8);
    }
  }
}

TEST(hostile_activations) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const FileType type : types)
    for (const Compute compute : all_computes) {
      const Grouped l(128, {{type, 20, 64}}, compute);
      for (const float v : {0.0f, -0.0f, 1e-45f, -1e-40f, 3e38f, inf, -inf, nan, 1e20f}) {
        auto x = random_x(5, 128);
        x[2 * 128 + 77] = v;
        const auto ref = apply(cpu::matmul_ref, l, x, 5);
        for (const Kernel& kernel : kernels()) {
          const auto out = apply(kernel.run, l, x, 5);
          if (!kernel.own_bf16 || compute == Compute::fp32 || integer(compute, type))
            CHECK(same_bits(out, ref));
          for (int c = 0; c < 20; ++c) {
            const float o = out[static_cast<size_t>(2 * 20 + c)];
            // A weight of zero times infinity may leave a finite sum nowhere but in integers.
            if (std::isnan(v)) CHECK(std::isnan(o));
            if (std::isinf(v)) CHECK(!std::isfinite(o));
            if (std::fabs(v) <= 1e20f) CHECK(std::isfinite(o));
            CHECK(std::isfinite(out[static_cast<size_t>(c)]));
          }
        }
      }
    }
}

// f8: each of the 256 codes through every kernel: row i of 256 holds code i at one place.
TEST(e4m3_codes) {
  class One final : public QuantRows {
   public:
    void row(int64_t r, uint8_t* code, float* scale, float*) const override {
      std::fill_n(code, 64, uint8_t{0});
      code[37] = static_cast<uint8_t>(r);
      *scale = 0.5f;
    }
  } one;
  for (const Compute compute : all_computes) {
    Grouped l(64, {{FileType::f8, 256, 0}}, compute);
    LinearSource source;
    source.quant[0] = &one;
    cpu::linear_pack(l.desc, source, 0, cpu::linear_tiles(l.desc), l.packed);
    const std::vector<float> x(9 * 64, 1.0f);
    for (const Kernel& kernel : kernels()) {
      const auto out = apply(kernel.run, l, x, 9);
      for (size_t i = 0; i < out.size(); ++i) {
        const float want = 0.5f * e4m3_to_f32(static_cast<uint8_t>(i % 256));
        CHECK(out[i] == want || (std::isnan(want) && std::isnan(out[i])));
      }
    }
  }
  CHECK(e4m3_to_f32(0x7e) == 448 && e4m3_to_f32(0x01) == 0x1p-9f && e4m3_to_f32(0xb8) == -1);
}

TEST(packed_size) {
  for (const FileType type : types)
    for (const int32_t group : {0, 32, 128}) {
      LinearDesc d;
      d.k = 2048;
      d.part_count = 1;
      d.type[0] = type;
      d.part_n[0] = 512;
      d.group[0] = group;
      const double bits = format_info(type).code_bits,
                   scales = (format_info(type).has_min ? 64.0 : 32.0) / (group ? group : 2048);
      CHECK(static_cast<double>(cpu::linear_bytes(d)) == 512.0 * 2048 / 8 * (bits + scales));
    }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) {
  return orlop::test::test_main(argc, argv);
}
