// The extension binds the public C header and nothing beneath it: the Python package is one more
// consumer of the ABI. Python's lock is given up in every call that may wait or work.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <memory>
#include <string>

#include "chat_output.h"
#include "errors.h"
#include "gil.h"
#include "guide.h"
#include "handles.h"
#include "log.h"
#include "output.h"
#include "orlop/orlop.h"
#include "params.h"
#include "state.h"
#include "stats.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace orlop_py {
namespace {

// How long the main thread stays inside the library before it looks for signals (Ctrl-C).
constexpr int64_t signal_slice_us = 50000;

template <class Handle>
void drop(std::shared_ptr<Handle>& handle) {
  if (handle) without_gil([&] { handle.reset(); });
}

template <class Handle>
std::shared_ptr<Handle> usable(const std::shared_ptr<Handle>& handle, const char* what) {
  if (!handle) raise_error(ORLOP_E_SHUTDOWN, std::string("this ") + what + " is closed");
  if (!handle->usable()) {
    raise_error(ORLOP_E_SHUTDOWN,
                std::string("this ") + what +
                    " belongs to the parent process; create an engine after the fork");
  }
  return handle;
}

nb::str buffer_to_str(orlop_buffer* buffer) {
  size_t n = 0;
  const void* data = orlop_buffer_data(buffer, &n);
  nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(static_cast<const char*>(data), static_cast<Py_ssize_t>(n), "replace"));
  orlop_buffer_release(buffer);
  if (!text.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(text);
}

nb::list ids_to_list(const std::vector<int32_t>& ids) {
  nb::list out;
  for (const int32_t id : ids) out.append(id);
  return out;
}

// Runs wait(us) in slices that let signal handlers run, until it answers something other than
// TIMEOUT or the time is over. `wait` is called without the lock and must not throw.
template <class Wait>
int32_t wait_interruptibly(int64_t timeout_us, const Wait& wait) {
  if (!on_main_thread()) return without_gil([&] { return wait(timeout_us); });
  for (int64_t left = timeout_us;;) {
    const bool last = left >= 0 && left <= signal_slice_us;
    const int32_t status = without_gil([&] { return wait(last ? left : signal_slice_us); });
    // With an answer in hand the interpreter itself runs the handlers soon enough.
    if (status != ORLOP_TIMEOUT || last) return status;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (left > 0) left -= signal_slice_us;
  }
}

class Request {
 public:
  explicit Request(orlop_request* ptr) : handle_(std::make_shared<RequestHandle>(ptr)) {}
  ~Request() { drop(handle_); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  nb::object get(nb::handle timeout) {
    const int64_t us = to_timeout_us(timeout);
    auto handle = usable(handle_, "request");
    // The library refuses overlapping gets, but what it points to must also outlast the way back
    // into the interpreter.
    if (taking_.exchange(true)) {
      raise_error(ORLOP_E_BUSY, "another thread takes this request's output");
    }
    const Reset reset{taking_};
    orlop_output out{};
    out.struct_size = sizeof out;
    orlop_error error = new_error();
    int32_t status = 0;
    try {
      status = wait_interruptibly(us, [&](int64_t slice) noexcept {
        return orlop_get(handle->get(), slice, &out, &error);
      });
    } catch (...) {
      drop(handle);
      throw;
    }
    nb::object result = nb::none();
    if (status == ORLOP_OK) result = nb::cast(Output(out));
    drop(handle);
    check(status, error);
    if (status == ORLOP_END) throw nb::stop_iteration();
    return result;
  }

  nb::dict status() const {
    auto handle = usable(handle_, "request");
    orlop_request_info info{};
    info.struct_size = sizeof info;
    orlop_error error = new_error();
    check(orlop_get_status(handle->get(), &info, &error), error);
    return info_dict(info);
  }

  void cancel() {
    auto handle = handle_;
    if (!handle || !handle->usable()) return;
    without_gil([&] {
      orlop_cancel(handle->get());
      handle.reset();
    });
  }

  // A get that runs in another thread ends with the request's last output.
  void close() {
    cancel();
    drop(handle_);
  }
  bool closed() const { return handle_ == nullptr; }

 private:
  struct Reset {
    std::atomic<bool>& flag;
    ~Reset() { flag.store(false); }
  };
  std::shared_ptr<RequestHandle> handle_;
  std::atomic<bool> taking_{false};
};

class Engine;

class Queue {
 public:
  explicit Queue(const Engine& engine);
  ~Queue() { drop(handle_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  nb::object wait(nb::handle timeout) {
    const int64_t us = to_timeout_us(timeout);
    auto handle = usable(handle_, "queue");
    uint64_t tag = 0;
    orlop_error error = new_error();
    const int32_t status = us == 0 ? orlop_queue_wait(handle->get(), 0, &tag, &error)
                                   : wait_interruptibly(us, [&](int64_t slice) noexcept {
                                       return orlop_queue_wait(handle->get(), slice, &tag, &error);
                                     });
    check(status, error);
    return status == ORLOP_OK ? nb::object(nb::int_(tag)) : nb::none();
  }
  int fileno() const { return orlop_queue_fd(usable(handle_, "queue")->get()); }
  void close() { drop(handle_); }
  const std::shared_ptr<QueueHandle>& handle() const { return handle_; }

 private:
  std::shared_ptr<QueueHandle> handle_;
};

class Engine {
 public:
  Engine(const std::string& config, nb::object progress) {
    orlop_error error = new_error();
    orlop_engine* engine = nullptr;
    check(without_gil([&]() noexcept {
            return orlop_engine_create_async(config.data(), config.size(), &engine, &error);
          }),
          error);
    handle_ = std::make_shared<EngineHandle>(engine);
    try {
      wait_until_loaded(progress);
    } catch (...) {
      drop(handle_);
      throw;
    }
  }
  ~Engine() { drop(handle_); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Request* submit(nb::handle text, nb::handle tokens, nb::handle messages, const nb::dict& values,
                  const Queue* queue, uint64_t tag) {
    auto handle = usable(handle_, "engine");
    Params params;
    params.set(values);
    params.set_prompt(text, tokens, messages);
    std::shared_ptr<QueueHandle> events;
    if (queue) {
      events = usable(queue->handle(), "queue");
      params.c.queue = events->get();
      params.c.tag = tag;
    }
    orlop_request* request = nullptr;
    orlop_error error = new_error();
    const int32_t status = without_gil([&]() noexcept {
      const int32_t answer = orlop_async_generate(handle->get(), &params.c, &request, &error);
      handle.reset();
      return answer;
    });
    if (status < 0) {
      std::string message = error.message;  // names the field as C does
      if (message.rfind("stop_tokens", 0) == 0) message.replace(0, 11, params.stop_tokens_name);
      raise_error(status, message);
    }
    return new Request(request);
  }

  nb::str info() const {
    auto handle = usable(handle_, "engine");
    orlop_buffer* json = nullptr;
    orlop_error error = new_error();
    check(orlop_engine_info(handle->get(), &json, &error), error);
    return buffer_to_str(json);
  }

  nb::dict stats() const {
    auto handle = usable(handle_, "engine");
    orlop_stats stats{};
    stats.struct_size = sizeof stats;
    orlop_error error = new_error();
    check(orlop_engine_stats(handle->get(), &stats, &error), error);
    return stats_dict(stats);
  }

  nb::list tokenize(nb::handle text, bool add_special, bool parse_special) const {
    const auto [data, len] = to_utf8(text, "text");
    const uint32_t flags = (add_special ? ORLOP_TOKENIZE_ADD_SPECIAL : 0) |
                           (parse_special ? ORLOP_TOKENIZE_PARSE_SPECIAL : 0);
    return ids(len / 2 + 8, [&, data = data, len = len](orlop_engine* engine, int32_t* out, size_t cap,
                                                        size_t* n, orlop_error* error) noexcept {
      return orlop_tokenize(engine, data, len, flags, out, cap, n, error);
    });
  }

  nb::list chat_tokenize(nb::handle json) const {
    const auto [data, len] = to_utf8(json, "messages");
    return ids(len / 2 + 64, [&, data = data, len = len](orlop_engine* engine, int32_t* out, size_t cap,
                                                         size_t* n, orlop_error* error) noexcept {
      return orlop_chat_tokenize(engine, data, len, out, cap, n, error);
    });
  }

  nb::str detokenize(nb::handle values, bool skip_special) const {
    const std::vector<int32_t> tokens = to_ids(values, "tokens");
    return text([&](orlop_engine* engine, orlop_buffer** out, orlop_error* error) noexcept {
      return orlop_detokenize(engine, tokens.data(), tokens.size(),
                              skip_special ? ORLOP_DETOKENIZE_SKIP_SPECIAL : 0, out, error);
    });
  }

  nb::bytes token_bytes(int32_t token) const {
    auto handle = usable(handle_, "engine");
    orlop_buffer* buffer = nullptr;
    orlop_error error = new_error();
    const int32_t status = orlop_detokenize(handle->get(), &token, 1, ORLOP_DETOKENIZE_BYTES, &buffer,
                                            &error);
    drop(handle);
    check(status, error);
    size_t len = 0;
    const void* data = orlop_buffer_data(buffer, &len);
    nb::bytes out(static_cast<const char*>(data), len);
    orlop_buffer_release(buffer);
    return out;
  }

  nb::str chat_render(nb::handle json) const {
    const auto [data, len] = to_utf8(json, "messages");
    return text([&, data = data, len = len](orlop_engine* engine, orlop_buffer** out,
                                            orlop_error* error) noexcept {
      return orlop_chat_render(engine, data, len, out, error);
    });
  }

  void close() { drop(handle_); }
  bool closed() const { return handle_ == nullptr; }
  const std::shared_ptr<EngineHandle>& handle() const { return handle_; }

 private:
  void wait_until_loaded(const nb::object& progress) {
    for (;;) {
      orlop_progress now{};
      now.struct_size = sizeof now;
      orlop_error error = new_error();
      const int32_t status = without_gil([&]() noexcept {
        return orlop_engine_wait(handle_->get(), signal_slice_us, &now, &error);
      });
      check(status, error);
      if (!progress.is_none()) progress(now.bytes_done, now.bytes_total);
      if (status != ORLOP_TIMEOUT) return;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  // Calls a function that fills an array of ids, again with more room where the guess was small.
  template <class Call>
  nb::list ids(size_t guess, const Call& call) const {
    auto handle = usable(handle_, "engine");
    std::vector<int32_t> out(guess);
    for (;;) {
      size_t n = 0;
      orlop_error error = new_error();
      check(without_gil([&]() noexcept {
              return call(handle->get(), out.data(), out.size(), &n, &error);
            }),
            error);
      const bool fits = n <= out.size();
      out.resize(n);
      if (fits) break;
    }
    drop(handle);
    return ids_to_list(out);
  }

  template <class Call>
  nb::str text(const Call& call) const {
    auto handle = usable(handle_, "engine");
    orlop_buffer* buffer = nullptr;
    orlop_error error = new_error();
    const int32_t status =
        without_gil([&]() noexcept { return call(handle->get(), &buffer, &error); });
    drop(handle);
    check(status, error);
    return buffer_to_str(buffer);
  }

  std::shared_ptr<EngineHandle> handle_;
};

Queue::Queue(const Engine& engine) {
  auto handle = usable(engine.handle(), "engine");
  orlop_queue* queue = nullptr;
  orlop_error error = new_error();
  check(orlop_queue_create(handle->get(), &queue, &error), error);
  handle_ = std::make_shared<QueueHandle>(queue);
}

nb::str inspect(nb::handle path) {
  const auto [data, len] = to_utf8(path, "path");
  orlop_buffer* json = nullptr;
  orlop_error error = new_error();
  check(without_gil([&, data = data, len = len]() noexcept {
          return orlop_inspect(data, len, &json, &error);
        }),
        error);
  return buffer_to_str(json);
}

nb::object log_take_python() {
  const std::optional<LogLine> line = without_gil([]() noexcept { return log_take(); });
  if (!line) return nb::none();
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(
      line->text.data(), static_cast<Py_ssize_t>(line->text.size()), "replace"));
  if (!text.is_valid()) throw nb::python_error();
  return nb::make_tuple(line->level, text);
}

}  // namespace
}  // namespace orlop_py

NB_MODULE(_native, m) {
  using namespace orlop_py;
  if (orlop_abi_version() >> 16 != ORLOP_ABI_MAJOR) {
    throw std::runtime_error("the orlop library speaks another ABI than this extension");
  }
  // Requests may live in places that the interpreter never clears (a daemon thread's frame).
  nb::set_leak_warnings(false);
  install_process_hooks();
  set_main_thread(nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident")));

  m.doc() = "Bindings of orlop.h. Use the classes of the package orlop, which are built on these.";
  m.def("version", &orlop_version, "The version of the library, e.g. '0.1.0'.");
  m.def("feature", &orlop_feature, "name"_a,
        "Whether this build has a feature ('cuda', 'avx2', 'avx512', ...): 0 when absent.");
  bind_guide(m);
  m.def("inspect", &inspect, "path"_a, nb::sig("def inspect(path: str) -> str"),
        "What a model file holds, as JSON text.");
  m.def("log_start", &log_start, "level"_a, "Queues log lines up to level (1 error to 4 debug).");
  m.def("log_stop", &log_stop, "Ends the flow of log lines; waiters end.");
  m.def("log_take", &log_take_python, nb::sig("def log_take() -> tuple[int, str] | None"),
        "Waits for the next log line; None once stopped.");

  bind_output(m);

  nb::class_<Request>(m, "Request", "A request's handle.")
      .def("get", &Request::get, "timeout"_a = nb::none(),
           nb::sig("def get(self, timeout: float | None = None) -> Output | None"),
           "Next output; None after timeout seconds (None: wait for ever). StopIteration when "
           "everything was taken.")
      .def("status", &Request::status, nb::sig("def status(self) -> dict[str, typing.Any]"),
           "The fields of orlop_request_info.")
      .def("cancel", &Request::cancel, "Ends the request within one step.")
      .def("close", &Request::close, "Cancels if unfinished and frees.")
      .def_prop_ro("closed", &Request::closed);

  nb::class_<Engine>(m, "Engine", "An engine's handle.")
      .def(nb::init<const std::string&, nb::object>(), "config"_a, "progress"_a = nb::none(),
           nb::sig("def __init__(self, config: str, progress: collections.abc.Callable[[int, int], None] | None = "
                   "None) -> None"),
           "Loads a model; progress(bytes_done, bytes_total) is called about 20 times a second.")
      .def("submit", &Engine::submit, "text"_a.none(), "tokens"_a.none(), "messages"_a.none(),
           "values"_a, "queue"_a.none() = nb::none(), "tag"_a = 0, nb::rv_policy::take_ownership,
           nb::sig("def submit(self, text: str | None, tokens: collections.abc.Sequence[int] | None, messages: str "
                   "| None, values: dict[str, typing.Any], queue: Queue | None = None, tag: int = 0) -> "
                   "Request"),
           "Hands a request to the engine.")
      .def("info", &Engine::info, nb::sig("def info(self) -> str"), "Facts as JSON text.")
      .def("stats", &Engine::stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def("save_state",
           [](const Engine& e, nb::handle text, nb::handle tokens, nb::handle messages,
              const nb::dict& values, nb::handle key, nb::handle path) {
             return save_state(usable(e.handle(), "engine"), text, tokens, messages, values, key,
                               path);
           }, "text"_a.none(), "tokens"_a.none(),
           "messages"_a.none(), "values"_a, "key"_a.none(), "path"_a.none(),
           nb::sig("def save_state(self, text: str | None, tokens: collections.abc.Sequence[int] | None, "
                   "messages: str | None, values: dict[str, typing.Any], key: bytes | None, path: "
                   "str | None) -> bytes | None"))
      .def("load_state",
           [](const Engine& e, nb::handle data, const nb::dict& values, nb::handle key,
              nb::handle path) {
             return load_state(usable(e.handle(), "engine"), data, values, key, path);
           }, "data"_a.none(), "values"_a, "key"_a.none(),
           "path"_a.none(),
           nb::sig("def load_state(self, data: bytes | bytearray | memoryview | None, values: dict[str, "
                   "typing.Any], key: bytes | None, path: str | None) -> tuple[int, int, int, bool]"))
      .def("tokenize", &Engine::tokenize, "text"_a, "add_special"_a, "parse_special"_a,
           nb::sig("def tokenize(self, text: str, add_special: bool, parse_special: bool) -> "
                   "list[int]"))
      .def("detokenize", &Engine::detokenize, "tokens"_a, "skip_special"_a,
           nb::sig("def detokenize(self, tokens: collections.abc.Sequence[int], skip_special: bool) -> str"))
      .def("token_bytes", &Engine::token_bytes, "token"_a,
           nb::sig("def token_bytes(self, token: int) -> bytes"))
      .def("chat_render", &Engine::chat_render, "json"_a,
           nb::sig("def chat_render(self, json: str) -> str"))
      .def("chat_tokenize", &Engine::chat_tokenize, "json"_a,
           nb::sig("def chat_tokenize(self, json: str) -> list[int]"))
      .def("close", &Engine::close, "Gives the handle up; live requests keep the engine running.")
      .def_prop_ro("closed", &Engine::closed);

  nb::class_<ChatOutput>(m, "ChatOutput", "What a chat model writes, taken apart.")
      .def("__init__", [](ChatOutput* self, const Engine* engine, nb::handle json) {
             new (self) ChatOutput(engine ? usable(engine->handle(), "engine") : nullptr, json);
           }, "engine"_a.none(), "json"_a,
           nb::sig("def __init__(self, engine: Engine | None, json: str) -> None"))
      .def("push", &ChatOutput::push, "text"_a, "last"_a,
           nb::sig("def push(self, text: str, last: bool) -> str"), "New events as JSON text.");
  nb::class_<Queue>(m, "Queue", "A completion queue: one waiter for any number of requests.")
      .def(nb::init<const Engine&>(), "engine"_a)
      .def("wait", &Queue::wait, "timeout"_a = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> int | None"),
           "The tag of a request with new output; None after timeout seconds.")
      .def("fileno", &Queue::fileno, "Readable while the queue is not empty.")
      .def("close", &Queue::close, "Frees the queue.");
}
