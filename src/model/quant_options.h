// What a caller asks of the weights' precision at load.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "format/checkpoint.h"

namespace orlop {

struct QuantOptions {
  // stored: weights keep what the checkpoint holds; method, unless empty, is what that must be
  // ("gptq", "awq", "fp8", "compressed-tensors"). dynamic: float weights are quantized at load.
  enum class Kind : uint8_t { stored, dynamic };
  Kind kind = Kind::stored;
  std::string method;
  // dynamic
  int32_t bits = 8;               // 8 or 4
  int32_t group = 0;              // elements of k that share a scale, 0: all of a row
  bool symmetric = true;          // no minimum beside the scale
  bool int8_activations = false;  // made for Compute::a8
};

// The compute setting that the weights are made for, if they are made for one.
std::optional<Compute> stated_compute(const Checkpoint& checkpoint, const QuantOptions& options);

}  // namespace orlop
