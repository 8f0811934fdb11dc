// Hopper's asynchronous products, barriers in shared memory and tensor copies (PTX ISA 9.0, sections on wgmma,
// mbarrier and cp.async.bulk.tensor), as far as kernels here need them. Products and registers of
// warpgroups are for sm_90a alone, copies and waits for compute capability 9.0 and up.
#pragma once
#include <cuda.h>

#include "backend/cuda/common.cuh"

namespace orlop::cuda {

// ---- barriers in shared memory

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// What barrier_init() did is there for copies, and for other threads once the block has met.
__device__ inline void barriers_there() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Until the phase of that parity is complete.
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra out;\nbra again;\nout:\n}\n" ::"r"(barrier), "r"(parity) : "memory");
}
// What lies at such an address. Through one, the compiler has no pointer to make again and again.
__device__ inline uint4 shared_16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}
__device__ inline uint2 shared_8(uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}
__device__ inline uint32_t shared_4(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
// v, of which the assembler does not know how it was made: it stays in a register. All lanes of a warp.
__device__ inline uint32_t kept(uint32_t v) { return __shfl_sync(all_lanes, v, static_cast<int>(threadIdx.x) % 32); }
// What this thread stored to shared memory is there for tensor cores and copies, once it has passed a barrier.
__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Of some of a block's warps.
__device__ inline void group_sync(int id, int threads) { asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ inline void group_arrive(int id, int threads) { asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
// Whether it is so for any of them; waits as group_sync does.
__device__ inline bool group_any(int id, int threads, bool mine) {
  int any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.b32 p, %3, 0;\nbarrier.red.or.pred q, %1, %2, p;\nselp.b32 %0, 1, 0, q;\n}\n"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(mine))
      : "memory");
  return any;
}

// A box of a tensor to shared memory; its bytes complete the barrier's phase.
__device__ inline void copy_box(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
               : "memory");
}
// A box of rows, as its map says, from element k of `row` on.
__device__ inline void copy_rows(uint32_t to, const CUtensorMap* map, int k, int row, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(k), "r"(row),
               "r"(barrier)
               : "memory");
}
// Bytes that lie together, a multiple of 16.
__device__ inline void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// The same, of what is read once: it leaves the second-level cache before anything else does.
__device__ inline uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy_bytes_once(uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes),
               "r"(barrier), "l"(policy)
               : "memory");
}
__device__ inline void copy_rows_once(uint32_t to, const CUtensorMap* map, int k, int row, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map),
               "r"(k), "r"(row), "r"(barrier), "l"(policy)
               : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// To the second-level cache.
__device__ inline void prefetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory"); }

// ---- words that blocks pass to each other: each is whole, and that is all that is said of their order

__device__ inline void send_word(uint64_t* to, uint64_t v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory"); }
// Two, at a multiple of 16 bytes.
__device__ inline void receive_words(const uint64_t* from, uint64_t& a, uint64_t& b) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}

// Four numbers that are each whole by themselves; one of these bits was never sent.
__device__ inline void send_four(float4* to, float4 v) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ inline float4 receive_four(const float4* from) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
  return v;
}
__device__ inline bool whole(const float4& v) {
  return __float_as_uint(v.x) != ~0u && __float_as_uint(v.y) != ~0u && __float_as_uint(v.z) != ~0u && __float_as_uint(v.w) != ~0u;
}

template <int Count>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

// ---- products of a warpgroup

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}
// Nothing that uses the registers moves across it.
template <int N>
__device__ inline void hold(float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(v[i])::"memory");
}

// A matrix in shared memory, in squares of 8 rows of 128 bytes whose 16-byte pieces are turned by the row (piece ^
// row): `down` bytes from one to the next 8 rows, `across` bytes to the next 64 columns where a product's step
// goes over several (values). Steps of 16 rows or of 32 bytes within a row are added to it, in units of 16 bytes.
__device__ inline uint64_t swizzled(uint32_t address, int across, int down) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{static_cast<uint32_t>(across) >> 4} << 16 | uint64_t{static_cast<uint32_t>(down) >> 4} << 32 |
         uint64_t{1} << 62;
}

// Registers of an accumulator, as the assembler counts them and as it is given them.
#define ORLOP_D8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ORLOP_D16 ORLOP_D8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ORLOP_D32 ORLOP_D16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ORLOP_D40 ORLOP_D32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ORLOP_D48 ORLOP_D40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ORLOP_D64 ORLOP_D48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ORLOP_F8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ORLOP_F32(d, i) ORLOP_F8(d, i), ORLOP_F8(d, i + 8), ORLOP_F8(d, i + 16), ORLOP_F8(d, i + 24)
#define ORLOP_OUT8(d) ORLOP_F8(d, 0)
#define ORLOP_OUT16(d) ORLOP_F8(d, 0), ORLOP_F8(d, 8)
#define ORLOP_OUT32(d) ORLOP_F32(d, 0)
#define ORLOP_OUT40(d) ORLOP_F32(d, 0), ORLOP_F8(d, 32)
#define ORLOP_OUT48(d) ORLOP_F32(d, 0), ORLOP_F8(d, 32), ORLOP_F8(d, 40)
#define ORLOP_OUT64(d) ORLOP_F32(d, 0), ORLOP_F32(d, 32)

// Products of 64 rows with N columns over 16: both from shared memory, each row along its 16 (scores); or the
// first from registers and the second across (values) or along, too. accumulate 0: what was there does not count.
template <class T, int N>
struct Product;

#define ORLOP_PRODUCT(T, NAME, N, R, A, B, C, D, E, F)                                                                    \
  template <>                                                                                                             \
  struct Product<T, N> {                                                                                                  \
    __device__ static inline void scores(float (&d)[R], uint64_t a, uint64_t b, int accumulate) {                         \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #C ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N                   \
                   "k16.f32." NAME "." NAME " {" ORLOP_D##R "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n"                    \
                   : ORLOP_OUT##R(d)                                                                                      \
                   : "l"(a), "l"(b), "r"(accumulate));                                                                    \
    }                                                                                                                     \
    __device__ static inline void values(float (&d)[R], const uint32_t* a, uint64_t b, int accumulate) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #F ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N                   \
                   "k16.f32." NAME "." NAME " {" ORLOP_D##R "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E               \
                   ", p, 1, 1, 1;\n}\n"                                                                                   \
                   : ORLOP_OUT##R(d)                                                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                                \
    }                                                                                                                     \
    __device__ static inline void along(float (&d)[R], const uint32_t* a, uint64_t b, int accumulate) {                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #F ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N                   \
                   "k16.f32." NAME "." NAME " {" ORLOP_D##R "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E               \
                   ", p, 1, 1, 0;\n}\n"                                                                                   \
                   : ORLOP_OUT##R(d)                                                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                                \
    }                                                                                                                     \
  };
ORLOP_PRODUCT(__nv_bfloat16, "bf16", 16, 8, 8, 9, 10, 11, 12, 13)
ORLOP_PRODUCT(__nv_bfloat16, "bf16", 32, 16, 16, 17, 18, 19, 20, 21)
ORLOP_PRODUCT(__nv_bfloat16, "bf16", 64, 32, 32, 33, 34, 35, 36, 37)
ORLOP_PRODUCT(__half, "f16", 64, 32, 32, 33, 34, 35, 36, 37)
ORLOP_PRODUCT(__nv_bfloat16, "bf16", 80, 40, 40, 41, 42, 43, 44, 45)
ORLOP_PRODUCT(__half, "f16", 80, 40, 40, 41, 42, 43, 44, 45)
ORLOP_PRODUCT(__nv_bfloat16, "bf16", 96, 48, 48, 49, 50, 51, 52, 53)
ORLOP_PRODUCT(__half, "f16", 96, 48, 48, 49, 50, 51, 52, 53)
ORLOP_PRODUCT(__nv_bfloat16, "bf16", 128, 64, 64, 65, 66, 67, 68, 69)
ORLOP_PRODUCT(__half, "f16", 128, 64, 64, 65, 66, 67, 68, 69)
#undef ORLOP_PRODUCT

}  // namespace orlop::cuda
