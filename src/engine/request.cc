#include "engine/request.h"

#include <chrono>

namespace orlop {
namespace {
template <class T>
void append_move(T& to, T& from) {
  if (to.empty())
    to.swap(from);
  else
    to.insert(to.end(), from.begin(), from.end());
  from.clear();
}
}  // namespace

int64_t monotonic_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Wake::poke() noexcept {
  {
    std::lock_guard lock(mutex);
    poked = true;
  }
  changed.notify_one();
}

void Output::clear() {
  text.clear();
  tokens.clear();
  logprobs.clear();
  top.clear();
  prompt_logprobs.clear();
  prompt_top.clear();
  has_prompt_logprobs = false;
  finish = Finish::none;
  error = Status::ok;
  message.clear();
  stop_token = stop_index = -1;
}

void Output::append(Output& more) {
  append_move(text, more.text);
  append_move(tokens, more.tokens);
  append_move(logprobs, more.logprobs);
  append_move(top, more.top);
  if (more.has_prompt_logprobs) {
    prompt_logprobs.swap(more.prompt_logprobs);
    prompt_top.swap(more.prompt_top);
    has_prompt_logprobs = true;
  }
  if (more.finish != Finish::none) {
    finish = more.finish;
    error = more.error;
    message.swap(more.message);
    stop_token = more.stop_token;
    stop_index = more.stop_index;
  }
}

Request::Request(std::vector<int32_t> prompt, SamplingParams params, int32_t vocab,
                 const Tokenizer* tokenizer, std::shared_ptr<Wake> wake,
                 std::shared_ptr<CompletionQueue> queue, uint64_t tag)
    : params_(std::move(params)),
      vocab_(vocab),
      tokenizer_(tokenizer),
      wake_(std::move(wake)),
      queue_(std::move(queue)) {
  node_.tag = tag;
  tokens = std::move(prompt);
  prompt_tokens = static_cast<int32_t>(tokens.size());
  samples = params_.max_tokens > 0;
  if (tokenizer_) stream_.emplace(*tokenizer_, params_.stop, !params_.keep_special, true);
  if (params_.penalizes())
    for (const int32_t t : tokens) count(t, true);
  unscored_ = prompt_tokens;
  if (params_.prompt_logprobs != logprobs_off) {
    // Here, on the caller's thread, so that a lack of memory is the caller's error.
    const size_t n = tokens.size();
    staged_.prompt_logprobs.assign(n, 0.0f);
    staged_.prompt_top.assign(n * static_cast<size_t>(prompt_top_width()), TokenLogprob{0, 0});
    unscored_ = 1;  // nothing precedes token 0
    staged_.has_prompt_logprobs = unscored_ >= prompt_tokens;
  }
  queued_ns_.store(monotonic_ns(), std::memory_order_relaxed);
}

Request::~Request() {
  if (queue_) queue_->unlist(node_);
}

void Request::count(int32_t token, bool in_prompt) {
  const auto [at, fresh] = count_at_.try_emplace(token, counts_.size());
  if (fresh) counts_.push_back({token, 0, 0});
  TokenCount& c = counts_[at->second];
  if (in_prompt)
    c.in_prompt = 1;
  else
    ++c.generated;
}

Status Request::get(int64_t timeout_us, const Output** out) {
  if (getting_.exchange(true, std::memory_order_acquire))
    fail(Status::busy, "another orlop_get of this request is under way");
  struct Done {
    std::atomic<bool>& flag;
    ~Done() { flag.store(false, std::memory_order_release); }
  } done{getting_};

  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !pending_.empty() || delivered_end_ || abandoned_; };
  if (timeout_us != 0) {
    if (wait_is_endless(timeout_us))
      arrived_.wait(lock, ready);
    else
      arrived_.wait_until(
          lock, std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us), ready);
  }
  if (abandoned_) fail(Status::cancelled, "the request was released");
  if (delivered_end_) return Status::end;
  if (pending_.empty()) return Status::timeout;
  taken_.clear();
  std::swap(taken_, pending_);
  if (taken_.finish != Finish::none) delivered_end_ = true;
  if (queue_) queue_->unlist(node_);
  *out = &taken_;
  return Status::ok;
}

void Request::cancel() noexcept {
  if (!cancel_.exchange(true, std::memory_order_acq_rel)) wake_->poke();
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
  i.prompt_tokens = static_cast<uint64_t>(prompt_tokens);
  i.cached_tokens = 0;
  i.generated_tokens = generated_count_.load(std::memory_order_relaxed);
  i.seed = params_.seed;
  i.queued_ns = queued_ns_.load(std::memory_order_relaxed);
  i.scheduled_ns = scheduled_ns_.load(std::memory_order_relaxed);
  i.first_token_ns = first_token_ns_.load(std::memory_order_relaxed);
  i.last_token_ns = last_token_ns_.load(std::memory_order_relaxed);
  return i;
}

const std::vector<int32_t>* Request::forbidden() const {
  return generated() < params_.min_tokens && !params_.end_tokens.empty() ? &params_.end_tokens
                                                                         : nullptr;
}

void Request::mark_scheduled(int64_t now_ns) noexcept {
  if (scheduled_ns_.load(std::memory_order_relaxed)) return;
  scheduled_ns_.store(now_ns, std::memory_order_relaxed);
  state_.store(RequestState::running, std::memory_order_release);
}

void Request::add_prompt_logprob(int32_t position, float logprob, const TokenLogprob* top) {
  const size_t at = static_cast<size_t>(position), n = static_cast<size_t>(prompt_top_width());
  staged_.prompt_logprobs[at] = logprob;
  std::copy(top, top + n, staged_.prompt_top.begin() + static_cast<ptrdiff_t>(at * n));
  unscored_ = position + 1;
  if (unscored_ == prompt_tokens) staged_.has_prompt_logprobs = true;
}

void Request::add_token(int32_t token, float logprob, const TokenLogprob* top, int64_t now_ns) {
  const bool held = generated() < params_.min_tokens;
  tokens.push_back(token);
  staged_.tokens.push_back(token);
  if (params_.logprobs != logprobs_off) {
    staged_.logprobs.push_back(logprob);
    staged_.top.insert(staged_.top.end(), top, top + top_width());
  }
  if (params_.penalizes()) count(token, false);
  generated_count_.fetch_add(1, std::memory_order_relaxed);
  if (!first_token_ns_.load(std::memory_order_relaxed))
    first_token_ns_.store(now_ns, std::memory_order_relaxed);
  last_token_ns_.store(now_ns, std::memory_order_relaxed);

  const bool known = tokenizer_ && token < tokenizer_->vocab_size();
  if (!held && params_.ends_at(token)) {
    staged_.stop_token = token;
    // What ends the text is not part of it, unless control tokens are to be seen.
    if (known && params_.keep_special && tokenizer_->is_special(token))
      stream_->push_unstopped(token, staged_.text);
    end(Finish::stop);
    return;
  }
  if (known) {
    if (held) {
      stream_->push_unstopped(token, staged_.text);
    } else if (const int stop = stream_->push(token, staged_.text); stop >= 0) {
      staged_.stop_index = stop;
      end(Finish::stop);
      return;
    }
  }
  if (generated() >= params_.max_tokens) end(Finish::length);
}

void Request::end(Finish finish) {
  if (ended()) return;
  if (stream_ && staged_.stop_index < 0) stream_->finish(staged_.text);
  staged_.finish = finish;
}

void Request::end_with_error(Status status, const std::string& message) noexcept {
  if (ended()) return;
  staged_.finish = Finish::error;
  staged_.error = status;
  try {
    staged_.message = message;
  } catch (const std::bad_alloc&) {
    staged_.message.clear();
  }
}

void Request::show_end(Finish finish, Status error) noexcept {
  finish_.store(finish, std::memory_order_release);
  error_.store(error, std::memory_order_release);
  state_.store(finish == Finish::cancelled ? RequestState::cancelled
               : finish == Finish::error   ? RequestState::failed
                                           : RequestState::done,
               std::memory_order_release);
}

void Request::publish_bare_end() noexcept {
  staged_.finish = Finish::error;
  show_end(Finish::error, Status::out_of_memory);
  {
    std::lock_guard lock(mutex_);
    pending_.finish = Finish::error;
    pending_.error = Status::out_of_memory;
    pending_.message.clear();
    if (queue_ && !abandoned_) queue_->list(node_);
  }
  arrived_.notify_one();
}

void Request::publish() {
  // Prompt logprobs wait until they are complete.
  if (staged_.text.empty() && staged_.tokens.empty() && !staged_.has_prompt_logprobs &&
      staged_.finish == Finish::none)
    return;
  if (staged_.finish != Finish::none) show_end(staged_.finish, staged_.error);
  {
    std::lock_guard lock(mutex_);
    pending_.append(staged_);
    if (queue_ && !abandoned_) queue_->list(node_);
  }
  arrived_.notify_one();
  staged_.has_prompt_logprobs = false;
  // `finish` stays: ended() is what the owner asks.
}

}  // namespace orlop
