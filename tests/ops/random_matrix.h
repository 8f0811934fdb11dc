// A random matrix of any type that kernels know, as a file or a checkpoint gives it, and its exact weights.
#pragma once
#include <cmath>

#include "random_rows.h"

namespace orlop::test {

inline float e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float v = exponent ? std::ldexp(1.0f + static_cast<float>(mantissa) / 8, exponent - 7) : std::ldexp(static_cast<float>(mantissa), -9);
  return code & 128 ? -v : v;
}

// Gated: as many rows of gate and of up.
class RandomMatrix {
 public:
  LinearDesc desc;
  LinearSource source;

  RandomMatrix(FileType type, int32_t group, int64_t n, int64_t k, Glu glu) : type_(type), group_(group ? group : k) {
    desc.k = k;
    desc.compute = Compute::bf16;
    desc.glu = glu;
    desc.part_count = glu == Glu::none ? 1 : 2;
    grouped_.reserve(2);
    for (int p = 0; p < desc.part_count; ++p) {
      desc.type[p] = type;
      desc.part_n[p] = n;
      desc.group[p] = group;
      if (has_groups(type)) {
        grouped_.emplace_back(type, n, k, (k + group_ - 1) / group_);
        source.quant[p] = &grouped_.back();
      } else {
        files_.push_back(random_rows(type, n, k));
        source.rows[p] = files_.back().data();
        source.row_bytes[p] = files_.back().size() / static_cast<size_t>(n);
      }
    }
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  std::vector<float> weights(int part, int64_t row) const {
    const auto p = static_cast<size_t>(part);
    std::vector<float> w(static_cast<size_t>(desc.k));
    if (!has_groups(type_)) {
      dequantize_row(type_, files_[p].data() + static_cast<size_t>(row) * source.row_bytes[p], desc.k, w.data());
      return w;
    }
    std::vector<uint8_t> code(w.size());
    std::vector<float> scale(static_cast<size_t>((desc.k + group_ - 1) / group_)), min(scale.size());
    grouped_[p].row(row, code.data(), scale.data(), min.data());
    const float zero = type_ == FileType::w4 ? 8 : type_ == FileType::w8 ? 128 : 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const size_t g = i / static_cast<size_t>(group_);
      w[i] = (type_ == FileType::f8 ? e4m3_value(code[i]) : static_cast<float>(code[i]) - zero) * scale[g] + (type_ == FileType::w4z || type_ == FileType::w8z ? min[g] : 0.0f);
    }
    return w;
  }

  // One output: of row `n` of weights (gated: of gate and of up) and a row of activations.
  template <class X>  // X(i): an activation
  double output(int64_t n, const X& x, const std::vector<float>* bias) const {
    double sum[2] = {};
    for (int p = 0; p < desc.part_count; ++p) {
      if (n != row_) cached_[p] = weights(p, n);
      for (int64_t i = 0; i < desc.k; ++i) sum[p] += double{cached_[p][static_cast<size_t>(i)]} * double{x(i)};
      if (bias) sum[p] += double{(*bias)[static_cast<size_t>(p * desc.part_n[0] + n)]};
    }
    row_ = n;
    if (desc.glu == Glu::none) return sum[0];
    const double v = sum[0];
    return sum[1] * (desc.glu == Glu::gelu_tanh ? 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))) : v / (1 + std::exp(-v)));
  }

 private:
  FileType type_;
  int64_t group_;
  std::vector<RandomRows> grouped_;
  std::vector<std::vector<unsigned char>> files_;
  mutable int64_t row_ = -1;
  mutable std::vector<float> cached_[2];
};

}  // namespace orlop::test
