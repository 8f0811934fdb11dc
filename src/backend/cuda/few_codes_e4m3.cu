// few_codes() of codes of e4m3.
#include "backend/cuda/few_codes_run.cuh"

namespace orlop::cuda {

bool few::run_e4m3(Context* c, const StreamArgs& a, bool go) {
  return a.l.tiled ? run<Codes::e4m3, Scales::one>(c, a, go) : run<Codes::e4m3, Scales::none>(c, a, go);
}

}  // namespace orlop::cuda
