#include "engine/completion.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace orlop {

bool wait_is_endless(int64_t timeout_us) noexcept {
  return timeout_us < 0 || timeout_us > int64_t{1'000'000} * 3600 * 24 * 365;
}

CompletionQueue::CompletionQueue() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) fail(Status::io, "queue: eventfd: ", std::strerror(errno));
}

CompletionQueue::~CompletionQueue() {
  ::close(fd_);
}

void CompletionQueue::set_readable(bool on) noexcept {
  uint64_t value = 1;
  // Neither can block: the counter is 0 or 1 and the descriptor is non-blocking.
  [[maybe_unused]] const ssize_t n =
      on ? ::write(fd_, &value, sizeof value) : ::read(fd_, &value, sizeof value);
}

void CompletionQueue::list(Node& node) noexcept {
  std::lock_guard lock(mutex_);
  if (node.listed || closed_) return;
  node.listed = true;
  node.prev = last_;
  node.next = nullptr;
  (last_ ? last_->next : first_) = &node;
  last_ = &node;
  if (first_ == &node) set_readable(true);
  filled_.notify_one();
}

void CompletionQueue::unlink(Node& node) noexcept {
  (node.prev ? node.prev->next : first_) = node.next;
  (node.next ? node.next->prev : last_) = node.prev;
  node.prev = node.next = nullptr;
  node.listed = false;
  if (!first_) set_readable(false);
}

void CompletionQueue::unlist(Node& node) noexcept {
  std::lock_guard lock(mutex_);
  if (node.listed) unlink(node);
}

CompletionQueue::Wait CompletionQueue::wait(int64_t timeout_us, uint64_t* tag) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return first_ || closed_; };
  if (timeout_us != 0) {
    if (wait_is_endless(timeout_us))
      filled_.wait(lock, ready);
    else
      filled_.wait_until(
          lock, std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us), ready);
  }
  if (closed_) return Wait::closed;
  if (!first_) return Wait::timeout;
  *tag = first_->tag;
  unlink(*first_);
  if (first_) filled_.notify_one();  // another waiter may have slept through its own notice
  return Wait::ok;
}

void CompletionQueue::close() noexcept {
  std::lock_guard lock(mutex_);
  closed_ = true;
  while (first_) unlink(*first_);
  filled_.notify_all();
}

}  // namespace orlop
