// What stores a row of keys and values is told; and a row on its way into the cache: per-head RMS norm, rotary
// embedding (Su et al. 2021, half-split pairs), rounding. Every sum is made as the CPU's reference makes it
// (cpu/kv_store_ref.cc).
#pragma once
#include "backend/cuda/common.cuh"

#include "backend/cuda/kv_layout.cuh"

namespace orlop::cuda {

struct StoreArgs {
  float* qkv;
  const int32_t* slots;
  const float* cos;
  const float* sin;
  const float* q_norm;
  const float* k_norm;
  unsigned char* pages;
  unsigned char* tails;
  const AttentionSeq* seqs;
  int64_t qkv_stride;
  int32_t heads, kv_heads, head_dim, page_tokens;
  int32_t half, rows, seq_count;
  KvType type;
  uint8_t unused[3];
  float eps;
  int32_t one_each;  // as many sequences as rows: one row each
};
static_assert(sizeof(StoreArgs) == 10 * 8 + 10 * 4);

// The store that was put last, if it is of these rows alone, one of each sequence, and of their keys and values as
// bf16 or f16: it leaves the list, and is the caller's to do. False: it is not.
bool take_store(Context*, const AttentionArgs&, StoreArgs*);
void put_store(Context*, const StoreArgs&);  // back into the list

// ---- numbers as the CPU has them

__device__ inline float bf16_float(uint32_t bits) { return __uint_as_float(bits << 16); }
__device__ inline uint16_t float_bf16(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
__device__ inline uint16_t float_f16(float x) {  // what is finite stays so
  if (x != x) return static_cast<uint16_t>(__float_as_uint(x) >> 16 & 0x8000) | 0x7e00;
  return __half_as_ushort(__float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f)));
}

// A head of a row, normed if there is a weight, and turned, in place, in any memory. A warp, which sees all of it only
// after __syncwarp().
__device__ inline void norm_and_turn(float* x, int32_t dims, const float* weight, float eps, const float* cos, const float* sin, int32_t half, int32_t lane) {
  if (weight) {
    // Sixteen sums, folded in halves.
    float sum = 0;
    for (int32_t i = lane % 16; i < dims; i += 16) sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));
    for (int step = 8; step; step /= 2) sum = __fadd_rn(sum, __shfl_down_sync(all_lanes, sum, step, 16));
    sum = __shfl_sync(all_lanes, sum, 0);
    const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(dims)), eps)));
    __syncwarp();
    for (int32_t i = lane; i < dims; i += 32) x[i] = __fmul_rn(__fmul_rn(x[i], inverse), weight[i]);
    __syncwarp();
  }
  for (int32_t i = lane; i < half; i += 32) {
    const float p = x[i], q = x[i + half], c = cos[i], s = sin[i];
    x[i] = __fsub_rn(__fmul_rn(p, c), __fmul_rn(q, s));
    x[i + half] = __fadd_rn(__fmul_rn(q, c), __fmul_rn(p, s));
  }
}

}  // namespace orlop::cuda
