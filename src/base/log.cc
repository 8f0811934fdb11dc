#include "base/log.h"

#include <mutex>
#include <shared_mutex>

namespace orlop {
namespace {
struct Sink {
  std::shared_mutex mutex;  // writers: log_set; readers: every line
  LogFn fn = nullptr;
  void* user = nullptr;
  int32_t level = 0;
};
Sink& sink() {
  static Sink* s = new Sink;  // never destroyed: threads may log while the process exits
  return *s;
}
}  // namespace

void log_set(LogFn fn, void* user, int32_t level) noexcept {
  Sink& s = sink();
  std::unique_lock lock(s.mutex);
  s.fn = fn;
  s.user = user;
  s.level = fn ? level : 0;
}

bool log_wanted(LogLevel level) noexcept {
  Sink& s = sink();
  std::shared_lock lock(s.mutex);
  return static_cast<int32_t>(level) <= s.level;
}

void log_line(LogLevel level, std::string_view text) noexcept {
  Sink& s = sink();
  std::shared_lock lock(s.mutex);
  if (s.fn && static_cast<int32_t>(level) <= s.level)
    s.fn(s.user, static_cast<int32_t>(level), text.data(), text.size());
}

}  // namespace orlop
