// What attention is made of: tensor core products of m16n8k16, matrices from shared memory, asynchronous copies
// into it (compute capability 8.0 and up).
#pragma once
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

// 16 bytes from global to shared memory; zeros if not `seen` (then `from` is not read).
__device__ inline void copy16(uint32_t to, const void* from, bool seen = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(seen ? 16 : 0) : "memory");
}
// Into the second-level cache.
__device__ inline void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
__device__ inline void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Four 8 x 8 matrices of 16 bits; lanes 8 i to 8 i + 7 say where the rows of matrix i begin.
__device__ inline void load_matrices(uint32_t at, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}
__device__ inline void load_transposed(uint32_t at, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}
// An 8 x 8 matrix of 16 bits held by a warp, turned.
__device__ inline uint32_t transposed(uint32_t v) {
  uint32_t to;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(v));
  return to;
}

// sum += a [16 x 16] b [16 x 8], bf16 or f16
template <bool half>
__device__ inline void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (half)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The first is the lower half.
__device__ inline uint32_t pack_bf16(float x, float y) {
  uint32_t to;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(to) : "f"(y), "f"(x));
  return to;
}
__device__ inline uint32_t pack_f16(float x, float y) {
  uint32_t to;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(to) : "f"(y), "f"(x));
  return to;
}
__device__ inline float finite_f16(float x) { return x != x ? x : fminf(fmaxf(x, -65504.0f), 65504.0f); }
__device__ inline uint32_t pack_f16_finite(float x, float y) { return pack_f16(finite_f16(x), finite_f16(y)); }

__device__ inline uint32_t minus_f16x2(uint32_t x, uint32_t y) {
  uint32_t to;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(to) : "r"(x), "r"(y));
  return to;
}
__device__ inline uint32_t times_f16x2(uint32_t x, uint32_t y) {
  uint32_t to;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(to) : "r"(x), "r"(y));
  return to;
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A constant that the compiler keeps in a register.
template <uint32_t value>
__device__ inline uint32_t in_register() {
  uint32_t v;
  asm volatile("mov.b32 %0, %1;" : "=r"(v) : "n"(value));
  return v;
}

}  // namespace orlop::cuda
