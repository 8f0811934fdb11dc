// The order of a product's sums, which stream() and fixed() share to the bit. k is shared by blocks (whole units each), a
// block's share by 8 warps: pieces. In a piece m16n8k16 steps go into two sums in turn, which are added (tiled pieces:
// those of what has one scale, then scaled, and the min's part added, in one sum); then a block's pieces are added in
// order, then the blocks' sums, in order.
#pragma once
#include "backend/cuda/codes.cuh"
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

constexpr int together = 4;  // tiles whose sums a cluster adds at once
constexpr int warps = 8, turn = 2, stream_threads = 32 * warps * turn;  // warps: of a tile; turn: tiles at a time

// What a unit's scales are: none beside the codes; one; one and a min; any number, with mins or without.
enum class Scales { none, one, with_min, any };

struct Share {  // of k, in units
  int begin, end;
};
// The i-th of `of` shares: whole runs of equal length, the last ones shorter or empty.
__host__ __device__ inline Share share(Share all, int i, int of) {
  const int each = (all.end - all.begin + of - 1) / of, begin = min(all.end, all.begin + i * each);
  return {begin, min(all.end, begin + each)};
}

__device__ inline float activated(bool gelu, float v) {
  if (!gelu) return __fdiv_rn(v, __fadd_rn(1.0f, expf(-v)));
  const float cube = __fmul_rn(__fmul_rn(v, v), v);
  return __fmul_rn(__fmul_rn(0.5f, v), __fadd_rn(1.0f, tanhf(__fmul_rn(0.7978845608028654f, __fmaf_rn(0.044715f, cube, v)))));
}

// Whether step i of a unit takes elements 16 i to 16 i + 15, of which a thread with lane % 4 = j holds 4 j to 4 j + 3; else
// that thread holds 4 i to 4 i + 3 of its quarter of the unit.
ORLOP_BOTH constexpr bool natural_steps(Codes codes, bool tiled) { return tiled || codes == Codes::bf16; }

// Rows of activations lie this many elements apart, so that a warp's reads meet different banks.
template <Codes codes, bool tiled>
__host__ __device__ constexpr int x_pitch(int elements) {
  const int wanted = natural_steps(codes, tiled) ? 32 : 16;  // bytes, modulo the 128 of all banks
  return elements + (wanted - 2 * elements % 128 + 128) % 128 / 2;
}


// Of a block of stream(): columns of eight rows of activations, of which x_rows are there; a ring of `depth`.
template <Codes codes, bool tiled>
size_t stream_shared(const Piece& l, int blocks_of_k, int columns, int depth, int x_rows) {
  const int units = static_cast<int>(l.units), each = (units + blocks_of_k - 1) / blocks_of_k;
  const int pitch = x_pitch<codes, tiled>(each * static_cast<int>(unit_of(codes)));
  return static_cast<size_t>(depth * 2 * stream_threads / 4 * (64 + (tiled ? l.scale_bytes : 0))) +
         sizeof(float) * 128 * static_cast<size_t>(columns * (warps * turn + (blocks_of_k > 1 ? 2 * together : 0))) +
         sizeof(__nv_bfloat16) * static_cast<size_t>(x_rows * pitch);
}
constexpr size_t stream_besides = 1024;  // what the kernel has besides

// Blocks that share k: as few as leave room beside the ring for so many rows of activations.
inline int stream_blocks_of_k(const Piece& l, int64_t rows) {
  int blocks_of_k = 1;
  while (blocks_of_k < 8 && rows * (l.k_padded / blocks_of_k) * 2 > 116 << 10) blocks_of_k *= 2;
  return blocks_of_k;
}

}  // namespace orlop::cuda
