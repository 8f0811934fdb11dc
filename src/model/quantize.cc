#include "model/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "format/quant.h"
#include "format/quant_tensors.h"

namespace orlop {
namespace {

using Lanes [[gnu::vector_size(16)]] = float;
constexpr int lanes = 4;
constexpr Lanes zeros = {};

float sum(Lanes v) {
  return (v[0] + v[1]) + (v[2] + v[3]);
}
// Nearest whole number, ties to even, for |v| < 2^22.
template <class T>
T nearest(T v) {
  return (v + 12582912.0f) - 12582912.0f;
}

struct Range {
  float low, high;
};
Range range_of(const float* x, int64_t n) {
  Range r{x[0], x[0]};
  for (int64_t i = 1; i < n; ++i) {
    r.low = std::min(r.low, x[i]);
    r.high = std::max(r.high, x[i]);
  }
  return r;
}

// Codes q = clamp(nearest((x - from) * inverse), least, most) and what a least-squares fit needs.
struct Sums {
  float q = 0, qq = 0, xq = 0;
};
Sums fit_sums(const float* x, int64_t n, float from, float inverse, float least, float most) {
  Lanes q = zeros, qq = zeros, xq = zeros;
  const Lanes low = zeros + least, high = zeros + most;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Lanes v;
    std::memcpy(&v, x + i, sizeof v);
    Lanes c = nearest((v - from) * inverse);
    c = c < low ? low : c > high ? high : c;
    q += c;
    qq += c * c;
    xq += c * v;
  }
  Sums s{sum(q), sum(qq), sum(xq)};
  for (; i < n; ++i) {
    const float c = std::clamp(nearest((x[i] - from) * inverse), least, most);
    s.q += c;
    s.qq += c * c;
    s.xq += c * x[i];
  }
  return s;
}

// Writes the codes less `least` and returns the largest error of scale * q + from.
float write_codes(const float* x, int64_t n, float from, float scale, float least, float most,
                  uint8_t* code) {
  const float inverse = 1.0f / scale;
  float worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float c = std::clamp(nearest((x[i] - from) * inverse), least, most);
    code[i] = static_cast<uint8_t>(static_cast<int>(c - least));
    worst = std::max(worst, std::fabs(x[i] - (scale * c + from)));
  }
  return worst;
}

// Below this a scale's reciprocal is no longer sound; such weights count as 0.
constexpr float smallest = 0x1p-120f;
// Errors of this part of the largest weight are those of float32 itself.
constexpr float exact = 0x1p-21f;

// How much of the range is kept. Large groups have outliers that are worth cutting.
struct Ratios {
  const float* begin;
  const float* end;
};
Ratios ratios_of(int64_t n) {
  static constexpr float few[] = {0.96f, 0.92f, 0.88f, 0.84f};
  static constexpr float many[] = {0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.65f, 0.6f, 0.55f, 0.5f};
  if (n <= 128) return {std::begin(few), std::end(few)};
  return {std::begin(many), std::end(many)};
}

}  // namespace

void quantize_w8(const float* x, int64_t n, uint8_t* code, float* scale) {
  const Range r = range_of(x, n);
  const float largest = std::max(-r.low, r.high);
  if (!(largest >= smallest)) {
    *scale = 0;
    std::memset(code, 128, static_cast<size_t>(n));
    return;
  }
  *scale = largest / 127.0f;
  // -128 is the code 0, which the largest weight never needs.
  write_codes(x, n, 0, *scale, -128, 127, code);
}

void quantize_w8z(const float* x, int64_t n, uint8_t* code, float* scale, float* min) {
  const Range r = range_of(x, n);
  *scale = r.high / 255.0f - r.low / 255.0f;
  *min = r.low;
  if (!(*scale >= smallest)) {
    *scale = 0;
    std::memset(code, 0, static_cast<size_t>(n));
    return;
  }
  write_codes(x, n, r.low, *scale, 0, 255, code);
}

void quantize_w4(const float* x, int64_t n, uint8_t* code, float* scale) {
  float largest = x[0];  // with its sign: it gets -8, the longer side
  for (int64_t i = 1; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  if (!(std::fabs(largest) >= smallest)) {
    *scale = 0;
    std::memset(code, 8, static_cast<size_t>(n));
    return;
  }
  *scale = largest / -8.0f;
  if (write_codes(x, n, 0, *scale, -8, 7, code) <= exact * std::fabs(largest)) return;

  // Of all scales with given codes the best is xq / qq, and leaves xx - xq^2 / qq.
  float best = -1, best_inverse = 0, best_scale = 0;
  const auto consider = [&](float s) {
    const Sums f = fit_sums(x, n, 0, 1.0f / s, -8, 7);
    if (f.qq > 0 && f.xq * (f.xq / f.qq) > best) {
      best = f.xq * (f.xq / f.qq);
      best_inverse = s;
      best_scale = f.xq / f.qq;
    }
  };
  consider(*scale);
  consider(largest / -7.5f);
  consider(largest / 7.0f);
  const Ratios ratios = ratios_of(n);
  for (const float* part = ratios.begin; part != ratios.end; ++part) consider(*scale * *part);
  if (!(std::fabs(best_scale) >= smallest)) return;
  write_codes(x, n, 0, best_inverse, -8, 7, code);
  *scale = best_scale;
}

void quantize_w4z(const float* x, int64_t n, uint8_t* code, float* scale, float* min) {
  const Range r = range_of(x, n);
  const float whole = r.high / 15.0f - r.low / 15.0f;
  *scale = whole;
  *min = r.low;
  if (!(whole >= smallest)) {
    *scale = 0;
    std::memset(code, 0, static_cast<size_t>(n));
    return;
  }
  if (write_codes(x, n, r.low, whole, 0, 15, code) <= exact * std::max(-r.low, r.high)) return;

  // The line through (q, x) that errs least; what it leaves is xx less what is compared here.
  // Around the mean, where nothing cancels.
  Lanes total = zeros;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Lanes v;
    std::memcpy(&v, x + i, sizeof v);
    total += v;
  }
  float mean = sum(total);
  for (; i < n; ++i) mean += x[i];
  mean /= static_cast<float>(n);
  float best = -1, best_from = r.low, best_scale = whole, fitted_scale = whole, fitted_min = r.low;
  const auto consider = [&](float part) {
    const float s = whole * part, from = r.low + 7.5f * whole * (1 - part);
    const Sums f = fit_sums(x, n, from, 1.0f / s, 0, 15);
    const float q_mean = f.q / static_cast<float>(n);
    const float spread = f.qq - f.q * q_mean, along = f.xq - f.q * mean;
    if (spread > 0 && along * (along / spread) > best) {
      best = along * (along / spread);
      best_from = from;
      best_scale = s;
      fitted_scale = along / spread;
      fitted_min = mean - fitted_scale * q_mean;
    }
  };
  consider(1);
  const Ratios ratios = ratios_of(n);
  for (const float* part = ratios.begin; part != ratios.end; ++part) consider(*part);
  if (!(fitted_scale >= smallest)) return;
  write_codes(x, n, best_from, best_scale, 0, 15, code);
  *scale = fitted_scale;
  *min = fitted_min;
}

namespace {

class FloatRows final : public QuantRows {
 public:
  FloatRows(const FileTensor& tensor, int64_t k, FileType type, int32_t group)
      : tensor_(tensor), k_(k), type_(type), group_(group ? group : k) {}

  void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
    thread_local std::vector<float> buffer;
    buffer.resize(static_cast<size_t>(k_));
    const float* x = buffer.data();
    read(r, buffer.data());
    for (int64_t begin = 0, g = 0; begin < k_; begin += group_, ++g) {
      const int64_t n = std::min(group_, k_ - begin);
      switch (type_) {
        case FileType::w4:
          quantize_w4(x + begin, n, code + begin, scale + g);
          break;
        case FileType::w4z:
          quantize_w4z(x + begin, n, code + begin, scale + g, min + g);
          break;
        case FileType::w8z:
          quantize_w8z(x + begin, n, code + begin, scale + g, min + g);
          break;
        default:
          quantize_w8(x + begin, n, code + begin, scale + g);
      }
    }
  }

 private:
  void read(int64_t r, float* x) const {
    const std::byte* row =
        tensor_.data.data() + static_cast<size_t>(r * k_) * info(tensor_.type).block_bytes;
    if (tensor_.type == FileType::f32) {
      std::memcpy(x, row, static_cast<size_t>(k_) * 4);
    } else {
      const bool f16 = tensor_.type == FileType::f16;
      for (int64_t i = 0; i < k_; ++i) {
        uint16_t h;
        std::memcpy(&h, row + 2 * i, 2);
        x[i] = f16 ? f16_to_f32(h) : bf16_to_f32(h);
      }
    }
    uint32_t largest = 0;
    for (int64_t i = 0; i < k_; ++i)
      largest = std::max(largest, __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu);
    if (largest >= 0x7f800000u)
      fail(Status::bad_format, tensor_place(tensor_), ": row ", r,
           " holds NaN or infinity, which cannot be quantized");
  }

  const FileTensor& tensor_;
  const int64_t k_;
  const FileType type_;
  const int64_t group_;
};

}  // namespace

FileType quantized_type(int32_t bits, bool symmetric) {
  return bits == 4 ? (symmetric ? FileType::w4 : FileType::w4z)
                   : (symmetric ? FileType::w8 : FileType::w8z);
}

std::unique_ptr<QuantRows> quantize_rows(const FileTensor& tensor, int64_t k, FileType type,
                                         int32_t group) {
  return std::make_unique<FloatRows>(tensor, k, type, group);
}

std::optional<Compute> stated_compute(const Checkpoint& checkpoint, const QuantOptions& options) {
  if (options.kind == QuantOptions::Kind::dynamic)
    return options.int8_activations ? std::optional(Compute::a8) : std::nullopt;
  const auto scheme = QuantScheme::open(checkpoint);
  return scheme && scheme->int8_activations() ? std::optional(Compute::a8) : std::nullopt;
}

}  // namespace orlop
