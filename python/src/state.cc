#include "state.h"

#include <string>

#include "errors.h"
#include "gil.h"
#include "params.h"

namespace nb = nanobind;

namespace orlop_py {
namespace {

// Any object that has bytes (bytes, bytearray, memoryview, mmap), held while it is used.
class Bytes {
 public:
  ~Bytes() {
    if (held_) PyBuffer_Release(&view_);
  }
  void take(nb::handle object, const char* name) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      raise_type_error(std::string(name) + " must be bytes, not " +
                       Py_TYPE(object.ptr())->tp_name);
    }
    held_ = true;
  }
  const void* data() const { return held_ ? view_.buf : nullptr; }
  size_t size() const { return held_ ? static_cast<size_t>(view_.len) : 0; }

 private:
  Py_buffer view_{};
  bool held_ = false;
};

// The key is bytes, the path a str; their objects outlive the call.
void set_key_and_path(orlop_state_params& state, nb::handle key, nb::handle path) {
  if (!key.is_none()) {
    char* data = nullptr;
    Py_ssize_t len = 0;
    if (PyBytes_AsStringAndSize(key.ptr(), &data, &len) != 0) throw nb::python_error();
    state.key = data;
    state.key_len = static_cast<uint64_t>(len);
  }
  if (!path.is_none()) {
    const auto [data, len] = to_utf8(path, "path");
    state.path = data;
    state.path_len = len;
  }
}

}  // namespace

nb::object save_state(std::shared_ptr<EngineHandle> handle, nb::handle text, nb::handle tokens, nb::handle messages,
                      const nb::dict& values, nb::handle key, nb::handle path) {
  Params params;
  params.set(values);
  params.set_prompt(text, tokens, messages);
  orlop_state_params state{};
  state.struct_size = sizeof state;
  state.flags = params.c.flags;
  state.text = params.c.text, state.text_len = params.c.text_len;
  state.tokens = params.c.tokens, state.n_tokens = params.c.n_tokens;
  state.messages = params.c.messages, state.messages_len = params.c.messages_len;
  state.cache_salt = params.c.cache_salt, state.cache_salt_len = params.c.cache_salt_len;
  state.deadline_us = params.c.deadline_us;
  set_key_and_path(state, key, path);
  orlop_buffer* buffer = nullptr;
  orlop_error error = new_error();
  const int32_t status = without_gil([&]() noexcept {
    const int32_t answer = orlop_state_save(handle->get(), &state, &buffer, &error);
    handle.reset();
    return answer;
  });
  check(status, error);
  if (!buffer) return nb::none();
  size_t n = 0;
  const void* data = orlop_buffer_data(buffer, &n);
  nb::object out = nb::steal(
      PyBytes_FromStringAndSize(static_cast<const char*>(data), static_cast<Py_ssize_t>(n)));
  orlop_buffer_release(buffer);
  if (!out.is_valid()) throw nb::python_error();
  return out;
}

nb::tuple load_state(std::shared_ptr<EngineHandle> handle, nb::handle data, const nb::dict& values, nb::handle key,
                     nb::handle path) {
  Params params;
  params.set(values);
  orlop_state_params state{};
  state.struct_size = sizeof state;
  state.cache_salt = params.c.cache_salt, state.cache_salt_len = params.c.cache_salt_len;
  set_key_and_path(state, key, path);
  Bytes bytes;
  if (!data.is_none()) bytes.take(data, "data");
  orlop_state_info info{};
  info.struct_size = sizeof info;
  orlop_error error = new_error();
  const int32_t status = without_gil([&]() noexcept {
    const int32_t answer =
        orlop_state_load(handle->get(), bytes.data(), bytes.size(), &state, &info, &error);
    handle.reset();
    return answer;
  });
  check(status, error);
  return nb::make_tuple(info.n_tokens, info.pages, info.pages_added, info.shared != 0);
}

}  // namespace orlop_py
