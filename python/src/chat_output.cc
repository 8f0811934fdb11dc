#include "chat_output.h"

#include "errors.h"
#include "gil.h"
#include "params.h"

namespace nb = nanobind;

namespace orlop_py {

ChatOutput::ChatOutput(const std::shared_ptr<EngineHandle>& engine, nb::handle json) {
  const auto [data, len] = to_utf8(json, "json");
  orlop_error error = new_error();
  check(without_gil([&, data = data, len = len]() noexcept {
          orlop_engine* const of = engine ? engine->get() : nullptr;
          return orlop_chat_output_create(of, data, len, &ptr_, &error);
        }),
        error);
}

nb::str ChatOutput::push(nb::handle text, bool last) {
  const auto [data, len] = to_utf8(text, "text");
  orlop_buffer* events = nullptr;
  orlop_error error = new_error();
  // Microseconds for the few bytes of a token: less than leaving the lock.
  check(orlop_chat_output_push(ptr_, data, len, last ? 1 : 0, &events, &error), error);
  size_t n = 0;
  const void* bytes = orlop_buffer_data(events, &n);
  nb::object out = nb::steal(PyUnicode_DecodeUTF8(static_cast<const char*>(bytes),
                                                  static_cast<Py_ssize_t>(n), "strict"));
  orlop_buffer_release(events);
  if (!out.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(out);
}

}  // namespace orlop_py
