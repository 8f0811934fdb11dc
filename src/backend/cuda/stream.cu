// Products of few rows of activations. What bounds them is reading the weights once, so everything serves that:
// each thread copies the very codes that it will multiply, 16 bytes at a time, into a ring of its own in shared
// memory (cp.async), which needs no barrier and begins before the kernel's inputs are there. m16n8k16 tensor core
// steps multiply the codes, which bf16 holds exactly, with float32 sums; scales and mins are applied to the sums.
//
// A block takes a slice of k for tiles of 16 rows of weights, two tiles at a time; eight warps take pieces of the
// slice for each, and their sums are added in order. If the activations of a whole row of weights do not fit beside the ring, the k of a
// row is shared by a cluster of blocks, which read each other's sums. An output's bits depend on its own inputs
// and on the number of blocks that share k.
#include <cooperative_groups.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "backend/cuda/codes.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stream_order.cuh"

namespace orlop::cuda {
namespace {

constexpr int threads = stream_threads;
static_assert(threads >= norm_threads);

// One in 16 outputs of each column that a thread holds of a tile of the tensor cores: rows lane / 4 and 8 more,
// columns lane % 4 * 2 and the next.
template <Codes codes, Scales scales, int columns, int depth>
__global__ void __launch_bounds__(threads, columns == 1 ? 2 : 1) products(StreamArgs a, int blocks_of_k) {
  constexpr int unit = static_cast<int>(unit_of(codes)), steps = unit / 16;
  constexpr bool tiled = scales != Scales::none, natural = natural_steps(codes, tiled);
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float norm_parts[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % warps, half = threadIdx.x / (32 * warps), j = lane % 4, g = lane / 4;
  const Piece& l = a.l;
  const int rank = static_cast<int>(blockIdx.x) % blocks_of_k, cluster = static_cast<int>(blockIdx.x) / blocks_of_k;
  const int clusters = static_cast<int>(gridDim.x) / blocks_of_k;
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int rows_of_tile = gated ? 8 : 16, all_tiles = static_cast<int>((a.n + rows_of_tile - 1) / rows_of_tile);
  const Share slice = share({0, static_cast<int>(l.units)}, rank, blocks_of_k), mine = share(slice, warp, warps);
  const int m_begin = static_cast<int>(blockIdx.y) * 8 * columns, m = min(a.m - m_begin, 8 * columns);
  const int x_elements = (slice.end - slice.begin) * unit, pitch = x_pitch<codes, tiled>(share({0, static_cast<int>(l.units)}, 0, blocks_of_k).end * unit);

  const int scale_bytes = scales == Scales::none ? 0 : scales == Scales::one ? 4 : scales == Scales::with_min ? 8 : static_cast<int>(l.scale_bytes);
  const bool has_min = scales == Scales::with_min || (scales == Scales::any && l.has_min);
  const int sub = scales == Scales::any ? l.sub : 1;

  unsigned char* ring = shared;                                              // [depth][2][threads] of 16 bytes
  unsigned char* scale_ring = ring + depth * 2 * threads * 16;       // [depth][2][warps][8 rows] of scale_bytes
  float* sums = reinterpret_cast<float*>(scale_ring + depth * 2 * threads / 4 * scale_bytes);  // [turn][warps][columns][32][4]
  float* part = sums + turn * warps * columns * 128;                              // [2][together][columns][32][4], of clusters
  auto* x = reinterpret_cast<__nv_bfloat16*>(part + (blocks_of_k > 1 ? 2 * together * columns * 128 : 0));  // [m][pitch]

  // The stream of this thread: for each tile of rows, each unit of this warp, each half of the tile.
  const auto unit_bytes = static_cast<uint32_t>(tiled ? l.block_bytes : 64);
  const auto units = static_cast<uint32_t>(l.units), last_row = static_cast<uint32_t>(up(l.rows, row_block)) - 1;
  const unsigned char* codes_at[2];
  const unsigned char* scales_from[2];
  const auto turn_to = [&](int tile) {
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const bool high = p;
      uint32_t row = static_cast<uint32_t>(tile * rows_of_tile + g) + (high ? gated ? static_cast<uint32_t>(a.up_row) : 8u : 0u);
      row = min(row, last_row);  // rows beyond the last output may be beyond the padding
      const unsigned char* piece = high ? a.high : a.low;
      if constexpr (tiled) {
        const unsigned char* block = piece + uint64_t{row / 16 * units + static_cast<uint32_t>(mine.begin)} * unit_bytes;
        codes_at[p] = block + row % 16 * 64 + 16 * j;
        scales_from[p] = block + 1024 + row % 16 * static_cast<uint32_t>(scale_bytes) + 16 * j;
      } else {
        codes_at[p] = piece + uint64_t{row} * static_cast<uint32_t>(l.row_bytes) + mine.begin * 64 + 16 * j;
      }
    }
  };
  int next_tile = half * clusters + cluster, next_unit = mine.begin, slot = 0;
  const auto fetch = [&] {
    if (next_tile < all_tiles && mine.begin < mine.end) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        copy_later<16>(ring + 16 * ((slot * 2 + p) * threads + static_cast<int>(threadIdx.x)), codes_at[p]);
        codes_at[p] += unit_bytes;
        if constexpr (tiled) {  // a row's four threads share its scales
          unsigned char* to = scale_ring + scale_bytes * ((slot * 2 + p) * threads / 4 + static_cast<int>(threadIdx.x) / 4) + 16 * j;
          if constexpr (scales != Scales::any) {
            if (j == 0) copy_later<scales == Scales::one ? 4 : 8>(to, scales_from[p]);
          } else if (16 * j + 16 <= scale_bytes) {
            copy_later<16>(to, scales_from[p]);
          } else if (j == 0 && scale_bytes == 8) {
            copy_later<8>(to, scales_from[p]);
          } else if (j == 0) {
            copy_later<4>(to, scales_from[p]);
          }
          scales_from[p] += unit_bytes;
        }
      }
      if (++next_unit == mine.end) {
        next_unit = mine.begin;
        next_tile += turn * clusters;
        turn_to(next_tile);
      }
    }
    close_copies();
    slot = slot + 1 == depth ? 0 : slot + 1;
  };
  turn_to(next_tile);
#pragma unroll
  for (int i = 0; i < depth - 1; ++i) fetch();

  if (a.norm_weight)
    for (int i = 32 * static_cast<int>(threadIdx.x); i < l.k; i += 32 * threads) asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm_weight + i));

  wait_inputs();
  let_next_start();
  const int64_t k_begin = int64_t{slice.begin} * unit;
  if (a.narrow_x && l.k % 8 == 0 && a.x_stride % 8 == 0 && !a.k_map) {
    const int each = x_elements / 8;
    for (int i = static_cast<int>(threadIdx.x); i < m * each; i += threads) {
      const int row = i / each, at = i % each * 8;
      unsigned char* to = reinterpret_cast<unsigned char*>(x + row * pitch + at);
      if (k_begin + at < l.k)
        copy_later<16>(to, reinterpret_cast<const unsigned char*>(static_cast<const __nv_bfloat16*>(a.x) + (m_begin + row) * a.x_stride + k_begin + at));
      else
        *reinterpret_cast<uint4*>(to) = {};
    }
    close_copies();
    wait_copies<0>();
  } else if (a.norm_weight && l.k % 4 == 0 && a.x_stride % 4 == 0 && !a.k_map) {
    for (int row = 0; row < m; ++row) {
      const float* from = static_cast<const float*>(a.x) + (m_begin + row) * a.x_stride;
      const float scale = norm_scale(from, l.k, a.norm_eps, norm_parts);
#pragma unroll 4
      for (int i = 4 * static_cast<int>(threadIdx.x); i < x_elements; i += 4 * threads) {
        float4 v{}, w{};
        if (k_begin + i < l.k) {
          v = *reinterpret_cast<const float4*>(from + k_begin + i);
          w = *reinterpret_cast<const float4*>(a.norm_weight + k_begin + i);
        }
        *reinterpret_cast<uint2*>(x + row * pitch + i) = {pair(normed(v.x, scale, w.x), normed(v.y, scale, w.y)), pair(normed(v.z, scale, w.z), normed(v.w, scale, w.w))};
      }
      if (row + 1 < m) __syncthreads();  // norm_parts
    }
  } else {
    for (int row = 0; row < m; ++row) {
      const int64_t from = (m_begin + row) * a.x_stride;
      const float scale = a.norm_weight ? norm_scale(static_cast<const float*>(a.x) + from, l.k, a.norm_eps, norm_parts) : 1.0f;
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < x_elements; i += threads) {
        const int64_t k = k_begin + i, at = k < l.k && a.k_map ? a.k_map[k] : k;
        float v = 0;
        if (k < l.k) v = a.narrow_x ? __bfloat162float(static_cast<const __nv_bfloat16*>(a.x)[from + at]) : static_cast<const float*>(a.x)[from + at];
        x[row * pitch + i] = __float2bfloat16_rn(k < l.k && a.norm_weight ? normed(v, scale, a.norm_weight[at]) : v);
      }
      if (a.norm_weight) __syncthreads();  // norm_parts
    }
  }
  __syncthreads();

  const int scaled_steps = steps / sub, scaled_shift = __ffs(scaled_steps) - 1;
  int parity = 0;
  for (int first = cluster, taken = 0, waiting = 0; first < all_tiles; first += turn * clusters) {
    const bool there = first + half * clusters < all_tiles;  // an odd one is alone
    float total[2][columns][4] = {};  // of even and of odd steps: chains of tensor core products are long
    for (int u = mine.begin; u < (there ? mine.end : 0); ++u) {
      wait_copies<depth - 2>();
      if constexpr (natural) __syncwarp();  // some comes from others of the row; and all are done with the slot that fetch fills
      const int at = taken * 2;
      taken = taken + 1 == depth ? 0 : taken + 1;
      uint4 q[2];
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const unsigned char* from = ring + 16 * ((at + p) * threads + static_cast<int>(threadIdx.x));
        if constexpr (natural && !tiled) {  // elements 4 j to 4 j + 3 of both steps
          const uint2* of_row = reinterpret_cast<const uint2*>(from - 16 * j) + j;
          q[p] = {of_row[0].x, of_row[0].y, of_row[4].x, of_row[4].y};
        } else {
          q[p] = *reinterpret_cast<const uint4*>(from);
        }
      }
      fetch();  // into the slot that was read before this one
      const __nv_bfloat16* from = x + g * pitch + (u - slice.begin) * unit + (natural ? 4 * j : unit / 4 * j);
      float raw[2][columns][4] = {}, xsum[columns][4] = {};
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        uint32_t w[4];
        widen<codes>(q[0], i, l.zero, w[0], w[2]);
        widen<codes>(q[1], i, l.zero, w[1], w[3]);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          uint2 v{};
          if (8 * c + g < m) v = *reinterpret_cast<const uint2*>(from + 8 * c * pitch + (natural ? 16 : 4) * i);
          mma(tiled ? raw[i % 2][c] : total[i % 2][c], w, v.x, v.y);
          if constexpr (tiled) {
            const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
            if (has_min) mma(xsum[c], ones, v.x, v.y);
          }
        }
        if constexpr (tiled) {
          if (scales == Scales::any ? (i + 1) & (scaled_steps - 1) : i + 1 < steps) continue;
          const int s = scales == Scales::any ? i >> scaled_shift : 0;
          const float* row[2];
#pragma unroll
          for (int high = 0; high < 2; ++high)
            row[high] = reinterpret_cast<const float*>(scale_ring + scale_bytes * ((at + high) * threads / 4 + static_cast<int>(threadIdx.x) / 4)) + s;
#pragma unroll
          for (int c = 0; c < columns; ++c) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              total[0][c][e] = fmaf(row[e / 2][0], raw[0][c][e] + raw[1][c][e], total[0][c][e]);
              if (has_min) total[0][c][e] = fmaf(row[e / 2][sub], xsum[c][e % 2], total[0][c][e]);
              raw[0][c][e] = raw[1][c][e] = 0;
            }
            xsum[c][0] = xsum[c][1] = xsum[c][2] = xsum[c][3] = 0;
          }
        }
      }
    }
    __syncthreads();  // the sums of the tile before were read
#pragma unroll
    for (int c = 0; c < columns; ++c)
      *reinterpret_cast<float4*>(sums + (((half * warps + warp) * columns + c) * 32 + lane) * 4) = {total[0][c][0] + total[1][c][0], total[0][c][1] + total[1][c][1],
                                                                                  total[0][c][2] + total[1][c][2], total[0][c][3] + total[1][c][3]};
    __syncthreads();
    const auto block_sum = [&](int at) {  // of the pair's sums
      const float* from = sums + at / (columns * 128) * warps * columns * 128 + at % (columns * 128);
      float v = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) v += from[w * columns * 128];
      return v;
    };
    // Item: low rows' sums first, then with gates the high rows' of the same place.
    const auto finish = [&](int of_tile, int at, auto&& value) {
      const int in = at % 128 / 4, e = at % 4, column = at / 128 * 8 + in % 4 * 2 + e % 2;
      const bool high = e / 2;
      if (column >= m || (gated && high)) return;
      const int64_t n = int64_t{of_tile} * rows_of_tile + in / 4 + (high ? 8 : 0);
      if (n >= a.n) return;
      float v = value(at);
      if (!tiled && l.scaled) v = __fmul_rn(v, reinterpret_cast<const float*>(a.low + l.scales_at)[n]);
      if (a.bias) v = __fadd_rn(v, a.bias[n]);
      if (gated) {
        float u = value(at + 2);
        if (!tiled && l.scaled) u = __fmul_rn(u, reinterpret_cast<const float*>(a.high + l.scales_at)[n + a.up_row]);
        if (a.up_bias) u = __fadd_rn(u, a.up_bias[n]);
        v = __fmul_rn(u, activated(a.glu == static_cast<int>(Glu::gelu_tanh), v));
      }
      const int64_t place = int64_t{m_begin + column} * a.out_stride + n;
      if (a.narrow_out)
        reinterpret_cast<__nv_bfloat16*>(a.out)[place] = __float2bfloat16_rn(v);
      else
        a.out[place] = a.accumulate ? __fadd_rn(a.out[place], v) : v;
    };
    const int here = min(turn, (all_tiles - first + clusters - 1) / clusters);  // tiles of this turn
    if (blocks_of_k == 1) {
      for (int at = static_cast<int>(threadIdx.x); at < here * columns * 128; at += threads) {
        const int which = at / (columns * 128);
        finish(first + which * clusters, at % (columns * 128), [&](int i) { return block_sum(which * columns * 128 + i); });
      }
      continue;
    }
#if __CUDA_ARCH__ >= 900
    // The blocks of a cluster meet once for several tiles.
    float* own = part + (parity * together + waiting) * columns * 128;
    for (int at = static_cast<int>(threadIdx.x); at < here * columns * 128; at += threads) own[at] = block_sum(at);
    waiting += here;
    if (waiting + turn <= together && first + turn * clusters < all_tiles) continue;
    const auto all = cooperative_groups::this_cluster();
    all.sync();
    for (int at = static_cast<int>(threadIdx.x); at < waiting * columns * 128; at += threads) {
      if (at / 4 % blocks_of_k != rank) continue;
      const int which = at / (columns * 128);
      float* from = part + (parity * together + which) * columns * 128;
      finish(first + (here - waiting + which) * clusters, at % (columns * 128), [&](int i) {
        float v = 0;
        for (int r = 0; r < blocks_of_k; ++r) v += *all.map_shared_rank(from + i, r);
        return v;
      });
    }
    waiting = 0;
    parity ^= 1;
#endif
  }
#if __CUDA_ARCH__ >= 900
  // Nobody leaves while others read its sums.
  if (blocks_of_k > 1) cooperative_groups::this_cluster().sync();
#endif
}

// Clusters that run side by side: parts of the GPU may be too small for one more.
int clusters_at_once(const Context* c, const void* kernel, int blocks_of_k, size_t shared) {
  if (blocks_of_k == 1) return c->multiprocessors;
  static std::mutex mutex;
  static std::map<std::tuple<int, const void*, int>, int> known;
  const std::lock_guard lock(mutex);
  int& n = known[{c->index, kernel, blocks_of_k}];
  if (n == 0) {
    PluginStatus status;
    const Here here(c, &status);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(blocks_of_k);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(c->multiprocessors / blocks_of_k * blocks_of_k));
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (!here || cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess || n < 1) {
      cudaGetLastError();
      n = std::max(1, c->multiprocessors / blocks_of_k - 1);
    }
    n = std::min(n, c->multiprocessors / blocks_of_k);
  }
  return n;
}

template <Codes codes, Scales scales, int columns, int depth>
bool run(Context* c, const StreamArgs& a, int blocks_of_k, size_t most_shared, PluginStatus* status) {
  constexpr auto kernel = products<codes, scales, columns, depth>;
  // What fits decides the sums' order.
  const size_t shared = stream_shared<codes, scales != Scales::none>(a.l, blocks_of_k, columns, depth, c->fast ? std::min(a.m, 8 * columns) : 8 * columns);
  if (shared + stream_besides > most_shared || (blocks_of_k > 1 && c->capability < 90)) return false;
  const int64_t rows = a.glu ? 8 : 16, all_tiles = up(a.n, rows) / rows;
  const int64_t clusters = std::min<int64_t>(all_tiles, clusters_at_once(c, reinterpret_cast<const void*>(kernel), blocks_of_k, shared));
  launch(c, kernel, Shape{dim3(blocks(clusters * blocks_of_k, 1), blocks(a.m, 8 * columns)), dim3(threads), shared, static_cast<unsigned>(blocks_of_k)},
         a, blocks_of_k);
  return true;
}

template <Codes codes, Scales scales>
bool run(Context* c, const StreamArgs& a, PluginStatus* status) {
  const int blocks_of_k = stream_blocks_of_k(a.l, c->fast ? std::min(a.m, stream_rows) : stream_rows);  // by k alone where bits may not depend on m
  const size_t all = c->block_shared;
  if (a.m > 16 && run<codes, scales, 4, 4>(c, a, blocks_of_k, all, status)) return true;
  if (a.m > 8 && run<codes, scales, 2, 4>(c, a, blocks_of_k, all, status)) return true;
  // As deep a ring as leaves room for the next kernel's block beside this one's.
  return run<codes, scales, 1, scales == Scales::none ? 6 : 5>(c, a, blocks_of_k, all / 2, status) ||
         run<codes, scales, 1, 4>(c, a, blocks_of_k, all, status);
}

template <Codes codes>
bool run_tiled(Context* c, const StreamArgs& a, PluginStatus* status) {
  if (a.l.sub > 1) return run<codes, Scales::any>(c, a, status);
  return a.l.has_min ? run<codes, Scales::with_min>(c, a, status) : run<codes, Scales::one>(c, a, status);
}

}  // namespace

bool stream(Context* c, const StreamArgs& a, PluginStatus* status) {
  if (a.l.tiled) {
    if (a.l.codes == Codes::u4) return run_tiled<Codes::u4>(c, a, status);
    if (a.l.codes == Codes::i8) return run_tiled<Codes::i8>(c, a, status);
    return run_tiled<Codes::e4m3>(c, a, status);
  }
  if (a.l.codes == Codes::bf16) return run<Codes::bf16, Scales::none>(c, a, status);
  if (a.l.codes == Codes::i8) return run<Codes::i8, Scales::none>(c, a, status);
  return run<Codes::e4m3, Scales::none>(c, a, status);
}

}  // namespace orlop::cuda
