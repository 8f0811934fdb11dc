// Typed errors inside the core. They cross the ABI as status codes (src/api/guard.h).
#pragma once
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

namespace orlop {

// The numbers are the ABI's (include/orlop/orlop.h); guard.h asserts it.
enum class Status : int32_t {
  ok = 0,
  timeout = 1,
  end = 2,
  invalid_argument = -1,
  not_found = -2,
  io = -3,
  bad_format = -4,
  unsupported = -5,
  out_of_memory = -6,
  context_overflow = -7,
  busy = -8,
  queue_full = -9,
  cancelled = -10,
  shutdown = -11,
  internal = -12,
  deadline = -13,
};

class Error : public std::exception {
 public:
  Error(Status status, std::string text) : status_(status), text_(std::move(text)) {}
  Status status() const noexcept { return status_; }
  const std::string& text() const noexcept { return text_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Status status_;
  std::string text_;
};

// Joins anything that streams into one string.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
  throw Error(status, cat(parts...));
}

}  // namespace orlop
