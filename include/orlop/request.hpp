// request.hpp - a part of orlop.hpp: what a request gives, and the request.
#ifndef ORLOP_REQUEST_HPP
#define ORLOP_REQUEST_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "orlop/orlop.h"
#include "orlop/result.hpp"

namespace orlop {
inline namespace cpp1 {

class Engine;

// What is new since the last output of its request. Views and texts live until the next get() of
// that request, its next iteration step, or its end: copy what must outlive it.
class Output {
 public:
  Output() { raw_.struct_size = sizeof raw_; }
  // Whole code points. Lags behind tokens() while a character or a stop string is incomplete.
  std::string_view text() const noexcept { return view(raw_.text, raw_.text_len); }
  View<std::int32_t> tokens() const noexcept { return {raw_.tokens, raw_.n_tokens}; }
  // One for each token when asked for, else empty.
  View<float> logprobs() const noexcept {
    return {raw_.logprobs, raw_.logprobs ? raw_.n_tokens : 0};
  }
  // The best candidates at the place of token i, best first (ALL: by id); empty when not asked for.
  View<orlop_logprob> top_logprobs(std::size_t i) const noexcept {
    return row(raw_.top_logprobs, i, raw_.n_tokens, raw_.n_top);
  }
  // Of the prompt's tokens, each given those before it; entry 0 is 0. In one output of sample 0,
  // when asked for; else empty.
  View<float> prompt_logprobs() const noexcept { return {raw_.prompt_logprobs, raw_.n_prompt}; }
  // The best candidates at the place of prompt token i; the first row is all zero.
  View<orlop_logprob> prompt_top_logprobs(std::size_t i) const noexcept {
    return row(raw_.prompt_top_logprobs, i, raw_.n_prompt, raw_.n_prompt_top);
  }
  // Of the prompt, of length 1, in the last output when asked for, else empty.
  View<float> embedding() const noexcept { return {raw_.embedding, raw_.n_embedding}; }
  std::uint32_t index() const noexcept { return raw_.index; }  // which of the n samples
  // ORLOP_FINISH_NONE, or why this is the last output of its sample.
  std::int32_t finish_reason() const noexcept { return raw_.finish_reason; }
  bool last() const noexcept { return raw_.finish_reason != ORLOP_FINISH_NONE; }
  // With ORLOP_FINISH_ERROR: what happened; else code ORLOP_OK.
  Error error() const {
    return {raw_.error_code, std::string(view(raw_.message, raw_.message_len))};
  }
  // The token that ended it (the last of tokens(), not in the text), or -1.
  std::int32_t stop_token() const noexcept { return raw_.stop_token; }
  // The index of the stop string that ended it, or -1.
  std::int32_t stop_index() const noexcept { return raw_.stop_index; }
  // Every field, as in orlop.h.
  const orlop_output& raw() const noexcept { return raw_; }

 private:
  friend class Request;
  static std::string_view view(const char* p, std::uint64_t n) noexcept {
    return p ? std::string_view(p, static_cast<std::size_t>(n)) : std::string_view();
  }
  static View<orlop_logprob> row(const orlop_logprob* p, std::size_t i, std::uint64_t rows,
                                 std::uint64_t width) noexcept {
    return p && i < rows ? View<orlop_logprob>(p + i * width, width) : View<orlop_logprob>();
  }
  orlop_output raw_{};
};

// All that one sample of a request gave, owned.
struct Answer {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;   // [tokens] when asked for
  std::vector<float> embedding;  // when asked for
  std::int32_t finish_reason = ORLOP_FINISH_NONE;
  std::int32_t stop_token = -1, stop_index = -1;
  Error error;  // with ORLOP_FINISH_ERROR
};

enum class Got { output, timeout, end };

// A request under way. A range of Output, to be walked once:
//   for (const Output& out : request) …
// The walk ends after the last output. It also ends when getting fails; error() then says why.
class Request {
 public:
  Request() = default;
  explicit operator bool() const noexcept { return handle_ != nullptr; }

  // Waits for new output and puts it into `out`.
  Result<Got> get(Output& out, Microseconds timeout = forever) {
    detail::CError err;
    out.raw_ = {};
    out.raw_.struct_size = sizeof out.raw_;
    const std::int32_t status = orlop_get(handle_.get(), timeout.count(), &out.raw_, err.out());
    if (status < 0) return err.take(status);
    return status == ORLOP_OK ? Got::output : status == ORLOP_TIMEOUT ? Got::timeout : Got::end;
  }
  // Waits for the end and returns all text of sample 0 that was not taken yet.
  Result<std::string> read() {
    std::string text;
    Output out;
    for (;;) {
      const Result<Got> got = get(out);
      if (!got) return got.error();
      if (*got == Got::end) return text;
      if (out.index() == 0) text += out.text();
      if (out.finish_reason() == ORLOP_FINISH_ERROR) return out.error();
    }
  }
  // Waits for the end and returns what each sample gave and was not taken yet, by index: n of them.
  // A sample that failed says so in its Answer.
  Result<std::vector<Answer>> answers() {
    const Result<orlop_request_info> facts = info();
    if (!facts) return facts.error();
    std::vector<Answer> all(facts->samples);
    Output out;
    for (;;) {
      const Result<Got> got = get(out);
      if (!got) return got.error();
      if (*got == Got::end) return all;
      Answer& a = all[out.index()];
      a.text += out.text();
      a.tokens.insert(a.tokens.end(), out.tokens().begin(), out.tokens().end());
      a.logprobs.insert(a.logprobs.end(), out.logprobs().begin(), out.logprobs().end());
      if (!out.last()) continue;
      a.embedding.assign(out.embedding().begin(), out.embedding().end());
      a.finish_reason = out.finish_reason();
      a.stop_token = out.stop_token(), a.stop_index = out.stop_index();
      a.error = out.error();
    }
  }
  // Counts, state, seed and times; never waits.
  Result<orlop_request_info> info() const {
    detail::CError err;
    orlop_request_info info{};
    info.struct_size = sizeof info;
    const std::int32_t status = orlop_get_status(handle_.get(), &info, err.out());
    if (status < 0) return err.take(status);
    return info;
  }
  // Ends the request within one step; its last output says ORLOP_FINISH_CANCELLED.
  void cancel() const noexcept { orlop_cancel(handle_.get()); }
  // Cancels if unfinished and frees early; using it then answers ORLOP_E_INVALID_ARGUMENT. Once or
  // more. Not while another thread uses this object: that one wants cancel().
  void close() noexcept { handle_.reset(); }
  orlop_request* handle() const noexcept { return handle_.get(); }
  // After a walk: why getting failed, or the request itself (ORLOP_FINISH_ERROR); else code ORLOP_OK.
  const Error& error() const noexcept { return error_; }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Output;
    using difference_type = std::ptrdiff_t;
    using pointer = const Output*;
    using reference = const Output&;
    Iterator() = default;
    const Output& operator*() const noexcept { return request_->current_; }
    const Output* operator->() const noexcept { return &request_->current_; }
    Iterator& operator++() { return step(), *this; }
    void operator++(int) { step(); }
    bool operator==(const Iterator& o) const noexcept { return request_ == o.request_; }
    bool operator!=(const Iterator& o) const noexcept { return request_ != o.request_; }

   private:
    friend class Request;
    explicit Iterator(Request* request) : request_(request) { step(); }
    void step() {
      const Result<Got> got = request_->get(request_->current_);
      if (!got) request_->error_ = got.error();
      else if (*got == Got::output && request_->current_.finish_reason() == ORLOP_FINISH_ERROR)
        request_->error_ = request_->current_.error();
      if (!got || *got == Got::end) request_ = nullptr;
    }
    Request* request_ = nullptr;  // null: the end
  };
  // Takes the first output (waiting for it). Move the request only before or after a walk.
  Iterator begin() { return Iterator(this); }
  Iterator end() noexcept { return {}; }

 private:
  friend class Engine;
  explicit Request(orlop_request* raw) : handle_(raw) {}
  detail::Handle<orlop_request> handle_;
  Output current_;
  Error error_;
};

}  // namespace cpp1
}  // namespace orlop
#endif
