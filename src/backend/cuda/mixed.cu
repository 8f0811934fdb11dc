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

namespace orlop::cuda {
namespace {

constexpr int consumers = 256;  // two warpgroups; a third copies, and gives them its registers
constexpr int threads = consumers + 128;
constexpr int step_k = 128;      // of a stage
constexpr int slots = 16;        // tiles of 16 rows in a stage
constexpr int sums_barrier = 1;  // of the consumers
constexpr int most_stages = 6;

struct Plan {
  int64_t tiles, steps, total;  // steps: of a tile; total: tiles * steps
  int32_t row_tiles, m_tiles, blocks, stages, stage_bytes, slot_bytes;
};

struct Args {
  MixedArgs a;
  Plan p;
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
ORLOP_STEP(64, 32, 32, 33, 34, 35, 36, 37)
ORLOP_STEP(96, 48, 48, 49, 50, 51, 52, 53)
ORLOP_STEP(128, 64, 64, 65, 66, 67, 68, 69)
#undef ORLOP_STEP

// Rows of 128 bytes in shared memory, turned as RowsArgs says: 1,024 bytes to the next eight.
__device__ inline uint64_t turned_rows(uint32_t address) { return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62; }

__device__ inline uint32_t scaled(uint32_t codes, float scale, float min) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(fmaf(__uint_as_float(codes << 16), scale, min),
                                                 fmaf(__uint_as_float(codes & 0xffff0000u), scale, min));
  return *reinterpret_cast<const uint32_t*>(&v);
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
__device__ inline int64_t block_of(const Plan& p, int64_t at) { return ((at + 1) * p.blocks - 1) / p.total; }
__device__ inline int64_t share(const Plan& p, int64_t block) { return p.total * block / p.blocks; }

__device__ inline float act(float g, bool gelu) {
  return g / (1.0f + __expf(gelu ? -1.5957691216057308f * (g + 0.044715f * g * g * g) : -g));
}

// One value of a tile on its way out.
__device__ inline void put(const MixedArgs& a, int64_t token, int64_t row, float v) {
  if (a.bias) v += a.bias[row];
  const int64_t at = token * a.out_stride + row;
  if (a.narrow_out) {
    __nv_bfloat16* out = reinterpret_cast<__nv_bfloat16*>(a.out) + at;
    *out = __float2bfloat16_rn(a.accumulate ? __bfloat162float(*out) + v : v);
  } else {
    float* out = reinterpret_cast<float*>(a.out) + at;
    *out = a.accumulate ? *out + v : v;
  }
}

// A thread's values of eight rows of x (t): of both its products.
template <int N>
__device__ inline void put_values(const MixedArgs& a, int64_t row_tile, int64_t m_tile, int t, const float4& first, const float4& second) {
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const float u[4] = {first.x, first.y, first.z, first.w}, v[4] = {second.x, second.y, second.z, second.w};
  const int64_t token = m_tile * N + 8 * t + 2 * (lane % 4);
  const int inside = warp * 16 + lane / 4;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (token + e % 2 >= a.m) continue;
    const int at = inside + e / 2 * 8;
    if (a.glu) {
      const int64_t row = row_tile * 128 + group * 64 + at;
      if (row >= a.n) continue;
      const float gate = a.bias ? u[e] + a.bias[row] : u[e], up = a.up_bias ? v[e] + a.up_bias[row] : v[e];
      MixedArgs plain = a;
      plain.bias = nullptr;
      put(plain, token + e % 2, row, act(gate, a.glu == static_cast<int32_t>(Glu::gelu_tanh)) * up);
    } else {
      const int64_t row = row_tile * 256 + group * 128 + at;
      if (row < a.n) put(a, token + e % 2, row, u[e]);
      if (row + 64 < a.n) put(a, token + e % 2, row + 64, v[e]);
    }
  }
}

// The copying warp's thread: every step of the block's share, stage after stage.
template <Codes codes, int N>
__device__ void fetch(const Args& args, uint32_t ring, uint32_t full, uint32_t empty) {
  const MixedArgs& a = args.a;
  const Plan& p = args.p;
  const int64_t begin = share(p, blockIdx.x), end = share(p, blockIdx.x + 1);
  constexpr int units = step_k / static_cast<int>(unit_of(codes));  // of a stage
  const int64_t last_tile = up(a.l.rows, row_block) / tile_rows - 1;
  const auto weights = [&](int64_t at, int stage) {
    const int64_t tile = at / p.steps, step = at % p.steps, row_tile = tile / p.m_tiles;
    const uint32_t to = ring + static_cast<uint32_t>(stage) * p.stage_bytes + N * step_k * 2, barrier = full + 8 * stage;
    barrier_expect(barrier, N * step_k * 2 + slots * p.slot_bytes);
    for (int s = 0; s < slots; ++s) {
      const bool second = a.glu && s / 4 % 2;
      const int64_t rows = a.glu ? row_tile * 8 + s / 8 * 4 + s % 4 + (second ? a.up_row / tile_rows : 0) : row_tile * slots + s;
      const unsigned char* from = (second ? a.high : a.low) + (min(rows, last_tile) * a.l.units + step * units) * a.l.block_bytes;
      copy_bytes(to + s * p.slot_bytes, from, p.slot_bytes, barrier);
    }
  };
  const auto rows = [&](int64_t at, int stage) {
    const int64_t tile = at / p.steps, step = at % p.steps, m_tile = tile % p.m_tiles;
    const uint32_t to = ring + static_cast<uint32_t>(stage) * p.stage_bytes, barrier = full + 8 * stage;
    for (int half = 0; half < 2; ++half)
      copy_bytes(to + half * N * 128, a.x + ((step * 2 + half) * p.m_tiles + m_tile) * N * 128, N * 128, barrier);
  };
  const int64_t early = min(end - begin, int64_t{p.stages});
  for (int64_t i = 0; i < early; ++i) weights(begin + i, static_cast<int>(i));  // nothing that runs still writes them
  wait_inputs();
  for (int64_t i = 0; i < early; ++i) rows(begin + i, static_cast<int>(i));
  int stage = 0, turn = 0;
  for (int64_t at = begin + early; at < end; ++at) {
    barrier_wait(empty + 8 * stage, turn);
    weights(at, stage);
    rows(at, stage);
    if (++stage == p.stages) stage = 0, turn ^= 1;
  }
}

template <Codes codes, int N>
__device__ void multiply(const Args& args, const unsigned char* ring, uint32_t full, uint32_t empty) {
  const MixedArgs& a = args.a;
  const Plan& p = args.p;
  constexpr int R = N / 2, steps = steps_of(codes);
  const int lane = threadIdx.x % 32, j = lane % 4, slot = threadIdx.x / 128 * 8 + threadIdx.x / 32 % 4;
  const int sub = a.l.sub, scale_bytes = static_cast<int>(a.l.scale_bytes), block_bytes = static_cast<int>(a.l.block_bytes);
  const bool has_min = a.l.has_min;
  const int64_t begin = share(p, blockIdx.x), end = share(p, blockIdx.x + 1);
  float4* const partials = reinterpret_cast<float4*>(a.partials);
  constexpr int64_t partial = int64_t{N / 8} * 2 * consumers;  // of float4
  float sums[2][R];
  int stage = 0, turn = 0, before = -1;  // `before`: the stage to give back
  wait_inputs();
  for (int64_t at = begin; at < end;) {
    const int64_t tile = at / p.steps, k_begin = at % p.steps, k_end = min(p.steps, k_begin + end - at);
    for (int64_t k = k_begin; k < k_end; ++k) {
      const unsigned char* here = ring + stage * p.stage_bytes;
      const uint32_t x = shared_address(here);
      const unsigned char* w = here + N * step_k * 2 + slot * p.slot_bytes;
      barrier_wait(full + 8 * stage, turn);
      uint32_t operand[2][2][4];
      float scale[2][2], min[2][2] = {};
      uint4 code[2][2];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int u = i / steps, in_unit = i % steps;
        if (in_unit == 0) {
#pragma unroll
          for (int s = 0; s < 4; ++s)
            code[s / 2][s % 2] = *reinterpret_cast<const uint4*>(w + s / 2 * 4 * p.slot_bytes + u * block_bytes + (lane / 4 + s % 2 * 8) * 64 + j * 16);
        }
        if (in_unit * sub % steps == 0) {
#pragma unroll
          for (int s = 0; s < 4; ++s) {
            const float* scales = reinterpret_cast<const float*>(w + s / 2 * 4 * p.slot_bytes + u * block_bytes + 64 * tile_rows +
                                                                 (lane / 4 + s % 2 * 8) * scale_bytes) +
                                  in_unit * sub / steps;
            scale[s / 2][s % 2] = scales[0];
            if (has_min) min[s / 2][s % 2] = scales[sub];
          }
        }
        uint32_t(&mine)[2][4] = operand[i % 2];
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          uint32_t first, second;
          widen<codes>(code[s / 2][s % 2], in_unit, a.l.zero, first, second);
          mine[s / 2][s % 2] = scaled(first, scale[s / 2][s % 2], min[s / 2][s % 2]);
          mine[s / 2][2 + s % 2] = scaled(second, scale[s / 2][s % 2], min[s / 2][s % 2]);
        }
        const uint64_t rows = turned_rows(x + i / 4 * N * 128 + i % 4 * 32);
        const int more = k > k_begin || i > 0;
        products_begin();
        Step<N>::run(sums[0], mine[0], rows, more);
        Step<N>::run(sums[1], mine[1], rows, more);
        products_commit();
        products_wait<1>();  // the operand before this one is free
        if (i == 0 && before >= 0 && lane == 0) barrier_arrive(empty + 8 * before);
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
#pragma unroll
      for (int t = 0; t < N / 8; ++t)
        put_values<N>(a, tile / p.m_tiles, tile % p.m_tiles, t, make_float4(sums[0][4 * t], sums[0][4 * t + 1], sums[0][4 * t + 2], sums[0][4 * t + 3]),
                      make_float4(sums[1][4 * t], sums[1][4 * t + 1], sums[1][4 * t + 2], sums[1][4 * t + 3]));
      continue;
    }
    // The tile is shared: the first of its blocks is at its end here, the others at their beginning.
    float4* to = partials + (2 * int64_t{blockIdx.x} + (k_begin == 0)) * partial + threadIdx.x;
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
  const int64_t first_tile = begin / p.steps, last_tile = (end - 1) / p.steps;
  for (int64_t tile = first_tile; tile <= last_tile; tile += max(last_tile - first_tile, int64_t{1})) {
    const int64_t from = block_of(p, tile * p.steps), blocks = block_of(p, (tile + 1) * p.steps - 1) - from + 1, rank = blockIdx.x - from;
    if (blocks == 1) continue;
    if (threadIdx.x == 0)
      while (load_acquire(a.counters + from) < blocks) {
      }
    group_sync(sums_barrier, consumers);
    for (int t = static_cast<int>(rank * (N / 8) / blocks); t < static_cast<int>((rank + 1) * (N / 8) / blocks); ++t) {
      float4 v[2] = {};
      for (int64_t b = 0; b < blocks; ++b) {
        const float4* one = partials + (2 * (from + b) + (b == 0)) * partial + 2 * t * consumers + threadIdx.x;
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const float4 more = __ldcg(one + s * consumers);
          v[s].x += more.x, v[s].y += more.y, v[s].z += more.z, v[s].w += more.w;
        }
      }
      put_values<N>(a, tile / p.m_tiles, tile % p.m_tiles, t, v[0], v[1]);
    }
    group_sync(sums_barrier, consumers);
    // The last of them to be done leaves zero for the next product.
    if (threadIdx.x == 0 && atomicAdd(a.counters + from, 1) == 2 * blocks - 1) atomicExch(a.counters + from, 0);
  }
}

template <Codes codes, int N>
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
    if (threadIdx.x == consumers) fetch<codes, N>(args, shared_address(ring), full, empty);
  } else {
    more_registers<232>();
    multiply<codes, N>(args, ring, full, empty);
  }
#endif
}

int64_t stage_bytes_of(const Piece& l, int64_t n) { return up(n * step_k * 2 + slots * (step_k / unit_of(l.codes)) * l.block_bytes, 1024); }

template <Codes codes, int N>
void start(Context* c, const MixedArgs& a, PluginStatus* status) {
  Plan p{};
  p.m_tiles = static_cast<int32_t>(blocks(a.m, N));
  p.row_tiles = static_cast<int32_t>(blocks(a.n, a.glu ? 128 : 256));
  p.steps = a.l.k_padded / step_k;
  p.tiles = int64_t{p.m_tiles} * p.row_tiles;
  p.total = p.tiles * p.steps;
  // At least a quarter of a tile's steps a block, and four: more blocks' sums take longer than they save.
  const int64_t most = std::max<int64_t>(1, p.total / std::max<int64_t>(4, p.steps / 4));
  p.blocks = static_cast<int32_t>(std::min<int64_t>({c->multiprocessors, mixed_blocks, most}));
  if (p.tiles <= c->multiprocessors && p.tiles * 10 >= int64_t{c->multiprocessors} * 9) p.blocks = static_cast<int32_t>(p.tiles);
  p.slot_bytes = static_cast<int32_t>(step_k / unit_of(codes) * a.l.block_bytes);
  p.stage_bytes = static_cast<int32_t>(stage_bytes_of(a.l, N));
  p.stages = static_cast<int32_t>(std::min<int64_t>(most_stages, (static_cast<int64_t>(c->block_shared) - 2048) / p.stage_bytes));
  const size_t shared = static_cast<size_t>(p.stages) * static_cast<size_t>(p.stage_bytes) + 1024;
  if (!allow_shared(c, reinterpret_cast<const void*>(mixed_product<codes, N>), c->block_shared - 1024, status)) return;
  launch(c, mixed_product<codes, N>, Shape{dim3(static_cast<unsigned>(p.blocks)), dim3(threads), shared}, Args{a, p});
}

template <Codes codes>
void start(Context* c, const MixedArgs& a, PluginStatus* status) {
  const int64_t n = mixed_rows(a.m);
  n == 64 ? start<codes, 64>(c, a, status) : n == 96 ? start<codes, 96>(c, a, status) : start<codes, 128>(c, a, status);
}

}  // namespace

bool mixed_possible(const Context& c, const Piece& l, int64_t m) {
  return c.capability == 90 && l.tiled && m > few_rows && m <= mixed_most_rows && static_cast<int64_t>(c.block_shared) - 2048 >= 2 * stage_bytes_of(l, mixed_rows(m));
}

void mixed(Context* c, const MixedArgs& a, PluginStatus* status) {
  if (a.l.codes == Codes::u4) return start<Codes::u4>(c, a, status);
  if (a.l.codes == Codes::e4m3) return start<Codes::e4m3>(c, a, status);
  start<Codes::i8>(c, a, status);
}

}  // namespace orlop::cuda
