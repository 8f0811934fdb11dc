// The one piece of process-wide state: where log lines go. Silent until a sink is set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace orlop {

enum class LogLevel : int32_t { error = 1, warning = 2, info = 3, debug = 4 };
using LogFn = void (*)(void* user, int32_t level, const char* text, size_t len);

void log_set(LogFn fn, void* user, int32_t level) noexcept;
bool log_wanted(LogLevel level) noexcept;
void log_line(LogLevel level, std::string_view text) noexcept;

template <class... Parts>
void log_info(const Parts&... parts) {
  if (log_wanted(LogLevel::info)) log_line(LogLevel::info, cat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  if (log_wanted(LogLevel::warning)) log_line(LogLevel::warning, cat(parts...));
}

}  // namespace orlop
