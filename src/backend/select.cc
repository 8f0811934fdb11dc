// The only file that names backends.
#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#ifdef ORLOP_WITH_CUDA
#include "backend/cuda/cuda.h"
#endif
#include "backend/guard/guard.h"
#include "base/error.h"

namespace orlop {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.device == "cpu") return cpu::make_backend(options.threads);
  if (options.device == "guard") return guard::make_backend(options.threads);
  if (options.device == "cuda" || options.device.rfind("cuda:", 0) == 0) {
#ifdef ORLOP_WITH_CUDA
    return cuda::make_backend(options.device, options.threads, !options.deterministic);
#else
    fail(Status::unsupported, "device \"", options.device, "\": this build has no CUDA backend");
#endif
  }
  fail(Status::not_found, "device \"", options.device,
       "\" is not known; there is: cpu (and guard, for debugging)");
}

bool backend_feature(const std::string& name) {
#ifdef ORLOP_WITH_CUDA
  if (name == "cuda") return cuda::available();
#endif
  return cpu::feature(name);
}

}  // namespace orlop
