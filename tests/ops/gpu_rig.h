// The GPU that tests of its ops run on, and its memory. Without one they are skipped, saying why.
#pragma once
#include <cstdio>
#include <memory>
#include <vector>

#include "../check.h"
#include "backend/backend.h"
#include "base/error.h"
#include "ops/device.h"

namespace orlop::test {

inline bool in_fast_mode = false;  // to be set before the first call of gpu()

inline Backend& gpu() {
  static const std::unique_ptr<Backend> backend = make_backend({.device = "cuda", .threads = 1, .deterministic = !in_fast_mode});
  return *backend;
}

// Device memory with a copy of host values, or with a byte all over, and poison after it that must stay.
template <class T>
class On {
 public:
  explicit On(const std::vector<T>& v) : n_(v.size()), buffer_(device(), n_ * sizeof(T) + 64) {
    if (n_) device().upload(buffer_.data(), v.data(), n_ * sizeof(T));
    device().fill(end(), 0xcc, 64);
  }
  On(size_t n, int byte) : n_(n), buffer_(device(), n * sizeof(T) + 64) {
    if (n) device().fill(buffer_.data(), byte, n * sizeof(T));
    device().fill(end(), 0xcc, 64);
  }
  T* at() const { return buffer_.template as<T>(); }
  std::vector<T> read() const {
    std::vector<T> v(n_);
    if (n_) device().download(v.data(), buffer_.data(), n_ * sizeof(T));
    unsigned char after[64];
    device().download(after, end(), 64);
    for (const unsigned char b : after) CHECK(b == 0xcc);
    return v;
  }

 private:
  static Device& device() { return *gpu().exec().device; }
  unsigned char* end() const { return static_cast<unsigned char*>(buffer_.data()) + n_ * sizeof(T); }
  size_t n_;
  DeviceBuffer buffer_;
};

inline int gpu_test_main(int count, char** values) {
  try {
    std::printf("%s\n", gpu().describe().c_str());
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return 77;
  }
  return test_main(count, values);
}

}  // namespace orlop::test
