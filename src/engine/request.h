// A request: its tokens and parameters, its state, and the queue of its output.
//
// The owner thread writes Sequence and everything under "owner thread"; the consumer side is safe
// from any thread. Output passes through one mutex, in two buffers whose memory is reused.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/completion.h"
#include "engine/params.h"
#include "engine/plan.h"
#include "text/stream.h"

namespace orlop {

enum class RequestState : int32_t { waiting, running, done, cancelled, failed };
enum class Finish : int32_t { none, stop, length, cancelled, error };

// Wakes the owner thread. Outlives the engine as long as a request knows it.
struct Wake {
  std::mutex mutex;
  std::condition_variable changed;
  bool poked = false;  // under mutex: something may be cancelled
  void poke() noexcept;
};

// What came since the last get.
struct Output {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;           // [tokens] if asked for
  std::vector<TokenLogprob> top;         // [tokens, n_top]
  std::vector<float> prompt_logprobs;    // [prompt]
  std::vector<TokenLogprob> prompt_top;  // [prompt, n_prompt_top]
  bool has_prompt_logprobs = false;
  Finish finish = Finish::none;
  Status error = Status::ok;
  std::string message;
  int32_t stop_token = -1, stop_index = -1;

  bool empty() const {
    return text.empty() && tokens.empty() && !has_prompt_logprobs && finish == Finish::none;
  }
  void clear();
  void append(Output& more);  // moves; `more` is left clear, its memory kept for reuse
};

class Request : public Sequence {
 public:
  // queue may be null. tokenizer may be null: then there is no text.
  Request(std::vector<int32_t> prompt, SamplingParams params, int32_t vocab,
          const Tokenizer* tokenizer, std::shared_ptr<Wake> wake,
          std::shared_ptr<CompletionQueue> queue, uint64_t tag);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const SamplingParams& params() const { return params_; }
  int32_t top_width() const { return width(params_.logprobs); }
  int32_t prompt_top_width() const { return width(params_.prompt_logprobs); }

  // ---- consumer side ----
  // ok: *out lives until the next get. timeout, end. Error(busy) if another get is inside,
  // Error(cancelled) once abandoned.
  Status get(int64_t timeout_us, const Output** out);
  void cancel() noexcept;
  // The handle is gone: cancels, wakes whoever waits, never notifies again.
  void abandon() noexcept;

  struct Info {
    RequestState state;
    Finish finish;
    Status error;
    uint64_t prompt_tokens, cached_tokens, generated_tokens, seed;
    int64_t queued_ns, scheduled_ns, first_token_ns, last_token_ns;
  };
  Info info() const noexcept;

  // ---- owner thread ----
  bool cancel_wanted() const noexcept { return cancel_.load(std::memory_order_acquire); }
  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
  bool ended() const { return staged_.finish != Finish::none; }
  // Tokens that may not be drawn next (min_tokens), or empty.
  const std::vector<int32_t>* forbidden() const;
  const std::vector<TokenCount>& counts() const { return counts_; }
  // The first prompt token whose logprob is still wanted (prompt length: none).
  int32_t unscored() const { return unscored_; }

  void mark_scheduled(int64_t now_ns) noexcept;
  void add_prompt_logprob(int32_t position, float logprob, const TokenLogprob* top);
  // Appends a drawn token and decides whether it ends the request.
  void add_token(int32_t token, float logprob, const TokenLogprob* top, int64_t now_ns);
  void end(Finish finish);
  void end_with_error(Status status, const std::string& message) noexcept;
  // Hands over what was staged. After a finished output nothing may be staged. If memory lacks it
  // throws, and may be called again.
  void publish();
  // The end alone, without what is staged: for when publish() has no memory.
  void publish_bare_end() noexcept;
  bool retired = false;  // engine: its end was published

 private:
  int32_t width(int32_t wanted) const {
    return wanted == logprobs_all ? vocab_ : wanted > 0 ? wanted : 0;
  }
  void count(int32_t token, bool in_prompt);
  void show_end(Finish finish, Status error) noexcept;

  const SamplingParams params_;
  const int32_t vocab_;
  const Tokenizer* const tokenizer_;
  const std::shared_ptr<Wake> wake_;
  const std::shared_ptr<CompletionQueue> queue_;

  // owner thread
  std::optional<TextStream> stream_;
  std::vector<TokenCount> counts_;
  std::unordered_map<int32_t, size_t> count_at_;
  int32_t unscored_ = 0;
  Output staged_;

  // shared
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Output pending_;              // under mutex_
  CompletionQueue::Node node_;  // under the queue's mutex
  bool delivered_end_ = false;  // under mutex_
  bool abandoned_ = false;      // under mutex_
  std::atomic<bool> getting_{false};
  Output taken_;  // the consumer's, between two gets

  std::atomic<bool> cancel_{false};
  std::atomic<RequestState> state_{RequestState::waiting};
  std::atomic<Finish> finish_{Finish::none};
  std::atomic<Status> error_{Status::ok};
  std::atomic<uint64_t> generated_count_{0};
  std::atomic<int64_t> queued_ns_{0}, scheduled_ns_{0}, first_token_ns_{0}, last_token_ns_{0};
};

int64_t monotonic_ns() noexcept;

}  // namespace orlop
