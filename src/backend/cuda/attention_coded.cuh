// Attention of few rows over int8 and uint4 pages (kv_layout.cuh); attention_decode.cuh says how a block works.
//
// Codes are not turned into keys and values: that would take more instructions than memory leaves time for.
//   Keys   k = centre + unit * share * code. A tile's queries, brought to at most 2 by a power of two, are
//          multiplied by its shares (f16), codes are the other operand, exact in f16: 1024 + code for what is
//          or-ed under an exponent. What the 1024 makes too much is a product of the same queries with a constant;
//          centres are a third product.
//   Values v = centre + scale * code. The scale is put onto the weight, centres are summed apart. Weights are kept
//          at most 1 for f16 with their scale: what is taken as the running maximum is that of
//          score + log2(scale), the sum of the bare weights may be larger.
// A uint4 code in the upper nibble of a byte is not shifted down: what it gives is 16 times as much. It is a token's
// of keys and a dimension's of values of the lower half of a tile's rows, so that results are corrected.
// Sums and products are __f*_rn: a compiler that fuses them in one instance of the kernel and not in another would
// make bits depend on how many queries share a block.
// Keys of the tile in which the queries stand are bf16, from the tail and this call's rows.
#pragma once
#include "backend/cuda/common.cuh"

#include "backend/cuda/attention_fold.cuh"

namespace orlop::cuda::decode {

template <KvType type_, int dims_, int columns_, int key_tile_, int subs_ = (type_ == KvType::int8 ? 1 : 2), int stages_ = 2,
          int resident_ = (dims_ > 128 || columns_ > 8 ? 1 : 4)>
struct Coded {
  static constexpr KvType type = type_;
  static constexpr bool int8 = type == KvType::int8;
  static constexpr int dims = dims_, columns = columns_, key_tile = key_tile_, stages = stages_, resident = resident_;
  static constexpr int tiles = dims / 16, tops = columns / 8;
  static constexpr int subs = subs_, unit = 16 * subs;            // of 16 tokens
  static constexpr int together = key_tile / 16 < subs ? key_tile / 16 : subs, key_tiles = subs / together;
  static constexpr int pitch = 2 * dims + 16;
  static constexpr int words = tiles * (int8 ? 2 : 1), codes = 128 * words, grids = 64 * tiles;
  // A unit in shared memory: codes of keys, of values, grids of keys, scales and centres of values, units of keys.
  static constexpr int values_at = subs * codes, grids_at = 2 * values_at, scales_at = grids_at + key_tiles * grids;
  static constexpr int units_at = scales_at + 4 * unit, stage = units_at + 16 * key_tiles, ring = stages * stage;
  using Folds = Fold<dims, columns>;
  static constexpr int state_at = warps * ring > Folds::share_bytes ? warps * ring : Folds::share_bytes;
  static constexpr int own_at = state_at + Folds::state_bytes;  // keys [key_tile] of the queries' own tile
  static constexpr int queries_at = own_at + key_tile * pitch;  // [columns], bf16
  static constexpr int shared = queries_at + columns * pitch;
};

__device__ inline void copy4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline uint32_t minus_f16x2(uint32_t x, uint32_t y) {
  uint32_t to;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(to) : "r"(x), "r"(y));
  return to;
}
__device__ inline uint32_t times_f16x2(uint32_t x, uint32_t y) {
  uint32_t to;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(to) : "r"(x), "r"(y));
  return to;
}
__device__ inline uint32_t and_or(uint32_t x, uint32_t mask, uint32_t bits) {  // in one instruction
  uint32_t to;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(to) : "r"(x), "r"(mask), "r"(bits));
  return to;
}
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

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

// f16 pairs: what stands for a code of zero in rows lane / 4, and in rows 8 further down.
template <bool int8>
constexpr uint32_t zero_of(bool lower) {
  return int8 || lower ? 0x64806480u : 0x64086408u;  // 1024 + 128 (int8: code + 128; uint4: 16 * 8); 1024 + 8
}
// The left operand of tile i: 1024 + what stands for the codes.
template <bool int8, int words>
__device__ inline void operand(const uint32_t (&w)[words], int i, uint32_t (&to)[4]) {
  if constexpr (int8) {
#pragma unroll
    for (int r = 0; r < 4; ++r) to[r] = __byte_perm(w[2 * i + r % 2], 0x64646464u, r < 2 ? 0x4240 : 0x4341);
  } else {
    const uint32_t upper = w[i] >> 8;
    to[0] = and_or(w[i], 0x000f000fu, 0x64006400u);
    to[1] = and_or(w[i], 0x00f000f0u, 0x64006400u);
    to[2] = and_or(upper, 0x000f000fu, 0x64006400u);
    to[3] = and_or(upper, 0x00f000f0u, 0x64006400u);
  }
}

template <class K>
__global__ void __launch_bounds__(threads, K::resident) attend_codes(const __grid_constant__ DecodeArgs a) {
  let_next_start();
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pair = lane % 4;
  // What may be read before wait_inputs(): as in attend().
  Work w;
  if (!w.find(a)) return wait_inputs();
  const Tile& tile = w.tile;
  const int32_t used = tile.count * w.heads;
  const int32_t* table = a.page_table + tile.seq.page_begin;
  const unsigned char* head = a.pages + w.kv_head * a.head_bytes;
  unsigned char* ring = memory + warp * K::ring;
  const typename K::Folds folds{reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + K::state_at)};
  const int32_t settled = tile.seq.pos_begin / 32 * 32;  // keys before it were sealed by earlier steps

  // What a lane asks for besides codes: 16 bytes of scales, of centres (two lanes each), of key tiles' units.
  const uint32_t small_at = lane == 4 ? a.key_units_at : a.value_grids_at + (lane & 1) * 16 + (lane >> 1) * 2 * a.page_tokens;
  const uint32_t small_to = lane == 4 ? K::units_at : K::scales_at + (lane & 1) * 16 + (lane >> 1) * 2 * K::unit;
  const bool small = K::int8 ? lane < 2 || lane == 4 : lane < 5;
  // Asks for 16 tokens of the unit, which begin at t.
  const auto ask = [&](int32_t t, int sub, uint32_t to, int32_t page) {
    const uint32_t offset = static_cast<uint32_t>(t - page_of(a, t) * a.page_tokens), tile = offset / K::key_tile;
    const unsigned char* from = head + uint64_t{static_cast<uint32_t>(page)} * a.page_bytes;
    const unsigned char* keys = from + (offset / 16 * K::codes + lane * 16);
    const unsigned char* values = keys + a.values_at;
    const uint32_t at = to + sub * K::codes + lane * 16;
#pragma unroll
    for (int c = 0; c < K::codes / 16; c += 32)
      if (c + lane < K::codes / 16) {
        copy16(at + c * 16, keys + c * 16);
        copy16(at + K::values_at + c * 16, values + c * 16);
      }
    const int key_tile = sub / K::together;
    if (sub % K::together == 0) {
      const unsigned char* grids = from + (a.key_grids_at + tile * K::grids + lane * 16);
#pragma unroll
      for (int c = 0; c < K::grids / 16; c += 32)
        if (c + lane < K::grids / 16) copy16(to + K::grids_at + key_tile * K::grids + (c + lane) * 16, grids + c * 16);
    }
    if (small) copy16(to + small_to + (lane == 4 ? key_tile * 16 : sub * 32), from + (small_at + (lane == 4 ? tile / 4 * 16 : 2 * offset)));
  };

  uint32_t q[K::tops][K::tiles][2];  // f16, largest in [1, 2)
  float q_size[K::tops][2];          // of the results' columns, and the scores' scale
  int32_t place[K::tops][2];         // their positions
  // Minus what stands for codes of zero, as an operand. Opaque, so that it stays in registers.
  uint32_t zeros[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) asm volatile("mov.b32 %0, %1;" : "=r"(zeros[r]) : "n"(0x80008000u ^ zero_of<K::int8>(false)));
  if constexpr (!K::int8)
#pragma unroll
    for (int r = 1; r < 4; r += 2) asm volatile("mov.b32 %0, %1;" : "=r"(zeros[r]) : "n"(0x80008000u ^ zero_of<K::int8>(true)));
  bool waited = false;
  int32_t turn = 0;
#pragma unroll 1
  for (int32_t chunk = w.begin_chunk; chunk < w.end_chunk; ++chunk, ++turn) {
    const int32_t t_end = min((chunk + 1) * a.chunk, w.last + 1), u_end = (t_end + K::unit - 1) / K::unit;
    int32_t u = max(chunk * a.chunk, w.oldest) / K::unit;
    u += (warp - u) & (warps - 1);
    int32_t asked = u, pages[2] = {0, 0};
    const auto look = [&] {  // the pages of the unit that is asked for next
      if (asked >= u_end) return;
      pages[0] = table[page_of(a, asked * K::unit)];
      if (K::subs == 2) pages[1] = K::key_tile == 32 ? pages[0] : table[page_of(a, min(asked * K::unit + 16, w.last))];
    };
    const auto ask_next = [&](int stage) {
      const uint32_t to = shared_address(ring + stage * K::stage);
      ask(asked * K::unit, 0, to, pages[0]);
      if (K::subs == 2 && asked * K::unit + 16 <= w.last) ask(asked * K::unit + 16, 1, to, pages[1]);
      asked += warps;
      look();
    };
    look();
#pragma unroll 1
    for (int i = 0; i < K::stages - 1; ++i) {
      if (asked < u_end) {
        if (!waited && (asked + 1) * K::unit > settled) {
          wait_inputs();
          waited = true;
        }
        ask_next(i);
      }
      copies_end();
    }
    if (turn == 0) {
      if (!waited) wait_inputs();
      waited = true;
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        const int32_t column = 8 * n + lane / 4, row = column / w.heads;
        const bool real = column < used;
        const float* from = a.q + (int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + (real ? row : 0)) * a.q_stride +
                            int64_t{w.first_head + (real ? column - row * w.heads : 0)} * K::dims + 2 * pair;
        float2 v[K::tiles][2];
        float largest = 0;
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) v[s][h] = real ? *reinterpret_cast<const float2*>(from + 16 * s + 8 * h) : make_float2(0, 0);
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            largest = fmaxf(largest, fmaxf(fabsf(v[s][h].x), fabsf(v[s][h].y)));
            // For the queries' own tile; the warps share the work.
            if (s % warps == warp)
              *reinterpret_cast<uint32_t*>(memory + K::queries_at + column * K::pitch + (16 * s + 8 * h + 2 * pair) * 2) = pack_bf16(v[s][h].x, v[s][h].y);
          }
        largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
        // A power of two, and its reciprocal; what is smaller than 2^-100 counts as that.
        const uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 27u), 227u);
        const float shrink = __uint_as_float((254 - exponent) << 23);
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) q[n][s][h] = pack_f16_finite(v[s][h].x * shrink, v[s][h].y * shrink);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          q_size[n][c] = __uint_as_float(__shfl_sync(all_lanes, exponent, (2 * pair + c) * 4) << 23) * a.scale_log2;
          place[n][c] = min(tile.first + (8 * n + 2 * pair + c) / w.heads, w.last);
        }
      }
    }
    const int32_t own_begin = w.last / K::key_tile * K::key_tile;
    if (t_end > own_begin) {
      constexpr int row_chunks = K::dims / 8;
#pragma unroll 2
      for (int c = threadIdx.x; c < K::key_tile * row_chunks; c += threads) {
        const int32_t row = c / row_chunks, chunk8 = c % row_chunks, t = own_begin + row;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (t <= w.last && t >= tile.seq.pos_begin) {
          const float* k = a.k + (int64_t{tile.seq.row_begin} + t - tile.seq.pos_begin) * a.k_stride + int64_t{w.kv_head} * K::dims + chunk8 * 8;
          const float4 x = *reinterpret_cast<const float4*>(k), y = *reinterpret_cast<const float4*>(k + 4);
          v = make_uint4(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
        } else if (t <= w.last) {
          v = *reinterpret_cast<const uint4*>(a.tails + ((int64_t{tile.seq.seat} * a.kv_heads + w.kv_head) * K::key_tile + row) * (2 * K::dims) + chunk8 * 16);
        }
        *reinterpret_cast<uint4*>(memory + K::own_at + row * K::pitch + chunk8 * 16) = v;
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
#pragma unroll 1
    for (; u < u_end; u += warps) {
      copies_wait<K::stages - 2>();
      __syncwarp();
      if (asked < u_end) ask_next(stage == 0 ? K::stages - 1 : stage - 1);
      copies_end();
      const unsigned char* from = ring + stage * K::stage;
      stage = stage + 1 == K::stages ? 0 : stage + 1;
      const int32_t t0 = u * K::unit;

      // Scores in powers of two, of tokens lane / 4 and + 8 of each 16.
      float score[K::subs][K::tops][4];
#pragma unroll
      for (int first = 0; first < K::subs; first += K::together) {
        constexpr int together = K::together;
        if (t0 + 16 * first >= own_begin) {
#pragma unroll
          for (int sub = first; sub < first + together; ++sub) {
#pragma unroll
            for (int n = 0; n < K::tops; ++n) score[sub][n][0] = score[sub][n][1] = score[sub][n][2] = score[sub][n][3] = 0;
            if (t0 + 16 * sub > w.last) continue;
#pragma unroll 2
            for (int s = 0; s < K::tiles; ++s) {
              uint32_t k[4];
              load_matrices(shared_address(memory + K::own_at) + ((t0 + 16 * sub) % K::key_tile + lane % 16) * K::pitch + lane / 16 * 16 + s * 32, k);
#pragma unroll
              for (int n = 0; n < K::tops; ++n) {
                const unsigned char* at = memory + K::queries_at + (8 * n + lane / 4) * K::pitch + s * 32 + pair * 4;
                const uint32_t rows[2] = {*reinterpret_cast<const uint32_t*>(at), *reinterpret_cast<const uint32_t*>(at + 16)};
                multiply<false>(score[sub][n], k, rows);
              }
            }
#pragma unroll
            for (int n = 0; n < K::tops; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) score[sub][n][e] = __fmul_rn(score[sub][n][e], a.scale_log2);
          }
          continue;
        }
        const uint4* grid = reinterpret_cast<const uint4*>(from + K::grids_at + first / together * K::grids) + pair;
        const int32_t in_page = t0 + 16 * first - page_of(a, t0 + 16 * first) * a.page_tokens;
        const float unit = reinterpret_cast<const float*>(from + K::units_at + first / together * 16)[in_page / K::key_tile % 4];
        uint32_t words[together][K::words];
#pragma unroll
        for (int i = 0; i < together; ++i) take_words(from + (first + i) * K::codes, lane, words[i]);
        float centres[K::tops][4], over[K::tops][4];
#pragma unroll
        for (int n = 0; n < K::tops; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            centres[n][e] = over[n][e] = 0;
#pragma unroll
            for (int i = 0; i < together; ++i) score[first + i][n][e] = 0;
          }
#pragma unroll
        for (int s = 0; s < K::tiles; ++s) {
          const uint4 g = grid[4 * s];
          const uint32_t c[4] = {g.x, g.y, g.z, g.w};  // centres in the upper rows: the same for every token
#pragma unroll
          for (int n = 0; n < K::tops; ++n) {
            const uint32_t shared_out[2] = {times_f16x2(q[n][s][0], g.y), times_f16x2(q[n][s][1], g.w)};
            multiply<true>(centres[n], c, q[n][s]);
            multiply<true>(over[n], zeros, shared_out);
#pragma unroll
            for (int i = 0; i < together; ++i) {
              uint32_t k[4];
              operand<K::int8>(words[i], s, k);
              multiply<true>(score[first + i][n], k, shared_out);
            }
          }
        }
#pragma unroll
        for (int i = 0; i < together; ++i)
#pragma unroll
          for (int n = 0; n < K::tops; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              score[first + i][n][e] = __fmul_rn(
                  __fmaf_rn(__fadd_rn(score[first + i][n][e], over[n][e]), !K::int8 && e >= 2 ? unit * 0.0625f : unit, centres[n][e % 2]), q_size[n][e % 2]);
      }

      // Of values, each token's scale and centre.
      float scale[K::subs][2], log_scale[K::subs][2], centre[K::subs][2];
      const bool inner = t0 >= w.oldest + tile.count - 1 && t0 + K::unit - 1 <= tile.first;  // every query sees every token
#pragma unroll
      for (int sub = 0; sub < K::subs; ++sub)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint16_t* grids = reinterpret_cast<const uint16_t*>(from + K::scales_at) + 16 * sub + 8 * h + lane / 4;
          scale[sub][h] = __uint_as_float(uint32_t{grids[0]} << 16);
          log_scale[sub][h] = fmaxf(log2_fast(scale[sub][h]), -60.0f);
          centre[sub][h] = K::int8 ? 0.0f : __uint_as_float(uint32_t{grids[K::unit]} << 16);
        }
      if (!inner)  // what stands in empty slots is no number
#pragma unroll
        for (int sub = 0; sub < K::subs; ++sub)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int32_t t = t0 + 16 * sub + 8 * h + lane / 4;
            if (t < w.oldest || t > w.last) scale[sub][h] = centre[sub][h] = 0;
          }

      uint32_t weight[K::subs][K::tops][2];
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        if (!inner)
#pragma unroll
          for (int sub = 0; sub < K::subs; ++sub)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int32_t t = t0 + 16 * sub + 8 * (e / 2) + lane / 4, p = place[n][e % 2];
              if (t > p || (a.window && t <= p - a.window)) score[sub][n][e] = -INFINITY;
            }
        float base[2];
        bool grew = false;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float m = -INFINITY;
#pragma unroll
          for (int sub = 0; sub < K::subs; ++sub) m = fmaxf(m, fmaxf(score[sub][n][c] + log_scale[sub][0], score[sub][n][c + 2] + log_scale[sub][1]));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 4));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 8));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 16));
          base[c] = fmaxf(most[n][c], m);
          grew |= base[c] != most[n][c];
        }
        if (__any_sync(all_lanes, grew)) {
          float keep[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            keep[c] = exp2_fast(most[n][c] - (base[c] == -INFINITY ? 0.0f : base[c]));
            most[n][c] = base[c];
            sum[n][c] = __fmul_rn(sum[n][c], keep[c]);
            centre_sum[n][c] = __fmul_rn(centre_sum[n][c], keep[c]);
          }
#pragma unroll
          for (int s = 0; s < K::tiles; ++s)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[n][s][e] = __fmul_rn(o[n][s][e], keep[e % 2]);
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) base[c] = base[c] == -INFINITY ? 0.0f : base[c];
#pragma unroll
        for (int sub = 0; sub < K::subs; ++sub) {
          float p[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            p[e] = exp2_fast(score[sub][n][e] - base[e % 2]);
            sum[n][e % 2] = __fadd_rn(sum[n][e % 2], p[e]);
            if constexpr (!K::int8) centre_sum[n][e % 2] = __fmaf_rn(p[e], centre[sub][e / 2], centre_sum[n][e % 2]);
            p[e] = __fmul_rn(p[e], scale[sub][e / 2]);
          }
#pragma unroll
          for (int h = 0; h < 2; ++h) weight[sub][n][h] = transposed(pack_f16(p[2 * h], p[2 * h + 1]));
        }
      }

#pragma unroll
      for (int sub = 0; sub < K::subs; ++sub) {
        uint32_t words[K::words];
        take_words(from + K::values_at + sub * K::codes, lane, words);
#pragma unroll
        for (int s = 0; s < K::tiles; ++s) {
          uint32_t v[4];
          operand<K::int8>(words, s, v);
#pragma unroll
          for (int r = 0; r < 4; ++r) v[r] = minus_f16x2(v[r], zero_of<K::int8>(r % 2));
#pragma unroll
          for (int n = 0; n < K::tops; ++n) multiply<true>(o[n][s], v, weight[sub][n]);
        }
      }
    }

    copies_wait<0>();
    __syncthreads();  // rings are free
#pragma unroll
    for (int n = 0; n < K::tops; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float s = sum[n][c], added = centre_sum[n][c];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
          s += __shfl_xor_sync(all_lanes, s, step);
          if constexpr (!K::int8) added += __shfl_xor_sync(all_lanes, added, step);
        }
        float* share = folds.share(warp, 8 * n + 2 * pair + c);
#pragma unroll
        for (int i = 0; i < K::tiles; ++i) {
          share[16 * i + lane / 4] = o[n][i][c] + added;
          share[16 * i + lane / 4 + 8] = o[n][i][c + 2] * (K::int8 ? 1.0f : 0.0625f) + added;
        }
        if (lane < 4) share[K::dims] = most[n][c], share[K::dims + 1] = s;
      }
    folds.add_shares(used, turn);
  }
  if (!a.walks && w.chunks > 1 && !folds.add_chunks(a, used, w.chunks)) return;
  folds.template put<true>(a, tile, w.first_head, w.heads, turn - 1);
}

}  // namespace orlop::cuda::decode
