// The small ops: embedding, rotary tables, norm; gather.
#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/weights.cuh"

namespace orlop::cuda {
namespace {

// Four neighbours of a row: where a code is packed they are (see place()) one word, and share a scale.
__device__ inline float4 weights_of_4(const Piece& l, const unsigned char* at, int64_t row, int64_t k) {
  if (l.codes == Codes::f32) return *reinterpret_cast<const float4*>(at + row * l.row_bytes + 4 * k);
  if (l.codes == Codes::bf16) {
    const uint2 v = *reinterpret_cast<const uint2*>(at + row * l.row_bytes + 2 * k);
    return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u)};
  }
  const int64_t unit = unit_of(l.codes), in_unit = k % unit;
  const unsigned char* codes = l.tiled ? at + l.at(row, k / unit) : at + row * l.row_bytes;
  float4 v;
  if (l.codes == Codes::u4) {
    // Of the word's nibbles 0, 4, 1, 5 or 2, 6, 3, 7.
    const int64_t first = place(in_unit, 128);
    const uint32_t w = reinterpret_cast<const uint32_t*>(codes)[first / 8] >> (first % 8 ? 8 : 0);
    const auto code = [&](int shift) { return static_cast<float>(static_cast<int>(w >> shift & 15) - l.zero); };
    v = {code(0), code(16), code(4), code(20)};
  } else {
    const uint32_t w = *reinterpret_cast<const uint32_t*>(codes + (l.tiled ? place(in_unit, unit) : k));
    const auto code = [&](int i) {
      const auto byte = static_cast<unsigned char>(w >> 8 * i);
      if (l.codes == Codes::i8) return static_cast<float>(static_cast<int8_t>(byte));
      __nv_fp8_e4m3 number;
      number.__x = byte;
      return static_cast<float>(number);
    };
    v = {code(0), code(1), code(2), code(3)};
  }
  if (!l.scaled) return v;
  const int64_t s = l.tiled ? in_unit / (unit / l.sub) : row;
  const float scale = reinterpret_cast<const float*>(at + (l.tiled ? l.scale_at(row, k / unit) : l.scales_at))[s];
  const float least = l.has_min ? reinterpret_cast<const float*>(at + l.min_at(row, k / unit))[s] : 0.0f;  // such are tiled
  return {v.x * scale + least, v.y * scale + least, v.z * scale + least, v.w * scale + least};
}

constexpr int row_threads = 256;       // of a block; each has four elements of a row
constexpr int64_t block_elements = 4 * row_threads;

// grid: [rows, blocks of k]
__global__ void __launch_bounds__(row_threads) embed_rows(Piece l, const unsigned char* packed, const int32_t* ids, const SampleResult* previous,
                                                          float scale, float* out) {
  let_next_start();
  wait_inputs();
  const int64_t at = blockIdx.x, k = blockIdx.y * block_elements + 4 * threadIdx.x;
  if (k >= l.k) return;
  const int32_t id = ids[at];
  const int64_t row = id >= 0 ? id : max(previous[-1 - id].token, 0);
  const float4 v = weights_of_4(l, packed, row, k);  // k_padded is whole fours
  float* to = out + at * l.k + k;
  if (l.k % 4 == 0) {
    *reinterpret_cast<float4*>(to) = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
  } else {
    const float each[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4 && k + i < l.k; ++i) to[i] = each[i] * scale;
  }
}

// block: [64, 4 rows]
__global__ void rope_rows(RopeTableArgs a) {
  let_next_start();
  wait_inputs();
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= a.rows) return;
  const auto position = static_cast<float>(a.positions[row]);
  for (int i = threadIdx.x; i < a.half; i += blockDim.x) {
    // As the CPU has it: a float product, its cosine and sine in double, rounded once.
    const float angle = __fmul_rn(position, a.inv_freq[i]);
    double sine, cosine;
    sincos(static_cast<double>(angle), &sine, &cosine);
    a.cos[row * a.half + i] = static_cast<float>(cosine) * a.scale;
    a.sin[row * a.half + i] = static_cast<float>(sine) * a.scale;
  }
}

__device__ inline bool whole_fours(const void* p, int64_t stride) { return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 4 == 0; }

// grid: [rows]
__global__ void __launch_bounds__(norm_threads) norm_rows(NormArgs a) {
  __shared__ float parts[norm_threads / 32];
  let_next_start();
  wait_inputs();
  const float* x = a.x + blockIdx.x * a.x_stride;
  float* out = a.out + blockIdx.x * a.out_stride;
  const float scale = norm_scale(x, a.dim, a.eps, parts);
  if (a.dim % 4 == 0 && whole_fours(a.x, a.x_stride) && whole_fours(a.out, a.out_stride) && whole_fours(a.weight, 4)) {
    for (int64_t i = threadIdx.x; i < a.dim / 4; i += norm_threads) {
      const float4 v = reinterpret_cast<const float4*>(x)[i], w = reinterpret_cast<const float4*>(a.weight)[i];
      reinterpret_cast<float4*>(out)[i] = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
    }
  } else {
    for (int64_t i = threadIdx.x; i < a.dim; i += norm_threads) out[i] = x[i] * scale * a.weight[i];
  }
}

// grid: [rows, blocks of dim]
__global__ void __launch_bounds__(row_threads) gather_rows(GatherArgs a) {
  let_next_start();
  wait_inputs();
  const float* x = a.x + a.index[blockIdx.x] * a.x_stride;
  float* out = a.out + blockIdx.x * a.dim;
  const int64_t i = blockIdx.y * block_elements + 4 * threadIdx.x;
  if (i + 4 <= a.dim && a.dim % 4 == 0 && whole_fours(a.x, a.x_stride) && whole_fours(a.out, 4))
    *reinterpret_cast<float4*>(out + i) = *reinterpret_cast<const float4*>(x + i);
  else
    for (int64_t e = i; e < min(i + 4, a.dim); ++e) out[e] = x[e];
}

}  // namespace

void embed(Context* c, const EmbedArgs& a, PluginStatus*) {
  launch(c, embed_rows, Shape{dim3(blocks(a.rows, 1), blocks(a.desc->k, block_elements)), dim3(row_threads)}, piece_of(*a.desc, 0, 0),
         static_cast<const unsigned char*>(a.packed), a.ids, a.previous, a.scale, a.out);
}

void rope_table(Context* c, const RopeTableArgs& a, PluginStatus*) {
  launch(c, rope_rows, Shape{dim3(blocks(a.rows, 4)), dim3(64, 4)}, a);
}

void norm(Context* c, const NormArgs& a, PluginStatus*) {
  launch(c, norm_rows, Shape{dim3(blocks(a.rows, 1)), dim3(norm_threads)}, a);
}

void gather(Context* c, const GatherArgs& a, PluginStatus*) {
  launch(c, gather_rows, Shape{dim3(blocks(a.rows, 1), blocks(a.dim, block_elements)), dim3(row_threads)}, a);
}

}  // namespace orlop::cuda
