// few_codes() of codes of 4 bits.
#include "backend/cuda/few_codes_run.cuh"

namespace orlop::cuda {

bool few::run_u4(Context* c, const StreamArgs& a, bool go) {
  if (a.l.sub > 1) return run<Codes::u4, Scales::any>(c, a, go);
  return a.l.has_min ? run<Codes::u4, Scales::with_min>(c, a, go) : run<Codes::u4, Scales::one>(c, a, go);
}

}  // namespace orlop::cuda
