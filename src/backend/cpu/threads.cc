// Fork-join over persistent workers. Each worker has a slot on its own cache line; the owner arms
// it with the region's number, the worker claims it, works and marks it done. A range whose worker
// has not woken yet is claimed by the owner itself, so that a sleeping or descheduled worker delays
// nothing. Regions of a step follow each other within microseconds: workers spin between them, then
// yield, then sleep on a futex.
#include "backend/cpu/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"

namespace orlop::cpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto spin_time = std::chrono::microseconds(30);   // pauses only
constexpr auto yield_time = std::chrono::microseconds(150);  // then gives its core to others

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Looks at a word pause after pause, later between yields; false once yield_time has passed.
class Backoff {
 public:
  template <class Arrived>
  bool wait(Arrived&& arrived) {
    for (int i = 0; i < 64; ++i) {
      if (arrived()) return true;
      pause();
    }
    const auto time = Clock::now();
    if (begin_ == Clock::time_point()) begin_ = time;
    if (time - begin_ > spin_time) sched_yield();
    return time - begin_ < yield_time;
  }

 private:
  Clock::time_point begin_;
};

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
          0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr,
          0);
}

// A slot's word: region number * 4 + state. Numbers wrap; only equality matters, and a worker can
// never be 2^30 regions behind, since a region ends only when its slots are claimed.
constexpr uint32_t armed = 0, claimed = 1, done = 2;

struct alignas(64) Slot {
  std::atomic<uint32_t> word{done};
  std::atomic<uint32_t> sleeping{0};
  int64_t begin = 0, end = 0;  // written before arming
};

struct Job {
  ThreadPool::Body body = nullptr;  // null: end the thread
  const void* args = nullptr;
  bool dynamic = false;
  int64_t count = 0, grain = 1;
};

}  // namespace

struct ThreadPool::Impl {
  alignas(64) Job job;
  alignas(64) std::atomic<int64_t> next{0};
  uint32_t region = 0;
  std::vector<Slot> slots;
  std::vector<std::thread> workers;

  explicit Impl(int threads) : slots(static_cast<size_t>(threads)) {}

  void work(const Slot& slot, int thread) {
    if (!job.dynamic) {
      job.body(job.args, slot.begin, slot.end, thread);
      return;
    }
    for (;;) {
      const int64_t b = next.fetch_add(job.grain, std::memory_order_relaxed);
      if (b >= job.count) return;
      job.body(job.args, b, std::min(b + job.grain, job.count), thread);
    }
  }

  void worker(int thread) {
    Slot& slot = slots[static_cast<size_t>(thread)];
    for (;;) {
      Backoff backoff;
      uint32_t word;
      const auto has_work = [&] {
        return ((word = slot.word.load(std::memory_order_acquire)) & 3) == armed;
      };
      while (!has_work()) {
        if (backoff.wait(has_work)) continue;
        // The owner stores the word, then reads `sleeping`; here the order is the other way round,
        // so one of the two sees the other. A word that changed makes futex_wait return at once.
        slot.sleeping.store(1, std::memory_order_seq_cst);
        word = slot.word.load(std::memory_order_seq_cst);
        if ((word & 3) != armed) futex_wait(slot.word, word);
        slot.sleeping.store(0, std::memory_order_relaxed);
      }
      if (!slot.word.compare_exchange_strong(word, word | claimed, std::memory_order_acq_rel))
        continue;  // the owner took it
      const bool end = job.body == nullptr;
      if (!end) work(slot, thread);
      slot.word.store((word & ~3u) | done, std::memory_order_release);
      if (end) return;
    }
  }

  // Arms slots [1, n), wakes those asleep.
  void arm(int n) {
    ++region;
    const uint32_t word = region * 4 + armed;
    for (int i = 1; i < n; ++i) {
      Slot& slot = slots[static_cast<size_t>(i)];
      slot.word.store(word, std::memory_order_seq_cst);
      if (slot.sleeping.load(std::memory_order_seq_cst)) futex_wake(slot.word);
    }
  }

  void run_region(int n) {
    arm(n);
    work(slots[0], 0);
    for (int i = 1; i < n; ++i) {  // take what nobody has begun
      Slot& slot = slots[static_cast<size_t>(i)];
      uint32_t word = region * 4 + armed;
      if (!slot.word.compare_exchange_strong(word, region * 4 + claimed,
                                             std::memory_order_acq_rel))
        continue;
      if (!job.dynamic) work(slot, 0);
      slot.word.store(region * 4 + done, std::memory_order_relaxed);
    }
    for (int i = 1; i < n; ++i) {
      Slot& slot = slots[static_cast<size_t>(i)];
      Backoff backoff;
      const auto is_done = [&] {
        return slot.word.load(std::memory_order_acquire) == region * 4 + done;
      };
      while (!is_done()) backoff.wait(is_done);
    }
  }

  void stop() {
    job = Job{};
    // Every worker must see the end itself.
    arm(static_cast<int>(workers.size()) + 1);
    for (std::thread& t : workers) t.join();
  }
};

ThreadPool::ThreadPool(int threads) : size_(std::max(1, threads)) {
  impl_ = std::make_unique<Impl>(size_);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits the mask
  std::string error;
  try {
    impl_->workers.reserve(static_cast<size_t>(size_ - 1));
    for (int i = 1; i < size_; ++i) {
      impl_->workers.emplace_back([impl = impl_.get(), i] { impl->worker(i); });
      const std::string thread_name = cat("orlop-", i);
      pthread_setname_np(impl_->workers.back().native_handle(), thread_name.c_str());
    }
  } catch (const std::exception& e) {
    error = e.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!error.empty()) {
    const size_t started = impl_->workers.size();
    impl_->stop();
    fail(Status::out_of_memory, "threads: ", started, " of ", size_ - 1,
         " workers started, then: ", error);
  }
}

ThreadPool::~ThreadPool() { impl_->stop(); }

void ThreadPool::run(Body body, const void* args, int64_t count, int64_t grain) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t pieces = (count + grain - 1) / grain;
  const int n = static_cast<int>(std::min<int64_t>(size_, pieces));
  if (n == 1) return body(args, 0, count, 0);
  impl_->job = {body, args, false, count, grain};
  for (int i = 0; i < n; ++i) {
    Slot& slot = impl_->slots[static_cast<size_t>(i)];
    slot.begin = pieces * i / n * grain;
    slot.end = std::min(count, pieces * (i + 1) / n * grain);
  }
  impl_->run_region(n);
}

void ThreadPool::run_dynamic(Body body, const void* args, int64_t count, int64_t grain) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t pieces = (count + grain - 1) / grain;
  const int n = static_cast<int>(std::min<int64_t>(size_, pieces));
  if (n == 1) return body(args, 0, count, 0);
  impl_->job = {body, args, true, count, grain};
  impl_->next.store(0, std::memory_order_relaxed);
  impl_->run_region(n);
}

}  // namespace orlop::cpu
