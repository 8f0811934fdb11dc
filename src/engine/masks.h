// Masks of guided samples, made on a thread of their own while the forward pass runs.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/sample.h"

namespace orlop {

class MaskMaker {
 public:
  MaskMaker() = default;
  ~MaskMaker();
  // Both from the owner thread. Between them nobody touches the samples, so a finish() must follow
  // whatever happens. It makes the masks that the thread has not begun and waits for the rest; it
  // may be called twice.
  void start(const std::vector<Sample*>& samples);
  void finish();

 private:
  void loop();
  void work(std::unique_lock<std::mutex>& lock);  // takes samples until there are none

  std::mutex mutex_;
  std::condition_variable more_, done_;
  std::vector<Sample*> samples_;  // the rest under mutex_
  size_t next_ = 0;               // the first that nobody has taken
  size_t unmade_ = 0;
  bool stop_ = false;
  std::thread thread_;  // the owner's; from the first sample on
};

}  // namespace orlop
