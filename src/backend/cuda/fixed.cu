// Products of many rows of activations with the bits of stream(): each output is summed in the same order, by the same
// tensor core steps of the same elements, but weights come to shared memory once for a tile of up to 128 rows of
// activations, which lie there too.
//
// A block makes 128 rows of weights (gated: 64 of gate and as many of up) by X rows of activations; a warp 32 by 8 WN of
// them. Codes and activations come through a ring of stages (cp.async). It goes through k in order: sums of a piece and
// of a block of stream()'s (a slice) are in registers, those of slices in shared memory. Where tiles are too few for the
// GPU, each slice has its own block, and a cluster of them adds their sums.
#include <cooperative_groups.h>

#include <algorithm>

#include "backend/cuda/fixed.cuh"
#include "backend/cuda/fixed_out.cuh"
#include "backend/cuda/norm.cuh"

namespace orlop::cuda {
namespace {

constexpr int tile_w = fixed_tile_w;
constexpr int warps_w = 4, mine_w = 2;  // warps along them; each has so many times 16

__device__ inline void step_to(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// first: what was in c does not count.
__device__ inline void step_to(bool first, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (first) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  } else {
    step_to(c, a, b0, b1);
  }
}

// 16 bytes, of which the last may be left out and are zero then.
__device__ inline void copy_part(unsigned char* to, const unsigned char* from, int bytes) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}

// How a block is laid out. x_tile: 8 wn warps_x rows of activations; `units` of k a stage.
template <Codes codes, bool tiled, int x_tile>
struct Layout {
  static constexpr int unit = static_cast<int>(unit_of(codes)), steps = unit / 16;
  static constexpr int wn = x_tile == 128 ? 8 : 4, warps_x = x_tile / 8 / wn, threads = 32 * warps_w * warps_x;
  static constexpr int units = codes == Codes::u4 || (codes != Codes::bf16 && x_tile == 128) ? 1 : 2;
  static constexpr bool natural = natural_steps(codes, tiled);
  // Of weights 64 bytes of all rows lie together, else (natural, plain) whole rows; of activations, whole rows.
  static constexpr bool w_rows = natural && !tiled;
  static constexpr int w_row = w_rows ? units * 64 + 32 : 64, w_unit = w_rows ? 64 : tile_w * 64 + (units > 1 && !tiled ? 64 : 0);  // copies meet different banks
  static constexpr int x_row = units * unit * 2 + (natural ? 32 : 16);
  static constexpr int w_bytes = w_rows ? tile_w * w_row : units * w_unit, x_bytes = x_tile * x_row;
  static constexpr int row_chunks = units * unit / 8;  // of x, 16 bytes each
  static constexpr int sums_pitch = fixed_pitch, sums_bytes = x_tile * sums_pitch * 4;
  static_assert(threads % row_chunks == 0 && (tiled ? 1 : units) * tile_w * 4 % (2 * threads) == 0);
  static size_t stage(const Piece& l) { return static_cast<size_t>(w_bytes + x_bytes + units * tile_w * (tiled ? l.scale_bytes : 0)); }
};

struct Plan {
  int stages = 0, blocks_of_k = 0, each_slice = 0;
  int tiles_x = 0;
  int split = 0;  // blocks of a cluster: 1, or blocks_of_k
  int nothing = 0;
};

template <Codes codes, Scales scales, int x_tile>
__global__ void __launch_bounds__(Layout<codes, scales != Scales::none, x_tile>::threads, x_tile == 32 ? 2 : 1) products(StreamArgs a, Plan p) {
  constexpr bool tiled = scales != Scales::none;
  using L = Layout<codes, tiled, x_tile>;
  constexpr int unit = L::unit, steps = L::steps, wn = L::wn, threads = L::threads, units = L::units;
  extern __shared__ __align__(16) unsigned char shared[];
  const Piece& l = a.l;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, j = lane % 4;
  const int row0 = warp % warps_w * 16 * mine_w, col0 = warp / warps_w * 8 * wn;  // the warp's, in the tile
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int rank = static_cast<int>(blockIdx.x) % p.split, tile = static_cast<int>(blockIdx.x) / p.split;
  const int tile_x = tile % p.tiles_x, out_rows = gated ? tile_w / 2 : tile_w;
  const int64_t n0 = int64_t{tile / p.tiles_x} * out_rows, m0 = int64_t{tile_x} * x_tile;
  const int all_units = static_cast<int>(l.units);
  const int scale_bytes = scales == Scales::none ? 0 : scales == Scales::one ? 4 : scales == Scales::with_min ? 8 : static_cast<int>(l.scale_bytes);
  const bool has_min = scales == Scales::with_min || (scales == Scales::any && l.has_min);
  const int sub = scales == Scales::any ? l.sub : 1;
  const int stage_bytes = L::w_bytes + L::x_bytes + (tiled ? units * tile_w * scale_bytes : 0);

  float* sums = reinterpret_cast<float*>(shared);  // [x_tile][sums_pitch]
  unsigned char* ring = shared + L::sums_bytes;    // [stages]: codes, x, scales

  // ---- what this thread copies
  const int begin = p.split > 1 ? min(all_units, rank * p.each_slice) : 0;
  const int end = p.split > 1 ? min(all_units, begin + p.each_slice) : all_units;
  const int64_t last_row = up(l.rows, row_block) - 1;
  const int64_t half_row[2] = {n0, gated ? n0 + a.up_row : n0 + tile_w / 2};  // the tile's halves'
  const auto row_of = [&](int r) {  // rows beyond the last output may be beyond the padding
    return min((r < tile_w / 2 ? half_row[0] : half_row[1]) + r % (tile_w / 2), last_row);
  };
  const int64_t w_step = tiled ? l.block_bytes : 64;
  constexpr int w_passes = units * tile_w * 4 / threads, passes_x = x_tile * L::row_chunks / threads;
  // Plain: a row's units lie together; tiled: 16 rows of a unit.
  const auto w_unit = [&](int pass) { return tiled ? (pass * threads + static_cast<int>(threadIdx.x)) / (tile_w * 4) : static_cast<int>(threadIdx.x) % (4 * units) / 4; };
  const auto w_row = [&](int pass) {
    const int at = pass * threads + static_cast<int>(threadIdx.x);
    return tiled ? at % (tile_w * 4) / 4 : at / (4 * units);
  };
  constexpr auto half_of = [](int pass) {  // whole passes copy each half
    constexpr int together = tiled ? w_passes / units : w_passes;
    return pass % together >= together / 2;
  };
  const auto code_at = [&](int64_t row) { return tiled ? row / 16 * l.units * l.block_bytes + row % 16 * 64 : row * l.row_bytes; };
  const unsigned char* w_from[2];
  uint32_t w_offset[w_passes];
#pragma unroll
  for (int h = 0; h < 2; ++h)
    w_from[h] = (h && gated ? a.high : a.low) + code_at(min(half_row[h], last_row) / 16 * 16) + begin * w_step + threadIdx.x % 4 * 16;
#pragma unroll
  for (int pass = 0; pass < w_passes; ++pass) {
    const int64_t from = min(half_of(pass) ? half_row[1] : half_row[0], last_row) / 16 * 16;
    w_offset[pass] = static_cast<uint32_t>(code_at(row_of(w_row(pass))) - code_at(from) + w_unit(pass) * w_step);
  }
  const int x_chunk = static_cast<int>(threadIdx.x) % L::row_chunks, x_row = static_cast<int>(threadIdx.x) / L::row_chunks;
  const auto* x_from = static_cast<const unsigned char*>(a.x) + m0 * a.x_stride * 2 + (int64_t{begin} * unit + x_chunk * 8) * 2;
  const int there = static_cast<int>(min(a.m - m0, int64_t{x_tile}));
  uint32_t x_offset[passes_x];  // rows that are not there are others, or what lies there: nobody sees what comes of them
#pragma unroll
  for (int pass = 0; pass < passes_x; ++pass)
    x_offset[pass] = static_cast<uint32_t>((x_row + pass * (threads / L::row_chunks)) % there * a.x_stride * 2);

  const auto fetch_w = [&](int u, int slot) {
    unsigned char* to = ring + slot * stage_bytes;
#pragma unroll
    for (int pass = 0; pass < w_passes; ++pass) {
      if (u + w_unit(pass) < end)
        copy_later<16>(to + w_unit(pass) * L::w_unit + w_row(pass) * L::w_row + threadIdx.x % 4 * 16, (half_of(pass) ? w_from[1] : w_from[0]) + w_offset[pass]);
    }
    w_from[0] += units * w_step;
    w_from[1] += units * w_step;
    if constexpr (tiled) {
      to += L::w_bytes + L::x_bytes;
      const int bytes = min(scale_bytes, 16), parts = scale_bytes / bytes;
      for (int at = static_cast<int>(threadIdx.x); at < units * tile_w * parts; at += threads) {
        const int r = at / parts % tile_w, s = at / parts / tile_w;
        if (u + s >= end) break;
        const unsigned char* from = (gated && r >= tile_w / 2 ? a.high : a.low) + l.scale_at(row_of(r), u + s) + at % parts * 16;
        unsigned char* there = to + (s * tile_w + r) * scale_bytes + at % parts * 16;
        if (bytes == 4)
          copy_later<4>(there, from);
        else if (bytes == 8)
          copy_later<8>(there, from);
        else
          copy_later<16>(there, from);
      }
    }
  };
  const auto fetch_x = [&](int u, int slot) {
    unsigned char* to = ring + slot * stage_bytes + L::w_bytes;
    const int64_t left = l.k - (int64_t{u} * unit + x_chunk * 8);  // of x: zero beyond
    const bool whole = u + x_chunk / (unit / 8) < end;
#pragma unroll
    for (int pass = 0; pass < passes_x; ++pass) {
      const int r = x_row + pass * (threads / L::row_chunks);
      if (whole && (x_tile > 32 || r < there))
        copy_part(to + r * L::x_row + x_chunk * 16, left > 0 ? x_from + x_offset[pass] : static_cast<const unsigned char*>(a.x), left > 0 ? 16 : 0);
    }
    x_from += units * unit * 2;
  };

  // The four words of an operand must be neighbours. Copies of what bf16 weights were loaded to would be made
  // again for each product; what is computed of something unknown is made once.
  const uint32_t nothing = static_cast<uint32_t>(p.nothing);

  // ---- the sums
  float of_piece[2][mine_w][wn][4], of_slice[mine_w][wn][4];  // tiled: raw ones of even and odd steps
  float scaled[mine_w][wn][4];                                // tiled: the piece's
#pragma unroll
  for (int t = 0; t < mine_w; ++t)
#pragma unroll
    for (int c = 0; c < wn; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) of_piece[0][t][c][e] = of_piece[1][t][c][e] = of_slice[t][c][e] = scaled[t][c][e] = 0;

  const auto multiply = [&](const unsigned char* stage, int s) {
    const unsigned char* w = stage + s * L::w_unit + (row0 + g) * L::w_row;
    const unsigned char* x = stage + L::w_bytes + s * unit * 2 + (col0 + g) * L::x_row;
    uint4 q[mine_w][2];
    if constexpr (!L::w_rows) {
#pragma unroll
      for (int t = 0; t < mine_w; ++t)
#pragma unroll
        for (int high = 0; high < 2; ++high) q[t][high] = *reinterpret_cast<const uint4*>(w + (16 * t + 8 * high) * L::w_row + 16 * j);
    }
    if constexpr (L::w_rows) {
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        uint32_t v[mine_w][4];
#pragma unroll
        for (int t = 0; t < mine_w; ++t)
#pragma unroll
          for (int high = 0; high < 2; ++high) {
            const uint2 words = *reinterpret_cast<const uint2*>(w + (16 * t + 8 * high) * L::w_row + 32 * i + 8 * j);
            v[t][high] = words.x ^ nothing;
            v[t][high + 2] = words.y ^ nothing;
          }
#pragma unroll
        for (int c = 0; c < wn; ++c) {
          const uint2 b = *reinterpret_cast<const uint2*>(x + 8 * c * L::x_row + 32 * i + 8 * j);
#pragma unroll
          for (int t = 0; t < mine_w; ++t) step_to(of_piece[i % 2][t][c], v[t], b.x, b.y);
        }
      }
    } else if constexpr (!tiled) {
#pragma unroll
      for (int i = 0; i < steps; i += 2) {
        uint32_t v[2][mine_w][4];
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
#pragma unroll
          for (int t = 0; t < mine_w; ++t) {
            widen<codes>(q[t][0], i + odd, l.zero, v[odd][t][0], v[odd][t][2]);
            widen<codes>(q[t][1], i + odd, l.zero, v[odd][t][1], v[odd][t][3]);
          }
#pragma unroll
        for (int c = 0; c < wn; ++c) {
          const uint4 b = *reinterpret_cast<const uint4*>(x + 8 * c * L::x_row + unit / 2 * j + 8 * i);
#pragma unroll
          for (int t = 0; t < mine_w; ++t) step_to(of_piece[0][t][c], v[0][t], b.x, b.y);
#pragma unroll
          for (int t = 0; t < mine_w; ++t) step_to(of_piece[1][t][c], v[1][t], b.z, b.w);
        }
      }
    } else {
      const float* scale = reinterpret_cast<const float*>(stage + L::w_bytes + L::x_bytes + (s * tile_w + row0 + g) * scale_bytes);
      const int scaled_steps = steps / sub;
      float xsum[wn][4];
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        uint32_t v[mine_w][4];
#pragma unroll
        for (int t = 0; t < mine_w; ++t) {
          widen<codes>(q[t][0], i, l.zero, v[t][0], v[t][2]);
          widen<codes>(q[t][1], i, l.zero, v[t][1], v[t][3]);
        }
        // Scales of any kind: groups of one step leave the odd sum as it is, which is zero.
        const bool fresh = scales == Scales::any ? i == 0 : i < 2;
        if (scales == Scales::any && i == 0) {
#pragma unroll
          for (int t = 0; t < mine_w; ++t)
#pragma unroll
            for (int c = 0; c < wn; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e) of_piece[1][t][c][e] = 0;
        }
#pragma unroll
        for (int c = 0; c < wn; ++c) {
          const uint2 b = *reinterpret_cast<const uint2*>(x + 8 * c * L::x_row + 32 * i + 8 * j);
#pragma unroll
          for (int t = 0; t < mine_w; ++t) step_to(fresh, of_piece[i % 2][t][c], v[t], b.x, b.y);
          const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
          if (has_min) step_to(i == 0, xsum[c], ones, b.x, b.y);
        }
        if (scales == Scales::any ? (i + 1) & (scaled_steps - 1) : i + 1 < steps) continue;
        const float* of_step = scale + (scales == Scales::any ? i / scaled_steps : 0);
#pragma unroll
        for (int t = 0; t < mine_w; ++t) {
          float by[2], min_by[2] = {};
#pragma unroll
          for (int high = 0; high < 2; ++high) {
            by[high] = of_step[(16 * t + 8 * high) * scale_bytes / 4];
            if (has_min) min_by[high] = of_step[(16 * t + 8 * high) * scale_bytes / 4 + sub];
          }
#pragma unroll
          for (int c = 0; c < wn; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float raw = of_piece[0][t][c][e] + of_piece[1][t][c][e];
              scaled[t][c][e] = fmaf(by[e / 2], raw, scaled[t][c][e]);
              if (has_min) scaled[t][c][e] = fmaf(min_by[e / 2], xsum[c][e % 2], scaled[t][c][e]);
              if (scales == Scales::any) of_piece[0][t][c][e] = of_piece[1][t][c][e] = 0;
            }
        }
        if (scales == Scales::any) {
#pragma unroll
          for (int c = 0; c < wn; ++c) xsum[c][0] = xsum[c][1] = xsum[c][2] = xsum[c][3] = 0;
        }
      }
    }
  };
  const auto add_piece = [&] {
#pragma unroll
    for (int t = 0; t < mine_w; ++t)
#pragma unroll
      for (int c = 0; c < wn; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          of_slice[t][c][e] += tiled ? scaled[t][c][e] : of_piece[0][t][c][e] + of_piece[1][t][c][e];
          scaled[t][c][e] = 0;
          if (!tiled) of_piece[0][t][c][e] = of_piece[1][t][c][e] = 0;
        }
  };
  const auto add_slice = [&](bool first) {
#pragma unroll
    for (int t = 0; t < mine_w; ++t)
#pragma unroll
      for (int c = 0; c < wn; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = sums[(col0 + 8 * c + 2 * j + e % 2) * L::sums_pitch + row0 + 16 * t + 8 * (e / 2) + g];
          sum = first ? of_slice[t][c][e] : sum + of_slice[t][c][e];
          of_slice[t][c][e] = 0;
        }
  };

  // ---- through k
  for (int i = 0; i < p.stages - 1; ++i) fetch_w(begin + i * units, i);
  wait_inputs();
  let_next_start();
  for (int i = 0; i < p.stages - 1; ++i) {
    fetch_x(begin + i * units, i);
    close_copies();
  }
  InK in_k(all_units, p.each_slice, begin);
  bool first_slice = true;
  int slot = 0, next = p.stages - 1;
  for (int u = begin; u < end; u += units) {
    switch (p.stages) {
      case 2: wait_copies<0>(); break;
      case 3: wait_copies<1>(); break;
      case 4: wait_copies<2>(); break;
      default: wait_copies<3>(); break;
    }
    __syncthreads();  // everyone's copies are there, and nobody reads what the next ones overwrite
    fetch_w(u + (p.stages - 1) * units, next);
    fetch_x(u + (p.stages - 1) * units, next);
    close_copies();
    const unsigned char* stage = ring + slot * stage_bytes;
#pragma unroll
    for (int s = 0; s < units; ++s) {
      if (u + s >= end) break;
      multiply(stage, s);
      if (u + s + 1 != in_k.piece_end) continue;
      add_piece();
      if (in_k.next()) {
        add_slice(first_slice);
        first_slice = false;
      }
    }
    slot = slot + 1 == p.stages ? 0 : slot + 1;
    next = next + 1 == p.stages ? 0 : next + 1;
  }
  if (begin >= end) add_slice(true);

  // ---- out
  const int thread = static_cast<int>(threadIdx.x);
  if (p.split == 1) {
    __syncthreads();
    fixed_out<tiled>(a, m0, n0, there, thread, threads, [&](int i) { return *reinterpret_cast<const float4*>(sums + i); });
    return;
  }
#if __CUDA_ARCH__ >= 900
  const auto all = cooperative_groups::this_cluster();
  all.sync();
  fixed_out<tiled>(a, m0, n0, there, thread + rank * threads, threads * p.split, [&](int i) {
    float4 v = {};
    for (int r = 0; r < p.split; ++r) {
      const float4 w = *reinterpret_cast<const float4*>(all.map_shared_rank(sums + i, r));
      v = {v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w};
    }
    return v;
  });
  all.sync();  // nobody leaves while others read its sums
#endif
}

template <Codes codes, Scales scales, int x_tile>
bool run(Context* c, const StreamArgs& a, int blocks_of_k) {
  constexpr bool tiled = scales != Scales::none;
  using L = Layout<codes, tiled, x_tile>;
  constexpr size_t besides = 1024;
  const size_t stage = L::stage(a.l), room = c->block_shared - besides;
  const int resident = x_tile == 32 ? 2 : 1;  // blocks of a multiprocessor
  const size_t own = resident == 1 ? room : (c->block_shared + besides) / 2 - besides;
  Plan p;
  p.stages = static_cast<int>(std::min<size_t>(5, (std::max(own, L::sums_bytes + stage) - L::sums_bytes) / stage));
  if (p.stages < 2) p.stages = 2;
  const size_t bytes = L::sums_bytes + p.stages * stage;
  if (bytes > room) return false;
  p.blocks_of_k = blocks_of_k;
  p.each_slice = static_cast<int>((a.l.units + blocks_of_k - 1) / blocks_of_k);
  p.tiles_x = static_cast<int>((a.m + x_tile - 1) / x_tile);
  const int64_t rows = a.glu ? tile_w / 2 : tile_w, tiles = (a.n + rows - 1) / rows * p.tiles_x, places = int64_t{c->multiprocessors} * resident;
  // Rounds of blocks that take as long as a slice; clusters end later.
  const int64_t whole = (tiles + places - 1) / places * blocks_of_k, shared = (tiles * blocks_of_k + places - 1) / places;
  p.split = c->capability >= 90 && blocks_of_k > 1 && shared < whole ? blocks_of_k : 1;
  launch(c, products<codes, scales, x_tile>, Shape{dim3(static_cast<unsigned>(tiles * p.split)), dim3(L::threads), bytes, static_cast<unsigned>(p.split)}, a, p);
  return true;
}

template <Codes codes, Scales scales>
bool run(Context* c, const StreamArgs& a) {
  constexpr bool tiled = scales != Scales::none;
  const int blocks_of_k = stream_blocks_of_k(a.l, stream_rows);
  // What stream() leaves to others, for any number of rows.
  if (stream_shared<codes, tiled>(a.l, blocks_of_k, 1, 4, 8) + stream_besides > c->block_shared || (blocks_of_k > 1 && c->capability < 90)) return false;
  if constexpr (codes == Codes::bf16)
    if (a.m > fixed_hopper_above && fixed_hopper(c, a, blocks_of_k)) return true;
  if constexpr (codes == Codes::u4 && scales == Scales::one)
    if (a.m > fixed_hopper_above && fixed_hopper_codes(c, a, blocks_of_k)) return true;
  if constexpr (!tiled)
    if (a.m > 64 && run<codes, scales, 128>(c, a, blocks_of_k)) return true;
  if (a.m > 32 && run<codes, scales, 64>(c, a, blocks_of_k)) return true;
  return run<codes, scales, 32>(c, a, blocks_of_k);
}

template <Codes codes>
bool run_tiled(Context* c, const StreamArgs& a) {
  if (a.l.sub > 1) return run<codes, Scales::any>(c, a);
  return a.l.has_min ? run<codes, Scales::with_min>(c, a) : run<codes, Scales::one>(c, a);
}

// One block a row.
__global__ void __launch_bounds__(norm_threads) rows(FixedRows a) {
  __shared__ float parts[8];
  wait_inputs();
  let_next_start();
  const int64_t from = blockIdx.x * a.x_stride;
  const float* x = static_cast<const float*>(a.x) + from;
  __nv_bfloat16* to = a.to + blockIdx.x * a.stride;
  const float scale = a.norm_weight ? norm_scale(x, a.k, a.norm_eps, parts) : 1.0f;
  if (!a.narrow_x && !a.k_map && a.k % 4 == 0 && a.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.x) % 16 == 0) {
    for (int64_t i = 4 * threadIdx.x; i < a.stride; i += 4 * norm_threads) {
      float4 v = {};
      if (i < a.k) {
        v = *reinterpret_cast<const float4*>(x + i);
        if (a.norm_weight) {
          const float4 w = *reinterpret_cast<const float4*>(a.norm_weight + i);
          v = {normed(v.x, scale, w.x), normed(v.y, scale, w.y), normed(v.z, scale, w.z), normed(v.w, scale, w.w)};
        }
      }
      *reinterpret_cast<uint2*>(to + i) = {pair(v.x, v.y), pair(v.z, v.w)};
    }
    return;
  }
  for (int64_t i = threadIdx.x; i < a.stride; i += norm_threads) {
    const int64_t at = i < a.k && a.k_map ? a.k_map[i] : i;
    float v = 0;
    if (i < a.k) v = a.narrow_x ? __bfloat162float(static_cast<const __nv_bfloat16*>(a.x)[from + at]) : x[at];
    to[i] = __float2bfloat16_rn(i < a.k && a.norm_weight ? normed(v, scale, a.norm_weight[at]) : v);
  }
}

}  // namespace

void fixed_rows(Context* c, const FixedRows& a, int64_t m) { launch(c, rows, Shape{dim3(blocks(m, 1)), dim3(norm_threads)}, a); }

bool fixed_takes(const void* x, int64_t x_stride, int64_t k) {
  return k % 8 == 0 && x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

bool fixed(Context* c, const StreamArgs& a, PluginStatus*) {
  if (a.l.tiled) {
    if (a.l.codes == Codes::u4) return run_tiled<Codes::u4>(c, a);
    if (a.l.codes == Codes::i8) return run_tiled<Codes::i8>(c, a);
    return run_tiled<Codes::e4m3>(c, a);
  }
  if (a.l.codes == Codes::bf16) return run<Codes::bf16, Scales::none>(c, a);
  if (a.l.codes == Codes::i8) return run<Codes::i8, Scales::none>(c, a);
  return run<Codes::e4m3, Scales::none>(c, a);
}

}  // namespace orlop::cuda
