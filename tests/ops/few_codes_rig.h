// A product of some rows with coded weights, by a kernel on the processor, against sums in double.
#pragma once
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cuda/pack.h"
#include "backend/cuda/stream.cuh"
#include "random_matrix.h"

namespace orlop::test {

using namespace orlop::cuda;

// At a multiple of 128 bytes, as the GPU's.
template <class T>
class Memory {
 public:
  explicit Memory(int64_t n) : bytes_(new (std::align_val_t{128}) unsigned char[static_cast<size_t>(n) * sizeof(T)]) {}
  T* get() const { return reinterpret_cast<T*>(bytes_.get()); }
  T& operator[](size_t i) const { return get()[i]; }

 private:
  std::unique_ptr<unsigned char[], EmulatedBlock::Free> bytes_;
};

// kernel() by all threads of the blocks at once.
template <class Kernel>
void run_blocks(const std::vector<std::unique_ptr<EmulatedBlock>>& blocks, unsigned threads, const Kernel& kernel) {
  std::vector<std::thread> running;
  for (const auto& b : blocks)
    for (unsigned t = 0; t < threads; ++t)
      running.emplace_back([&, own = b.get(), t] {
        block = own;
        blockIdx.x = own->number;
        threadIdx.x = t;
        kernel();
      });
  for (std::thread& t : running) t.join();
}

struct FewCase {
  FileType type;
  int32_t group, m;
  int64_t n, k;
  Glu glu;
  bool bias, narrow, add;
};

// run(a): all of it. how: what is printed beside the case if it is wrong.
template <class Run>
void few_product(const FewCase& s, const char* how, const Run& run) {
  const bool gated = s.glu != Glu::none;
  const RandomMatrix matrix(s.type, s.group, s.n, s.k, s.glu);
  const LinearDesc& d = matrix.desc;
  const Pieces pieces(d);
  const Memory<unsigned char> memory(static_cast<int64_t>(cuda::linear_bytes(d)));
  pack_tiles(d, matrix.source, 0, cuda::linear_tiles(d), [&](int64_t at, const void* from, size_t bytes) { std::memcpy(memory.get() + at, from, bytes); });

  const int64_t x_stride = up(s.k, 8) + 8, out_stride = s.n + (s.n % 128 ? 3 : 4), all = gated ? 2 * s.n : s.n;
  const Memory<uint16_t> x(s.m * x_stride);
  for (int64_t i = 0; i < s.m * x_stride; ++i) x[static_cast<size_t>(i)] = i % x_stride < s.k ? f32_to_bf16(uniform(-1, 1)) : uint16_t{0x7fff};
  const Memory<float> out(s.m * out_stride);
  std::vector<float> start, bias;
  for (int64_t i = 0; i < s.m * out_stride; ++i) start.push_back(uniform(-1, 1));
  for (int64_t i = 0; i < all; ++i) bias.push_back(uniform(-1, 1));
  std::memcpy(out.get(), start.data(), start.size() * 4);
  StreamArgs a{};
  a.l = pieces.piece[0];
  a.low = memory.get() + a.l.begin;
  a.high = memory.get() + pieces.piece[pieces.count - 1].begin;
  a.up_row = gated && pieces.count == 1 ? s.n : 0;
  a.x = x.get();
  a.x_stride = x_stride;
  a.out = out.get();
  a.out_stride = out_stride;
  a.bias = s.bias ? bias.data() : nullptr;
  a.up_bias = s.bias && gated ? bias.data() + s.n : nullptr;
  a.n = gated ? s.n : a.l.rows;
  a.m = s.m;
  a.glu = static_cast<int32_t>(s.glu);
  a.narrow_x = true;
  a.narrow_out = s.narrow;
  a.accumulate = s.add;
  run(a);

  double scale = 0, worst = 0;
  int first_row = -1, first_column = -1;
  bool others = true;
  for (int64_t n = 0; n < s.n; ++n)
    for (int r = 0; r < s.m; ++r) {
      double v = matrix.output(n, [&](int64_t i) { return bf16_to_f32(x[static_cast<size_t>(r * x_stride + i)]); }, s.bias ? &bias : nullptr);
      const auto at = static_cast<size_t>(r * out_stride + n);
      if (s.add) v += double{start[at]};
      double got = double{out[at]};
      if (s.narrow) got = double{bf16_to_f32(reinterpret_cast<const uint16_t*>(out.get())[at])};
      scale = std::max(scale, std::fabs(v));
      const double off = std::fabs(got - v) - (s.narrow ? 0.004 * std::fabs(v) : 0.0);
      if (!(off <= worst)) worst = off;
      if (!(off <= 1e-4 * static_cast<double>(s.k)) && first_row < 0) first_row = r, first_column = static_cast<int>(n);
    }
  for (size_t i = 0; i < start.size(); ++i) {  // between the rows nothing is written
    if (s.narrow) {
      const auto* got = reinterpret_cast<const uint16_t*>(out.get());
      const auto* before = reinterpret_cast<const uint16_t*>(start.data());
      for (const size_t h : {i, i + start.size()})
        if ((h >= start.size() || static_cast<int64_t>(h) % out_stride >= s.n) && got[h] != before[h]) others = false;
    } else if (static_cast<int64_t>(i) % out_stride >= s.n && std::memcmp(&out[i], &start[i], 4)) {
      others = false;
    }
  }
  const bool good = worst <= 2e-5 * scale && others;
  if (!good)
    std::printf("  %s group %d, m %d, n %d, k %d, gate %d, %s: off by %g of %g, first in row %d, column %d%s\n", info(s.type).name, s.group, s.m, static_cast<int>(s.n), static_cast<int>(s.k),
                static_cast<int>(s.glu), how, worst, scale, first_row, first_column, others ? "" : ", and others written");
  CHECK(good);
}

}  // namespace orlop::test
