#include "handles.h"

#include <Python.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

#include "log.h"

namespace orlop_py {
namespace {

std::atomic<unsigned> generation{0};
std::atomic<unsigned long> main_thread{0};

// Never destroyed: handles may die after static destructors have run.
struct Registry {
  std::mutex mutex;
  std::unordered_set<RequestHandle*> live;
};
Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

void before_fork() {
  registry().mutex.lock();
  log_before_fork();
}
void after_fork_in_parent() {
  log_after_fork(false);
  registry().mutex.unlock();
}
void after_fork_in_child() {
  generation.fetch_add(1);
  main_thread.store(PyThread_get_thread_ident());
  registry().live.clear();  // they belong to the parent
  log_after_fork(true);
  registry().mutex.unlock();
}

// Runs after the interpreter is gone. Requests whose Python objects were never destroyed (held by a
// thread that was cut off, for instance) may still be running.
void at_exit() {
  orlop_log_set(nullptr, nullptr, 0);
  const std::lock_guard lock(registry().mutex);
  for (RequestHandle* request : registry().live) orlop_cancel(request->get());
  int tries = 0;  // 2 seconds for all together
  for (RequestHandle* request : registry().live) {
    for (; tries < 2000; ++tries) {
      orlop_request_info info{};
      info.struct_size = sizeof info;
      if (orlop_get_status(request->get(), &info, nullptr) < 0) break;
      if (info.state >= ORLOP_STATE_DONE) break;
      const timespec one_ms{0, 1000000};
      nanosleep(&one_ms, nullptr);
    }
  }
}

}  // namespace

unsigned fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

RequestHandle::RequestHandle(orlop_request* ptr) : ptr_(ptr), born_(fork_generation()) {
  const std::lock_guard lock(registry().mutex);
  registry().live.insert(this);
}

RequestHandle::~RequestHandle() {
  if (!usable()) return;
  {
    const std::lock_guard lock(registry().mutex);
    registry().live.erase(this);
  }
  orlop_request_release(ptr_);
}

void install_process_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    registry();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    if (Py_AtExit(at_exit) != 0) std::atexit(at_exit);
  });
}

void set_main_thread(unsigned long ident) noexcept { main_thread.store(ident); }
bool on_main_thread() noexcept { return PyThread_get_thread_ident() == main_thread.load(); }

}  // namespace orlop_py
