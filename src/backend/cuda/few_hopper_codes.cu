// few_hopper_codes(): which kernel runs, and its maps.
#include "backend/cuda/few_hopper_codes.h"

#include "backend/cuda/few_hopper_codes.cuh"
#include "backend/cuda/fixed_hopper.cuh"

namespace orlop::cuda {
namespace {

// Of a stage's codes, the half of its rows. Tiled: a row of the map is a tile of 16, in words of eight bytes.
template <class L>
bool map_codes(const unsigned char* from, const Piece& l, CUtensorMap* map) {
  const TensorMapEncode encode = tensor_map_encode();
  const int64_t rows = up(l.rows, row_block);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(L::tiled ? l.units * l.block_bytes / 8 : l.k_padded), static_cast<cuuint64_t>(L::tiled ? rows / tile_rows : rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(L::tiled ? l.units * l.block_bytes : l.row_bytes)};
  const cuuint32_t box[] = {L::tiled ? L::unit_bytes / 8 : few_coded::step_k, L::tiled ? L::rows / 2 / tile_rows : L::rows / 2}, steps[] = {1, 1};
  return encode && encode(map, L::tiled ? CU_TENSOR_MAP_DATA_TYPE_FLOAT64 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<unsigned char*>(from), sizes, strides, box, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, L::tiled ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int64_t tiles_of(const StreamArgs& a, bool wide) {
  const int64_t rows = (wide ? 2 : 1) * (a.glu ? fixed_tile_w / 2 : fixed_tile_w);
  return (a.n + rows - 1) / rows;
}

template <Codes codes, Scales scales, bool wide, int columns>
bool run(Context* c, const StreamArgs& a, const FewNorm* norm) {
  using L = few_coded::Layout<codes, scales, wide, columns>;
  constexpr int64_t least_steps = wide ? 2 : 4;
  const int64_t steps = a.l.k_padded / few_coded::step_k, tiles = tiles_of(a, wide);
  if (L::bytes > c->block_shared) return false;
  CUtensorMap maps[3] = {};
  if (!map_codes<L>(a.low, a.l, &maps[0]) || !map_codes<L>(a.high, a.l, &maps[1]) || !map_rows(a.x, a.l.k, a.m, a.x_stride * 2, &maps[2], columns)) return false;
  FewArgs p{a, norm ? *norm : FewNorm{}, {}, {c->few, static_cast<int32_t>(steps), static_cast<int32_t>(tiles * steps), 0, 0}};
  const unsigned blocks = few_blocks(c->multiprocessors, c->may_wait, &p.shares, least_steps, L::w_bytes);
  return few_launch(c, few_coded::products<codes, scales, wide, columns>, Shape{dim3(blocks), dim3(few_coded::threads), L::bytes}, p, maps);
}

template <Codes codes, Scales scales>
bool run(Context* c, const StreamArgs& a, const FewNorm* norm) {
  // Wide tiles take activations half as often; of few of them, each would have many parts to add up.
  const bool wide = tiles_of(a, true) >= c->multiprocessors / 2;
  if (a.m <= 16) return wide ? run<codes, scales, true, 16>(c, a, norm) : run<codes, scales, false, 16>(c, a, norm);
  return wide ? run<codes, scales, true, 32>(c, a, norm) : run<codes, scales, false, 32>(c, a, norm);
}

}  // namespace

bool few_hopper_codes_takes(const Piece& l) {
  if (!l.tiled) return l.codes == Codes::i8 || l.codes == Codes::e4m3;
  return l.sub == 1 && (l.codes == Codes::u4 || (l.codes == Codes::i8 && !l.has_min));
}

bool few_hopper_codes(Context* c, const StreamArgs& a, const FewNorm* norm) {
  const auto odd = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (!a.narrow_x || a.norm_weight || a.k_map || a.x_stride % 8 || odd(a.x) || a.up_row % tile_rows) return false;
  if (a.l.codes == Codes::i8) return a.l.tiled ? run<Codes::i8, Scales::one>(c, a, norm) : run<Codes::i8, Scales::none>(c, a, norm);
  if (a.l.codes == Codes::e4m3) return run<Codes::e4m3, Scales::none>(c, a, norm);
  return a.l.has_min ? run<Codes::u4, Scales::with_min>(c, a, norm) : run<Codes::u4, Scales::one>(c, a, norm);
}

}  // namespace orlop::cuda
