// Parts that a build may be made without (build option `without`, for small executables). Such a part
// is replaced by src/ROOM/without/PART.cc: the same functions, which say so.
#pragma once
#include "base/error.h"

namespace orlop {

// `what` the caller asked for.
[[noreturn]] inline void fail_without(const char* what, const char* part) {
  fail(Status::unsupported, what, ": this build was made without it (build option -Dwithout=", part,
       ")");
}

}  // namespace orlop
