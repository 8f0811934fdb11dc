#include "engine/request.h"

#include <algorithm>
#include <chrono>

namespace orlop {

int64_t monotonic_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Wake::attend(std::weak_ptr<Request> request) noexcept {
  {
    std::lock_guard lock(mutex);
    try {
      attention.push_back(std::move(request));
    } catch (const std::bad_alloc&) {
      look_at_all = true;
    }
  }
  changed.notify_one();
}

Request::Request(const std::vector<int32_t>& prompt, SamplingParams params,
                 const RequestSetup& setup, std::shared_ptr<Wake> wake,
                 std::shared_ptr<CompletionQueue> queue, uint64_t tag)
    : params_(std::move(params)),
      setup_(setup),
      prompt_tokens_(static_cast<int64_t>(prompt.size())),
      wake_(std::move(wake)),
      queue_(std::move(queue)) {
  node_.tag = tag;
  ready_.reserve(params_.n);
  samples_.reserve(params_.n);
  const int64_t now = monotonic_ns();
  for (uint32_t i = 0; i < params_.n; ++i) {
    samples_.push_back(std::make_unique<Sample>(*this, i, prompt));
    Sample& s = *samples_.back();
    s.arrived_ns = now;
    s.most_tokens =
        static_cast<int32_t>(std::min<int64_t>(s.prompt_tokens + params_.max_tokens, INT32_MAX));
    s.priority = params_.priority;
    s.identity = params_.cache_salt;
    s.shares = setup_.shares_prefixes;
    if (i) s.leader = samples_.front().get();
  }
  queued_ns_.store(now, std::memory_order_relaxed);
}

Request::~Request() {
  if (queue_) queue_->unlist(node_);
}

Status Request::get(int64_t timeout_us, const Output** out) {
  if (getting_.exchange(true, std::memory_order_acquire))
    fail(Status::busy, "another orlop_get of this request is under way");
  struct Done {
    std::atomic<bool>& flag;
    ~Done() { flag.store(false, std::memory_order_release); }
  } done{getting_};

  bool resumes;
  {
    std::unique_lock lock(mutex_);
    const auto all_taken = [&] { return delivered_ends_ == samples_.size(); };
    const auto ready = [&] { return !ready_.empty() || all_taken() || abandoned_; };
    if (timeout_us != 0) {
      if (wait_is_endless(timeout_us))
        arrived_.wait(lock, ready);
      else
        arrived_.wait_until(
            lock, std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us), ready);
    }
    if (abandoned_) fail(Status::cancelled, "the request was released");
    if (ready_.empty()) return all_taken() ? Status::end : Status::timeout;
    Sample& s = *ready_.front();
    ready_.erase(ready_.begin());
    s.ready_ = false;
    taken_.clear();
    std::swap(taken_, s.pending_);
    taken_.index = s.index_;
    if (taken_.finish != Finish::none) ++delivered_ends_;
    resumes = s.full_.exchange(false, std::memory_order_acq_rel);
    if (queue_) {
      queue_->unlist(node_);
      if (!ready_.empty()) queue_->list(node_);
    }
  }
  if (resumes) wake_->attend(weak_from_this());
  *out = &taken_;
  return Status::ok;
}

void Request::cancel() noexcept {
  if (!cancel_.exchange(true, std::memory_order_acq_rel)) wake_->attend(weak_from_this());
}

void Request::abandon() noexcept {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
    if (queue_) queue_->unlist(node_);
  }
  arrived_.notify_all();
  cancel();
}

Request::Info Request::info() const noexcept {
  Info i;
  // The end is stored in the order finish, error, state: a final state has its reason.
  i.state = state_.load(std::memory_order_acquire);
  i.finish = finish_.load(std::memory_order_acquire);
  i.error = error_.load(std::memory_order_acquire);
  i.prompt_tokens = static_cast<uint64_t>(prompt_tokens_);
  i.cached_tokens = cached_count_.load(std::memory_order_relaxed);
  i.generated_tokens = generated_count_.load(std::memory_order_relaxed);
  i.seed = params_.seed;
  i.samples = params_.n;
  i.queued_ns = queued_ns_.load(std::memory_order_relaxed);
  i.scheduled_ns = scheduled_ns_.load(std::memory_order_relaxed);
  i.first_token_ns = first_token_ns_.load(std::memory_order_relaxed);
  i.last_token_ns = last_token_ns_.load(std::memory_order_relaxed);
  return i;
}

void Request::mark_scheduled(int64_t now_ns, int32_t cached_tokens) noexcept {
  if (scheduled_ns_.load(std::memory_order_relaxed)) return;
  cached_count_.store(static_cast<uint64_t>(cached_tokens), std::memory_order_relaxed);
  scheduled_ns_.store(now_ns, std::memory_order_relaxed);
  state_.store(RequestState::running, std::memory_order_release);
}

void Request::show_token(int64_t now_ns) noexcept {
  generated_count_.fetch_add(1, std::memory_order_relaxed);
  if (!first_token_ns_.load(std::memory_order_relaxed))
    first_token_ns_.store(now_ns, std::memory_order_relaxed);
  last_token_ns_.store(now_ns, std::memory_order_relaxed);
}

void Request::show_end(Finish finish, Status error) noexcept {
  const Finish before = finish_.load(std::memory_order_relaxed);
  if (before != Finish::error && (before != Finish::cancelled || finish == Finish::error)) {
    finish_.store(finish, std::memory_order_release);
    error_.store(error, std::memory_order_release);
  }
  if (++ended_samples_ < samples_.size()) return;
  const Finish worst = finish_.load(std::memory_order_relaxed);
  state_.store(worst == Finish::cancelled ? RequestState::cancelled
               : worst == Finish::error   ? RequestState::failed
                                          : RequestState::done,
               std::memory_order_release);
}

void Request::hand_over(Sample& s) {
  if (!s.ready_) {
    s.ready_ = true;
    ready_.push_back(&s);  // reserved for all
  }
  if (queue_ && !abandoned_) queue_->list(node_);
}

}  // namespace orlop
