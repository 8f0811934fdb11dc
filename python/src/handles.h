// Shared ownership of the library's handles, so that no thread frees what another one is about to
// use, and the two situations in which a handle must not be touched any more: in a forked child
// (the engine's threads live in the parent) and when the interpreter is gone.
#pragma once
#include <memory>

#include "orlop/orlop.h"

namespace orlop_py {

// Counts the forks that lie between the first process and this one.
unsigned fork_generation() noexcept;

class EngineHandle {
 public:
  explicit EngineHandle(orlop_engine* ptr) : ptr_(ptr), born_(fork_generation()) {}
  ~EngineHandle() {
    if (usable()) orlop_engine_release(ptr_);
  }
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;
  bool usable() const noexcept { return born_ == fork_generation(); }
  orlop_engine* get() const noexcept { return ptr_; }

 private:
  orlop_engine* ptr_;
  unsigned born_;
};

class QueueHandle {
 public:
  explicit QueueHandle(orlop_queue* ptr) : ptr_(ptr), born_(fork_generation()) {}
  ~QueueHandle() {
    if (usable()) orlop_queue_release(ptr_);
  }
  QueueHandle(const QueueHandle&) = delete;
  QueueHandle& operator=(const QueueHandle&) = delete;
  bool usable() const noexcept { return born_ == fork_generation(); }
  orlop_queue* get() const noexcept { return ptr_; }

 private:
  orlop_queue* ptr_;
  unsigned born_;
};

// Listed while it lives: what still runs when the interpreter is gone gets cancelled, so that no
// engine thread works while the process takes itself apart.
class RequestHandle {
 public:
  explicit RequestHandle(orlop_request* ptr);
  ~RequestHandle();
  RequestHandle(const RequestHandle&) = delete;
  RequestHandle& operator=(const RequestHandle&) = delete;
  bool usable() const noexcept { return born_ == fork_generation(); }
  orlop_request* get() const noexcept { return ptr_; }

 private:
  orlop_request* ptr_;
  unsigned born_;
};

// Installs the fork and exit hooks; once per process.
void install_process_hooks();
// The thread that Python runs signal handlers on.
void set_main_thread(unsigned long ident) noexcept;
bool on_main_thread() noexcept;

}  // namespace orlop_py
