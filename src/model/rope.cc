// Rotary frequencies as transformers 5.24 computes them (modeling_rope_utils.py), in float32 where it
// uses float32. Scalings: linear; dynamic NTK; YaRN (arXiv 2309.00071); Llama 3.1.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/config.h"

namespace orlop {
namespace {

// base ^ (2 i / dim), the exponent in float32. The power is computed in double and rounded once.
std::vector<float> powers(double base, int32_t dim) {
  std::vector<float> out(static_cast<size_t>(dim / 2));
  const double b = static_cast<float>(base);
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    out[i] = static_cast<float>(std::pow(b, static_cast<double>(exponent)));
  }
  return out;
}

void llama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const double context = rope.original_max_position;
  const float low_wavelength = static_cast<float>(context / rope.low_freq_factor);
  const float high_wavelength = static_cast<float>(context / rope.high_freq_factor);
  const float factor = static_cast<float>(rope.factor);
  const float span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
    if (wavelength > low_wavelength) {
      f = f / factor;
    } else if (!(wavelength < high_wavelength)) {
      const float smooth = (static_cast<float>(context) / wavelength -
                            static_cast<float>(rope.low_freq_factor)) / span;
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

double yarn_magnitude(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

float yarn(const RopeConfig& rope, const std::vector<float>& pos_freqs,
           std::vector<float>& inv_freq) {
  const int32_t dim = rope.dim;
  const auto correction = [&](double rotations) {
    return dim * std::log(rope.original_max_position / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast);
  double high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // no division by zero

  const float factor = static_cast<float>(rope.factor);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float extrapolated = 1.0f - ramp;
    inv_freq[i] = 1.0f / (factor * pos_freqs[i]) * (1.0f - extrapolated) +
                  1.0f / pos_freqs[i] * extrapolated;
  }
  if (rope.attention_factor > 0) return static_cast<float>(rope.attention_factor);
  if (rope.mscale > 0 && rope.mscale_all_dim > 0)
    return static_cast<float>(yarn_magnitude(rope.factor, rope.mscale) /
                              yarn_magnitude(rope.factor, rope.mscale_all_dim));
  return static_cast<float>(yarn_magnitude(rope.factor, 1.0));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, int32_t max_position,
                                 int32_t max_context) {
  const int32_t dim = rope.dim;
  if (dim < 2 || dim % 2 != 0 || max_position < 1)
    fail(Status::invalid_argument, "rotary frequencies of ", dim, " elements and ", max_position,
         " positions");
  double base = rope.theta;
  if (rope.type == RopeConfig::Type::dynamic && dim > 2) {
    const double length = std::max(max_context, max_position);
    base *= std::pow(rope.factor * length / max_position - (rope.factor - 1),
                     static_cast<double>(dim) / (dim - 2));
  }
  std::vector<float> pos_freqs = powers(base, dim);  // [dim / 2]
  if (!rope.factors.empty()) {
    if (rope.factors.size() != pos_freqs.size())
      fail(Status::invalid_argument, rope.factors.size(), " rotary factors for ",
           pos_freqs.size(), " frequencies");
    for (size_t i = 0; i < pos_freqs.size(); ++i) pos_freqs[i] *= rope.factors[i];
  }

  RopeFrequencies out;
  out.inv_freq.resize(pos_freqs.size());
  for (size_t i = 0; i < pos_freqs.size(); ++i) out.inv_freq[i] = 1.0f / pos_freqs[i];
  switch (rope.type) {
    case RopeConfig::Type::standard:
    case RopeConfig::Type::dynamic:
      break;
    case RopeConfig::Type::linear:
      for (float& f : out.inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeConfig::Type::llama3:
      llama3(rope, out.inv_freq);
      break;
    case RopeConfig::Type::yarn:
      out.scale = yarn(rope, pos_freqs, out.inv_freq);
      break;
  }
  for (float f : out.inv_freq)
    if (!std::isfinite(f) || f < 0)
      fail(Status::bad_format, "the rotary parameters (theta ", rope.theta, ", factor ",
           rope.factor, ") give no finite frequencies");
  return out;
}

}  // namespace orlop
