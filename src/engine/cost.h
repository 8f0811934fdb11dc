// What a step costs, measured: time = a + b * rows + c * keys, where keys is the sum over rows of the
// keys each attends to. Fitted to what was seen lately, one running mean per size class, so that
// hours of steps of one size do not wash out what the other sizes cost.
#pragma once
#include <array>
#include <cstdint>

namespace orlop {

class StepCost {
 public:
  void observe(int32_t rows, double keys, int64_t ns);
  // Predicted time; 0 before anything was seen.
  double predict(double rows, double keys) const;
  // How many rows more, each attending to about `context` keys, fit beside (rows, keys) within
  // target_ns. 0 if none; `most` before anything was seen.
  int32_t rows_within(double target_ns, int32_t rows, double keys, double context,
                      int32_t most) const;
  // Of one more prompt row at a moderate context.
  double row_ns() const { return b_; }

 private:
  void fit();
  struct Class {
    double weight = 0, rows = 0, keys = 0, ns = 0;  // running means
  };
  std::array<Class, 32> classes_;  // by the number of bits of rows
  double a_ = 0, b_ = 0, c_ = 0;
};

}  // namespace orlop
