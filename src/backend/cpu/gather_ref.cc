#include <cstring>

#include "backend/cpu/ops.h"

namespace orlop::cpu::ref {

void gather(const GatherArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    std::memcpy(a.out + r * a.dim, a.x + a.index[r] * a.x_stride,
                static_cast<size_t>(a.dim) * sizeof(float));
}

}  // namespace orlop::cpu::ref
