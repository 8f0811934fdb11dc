#include "log.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "orlop/orlop.h"

namespace orlop_py {
namespace {

constexpr size_t max_queued_lines = 4096;

struct State {
  std::mutex mutex;
  std::condition_variable* wake = new std::condition_variable;
  std::deque<LogLine> lines;
  uint64_t dropped = 0;
  bool running = false;
};
State& state() {  // never destroyed: engine threads may log while the process exits
  static State* const it = new State;
  return *it;
}

void sink(void*, int32_t level, const char* text, size_t len) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.running) return;
  if (s.lines.size() >= max_queued_lines) {
    ++s.dropped;
    return;
  }
  try {
    s.lines.push_back({level, std::string(text, len)});
  } catch (...) {
    ++s.dropped;
  }
  s.wake->notify_one();
}

}  // namespace

void log_start(int32_t level) {
  {
    const std::lock_guard lock(state().mutex);
    state().running = true;
  }
  orlop_log_set(sink, nullptr, level);
}

void log_stop() {
  orlop_log_set(nullptr, nullptr, 0);
  const std::lock_guard lock(state().mutex);
  state().running = false;
  state().wake->notify_all();
}

std::optional<LogLine> log_take() noexcept {
  State& s = state();
  std::unique_lock lock(s.mutex);
  s.wake->wait(lock, [&] { return !s.lines.empty() || !s.running; });
  if (s.lines.empty()) return std::nullopt;
  LogLine line = std::move(s.lines.front());
  s.lines.pop_front();
  if (s.lines.empty() && s.dropped != 0) {
    try {
      s.lines.push_back({ORLOP_LOG_WARNING, std::to_string(s.dropped) + " log lines were dropped"});
    } catch (...) {
    }
    s.dropped = 0;
  }
  return line;
}

void log_before_fork() { state().mutex.lock(); }
void log_after_fork(bool in_child) {
  if (in_child) {  // the parent's waiter does not exist here
    state().wake = new std::condition_variable;
    state().lines.clear();
    state().running = false;
  }
  state().mutex.unlock();
}

}  // namespace orlop_py
