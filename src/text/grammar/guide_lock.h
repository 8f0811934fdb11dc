// A lock for work of very different lengths: who does long work under it lets those go first who
// wait with short work.
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

namespace orlop {

class GuideLock {
 public:
  // Short work.
  void lock() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unlock() { mutex_.unlock(); }
  // Long work, which calls breathe() every few microseconds.
  void lock_long() { mutex_.lock(); }
  bool wanted() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  void breathe() {
    mutex_.unlock();
    // A waiter has to wake first; without the pause the lock would be taken back before.
    for (int i = 0; i < 256 && wanted(); ++i) std::this_thread::yield();
    mutex_.lock();
  }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

}  // namespace orlop
