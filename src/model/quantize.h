// Quantization of float weights while they are packed, without calibration.
#pragma once
#include <cstdint>
#include <memory>

#include "base/quant_rows.h"
#include "format/checkpoint.h"
#include "model/quant_options.h"

namespace orlop {

// Codes of one group x [n] with the scale (and min) that err least; squared errors count. Weights
// that lie on such a grid from end to end already get its codes. x is finite.
void quantize_w8(const float* x, int64_t n, uint8_t* code, float* scale);
void quantize_w8z(const float* x, int64_t n, uint8_t* code, float* scale, float* min);
void quantize_w4(const float* x, int64_t n, uint8_t* code, float* scale);
void quantize_w4z(const float* x, int64_t n, uint8_t* code, float* scale, float* min);

FileType quantized_type(int32_t bits, bool symmetric);

// The rows of a float tensor [n, k], which must outlive the answer. row() throws Error(bad_format)
// naming the tensor where a weight is NaN or infinite.
std::unique_ptr<QuantRows> quantize_rows(const FileTensor& tensor, int64_t k, FileType type,
                                         int32_t group);

}  // namespace orlop
