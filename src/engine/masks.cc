#include "engine/masks.h"

#include <csignal>

namespace orlop {

MaskMaker::~MaskMaker() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  thread_.join();
}

void MaskMaker::start(const std::vector<Sample*>& samples) {
  if (samples.empty()) return;
  if (!thread_.joinable()) {
    sigset_t all, before;  // signals stay with the host's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { loop(); });
    } catch (...) {
      // Without a thread finish() makes the masks.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  {
    std::lock_guard lock(mutex_);
    samples_ = samples;
    next_ = 0;
    unmade_ = samples.size();
  }
  more_.notify_one();
}

void MaskMaker::finish() {
  std::unique_lock lock(mutex_);
  work(lock);
  done_.wait(lock, [&] { return unmade_ == 0; });
  samples_.clear();
  next_ = 0;
}

void MaskMaker::work(std::unique_lock<std::mutex>& lock) {
  while (next_ < samples_.size()) {
    Sample* const s = samples_[next_++];
    lock.unlock();
    s->make_mask();
    lock.lock();
    if (--unmade_ == 0) done_.notify_all();
  }
}

void MaskMaker::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [&] { return stop_ || next_ < samples_.size(); });
    if (stop_) return;
    work(lock);
  }
}

}  // namespace orlop
