// Attention of few rows over the paged cache, at the speed of memory. A block takes one head of keys and
// values and a tile of queries that share it (the heads of its group, for one row or several neighbouring
// ones); long contexts are split into chunks, one a block, folded by the last block that is done (online
// softmax: Milakov and Gimelshein 2018; the split: Dao et al. 2023, flash decoding).
//
// A warp walks units of 16 (codes: 32) tokens, every fourth one of its chunk, by itself: cp.async brings them
// into its own ring in shared memory. Products are turned around, so that few queries waste little: scores
// [tokens, queries] = keys [tokens, dims] (left operand) x queries; outputs [dims, queries] = values turned
// [dims, tokens] x weights, which movmatrix brings from the one's result layout to the other's operand layout.
//
// Codes are not turned into keys: with k = centre + scale * code, a tile's queries are multiplied by its scales
// (bf16), codes are the operand (exact), and the centres are a product of their own, in f16 with queries
// brought to [-1, 1] by a power of two. Values: the scale is put onto the weight, centres are summed apart.
//
// What a row gives depends on its own position and keys alone, if chunks do: tiles of rows begin at absolute
// positions, units too, and what a query does not see leaves every bit of its state as it was.
#pragma once
#include <atomic>

#include "backend/cuda/common.cuh"

#include "backend/cuda/attention_decode.h"
#include "backend/cuda/attention_mma.cuh"
#include "backend/cuda/attention_tile.cuh"

namespace orlop::cuda::decode {

constexpr int warps = decode_warps, threads = 32 * warps;

template <KvType type_, int dims_, int columns_>
struct Kind {
  static constexpr KvType type = type_;
  static constexpr int dims = dims_, columns = columns_;  // of the result: queries of a tile, 8 or 16
  static constexpr bool coded = is_coded(type), int8 = type == KvType::int8;
  static constexpr int tiles = dims / 16, tops = columns / 8;  // tiles of dimensions, of queries
  static constexpr int unit = coded ? 32 : 16;                 // tokens
  static constexpr int subs = unit / 16;
  static constexpr int pitch = 2 * dims + 16;                  // bytes of a row of keys: ldmatrix meets no bank twice
  static constexpr int words = tiles * (int8 ? 2 : 1), codes = 128 * words, grids = 64 * tiles;
  // A unit in shared memory: keys, values; codes: then the grids of keys, scales and centres of values.
  static constexpr int values_at = coded ? subs * codes : unit * pitch;
  static constexpr int grids_at = 2 * values_at;
  static constexpr int scales_at = grids_at + (coded ? subs * grids : 0);
  static constexpr int stage = scales_at + (coded ? 4 * unit : 0);
  static constexpr int stages = coded ? (int8 ? 3 : 4) : dims > 128 ? 2 : 3;
  static constexpr int ring = stages * stage;  // bytes of a warp
  static constexpr int record = dims + 4;      // floats of a query: outputs, maximum, sum
  static constexpr int folding = warps * columns * record * 4;
  static constexpr int own_at = warps * ring > folding ? warps * ring : folding;  // codes: keys of the queries' own tile, bf16
  static constexpr int shared = own_at + (coded ? (int8 ? 32 : 16) * pitch : 0);
  static constexpr int items = (columns * dims / 4 + threads - 1) / threads;  // a thread's shares of the outputs, four each
  static constexpr int resident = shared > 75 * 1024 || dims > 128 || columns > 8 ? 2 : 3;
};

// (top, bottom, o) += (max, sum, v); a maximum of -inf is of no keys at all.
__device__ inline void fold(float& top, float& bottom, float4& o, float max, float sum, const float4& v) {
  const float new_top = fmaxf(top, max), base = new_top == -INFINITY ? 0.0f : new_top;
  const float keep = exp2_fast(top - base), add = exp2_fast(max - base);
  bottom = __fmaf_rn(bottom, keep, __fmul_rn(sum, add));
  o.x = __fmaf_rn(o.x, keep, __fmul_rn(v.x, add));
  o.y = __fmaf_rn(o.y, keep, __fmul_rn(v.y, add));
  o.z = __fmaf_rn(o.z, keep, __fmul_rn(v.z, add));
  o.w = __fmaf_rn(o.w, keep, __fmul_rn(v.w, add));
  top = new_top;
}

// A warp's walk over its units of a chunk.
template <class K>
struct Walk {
  const DecodeArgs& a;
  const unsigned char* head;  // of page 0
  const int32_t* table;
  unsigned char* ring;
  const unsigned char* own;  // coded: keys [key_tile] of the queries' tile
  int32_t oldest, last;      // positions that any query sees
  int32_t lane = threadIdx.x % 32;

  __device__ int32_t page(int32_t t) const { return table[min(t, last) / a.page_tokens]; }
  __device__ const unsigned char* at(int32_t page) const { return head + page * a.page_bytes; }

  // Asks for the unit that begins at t; pages: of t and of t + unit / 2.
  __device__ void ask(int32_t t, int stage, const int32_t (&pages)[2]) const {
    const uint32_t to = shared_address(ring + stage * K::stage);
    if constexpr (!K::coded) {
      constexpr int row_chunks = K::dims / 8, chunks = 16 * row_chunks;
      const int32_t offset = t % a.page_tokens;
      const unsigned char* low = at(pages[0]) + int64_t{offset} * (2 * K::dims);
      const unsigned char* high = a.page_tokens == 8 ? at(pages[1]) : low + 8 * (2 * K::dims);
#pragma unroll
      for (int i = 0; i < chunks / 32; ++i) {
        const int c = i * 32 + lane, row = c / row_chunks, chunk = c % row_chunks;
        const unsigned char* from = (row < 8 ? low : high) + (row % 8) * (2 * K::dims) + chunk * 16;
        const bool seen = t + row >= oldest && t + row <= last;  // others are zeros, so that no poison gets into sums
        copy16(to + row * K::pitch + chunk * 16, from, seen);
        copy16(to + K::values_at + row * K::pitch + chunk * 16, from + a.values_at, seen);
      }
    } else {
#pragma unroll
      for (int sub = 0; sub < 2; ++sub) {
        const int32_t first = t + 16 * sub;
        if (first > last) break;
        const int32_t offset = first % a.page_tokens, tile = offset / 16;
        const unsigned char* from = at(pages[sub]);
#pragma unroll
        for (int c = 0; c < K::codes / 16; c += 32)
          if (c + lane < K::codes / 16) {
            copy16(to + sub * K::codes + (c + lane) * 16, from + tile * K::codes + (c + lane) * 16);
            copy16(to + K::values_at + sub * K::codes + (c + lane) * 16, from + a.values_at + tile * K::codes + (c + lane) * 16);
          }
        if (sub == 0 || a.key_tile == 16)
#pragma unroll
          for (int c = 0; c < K::grids / 16; c += 32)
            if (c + lane < K::grids / 16)
              copy16(to + K::grids_at + sub * K::grids + (c + lane) * 16, from + a.key_grids_at + offset / a.key_tile * K::grids + (c + lane) * 16);
        const unsigned char* scales = from + a.value_grids_at + 2 * offset;
        if (lane < (K::int8 ? 2 : 4))
          copy16(to + K::scales_at + sub * 32 + (lane & 1) * 16 + (lane >> 1) * 2 * K::unit,
                 scales + (lane & 1) * 16 + (lane >> 1) * 2 * a.page_tokens);
      }
    }
  }
};

// A lane's words of 16 tokens' codes.
template <int words>
__device__ inline void take_words(const unsigned char* codes, int lane, uint32_t (&w)[words]) {
  constexpr int whole = words / 4 * 4, pairs = words % 4 / 2 * 2;
#pragma unroll
  for (int i = 0; i < whole; i += 4) {
    const uint4 v = reinterpret_cast<const uint4*>(codes)[i * 8 + lane];
    w[i] = v.x, w[i + 1] = v.y, w[i + 2] = v.z, w[i + 3] = v.w;
  }
  if constexpr (pairs > 0) {
    const uint2 v = reinterpret_cast<const uint2*>(codes + whole * 128)[lane];
    w[whole] = v.x, w[whole + 1] = v.y;
  }
  if constexpr (words % 2 == 1) w[words - 1] = reinterpret_cast<const uint32_t*>(codes + (whole + pairs) * 128)[lane];
}

// The left operand of tile i from a lane's words, as bf16.
template <bool int8, int words>
__device__ inline void operand(const uint32_t (&w)[words], int i, uint32_t (&to)[4]) {
  if constexpr (int8) {  // 128 + the lower seven bits, less 128 or, if the sign is set, 256
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint32_t v = r < 2 ? w[2 * i + r] : w[2 * i + r - 2] >> 8;
      to[r] = minus_bf16x2((v & 0x007f007fu) | 0x43004300u, (v & 0x00800080u) | 0x43004300u);
    }
  } else {  // 128 + code, less 136
#pragma unroll
    for (int r = 0; r < 4; ++r) to[r] = minus_bf16x2((w[i] >> 4 * r & 0x000f000fu) | 0x43004300u, 0x43084308u);
  }
}

template <class K>
__global__ void __launch_bounds__(threads, K::resident) attend(const __grid_constant__ DecodeArgs a) {
  let_next_start();
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr bool half = K::type == KvType::f16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group_lane = lane / 4, pair = lane % 4;
  const int32_t kv_head = blockIdx.x % a.kv_heads, part = blockIdx.x / a.kv_heads % a.head_parts;
  const int32_t number = blockIdx.x / a.kv_heads / a.head_parts;
  // Heads of this block: of a group of more than `columns`, one part.
  const int32_t first_head = kv_head * a.group + part * a.part_heads, heads = min(a.part_heads, a.group - part * a.part_heads);

  // Sequences and page tables came before the step's first kernel, keys of earlier positions in earlier steps:
  // both may be read before the kernels of this step have ended.
  Tile tile;
  if (!find_tile<warps>(a, number, tile)) return;
  const int32_t last = tile.first + tile.count - 1;
  const int32_t oldest = a.window ? max(0, tile.first - a.window + 1) : 0;
  const int32_t first_chunk = oldest / a.chunk, chunks = last / a.chunk - first_chunk + 1;
  if (!a.walks && static_cast<int32_t>(blockIdx.y) >= chunks) return;
  const int32_t begin_chunk = first_chunk + (a.walks ? 0 : blockIdx.y), end_chunk = a.walks ? first_chunk + chunks : begin_chunk + 1;

  unsigned char* own = memory + K::own_at;
  const Walk<K> walk{a, a.pages + kv_head * a.head_bytes, a.page_table + tile.seq.page_begin, memory + warp * K::ring, own, oldest, last};
  const int32_t settled = tile.seq.pos_begin / 32 * 32;  // positions below it were stored by earlier steps
  const int32_t columns = tile.count * heads;

  uint32_t q[K::tops][K::tiles][2];
  uint32_t q_unit[K::coded ? K::tops : 1][K::coded ? K::tiles : 1][2];  // f16, largest in [1, 2)
  float q_size[K::tops][2];                                            // of the results' columns
  int32_t place[K::tops][2];                                           // positions of the results' columns
  bool waited = false;

  float top[K::items], bottom[K::items];
  float4 outs[K::items];
#pragma unroll
  for (int i = 0; i < K::items; ++i) top[i] = -INFINITY, bottom[i] = 0, outs[i] = make_float4(0, 0, 0, 0);

  for (int32_t chunk = begin_chunk; chunk < end_chunk; ++chunk) {
    const int32_t t_begin = max(chunk * a.chunk, oldest), t_end = min((chunk + 1) * a.chunk, last + 1);
    const int32_t u_end = (t_end + K::unit - 1) / K::unit;
    int32_t u = t_begin / K::unit;
    u += (warp - u % warps + warps) % warps;
    int32_t asked = u;
    int32_t pages[2] = {0, 0};
    const auto look = [&] {  // the pages of the unit that is asked for next
      if (asked < u_end) {
        pages[0] = walk.page(asked * K::unit);
        if (K::coded || a.page_tokens == 8) pages[1] = walk.page(asked * K::unit + K::unit / 2);
      }
    };
    look();
#pragma unroll
    for (int i = 0; i < K::stages - 1; ++i) {
      if (asked < u_end) {
        if (!waited && (asked + 1) * K::unit > settled) {
          wait_inputs();
          waited = true;
        }
        walk.ask(asked * K::unit, i, pages);
        asked += warps;
        look();
      }
      copies_end();
    }

    if (chunk == begin_chunk) {
      if (!waited) wait_inputs();
      waited = true;
      // Queries: columns are rows of the tile times heads.
      float largest[K::tops];
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        const int32_t column = 8 * n + group_lane, row = column / heads;
        const bool real = column < columns;
        const float* from = a.q + (int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + (real ? row : 0)) * a.q_stride +
                            int64_t{first_head + (real ? column - row * heads : 0)} * K::dims + 2 * pair;
        float2 v[K::tiles][2];
        largest[n] = 0;
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) v[s][h] = real ? *reinterpret_cast<const float2*>(from + 16 * s + 8 * h) : make_float2(0, 0);
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            q[n][s][h] = half ? pack_f16_finite(v[s][h].x, v[s][h].y) : pack_bf16(v[s][h].x, v[s][h].y);
            largest[n] = fmaxf(largest[n], fmaxf(fabsf(v[s][h].x), fabsf(v[s][h].y)));
          }
        if constexpr (K::coded) {
          largest[n] = fmaxf(largest[n], __shfl_xor_sync(all_lanes, largest[n], 1));
          largest[n] = fmaxf(largest[n], __shfl_xor_sync(all_lanes, largest[n], 2));
          // A power of two, and its reciprocal; what is smaller than 2^-100 counts as that.
          const uint32_t exponent = min(max(__float_as_uint(largest[n]) >> 23, 27u), 227u);
          const float shrink = __uint_as_float((254 - exponent) << 23);
          largest[n] = __uint_as_float(exponent << 23);
#pragma unroll
          for (int s = 0; s < K::tiles; ++s)
#pragma unroll
            for (int h = 0; h < 2; ++h) q_unit[n][s][h] = pack_f16_finite(v[s][h].x * shrink, v[s][h].y * shrink);
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          q_size[n][c] = __shfl_sync(all_lanes, largest[n], (2 * pair + c) * 4);
          place[n][c] = min(tile.first + (8 * n + 2 * pair + c) / heads, last);
        }
      }
    }
    if constexpr (K::coded) {
      // The tile in which the queries stand, in bf16: from the tail and from this call's rows.
      const int32_t tile_begin = last / a.key_tile * a.key_tile;
      if (t_end > tile_begin) {
        constexpr int row_chunks = K::dims / 8;
        for (int c = threadIdx.x; c < a.key_tile * row_chunks; c += threads) {
          const int32_t row = c / row_chunks, chunk8 = c % row_chunks, t = tile_begin + row;
          uint4 v = make_uint4(0, 0, 0, 0);
          if (t <= last && t >= tile.seq.pos_begin) {
            const float* k = a.k + (int64_t{tile.seq.row_begin} + t - tile.seq.pos_begin) * a.k_stride + int64_t{kv_head} * K::dims + chunk8 * 8;
            const float4 x = *reinterpret_cast<const float4*>(k), y = *reinterpret_cast<const float4*>(k + 4);
            v = make_uint4(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
          } else if (t <= last) {
            v = *reinterpret_cast<const uint4*>(a.tails + (int64_t{tile.seq.seat} * a.kv_heads + kv_head) * a.key_tile * (2 * K::dims) +
                                                int64_t{row} * (2 * K::dims) + chunk8 * 16);
          }
          *reinterpret_cast<uint4*>(own + row * K::pitch + chunk8 * 16) = v;
        }
      }
      __syncthreads();
    }

    float o[K::tops][K::tiles][4];  // rows of dimensions: lane / 4 and + 8; columns: 2 (lane % 4) and + 1
    float most[K::tops][2], sum[K::tops][2], centre_sum[K::tops][2];
#pragma unroll
    for (int n = 0; n < K::tops; ++n) {
#pragma unroll
      for (int s = 0; s < K::tiles; ++s)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[n][s][e] = 0;
#pragma unroll
      for (int c = 0; c < 2; ++c) most[n][c] = -INFINITY, sum[n][c] = 0, centre_sum[n][c] = 0;
    }

    int stage = 0;
    for (; u < u_end; u += warps) {
      copies_wait<K::stages - 2>();
      __syncwarp();
      if (asked < u_end) {
        walk.ask(asked * K::unit, stage == 0 ? K::stages - 1 : stage - 1, pages);
        asked += warps;
        look();
      }
      copies_end();
      const unsigned char* from = walk.ring + stage * K::stage;
      stage = stage + 1 == K::stages ? 0 : stage + 1;
      const int32_t t0 = u * K::unit;

      // Scores of tokens lane / 4 and + 8 of each sub.
      float score[K::subs][K::tops][4];
#pragma unroll
      for (int sub = 0; sub < K::subs; ++sub) {
#pragma unroll
        for (int n = 0; n < K::tops; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) score[sub][n][e] = 0;
        const auto rows_of_keys = [&](const unsigned char* rows) {
          const uint32_t at = shared_address(rows) + lane % 16 * K::pitch + lane / 16 * 16;
#pragma unroll
          for (int s = 0; s < K::tiles; ++s) {
            uint32_t k[4];
            load_matrices(at + s * 32, k);
#pragma unroll
            for (int n = 0; n < K::tops; ++n) multiply<half>(score[sub][n], k, q[n][s]);
          }
        };
        if constexpr (!K::coded) {
          rows_of_keys(from);
        } else {
          const int32_t t = t0 + 16 * sub;
          if (t / a.key_tile == last / a.key_tile) {
            rows_of_keys(own + t % a.key_tile * K::pitch);
          } else {
            const uint4* grid = reinterpret_cast<const uint4*>(from + K::grids_at + (a.key_tile == 16 ? sub * K::grids : 0)) + pair;
            uint32_t w[K::words];
            take_words(from + sub * K::codes, lane, w);
            float centres[K::tops][4] = {};
#pragma unroll
            for (int s = 0; s < K::tiles; ++s) {
              const uint4 g = grid[4 * s];
              const uint32_t c[4] = {g.x, g.x, g.y, g.y};  // the same for every token
              uint32_t k[4];
              operand<K::int8>(w, s, k);
#pragma unroll
              for (int n = 0; n < K::tops; ++n) {
                multiply<true>(centres[n], c, q_unit[n][s]);
                const uint32_t scaled[2] = {times_bf16x2(q[n][s][0], g.z), times_bf16x2(q[n][s][1], g.w)};
                multiply<false>(score[sub][n], k, scaled);
              }
            }
#pragma unroll
            for (int n = 0; n < K::tops; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) score[sub][n][e] = fmaf(centres[n][e], q_size[n][e % 2], score[sub][n][e]);
          }
        }
      }

      // Of values, each token's scale and centre; 0 for tokens that nobody sees.
      float value_scale[K::subs][2], value_centre[K::subs][2];
      const bool inner = t0 >= oldest + tile.count - 1 && t0 + K::unit - 1 <= tile.first;  // every query sees every token
      if constexpr (K::coded)
#pragma unroll
        for (int sub = 0; sub < K::subs; ++sub)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int32_t at = 16 * sub + 8 * h + group_lane;
            const uint16_t* grids = reinterpret_cast<const uint16_t*>(from + K::scales_at) + at;
            const bool seen = inner || (t0 + at >= oldest && t0 + at <= last);
            value_scale[sub][h] = seen ? __uint_as_float(uint32_t{grids[0]} << 16) : 0.0f;
            value_centre[sub][h] = !K::int8 && seen ? __uint_as_float(uint32_t{grids[K::unit]} << 16) : 0.0f;
          }

      uint32_t weight[K::subs][K::tops][2];
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        if (!inner)
#pragma unroll
          for (int sub = 0; sub < K::subs; ++sub)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int32_t t = t0 + 16 * sub + 8 * (e / 2) + group_lane, p = place[n][e % 2];
              if (t > p || (a.window && t <= p - a.window)) score[sub][n][e] = -INFINITY;
            }
        float base[2];
        bool grew = false;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float m = fmaxf(score[0][n][c], score[0][n][c + 2]);
          if constexpr (K::subs == 2) m = fmaxf(m, fmaxf(score[1][n][c], score[1][n][c + 2]));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 4));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 8));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 16)) * a.scale_log2;
          base[c] = fmaxf(most[n][c], m);
          grew |= base[c] != most[n][c];
        }
        if (__any_sync(all_lanes, grew)) {
          float keep[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            keep[c] = exp2_fast(most[n][c] - (base[c] == -INFINITY ? 0.0f : base[c]));
            most[n][c] = base[c];
            sum[n][c] *= keep[c];
            centre_sum[n][c] *= keep[c];
          }
#pragma unroll
          for (int s = 0; s < K::tiles; ++s)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[n][s][e] *= keep[e % 2];
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) base[c] = base[c] == -INFINITY ? 0.0f : base[c];
#pragma unroll
        for (int sub = 0; sub < K::subs; ++sub) {
          float p[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            p[e] = exp2_fast(__fmaf_rn(score[sub][n][e], a.scale_log2, -base[e % 2]));
            sum[n][e % 2] += p[e];
            if constexpr (K::coded) {
              if constexpr (!K::int8) centre_sum[n][e % 2] = __fmaf_rn(p[e], value_centre[sub][e / 2], centre_sum[n][e % 2]);
              p[e] *= value_scale[sub][e / 2];
            }
          }
#pragma unroll
          for (int h = 0; h < 2; ++h)
            weight[sub][n][h] = transposed(half ? pack_f16(p[2 * h], p[2 * h + 1]) : pack_bf16(p[2 * h], p[2 * h + 1]));
        }
      }

#pragma unroll
      for (int sub = 0; sub < K::subs; ++sub) {
        if constexpr (!K::coded) {
          const uint32_t at = shared_address(from + K::values_at) + (lane % 8 + lane / 16 * 8) * K::pitch + lane / 8 % 2 * 16;
#pragma unroll
          for (int s = 0; s < K::tiles; ++s) {
            uint32_t v[4];
            load_transposed(at + s * 32, v);
#pragma unroll
            for (int n = 0; n < K::tops; ++n) multiply<half>(o[n][s], v, weight[sub][n]);
          }
        } else {
          uint32_t w[K::words];
          take_words(from + K::values_at + sub * K::codes, lane, w);
#pragma unroll
          for (int s = 0; s < K::tiles; ++s) {
            uint32_t v[4];
            operand<K::int8>(w, s, v);
#pragma unroll
            for (int n = 0; n < K::tops; ++n) multiply<false>(o[n][s], v, weight[sub][n]);
          }
        }
      }
    }

    // The warps' shares of the chunk.
    copies_wait<0>();
    __syncthreads();  // rings are free
    float* shares = reinterpret_cast<float*>(memory);  // [warps][columns][record]
#pragma unroll
    for (int n = 0; n < K::tops; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float s = sum[n][c], added = centre_sum[n][c];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
          s += __shfl_xor_sync(all_lanes, s, step);
          if constexpr (K::coded && !K::int8) added += __shfl_xor_sync(all_lanes, added, step);
        }
        float* share = shares + (warp * K::columns + 8 * n + 2 * pair + c) * K::record;
#pragma unroll
        for (int i = 0; i < K::tiles; ++i) {
          share[16 * i + group_lane] = o[n][i][c] + added;
          share[16 * i + group_lane + 8] = o[n][i][c + 2] + added;
        }
        if (group_lane == 0) share[K::dims] = most[n][c], share[K::dims + 1] = s;
      }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < K::items; ++i) {
      const int item = threadIdx.x + i * threads, column = item / (K::dims / 4), d = item % (K::dims / 4) * 4;
      if (column >= columns) continue;
      float max = -INFINITY, l = 0;
      float4 v = make_float4(0, 0, 0, 0);
      for (int w = 0; w < warps; ++w) {
        const float* share = shares + (w * K::columns + column) * K::record;
        fold(max, l, v, share[K::dims], share[K::dims + 1], *reinterpret_cast<const float4*>(share + d));
      }
      fold(top[i], bottom[i], outs[i], max, l, v);
    }
    if (chunk + 1 < end_chunk) __syncthreads();  // the rings are filled again
  }

  if (!a.walks && chunks > 1) {
    // Records [blocks' tiles][splits][columns]; the last block of a tile folds them, in order.
    __shared__ bool is_last;
    const int64_t at = blockIdx.x, size = int64_t{a.tile_columns} * K::record;
    float* record = a.records + (at * a.splits + blockIdx.y) * size;
#pragma unroll
    for (int i = 0; i < K::items; ++i) {
      const int item = threadIdx.x + i * threads, column = item / (K::dims / 4), d = item % (K::dims / 4) * 4;
      if (column >= columns) continue;
      *reinterpret_cast<float4*>(record + column * K::record + d) = outs[i];
      if (d == 0) *reinterpret_cast<float2*>(record + column * K::record + K::dims) = make_float2(top[i], bottom[i]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(a.done + at, 1u) + 1 == static_cast<uint32_t>(chunks);
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x == 0) a.done[at] = 0;
    const float* records = a.records + at * a.splits * size;
#pragma unroll
    for (int i = 0; i < K::items; ++i) {
      const int item = threadIdx.x + i * threads, column = item / (K::dims / 4), d = item % (K::dims / 4) * 4;
      if (column >= columns) continue;
      top[i] = -INFINITY, bottom[i] = 0, outs[i] = make_float4(0, 0, 0, 0);
      constexpr int ahead = 8;
      for (int32_t c = 0; c < chunks; c += ahead) {
        float4 v[ahead];
        float2 state[ahead];
#pragma unroll
        for (int j = 0; j < ahead; ++j)
          if (c + j < chunks) {
            const float* r = records + (c + j) * size + column * K::record;
            v[j] = __ldcg(reinterpret_cast<const float4*>(r + d));
            state[j] = __ldcg(reinterpret_cast<const float2*>(r + K::dims));
          }
#pragma unroll
        for (int j = 0; j < ahead; ++j)
          if (c + j < chunks) fold(top[i], bottom[i], outs[i], state[j].x, state[j].y, v[j]);
      }
    }
  }

#pragma unroll
  for (int i = 0; i < K::items; ++i) {  // + 0: no minus zero
    outs[i].x = outs[i].x / bottom[i] + 0.0f;
    outs[i].y = outs[i].y / bottom[i] + 0.0f;
    outs[i].z = outs[i].z / bottom[i] + 0.0f;
    outs[i].w = outs[i].w / bottom[i] + 0.0f;
  }
  if constexpr (K::coded) {  // values were turned (cpu/kv_code.h): back
    float* turned = reinterpret_cast<float*>(memory);  // [columns][dims]
    constexpr int block = K::dims & -K::dims;
    const float scale = 1.0f / sqrtf(static_cast<float>(block));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < K::items; ++i) {
      const int item = threadIdx.x + i * threads;
      if (item >= K::columns * K::dims / 4) continue;
      reinterpret_cast<float4*>(turned)[item] = make_float4(outs[i].x * scale, outs[i].y * scale, outs[i].z * scale, outs[i].w * scale);
    }
    __syncthreads();
    for (int column = warp; column < columns; column += warps) {
      float* x = turned + column * K::dims;
#pragma unroll
      for (int h = 1; h < block; h *= 2) {
#pragma unroll
        for (int p = 0; p < K::dims / 2; p += 32)
          if (p + lane < K::dims / 2) {
            const int i = (p + lane) / h * 2 * h + (p + lane) % h;
            const float v = x[i], w = x[i + h];
            x[i] = v + w;
            x[i + h] = v - w;
          }
        __syncwarp();
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < K::items; ++i) {
      const int item = threadIdx.x + i * threads;
      if (item < K::columns * K::dims / 4) outs[i] = reinterpret_cast<const float4*>(turned)[item];
    }
  }
#pragma unroll
  for (int i = 0; i < K::items; ++i) {
    const int item = threadIdx.x + i * threads, column = item / (K::dims / 4), d = item % (K::dims / 4) * 4;
    if (column >= columns) continue;
    const int64_t row = int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + column / heads;
    const int64_t to = row * a.out_stride + int64_t{first_head + column % heads} * K::dims + d;
    if (a.narrow_out)
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(a.out) + to) = make_uint2(pack_bf16(outs[i].x, outs[i].y), pack_bf16(outs[i].z, outs[i].w));
    else
      *reinterpret_cast<float4*>(static_cast<float*>(a.out) + to) = outs[i];
  }
}

template <KvType type, int dims, int columns>
void start(Context* c, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  using K = Kind<type, dims, columns>;
  static std::atomic<bool> allowed[64];  // by GPU
  if (c->index >= 64 || !allowed[c->index]) {
    if (!allow_shared(c, reinterpret_cast<const void*>(attend<K>), K::shared, status)) return;
    if (c->index < 64) allowed[c->index] = true;
  }
  launch(c, attend<K>, Shape{grid, dim3(threads), K::shared}, a);
}

template <KvType type, int dims>
void start(Context* c, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  if (a.tile_columns <= 8)
    start<type, dims, 8>(c, a, grid, status);
  else if constexpr (dims <= 128)
    start<type, dims, 16>(c, a, grid, status);
}

template <KvType type>
void start(Context* c, int32_t dims, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  switch (dims) {
    case 64:
      return start<type, 64>(c, a, grid, status);
    case 80:
      return start<type, 80>(c, a, grid, status);
    case 96:
      return start<type, 96>(c, a, grid, status);
    case 128:
      return start<type, 128>(c, a, grid, status);
    default:
      return start<type, 256>(c, a, grid, status);
  }
}

}  // namespace orlop::cuda::decode
