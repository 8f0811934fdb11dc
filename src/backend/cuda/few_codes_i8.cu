// few_codes() of codes of 8 bits.
#include "backend/cuda/few_codes_run.cuh"

namespace orlop::cuda {

bool few::run_i8(Context* c, const StreamArgs& a, bool go) {
  return a.l.tiled ? run<Codes::i8, Scales::one>(c, a, go) : run<Codes::i8, Scales::none>(c, a, go);
}

}  // namespace orlop::cuda
