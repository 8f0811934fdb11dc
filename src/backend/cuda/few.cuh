// Products of more than plain_rows rows, and fewer than a library is good at, in fast mode on Hopper: bounded by reading
// the weights, like stream()'s, with warpgroup products and outputs that go where they belong.
#pragma once
#include "backend/cuda/few_parts.cuh"

namespace orlop::cuda {

// What its kernels pass parts of tiles through; null: no memory for it. Freed with cudaFree().
FewState* make_few_state(const Context& c);

// Whether products of m rows with such weights are taken; a.x then comes as rows of bf16 that fixed_takes(), without norm
// and map.
bool few_takes(const Context& c, const LinearDesc& d, const Pieces& pieces, int64_t m);

// Whether the product put last makes x, [m, k] with x_stride, and now leaves what `norm` says, whose tiles it sets. The
// rows and squares are in one workspace of `bytes`; not where the product reads its own rows there.
bool few_leaves(Context* c, const float* x, int64_t x_stride, int64_t m, int64_t k, size_t bytes, FewNorm* norm);
// Room for squares of as many rows of k.
inline int64_t few_squares_bytes(int64_t m, int64_t k) { return up(k, fixed_tile_w) / fixed_tile_w * m * 4; }

// norm: what x lacks, or null. False: not possible.
bool few_product(Context* c, const StreamArgs& a, const FewNorm* norm);

// Puts one of its kernels into the list.
using FewKernel = void (*)(FewArgs, CUtensorMap, CUtensorMap, CUtensorMap);
inline bool few_launch(Context* c, FewKernel kernel, const Shape& shape, const FewArgs& p, const CUtensorMap (&maps)[3]) {
  launch(c, kernel, shape, p, maps[0], maps[1], maps[2]);
  const std::lock_guard lock(c->mutex);
  c->few_last = reinterpret_cast<const void*>(kernel);
  return true;
}

}  // namespace orlop::cuda
