// A build without the debugging device.
#include "backend/guard/guard.h"
#include "base/without.h"

namespace orlop::guard {

std::unique_ptr<Backend> make_backend(int) { fail_without("device \"guard\"", "guard"); }

}  // namespace orlop::guard
