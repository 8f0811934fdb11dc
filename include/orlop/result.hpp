// result.hpp - a part of orlop.hpp: values or errors, views, and what the classes share inside.
#ifndef ORLOP_RESULT_HPP
#define ORLOP_RESULT_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orlop/orlop.h"

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define ORLOP_HPP_EXCEPTIONS 1
#include <stdexcept>
#endif

namespace orlop {
// Inline, so that these classes and the library's own never share a linker name in a static link.
inline namespace cpp1 {

using Microseconds = std::chrono::microseconds;
// The timeout that never ends.
inline constexpr Microseconds forever{-1};

// What went wrong: one of the ORLOP_E_ codes and a sentence for people.
struct Error {
  std::int32_t code = ORLOP_OK;
  std::string message;
};

#ifdef ORLOP_HPP_EXCEPTIONS
// What Result::value() throws.
class Exception : public std::runtime_error {
 public:
  explicit Exception(const Error& e) : std::runtime_error(e.message), code_(e.code) {}
  std::int32_t code() const noexcept { return code_; }  // one of the ORLOP_E_ codes

 private:
  std::int32_t code_;
};
#endif

// A value or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  // The error; code ORLOP_OK when there is none.
  const Error& error() const noexcept { return error_; }

  // The value. Only when ok().
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

#ifdef ORLOP_HPP_EXCEPTIONS
  // The value, or throws Exception.
  T& value() & {
    return check(), *value_;
  }
  const T& value() const& {
    return check(), *value_;
  }
  T&& value() && {
    return check(), std::move(*value_);
  }
#endif

 private:
#ifdef ORLOP_HPP_EXCEPTIONS
  void check() const {
    if (!ok()) throw Exception(error_);
  }
#endif
  std::optional<T> value_;
  Error error_;
};

// A view of `size()` consecutive Ts that someone else owns (std::span is C++20).
template <class T>
class View {
 public:
  View() = default;
  View(const T* data, std::uint64_t size) : data_(data), size_(static_cast<std::size_t>(size)) {}
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return data_ ? size_ : 0; }
  bool empty() const noexcept { return size() == 0; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size(); }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// The caller's error struct of the C calls, and its way into an Error.
class CError {
 public:
  CError() { raw_.struct_size = sizeof raw_; }
  orlop_error* out() noexcept { return &raw_; }
  Error take(std::int32_t status) const { return {status, raw_.message}; }

 private:
  orlop_error raw_{};
};

struct Deleter {
  void operator()(orlop_engine* p) const noexcept { orlop_engine_release(p); }
  void operator()(orlop_request* p) const noexcept { orlop_request_release(p); }
  void operator()(orlop_queue* p) const noexcept { orlop_queue_release(p); }
  void operator()(orlop_buffer* p) const noexcept { orlop_buffer_release(p); }
  void operator()(orlop_chat_output* p) const noexcept { orlop_chat_output_release(p); }
};
template <class T>
using Handle = std::unique_ptr<T, Deleter>;

// Copies a library buffer and releases it.
inline std::string take(orlop_buffer* raw) {
  Handle<orlop_buffer> buffer(raw);
  std::size_t n = 0;
  const void* data = orlop_buffer_data(buffer.get(), &n);
  return n ? std::string(static_cast<const char*>(data), n) : std::string();
}

// Calls the C function that fills *ids twice at most: with room for `guess`, then for all.
template <class Call>
Result<std::vector<std::int32_t>> ids(std::size_t guess, Call call) {
  std::vector<std::int32_t> out(guess);
  for (;;) {
    CError err;
    std::size_t n = 0;
    const std::int32_t status = call(out.data(), out.size(), &n, err.out());
    if (status < 0) return err.take(status);
    const bool whole = n <= out.size();
    out.resize(n);
    if (whole) return out;
  }
}

}  // namespace detail

}  // namespace cpp1
}  // namespace orlop
#endif
