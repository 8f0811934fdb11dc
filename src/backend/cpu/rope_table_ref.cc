#include <cmath>

#include "backend/cpu/ops.h"

namespace orlop::cpu::ref {

// The angle is a float product, as Hugging Face's tables have it; its cosine and sine are computed
// in double and rounded once, with the scale.
void rope_table(const RopeTableArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t i = 0; i < a.half; ++i) {
      const float angle = static_cast<float>(a.positions[r]) * a.inv_freq[i];
      a.cos[r * a.half + i] = static_cast<float>(std::cos(static_cast<double>(angle))) * a.scale;
      a.sin[r * a.half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * a.scale;
    }
}

}  // namespace orlop::cpu::ref
