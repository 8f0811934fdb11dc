// orlop.hpp - orlop for C++17: owning handles over orlop.h, and nothing but the standard library.
//
//   auto engine = orlop::Engine::open("model.gguf").value();
//   auto request = engine.generate(orlop::Params::chat("Why is the sky blue?")).value();
//   for (const orlop::Output& out : request) std::cout << out.text() << std::flush;
//
// Errors. A call that can fail returns a Result: look at it (`if (!r) use(r.error())`, then `*r`),
// or take r.value(), which throws orlop::Exception. Built with -fno-exceptions everything works but
// value(), which is then not declared. Nothing else here throws, save std::bad_alloc.
// Ownership. Handles are move-only and release themselves, in any order. Of a moved-from, closed or
// default-made handle every call answers ORLOP_E_INVALID_ARGUMENT.
// Threads. As in orlop.h: an Engine from any number of threads; a Request by one consumer at a
// time, its cancel() and info() from any thread. Moving or closing a handle is for one thread alone.
// Parts: result.hpp (Result, View), library.hpp (version, log, inspect, guides), params.hpp (Params,
// Chat, StateParams, Queue), request.hpp (Output, Answer, Request); here Engine and ChatOutput.
#ifndef ORLOP_ORLOP_HPP
#define ORLOP_ORLOP_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orlop/library.hpp"
#include "orlop/orlop.h"
#include "orlop/params.hpp"
#include "orlop/request.hpp"
#include "orlop/result.hpp"

namespace orlop {
inline namespace cpp1 {

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
  // The same, and tells how far it is: `progress(const orlop_progress&)` is called on this thread now
  // and then and once at the end; false from it gives the load up (ORLOP_E_CANCELLED).
  template <class Progress>
  static Result<Engine> create(std::string_view json, Progress progress,
                               Microseconds every = std::chrono::milliseconds(100)) {
    Result<Engine> made = create_async(json);
    for (bool ready = false; made && !ready;) {
      orlop_progress p{};
      p.struct_size = sizeof p;
      const Result<bool> waited = made->wait(every, &p);
      if (!waited) return waited.error();
      ready = *waited;
      if (!progress(static_cast<const orlop_progress&>(p)))
        return Error{ORLOP_E_CANCELLED, "loading was given up by the progress function"};
    }
    return made;
  }
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
    std::vector<orlop_string> stops;
    const orlop_generate_params c = detail::convert(p, stops);
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
    const orlop_state_params c = detail::convert(p);
    return text([&](orlop_buffer** out, orlop_error* err) {
      return orlop_state_save(handle_.get(), &c, out, err);
    });
  }
  // Puts a saved state, of `data` or of StateParams::path, into the prefix cache.
  Result<orlop_state_info> load_state(const StateParams& p, std::string_view data = {}) const {
    detail::CError err;
    const orlop_state_params c = detail::convert(p);
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
  // Gives the engine up early; using it then answers ORLOP_E_INVALID_ARGUMENT, requests that live go
  // on. Once or more. Not while another thread uses this object.
  void close() noexcept { handle_.reset(); }

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
  void close() noexcept { handle_.reset(); }
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

}  // namespace cpp1
}  // namespace orlop
#endif
