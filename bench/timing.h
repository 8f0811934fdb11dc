// The clock of the benches of single ops.
#pragma once
#include <algorithm>
#include <chrono>
#include <ctime>

namespace orlop::timing {

// One thread: its own CPU time is taken, which other work on the machine disturbs less.
inline bool alone = false;

inline double now() {  // seconds
  timespec t;
  if (alone && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double best_of(int repetitions, const F& f) {
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) {
    const double begin = now();
    f();
    best = std::min(best, now() - begin);
  }
  return best;
}

}  // namespace orlop::timing
