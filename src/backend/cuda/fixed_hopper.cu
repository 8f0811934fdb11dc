// fixed() for bf16 weights and many tiles on Hopper: warpgroup products (wgmma), whose sums of 16 products and what
// they are added to have the bits of mma.sync's there.
//
// A block makes 128 rows of weights by 64 or 128 of activations: a warpgroup for each 64 of the weights, and a warp that
// copies (tensor maps, a ring of stages of 64 elements of k). Sums of even and odd steps and of a slice are in
// registers, those of slices in shared memory.
#include "backend/cuda/fixed_hopper.cuh"

namespace orlop::cuda {
namespace {

constexpr int unit = 32;
constexpr int threads = consumers + 128;

template <int tile_x>
struct Layout {
  static constexpr int stages = tile_x == 128 ? 4 : 7;
  static constexpr int w_bytes = fixed_tile_w * step_k * 2, x_bytes = tile_x * step_k * 2, stage_bytes = w_bytes + x_bytes;
  static constexpr int sums_bytes = tile_x * fixed_pitch * 4;
  static constexpr size_t shared = 1024 + stages * stage_bytes + sums_bytes + 2 * stages * 8;
};

template <int tile_x>
__global__ void __launch_bounds__(threads, 1)
    products_hopper(StreamArgs a, HopperPlan p, const __grid_constant__ CUtensorMap low, const __grid_constant__ CUtensorMap high, const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = Layout<tile_x>;
  constexpr int stages = L::stages, w_bytes = L::w_bytes, x_bytes = L::x_bytes, stage_bytes = L::stage_bytes, N = tile_x / 2;
  extern __shared__ unsigned char raw_shared[];
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024;
  float* const sums = reinterpret_cast<float*>(raw_shared + (base - shared_address(raw_shared)) + stages * stage_bytes);
  const uint32_t full = base + stages * stage_bytes + L::sums_bytes, empty = full + 8 * stages;
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int split = p.split, rank = split > 1 ? cluster_rank() : 0, tile = static_cast<int>(blockIdx.x) / split;
  const int64_t n0 = int64_t{tile / p.tiles_x} * (gated ? fixed_tile_w / 2 : fixed_tile_w), m0 = int64_t{tile % p.tiles_x} * tile_x;
  const int begin = split > 1 ? min(p.units, rank * p.each_slice) : 0, end = split > 1 ? min(p.units, begin + p.each_slice) : p.units;
  const int steps = (end - begin + 1) / 2;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, consumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x >= consumers) {
    fewer_registers<40>();
    if (threadIdx.x == consumers) {
      const int row0 = static_cast<int>(n0), row1 = gated ? static_cast<int>(n0 + a.up_row) : row0 + fixed_tile_w / 2;
      const CUtensorMap* second = gated ? &high : &low;
      const auto weights = [&](int step) {
        const int s = step % stages;
        const uint32_t to = base + s * stage_bytes;
        barrier_expect(full + 8 * s, stage_bytes);
        copy_rows(to, &low, begin * unit + step * step_k, row0, full + 8 * s);
        copy_rows(to + w_bytes / 2, second, begin * unit + step * step_k, row1, full + 8 * s);
      };
      const auto activations = [&](int step) {
        const int s = step % stages;
        const uint32_t to = base + s * stage_bytes + w_bytes;
        copy_rows(to, &x, begin * unit + step * step_k, static_cast<int>(m0), full + 8 * s);
        if (tile_x == 128) copy_rows(to + x_bytes / 2, &x, begin * unit + step * step_k, static_cast<int>(m0) + 64, full + 8 * s);
      };
      const int early = min(steps, stages);
      for (int step = 0; step < early; ++step) weights(step);
      wait_inputs();
      for (int step = 0; step < early; ++step) activations(step);
      for (int step = early; step < steps; ++step) {
        barrier_wait(empty + 8 * (step % stages), step / stages % 2 ^ 1);
        weights(step);
        activations(step);
      }
    }
    __syncwarp();
    wait_inputs();
    let_next_start();
  } else {
    more_registers<232>();
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + g;
    const uint64_t w = swizzled(base + group * (w_bytes / 2), 0, 1024), rows = swizzled(base + w_bytes, 0, 1024);
    float even[N], odd[N], of_slice[N];
#pragma unroll
    for (int i = 0; i < N; ++i) of_slice[i] = 0;
    InK in_k(p.units, p.each_slice, begin);
    bool first_slice = true;
    wait_inputs();
    const auto release = [&](bool really, int step) { arrive_if(really && lane == 0, empty + 8 * (step % stages)); };
    const auto add_slice = [&](bool first) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float& sum = sums[(8 * (i / 4) + 2 * j + i % 2) * fixed_pitch + row + 8 * (i / 2 % 2)];
        sum = first ? of_slice[i] : sum + of_slice[i];
        of_slice[i] = 0;
      }
    };
    for (int u = begin; u < end;) {
      const int from = u, to = in_k.piece_end;
      for (; u < to; ++u) {
        const int step = (u - begin) / 2, s = step % stages, odd_unit = (u - begin) % 2;
        barrier_wait(full + 8 * s, step / stages % 2);
        const uint64_t at = static_cast<uint64_t>(s * (stage_bytes >> 4) + 4 * odd_unit);
        products_begin();
        Product<__nv_bfloat16, tile_x>::scores(even, w + at, rows + at, u > from);
        Product<__nv_bfloat16, tile_x>::scores(odd, w + at + 2, rows + at + 2, u > from);
        products_commit();
        products_wait<1>();  // but for the last
        release(u > from && odd_unit == 0, step - 1);
      }
      products_wait<0>();
      hold(even);
      hold(odd);
      release((u - begin) % 2 == 0 || u == end, (u - 1 - begin) / 2);
#pragma unroll
      for (int i = 0; i < N; ++i) of_slice[i] += even[i] + odd[i];
      if (in_k.next()) {
        add_slice(first_slice);
        first_slice = false;
      }
    }
    if (begin >= end) add_slice(true);
    let_next_start();
  }
  leave_tile<false>(a, m0, n0, tile_x, sums, split, rank);
#endif
}

template <int tile_x>
void start(Context* c, const StreamArgs& a, int64_t tiles_w, int blocks_of_k, const CUtensorMap (&maps)[3]) {
  const HopperPlan p(*c, a, tiles_w, tile_x, blocks_of_k);
  launch(c, products_hopper<tile_x>,
         Shape{dim3(static_cast<unsigned>(tiles_w * p.tiles_x * p.split)), dim3(threads), Layout<tile_x>::shared, static_cast<unsigned>(p.split)}, a, p, maps[0], maps[1],
         maps[2]);
}

}  // namespace

bool fixed_hopper(Context* c, const StreamArgs& a, int blocks_of_k) {
  if (c->capability != 90 || a.l.codes != Codes::bf16 || Layout<128>::shared > c->block_shared || Layout<64>::shared > c->block_shared) return false;
  const int64_t rows = a.glu ? fixed_tile_w / 2 : fixed_tile_w, tiles_w = (a.n + rows - 1) / rows;
  CUtensorMap maps[3] = {};
  if (!map_rows(a.low, a.l.k_padded, up(a.l.rows, row_block), a.l.row_bytes, &maps[0]) ||
      !map_rows(a.high, a.l.k_padded, up(a.l.rows, row_block), a.l.row_bytes, &maps[1]) || !map_rows(a.x, a.l.k, a.m, a.x_stride * 2, &maps[2]))
    return false;
  a.m <= 64 ? start<64>(c, a, tiles_w, blocks_of_k, maps) : start<128>(c, a, tiles_w, blocks_of_k, maps);
  return true;
}

}  // namespace orlop::cuda
