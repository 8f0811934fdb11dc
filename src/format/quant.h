// Matrices that a checkpoint holds quantized, whatever program made it: GPTQ, AWQ,
// compressed-tensors and FP8 folders, from the quantization_config of config.json and the tensors
// beside each module.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quant_rows.h"
#include "format/checkpoint.h"

namespace orlop {

// One matrix as the packer takes it: the file's codes and scales, exactly.
struct QuantMatrix {
  FileType type = FileType::w4;  // w4, w4z, w8, w8z or f8
  int32_t group = 0;             // elements of k that share a scale, a multiple of 32; 0: the row
  std::vector<int32_t> k_map;    // [k] which element of x each one multiplies; empty: in order
  std::unique_ptr<QuantRows> rows;         // reads the checkpoint, which must outlive it
  std::vector<const FileTensor*> tensors;  // that it is read from, or that describe it
};

class QuantScheme {
 public:
  virtual ~QuantScheme() = default;

  // What the folder states; null when it states nothing (and for GGUF, whose tensors say for
  // themselves). Error(unsupported | bad_format) names file and key.
  static std::unique_ptr<QuantScheme> open(const Checkpoint& checkpoint);

  const std::string& method() const { return method_; }    // "gptq", "awq", ...
  const std::string& summary() const { return summary_; }  // for people
  // Made for activations in 8-bit integers with a scale per token.
  bool int8_activations() const { return int8_activations_; }

  // Whether the matrix of `module` ("model.layers.0.mlp.down_proj") is quantized.
  virtual bool holds(const std::string& module) const = 0;
  // Whether such a matrix was made for activations in e4m3.
  virtual bool fp8_activations(const std::string&) const { return false; }
  // The matrix of a module that holds() is true for, [n, k]. Error names file and tensor. Errors
  // that only the data itself shows come from rows->row().
  virtual QuantMatrix matrix(const std::string& module, int64_t n, int64_t k) const = 0;
  // A tensor that says nothing about weights: scales of static activation quantization.
  static bool is_idle(std::string_view tensor);

 protected:
  QuantScheme(const Checkpoint& checkpoint, std::string method)
      : checkpoint_(checkpoint), method_(std::move(method)) {}
  const Checkpoint& checkpoint_;
  std::string method_, summary_;
  bool int8_activations_ = false;
};

}  // namespace orlop
