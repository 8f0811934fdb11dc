// A request: its parameters, its samples, its state, and where its output is taken. The consumer
// side is safe from any thread; output passes through one mutex, in two buffers whose memory is
// reused.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/completion.h"
#include "engine/params.h"
#include "engine/sample.h"

namespace orlop {

class Request;

enum class RequestState : int32_t { waiting, running, done, cancelled, failed };

// Wakes the owner thread. Outlives the engine as long as a request knows it.
struct Wake {
  std::mutex mutex;
  std::condition_variable changed;
  // Under mutex: requests that were cancelled or read again. look_at_all: memory lacked to list one.
  std::vector<std::weak_ptr<Request>> attention;
  bool look_at_all = false;
  void attend(std::weak_ptr<Request> request) noexcept;
};

// What a request must know of its engine.
struct RequestSetup {
  int32_t vocab = 0;
  const Tokenizer* tokenizer = nullptr;  // null: there is no text
  size_t output_bytes = size_t{1} << 20; // output not yet taken, all samples; more pauses
  bool shares_prefixes = true;
};

class Request : public std::enable_shared_from_this<Request> {
 public:
  // queue may be null.
  Request(const std::vector<int32_t>& prompt, SamplingParams params, const RequestSetup& setup,
          std::shared_ptr<Wake> wake, std::shared_ptr<CompletionQueue> queue, uint64_t tag);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const SamplingParams& params() const { return params_; }
  int32_t top_width() const { return width(params_.logprobs); }
  int32_t prompt_top_width() const { return width(params_.prompt_logprobs); }
  int64_t prompt_tokens() const { return prompt_tokens_; }

  // ---- consumer side ----
  // ok: *out lives until the next get. timeout, end. Error(busy) if another get is inside,
  // Error(cancelled) once abandoned.
  Status get(int64_t timeout_us, const Output** out);
  void cancel() noexcept;
  // The handle is gone: cancels, wakes whoever waits, never notifies again.
  void abandon() noexcept;

  struct Info {
    RequestState state;
    Finish finish;  // of n samples the worst: error, cancelled, then the last one's
    Status error;
    uint64_t prompt_tokens, cached_tokens, generated_tokens, seed, samples;
    int64_t queued_ns, scheduled_ns, first_token_ns, last_token_ns;
  };
  Info info() const noexcept;

  // ---- owner thread ----
  bool cancel_wanted() const noexcept { return cancel_.load(std::memory_order_acquire); }
  std::vector<std::unique_ptr<Sample>>& samples() { return samples_; }
  bool ended() const { return ended_samples_ == samples_.size(); }
  void mark_scheduled(int64_t now_ns, int32_t cached_tokens) noexcept;
  size_t live_at = 0;  // engine: its place in the list of requests

 private:
  friend class Sample;
  int32_t width(int32_t wanted) const {
    return wanted == logprobs_all ? setup_.vocab : wanted > 0 ? wanted : 0;
  }
  void show_token(int64_t now_ns) noexcept;
  void show_end(Finish finish, Status error) noexcept;
  void hand_over(Sample& sample);  // under mutex_: the sample has output

  const SamplingParams params_;
  const RequestSetup setup_;
  const int64_t prompt_tokens_;
  const std::shared_ptr<Wake> wake_;
  const std::shared_ptr<CompletionQueue> queue_;
  std::vector<std::unique_ptr<Sample>> samples_;
  size_t ended_samples_ = 0;  // owner thread

  // shared
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Sample*> ready_;  // under mutex_: samples with output, the oldest first
  size_t delivered_ends_ = 0;   // under mutex_
  bool abandoned_ = false;      // under mutex_
  CompletionQueue::Node node_;  // under the queue's mutex
  std::atomic<bool> getting_{false};
  Output taken_;  // the consumer's, between two gets

  std::atomic<bool> cancel_{false};
  std::atomic<RequestState> state_{RequestState::waiting};
  std::atomic<Finish> finish_{Finish::none};
  std::atomic<Status> error_{Status::ok};
  std::atomic<uint64_t> generated_count_{0}, cached_count_{0};
  std::atomic<int64_t> queued_ns_{0}, scheduled_ns_{0}, first_token_ns_{0}, last_token_ns_{0};
};

int64_t monotonic_ns() noexcept;

}  // namespace orlop
