// orlop.hpp - orlop for C++17: owning handles over orlop.h, and nothing but the standard library.
//
//   auto engine = orlop::Engine::open("model.gguf").value();
//   auto request = engine.generate(orlop::Params::chat("Why is the sky blue?")).value();
//   for (const orlop::Output& out : request) std::cout << out.text() << std::flush;
//
// Errors. A call that can fail returns a Result: look at it (`if (!r) use(r.error())`, then `*r`),
// or take r.value(), which throws orlop::Exception. Built with -fno-exceptions everything works but
// value(), which is then not declared. Nothing else here throws, save std::bad_alloc.
// Ownership. Handles are move-only and release themselves, in any order. A moved-from or
// default-made handle may only be destroyed, assigned to and tested with `if (handle)`.
// Threads. As in orlop.h: an Engine from any number of threads; a Request by one consumer at a
// time, its cancel() and info() from any thread.
#ifndef ORLOP_ORLOP_HPP
#define ORLOP_ORLOP_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orlop/orlop.h"
#include "orlop/result.hpp"

namespace orlop {
inline namespace cpp1 {

// `text` as a JSON string, quotes included: for building engine configurations and messages.
inline std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(u));
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

// How far a text follows a guide (ORLOP_GUIDE_): how many of its first bytes can begin such a text, and
// whether all of them are one. Needs no engine.
struct GuideCheck {
  std::uint64_t accepted = 0;
  bool complete = false;
};
inline Result<GuideCheck> guide_check(std::int32_t guide, std::string_view source,
                                      std::string_view text) {
  detail::CError err;
  GuideCheck out;
  std::int32_t complete = 0;
  const std::int32_t status =
      orlop_guide_check(guide, source.data(), source.size(), text.data(), text.size(),
                        &out.accepted, &complete, err.out());
  if (status < 0) return err.take(status);
  out.complete = complete != 0;
  return out;
}

class Engine;

// What a state is saved from, and under which secret (orlop_state_params).
struct StateParams {
  // Saving: exactly one of the three is given. Loading: none.
  std::optional<std::string> text;
  std::optional<std::vector<std::int32_t>> tokens;
  std::optional<std::string> messages;
  std::string cache_salt;
  std::string key;   // 16 to 1024 bytes: signs the state, or must have signed it
  std::string path;  // a file instead of bytes
  std::uint32_t flags = 0;
  Microseconds deadline{0};
};

// One waiter for any number of requests: name it in Params::queue, with a tag for each request.
class Queue {
 public:
  Queue() = default;
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // The tag of a request with new output; nothing when the timeout passed.
  Result<std::optional<std::uint64_t>> wait(Microseconds timeout = forever) {
    detail::CError err;
    std::uint64_t tag = 0;
    const std::int32_t status = orlop_queue_wait(handle_.get(), timeout.count(), &tag, err.out());
    if (status < 0) return err.take(status);
    return status == ORLOP_OK ? std::optional<std::uint64_t>(tag) : std::nullopt;
  }
  // Readable while the queue is not empty (poll, epoll). The queue owns it; do not read from it.
  int fd() const noexcept { return orlop_queue_fd(handle_.get()); }
  orlop_queue* get() const noexcept { return handle_.get(); }

 private:
  friend class Engine;
  explicit Queue(orlop_queue* raw) : handle_(raw) {}
  detail::Handle<orlop_queue> handle_;
};

// What to generate from and how. What is left unset takes the model's generation_config, else the
// engine's default; ranges and meanings are those of orlop_generate_params.
struct Params {
  // The prompt: exactly one of the three is given.
  std::optional<std::string> text;
  std::optional<std::vector<std::int32_t>> tokens;
  std::optional<std::string> messages;  // JSON: [{"role": …, "content": …}, …]

  std::optional<std::uint32_t> max_tokens, min_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::int32_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint64_t> seed;  // else the engine draws one; Request::info() tells it
  std::vector<orlop_logit_bias> logit_bias;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_tokens;
  std::int32_t logprobs = ORLOP_LOGPROBS_OFF;
  std::int32_t prompt_logprobs = ORLOP_LOGPROBS_OFF;
  std::uint32_t n = 1;           // samples of the prompt; Output::index() tells them apart
  std::string cache_salt;        // prefixes are shared within equal salts only
  Microseconds deadline{0};      // from submission; 0: none
  std::int32_t priority = 0;     // -100 to 100, higher first
  std::int32_t guide = ORLOP_GUIDE_NONE;  // what the output must be: a kind and its source
  std::string guide_source;
  std::int32_t embedding = ORLOP_EMBEDDING_NONE;  // the prompt's, instead of generated text
  std::uint32_t flags = 0;       // ORLOP_GENERATE_ bits; SEEDED is set with `seed`
  const Queue* queue = nullptr;  // to be told of new output; must live while the call lasts
  std::uint64_t tag = 0;         // what the queue then answers

  // Continues a text.
  static Params prompt(std::string_view text) {
    Params p;
    p.text = text;
    return p;
  }
  // Answers one user message, through the model's chat template.
  static Params chat(std::string_view user) {
    Params p;
    p.messages = "[{\"role\":\"user\",\"content\":" + json_quote(user) + "}]";
    return p;
  }
};

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
  // Every field, as in orlop.h.
  const orlop_output& raw() const noexcept { return raw_; }

 private:
  friend class Request;
  static std::string_view view(const char* p, std::uint64_t n) noexcept {
    return p ? std::string_view(p, static_cast<std::size_t>(n)) : std::string_view();
  }
  orlop_output raw_{};
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
  // Why the walk ended early; code ORLOP_OK when it did not.
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

// A loaded model and the thread that runs it.
class Engine {
 public:
  Engine() = default;
  explicit operator bool() const noexcept { return handle_ != nullptr; }

  // Loads a checkpoint folder or a .gguf file with every setting at its default.
  static Result<Engine> open(std::string_view path) {
    return create("{\"model\":" + json_quote(path) + "}");
  }
  // Loads from a configuration, a JSON object (docs/configuration.md); returns when it is loaded.
  static Result<Engine> create(std::string_view json) { return make(orlop_engine_create, json); }
  // Starts loading and returns; only wait() may be used until it has answered true. Destroying the
  // engine cancels the load.
  static Result<Engine> create_async(std::string_view json) {
    return make(orlop_engine_create_async, json);
  }
  // True: ready. False: still loading when the timeout passed. Else why loading failed.
  Result<bool> wait(Microseconds timeout = forever, orlop_progress* progress = nullptr) const {
    detail::CError err;
    const std::int32_t status =
        orlop_engine_wait(handle_.get(), timeout.count(), progress, err.out());
    if (status < 0) return err.take(status);
    return status == ORLOP_OK;
  }

  // Hands a request to the engine; never waits for the model.
  Result<Request> generate(const Params& p) const {
    orlop_generate_params c;
    orlop_generate_params_init(&c, sizeof c);
    c.flags = p.flags;
    if (p.text) c.text = p.text->c_str(), c.text_len = p.text->size();
    if (p.messages) c.messages = p.messages->c_str(), c.messages_len = p.messages->size();
    const std::int32_t none = 0;  // an empty list still needs an address to count as given
    if (p.tokens) {
      c.tokens = p.tokens->empty() ? &none : p.tokens->data();
      c.n_tokens = p.tokens->size();
    }
    set(c.max_tokens, p.max_tokens), set(c.min_tokens, p.min_tokens);
    set(c.temperature, p.temperature), set(c.top_p, p.top_p), set(c.min_p, p.min_p);
    set(c.top_k, p.top_k), set(c.repetition_penalty, p.repetition_penalty);
    set(c.presence_penalty, p.presence_penalty), set(c.frequency_penalty, p.frequency_penalty);
    if (p.seed) c.seed = *p.seed, c.flags |= ORLOP_GENERATE_SEEDED;
    std::vector<orlop_string> stops;
    stops.reserve(p.stop.size());
    for (const std::string& s : p.stop) stops.push_back({s.data(), s.size()});
    c.logit_bias = p.logit_bias.data(), c.n_logit_bias = p.logit_bias.size();
    c.stop = stops.data(), c.n_stop = stops.size();
    c.stop_tokens = p.stop_tokens.data(), c.n_stop_tokens = p.stop_tokens.size();
    c.logprobs = p.logprobs, c.prompt_logprobs = p.prompt_logprobs;
    c.queue = p.queue ? p.queue->get() : nullptr, c.tag = p.tag;
    c.n = p.n, c.deadline_us = p.deadline.count(), c.priority = p.priority;
    c.cache_salt = p.cache_salt.data(), c.cache_salt_len = p.cache_salt.size();
    c.guide = p.guide, c.embedding = p.embedding;
    c.guide_source = p.guide_source.data(), c.guide_source_len = p.guide_source.size();
    detail::CError err;
    orlop_request* raw = nullptr;
    const std::int32_t status = orlop_async_generate(handle_.get(), &c, &raw, err.out());
    if (status < 0) return err.take(status);
    return Request(raw);
  }
  // A completion queue for requests of this engine.
  Result<Queue> queue() const {
    detail::CError err;
    orlop_queue* raw = nullptr;
    const std::int32_t status = orlop_queue_create(handle_.get(), &raw, err.out());
    if (status < 0) return err.take(status);
    return Queue(raw);
  }

  // `flags`: ORLOP_TOKENIZE_ bits.
  Result<std::vector<std::int32_t>> tokenize(std::string_view text, std::uint32_t flags = 0) const {
    return detail::ids(text.size() / 3 + 8, [&](std::int32_t* ids, std::size_t cap, std::size_t* n,
                                                orlop_error* err) {
      return orlop_tokenize(handle_.get(), text.data(), text.size(), flags, ids, cap, n, err);
    });
  }
  // `flags`: ORLOP_DETOKENIZE_ bits.
  Result<std::string> detokenize(const std::vector<std::int32_t>& ids,
                                 std::uint32_t flags = 0) const {
    return text([&](orlop_buffer** out, orlop_error* err) {
      return orlop_detokenize(handle_.get(), ids.data(), ids.size(), flags, out, err);
    });
  }
  // Chat messages (JSON, as Params::messages) as the text and the ids that the model would see.
  Result<std::string> chat_render(std::string_view json) const {
    return text([&](orlop_buffer** out, orlop_error* err) {
      return orlop_chat_render(handle_.get(), json.data(), json.size(), out, err);
    });
  }
  Result<std::vector<std::int32_t>> chat_tokenize(std::string_view json) const {
    return detail::ids(json.size() / 2 + 8, [&](std::int32_t* ids, std::size_t cap, std::size_t* n,
                                                orlop_error* err) {
      return orlop_chat_tokenize(handle_.get(), json.data(), json.size(), ids, cap, n, err);
    });
  }

  // The computed prefix as bytes; empty where StateParams::path takes it.
  Result<std::string> save_state(const StateParams& p) const {
    const orlop_state_params c = convert(p);
    return text([&](orlop_buffer** out, orlop_error* err) {
      return orlop_state_save(handle_.get(), &c, out, err);
    });
  }
  // Puts a saved state, of `data` or of StateParams::path, into the prefix cache.
  Result<orlop_state_info> load_state(const StateParams& p, std::string_view data = {}) const {
    detail::CError err;
    const orlop_state_params c = convert(p);
    orlop_state_info info{};
    info.struct_size = sizeof info;
    const std::int32_t status = orlop_state_load(
        handle_.get(), data.empty() ? nullptr : data.data(), data.size(), &c, &info, err.out());
    if (status < 0) return err.take(status);
    return info;
  }

  // Model, limits, chosen kernels, threads, bytes and defaults, as JSON.
  Result<std::string> info() const {
    return text([&](orlop_buffer** out, orlop_error* err) {
      return orlop_engine_info(handle_.get(), out, err);
    });
  }
  Result<orlop_stats> stats() const {
    detail::CError err;
    orlop_stats stats{};
    stats.struct_size = sizeof stats;
    const std::int32_t status = orlop_engine_stats(handle_.get(), &stats, err.out());
    if (status < 0) return err.take(status);
    return stats;
  }
  orlop_engine* get() const noexcept { return handle_.get(); }

 private:
  explicit Engine(orlop_engine* raw) : handle_(raw) {}
  template <class Create>
  static Result<Engine> make(Create call, std::string_view json) {
    if (orlop_abi_version() >> 16 != ORLOP_ABI_MAJOR)
      return Error{ORLOP_E_UNSUPPORTED, "the orlop library speaks another ABI than this program"};
    detail::CError err;
    orlop_engine* raw = nullptr;
    const std::int32_t status = call(json.data(), json.size(), &raw, err.out());
    if (status < 0) return err.take(status);
    return Engine(raw);
  }
  template <class Call>
  static Result<std::string> text(Call call) {
    detail::CError err;
    orlop_buffer* raw = nullptr;
    const std::int32_t status = call(&raw, err.out());
    if (status < 0) return err.take(status);
    return detail::take(raw);
  }
  static orlop_state_params convert(const StateParams& p) {
    orlop_state_params c{};
    c.struct_size = sizeof c;
    c.flags = p.flags;
    if (p.text) c.text = p.text->c_str(), c.text_len = p.text->size();
    if (p.messages) c.messages = p.messages->c_str(), c.messages_len = p.messages->size();
    if (p.tokens) c.tokens = p.tokens->data(), c.n_tokens = p.tokens->size();
    c.cache_salt = p.cache_salt.data(), c.cache_salt_len = p.cache_salt.size();
    c.key = p.key.data(), c.key_len = p.key.size();
    c.path = p.path.data(), c.path_len = p.path.size();
    c.deadline_us = p.deadline.count();
    return c;
  }
  template <class T>
  static void set(T& field, const std::optional<T>& value) {
    if (value) field = *value;
  }
  detail::Handle<orlop_engine> handle_;
};

// What a chat model writes, taken apart as it streams: reasoning, content, tool calls. One of these for
// each sample.
class ChatOutput {
 public:
  ChatOutput() = default;
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // json: {"tools", "format", "reasoning", "prompt"}, as in orlop.h. Without an engine no value may be
  // "auto".
  static Result<ChatOutput> create(const Engine& engine, std::string_view json) {
    return make(engine.get(), json);
  }
  static Result<ChatOutput> create(std::string_view json) { return make(nullptr, json); }
  // What is new, as a JSON array of events. Text in any pieces; `last` with the last one.
  Result<std::string> push(std::string_view text, bool last = false) {
    detail::CError err;
    orlop_buffer* raw = nullptr;
    const std::int32_t status =
        orlop_chat_output_push(handle_.get(), text.data(), text.size(), last, &raw, err.out());
    if (status < 0) return err.take(status);
    return detail::take(raw);
  }
  orlop_chat_output* get() const noexcept { return handle_.get(); }

 private:
  explicit ChatOutput(orlop_chat_output* raw) : handle_(raw) {}
  static Result<ChatOutput> make(orlop_engine* engine, std::string_view json) {
    detail::CError err;
    orlop_chat_output* raw = nullptr;
    const std::int32_t status =
        orlop_chat_output_create(engine, json.data(), json.size(), &raw, err.out());
    if (status < 0) return err.take(status);
    return ChatOutput(raw);
  }
  detail::Handle<orlop_chat_output> handle_;
};

// What a model file or folder holds, as JSON; no weight is loaded.
inline Result<std::string> inspect(std::string_view path) {
  detail::CError err;
  orlop_buffer* raw = nullptr;
  const std::int32_t status = orlop_inspect(path.data(), path.size(), &raw, err.out());
  if (status < 0) return err.take(status);
  return detail::take(raw);
}

}  // namespace cpp1
}  // namespace orlop
#endif
