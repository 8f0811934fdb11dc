// RMS norm (Zhang and Sennrich 2019). The sum of squares is kept in 16 lanes, element i in lane
// i mod 16, and the lanes are added as a tree: 8 apart, 4, 2, 1.
#include <cmath>

#include "backend/cpu/ops.h"

namespace orlop::cpu::ref {

void norm(const NormArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = a.x + r * a.x_stride;
    float* out = a.out + r * a.out_stride;
    float lanes[16] = {};
    for (int64_t i = 0; i < a.dim; ++i) lanes[i % 16] += x[i] * x[i];
    for (int step = 8; step; step /= 2)
      for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
    const float inverse = 1.0f / std::sqrt(lanes[0] / static_cast<float>(a.dim) + a.eps);
    for (int64_t i = 0; i < a.dim; ++i) out[i] = x[i] * inverse * a.weight[i];
  }
}

}  // namespace orlop::cpu::ref
