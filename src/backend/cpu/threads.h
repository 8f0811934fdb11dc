// The CPU backend's thread pool: one owner calls parallel(), `size() - 1` workers help. Workers
// block all signals, keep the host's affinity mask and floating-point environment, spin briefly
// between the regions of a step and sleep when there is nothing to do.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace orlop::cpu {

class ThreadPool {
 public:
  // threads >= 1. Error(out_of_memory) if they cannot be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const { return size_; }

  using Body = void (*)(const void* args, int64_t begin, int64_t end, int thread);
  // Splits [0, count) into at most size() contiguous ranges, rounded to `grain`, and runs body on
  // each; returns when all are done. Only one caller at a time.
  void run(Body body, const void* args, int64_t count, int64_t grain = 1);
  // As run, but threads take chunks of `grain` as they become free (uneven work).
  void run_dynamic(Body body, const void* args, int64_t count, int64_t grain = 1);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int size_;
};

// How many threads to use by default, and why, in words: affinity mask, cgroup v1/v2 CPU quota,
// physical cores (SMT siblings counted once).
struct ThreadChoice {
  int threads;
  std::string why;
};
ThreadChoice default_threads();

}  // namespace orlop::cpu
