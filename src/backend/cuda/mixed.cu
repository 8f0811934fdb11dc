// Products of many rows of bf16 with tiled weights (layout.h), Hopper's way: codes come to shared memory as
// they are, become bf16 in registers, and are a warpgroup product's first operand from there (PTX ISA 9.0,
// wgmma); rows of x are the second, from shared memory. Reads a fraction of what bf16 weights would, and makes
// no copy of them.
//
// A tile is 256 rows of weights (gated: 128 of gate and as many of up) by N rows of x. All tiles' steps of k in
// one line are cut into equal shares, one a block (cf. Stream-K, arXiv:2301.03598). Blocks that share a tile
// leave their sums in memory, and each adds up a slice of it, in the order of k: bits depend on the shape alone.
#include <algorithm>

#include "backend/cuda/codes.cuh"
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/mixed_out.cuh"

namespace orlop::cuda {
namespace {

using namespace mixed_out;

constexpr int threads = consumers + 128;
constexpr int step_k = 128;      // of a stage
constexpr int slots = 16;        // tiles of 16 rows in a stage
constexpr int sums_barrier = 1;  // of the consumers
constexpr int most_stages = 6;

// How many steps of 16 of k a warpgroup starts together, and for how many of such groups it has registers: it makes
// weights of codes while the other's products run, or its own do. As measured on an H200; there a product with an
// operand in registers takes some 34 cycles more than the N / 2 of one from shared memory, which bounds this kernel.
template <int N>
struct Pace {
  static constexpr int at_once = N == 32 ? 4 : 1, buffers = N == 32 ? 1 : 2;
};

// 64 rows of weights from registers times N rows of x, 16 of k.
template <int N>
struct Step;
#define ORLOP_STEP(N, R, A, B, C, D, E, F)                                                                             \
  template <>                                                                                                         \
  struct Step<N> {                                                                                                    \
    __device__ static inline void run(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int accumulate) {             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #F ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N               \
                   "k16.f32.bf16.bf16 {" ORLOP_D##R "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E ", p, 1, 1, 0;\n}\n" \
                   : ORLOP_OUT##R(d)                                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                            \
    }                                                                                                                 \
  };
ORLOP_STEP(32, 16, 16, 17, 18, 19, 20, 21)
ORLOP_STEP(64, 32, 32, 33, 34, 35, 36, 37)
ORLOP_STEP(96, 48, 48, 49, 50, 51, 52, 53)
ORLOP_STEP(128, 64, 64, 65, 66, 67, 68, 69)
#undef ORLOP_STEP

// Rows of 128 bytes in shared memory, turned as RowsArgs says: 1,024 bytes to the next eight.
__device__ inline uint64_t turned_rows(uint32_t address) { return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62; }

__device__ inline uint32_t bits_of(__nv_bfloat162 v) { return *reinterpret_cast<const uint32_t*>(&v); }
__device__ inline __nv_bfloat162 pair_of(uint32_t v) { return *reinterpret_cast<const __nv_bfloat162*>(&v); }

// What makes weights of a row's codes while one scale holds, two at a time.
template <bool mins>
struct Scale;
// A scale in two parts of bf16, of which the second is within 2^-17 of what the first leaves out: the weight is
// rounded as if from the product itself, but for one that falls between two numbers of bf16.
template <>
struct Scale<false> {
  uint32_t high, low;
  __device__ void load(const float* from, int) {
    const float v = *from;
    const __nv_bfloat162 first = __float2bfloat162_rn(v);
    high = bits_of(first);
    low = bits_of(__float2bfloat162_rn(v - __low2float(first)));
  }
  __device__ uint32_t operator()(uint32_t codes) const {
    return bits_of(__hfma2(pair_of(codes), pair_of(high), __hmul2(pair_of(codes), pair_of(low))));
  }
};
template <>
struct Scale<true> {
  float scale, min;
  __device__ void load(const float* from, int sub) {
    scale = from[0];
    min = from[sub];
  }
  __device__ uint32_t operator()(uint32_t codes) const {
    return bits_of(__floats2bfloat162_rn(fmaf(__uint_as_float(codes << 16), scale, min), fmaf(__uint_as_float(codes & 0xffff0000u), scale, min)));
  }
};

// As widen() does it, with the mask in a register: one instruction less.
template <Codes codes>
__device__ inline void widen_fast(const uint4& v, int i, int32_t zero, uint32_t& first, uint32_t& second) {
  if constexpr (codes == Codes::u4) {
    const uint32_t w = word_of(v, i / 2) >> (i % 2 * 8), off = 0x43004300u + static_cast<uint32_t>(zero) * 0x10001u;
    const auto nibbles = [](uint32_t of) {
      uint32_t to;
      asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(to) : "r"(of), "r"(0x000f000fu), "r"(0x43004300u));
      return to;
    };
    first = less(nibbles(w), off);
    second = less(nibbles(w >> 4), off);
  } else {
    widen<codes>(v, i, zero, first, second);
  }
}

// Bytes from memory to shared memory; they complete the barrier's phase.
__device__ inline void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
               "r"(barrier)
               : "memory");
}

__device__ inline int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// The block whose share holds this step, and where a block's share begins.
__device__ inline int block_of(const Plan& p, int at) { return static_cast<int>(((int64_t{at} + 1) * p.blocks - 1) / p.total); }
__device__ inline int share(const Plan& p, int block) { return static_cast<int>(int64_t{p.total} * block / p.blocks); }

// Where a block's share stands: the tile and its step.
struct Place {
  int row_tile, m_tile, step;
  __device__ Place(const Plan& p, int at) : row_tile(at / p.steps / p.m_tiles), m_tile(at / p.steps % p.m_tiles), step(at % p.steps) {}
  __device__ bool next(const Plan& p) {  // whether another tile begins
    if (++step < p.steps) return false;
    step = 0;
    if (++m_tile == p.m_tiles) m_tile = 0, ++row_tile;
    return true;
  }
};

// The copying warp: every step of the block's share, stage after stage. A lane for each slot of weights, and two
// for the rows of x.
template <Codes codes, int N>
__device__ void fetch(const Args& args, uint32_t ring, uint32_t full, uint32_t empty) {
  const MixedArgs& a = args.a;
  const Plan& p = args.p;
  const int lane = threadIdx.x % 32;
  const int count = share(p, blockIdx.x + 1) - share(p, blockIdx.x);
  const int64_t last_tile = up(a.l.rows, row_block) / tile_rows - 1;
  const bool weights = lane < slots, rows = lane >= slots && lane < slots + 2, second = a.glu && lane / 4 % 2;
  const uint32_t to = ring + (weights ? N * step_k * 2 + lane * p.slot_bytes : (lane - slots) * N * 128);
  const auto from = [&](const Place& at) {
    if (rows) return a.x + ((at.step * int64_t{2} + lane - slots) * p.m_tiles + at.m_tile) * N * 128;
    const int64_t tile = a.glu ? at.row_tile * 8 + lane / 8 * 4 + lane % 4 + (second ? a.up_row / tile_rows : 0) : at.row_tile * slots + lane;
    return (second ? a.high : a.low) + min(tile, last_tile) * a.l.units * a.l.block_bytes + int64_t{at.step} * p.slot_bytes;
  };
  const int64_t stride = rows ? int64_t{2} * p.m_tiles * N * 128 : p.slot_bytes;
  const int bytes = rows ? N * 128 : p.slot_bytes, all = N * step_k * 2 + slots * p.slot_bytes;
  const int early = min(count, p.stages);
  Place at(p, share(p, blockIdx.x));
  const Place begin = at;
  if (lane == 0)
    for (int i = 0; i < early; ++i) barrier_expect(full + 8 * i, all);
  __syncwarp();
  const unsigned char* source = from(at);
  for (int i = 0; i < early; ++i) {  // nothing that runs still writes weights
    if (weights) copy_bytes(to + i * p.stage_bytes, source, bytes, full + 8 * i);
    source = at.next(p) ? from(at) : source + stride;
  }
  wait_inputs();
  at = begin;
  source = from(at);
  for (int i = 0; i < early; ++i) {
    if (rows) copy_bytes(to + i * p.stage_bytes, source, bytes, full + 8 * i);
    source = at.next(p) ? from(at) : source + stride;
  }
  int stage = 0, turn = 0;
  for (int i = early; i < count; ++i) {
    barrier_wait(empty + 8 * stage, turn);
    if (lane == 0) barrier_expect(full + 8 * stage, all);
    __syncwarp();
    if (weights || rows) copy_bytes(to + stage * p.stage_bytes, source, bytes, full + 8 * stage);
    source = at.next(p) ? from(at) : source + stride;
    if (++stage == p.stages) stage = 0, turn ^= 1;
  }
}

template <Codes codes, int N, bool mins>
__device__ void multiply(const Args& args, const unsigned char* ring, float* desk, uint32_t full, uint32_t empty) {
  const MixedArgs& a = args.a;
  const Plan& p = args.p;
  constexpr int R = N / 2, steps = steps_of(codes), at_once = Pace<N>::at_once, buffers = Pace<N>::buffers;
  const int lane = threadIdx.x % 32, j = lane % 4, slot = threadIdx.x / 128 * 8 + threadIdx.x / 32 % 4;
  const int sub = a.l.sub, scale_bytes = static_cast<int>(a.l.scale_bytes), block_bytes = static_cast<int>(a.l.block_bytes);
  const int begin = share(p, blockIdx.x), end = share(p, blockIdx.x + 1);
  float4* const partials = reinterpret_cast<float4*>(a.partials);
  constexpr int partial = N / 8 * 2 * consumers;  // of float4
  float sums[2][R];
  int stage = 0, turn = 0, before = -1;  // `before`: the stage to give back
  wait_inputs();
  for (int at = begin; at < end;) {
    const int tile = at / p.steps, k_begin = at % p.steps, k_end = min(p.steps, k_begin + end - at);
    for (int k = k_begin; k < k_end; ++k) {
      const unsigned char* here = ring + stage * p.stage_bytes;
      const uint32_t x = shared_address(here);
      const unsigned char* w = here + N * step_k * 2 + slot * p.slot_bytes;
      barrier_wait(full + 8 * stage, turn);
      uint32_t operand[buffers][at_once][2][4];
      Scale<mins> scale[2][2];
      uint4 code[2][2];
#pragma unroll
      for (int group = 0; group < 8 / at_once; ++group) {
        uint32_t(&mine)[at_once][2][4] = operand[group % buffers];
#pragma unroll
        for (int q = 0; q < at_once; ++q) {
          const int i = group * at_once + q, u = i / steps, in_unit = i % steps;
          if (in_unit == 0) {
#pragma unroll
            for (int s = 0; s < 4; ++s)
              code[s / 2][s % 2] = *reinterpret_cast<const uint4*>(w + s / 2 * 4 * p.slot_bytes + u * block_bytes + (lane / 4 + s % 2 * 8) * 64 + j * 16);
          }
          if (q == 0) {
            products_wait<buffers - 1>();  // these operands are free, and so is the stage before
            if (group == buffers - 1 && before >= 0 && lane == 0) barrier_arrive(empty + 8 * before);
          }
          if (in_unit * sub % steps == 0) {
#pragma unroll
            for (int s = 0; s < 4; ++s) {
              const unsigned char* scales = w + s / 2 * 4 * p.slot_bytes + u * block_bytes + 64 * tile_rows + (lane / 4 + s % 2 * 8) * scale_bytes;
              scale[s / 2][s % 2].load(reinterpret_cast<const float*>(scales) + in_unit * sub / steps, sub);
            }
          }
#pragma unroll
          for (int s = 0; s < 4; ++s) {
            uint32_t first, second;
            widen_fast<codes>(code[s / 2][s % 2], in_unit, a.l.zero, first, second);
            mine[q][s / 2][s % 2] = scale[s / 2][s % 2](first);
            mine[q][s / 2][2 + s % 2] = scale[s / 2][s % 2](second);
          }
        }
        products_begin();
#pragma unroll
        for (int q = 0; q < at_once; ++q) {
          const int i = group * at_once + q, more = k > k_begin || i > 0;
          const uint64_t rows = turned_rows(x + i / 4 * N * 128 + i % 4 * 32);
          Step<N>::run(sums[0], mine[q][0], rows, more);
          Step<N>::run(sums[1], mine[q][1], rows, more);
        }
        products_commit();
      }
      before = stage;
      if (++stage == p.stages) stage = 0, turn ^= 1;
    }
    products_wait<0>();
    hold(sums[0]);
    hold(sums[1]);
    at += k_end - k_begin;
    if (at == end) let_next_start();
    if (k_begin == 0 && k_end == p.steps) {
      const Way<N> way(args, tile / p.m_tiles, tile % p.m_tiles, desk);
      // One loop, though registers have no index: laid out flat, its code would come from memory for every tile.
#pragma unroll 1
      for (int c = 0; c < N / 16; ++c) {
        Part part;
#pragma unroll
        for (int n = 0; n < N / 16; ++n) {
          if (n != c) continue;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* v = &sums[i % 2][8 * n + i / 2 * 4];
            part.v[i / 2][i % 2] = make_float4(v[0], v[1], v[2], v[3]);
          }
        }
        way.out(c, part);
      }
      continue;
    }
    // The tile is shared: the first of its blocks is at its end here, the others at their beginning.
    float4* to = partials + int64_t{2 * static_cast<int>(blockIdx.x) + (k_begin == 0)} * partial + threadIdx.x;
#pragma unroll
    for (int t = 0; t < N / 8; ++t)
#pragma unroll
      for (int s = 0; s < 2; ++s)
        __stcg(to + (2 * t + s) * consumers, make_float4(sums[s][4 * t], sums[s][4 * t + 1], sums[s][4 * t + 2], sums[s][4 * t + 3]));
    __threadfence();
    group_sync(sums_barrier, consumers);
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(a.counters + block_of(p, tile * p.steps), 1);
    }
  }
  // Shared tiles: that of the block's beginning, and that of its end.
  const int first_tile = begin / p.steps, last_tile = (end - 1) / p.steps;
  for (int tile = first_tile; tile <= last_tile; tile += max(last_tile - first_tile, 1)) {
    const int from = block_of(p, tile * p.steps), blocks = block_of(p, (tile + 1) * p.steps - 1) - from + 1, rank = static_cast<int>(blockIdx.x) - from;
    if (blocks == 1) continue;
    if (threadIdx.x == 0)
      while (load_acquire(a.counters + from) < blocks) {
      }
    group_sync(sums_barrier, consumers);
    const Way<N> way(args, tile / p.m_tiles, tile % p.m_tiles, desk);
#pragma unroll 1
    for (int c = rank * (N / 16) / blocks; c < (rank + 1) * (N / 16) / blocks; ++c) {
      Part part{};
#pragma unroll 4
      for (int b = 0; b < blocks; ++b) {
        const float4* one = partials + int64_t{2 * (from + b) + (b == 0)} * partial + 4 * c * consumers + threadIdx.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 more = __ldcg(one + i * consumers);
          float4& v = part.v[i / 2][i % 2];
          v = make_float4(v.x + more.x, v.y + more.y, v.z + more.z, v.w + more.w);
        }
      }
      way.out(c, part);
    }
    group_sync(sums_barrier, consumers);
    // The last of them to be done leaves zero for the next product.
    if (threadIdx.x == 0 && atomicAdd(a.counters + from, 1) == 2 * blocks - 1) atomicExch(a.counters + from, 0);
  }
}

template <Codes codes, int N, bool mins>
__global__ void __launch_bounds__(threads, 1) mixed_product(__grid_constant__ const Args args) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char room[];
  __shared__ __align__(8) uint64_t barriers[2 * most_stages];
  const uint32_t full = shared_address(barriers), empty = full + 8 * most_stages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < args.p.stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, consumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const uint32_t skew = (1024 - shared_address(room) % 1024) % 1024;
  unsigned char* ring = room + skew;
  if (threadIdx.x >= consumers) {
    fewer_registers<40>();
    if (threadIdx.x < consumers + 32) fetch<codes, N>(args, shared_address(ring), full, empty);
  } else {
    more_registers<232>();
    multiply<codes, N, mins>(args, ring, reinterpret_cast<float*>(ring + args.p.stages * args.p.stage_bytes), full, empty);
  }
#endif
}

int64_t stage_bytes_of(const Piece& l, int64_t n) { return up(n * step_k * 2 + slots * (step_k / unit_of(l.codes)) * l.block_bytes, 1024); }

template <Codes codes, int N, bool mins>
void start(Context* c, const MixedArgs& a, PluginStatus* status) {
  Plan p{};
  p.m_tiles = static_cast<int32_t>(blocks(a.m, N));
  p.row_tiles = static_cast<int32_t>(blocks(a.n, a.glu ? 128 : 256));
  p.steps = static_cast<int32_t>(a.l.k_padded / step_k);
  const int32_t tiles = p.m_tiles * p.row_tiles;
  p.total = tiles * p.steps;
  // At least a quarter of a tile's steps a block, and four: more blocks' sums take longer than they save.
  p.blocks = std::min({c->multiprocessors, static_cast<int32_t>(mixed_blocks), std::max(1, p.total / std::max(4, p.steps / 4))});
  if (tiles <= c->multiprocessors && tiles * 10 >= c->multiprocessors * 9) p.blocks = tiles;
  p.slot_bytes = static_cast<int32_t>(step_k / unit_of(codes) * a.l.block_bytes);
  p.stage_bytes = static_cast<int32_t>(stage_bytes_of(a.l, N));
  p.even = a.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % (a.narrow_out ? 8 : 16) == 0;
  p.stages = static_cast<int32_t>(std::min<int64_t>(most_stages, (static_cast<int64_t>(c->block_shared) - 2048 - desk_bytes) / p.stage_bytes));
  const size_t shared = static_cast<size_t>(p.stages) * static_cast<size_t>(p.stage_bytes) + desk_bytes + 1024;
  if (!allow_shared(c, reinterpret_cast<const void*>(mixed_product<codes, N, mins>), c->block_shared - 1024, status)) return;
  launch(c, mixed_product<codes, N, mins>, Shape{dim3(static_cast<unsigned>(p.blocks)), dim3(threads), shared}, Args{a, p});
}

template <Codes codes, bool mins>
void start(Context* c, const MixedArgs& a, PluginStatus* status) {
  const int64_t n = mixed_rows(a.m);
  n == 32   ? start<codes, 32, mins>(c, a, status)
  : n == 64 ? start<codes, 64, mins>(c, a, status)
  : n == 96 ? start<codes, 96, mins>(c, a, status)
            : start<codes, 128, mins>(c, a, status);
}

}  // namespace

bool mixed_possible(const Context& c, const Piece& l, int64_t m) {
  return c.capability == 90 && c.may_wait && l.tiled && m <= mixed_most_rows && static_cast<int64_t>(c.block_shared) - 2048 - desk_bytes >= 2 * stage_bytes_of(l, mixed_rows(m));
}

void mixed(Context* c, const MixedArgs& a, PluginStatus* status) {
  const bool mins = a.l.has_min;
  if (a.l.codes == Codes::u4) return mins ? start<Codes::u4, true>(c, a, status) : start<Codes::u4, false>(c, a, status);
  if (a.l.codes == Codes::i8) return mins ? start<Codes::i8, true>(c, a, status) : start<Codes::i8, false>(c, a, status);
  start<Codes::e4m3, false>(c, a, status);  // which never has mins
}

}  // namespace orlop::cuda
