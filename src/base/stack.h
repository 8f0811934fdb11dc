// How much of the calling thread's stack is left: recursion over hostile input ends in an error
// before the stack does, however small the thread's stack is.
#pragma once
#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace orlop {

class StackGuard {
 public:
  // For the calling thread; low() turns true when fewer than `reserve` bytes are left.
  explicit StackGuard(size_t reserve) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* lowest = nullptr;
    size_t size = 0, guard = 0;
    if (pthread_attr_getstack(&attributes, &lowest, &size) == 0 &&
        pthread_attr_getguardsize(&attributes, &guard) == 0)
      floor_ = reinterpret_cast<uintptr_t>(lowest) + guard + reserve;
    pthread_attr_destroy(&attributes);
  }
  bool low() const { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < floor_; }

 private:
  uintptr_t floor_ = 0;  // 0: unknown, never low
};

}  // namespace orlop
