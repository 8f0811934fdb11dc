// Products of up to 32 rows of activations with bf16 weights, at the speed of reading these. Weights are the left operand,
// whose rows of 64 fill a warpgroup product (wgmma), activations the right one, as few columns as there are: both from
// shared memory, where two warps bring them by tensor maps into a ring of stages.
#include "backend/cuda/few.cuh"

#include "backend/cuda/few_hopper_codes.h"
#include "backend/cuda/fixed_hopper.cuh"

namespace orlop::cuda {
namespace {

constexpr int threads = consumers + 64;  // a warp copies weights, one activations
constexpr int sums_barrier = 1, scales_barrier = 2;
constexpr int64_t least_steps = 4;                // of a block

constexpr int x_rows = few_hopper_rows;  // of activations, zeros beyond those that are there
constexpr int w_bytes = fixed_tile_w * step_k * 2, x_bytes = x_rows * step_k * 2, stage_bytes = w_bytes + x_bytes;
constexpr int sums_bytes = x_rows * fixed_pitch * 4;
constexpr int stages = (225 * 1024 - sums_bytes) / (stage_bytes + 24);
constexpr int sums_at = stages * stage_bytes, barriers_at = sums_at + sums_bytes;
constexpr size_t shared_bytes = 1024 + barriers_at + 24 * stages;
static_assert(fixed_tile_w == 64 * groups && few_ahead(w_bytes) < stages);

using Parts = FewParts<consumers, fixed_tile_w, x_rows>;

__global__ void __launch_bounds__(threads, 1)
    few_products(const __grid_constant__ FewArgs p, const __grid_constant__ CUtensorMap low, const __grid_constant__ CUtensorMap high, const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int N = x_rows / 2;
  const StreamArgs& a = p.a;
  extern __shared__ unsigned char raw_shared[];
  __shared__ float scales[x_rows];
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024, full = base + barriers_at, rows_full = full + 8 * stages, empty = rows_full + 8 * stages;
  float* const sums = reinterpret_cast<float*>(raw_shared + (base - shared_address(raw_shared)) + sums_at);
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int rows_of_tile = gated ? fixed_tile_w / 2 : fixed_tile_w, share = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int begin = share_begin(p.shares, share), count = share_begin(p.shares, share + 1) - begin;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(rows_full + 8 * s, 1);
      barrier_init(empty + 8 * s, consumers / 32);
    }
    barriers_there();
  }
  __syncthreads();
  let_next_start();

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  if (thread >= consumers) {
    const auto free = [&](int i) { barrier_wait(empty + 8 * (i % stages), i / stages % 2 ^ 1); };
    if (thread < consumers + 32) {
      const uint64_t once = read_once();
      for (int i = 0; i < count && lane == 0; ++i) {
        if (i >= stages) free(i);
        if (const int before = i - p.shares.ahead; before >= 0) barrier_wait(full + 8 * (before % stages), before / stages % 2);
        const uint32_t to = base + i % stages * stage_bytes, barrier = full + 8 * (i % stages);
        const int tile = (begin + i) / p.shares.steps, k = (begin + i - tile * p.shares.steps) * step_k, n0 = tile * rows_of_tile;
        barrier_expect(barrier, w_bytes);
        copy_rows_once(to, &low, k, n0, barrier, once);
        copy_rows_once(to + w_bytes / 2, gated ? &high : &low, k, gated ? n0 + static_cast<int>(a.up_row) : n0 + 64, barrier, once);
      }
      return;
    }
    const auto activations = [&](int i) {
      barrier_expect(rows_full + 8 * (i % stages), x_bytes);
      copy_rows(base + i % stages * stage_bytes + w_bytes, &x, (begin + i) % p.shares.steps * step_k, 0, rows_full + 8 * (i % stages));
    };
    if (lane == 0) prefetch_map(&x);
    wait_inputs();
    const int early = min(count, stages);
    for (int i = 0; i < early && lane == 0; ++i) activations(i);
    __syncwarp();
    few_scales(p, scales, lane);
    group_arrive(scales_barrier, consumers + 32);
    for (int i = early; i < count && lane == 0; ++i) {
      free(i);
      activations(i);
    }
    return;
  }
  const int group = thread / 128, g = lane / 4, j = lane % 4;
  const int row = group * 64 + thread % 128 / 32 * 16 + g;
  const uint64_t w = swizzled(base + group * (w_bytes / groups), 0, 1024), rows = swizzled(base + w_bytes, 0, 1024);
  wait_inputs();
  for (int i = 0; i < count;) {
    const int tile = (begin + i) / p.shares.steps, tile_begin = tile * p.shares.steps - begin, tile_end = tile_begin + p.shares.steps, from = i, until = min(count, tile_end);
    float sum[N];
#pragma unroll
    for (float& v : sum) v = 0;
    for (; i < until; ++i) {
      barrier_wait(full + 8 * (i % stages), i / stages % 2);
      barrier_wait(rows_full + 8 * (i % stages), i / stages % 2);
      const auto at = static_cast<uint64_t>(i % stages * (stage_bytes >> 4));
      products_begin();
#pragma unroll
      for (int step = 0; step < step_k / 16; ++step)
        Product<__nv_bfloat16, x_rows>::scores(sum, w + at + static_cast<uint64_t>(2 * step), rows + at + static_cast<uint64_t>(2 * step), 1);
      products_commit();
      products_wait<0>();  // they are short: their stage is worth more
      hold(sum);
      if (lane == 0) barrier_arrive(empty + 8 * (i % stages));
    }
#pragma unroll
    for (int e = 0; e < N; ++e) sums[(8 * (e / 4) + 2 * j + e % 2) * fixed_pitch + row + 8 * (e / 2 % 2)] = sum[e];
    if (from == 0)
      group_sync(scales_barrier, consumers + 32);
    else
      group_sync(sums_barrier, consumers);
    Parts::out<false>(p, share, tile, from == tile_begin, until == tile_end, begin + tile_end, sums, scales, thread, sums_barrier);
    group_sync(sums_barrier, consumers);  // the sums are the next tile's
  }
#endif
}

bool few_hopper(Context* c, const StreamArgs& a, const FewNorm* norm) {
  const int64_t rows = a.glu ? fixed_tile_w / 2 : fixed_tile_w, tiles = (a.n + rows - 1) / rows, steps = a.l.k_padded / step_k;
  FewArgs p{a, norm ? *norm : FewNorm{}, {}, {c->few, static_cast<int32_t>(steps), static_cast<int32_t>(tiles * steps), 0, 0}};
  const unsigned blocks = few_blocks(c->multiprocessors, c->may_wait, &p.shares, least_steps, w_bytes);
  CUtensorMap maps[3] = {};
  const int64_t w_rows = up(a.l.rows, row_block);
  if (!map_rows(a.low, a.l.k_padded, w_rows, a.l.row_bytes, &maps[0]) || !map_rows(a.high, a.l.k_padded, w_rows, a.l.row_bytes, &maps[1]) ||
      !map_rows(a.x, a.l.k, a.m, a.x_stride * 2, &maps[2], x_rows))
    return false;
  return few_launch(c, few_products, Shape{dim3(blocks), dim3(threads), shared_bytes}, p, maps);
}

}  // namespace

FewState* make_few_state(const Context& c) {
  const size_t bytes = static_cast<size_t>(c.multiprocessors) * few_hopper_rows * few_most_w * sizeof(float);
  FewState* state = nullptr;
  if (cudaMalloc(&state, bytes) == cudaSuccess && cudaMemsetAsync(state, 0xff, bytes, c.stream) == cudaSuccess) return state;
  cudaGetLastError();
  cudaFree(state);
  return nullptr;
}

bool few_takes(const Context& c, const LinearDesc& d, const Pieces& pieces, int64_t m) {
  if (!c.few || m <= plain_rows || m > few_hopper_rows || d.compute == Compute::fp32 || !tensor_map_encode()) return false;
  for (int i = 0; i < pieces.count; ++i) {
    const Piece& l = pieces.piece[i];
    if (l.codes == Codes::bf16) continue;
    if (d.compute == Compute::a8 && !l.tiled) return false;  // meet activations of 8 bits
    if (!few_hopper_codes_takes(l)) return false;
  }
  return true;
}

bool few_leaves(Context* c, const float* x, int64_t x_stride, int64_t m, int64_t k, size_t bytes, FewNorm* norm) {
  const std::lock_guard lock(c->mutex);
  auto* p = static_cast<FewArgs*>(c->few_last ? c->launches.last(c->few_last) : nullptr);
  if (!p || p->left.rows) return false;
  const StreamArgs& a = p->a;
  if (a.out != x || a.narrow_out || a.glu || a.m != m || a.n != k || a.out_stride != x_stride) return false;
  if (k % fixed_tile_w || x_stride % 4 || reinterpret_cast<uintptr_t>(x) % 16 || reinterpret_cast<uintptr_t>(norm->weight) % 16) return false;
  const auto *room = reinterpret_cast<const char*>(norm->rows), *read = static_cast<const char*>(a.x);
  if (read < room + bytes && room < read + ((m - 1) * a.x_stride + a.l.k) * 2) return false;
  norm->tiles = static_cast<int32_t>(k / fixed_tile_w);
  p->left = *norm;
  return true;
}

bool few_product(Context* c, const StreamArgs& a, const FewNorm* norm) {
  return a.l.codes == Codes::bf16 ? few_hopper(c, a, norm) : few_hopper_codes(c, a, norm);
}

}  // namespace orlop::cuda
