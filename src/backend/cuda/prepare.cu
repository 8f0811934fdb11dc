// Rows on their way into a product of many rows (norm, gather, rounding to bf16, e4m3 or int8), and what it
// left on its way out (scales, bias, gate). Everything here moves bytes: 16 of them a thread at a time.
#include <cuda_fp8.h>

#include "backend/cuda/gemm.cuh"

namespace orlop::cuda {
namespace {

__device__ inline uint32_t narrow_pair(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}

__device__ inline void widen8(const uint4& q, float (&v)[8]) {
  const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = __uint_as_float(words[i] << 16);
    v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// Eight neighbours; `whole`: all there, and aligned.
__device__ inline void load8(const float* from, bool whole, int64_t count, float (&v)[8]) {
  if (whole) {
    const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < count ? from[i] : 0.0f;
}
__device__ inline void load8(const __nv_bfloat16* from, bool whole, int64_t count, float (&v)[8]) {
  if (whole) return widen8(*reinterpret_cast<const uint4*>(from), v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < count ? __bfloat162float(from[i]) : 0.0f;
}
__device__ inline void load8(const int32_t* from, bool whole, int64_t count, float (&v)[8]) {
  if (whole) {
    const int4 a = *reinterpret_cast<const int4*>(from), b = *reinterpret_cast<const int4*>(from + 4);
    const int32_t all[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = static_cast<float>(all[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < count ? static_cast<float>(from[i]) : 0.0f;
}

__device__ inline void store8(float* to, bool whole, int64_t count, const float (&v)[8]) {
  if (whole) {
    reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) to[i] = v[i];
}
__device__ inline void store8(__nv_bfloat16* to, bool whole, int64_t count, const float (&v)[8]) {
  if (whole) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(narrow_pair(v[0], v[1]), narrow_pair(v[2], v[3]), narrow_pair(v[4], v[5]), narrow_pair(v[6], v[7]));
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) to[i] = __float2bfloat16_rn(v[i]);
}

template <class T>
__device__ bool aligned(const T* base, int64_t stride) {
  return reinterpret_cast<uintptr_t>(base) % 16 == 0 && stride * sizeof(T) % 16 == 0;
}

// One of all threads' values; every thread gets it. The order is fixed.
template <class T, class F>
__device__ T over_block(T v, F join) {
  __shared__ T of_warp[32];
  for (int step = 16; step; step /= 2) v = join(v, __shfl_xor_sync(all_lanes, v, step));
  __syncthreads();  // of_warp may still be read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  v = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) v = join(v, of_warp[w]);
  return v;
}

// A block for each row, which stays in registers: chunks of eight elements a thread.
template <Elem elem, class X, int threads, int chunks>
__global__ void __launch_bounds__(threads) rows(RowsArgs a) {
  // The norm's weights wait for nothing that rows do; where registers are left for them, they come first.
  constexpr bool early = chunks <= 2;
  float w[early ? chunks : 1][8] = {};
  const auto load_weights = [&](int c, float (&to)[8]) {
    const int64_t at = (int64_t{c} * threads + threadIdx.x) * 8;
    if (a.k_map) {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i] = at + i < a.k ? a.norm_weight[a.k_map[at + i]] : 0.0f;
    } else {
      load8(a.norm_weight + at, reinterpret_cast<uintptr_t>(a.norm_weight) % 16 == 0 && at + 8 <= a.k, a.k - at, to);
    }
  };
  if (early && a.norm_weight)
#pragma unroll
    for (int c = 0; c < (early ? chunks : 0); ++c) load_weights(c, w[c]);
  wait_inputs();
  let_next_start();
  const int64_t row = blockIdx.x;
  const X* x = reinterpret_cast<const X*>(a.x) + row * a.x_stride;
  const bool even = aligned(reinterpret_cast<const X*>(a.x), a.x_stride);
  float v[chunks][8];
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    const int64_t at = (int64_t{c} * threads + threadIdx.x) * 8;
    if (a.k_map) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] = at + i < a.k ? static_cast<float>(x[a.k_map[at + i]]) : 0.0f;
    } else {
      load8(x + at, even && at + 8 <= a.k, a.k - at, v[c]);
    }
  }
  if (a.norm_weight) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < chunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(v[c][i], v[c][i], sum);
    sum = over_block(sum, [](float p, float q) { return p + q; });
    const float factor = 1.0f / sqrtf(sum / static_cast<float>(a.k) + a.eps);
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      if (!early) load_weights(c, w[0]);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] = v[c][i] * factor * w[early ? c : 0][i];
    }
  }
  float scale = 1.0f, inverse = 1.0f;
  if (elem != Elem::bf16) {
    constexpr float most = elem == Elem::i8 ? 127.0f : 448.0f;  // e4m3's largest
    uint32_t largest = 0;  // the bits of a magnitude: NaN is above all
#pragma unroll
    for (int c = 0; c < chunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = max(largest, __float_as_uint(v[c][i]) & 0x7fffffffu);
    largest = over_block(largest, [](uint32_t p, uint32_t q) { return max(p, q); });
    const float amax = __uint_as_float(largest);
    scale = amax / most;
    inverse = most / amax;
    if (!(amax >= 0x1p-110f)) scale = inverse = 0.0f;
    if (largest >= 0x7f800000u) {  // the row's results are no numbers either
      scale = __uint_as_float(0x7fc00000u);
      inverse = 0.0f;
    }
    if (threadIdx.x == 0) a.scales[row] = scale;
  }
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    const int64_t at = (int64_t{c} * threads + threadIdx.x) * 8;
    if (at >= a.k_padded) continue;
    if constexpr (elem == Elem::bf16) {
      if (a.tile) {
        const int64_t all = (a.m + a.tile - 1) / a.tile * a.tile, piece = at % 64 / 16 * 2, turn = row % 8;
        unsigned char* to = a.to + (at / 64 * all + row) * 128 + at % 16;
        *reinterpret_cast<uint2*>(to + (piece ^ turn) * 16) = make_uint2(narrow_pair(v[c][0], v[c][1]), narrow_pair(v[c][4], v[c][5]));
        *reinterpret_cast<uint2*>(to + ((piece + 1) ^ turn) * 16) = make_uint2(narrow_pair(v[c][2], v[c][3]), narrow_pair(v[c][6], v[c][7]));
        continue;
      }
      store8(reinterpret_cast<__nv_bfloat16*>(a.to) + row * a.k_padded + at, true, 8, v[c]);
    } else {
      uint32_t bytes[2] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] = inverse == 0.0f ? 0.0f : v[c][i] * inverse;
      if constexpr (elem == Elem::i8) {
#pragma unroll
        for (int i = 0; i < 8; ++i) bytes[i / 4] |= (static_cast<uint32_t>(__float2int_rn(v[c][i])) & 255) << i % 4 * 8;
      } else {
#pragma unroll
        for (int i = 0; i < 8; i += 2)
          bytes[i / 4] |= uint32_t{__nv_cvt_float2_to_fp8x2(make_float2(v[c][i], v[c][i + 1]), __NV_SATFINITE, __NV_E4M3)} << i % 4 * 8;
      }
      *reinterpret_cast<uint2*>(a.to + row * a.k_padded + at) = make_uint2(bytes[0], bytes[1]);
    }
  }
}

template <Elem elem, class X>
bool start_rows(Context* c, const RowsArgs& a) {
  const auto go = [&](auto* kernel, unsigned threads) {
    launch(c, kernel, Shape{dim3(static_cast<unsigned>(a.m)), dim3(threads)}, a);
    return true;
  };
  if (a.k_padded <= 2048) return go(rows<elem, X, 256, 1>, 256);
  if (a.k_padded <= 4096) return go(rows<elem, X, 256, 2>, 256);
  if (a.k_padded <= 8192) return go(rows<elem, X, 512, 2>, 512);
  if (a.k_padded <= 16384) return go(rows<elem, X, 512, 4>, 512);
  if (a.k_padded <= 32768) return go(rows<elem, X, 1024, 4>, 1024);
  if (a.k_padded <= 65536) return go(rows<elem, X, 1024, 8>, 1024);
  return false;
}

template <class R>
__device__ void raw8(const FinishArgs& a, int64_t row, int64_t column, bool whole, int64_t count, float (&v)[8]) {
  load8(reinterpret_cast<const R*>(a.raw) + row * a.raw_stride + column, whole, count, v);
  const bool even = column % 4 == 0;  // and the vectors begin at 16 bytes: see finish()
  if (a.w_scales) {
    float w[8];
    const float x = a.x_scales[row];
    load8(a.w_scales + column, whole && even, count, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= w[i] * x;
  }
  if (a.bias) {
    float w[8];
    load8(a.bias + column, whole && even, count, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += w[i];
  }
}

__device__ inline float activate(float g, bool gelu) {
  // gelu: g (1 + tanh u) / 2 = g / (1 + e^(-2 u))
  const float power = gelu ? -1.5957691216057308f * (g + 0.044715f * g * g * g) : -g;
  return __fdividef(g, 1.0f + __expf(fminf(power, 80.0f)));  // whose divisor stays below 2^126
}

// Eight columns of a row, a thread.
template <class R, class Out>
__global__ void __launch_bounds__(256) finish_rows(FinishArgs a, bool even) {
  wait_inputs();
  let_next_start();
  const int64_t row = blockIdx.x, at = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 8;
  if (at >= a.n) return;
  const int64_t count = a.n - at;
  const bool whole = even && count >= 8;
  float v[8];
  raw8<R>(a, row, at, whole, count, v);
  if (a.glu != Glu::none) {
    float u[8];
    raw8<R>(a, row, a.n + at, whole, count, u);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = activate(v[i], a.glu == Glu::gelu_tanh) * u[i];
  }
  Out* to = reinterpret_cast<Out*>(a.out) + row * a.out_stride + at;
  if (a.accumulate) {
    float before[8];
    load8(to, whole, count, before);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += before[i];
  }
  store8(to, whole, count, v);
}

}  // namespace

bool prepare_rows(Context* c, Elem elem, const RowsArgs& a) {
  if (elem == Elem::e4m3) return a.narrow ? start_rows<Elem::e4m3, __nv_bfloat16>(c, a) : start_rows<Elem::e4m3, float>(c, a);
  if (elem == Elem::i8) return a.narrow ? start_rows<Elem::i8, __nv_bfloat16>(c, a) : start_rows<Elem::i8, float>(c, a);
  return a.narrow ? start_rows<Elem::bf16, __nv_bfloat16>(c, a) : start_rows<Elem::bf16, float>(c, a);
}

void finish(Context* c, const FinishArgs& a) {
  const auto rest = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16; };
  const int64_t raw_bytes = a.type == Raw::bf16 ? 2 : 4, out_bytes = a.narrow ? 2 : 4;
  const bool even = a.n % 8 == 0 && rest(a.raw) + rest(a.out) + rest(a.w_scales) + rest(a.bias) == 0 &&
                    a.raw_stride * raw_bytes % 16 == 0 && a.out_stride * out_bytes % 16 == 0;
  const unsigned threads = a.n >= 2048 ? 256 : 128;
  const Shape shape{dim3(static_cast<unsigned>(a.m), blocks(a.n, 8 * threads)), dim3(threads)};
  const auto go = [&](auto* wide, auto* narrow) { a.narrow ? launch(c, narrow, shape, a, even) : launch(c, wide, shape, a, even); };
  if (a.type == Raw::bf16) return go(finish_rows<__nv_bfloat16, float>, finish_rows<__nv_bfloat16, __nv_bfloat16>);
  if (a.type == Raw::i32) return go(finish_rows<int32_t, float>, finish_rows<int32_t, __nv_bfloat16>);
  go(finish_rows<float, float>, finish_rows<float, __nv_bfloat16>);
}

}  // namespace orlop::cuda
