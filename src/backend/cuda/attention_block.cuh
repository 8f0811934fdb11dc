// Attention in a fixed order of operations: what a row's output is does not depend on which rows it is worked
// out with, nor on where a call or a block of threads begins. Keys stand in blocks of 64 at absolute
// positions, four of which are a chunk (attention_chunk). A chunk starts from nothing, its blocks are taken
// online in ascending order (Milakov and Gimelshein 2018; Dao et al. 2022), and chunks are folded in ascending
// order. A block that a row sees nothing of leaves its state as it is, to the bit but for the sign of zeros,
// which finish() takes away: one kernel may walk it and another not.
//
// A warp has 16 rows (of tensor cores' m16n8k16): lane l has rows l / 4 and + 8 and, of each 8 columns,
// 2 (l % 4) and the next. Rows of queries, keys and values in shared memory are row_pitch bytes apart.
#pragma once
#include "backend/cuda/common.cuh"

namespace orlop::cuda {

constexpr int block_keys = 64;
static_assert(attention_chunk % block_keys == 0);

// An odd number of pieces of 16 bytes: eight rows' pieces lie in different banks.
ORLOP_BOTH constexpr int row_pitch(int dims) { return dims * 2 + 16; }

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t pair_of(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t pair_of(__half, float low, float high) {
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}
// Queries, as the cache's type holds them: what is finite stays so, NaN stays NaN.
__device__ inline float within(__nv_bfloat16, float x) { return x; }
__device__ inline float within(__half, float x) { return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x; }

// Eight queries' elements as one piece of 16 bytes.
template <class T>
__device__ inline uint4 query_piece(const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
  const T t{};
  return {pair_of(t, within(t, a.x), within(t, a.y)), pair_of(t, within(t, a.z), within(t, a.w)),
          pair_of(t, within(t, b.x), within(t, b.y)), pair_of(t, within(t, b.z), within(t, b.w))};
}

// Whether any of a piece's eight elements is infinite or NaN.
__device__ inline bool not_finite(__nv_bfloat16, uint32_t pair) { return (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u; }
__device__ inline bool not_finite(__half, uint32_t pair) { return (pair & 0x7c00u) == 0x7c00u || (pair & 0x7c000000u) == 0x7c000000u; }
template <class T>
__device__ inline bool not_finite(const uint4& piece) {
  const T t{};
  return not_finite(t, piece.x) || not_finite(t, piece.y) || not_finite(t, piece.z) || not_finite(t, piece.w);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_turned(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void multiply(__nv_bfloat16, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(__half, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Of a warp's rows: maximum of the scores times c, sum of weights (this lane's share, until finish_chunk), and
// weighted values.
template <int Dims>
struct RowStates {
  float top[2], sum[2];
  float out[Dims / 8][4];  // row l / 4: [0], [1]; row l / 4 + 8: [2], [3]
  __device__ void clear() {
    top[0] = top[1] = -INFINITY;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int i = 0; i < Dims / 8; ++i) out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
  }
};

// The state and 64 more keys. Addresses in shared memory: of the warp's 16 queries, of the block's keys and
// values. c: the scores' scale times log2 e. Masked: key `key + i` (key: the block's first) is seen by row r
// if oldest[r] <= key + i <= newest[r]; else all are.
template <class T, bool Masked, int Dims>
__device__ inline void add_block(RowStates<Dims>& rows, uint32_t queries, uint32_t keys, uint32_t values, float c, int32_t key, const int32_t (&oldest)[2],
                                 const int32_t (&newest)[2]) {
  constexpr int pitch = row_pitch(Dims);
  const int lane = threadIdx.x % 32;
  const T t{};
  float s[block_keys / 8][4];
#pragma unroll
  for (int i = 0; i < block_keys / 8; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
  const uint32_t query_at = queries + lane % 16 * pitch + lane / 16 * 16;
  const uint32_t key_at = keys + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16;
#pragma unroll
  for (int d = 0; d < Dims / 16; ++d) {
    uint32_t q[4];
    load_matrices(q, query_at + 32 * d);
#pragma unroll
    for (int i = 0; i < block_keys / 16; ++i) {
      uint32_t k[4];
      load_matrices(k, key_at + 16 * i * pitch + 32 * d);
      multiply(t, s[2 * i], q, k[0], k[1]);
      multiply(t, s[2 * i + 1], q, k[2], k[3]);
    }
  }
  if constexpr (Masked) {
#pragma unroll
    for (int i = 0; i < block_keys / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t k = key + 8 * i + 2 * (lane % 4) + e % 2;
        if (k < oldest[e / 2] || k > newest[e / 2]) s[i][e] = -INFINITY;
      }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < block_keys / 8; ++i) top = fmaxf(top, fmaxf(s[i][2 * r], s[i][2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
    top = fmaxf(rows.top[r], __fmul_rn(top, c));
    const float base = top == -INFINITY ? 0.0f : top;
    const float keep = power_of_two(__fsub_rn(rows.top[r], base));
    rows.top[r] = top;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < block_keys / 8; ++i)
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        s[i][e] = power_of_two(__fmaf_rn(s[i][e], c, -base));
        sum = __fadd_rn(sum, s[i][e]);
      }
    rows.sum[r] = __fmaf_rn(rows.sum[r], keep, sum);
#pragma unroll
    for (int i = 0; i < Dims / 8; ++i) {
      rows.out[i][2 * r] = __fmul_rn(rows.out[i][2 * r], keep);
      rows.out[i][2 * r + 1] = __fmul_rn(rows.out[i][2 * r + 1], keep);
    }
  }
  const uint32_t value_at = values + (lane / 8 % 2 * 8 + lane % 8) * pitch + lane / 16 * 16;
#pragma unroll
  for (int i = 0; i < block_keys / 16; ++i) {
    const uint32_t p[4] = {pair_of(t, s[2 * i][0], s[2 * i][1]), pair_of(t, s[2 * i][2], s[2 * i][3]), pair_of(t, s[2 * i + 1][0], s[2 * i + 1][1]),
                           pair_of(t, s[2 * i + 1][2], s[2 * i + 1][3])};
#pragma unroll
    for (int d = 0; d < Dims / 16; ++d) {
      uint32_t v[4];
      load_turned(v, value_at + 16 * i * pitch + 32 * d);
      multiply(t, rows.out[2 * d], p, v[0], v[1]);
      multiply(t, rows.out[2 * d + 1], p, v[2], v[3]);
    }
  }
}

// Of a block with keys that some rows see and others do not: values that are not finite would get into rows
// that do not see them, since zero times infinity is NaN. They are taken out of shared memory and added to the
// rows that see them. All of the block's threads call it; rows: this warp's.
template <class T, int Dims>
__device__ inline void take_out_unfinite(RowStates<Dims>& rows, unsigned char* values, int32_t key, const int32_t (&oldest)[2], const int32_t (&newest)[2]) {
  constexpr int pitch = row_pitch(Dims);
  bool found = false;
  for (int i = threadIdx.x; i < block_keys * (Dims / 8); i += blockDim.x)
    found |= not_finite<T>(*reinterpret_cast<const uint4*>(values + i / (Dims / 8) * pitch + i % (Dims / 8) * 16));
  if (!__syncthreads_or(found)) return;
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < block_keys; ++k) {
    const T* row = reinterpret_cast<const T*>(values + k * pitch) + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < Dims / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float v = static_cast<float>(row[8 * i + e % 2]);
        if (!(fabsf(v) <= 3.4e38f) && key + k >= oldest[e / 2] && key + k <= newest[e / 2]) rows.out[i][e] += v;
      }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < block_keys * Dims; i += blockDim.x) {
    T& v = reinterpret_cast<T*>(values + i / Dims * pitch)[i % Dims];
    if (!(fabsf(static_cast<float>(v)) <= 3.4e38f)) v = T(0.0f);
  }
  __syncthreads();
}

// After a chunk's last block: the sums of the rows' lanes.
template <int Dims>
__device__ inline void finish_chunk(RowStates<Dims>& rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.sum[r] = __fadd_rn(rows.sum[r], __shfl_xor_sync(all_lanes, rows.sum[r], 1));
    rows.sum[r] = __fadd_rn(rows.sum[r], __shfl_xor_sync(all_lanes, rows.sum[r], 2));
  }
}

#endif

// Folds a chunk into what is there: by how much each of them counts, and the new maximum.
struct Shares {
  float top, old, added;
};
__device__ inline Shares shares(float old_top, float added_top) {
  const float top = fmaxf(old_top, added_top), base = top == -INFINITY ? 0.0f : top;
  return {top, power_of_two(__fsub_rn(old_top, base)), power_of_two(__fsub_rn(added_top, base))};
}
// Of a sum or of a value.
__device__ inline float folded(const Shares& s, float old_value, float added) { return __fmaf_rn(old_value, s.old, __fmul_rn(added, s.added)); }
// A row's output. There is no negative zero.
__device__ inline float finish(float value, float sum) { return __fadd_rn(__fdiv_rn(value, sum), 0.0f); }

}  // namespace orlop::cuda
