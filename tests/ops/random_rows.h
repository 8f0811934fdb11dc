// Random codes, scales and mins of a matrix whose scales are for groups, or for rows, as checkpoints give them.
#pragma once
#include "matmul_rig.h"

namespace orlop::test {

class RandomRows final : public QuantRows {
 public:
  RandomRows(FileType type, int64_t n, int64_t k, int64_t shares)
      : k_(k),
        shares_(shares),
        code_(static_cast<size_t>(n * k)),
        scale_(static_cast<size_t>(n * shares)),
        min_(scale_.size()) {
    for (uint8_t& c : code_) {
      c = static_cast<uint8_t>(rng() & (format_info(type).code_bits == 4 ? 15 : 255));
      if (type == FileType::f8 && (c & 0x7f) == 0x7f) c = 0x7e;
    }
    for (float& s : scale_) s = uniform(-0.1f, 0.1f);
    for (float& m : min_) m = uniform(-1, 1);
  }
  void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
    std::copy_n(code_.data() + r * k_, k_, code);
    std::copy_n(scale_.data() + r * shares_, shares_, scale);
    std::copy_n(min_.data() + r * shares_, shares_, min);
  }

 private:
  int64_t k_, shares_;
  std::vector<uint8_t> code_;
  std::vector<float> scale_, min_;
};

}  // namespace orlop::test
