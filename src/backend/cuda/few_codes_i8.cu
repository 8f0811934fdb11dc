// few_codes() of codes of 8 bits.
#include "backend/cuda/few_codes_run.cuh"

namespace orlop::cuda {

bool few::run_i8(Context* c, const StreamArgs& a, bool go) {
  if (!a.l.tiled) return run<Codes::i8, Scales::none>(c, a, go);
  if (a.l.sub > 1) return run<Codes::i8, Scales::any>(c, a, go);
  return a.l.has_min ? run<Codes::i8, Scales::with_min>(c, a, go) : run<Codes::i8, Scales::one>(c, a, go);
}

}  // namespace orlop::cuda
