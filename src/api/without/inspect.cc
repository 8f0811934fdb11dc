// A build that does not describe model files.
#include "api/guard.h"
#include "base/without.h"

using namespace orlop;
using namespace orlop::api;

int32_t orlop_inspect(const char*, size_t, orlop_buffer** json, orlop_error* err) {
  return guarded(err, [&]() -> Status {
    clear_out(json, "json");
    fail_without("inspect", "inspect");
  });
}
