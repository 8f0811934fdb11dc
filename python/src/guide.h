// orlop_guide_check for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace orlop_py {

void bind_guide(nanobind::module_& m);

}  // namespace orlop_py
