// Leaving and retaking the interpreter's lock around library calls.
#pragma once
#include <Python.h>
#include <unistd.h>

#include <utility>
#if defined(__GLIBCXX__) || defined(__GLIBC__)
#include <cxxabi.h>
#endif

namespace orlop_py {

// CPython before 3.14 ends a thread that wants the lock of an interpreter that is going away with
// pthread_exit, which unwinds; nanobind's frames are noexcept, so that would end the whole process
// by std::terminate. Such a thread is parked instead (as 3.14 does): the process is on its way out.
inline void retake_gil(PyThreadState* state) {
#if defined(__GLIBCXX__)
  try {
    PyEval_RestoreThread(state);
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  PyEval_RestoreThread(state);
#endif
}

// Runs `call`, which must not throw nor touch Python, without the lock.
template <class F>
auto without_gil(F&& call) {
  PyThreadState* state = PyEval_SaveThread();
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    retake_gil(state);
  } else {
    auto result = call();
    retake_gil(state);
    return result;
  }
}

}  // namespace orlop_py
