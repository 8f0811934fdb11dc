// Products of up to 16 rows of activations with bf16 weights. Weights are the left operand, whose rows of 64 fill a
// warpgroup product (wgmma), activations the right one, as few columns as there are: both from shared memory, where a
// warp brings them by tensor maps into a ring of stages.
//
// Two blocks share a multiprocessor: one adds up while the other's weights come, and where there is one the next product's
// block already fills its ring, since weights need nothing of the kernels before. Where tiles are few, k is shared by a
// cluster of blocks, which adds their sums in order.
#include "backend/cuda/few.cuh"

#include "backend/cuda/fixed_hopper.cuh"

namespace orlop::cuda {
namespace {

constexpr int threads = consumers + 32;  // one warp copies
constexpr int sums_barrier = 1;          // of the consumers

constexpr int x_rows = 32;  // of activations, zeros beyond those that are there
constexpr int w_bytes = fixed_tile_w * step_k * 2, x_bytes = x_rows * step_k * 2, stage_bytes = w_bytes + x_bytes;
constexpr int stages = 110 * 1024 / stage_bytes;
constexpr size_t shared_bytes = 1024 + stages * stage_bytes + 16 * stages;  // sums come where the ring was
static_assert(x_rows >= few_hopper_rows && x_rows * fixed_pitch * 4 <= stages * stage_bytes && fixed_tile_w == 64 * groups);

struct Args {
  StreamArgs a;
  FewNorm taken, left;  // what x lacks, and what is left for the next product; rows null: nothing
  int split, each;      // blocks that share k; steps of each
};

__global__ void __launch_bounds__(threads, 2)
    few_products(const __grid_constant__ Args p, const __grid_constant__ CUtensorMap low, const __grid_constant__ CUtensorMap high, const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int N = x_rows / 2;
  const StreamArgs& a = p.a;
  extern __shared__ unsigned char raw_shared[];
  __shared__ float scales[x_rows];
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024, full = base + stages * stage_bytes, empty = full + 8 * stages;
  float* const sums = reinterpret_cast<float*>(raw_shared + (base - shared_address(raw_shared)));
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int split = p.split, rank = split > 1 ? cluster_rank() : 0;
  const int64_t n0 = int64_t{static_cast<int>(blockIdx.x) / split} * (gated ? fixed_tile_w / 2 : fixed_tile_w);
  const int all = static_cast<int>(a.l.k_padded) / step_k, begin = min(all, rank * p.each), count = min(all, begin + p.each) - begin;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, consumers / 32);
    }
    barriers_there();
  }
  __syncthreads();
  let_next_start();

  if (threadIdx.x >= consumers) {
    if (threadIdx.x == consumers) {
      const auto weights = [&](int i) {
        const uint32_t to = base + i % stages * stage_bytes, barrier = full + 8 * (i % stages);
        const int k = (begin + i) * step_k;
        barrier_expect(barrier, stage_bytes);
        copy_rows(to, &low, k, static_cast<int>(n0), barrier);
        copy_rows(to + w_bytes / 2, gated ? &high : &low, k, static_cast<int>(gated ? n0 + a.up_row : n0 + 64), barrier);
      };
      const auto activations = [&](int i) {
        const uint32_t to = base + i % stages * stage_bytes + w_bytes;
        copy_rows(to, &x, (begin + i) * step_k, 0, full + 8 * (i % stages));
      };
      const int early = min(count, stages);
      for (int i = 0; i < early; ++i) weights(i);
      wait_inputs();
      for (int i = 0; i < early; ++i) activations(i);
      for (int i = early; i < count; ++i) {
        barrier_wait(empty + 8 * (i % stages), i / stages % 2 ^ 1);
        weights(i);
        activations(i);
      }
    }
    __syncwarp();
    wait_inputs();
  } else {
    const int group = static_cast<int>(threadIdx.x) / 128, lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const uint64_t w = swizzled(base + group * (w_bytes / groups), 0, 1024), rows = swizzled(base + w_bytes, 0, 1024);
    float sum[N];
#pragma unroll
    for (float& v : sum) v = 0;
    wait_inputs();
    if (p.taken.squares)
      for (int column = static_cast<int>(threadIdx.x) / 32; column < a.m; column += consumers / 32) {
        float of_row = 0;
        for (int t = lane; t < p.taken.tiles; t += 32) of_row += __ldcg(p.taken.squares + t * a.m + column);
        of_row = warp_sum(of_row);
        if (lane == 0) scales[column] = 1.0f / sqrtf(of_row / static_cast<float>(a.l.k) + p.taken.eps);
      }
    for (int i = 0; i < count; ++i) {
      barrier_wait(full + 8 * (i % stages), i / stages % 2);
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
    group_sync(sums_barrier, consumers);  // nobody reads the ring any more
    const int row = group * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + g;
#pragma unroll
    for (int i = 0; i < N; ++i) sums[(8 * (i / 4) + 2 * j + i % 2) * fixed_pitch + row + 8 * (i / 2 % 2)] = sum[i];
  }
  const auto scaled = [&](int i, const float4& v) {
    if (!p.taken.squares) return v;
    const float by = scales[i / fixed_pitch];
    return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
  };
  const auto left = [&](int column, int64_t n, const float4& v) {  // a warp has a row of the tile
    const float4 w = *reinterpret_cast<const float4*>(p.left.weight + n);
    *reinterpret_cast<uint2*>(p.left.rows + column * p.left.stride + n) = {pair(v.x * w.x, v.y * w.y), pair(v.z * w.z, v.w * w.w)};
    const float of_row = warp_sum(v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w));
    if (threadIdx.x % 32 == 0) p.left.squares[n0 / fixed_tile_w * a.m + column] = of_row;
  };
  if (p.left.rows)
    leave_tile<false>(a, 0, n0, x_rows, sums, split, rank, scaled, left);
  else
    leave_tile<false>(a, 0, n0, x_rows, sums, split, rank, scaled);
#endif
}

// Blocks that find room at once in clusters of so many; 0: none.
int places(Context* c, int split) {
  const auto* kernel = reinterpret_cast<const void*>(few_products);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(split);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(split));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  PluginStatus ignored;
  const Here here(c, &ignored);
  int clusters = 0;
  const bool known = here && cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared) == cudaSuccess &&
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)) == cudaSuccess &&
                     cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known ? clusters * split : 0;
}

}  // namespace

bool few_takes(const Context& c, const LinearDesc& d, const Pieces& pieces, int64_t m) {
  if (!c.fast || c.capability != 90 || m <= plain_rows || m > few_hopper_rows || d.compute == Compute::fp32 || !tensor_map_encode() || shared_bytes + 1024 > c.block_shared) return false;
  for (int i = 0; i < pieces.count; ++i)
    if (pieces.piece[i].codes != Codes::bf16) return false;
  return true;
}

bool few_leaves(Context* c, const float* x, int64_t x_stride, int64_t m, int64_t k, size_t bytes, FewNorm* norm) {
  const std::lock_guard lock(c->mutex);
  auto* p = static_cast<Args*>(c->launches.last(reinterpret_cast<const void*>(few_products)));
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

bool few_hopper(Context* c, const StreamArgs& a, const FewNorm* norm) {
  constexpr int most_log = 3, least = 4;  // steps of a block
  const int64_t rows = a.glu ? fixed_tile_w / 2 : fixed_tile_w, tiles = (a.n + rows - 1) / rows, steps = a.l.k_padded / step_k;
  Args p{a, norm ? *norm : FewNorm{}, {}, 1, static_cast<int>(steps)};
  for (int log = 1; log <= most_log; ++log) {
    std::atomic<int32_t>& known = c->few_places[log - 1];
    int32_t room = known;
    if (room == 0) known = room = places(c, 1 << log);
    if (tiles << log > room || steps >> log < least) break;
    p.split = 1 << log;
  }
  p.each = static_cast<int>((steps + p.split - 1) / p.split);
  CUtensorMap maps[3];
  const int64_t w_rows = up(a.l.rows, row_block);
  if (!map_rows(a.low, a.l.k_padded, w_rows, a.l.row_bytes, &maps[0]) || !map_rows(a.high, a.l.k_padded, w_rows, a.l.row_bytes, &maps[1]) ||
      !map_rows(a.x, a.l.k, a.m, a.x_stride * 2, &maps[2], x_rows))
    return false;
  launch(c, few_products, Shape{dim3(static_cast<unsigned>(tiles * p.split)), dim3(threads), shared_bytes, static_cast<unsigned>(p.split)}, p, maps[0], maps[1], maps[2]);
  return true;
}

}  // namespace orlop::cuda
