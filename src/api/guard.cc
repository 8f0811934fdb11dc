#include "api/guard.h"

#include <pthread.h>

#include <algorithm>

namespace orlop::api {

std::atomic<uint32_t> forks{0};

namespace {

// If it cannot be registered, a child is not told that a handle is foreign; nothing else is lost.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

// The byte of the first malformed sequence, or npos (RFC 3629: no overlong forms, no surrogates).
size_t first_invalid_utf8(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  for (size_t i = 0; i < s.size();) {
    const unsigned char c = byte(i);
    if (c < 0x80) {
      ++i;
      continue;
    }
    size_t more;
    unsigned char low = 0x80, high = 0xBF;  // bounds of the second byte
    if (c >= 0xC2 && c <= 0xDF) {
      more = 1;
    } else if (c >= 0xE0 && c <= 0xEF) {
      more = 2;
      if (c == 0xE0) low = 0xA0;
      if (c == 0xED) high = 0x9F;
    } else if (c >= 0xF0 && c <= 0xF4) {
      more = 3;
      if (c == 0xF0) low = 0x90;
      if (c == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (more >= s.size() - i) return i;
    if (byte(i + 1) < low || byte(i + 1) > high) return i;
    for (size_t k = 2; k <= more; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    i += more + 1;
  }
  return std::string_view::npos;
}

}  // namespace

int32_t report(orlop_error* err, Status status, std::string_view text) noexcept {
  const auto code = static_cast<int32_t>(status);
  constexpr size_t head = offsetof(orlop_error, message);
  if (!err || err->struct_size < head) return code;
  err->code = code < 0 ? code : 0;
  const size_t room = std::min<size_t>(err->struct_size, sizeof(orlop_error)) - head;
  if (room == 0) return code;
  size_t n = std::min(text.size(), room - 1);
  // A cut falls between code points.
  if (n < text.size())
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  if (n) std::memcpy(err->message, text.data(), n);
  err->message[n] = '\0';
  return code;
}

std::string_view text_in(const char* data, uint64_t len, const char* name) {
  if (!data && len) fail(Status::invalid_argument, name, ": is NULL with a length of ", len);
  if (len > static_cast<uint64_t>(PTRDIFF_MAX))
    fail(Status::invalid_argument, name, ": a length of ", len, " is impossible");
  return {data ? data : "", static_cast<size_t>(len)};
}

std::string_view utf8_in(const char* data, uint64_t len, const char* name) {
  const std::string_view s = text_in(data, len, name);
  if (const size_t at = first_invalid_utf8(s); at != std::string_view::npos)
    fail(Status::invalid_argument, name, ": no valid UTF-8 at byte ", at);
  return s;
}

}  // namespace orlop::api
