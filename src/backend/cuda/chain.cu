// Chains of products, put together as they come: see chain_kernel.cuh.
#include "backend/cuda/chain_kernel.cuh"

namespace orlop::cuda {
namespace {

template <Codes codes, Scales scales>
bool run(Context* c, const StreamArgs& a) {
  using S = Stages<codes, scales>;
  if (a.glu != 0 && a.up_row % 16) return false;
  const int beside = S::besides(a.m) + Input<codes, scales>::bytes(a), left = static_cast<int>(c->block_shared) - 1024 - beside;
  const int stages = std::min(left / S::stage_bytes(a.l), most_stages);
  if (stages < 2) return false;
  Chain chain{};
  chain.count = 1;
  chain.stages = stages;
  chain.state = c->chain;
  chain.op[0] = {a, -1, 0, nullptr};
  const size_t shared = static_cast<size_t>(beside + stages * S::stage_bytes(a.l));
  const auto join = [](void* before, const void* given) {
    auto& b = *static_cast<Chain*>(before);
    const auto& g = *static_cast<const Chain*>(given);
    if (b.op[0].a.l.scale_bytes != g.op[0].a.l.scale_bytes || !follow(b, g.op[0])) return false;
    b.stages = std::min(b.stages, g.stages);
    return true;
  };
  launch_joined(c, products_in_turn<codes, scales>, Shape{dim3(static_cast<unsigned>(c->multiprocessors)), dim3(threads + 32 + 32 * finishers), shared}, chain, join);
  return true;
}

template <Codes codes>
bool run_tiled(Context* c, const StreamArgs& a) {
  if (a.l.sub > 1) return run<codes, Scales::any>(c, a);
  return a.l.has_min ? run<codes, Scales::with_min>(c, a) : run<codes, Scales::one>(c, a);
}

}  // namespace

ChainState* make_chain_state(cudaStream_t stream) {
  ChainState* state = nullptr;
  if (cudaMalloc(&state, sizeof *state) == cudaSuccess && cudaMemsetAsync(state, 0, sizeof *state, stream) == cudaSuccess) return state;
  cudaGetLastError();
  cudaFree(state);
  return nullptr;
}

bool chain(Context* c, const StreamArgs& a) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (!chain_rows_of(*c, a.m) || a.k_map || a.l.codes == Codes::f32 || a.l.k % 8 || a.x_stride % 8 || !aligned(a.x) ||
      (a.norm_weight && (a.narrow_x || a.l.k > 4 * norm_quads * threads || !aligned(a.norm_weight))) || (a.accumulate && a.narrow_out))
    return false;
  switch (a.l.codes) {
    case Codes::u4:
      return run_tiled<Codes::u4>(c, a);
    case Codes::i8:
      return a.l.tiled ? run_tiled<Codes::i8>(c, a) : run<Codes::i8, Scales::none>(c, a);
    case Codes::e4m3:
      return a.l.tiled ? run_tiled<Codes::e4m3>(c, a) : run<Codes::e4m3, Scales::none>(c, a);
    default:
      return run<Codes::bf16, Scales::none>(c, a);
  }
}

}  // namespace orlop::cuda
