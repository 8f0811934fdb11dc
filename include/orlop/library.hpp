// library.hpp - a part of orlop.hpp: what needs no engine.
#ifndef ORLOP_LIBRARY_HPP
#define ORLOP_LIBRARY_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "orlop/orlop.h"
#include "orlop/result.hpp"

namespace orlop {
inline namespace cpp1 {

// The library's version, e.g. "0.1.0".
inline std::string_view version() noexcept { return orlop_version(); }
// The ABI that the library speaks: ORLOP_ABI_MAJOR << 16 | minor.
inline std::uint32_t abi_version() noexcept { return orlop_abi_version(); }
// Whether this build has a feature ("cuda", "avx2", ...); an unknown name answers false.
inline bool feature(const char* name) noexcept { return orlop_feature(name) > 0; }

// Receives the library's messages while it lives; the latest one made is the one that does, for the
// whole process. Its function may run on any thread, also concurrently, and may use the library, but
// must neither make nor destroy a LogSink. What it throws is dropped. When the destructor or close()
// returns it is not running and will not run again.
class LogSink {
 public:
  using Function = std::function<void(std::int32_t level, std::string_view text)>;
  LogSink() = default;
  // `level`: up to which, ORLOP_LOG_.
  explicit LogSink(Function function, std::int32_t level = ORLOP_LOG_INFO)
      : function_(std::make_unique<Function>(std::move(function))) {
    const std::lock_guard<std::mutex> lock(current().mutex);
    current().function = function_.get();
    orlop_log_set(call, function_.get(), level);
  }
  LogSink(LogSink&&) noexcept = default;
  LogSink& operator=(LogSink&& o) noexcept {
    if (this != &o) close(), function_ = std::move(o.function_);
    return *this;
  }
  ~LogSink() { close(); }
  explicit operator bool() const noexcept { return function_ != nullptr; }
  // Ends it early. Once or more.
  void close() noexcept {
    if (!function_) return;
    const std::lock_guard<std::mutex> lock(current().mutex);
    if (current().function == function_.get()) {  // else another took its place
      orlop_log_set(nullptr, nullptr, 0);
      current().function = nullptr;
    }
    function_.reset();
  }

 private:
  struct Current {
    std::mutex mutex;
    Function* function = nullptr;
  };
  static Current& current() noexcept {
    static Current c;
    return c;
  }
  static void call(void* user, std::int32_t level, const char* text, std::size_t len) {
#ifdef ORLOP_HPP_EXCEPTIONS
    try {
      (*static_cast<Function*>(user))(level, std::string_view(text, len));
    } catch (...) {  // the library is C to it: nothing may pass
    }
#else
    (*static_cast<Function*>(user))(level, std::string_view(text, len));
#endif
  }
  std::unique_ptr<Function> function_;
};

// What a model file or folder holds, as JSON; no weight is loaded.
inline Result<std::string> inspect(std::string_view path) {
  detail::CError err;
  orlop_buffer* raw = nullptr;
  const std::int32_t status = orlop_inspect(path.data(), path.size(), &raw, err.out());
  if (status < 0) return err.take(status);
  return detail::take(raw);
}

// How far a text follows a guide (ORLOP_GUIDE_): how many of its first bytes can begin such a text, and
// whether all of them are one. Needs no engine.
struct GuideCheck {
  std::uint64_t accepted = 0;
  bool complete = false;
};
inline Result<GuideCheck> guide_check(std::int32_t guide, std::string_view source,
                                      std::string_view text) {
  detail::CError err;
  GuideCheck out;
  std::int32_t complete = 0;
  const std::int32_t status =
      orlop_guide_check(guide, source.data(), source.size(), text.data(), text.size(),
                        &out.accepted, &complete, err.out());
  if (status < 0) return err.take(status);
  out.complete = complete != 0;
  return out;
}

}  // namespace cpp1
}  // namespace orlop
#endif
