// Host arrays on their way to the device: laid out one after another, uploaded in one copy.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/checked.h"
#include "ops/device.h"

namespace orlop {

class Staging {
 public:
  Staging(Device& device, size_t bytes) : device_(device) { grow(bytes); }

  void clear() { used_ = 0; }

  // Copies an array in; the answer is its device address after upload(). Call reserve() first: an
  // array added earlier in this step would move.
  template <class T>
  T* add(std::span<const T> values) {
    const size_t offset = round_up(used_, size_t{64});
    const size_t bytes = values.size_bytes();
    if (offset + bytes > host_.size()) fail(Status::internal, "staging: step larger than reserved");
    if (bytes) std::memcpy(host_.data() + offset, values.data(), bytes);
    used_ = offset + bytes;
    return reinterpret_cast<T*>(buffer_.as<std::byte>() + offset);
  }

  // Before the first add() of a step. Takes memory only beyond the largest step so far.
  void reserve(size_t bytes) {
    if (bytes > host_.size()) grow(bytes + bytes / 2);
  }
  void upload() { device_.upload(buffer_.data(), host_.data(), used_); }
  size_t bytes() const { return host_.size(); }

  // Bytes that an array takes at most.
  template <class T>
  static size_t room(size_t count) {
    return count * sizeof(T) + 64;
  }

 private:
  void grow(size_t bytes) {
    // Both or neither.
    std::vector<std::byte> host(bytes);
    buffer_ = DeviceBuffer(device_, bytes);
    host_.swap(host);
  }
  Device& device_;
  DeviceBuffer buffer_;
  std::vector<std::byte> host_;
  size_t used_ = 0;
};

}  // namespace orlop
