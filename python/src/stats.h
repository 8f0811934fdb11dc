// The library's counters as Python dicts.
#pragma once
#include <nanobind/nanobind.h>

#include "orlop/orlop.h"

namespace orlop_py {

nanobind::dict stats_dict(const orlop_stats& stats);
nanobind::dict info_dict(const orlop_request_info& info);

}  // namespace orlop_py
