// Arithmetic on numbers that come from a file or a caller: every overflow is a typed error.
#pragma once
#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.h"

namespace orlop {

template <std::integral T>
T checked_add(T a, T b, const char* what) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) fail(Status::bad_format, what, ": sum overflows");
  return r;
}

template <std::integral T>
T checked_mul(T a, T b, const char* what) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) fail(Status::bad_format, what, ": product overflows");
  return r;
}

template <std::integral To, std::integral From>
To checked_cast(From v, const char* what) {
  if (!std::in_range<To>(v)) fail(Status::bad_format, what, ": ", +v, " is out of range");
  return static_cast<To>(v);
}

// That [offset, offset + size) lies inside [0, total).
inline void checked_range(uint64_t offset, uint64_t size, uint64_t total, const char* what) {
  if (offset > total || size > total - offset)
    fail(Status::bad_format, what, ": bytes ", offset, " to ", offset, "+", size,
         " lie outside the ", total, " that exist");
}

// Ceiling division and rounding up, for values known to be in range.
template <std::integral T>
constexpr T div_up(T a, T b) {
  return static_cast<T>((a + b - 1) / b);
}
template <std::integral T>
constexpr T round_up(T a, T b) {
  return static_cast<T>(div_up(a, b) * b);
}

}  // namespace orlop
