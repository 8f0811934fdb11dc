// The exception wall: every entry point of the ABI runs its body through guarded(). Also the rules
// for structs that grow (struct_size) and for handles that are counted.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "base/error.h"
#include "orlop/orlop.h"

namespace orlop::api {

static_assert(static_cast<int32_t>(Status::ok) == ORLOP_OK);
static_assert(static_cast<int32_t>(Status::timeout) == ORLOP_TIMEOUT);
static_assert(static_cast<int32_t>(Status::end) == ORLOP_END);
static_assert(static_cast<int32_t>(Status::invalid_argument) == ORLOP_E_INVALID_ARGUMENT);
static_assert(static_cast<int32_t>(Status::not_found) == ORLOP_E_NOT_FOUND);
static_assert(static_cast<int32_t>(Status::io) == ORLOP_E_IO);
static_assert(static_cast<int32_t>(Status::bad_format) == ORLOP_E_BAD_FORMAT);
static_assert(static_cast<int32_t>(Status::unsupported) == ORLOP_E_UNSUPPORTED);
static_assert(static_cast<int32_t>(Status::out_of_memory) == ORLOP_E_OUT_OF_MEMORY);
static_assert(static_cast<int32_t>(Status::context_overflow) == ORLOP_E_CONTEXT_OVERFLOW);
static_assert(static_cast<int32_t>(Status::busy) == ORLOP_E_BUSY);
static_assert(static_cast<int32_t>(Status::queue_full) == ORLOP_E_QUEUE_FULL);
static_assert(static_cast<int32_t>(Status::cancelled) == ORLOP_E_CANCELLED);
static_assert(static_cast<int32_t>(Status::shutdown) == ORLOP_E_SHUTDOWN);
static_assert(static_cast<int32_t>(Status::internal) == ORLOP_E_INTERNAL);
static_assert(static_cast<int32_t>(Status::deadline) == ORLOP_E_DEADLINE);

// Stores what fits into the caller's error and returns the status. Allocates nothing.
int32_t report(orlop_error* err, Status status, std::string_view text) noexcept;

template <class Body>
int32_t guarded(orlop_error* err, Body&& body) noexcept {
  try {
    return report(err, body(), {});
  } catch (const Error& e) {
    return report(err, e.status(), e.text());
  } catch (const std::bad_alloc&) {
    return report(err, Status::out_of_memory, "out of memory");
  } catch (const std::length_error&) {
    return report(err, Status::out_of_memory, "out of memory: a size exceeds every limit");
  } catch (const std::system_error& e) {
    const bool scarce = e.code() == std::errc::resource_unavailable_try_again ||
                        e.code() == std::errc::not_enough_memory;
    return report(err, scarce ? Status::out_of_memory : Status::internal, e.what());
  } catch (const std::exception& e) {
    return report(err, Status::internal, e.what());
  } catch (...) {
    return report(err, Status::internal, "unknown exception");
  }
}

// ---- structs that grow ----

// No caller has structs this long: a larger size is memory that was never set.
constexpr uint32_t max_struct_size = 65536;

template <class T>
uint32_t checked_struct_size(const T* s, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  if (!s) fail(Status::invalid_argument, name, ": is NULL");
  const uint32_t n = s->struct_size;
  if (n < 8 || n % 8 || n > max_struct_size)
    fail(Status::invalid_argument, name, ".struct_size: ", n, " is no size of this struct");
  return n;
}

// The caller's struct with `defaults` for what a shorter one lacks.
template <class T>
T read_sized(const T* from, const T& defaults, const char* name) {
  const uint32_t n = checked_struct_size(from, name);
  T value = defaults;
  std::memcpy(&value, from, n < sizeof(T) ? n : sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(T); i < n; ++i)
    if (bytes[i])
      fail(Status::unsupported, name, ": byte ", i, " of ", n, " is set, but this library knows ",
           sizeof(T), " bytes of it");
  return value;
}

// Fills as much as the caller's struct holds; what a longer one has besides becomes zero. The size
// was checked before.
template <class T>
void write_sized(T* to, T value) noexcept {
  const uint32_t n = to->struct_size;
  value.struct_size = n;
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  std::memcpy(bytes, &value, n < sizeof(T) ? n : sizeof(T));
  if (n > sizeof(T)) std::memset(bytes + sizeof(T), 0, n - sizeof(T));
}

// ---- counted handles ----

// How many forks lie between the process that loaded the library and this one.
extern std::atomic<uint32_t> forks;

// Base of every handle: a call in progress keeps it, so that release may come at any time.
struct Counted {
  std::atomic<uint32_t> references{1};
  const uint32_t made_after = forks.load(std::memory_order_relaxed);
  // Made by the process that this one was forked from. Its threads are not here, and its locks may be
  // held by nobody, for ever: such a handle is left alone.
  bool foreign() const noexcept { return made_after != forks.load(std::memory_order_relaxed); }
};

template <class T>
void drop(T* handle) noexcept {
  if (handle && !handle->foreign() && handle->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete handle;
}

template <class T>
class Hold {
 public:
  Hold(T* handle, const char* name) : handle_(handle) {
    if (!handle) fail(Status::invalid_argument, name, ": is NULL");
    if (handle->foreign())
      fail(Status::shutdown, name, ": belongs to the process that this one was forked from");
    handle->references.fetch_add(1, std::memory_order_relaxed);
  }
  ~Hold() { drop(handle_); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  T* operator->() const { return handle_; }
  T& operator*() const { return *handle_; }

 private:
  T* handle_;
};

// `*out` as every creating call leaves it on failure.
template <class T>
void clear_out(T** out, const char* name) {
  if (!out) fail(Status::invalid_argument, name, ": is NULL");
  *out = nullptr;
}

// Text of a caller. NULL is allowed when the length is 0.
std::string_view text_in(const char* data, uint64_t len, const char* name);
// The same, and valid UTF-8: Error(invalid_argument) names the byte.
std::string_view utf8_in(const char* data, uint64_t len, const char* name);

}  // namespace orlop::api

struct orlop_buffer {
  std::string bytes;
};

namespace orlop::api {
inline orlop_buffer* new_buffer(std::string bytes) {
  return new orlop_buffer{std::move(bytes)};
}
}  // namespace orlop::api
