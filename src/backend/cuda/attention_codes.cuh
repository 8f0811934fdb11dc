// Coded keys and values (kv_layout.cuh) as bf16 in shared memory, where products take them from: a warp
// unpacks 16 tokens at a time. Only code for sm_90a may call it.
#pragma once
#include "backend/cuda/attention_hopper_parts.cuh"
#include "backend/cuda/attention_split.cuh"
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

// A lane's words of 16 tokens' keys or values, in the order of word_at().
template <int Words>
__device__ inline void load_words(uint32_t (&to)[Words], const unsigned char* codes, int lane) {
  constexpr int whole = Words / 4 * 4, pairs = (Words - whole) / 2 * 2;
  const auto* words = reinterpret_cast<const uint32_t*>(codes);
#pragma unroll
  for (int i = 0; i < whole; i += 4) {
    const uint4 v = *reinterpret_cast<const uint4*>(words + (i / 4 * 32 + lane) * 4);
    to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
  }
  if constexpr (pairs > 0) {
    const uint2 v = *reinterpret_cast<const uint2*>(words + whole * 32 + lane * 2);
    to[whole] = v.x, to[whole + 1] = v.y;
  }
  if constexpr (Words - whole - pairs > 0) to[whole + pairs] = words[(whole + pairs) * 32 + lane];
}

// x = centre + scale * code of four columns, for numbers that stand for codes.
struct Columns {
  float scale[4], add[4];
  __device__ void set(float number_of_zero) {  // add: centres
#pragma unroll
    for (int i = 0; i < 4; ++i) add[i] -= number_of_zero * scale[i];
  }
};

// Codes as floats that are larger by a number which makes them easy to put together: bits of the code below
// the exponent's. int8: 32768 + 128 + code; uint4: 128 + 8 + code.
template <bool Int8>
constexpr float number_of_zero = Int8 ? 32896.0f : 136.0f;

// The tile's four registers of a tensor core's operand.
template <bool Int8>
__device__ inline void unpack(uint32_t (&to)[4], const uint32_t* words, const Columns& c) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float low, high;
    if constexpr (Int8) {
      const uint32_t word = words[i % 2];
      low = __uint_as_float(__byte_perm(word, 0x47000000u, i < 2 ? 0x7504 : 0x7514));
      high = __uint_as_float(__byte_perm(word, 0x47000000u, i < 2 ? 0x7524 : 0x7534));
    } else {
      const uint32_t pair = (words[0] >> 4 * i & 0x000f000fu) | 0x43004300u;
      low = __uint_as_float(pair << 16);
      high = __uint_as_float(pair & 0xffff0000u);
    }
    const int column = i / 2 * 2;
    to[i] = pair_of(__nv_bfloat16{}, fmaf(low, c.scale[column], c.add[column]), fmaf(high, c.scale[column + 1], c.add[column + 1]));
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void store_matrices(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
__device__ inline void store_turned(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}

// 16 tokens of a page's head, on their way.
template <bool Int8, int Dims>
struct CodedTokens {
  static constexpr int tiles = Dims / 16, words = tiles * (Int8 ? 2 : 1);
  uint32_t keys[words], values[words];
  uint4 grids[tiles];
  float unit;  // of keys' shares
  uint32_t scales[2], centres[2];  // of values

  // head: the page's head; at: the first of the tokens.
  __device__ void load(const KvLayout& l, const unsigned char* head, int at, bool with_keys) {
    const int lane = threadIdx.x % 32;
    if (with_keys) {
      load_words(keys, head + l.key_codes_of(at), lane);
      const auto* grid = reinterpret_cast<const uint4*>(head + l.key_grids_of(at)) + lane % 4;
#pragma unroll
      for (int t = 0; t < tiles; ++t) grids[t] = grid[4 * t];
      unit = *reinterpret_cast<const float*>(head + l.key_unit_of(at));
    }
    load_words(values, head + l.value_codes_of(at), lane);
    const auto* scale = reinterpret_cast<const uint32_t*>(head + l.value_grid_of(at)) + lane % 4;
    scales[0] = scale[0], scales[1] = scale[4];
    if (!Int8) centres[0] = scale[l.block_tokens / 2], centres[1] = scale[l.block_tokens / 2 + 4];
  }
  // place(row, piece): where 16 bytes of a token of the 16 stand.
  template <class Place>
  __device__ void put_keys(const Place& place) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      Columns c;
      const auto two = [](const uint32_t& pair) { return __half22float2(*reinterpret_cast<const __half2*>(&pair)); };
      const float2 centres_low = two(grids[t].x), shares_low = two(grids[t].y), centres_high = two(grids[t].z), shares_high = two(grids[t].w);
      c.add[0] = centres_low.x, c.add[1] = centres_low.y, c.add[2] = centres_high.x, c.add[3] = centres_high.y;
      c.scale[0] = shares_low.x * unit, c.scale[1] = shares_low.y * unit, c.scale[2] = shares_high.x * unit, c.scale[3] = shares_high.y * unit;
      c.set(number_of_zero<Int8>);
      uint32_t v[4];
      unpack<Int8>(v, keys + t * (Int8 ? 2 : 1), c);
      store_matrices(place(lane / 8 % 2 * 8 + lane % 8, 2 * t + lane / 16), v);
    }
  }
  template <class Place>
  __device__ void put_values(const Place& place) const {
    const int lane = threadIdx.x % 32;
    Columns c;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto one = [&](const uint32_t (&pairs)[2]) { return __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16); };
      c.scale[i] = one(scales);
      c.add[i] = Int8 ? 0.0f : one(centres);
    }
    c.set(number_of_zero<Int8>);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      uint32_t v[4];
      unpack<Int8>(v, values + t * (Int8 ? 2 : 1), c);
      store_turned(place(lane / 16 * 8 + lane % 8, 2 * t + lane / 8 % 2), v);
    }
  }
};

#endif

// Attention's outputs over turned values (cpu/kv_code.h), turned back but for a factor, which is returned: a
// row's columns, of which lane % 4 has each 8 i + 2 (lane % 4) and the next, in elements 4 i + 2 r and the next.
template <int Dims, int N>
__device__ inline float turn_back(float (&o)[N], int r) {
  constexpr int block = Dims & -Dims;
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    float& a = o[4 * i + 2 * r];
    float& b = o[4 * i + 2 * r + 1];
    const float sum = a + b, difference = a - b;
    a = sum, b = difference;
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      const bool second = threadIdx.x & step;
      const float other_a = __shfl_xor_sync(all_lanes, a, step), other_b = __shfl_xor_sync(all_lanes, b, step);
      a = second ? other_a - a : a + other_a;
      b = second ? other_b - b : b + other_b;
    }
  }
#pragma unroll
  for (int h = 1; h < block / 8; h *= 2)
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      if (!(i & h))
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          const float a = o[4 * i + e], b = o[4 * (i + h) + e];
          o[4 * i + e] = a + b;
          o[4 * (i + h) + e] = a - b;
        }
  return rsqrtf(static_cast<float>(block));
}

namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// What the four warps of the first warpgroup do for coded keys and values: each unpacks 16 tokens of a tile, which
// it has fetched while it unpacked those before. begin: what begins a tile of queries, one warp.
template <bool Int8, int Dims, int Keys, int Stages, class P, bool Split, class Begin>
__device__ inline void produce_codes(const AttentionArgs& a, const KvLayout& layout, uint32_t base, uint32_t barriers, int32_t positions,
                                     int32_t least_rows, int32_t parts, const Begin& begin) {
  static_assert(Keys == 64, "a warp for each 16 tokens");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto place_in = [&](uint32_t tile) {
    return [=](int row, int piece) {
      const int at = 16 * warp + row;
      return tile + piece / 8 * P::across + at / 8 * P::down + row % 8 * 128 + (piece % 8 ^ row % 8) * 16;
    };
  };
  Ring ring;
  CodedTokens<Int8, Dims> now, next;
  for (int32_t n = 0;; ++n) {
    const Work work = work_at<Split>(a, positions, least_rows, n, parts);
    if (!Split && warp == 0) begin(work, n);
    if (Split && work.count == 0) {
      if (warp == 0) begin(work, n);
      break;
    }
    if (work.count == 0) break;
    const AttentionSeq seq = a.seqs[work.seq];
    const Span<Keys, true> span(work, a.window, layout.key_tile);
    const Part part = part_of<Split>(span.count, parts);
    const int32_t* table = a.page_table + seq.page_begin;
    const auto there = [&](int32_t t) { return span.key(t) + 16 * warp + 16 > span.from(t) && span.key(t) + 16 * warp < span.to(t); };
    const auto fetch = [&](int32_t t) {
      if (t >= part.end || !there(t)) return;
      const int32_t token = span.key(t) + 16 * warp;
      next.load(layout, static_cast<const unsigned char*>(a.pages) + layout.head_at(table[token / layout.page_tokens], work.kv_head),
                token % layout.page_tokens, t >= span.own);
    };
    // What earlier steps sealed is fetched before the kernels of this one have ended.
    const bool early = part.begin >= span.own && span.key(part.begin) + Keys <= seq.pos_begin / 32 * 32;
    if (Split && !early) wait_inputs();
    fetch(part.begin);
    if (Split && warp == 0) {
      wait_inputs();
      begin(work, n);
    }
    for (int32_t t = part.begin; t < part.end; ++t) {
      now = next;
      fetch(t + 1);
      barrier_wait(barriers + 8 * (Stages + ring.stage), ring.phase ^ 1);  // keys_empty
      const auto key_place = place_in(base + P::keys_at + ring.stage * P::tile_bytes);
      if (!there(t)) {
        // nobody looks at what is there
      } else if (t >= span.own) {
        now.put_keys(key_place);
      } else {
        for (int i = lane; i < 16 * (Dims / 8); i += 32) {
          const int row = i / (Dims / 8), piece = i % (Dims / 8), token = span.key(t) + 16 * warp + row;
          uint4 v{};
          if (token < seq.pos_begin)
            v = *reinterpret_cast<const uint4*>(static_cast<const unsigned char*>(a.tails) + seq.seat * layout.tail_bytes + work.kv_head * layout.tail_head +
                                                (token % layout.key_tile * Dims + 8 * piece) * 2);
          else if (token <= span.last)
            v = query_piece<__nv_bfloat16>(a.k + (seq.row_begin + token - seq.pos_begin) * a.k_stride + work.kv_head * Dims + 8 * piece);
          asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(key_place(row, piece)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
        }
      }
      fence_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers + 8 * ring.stage);             // keys_full
      barrier_wait(barriers + 8 * (3 * Stages + ring.stage), ring.phase ^ 1);  // values_empty
      if (there(t)) now.put_values(place_in(base + P::values_at + ring.stage * P::tile_bytes));
      fence_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers + 8 * (2 * Stages + ring.stage));  // values_full
      ring.next<Stages>();
    }
  }
}
#endif

}  // namespace
}  // namespace orlop::cuda
