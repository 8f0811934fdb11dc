// What loads with its first use, loaded before, on a thread of its own, in fast mode: the library of products while the
// driver starts, its kernels and choices for the shapes that come while the weights do. Nothing depends on it: what it
// has not loaded, or could not, loads with its first use.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "ops/kernels.h"

namespace orlop::cuda {

struct Context;

class Beside {
 public:
  Beside();  // opens the library
  ~Beside() { finish(); }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // The context is there; it outlives this.
  void begin(Context* context);
  // A matrix of such a description comes to `packed`, which stays until finish(): a product with it is tried, of
  // whatever is there. Any thread.
  void product(const LinearDesc& desc, const void* packed);
  // All that were given have been tried. Any thread.
  void finish();

 private:
  struct Matrix {
    LinearDesc desc;
    const void* packed;
  };
  void run();
  bool next(Matrix* matrix);
  std::mutex mutex_;  // guards what follows
  std::condition_variable more_;
  Context* context_ = nullptr;
  bool ending_ = false;
  std::deque<Matrix> waiting_;
  std::vector<LinearDesc> seen_;
  std::mutex joining_;
  std::thread thread_;  // the constructor's and finish()'s
};

}  // namespace orlop::cuda
