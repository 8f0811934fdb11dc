// The library's own facts: versions, features, log sink, buffers.
#include "base/log.h"

#include "api/guard.h"
#include "backend/backend.h"

using namespace orlop;
using namespace orlop::api;

uint32_t orlop_abi_version(void) {
  return (static_cast<uint32_t>(ORLOP_ABI_MAJOR) << 16) | ORLOP_ABI_MINOR;
}

const char* orlop_version(void) {
  return ORLOP_VERSION;
}

int64_t orlop_feature(const char* name) {
  try {
    return name && backend_feature(name) ? 1 : 0;
  } catch (...) {
    return 0;
  }
}

void orlop_log_set(orlop_log_fn fn, void* user, int32_t level) {
  log_set(fn, user, level);
}

const void* orlop_buffer_data(const orlop_buffer* buffer, size_t* n) {
  if (n) *n = buffer ? buffer->bytes.size() : 0;
  return buffer ? buffer->bytes.data() : nullptr;
}

void orlop_buffer_release(orlop_buffer* buffer) {
  delete buffer;
}
