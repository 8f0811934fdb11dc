// Packed weights made into plain bf16 rows, for products of many rows.
#include "backend/cuda/codes.cuh"
#include "backend/cuda/gemm.cuh"

namespace orlop::cuda {
namespace {

// code * scale + min of two neighbours.
__device__ inline uint32_t scaled(uint32_t codes, float scale, float min) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(fmaf(__uint_as_float(codes << 16), scale, min),
                                                 fmaf(__uint_as_float(codes & 0xffff0000u), scale, min));
  return *reinterpret_cast<const uint32_t*>(&v);
}

// 16 rows and a unit of k: 64 threads, each with 16 bytes of codes.
template <Codes codes>
__global__ void __launch_bounds__(256) dequantize_tiles(Piece l, const unsigned char* piece, int64_t begin, int64_t rows, unsigned char* to) {
  constexpr int steps = steps_of(codes), unit = static_cast<int>(unit_of(codes));
  const int quarter = threadIdx.x % 4, odd = quarter % 2;
  const int64_t u = int64_t{blockIdx.x} * 4 + threadIdx.x / 64, row = int64_t{blockIdx.y} * tile_rows + threadIdx.x / 4 % 16;
  const int64_t from = begin + row;
  const bool there = u < l.units && row < rows;
  uint32_t v[2 * steps] = {};
  if (there) {
    const uint4 q = __ldg(reinterpret_cast<const uint4*>(piece + l.at(from, u) + quarter * 16));
    const float* scales = reinterpret_cast<const float*>(piece + l.scale_at(from, u));
    const float* mins = reinterpret_cast<const float*>(piece + l.min_at(from, u));
    const int sub = l.sub;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int s = i * sub / steps;
      const float scale = __ldg(scales + s), min = l.has_min ? __ldg(mins + s) : 0.0f;
      uint32_t first, second;
      widen<codes>(q, i, l.zero, first, second);
      v[2 * i] = scaled(first, scale, min);
      v[2 * i + 1] = scaled(second, scale, min);
    }
  }
  wait_inputs();  // the product before may still read what is written now
  let_next_start();
  unsigned char* out = to + (row * l.k_padded + u * unit) * 2;
#pragma unroll
  for (int t = 0; t < steps / 2; ++t) {  // neighbours swap halves of two steps: each has 16 bytes in a row then
    const int kept = 2 * t + odd;
    const uint32_t low = __shfl_xor_sync(all_lanes, odd ? v[4 * t] : v[4 * t + 2], 1);
    const uint32_t high = __shfl_xor_sync(all_lanes, odd ? v[4 * t + 1] : v[4 * t + 3], 1);
    const uint4 q = odd ? make_uint4(low, high, v[4 * t + 2], v[4 * t + 3]) : make_uint4(v[4 * t], v[4 * t + 1], low, high);
    if (there) *reinterpret_cast<uint4*>(out + (16 * kept + 4 * (quarter - odd)) * 2) = q;
  }
}

// Rows with one scale each: 16 elements a thread.
template <Codes codes>
__global__ void __launch_bounds__(256) dequantize_rows(Piece l, const unsigned char* piece, int64_t begin, unsigned char* to) {
  constexpr int steps = codes == Codes::bf16 ? 2 : 4;
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16, row = blockIdx.y, from = begin + row;
  if (at >= l.k_padded) return;
  const float scale = __ldg(reinterpret_cast<const float*>(piece + l.scales_at) + from);
  const uint4 q = __ldg(reinterpret_cast<const uint4*>(piece + from * l.row_bytes + at));
  uint32_t v[2 * steps];
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    uint32_t first, second;
    widen<codes>(q, i, l.zero, first, second);
    v[2 * i] = scaled(first, scale, 0.0f);
    v[2 * i + 1] = scaled(second, scale, 0.0f);
  }
  wait_inputs();
  let_next_start();
  uint4* out = reinterpret_cast<uint4*>(to + (row * l.k_padded + at) * 2);
  out[0] = make_uint4(v[0], v[1], v[2], v[3]);
  out[1] = make_uint4(v[4], v[5], v[6], v[7]);
}

}  // namespace

void dequantize(Context* c, const Piece& l, const unsigned char* piece, int64_t begin, int64_t rows, unsigned char* to) {
  if (l.tiled) {
    const Shape shape{dim3(blocks(l.units, 4), blocks(rows, tile_rows)), dim3(256)};
    if (l.codes == Codes::u4) return launch(c, dequantize_tiles<Codes::u4>, shape, l, piece, begin, rows, to);
    if (l.codes == Codes::e4m3) return launch(c, dequantize_tiles<Codes::e4m3>, shape, l, piece, begin, rows, to);
    return launch(c, dequantize_tiles<Codes::i8>, shape, l, piece, begin, rows, to);
  }
  const Shape shape{dim3(blocks(l.k_padded, 16 * 256), static_cast<unsigned>(rows)), dim3(256)};
  if (l.codes == Codes::e4m3) return launch(c, dequantize_rows<Codes::e4m3>, shape, l, piece, begin, to);
  launch(c, dequantize_rows<Codes::i8>, shape, l, piece, begin, to);
}

}  // namespace orlop::cuda
