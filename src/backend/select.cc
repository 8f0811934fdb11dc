// The only file that names backends.
#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/guard/guard.h"
#include "base/error.h"

namespace orlop {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.device == "cpu") return cpu::make_backend(options.threads);
  if (options.device == "guard") return guard::make_backend(options.threads);
  if (options.device == "cuda" || options.device.rfind("cuda:", 0) == 0)
    fail(Status::unsupported, "device \"", options.device, "\": this build has no CUDA backend");
  fail(Status::not_found, "device \"", options.device,
       "\" is not known; there is: cpu (and guard, for debugging)");
}

bool backend_feature(const std::string& name) { return cpu::feature(name); }

}  // namespace orlop
