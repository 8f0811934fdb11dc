/* The library with a completion queue that breaks: orlop_queue_wait fails after a while, when all requests are there
 * and the last ones have nothing yet. What else is asked of this library is found in liborlop.so, which it is linked with. */
#include <stdio.h>
#include <time.h>

#include "orlop/orlop.h"

ORLOP_API int32_t orlop_queue_wait(orlop_queue* queue, int64_t timeout_us, uint64_t* tag, orlop_error* err) {
  (void)queue, (void)timeout_us, (void)tag;
  nanosleep(&(struct timespec){0, 200000000}, NULL);
  err->code = ORLOP_E_INTERNAL;
  snprintf(err->message, sizeof err->message, "the queue is broken");
  return err->code;
}
