// Status codes -> the exception classes of orlop.errors.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "orlop/orlop.h"

namespace orlop_py {

// An orlop_error ready to be filled.
inline orlop_error new_error() {
  orlop_error error{};
  error.struct_size = sizeof error;
  return error;
}

// Raises orlop.errors' class for `code`. Needs the interpreter's lock.
[[noreturn]] void raise_error(int32_t code, const std::string& message);
[[noreturn]] void raise_type_error(const std::string& message);
inline void check(int32_t status, const orlop_error& error) {
  if (status < 0) raise_error(status, error.message);
}

}  // namespace orlop_py
