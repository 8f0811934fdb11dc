#include "errors.h"

namespace nb = nanobind;

namespace orlop_py {

void raise_error(int32_t code, const std::string& message) {
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  if (!text.is_valid()) throw nb::python_error();
  nb::object make = nb::module_::import_("orlop.errors").attr("from_code");
  nb::object error = make(code, text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise_type_error(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

}  // namespace orlop_py
