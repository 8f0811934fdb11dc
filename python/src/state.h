// Saving and loading states.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "handles.h"

namespace orlop_py {

// The state as bytes, or None where a path takes it.
nanobind::object save_state(std::shared_ptr<EngineHandle> engine, nanobind::handle text,
                            nanobind::handle tokens, nanobind::handle messages,
                            const nanobind::dict& values, nanobind::handle key,
                            nanobind::handle path);
// (tokens, pages, pages added, shared).
nanobind::tuple load_state(std::shared_ptr<EngineHandle> engine, nanobind::handle data,
                           const nanobind::dict& values, nanobind::handle key,
                           nanobind::handle path);

}  // namespace orlop_py
