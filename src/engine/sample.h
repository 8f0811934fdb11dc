// One of the n samples of a request: its tokens, text and counts. The owner thread's, but for the
// pending output, which the request's mutex guards.
#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/output.h"
#include "engine/params.h"
#include "engine/plan.h"
#include "text/stream.h"

namespace orlop {

class Request;

class Sample : public Sequence {
 public:
  Sample(Request& request, uint32_t index, const std::vector<int32_t>& prompt);
  ~Sample();
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  Request& request() const { return request_; }
  const SamplingParams& params() const;
  uint64_t seed() const;
  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
  bool ended() const { return staged_.finish != Finish::none; }
  int32_t top_width() const;
  int32_t prompt_top_width() const;
  // How many logprobs of prompt tokens are wanted, as in SampleRow.
  int32_t prompt_logprobs() const;
  // The first prompt token whose logprob is still wanted (prompt length: none).
  int32_t unscored() const { return unscored_; }
  // Tokens that may not be drawn after so many drawn ones (min_tokens), or null.
  const std::vector<int32_t>* forbidden(int64_t drawn) const;
  const std::vector<TokenCount>& counts() const { return counts_; }
  // Tokens that the guide allows next, as make_mask() last found them; null without a guide.
  const uint32_t* mask() const { return mask_.empty() ? nullptr : mask_.data(); }
  // Why there is none: Status::ok when there is.
  Status mask_error() const { return mask_error_; }
  const std::string& mask_message() const { return mask_message_; }
  // From any thread, while no token is added.
  void make_mask() noexcept;
  // Whether hidden states of prompt positions from unpooled() on are wanted.
  bool pools() const { return unpooled_ < prompt_tokens; }
  int32_t unpooled() const { return unpooled_; }

  void add_prompt_logprob(int32_t position, float logprob, const TokenLogprob* top);
  // Hidden states [dim] of a prompt position, in order of positions: sums stay the same however the
  // prompt was cut.
  void pool(int32_t position, std::span<const float> hidden);
  // Appends a drawn token and decides whether it ends the sample.
  void add_token(int32_t token, float logprob, const TokenLogprob* top, int64_t now_ns);
  void end(Finish finish);
  void end_with_error(Status status, const std::string& message) noexcept;
  // Hands over what was staged; pauses if the consumer leaves too much lying. After a finished
  // output nothing may be staged. If memory lacks it throws, and may be called again.
  void publish();
  // The end alone, without what is staged: for when publish() has no memory.
  void publish_bare_end() noexcept;
  // The consumer has taken enough to go on.
  bool may_resume() const { return paused && !full_.load(std::memory_order_acquire); }

  bool scheduled = false;  // engine: a step has held it
  bool retired = false;    // engine: its end was published
  int32_t kept_row = 0;    // runner: of the last step that drew for it, among the rows whose logits it kept

 private:
  friend class Request;
  bool follow_guide(int32_t token);
  void count(int32_t token, bool in_prompt);

  Request& request_;
  const uint32_t index_;
  std::optional<TextStream> stream_;
  std::vector<TokenCount> counts_;
  std::unordered_map<int32_t, size_t> count_at_;
  int32_t unscored_ = 0;
  int32_t unpooled_ = std::numeric_limits<int32_t>::max();
  std::vector<double> pooled_;  // [dim]
  std::vector<uint32_t> mask_;  // [vocab bits], with a guide
  Guide::State guide_state_;
  Status mask_error_ = Status::ok;
  std::string mask_message_;
  Output staged_;

  // under the request's mutex
  Output pending_;
  bool ready_ = false;  // in the request's list of samples with output
  std::atomic<bool> full_{false};
};

}  // namespace orlop
