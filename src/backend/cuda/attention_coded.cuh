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
// A warp walks units of 32 tokens, every fourth one of its chunk, which come into its ring as whole blocks: slots in
// which nothing has been stored yet come too. Codes are numbers whatever they are; scores there are minus infinity
// whatever keys are; grids of values are taken as zero for each query that does not see the token.
#pragma once
#include "backend/cuda/common.cuh"

#include "backend/cuda/attention_fold.cuh"
#include "backend/cuda/attention_ring.cuh"

namespace orlop::cuda::decode {

template <KvType type_, int dims_, int columns_, int block_, int resident_ = (dims_ > 128 || columns_ > 8 ? 1 : 4)>
struct Coded {
  static constexpr KvType type = type_;
  static constexpr bool int8 = type == KvType::int8;
  static constexpr int dims = dims_, columns = columns_, block = block_, resident = resident_;
  static constexpr int tiles = dims / 16, tops = columns / 8;
  static constexpr KvLayout layout = KvLayout(KvDesc{type, 1, dims, block});
  static constexpr int key_tile = layout.key_tile, words = layout.lane_words, codes = layout.codes;
  static constexpr int unit = 32, subs = unit / 16, pieces = unit / block, together = key_tile / 16;  // subs: of 16 tokens
  static constexpr int pitch = 2 * dims + 16;
  // Where in a stage things of such 16 tokens stand.
  static constexpr int values_at = static_cast<int>(layout.values_at);  // from codes of keys
  ORLOP_BOTH static constexpr int key_codes_at(int sub) {
    constexpr auto next = static_cast<int>(layout.key_codes_of(16));
    return sub * next;
  }
  ORLOP_BOTH static constexpr int key_grids_at(int sub) {
    constexpr auto first = static_cast<int>(layout.key_grids_of(0)), next = static_cast<int>(layout.key_grids_of(16)) - first;
    return first + sub * next;
  }
  ORLOP_BOTH static constexpr int key_unit_at(int sub) {
    constexpr auto first = static_cast<int>(layout.key_unit_of(0)), next = static_cast<int>(layout.key_unit_of(16)) - first;
    return first + sub * next;
  }
  ORLOP_BOTH static constexpr int value_grids_at(int sub) {
    constexpr auto first = static_cast<int>(layout.value_grid_of(0)), next = static_cast<int>(layout.value_grid_of(16)) - first;
    return first + sub * next;
  }
  using Folds = Fold<dims, columns>;
  using Ring = BlockRing<layout.block_bytes, pieces>;
  static constexpr int own_at = Folds::state_bytes;             // keys [key_tile] of the queries' own tile
  static constexpr int queries_at = own_at + key_tile * pitch;  // [columns], bf16
  static constexpr int most_stages = 4, barriers_at = queries_at + columns * pitch;
  static constexpr int rings_at = (barriers_at + warps * most_stages * 8 + 127) / 128 * 128;  // shares come there later
  static constexpr int ring_bytes(int stages) { return warps * stages * Ring::stage_bytes; }
  static constexpr int shared(int stages) { return rings_at + (ring_bytes(stages) > Folds::share_bytes ? ring_bytes(stages) : Folds::share_bytes); }
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
    to[0] = masked(w[i], 0x000f000fu, 0x64006400u);
    to[1] = masked(w[i], 0x00f000f0u, 0x64006400u);
    to[2] = masked(upper, 0x000f000fu, 0x64006400u);
    to[3] = masked(upper, 0x00f000f0u, 0x64006400u);
  }
}

template <class K>
__global__ void __launch_bounds__(threads, K::resident) attend_codes(const __grid_constant__ DecodeArgs a) {
  let_next_start();
  unsigned char* memory = dynamic_shared();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pair = lane % 4;
  // What may be read before wait_inputs(): as in attend().
  Work w;
  if (!w.find(a)) return wait_inputs();
  const Tile& tile = w.tile;
  const int32_t used = tile.count * w.heads;
  const int32_t* table = a.page_table + tile.seq.page_begin;
  const unsigned char* head = a.pages + w.kv_head * a.head_bytes;
  typename K::Ring ring(memory + K::rings_at + warp * a.stages * K::Ring::stage_bytes, memory + K::barriers_at + warp * K::most_stages * 8, a.stages);
  const typename K::Folds folds{reinterpret_cast<float*>(memory + K::rings_at), reinterpret_cast<float*>(memory)};
  const int32_t settled = tile.seq.pos_begin / 32 * 32;  // keys before it were sealed by earlier steps

  uint32_t q[K::tops][K::tiles][2];  // f16, largest in [1, 2)
  float q_size[K::tops][2];          // of the results' columns, and the scores' scale
  int32_t place[K::tops][2];         // their positions
  // Minus what stands for codes of zero, as an operand. Opaque, so that it stays in registers.
  constexpr uint32_t sign = 0x80008000u;
  const uint32_t upper_zero = in_register<sign ^ zero_of<K::int8>(false)>(), lower_zero = K::int8 ? upper_zero : in_register<sign ^ zero_of<K::int8>(true)>();
  const uint32_t zeros[4] = {upper_zero, lower_zero, upper_zero, lower_zero};
  bool waited = false;
  int32_t turn = 0;
#pragma unroll 1
  for (int32_t chunk = w.begin_chunk; chunk < w.end_chunk; ++chunk, ++turn) {
    if (turn) rings_again();
    const int32_t t_end = min((chunk + 1) * a.chunk, w.last + 1), u_end = (t_end + K::unit - 1) / K::unit;
    int32_t u = max(chunk * a.chunk, w.oldest) / K::unit;
    u += (warp - u) & (warps - 1);
    // Pages of the next units' blocks, a lane's for each: loads of a table whose lines have left the second-level cache
    // must not wait for each other.
    int32_t asked = u, pages = 0, at = 0;
    const auto look = [&] {
      const int32_t t = (asked + lane / K::pieces * warps) * K::unit + lane % K::pieces * K::block;
      at = 0;
      if (t < t_end) pages = table[page_of(a, t)];
    };
    const auto ask_next = [&] {
      if (at == 32) look();
      const unsigned char* from[K::pieces];
#pragma unroll
      for (int p = 0; p < K::pieces; ++p) {
        const int32_t t = asked * K::unit + p * K::block, in_page = t - page_of(a, t) * a.page_tokens;
        const auto page = static_cast<uint32_t>(__shfl_sync(all_lanes, pages, at + p));
        // Of blocks that nobody sees, there may be no page any more, or not yet.
        const bool seen = t + K::block > w.oldest && t < t_end;
        from[p] = seen ? head + uint64_t{page} * a.page_bytes + in_page / K::block * K::layout.block_bytes : nullptr;
      }
      ring.ask(from);
      asked += warps;
      at += K::pieces;
    };
    look();
#pragma unroll 1
    for (int32_t i = 0; i < a.stages && asked < u_end; ++i) {
      if (!waited && (asked + 1) * K::unit > settled) {
        wait_inputs();
        waited = true;
      }
      ask_next();
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

#pragma unroll 1
    for (; u < u_end; u += warps) {
      const unsigned char* from = ring.take();
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
        const uint4* grid = reinterpret_cast<const uint4*>(from + K::key_grids_at(first)) + pair;
        const float unit = *reinterpret_cast<const float*>(from + K::key_unit_at(first));
        uint32_t words[together][K::words];
#pragma unroll
        for (int i = 0; i < together; ++i) take_words(from + K::key_codes_at(first + i), lane, words[i]);
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
          const uint16_t* grids = reinterpret_cast<const uint16_t*>(from + K::value_grids_at(sub)) + 8 * h + lane / 4;
          scale[sub][h] = __uint_as_float(uint32_t{grids[0]} << 16);
          log_scale[sub][h] = fmaxf(log2_fast(scale[sub][h]), -60.0f);
          centre[sub][h] = K::int8 ? 0.0f : __uint_as_float(uint32_t{grids[K::block]} << 16);
        }

      uint32_t weight[K::subs][K::tops][2];
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        uint32_t hidden = 0;  // a bit for each score of a token that its query does not see
        if (!inner)
#pragma unroll
          for (int sub = 0; sub < K::subs; ++sub)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int32_t t = t0 + 16 * sub + 8 * (e / 2) + lane / 4, p = place[n][e % 2];
              if (t > p || (a.window && t <= p - a.window)) {
                score[sub][n][e] = -INFINITY;
                hidden |= 1u << (4 * sub + e);
              }
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
        const auto weigh = [&](auto all_seen) {
#pragma unroll
          for (int sub = 0; sub < K::subs; ++sub) {
            float p[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              // Nothing of a token that is not seen: of values that are no numbers, scale and centre are none either.
              const bool seen = all_seen || !(hidden >> (4 * sub + e) & 1);
              p[e] = exp2_fast(score[sub][n][e] - base[e % 2]);
              sum[n][e % 2] = __fadd_rn(sum[n][e % 2], p[e]);
              if constexpr (!K::int8) centre_sum[n][e % 2] = __fmaf_rn(p[e], seen ? centre[sub][e / 2] : 0.0f, centre_sum[n][e % 2]);
              p[e] = __fmul_rn(p[e], seen ? scale[sub][e / 2] : 0.0f);
            }
#pragma unroll
            for (int h = 0; h < 2; ++h) weight[sub][n][h] = transposed(pack_f16(p[2 * h], p[2 * h + 1]));
          }
        };
        if (inner)
          weigh(std::true_type());
        else
          weigh(std::false_type());
      }

#pragma unroll
      for (int sub = 0; sub < K::subs; ++sub) {
        uint32_t words[K::words];
        take_words(from + K::key_codes_at(sub) + K::values_at, lane, words);
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
      __syncwarp();  // the stage is free
      if (asked < u_end) ask_next();
    }

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
