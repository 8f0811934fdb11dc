// A completion queue: requests with new output, for one waiter or an event loop. Intrusive, so that
// listing a request allocates nothing and a request that is taken or released leaves the list.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace orlop {

class CompletionQueue {
 public:
  struct Node {
    uint64_t tag = 0;
    Node* prev = nullptr;
    Node* next = nullptr;
    bool listed = false;
  };

  CompletionQueue();  // Error(io) if the system gives no descriptor
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  void list(Node& node) noexcept;    // at the end, unless listed
  void unlist(Node& node) noexcept;  // if listed
  // Takes the first tag; waits up to timeout_us (0: not, negative: for ever).
  enum class Wait { ok, timeout, closed };
  Wait wait(int64_t timeout_us, uint64_t* tag);
  void close() noexcept;  // wakes every waiter; nothing is listed any more
  int fd() const noexcept { return fd_; }

 private:
  void unlink(Node& node) noexcept;
  void set_readable(bool on) noexcept;

  std::mutex mutex_;
  std::condition_variable filled_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  bool closed_ = false;
  int fd_ = -1;
};

// When a wait of timeout_us from now ends. Waits are on CLOCK_MONOTONIC.
bool wait_is_endless(int64_t timeout_us) noexcept;

}  // namespace orlop
