// Products of up to 64 rows of activations with weights of 8 bits on Hopper, where reading the weights takes about as long
// as the tensor cores do. Weights come to shared memory as they are, become exact bf16 in registers and meet the activations
// in m16n8k16 products; scales are applied to the sums of what shares one.
//
// The blocks of a cluster share k. A block keeps its part of all activations in shared memory from beginning to end, or,
// where it is too large for that, a slice of it and the next one. Each of its warps goes by itself through groups of tiles
// of weights (16 rows each), which come through a ring of its own: no warp waits for another before sums are added. Warps
// may share k, too. What they leave is added up in order, an equal part of it by each block of the cluster. Only code for
// sm_90a may run it.
#pragma once
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/stream_order.cuh"

namespace orlop::cuda {
namespace few {

constexpr int block_k = 128;    // elements of k of a stage of a ring
constexpr int chunk_k = 256;    // of activations that arrive together: 16 bytes a lane
constexpr int most_chunks = 16, most_stages = 5;

struct Plan {
  int32_t tiles, warps;  // of a group; of a block
  int32_t split;    // blocks of a cluster
  int32_t along_k;  // warps of a block that share its part of k
  int32_t clusters, groups, passes;
  int32_t phases, slice;  // slices of k, in turn, and their length in blocks of block_k
  int32_t blocks, each;  // of block_k elements: all, and those of a block
  int32_t stages, pitch;  // pitch: elements from one row of activations to the next
  // In shared memory, in bytes: activations (of a slice), rings (of a warp), sums (of a warp; of one pass they lie where the
  // rings were), barriers.
  int32_t x_bytes, rings_at, ring_bytes, sums_at, sums_bytes, barriers_at;
};

// A stage of a warp's ring: of each tile 16 rows of block_k elements. Tiled: as they lie in memory. Plain: 128 bytes a row,
// whose halves change places in odd rows: a warp's reads meet all banks.
template <Codes codes, Scales scales>
struct Stage {
  static_assert(codes != Codes::u4 && (scales == Scales::none || scales == Scales::one));
  static constexpr bool tiled = scales == Scales::one;
  static constexpr int unit = static_cast<int>(unit_of(codes)), units = block_k / unit, steps = unit / 16;
  static constexpr int unit_bytes = tiled ? 1024 + 64 : 64, tile_bytes = tiled ? units * unit_bytes : 16 * block_k;
};
// Of what a warp leaves of a group: [rows of activations][pitch of rows of weights].
constexpr int sums_pitch(int tiles) { return 16 * tiles + 4; }

// Whether the next kernel's block may begin beside such a one, as far as registers go.
template <int few_warps, int tiles, int columns>
constexpr bool beside = few_warps == 8 && tiles == 2 && columns <= 4;

template <Codes codes, Scales scales, int tiles, int columns, int few_warps>
__global__ void __launch_bounds__(32 * few_warps, beside<few_warps, tiles, columns> ? 2 : 1) products(const __grid_constant__ StreamArgs a, const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = Stage<codes, scales>;
  constexpr bool tiled = S::tiled;
  constexpr int threads = 32 * few_warps, half = tiles / 2, pitch_w = sums_pitch(tiles);
  unsigned char* const shared = dynamic_shared();
  const Piece& l = a.l;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, j = lane % 4, m = a.m;
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int rank = static_cast<int>(blockIdx.x) % p.split, cluster = static_cast<int>(blockIdx.x) / p.split;
  const int at_once = few_warps / p.along_k, of_rows = warp / p.along_k, part = warp % p.along_k;  // groups of a pass; which
  const int k_begin = min(p.blocks, rank * p.each), mine = min(p.blocks, k_begin + p.each) - k_begin;
  constexpr int unit_bytes = S::unit_bytes, tile_bytes = S::tile_bytes, stage_bytes = tiles * tile_bytes;
  const int first_group = of_rows < at_once ? cluster + of_rows * p.clusters : p.groups, next_group = p.clusters * at_once;
  unsigned char* const ring = shared + p.rings_at + warp * p.ring_bytes;
  const uint32_t arrived = shared_address(shared + p.barriers_at);  // chunks of activations

  // ---- weights on their way
  const auto tile_at = [&](int group, int t) {  // gated: of gate, then of up
    const bool second = gated && t >= half;
    const int64_t tile = gated ? int64_t{group} * half + t % half + (second ? a.up_row / tile_rows : 0) : int64_t{group} * tiles + t;
    return (second ? a.high : a.low) + tile * (tiled ? l.units * l.block_bytes : tile_rows * l.row_bytes);
  };
  const int64_t tile_step = tiled ? l.units * l.block_bytes : tile_rows * l.row_bytes;
  const int64_t k_bytes = tiled ? tile_bytes : block_k;  // of a row's (tiled: a tile's) block_k elements
  // What the next stage gets: two halves of a group, each of neighbouring tiles.
  int next_of = first_group, next_k = part;
  const unsigned char* from[2];
  const auto begin_group = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h) from[h] = tile_at(min(next_of, p.groups - 1), h * half) + (k_begin + part) * k_bytes;
  };
  begin_group();
  const auto fetch = [&](int stage) {
    unsigned char* const to = ring + stage * stage_bytes;
    if (next_of < p.groups && next_k < mine) {
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const unsigned char* const of_tile = from[t / half] + t % half * tile_step;
        if constexpr (tiled) {
#pragma unroll
          for (int at = 0; at < tile_bytes; at += 512)
            if (at + 512 <= tile_bytes || 16 * lane < tile_bytes - at) copy_later<16>(to + t * tile_bytes + at + 16 * lane, of_tile + at + 16 * lane);
        } else {
          const int row = lane / 8, piece = lane % 8;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            copy_later<16>(to + t * tile_bytes + (4 * i + row) * block_k + (piece ^ row % 2 * 4) * 16, of_tile + (4 * i + row) * l.row_bytes + piece * 16);
        }
      }
    }
    close_copies();
    next_k += p.along_k;
    from[0] += p.along_k * k_bytes;
    from[1] += p.along_k * k_bytes;
    if (next_k >= mine) {
      next_k = part;
      next_of += next_group;
      begin_group();
    }
  };
  if (thread < 2 * most_chunks) {
    barrier_init(arrived + 8 * thread, threads);
    barriers_there();
  }
  for (int s = 0; s < p.stages - 1; ++s) fetch(s);

  // ---- activations, slice after slice; rows are zero beyond k
  auto* const x = reinterpret_cast<__nv_bfloat16*>(shared);  // [m][pitch]
  const auto slice_of = [&](int q) { return Share{min(mine, q % p.phases * p.slice), min(mine, (q % p.phases + 1) * p.slice)}; };
  const auto load = [&](int q) {  // all warps; the slice before the one before has been read
    const Share slice = slice_of(q);
    const int64_t from = int64_t{k_begin + slice.begin} * block_k;
    const int all = (slice.end - slice.begin) * block_k, there = static_cast<int>(max(int64_t{0}, min(l.k - from, int64_t{all})));
    __nv_bfloat16* const to = x + q % 2 * (p.x_bytes / 2);
    for (int c = 0; c * chunk_k < all; ++c) {
      const int at = c * chunk_k + 8 * lane;
      if (at < all) {
        const auto* of_row = static_cast<const __nv_bfloat16*>(a.x) + warp * a.x_stride + (at < there ? from + at : 0);
        for (int row = warp; row < m; row += few_warps, of_row += few_warps * a.x_stride)
          copy_later_if(at < there, reinterpret_cast<unsigned char*>(to + row * p.pitch + at), reinterpret_cast<const unsigned char*>(of_row));
      }
      arrive_with_copies(arrived + 8 * (q % 2 * most_chunks + c));
    }
  };
  __syncthreads();
  wait_inputs();
  let_next_start();
  load(0);

  // ---- a pass's sums, added up
  const int pass_rows = (gated ? half : tiles) * 16;
  constexpr int shift = tiles == 4 ? 4 : 3;  // of fours of rows; gated: half of them
  const auto finish = [&](int pass) {
    float* const sums = reinterpret_cast<float*>(shared + p.sums_at);
    const bool even = a.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 16 == 0, gelu = a.glu == static_cast<int>(Glu::gelu_tanh);
    const int begin = pass * next_group + cluster, groups = min(at_once, (p.groups - begin + p.clusters - 1) / p.clusters);
    for (int at = rank * threads + thread; at < groups * m << (gated ? shift - 1 : shift); at += threads * p.split) {
      const int row_of_x = at >> (gated ? shift - 1 : shift), r = (at & (pass_rows / 4 - 1)) * 4;
      const int group = static_cast<int>(static_cast<unsigned>(row_of_x) / static_cast<unsigned>(m)), column = row_of_x - group * m;
      const int64_t n = int64_t{begin + group * p.clusters} * pass_rows + r;
      if (n >= a.n) continue;
      const int64_t place = column * a.out_stride + n;
      const int count = static_cast<int>(min(a.n - n, int64_t{4}));
      const bool whole = even && count == 4;
      float before[4] = {};  // comes while sums do
      if (a.accumulate) {
        if (whole) {
          const float4 v = *reinterpret_cast<const float4*>(a.out + place);
          before[0] = v.x, before[1] = v.y, before[2] = v.z, before[3] = v.w;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (e < count) before[e] = a.out[place + e];
        }
      }
      const auto value = [&](int row) {
        float* from = sums + group * p.along_k * (p.sums_bytes / 4) + column * pitch_w + row;
        float4 v{};
        for (int first = 0; first < p.split * p.along_k; first += 8) {
          float4 more[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) {  // of blocks that are farther in k, and of their warps
            more[i] = {};
            if (first + i < p.split * p.along_k) more[i] = *reinterpret_cast<const float4*>(at_block(from + (first + i) % p.along_k * (p.sums_bytes / 4), (first + i) / p.along_k));
          }
#pragma unroll
          for (int i = 0; i < 8; ++i) v = {v.x + more[i].x, v.y + more[i].y, v.z + more[i].z, v.w + more[i].w};
        }
        return v;
      };
      const float4 sum = value(r);
      float v[4] = {sum.x, sum.y, sum.z, sum.w};
      const auto each = [&](auto&& f) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < count) v[e] = f(v[e], n + e, e);
      };
      if (!tiled && l.scaled) each([&](float s, int64_t i, int) { return s * reinterpret_cast<const float*>(a.low + l.scales_at)[i]; });
      if (a.bias) each([&](float s, int64_t i, int) { return s + a.bias[i]; });
      if (gated) {
        const float4 ups = value(r + pass_rows);
        const float with[4] = {ups.x, ups.y, ups.z, ups.w};
        each([&](float s, int64_t i, int e) {
          float u = with[e];
          if (!tiled && l.scaled) u *= reinterpret_cast<const float*>(a.high + l.scales_at)[i + a.up_row];
          if (a.up_bias) u += a.up_bias[i];
          return u * activated(gelu, s);
        });
      }
      if (a.narrow_out) {
        auto* to = reinterpret_cast<__nv_bfloat16*>(a.out) + place;
        if (whole)
          *reinterpret_cast<uint2*>(to) = {pair(v[0], v[1]), pair(v[2], v[3])};
        else
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (e < count) to[e] = __float2bfloat16_rn(v[e]);
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] += before[e];
      float* to = a.out + place;
      if (whole)
        *reinterpret_cast<float4*>(to) = {v[0], v[1], v[2], v[3]};
      else
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < count) to[e] = v[e];
    }
  };

  // ---- products
  int x_row[columns];  // bytes; of activations that are not there others are taken: nobody sees what comes of them
#pragma unroll
  for (int c = 0; c < columns; ++c) x_row[c] = 2 * (min(8 * c + g, m - 1) * p.pitch + (tiled ? 4 : S::unit / 4) * j);
  int stage = 0, q = 0, there = 0;  // there: chunks of the slice that are
  for (int pass = 0; pass < p.passes; ++pass) {
    float total[tiles][columns][4];
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[t][c][e] = 0;
    const int group = of_rows < at_once ? first_group + pass * next_group : p.groups;
    for (int phase = 0; phase < p.phases; ++phase) {
      const bool more = p.phases > 1 && q + 1 < p.passes * p.phases;
      if (more) load(q + 1);
      const Share slice = slice_of(q);
      const unsigned char* const of_slice = shared + q % 2 * p.x_bytes;
      for (int kb = slice.begin + part; kb < (group < p.groups ? slice.end : 0); kb += p.along_k) {
        const int in_slice = kb - slice.begin;
        if (const int chunk = in_slice * block_k / chunk_k; chunk >= there) {
          barrier_wait(arrived + 8 * (q % 2 * most_chunks + chunk), q / 2 % 2);
          there = chunk + 1;
        }
        switch (p.stages) {
          case 2: wait_copies<0>(); break;
          case 3: wait_copies<1>(); break;
          case 4: wait_copies<2>(); break;
          case 5: wait_copies<3>(); break;
          default: wait_copies<4>(); break;
        }
        __syncwarp();  // everyone's are there, and nobody reads the stage that comes next
        fetch(stage == 0 ? p.stages - 1 : stage - 1);
        const unsigned char* here = ring + stage * stage_bytes;
#pragma unroll
        for (int u = 0; u < S::units; ++u) {
          uint4 v[tiles][2];
#pragma unroll
          for (int t = 0; t < tiles; ++t)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              v[t][h] = *reinterpret_cast<const uint4*>(tiled ? here + t * tile_bytes + u * unit_bytes + (g + 8 * h) * 64 + 16 * j
                                                              : here + t * tile_bytes + (g + 8 * h) * block_k + (u ^ g % 2) * 64 + 16 * j);
          const unsigned char* const at_k = of_slice + 2 * (in_slice * block_k + u * S::unit);
          if constexpr (!tiled) {
#pragma unroll
            for (int i = 0; i < S::steps; i += 2) {
              uint32_t w[2][tiles][4];
#pragma unroll
              for (int odd = 0; odd < 2; ++odd)
#pragma unroll
                for (int t = 0; t < tiles; ++t) {
                  widen<codes>(v[t][0], i + odd, 0, w[odd][t][0], w[odd][t][2]);
                  widen<codes>(v[t][1], i + odd, 0, w[odd][t][1], w[odd][t][3]);
                }
#pragma unroll
              for (int c = 0; c < columns; ++c) {
                const uint4 b = *reinterpret_cast<const uint4*>(at_k + x_row[c] + 8 * i);
#pragma unroll
                for (int t = 0; t < tiles; ++t) mma(total[t][c], w[0][t], b.x, b.y);
#pragma unroll
                for (int t = 0; t < tiles; ++t) mma(total[t][c], w[1][t], b.z, b.w);
              }
            }
          } else {
            float raw[tiles][columns][4];
#pragma unroll
            for (int i = 0; i < S::steps; ++i) {
              uint32_t w[tiles][4];
#pragma unroll
              for (int t = 0; t < tiles; ++t)
#pragma unroll
                for (int h = 0; h < 2; ++h) widen<codes>(v[t][h], i, 0, w[t][h], w[t][h + 2]);
#pragma unroll
              for (int c = 0; c < columns; ++c) {
                const uint2 b = *reinterpret_cast<const uint2*>(at_k + x_row[c] + 32 * i);
                const float start[4] = {};
#pragma unroll
                for (int t = 0; t < tiles; ++t) {
                  if (i == 0)
                    mma(raw[t][c], w[t], b.x, b.y, start);
                  else
                    mma(raw[t][c], w[t], b.x, b.y);
                }
              }
            }
#pragma unroll
            for (int t = 0; t < tiles; ++t) {
              const float* scale = reinterpret_cast<const float*>(here + t * tile_bytes + u * unit_bytes + 1024 + 4 * g);
              const float by[2] = {scale[0], scale[8]};
#pragma unroll
              for (int c = 0; c < columns; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) total[t][c][e] = fmaf(by[e / 2], raw[t][c][e], total[t][c][e]);
            }
          }
        }
        if (++stage == p.stages) stage = 0;
      }
      if (p.phases > 1) {
        __syncthreads();
        ++q;
        there = 0;
      }
    }
    if (pass > 0) cluster_wait();  // the sums before are read
    float* to = reinterpret_cast<float*>(shared + p.sums_at + warp * p.sums_bytes);
    if (p.passes == 1) __syncwarp();  // where the ring was
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (const int column = 8 * c + 2 * j + e % 2; column < m) to[column * pitch_w + 16 * t + 8 * (e / 2) + g] = total[t][c][e];
    cluster_arrive();
    cluster_wait();
    finish(pass);
    if (p.split > 1 || pass + 1 < p.passes) cluster_arrive();
  }
  if (p.split > 1) cluster_wait();  // nobody leaves while others read its sums
#endif
}

}  // namespace few
}  // namespace orlop::cuda
