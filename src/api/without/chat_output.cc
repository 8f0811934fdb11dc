// A build that does not take apart what chat models write.
#include "api/guard.h"
#include "base/without.h"

using namespace orlop;
using namespace orlop::api;

int32_t orlop_chat_output_create(orlop_engine*, const char*, size_t, orlop_chat_output** out,
                                 orlop_error* err) {
  return guarded(err, [&]() -> Status {
    clear_out(out, "out");
    fail_without("chat output", "chat_output");
  });
}

int32_t orlop_chat_output_push(orlop_chat_output*, const char*, size_t, int32_t,
                               orlop_buffer** events, orlop_error* err) {
  return guarded(err, [&]() -> Status {
    clear_out(events, "events");
    fail_without("chat output", "chat_output");
  });
}

void orlop_chat_output_release(orlop_chat_output*) {}  // there is none
