#include "engine/sample.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "engine/request.h"

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

size_t Output::bytes() const {
  return text.size() + message.size() + tokens.size() * sizeof(int32_t) +
         (logprobs.size() + prompt_logprobs.size()) * sizeof(float) +
         (top.size() + prompt_top.size()) * sizeof(TokenLogprob) + embedding.size() * sizeof(float);
}

void Output::clear() {
  text.clear();
  tokens.clear();
  logprobs.clear();
  top.clear();
  prompt_logprobs.clear();
  prompt_top.clear();
  has_prompt_logprobs = false;
  embedding.clear();
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
  append_move(embedding, more.embedding);
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

Sample::Sample(Request& request, uint32_t index, const std::vector<int32_t>& prompt)
    : request_(request), index_(index) {
  const SamplingParams& p = params();
  tokens = prompt;
  prompt_tokens = static_cast<int32_t>(tokens.size());
  samples = p.max_tokens > 0;
  if (request_.setup_.tokenizer)
    stream_.emplace(*request_.setup_.tokenizer, p.stop, !p.keep_special, true);
  if (p.penalizes())
    for (const int32_t t : tokens) count(t, true);
  unscored_ = prompt_tokens;
  if (prompt_logprobs() != logprobs_off) {
    // Here, on the caller's thread, so that a lack of memory is the caller's error.
    const size_t n = tokens.size();
    staged_.prompt_logprobs.assign(n, 0.0f);
    staged_.prompt_top.assign(n * static_cast<size_t>(prompt_top_width()), TokenLogprob{0, 0});
    unscored_ = 1;  // nothing precedes token 0
    staged_.has_prompt_logprobs = unscored_ >= prompt_tokens;
    if (unscored_ < prompt_tokens) logits_from = 0;
  }
  if (p.embedding != Embedding::none) unpooled_ = p.embedding == Embedding::mean ? 0 : prompt_tokens - 1;
  if (pools()) logits_from = unpooled_;
  if (p.guide) {
    mask_.resize(static_cast<size_t>((request_.setup_.vocab + 31) / 32));
    guide_state_ = p.guide->start();
  }
}

Sample::~Sample() {
  if (params().guide) params().guide->release(guide_state_);
}

void Sample::make_mask() noexcept {
  try {
    params().guide->mask(guide_state_, mask_.data());
    return;
  } catch (const Error& e) {  // the automaton became too large
    mask_error_ = e.status();
    try {
      mask_message_ = e.text();
    } catch (const std::bad_alloc&) {
    }
  } catch (...) {
    mask_error_ = Status::out_of_memory;
  }
  std::fill(mask_.begin(), mask_.end(), 0u);  // what is drawn then is not looked at
}

// Takes a drawn token; false: that ended the sample.
bool Sample::follow_guide(int32_t token) {
  try {
    if (params().guide->push(guide_state_, token)) return true;
    end_with_error(Status::internal, cat("guide: token ", token, " was drawn though it may not come"));
  } catch (const Error& e) {
    end_with_error(e.status(), e.text());
  }
  return false;
}

void Sample::pool(int32_t position, std::span<const float> hidden) {
  if (!pooled_.size()) pooled_.assign(hidden.size(), 0.0);
  for (size_t i = 0; i < hidden.size(); ++i) pooled_[i] += static_cast<double>(hidden[i]);
  unpooled_ = logits_from = position + 1;
  if (pools()) return;
  logits_from = std::numeric_limits<int32_t>::max();
  double sum = 0;
  for (const double v : pooled_) sum += v * v;
  if (!std::isfinite(sum)) {
    end_with_error(Status::internal, "embedding: the model's hidden states are no numbers");
    return;
  }
  // Of length 1, so the mean's divisor makes no difference.
  const double inverse = sum > 0 ? 1.0 / std::sqrt(sum) : 0.0;
  staged_.embedding.resize(pooled_.size());
  for (size_t i = 0; i < pooled_.size(); ++i) staged_.embedding[i] = static_cast<float>(pooled_[i] * inverse);
}

const SamplingParams& Sample::params() const {
  return request_.params_;
}

uint64_t Sample::seed() const {
  return params().seed + index_;
}

int32_t Sample::top_width() const {
  return request_.top_width();
}

int32_t Sample::prompt_top_width() const {
  return request_.prompt_top_width();
}

// The prompt is the same for all samples: the first one speaks of it.
int32_t Sample::prompt_logprobs() const {
  return index_ == 0 ? params().prompt_logprobs : logprobs_off;
}

void Sample::count(int32_t token, bool in_prompt) {
  const auto [at, fresh] = count_at_.try_emplace(token, counts_.size());
  if (fresh) counts_.push_back({token, 0, 0});
  TokenCount& c = counts_[at->second];
  if (in_prompt)
    c.in_prompt = 1;
  else
    ++c.generated;
}

const std::vector<int32_t>* Sample::forbidden(int64_t drawn) const {
  const SamplingParams& p = params();
  return drawn < p.min_tokens && !p.end_tokens.empty() ? &p.end_tokens : nullptr;
}

void Sample::add_prompt_logprob(int32_t position, float logprob, const TokenLogprob* top) {
  const size_t at = static_cast<size_t>(position), n = static_cast<size_t>(prompt_top_width());
  staged_.prompt_logprobs[at] = logprob;
  std::copy(top, top + n, staged_.prompt_top.begin() + static_cast<ptrdiff_t>(at * n));
  unscored_ = position + 1;
  logits_from = position;
  if (unscored_ < prompt_tokens) return;
  logits_from = std::numeric_limits<int32_t>::max();
  staged_.has_prompt_logprobs = true;
}

void Sample::add_token(int32_t token, float logprob, const TokenLogprob* top, int64_t now_ns) {
  const SamplingParams& p = params();
  const Tokenizer* tokenizer = request_.setup_.tokenizer;
  const bool held = generated() < p.min_tokens;
  tokens.push_back(token);
  staged_.tokens.push_back(token);
  if (p.logprobs != logprobs_off) {
    staged_.logprobs.push_back(logprob);
    staged_.top.insert(staged_.top.end(), top, top + top_width());
  }
  if (p.penalizes()) count(token, false);
  request_.show_token(now_ns);
  if (p.guide && !follow_guide(token)) return;

  const bool known = tokenizer && token < tokenizer->vocab_size();
  if (!held && p.ends_at(token)) {
    staged_.stop_token = token;
    // What ends the text is not part of it, unless control tokens are to be seen.
    if (known && p.keep_special && tokenizer->is_special(token))
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
  if (p.guide && p.guide->exhausted(guide_state_)) {
    end(Finish::stop);
    return;
  }
  if (generated() >= p.max_tokens) end(Finish::length);
}

void Sample::end(Finish finish) {
  if (ended()) return;
  if (stream_ && staged_.stop_index < 0) stream_->finish(staged_.text);
  staged_.finish = finish;
}

void Sample::end_with_error(Status status, const std::string& message) noexcept {
  if (ended()) return;
  staged_.finish = Finish::error;
  staged_.error = status;
  try {
    staged_.message = message;
  } catch (const std::bad_alloc&) {
    staged_.message.clear();
  }
}

void Sample::publish_bare_end() noexcept {
  staged_.finish = Finish::error;
  {
    std::lock_guard lock(request_.mutex_);
    pending_.finish = Finish::error;
    pending_.error = Status::out_of_memory;
    pending_.message.clear();
    request_.show_end(Finish::error, Status::out_of_memory);
    request_.hand_over(*this);
  }
  request_.arrived_.notify_one();
}

void Sample::publish() {
  // Prompt logprobs wait until they are complete.
  if (staged_.empty()) return;
  const Finish finish = staged_.finish;
  {
    std::lock_guard lock(request_.mutex_);
    pending_.append(staged_);
    if (finish != Finish::none) {
      request_.show_end(finish, pending_.error);
    } else if (pending_.bytes() * request_.samples_.size() >= request_.setup_.output_bytes) {
      paused = true;
      full_.store(true, std::memory_order_release);
    }
    request_.hand_over(*this);
  }
  request_.arrived_.notify_one();
  staged_.has_prompt_logprobs = false;
  // `finish` stays: ended() is what the owner asks.
}

}  // namespace orlop
