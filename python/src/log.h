// The library's log lines on their way to Python. The sink only queues: it may run on any thread, at
// any time, and never waits for the interpreter. A Python thread sleeps in log_take until there is
// a line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace orlop_py {

struct LogLine {
  int32_t level = 0;
  std::string text;
};

void log_start(int32_t level);
// Ends the flow; log_take drains what is queued and then answers nothing.
void log_stop();
// Waits for the next line; nothing when stopped and empty. Called without the interpreter's lock.
std::optional<LogLine> log_take() noexcept;

void log_before_fork();
void log_after_fork(bool in_child);

}  // namespace orlop_py
