// The guard: a debugging device that shows what an accelerator would refuse. Its kernels are the
// CPU's reference kernels; its memory cannot be read or written (PROT_NONE) outside a kernel or a
// copy, so that code above ops that follows a device pointer dies with SIGSEGV at that place, and so
// does a kernel that runs over the end of an allocation or into one that no argument names. Every
// argument of a kernel that must be device memory is checked to be, and copies and calls are counted.
// Slow: each call changes the protection of what it uses. Chosen with device "guard"; never by itself.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace orlop::guard {

std::unique_ptr<Backend> make_backend(int threads);  // as cpu::make_backend

}  // namespace orlop::guard
