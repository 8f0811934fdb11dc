// orlop_queue_*: completion queues.
#include "api/core.h"

using namespace orlop;
using namespace orlop::api;

int32_t orlop_queue_create(orlop_engine* engine, orlop_queue** out, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(out, "out");
    const Hold<orlop_engine> e(engine, "engine");
    e->core();
    auto handle = std::make_unique<orlop_queue>();
    handle->queue = std::make_shared<CompletionQueue>();
    *out = handle.release();
    return Status::ok;
  });
}

int32_t orlop_queue_wait(orlop_queue* queue, int64_t timeout_us, uint64_t* tag, orlop_error* err) {
  return guarded(err, [&] {
    if (!tag) fail(Status::invalid_argument, "tag: is NULL");
    const Hold<orlop_queue> q(queue, "queue");
    switch (q->queue->wait(timeout_us, tag)) {
      case CompletionQueue::Wait::ok:
        return Status::ok;
      case CompletionQueue::Wait::timeout:
        return Status::timeout;
      case CompletionQueue::Wait::closed:
        break;
    }
    fail(Status::shutdown, "the queue was released");
  });
}

int32_t orlop_queue_fd(const orlop_queue* queue) {
  return queue && !queue->foreign() ? queue->queue->fd() : -1;
}

void orlop_queue_release(orlop_queue* queue) {
  if (!queue || queue->foreign()) return;
  queue->queue->close();
  drop(queue);
}
