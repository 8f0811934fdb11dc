#include "engine/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace orlop {
namespace {
constexpr double newest = 0.1;       // share of a new observation in its class's means
constexpr double keys_unit = 1024;   // keeps the system well scaled
}  // namespace

void StepCost::observe(int32_t rows, double keys, int64_t ns) {
  if (rows < 1 || ns < 1) return;
  // Two classes for each power of two.
  const auto n = static_cast<uint32_t>(rows);
  const int bits = std::bit_width(n);
  const size_t half = bits > 1 ? (n >> (bits - 2)) & 1 : 0;
  Class& c = classes_[std::min(static_cast<size_t>(bits) * 2 + half, classes_.size()) - 1];
  const double share = c.weight > 0 ? std::max(newest, 1 / (c.weight + 1)) : 1;
  c.weight = std::min(c.weight + 1, 1 / newest);
  c.rows += share * (rows - c.rows);
  c.keys += share * (keys / keys_unit - c.keys);
  c.ns += share * (static_cast<double>(ns) - c.ns);
  fit();
}

// Least squares of relative errors over the classes, with a little pull to zero so that one class
// alone has an answer; coefficients that come out negative are taken as zero and the rest refitted.
void StepCost::fit() {
  bool use[3] = {true, true, true};
  for (;;) {
    double m[3][4] = {};
    for (const Class& c : classes_) {
      if (c.weight <= 0) continue;
      const double x[3] = {1 / c.ns, c.rows / c.ns, c.keys / c.ns};
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) m[i][j] += use[i] && use[j] ? x[i] * x[j] : 0;
        m[i][3] += use[i] ? x[i] : 0;
      }
    }
    for (int i = 0; i < 3; ++i) m[i][i] = use[i] ? m[i][i] * (1 + 1e-9) + 1e-30 : 1;
    for (int i = 0; i < 3; ++i)  // Gauss: the matrix is symmetric and positive
      for (int k = i + 1; k < 3; ++k) {
        const double f = m[k][i] / m[i][i];
        for (int j = i; j < 4; ++j) m[k][j] -= f * m[i][j];
      }
    double x[3];
    for (int i = 2; i >= 0; --i) {
      x[i] = m[i][3];
      for (int j = i + 1; j < 3; ++j) x[i] -= m[i][j] * x[j];
      x[i] /= m[i][i];
    }
    const int worst = static_cast<int>(std::min_element(x, x + 3) - x);
    if (x[worst] < 0 && use[worst]) {
      use[worst] = false;
      continue;
    }
    a_ = std::max(0.0, x[0]), b_ = std::max(0.0, x[1]), c_ = std::max(0.0, x[2]);
    return;
  }
}

double StepCost::predict(double rows, double keys) const {
  return a_ + b_ * rows + c_ * keys / keys_unit;
}

int32_t StepCost::rows_within(double target_ns, int32_t rows, double keys, double context,
                              int32_t most) const {
  const double left = target_ns - predict(rows, keys);
  const double each = b_ + c_ * context / keys_unit;
  if (a_ + b_ + c_ <= 0 || each <= 0) return most;
  if (left <= 0) return 0;
  return static_cast<int32_t>(std::min<double>(most, std::floor(left / each)));
}

}  // namespace orlop
