// What the tests of linear layers share: every ISA's kernel, random layers, calls into poisoned
// memory.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../check.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/matmul_amx.h"
#include "backend/cpu/threads.h"
#include "base/half.h"
#include "base/quant_rows.h"
#include "ops/format.h"

namespace orlop::test {

using Matmul = void (*)(const Exec&, const MatmulArgs&);
struct Kernel {
  const char* name;
  Matmul run;
  bool own_bf16;  // bf16 products by instructions of their own
};
#if defined(__x86_64__)
inline void matmul_amx_emulated(const Exec& exec, const MatmulArgs& args) {
  static const cpu::AmxIsa isa(cpu::amx_emulated::kernels);
  cpu::matmul_run(exec, args, isa.isa, isa.bf16);
}
#endif
inline std::vector<Kernel> kernels() {
  std::vector<Kernel> all = {{"ref", cpu::matmul_ref, false}};
#if defined(__x86_64__)
  const cpu::IsaChoice best = cpu::best_isa();
  if (best.level >= cpu::Isa::avx2) all.push_back({"avx2", cpu::matmul_avx2, false});
  if (best.level >= cpu::Isa::avx512) all.push_back({"avx512", cpu::matmul_avx512, false});
  if (best.bf16) {
    all.push_back({"avx512bf16", cpu::matmul_avx512bf16, true});
    all.push_back({"amx emulated", matmul_amx_emulated, true});
  }
  if (best.amx) all.push_back({"amx", cpu::matmul_amx, true});
#elif defined(__aarch64__)
  if (cpu::feature("neon")) all.push_back({"neon", cpu::matmul_neon, false});
  if (cpu::feature("neondot")) all.push_back({"neondot", cpu::matmul_neondot, false});
  if (cpu::feature("i8mm")) all.push_back({"i8mm", cpu::matmul_i8mm, true});
  if (cpu::feature("sve")) all.push_back({"sve", cpu::matmul_sve, false});
#endif
  if (const char* only = std::getenv("ORLOP_TEST_ISA")) {  // and the reference
    std::erase_if(all, [&](const Kernel& k) {
      return std::strcmp(k.name, "ref") && std::strcmp(k.name, only);
    });
    CHECK(all.size() == 2);
  }
  return all;
}

inline std::mt19937 rng(7);
inline float uniform(float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(rng);
}
inline int64_t pick(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

constexpr Compute computes[] = {Compute::fp32, Compute::bf16, Compute::int8};
inline FileType type_at(int i) {
  return static_cast<FileType>(i);
}

inline std::vector<unsigned char> random_rows(FileType type, int64_t n, int64_t k) {
  const FileTypeInfo& f = info(type);
  std::vector<unsigned char> rows(static_cast<size_t>(n * (k / f.block_elems) * f.block_bytes));
  if (is_float(type)) {
    for (size_t i = 0; i < rows.size() / f.block_bytes; ++i) {
      const float v = uniform(-1, 1);
      const uint16_t h = type == FileType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
      std::memcpy(&rows[i * f.block_bytes],
                  type == FileType::f32 ? static_cast<const void*>(&v) : &h, f.block_bytes);
    }
    return rows;
  }
  for (auto& b : rows) b = static_cast<unsigned char>(rng());
  const auto [d, m] = [&]() -> std::pair<int, int> {  // where a block holds its float16 scales
    switch (type) {
      case FileType::q4_1:
      case FileType::q5_1:
      case FileType::q4_k:
      case FileType::q5_k:
        return {0, 2};
      case FileType::q2_k:
        return {80, 82};
      case FileType::q3_k:
        return {108, -1};
      case FileType::q6_k:
        return {208, -1};
      default:
        return {0, -1};
    }
  }();
  for (size_t b = 0; b < rows.size(); b += f.block_bytes) {
    for (const int at : {d, m}) {
      if (at < 0) continue;
      const uint16_t h = f32_to_f16(uniform(-0.1f, 0.1f));
      std::memcpy(&rows[b + static_cast<size_t>(at)], &h, 2);
    }
  }
  return rows;
}

// A packed linear layer and, per output row, its exact weights and the magnitude of their terms.
struct Layer {
  LinearDesc desc;
  std::vector<std::vector<unsigned char>> files;
  std::vector<std::vector<int32_t>> maps;
  std::vector<unsigned char> memory;
  void* packed = nullptr;
  std::vector<std::vector<float>> weight, size;  // by packed row, parts in order

  Layer(int64_t k, std::vector<std::pair<FileType, int64_t>> parts, Compute compute,
        Glu glu = Glu::none, bool map = false) {
    desc.k = k;
    desc.compute = compute;
    desc.glu = glu;
    desc.part_count = static_cast<int32_t>(parts.size());
    LinearSource source;
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto [type, n] = parts[p];
      desc.type[p] = type;
      desc.part_n[p] = n;
      files.push_back(random_rows(type, n, k));
      source.row_bytes[p] = files[p].size() / static_cast<size_t>(n);
      maps.emplace_back();
      for (int32_t i = 0; i < n; ++i) maps[p].push_back(i);
      if (map) std::shuffle(maps[p].begin(), maps[p].end(), rng);
      for (int64_t r = 0; r < n; ++r)
        add_row(type, files[p].data() + static_cast<size_t>(maps[p][static_cast<size_t>(r)]) *
                                            source.row_bytes[p]);
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      source.rows[p] = files[p].data();
      source.row_map[p] = map ? maps[p].data() : nullptr;
    }
    memory.assign(cpu::linear_bytes(desc) + 64, 0xee);
    packed = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    const int64_t tiles = cpu::linear_tiles(desc), cut = tiles / 3;
    cpu::linear_pack(desc, source, cut, tiles, packed);
    cpu::linear_pack(desc, source, 0, cut, packed);
  }
  void add_row(FileType type, const unsigned char* row) {
    std::vector<float> w(static_cast<size_t>(desc.k)), s;
    dequantize_row(type, row, desc.k, w.data());
    if (is_float(type) && desc.compute != Compute::fp32)
      for (float& v : w) v = bf16_to_f32(f32_to_bf16(v));
    for (float v : w) s.push_back(std::fabs(v));
    if (format_info(type).has_min) {
      QuantGroup q;
      for (int64_t i = 0; i < desc.k; ++i) {
        unpack_group(type, row, i / 32, q);
        const float m = f16_to_f32(q.m) * (format_info(type).sub_scales ? q.min[i % 32 / 16] : 1);
        s[static_cast<size_t>(i)] += 2 * std::fabs(m);
      }
    }
    weight.push_back(std::move(w));
    size.push_back(std::move(s));
  }
};

// `l` has a desc and packed weights.
template <class L>
std::vector<float> apply(Matmul run, const L& l, const std::vector<float>& x, int64_t m,
                         const float* bias = nullptr, const std::vector<float>* start = nullptr,
                         cpu::ThreadPool* pool = nullptr) {
  const int64_t n = l.desc.n(), stride = n + 3;
  std::vector<float> out(static_cast<size_t>(m * stride), 12345.0f);
  if (start)
    for (int64_t r = 0; r < m; ++r) std::copy_n(start->data() + r * n, n, out.data() + r * stride);
  std::vector<unsigned char> work(cpu::matmul_workspace(l.desc, m) + 16, 0xcc);
  const Exec exec{nullptr, nullptr, pool};
  const MatmulArgs args{&l.desc,          l.packed,   x.data(), static_cast<int64_t>(x.size()) / m,
                        out.data(),       stride,     m,        bias,
                        start != nullptr, work.data()};
  run(exec, args);
  for (size_t i = work.size() - 16; i < work.size(); ++i) CHECK(work[i] == 0xcc);
  std::vector<float> tight;
  for (int64_t r = 0; r < m; ++r) {
    tight.insert(tight.end(), out.begin() + r * stride, out.begin() + r * stride + n);
    for (int64_t i = n; i < stride; ++i)
      CHECK(out[static_cast<size_t>(r * stride + i)] == 12345.0f);
  }
  return tight;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        !(a[i] != a[i] && b[i] != b[i]))
      return false;
  return true;
}

inline std::vector<float> random_x(int64_t m, int64_t k) {
  std::vector<float> x(static_cast<size_t>(m * k));
  for (float& v : x) v = uniform(-2, 2);
  return x;
}

}  // namespace orlop::test
