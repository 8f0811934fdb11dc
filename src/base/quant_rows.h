// A quantized matrix whose codes and scales come row by row: read from a checkpoint that keeps them
// in a layout of its own, or made on the spot from floats.
#pragma once
#include <cstdint>

namespace orlop {

class QuantRows {
 public:
  virtual ~QuantRows() = default;
  // Row r: code [k] in the order of k that the packed matrix has, scale and min [groups] of it. min
  // is left alone where the type has none. Called from several threads at once.
  virtual void row(int64_t r, uint8_t* code, float* scale, float* min) const = 0;
};

}  // namespace orlop
