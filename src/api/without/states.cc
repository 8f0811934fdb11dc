// A build without saved states: what a model is need not be hashed.
#include "api/guard.h"
#include "api/identity.h"
#include "base/without.h"

using namespace orlop;
using namespace orlop::api;

namespace orlop::api {
ModelIdentity::ModelIdentity(const Checkpoint&) {}
}  // namespace orlop::api

int32_t orlop_state_save(orlop_engine*, const orlop_state_params*, orlop_buffer** out,
                         orlop_error* err) {
  return guarded(err, [&]() -> Status {
    if (out) *out = nullptr;
    fail_without("state", "states");
  });
}

int32_t orlop_state_load(orlop_engine*, const void*, size_t, const orlop_state_params*,
                         orlop_state_info*, orlop_error* err) {
  return guarded(err, [&]() -> Status { fail_without("state", "states"); });
}
