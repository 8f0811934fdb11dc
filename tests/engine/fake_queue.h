// What a device that works on its own does with what it is called for: in order, on a thread of its own.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace orlop::test {

class FakeQueue {
 public:
  ~FakeQueue() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void push(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    work_.push_back(std::move(work));
    ++pushed_;
    changed_.notify_all();
  }
  uint64_t pushed() const { return pushed_; }  // by the one thread that pushes
  // Until the first `count` that were pushed are done; throws what one of them threw.
  void drain(uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) error_ = error;
      ++done_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t pushed_ = 0, done_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace orlop::test
