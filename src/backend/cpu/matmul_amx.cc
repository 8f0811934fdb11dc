// Linear layers with AMX: up to 16 rows times 16 columns a tile register. Layouts and order: matmul.h.
// Weights are made into bytes or bf16 for a stretch of k, then all rows pass over it, while those of the
// next stretch are fetched. With two threads on a core, loads of tiles take their time beside products:
// two by two tiles need the fewest, and sums stay in registers over as much of k as can be.
// No STL here: nothing compiled with these flags may be emitted for others to link to.
// GCC 12 takes the undefined vectors inside its own AVX-512 intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "backend/cpu/matmul_amx.h"

#ifdef ORLOP_AMX_EMULATED  // by tests, on processors without
#define AMX_NAMESPACE amx_emulated
#else
#define AMX_NAMESPACE amx
#endif

namespace orlop::cpu::AMX_NAMESPACE {
namespace {

#include "backend/cpu/matmul_avx512.inl"
#include "backend/cpu/matmul_bf16.inl"
#ifdef ORLOP_AMX_EMULATED
#include "amx_emulated.inl"
#else
#include "backend/cpu/amx_tiles.inl"
#endif

using Bytes = unsigned char;
constexpr int tile_size = 1024;  // bytes of a whole tile register

// ---- weights as operands: a group of 32 k of 16 columns

// 8 rows of [16 columns][4]: signed codes less their zero point, or unsigned ones.
template <FileType T>
OP void expand_bytes(const Bytes* code, Bytes* to) {
  constexpr int zero_point = pack_info(T).zero;
  static_for<0, 8>([&](auto jj) __attribute__((always_inline)) {
    constexpr int j = decltype(jj)::value;
    I v = codes<T, j>(code, 0);
    if constexpr (zero_point == 128)
      v = _mm512_xor_si512(v, bytes(128));
    else if constexpr (zero_point != 0)
      v = _mm512_sub_epi8(v, bytes(zero_point));
    _mm512_store_si512(to + 64 * j, v);
  });
}
// 16 rows of [16 columns][2].
template <FileType T>
OP void expand_bf16(const Bytes* code, Bytes* to) {
  const Bytes* t = reinterpret_cast<const Bytes*>(table<T>.v);
  const I low_table = load_int(t), high_table = load_int(t + 64);
  static_for<0, 8>([&](auto jj) __attribute__((always_inline)) {
    constexpr int j = decltype(jj)::value;
    I even, odd;
    pairs<T, j>(code, low_table, high_table, even, odd);
    _mm512_store_si512(to + 128 * j, even);
    _mm512_store_si512(to + 128 * j + 64, odd);
  });
}
// Codes are read once in the order they lie in: fetched well ahead, whole lines.
template <FileType T>
OP void fetch_codes(const Bytes* code) {
  for (int i = 0; i < pack_info(T).code_bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(code + 4096 + i), _MM_HINT_T0);
}

// Tile registers: 0 .. 3 sums [rows, 16], 4 and 5 activations, 6 and 7 weights. Rows of 0, 1 and 4 may
// differ from those of 2, 3 and 5.
struct Shape {
  int rows0 = 0, rows1 = 0;
  template <int Depth>  // bytes of a row of activations
  OP void set(int r0, int r1) {
    if (r0 == rows0 && r1 == rows1) return;
    rows0 = r0, rows1 = r1;
    TileConfig c;
    for (int t = 0; t < 8; ++t) {
      c.bytes[t] = t == 4 || t == 5 ? Depth : 64;
      c.rows[t] = static_cast<uint8_t>(t >= 6 ? Depth / 4 : t == 0 || t == 1 || t == 4 ? r0 : r1);
    }
    tile_config(c);
  }
};
template <FileType T, int C, int A, int B>
OP void multiply_bytes() {
  if constexpr (T == FileType::w8z)  // codes up to 255
    tile_unsigned<C, A, B>();
  else
    tile_signed<C, A, B>();
}
OP int rows_of(int rows, int block) { return rows - 16 * block < 16 ? rows - 16 * block : 16; }

#include "backend/cpu/matmul_amx_wide.inl"

// ---- scales, of weights or activations, for every 32 k: a tile of dots a group, then vectors

// Scale and min of a group, legacy and K types.
template <FileType T>
OP void group_scale(const Bytes* tile, int64_t g, F& scale, F& min) {
  constexpr int n = pack_info(T).super_groups;
  Scales<T> scales;
  scales.at = tile + g / n * pack_info(T).super_bytes;
  scales.c0 = 0;
  scales.start();
  scales.get(static_cast<int>(g % n), 0, scale, min);
}

// The dots [2 tiles, 16, 16] of a group by their scales to acc [2, 16, 16]. words: of the chunk, for the
// first row.
template <FileType T, bool Floats, class Rows>
OP void close_group(const float* dots, const Bytes* const (&tile)[2], int64_t g, const Bytes* words, Rows rows,
                    float* acc) {
  for (int i = 0; i < 2; ++i, dots += 256, acc += 256) {
    F scale, min;
    group_scale<T>(tile[i], g, scale, min);
#pragma GCC unroll 4
    for (int r = 0; r < rows.value; ++r) {
      F v = load_float(reinterpret_cast<const Bytes*>(acc + 16 * r));
      const Bytes* dot = reinterpret_cast<const Bytes*>(dots + 16 * r);
      const Bytes* word = words + 4 * r;
      if constexpr (Floats)
        v = fma(load_float(dot), scale, v);
      else
        v = fma(to_float(load_int(dot)), mul(scale, broadcast(word)), v);
      if constexpr (pack_info(T).has_min) v = fma(min, broadcast(word + (Floats ? 0 : 4 * rows.value)), v);
      store(acc + 16 * r, v);
    }
  }
}
// int8, types with groups of their own: parts [2, 16, 16] and sums [16] go on from group to group.
template <FileType T, class Rows>
OP void close_share(const float* dots, const Bytes* const (&tile)[2], int64_t g, const Bytes* words, const Span& span,
                    Rows rows, float* parts, float* sums, float* acc) {
  constexpr PackInfo f = pack_info(T);
  const int64_t share = g / span.share;
  const bool opens = g % span.share == 0, closes = g + 1 == span.groups || (g + 1) % span.share == 0;
  if constexpr (f.has_min)
    for (int r = 0; r < rows.value; ++r) sums[r] = (opens ? 0 : sums[r]) + float_at(words + 4 * (rows.value + r));
  for (int i = 0; i < 2; ++i, dots += 256, parts += 256, acc += 256) {
    const Bytes* scales = tile[i] + share * f.super_bytes;
    const F d = load_float(scales), m = load_float(scales + (f.has_min ? 64 : 0));
#pragma GCC unroll 4
    for (int r = 0; r < rows.value; ++r) {
      const F dot = to_float(load_int(reinterpret_cast<const Bytes*>(dots + 16 * r)));
      const F part = fma(dot, broadcast(words + 4 * r),
                         opens ? zero() : load_float(reinterpret_cast<const Bytes*>(parts + 16 * r)));
      if (!closes) {
        store(parts + 16 * r, part);
      } else {
        F v = fma(part, d, load_float(reinterpret_cast<const Bytes*>(acc + 16 * r)));
        if constexpr (f.has_min) v = fma(set_float(sums[r]), m, v);
        store(acc + 16 * r, v);
      }
    }
  }
}

struct AnyRows {
  int value;
};

template <FileType T, bool Floats>
void by_groups(const Bytes* tile0, const Bytes* tile1, const Bytes* act, int64_t act_row_bytes, const Span& span,
               int rows, float* c) {
  constexpr PackInfo f = pack_info(T);
  constexpr int depth = Floats ? 64 : 32;  // bytes of a row's group
  constexpr int size = Floats ? 1024 : 512, stretch = 8;
  alignas(64) Bytes weights[2 * stretch * size];
  alignas(64) float dots[2 * 512];
  alignas(64) float parts[f.grouped ? 32 * many_rows : 16];
  float sums[f.grouped ? many_rows : 1];  // [blocks, 16]
  const Bytes* const tile[2] = {tile0, tile1};
  const int64_t codes_at = scale_bytes(T, span);
  const int blocks = (rows + 15) / 16;
  for (int i = 0; i < blocks * 32; ++i) store(c + 16 * i, zero());
  Shape shape;
  for (int64_t begin = 0; begin < span.groups; begin += stretch) {
    const int n = static_cast<int>(begin + stretch < span.groups ? stretch : span.groups - begin);
    for (int q = 0; q < n; ++q)
      for (int i = 0; i < 2; ++i) {
        const Bytes* code = tile[i] + codes_at + (begin + q) * f.code_bytes;
        fetch_codes<T>(code);
        if constexpr (Floats)
          expand_bf16<T>(code, weights + (i * stretch + q) * size);
        else
          expand_bytes<T>(code, weights + (i * stretch + q) * size);
      }
    Ahead ahead(tile, codes_at, (begin + n) * f.code_bytes, span.groups * f.code_bytes,
                blocks <= 2 ? 0 : n * f.code_bytes, blocks * n);
    for (int b = 0; b < blocks; ++b) {
      const int here = rows_of(rows, b);
      const Bytes* block = act + 16 * b * act_row_bytes;
      shape.set<depth>(here, here);
      // A group's dots are scaled while the products of the next are on their way.
      const auto close = [&](auto r, int q) __attribute__((always_inline)) {
        const int64_t g = begin + q;
        const Bytes* words = Floats ? block + (64 * span.groups + 4 * g) * r.value
                                    : block + (g * int8_chunk + 32) * r.value;
        const float* from = dots + q % 2 * 512;
        if constexpr (f.grouped)
          close_share<T>(from, tile, g, words, span, r, parts + 512 * b, sums + 16 * b, c + 512 * b);
        else
          close_group<T, Floats>(from, tile, g, words, r, c + 512 * b);
      };
      const auto all = [&](auto r) __attribute__((always_inline)) {
        const auto group = [&](int q, auto odd) __attribute__((always_inline)) {
          constexpr int sum = decltype(odd)::value * 2, a = 4 + decltype(odd)::value;
          ahead.step();
          tile_load<a>(block + (begin + q) * (Floats ? 64 : int8_chunk) * r.value, depth);
          tile_load<6>(weights + q * size, 64);
          tile_zero<sum>(), tile_zero<sum + 1>();
          if constexpr (Floats)
            tile_bf16<sum, a, 6>();
          else
            multiply_bytes<T, sum, a, 6>();
          tile_load<7>(weights + (stretch + q) * size, 64);
          if constexpr (Floats)
            tile_bf16<sum + 1, a, 7>();
          else
            multiply_bytes<T, sum + 1, a, 7>();
          tile_store<sum>(dots + sum * 256), tile_store<sum + 1>(dots + sum * 256 + 256);
          if (q > 0) close(r, q - 1);
        };
        for (int q = 0; q < n; ++q) {
          if (q % 2 == 0)
            group(q, Index<0>{});
          else
            group(q, Index<1>{});
        }
        close(r, n - 1);
      };
      if (here == 16)
        all(Index<16>{});
      else
        all(AnyRows{here});
    }
  }
  tile_release();
}

// ---- activations of a8: layout in matmul.h

template <bool Sums>
void prepare_a8_tiles(const float* x, int64_t k, int64_t groups, int rows, int r, Bytes* block) {
  alignas(64) float buffer[32];
  const auto group = [&](int64_t g) __attribute__((always_inline)) {
    return reinterpret_cast<const Bytes*>(group_of(x, k, g, buffer));
  };
  I largest = zero_int();
  for (int64_t g = 0; g < groups; ++g) largest = larger(largest, group(g));
  const Int8Scale own(largest);
  Bytes* scale = block + 32 * rows * groups;
  __builtin_memcpy(scale + 4 * r, &own.scale, 4);
  [[maybe_unused]] Bytes* sum = scale + 4 * rows + 4 * r * groups;
  for (int64_t g = 0; g < groups; ++g) {
    const Bytes* v = group(g);
    I q0 = zero_int(), q1 = q0;
    if (own.inverse != 0.0f) {
      q0 = round_to_int(mul(load_float(v), set_float(own.inverse)));
      q1 = round_to_int(mul(load_float(v + 64), set_float(own.inverse)));
    }
    Bytes* to = block + g / 2 * 64 * rows + (g + 1 == groups && g % 2 == 0 ? 32 * r : 64 * r + g % 2 * 32);
    store_bytes(to, q0);
    store_bytes(to + 16, q1);
    if constexpr (Sums) {
      const int32_t s = reduce_add(add_int(q0, q1));
      __builtin_memcpy(sum + 4 * g, &s, 4);
    }
  }
}

// bf16[groups][R][32] in the order of matmul.h, then the groups' sums [groups][R].
template <bool Sums>
void prepare_bf16_tiles(const float* x, int64_t k, int64_t groups, int rows, int r, Bytes* block) {
  alignas(64) float buffer[32];
  for (int64_t g = 0; g < groups; ++g) {
    const Bytes* v = reinterpret_cast<const Bytes*>(group_of(x, k, g, buffer));
    float sum[2];
    for (int h = 0; h < 2; ++h)
      sum[h] = store_bf16(load_float(v + 64 * h), block + (g * rows + r) * 64 + 32 * h);
    if constexpr (!Sums) continue;
    const float both = sum[0] + sum[1];
    __builtin_memcpy(block + 64 * rows * groups + 4 * (g * rows + r), &both, 4);
  }
}

using enum FileType;
template <FileType T>
constexpr ManyFn ints = by_groups<T, false>;
template <FileType T>
constexpr ManyFn group_floats = by_groups<T, true>;
template <FileType T>
constexpr ManyFn wide_ints = wide<WideInts<T>>;
template <FileType T>
constexpr ManyFn wide_floats = wide<WideFloats<T>>;

}  // namespace

constexpr AmxKernels kernels = {
    {prepare_a8_tiles<false>, prepare_a8_tiles<true>}, {prepare_bf16_tiles<false>, prepare_bf16_tiles<true>},
    {nullptr, nullptr, nullptr, ints<q4_0>, ints<q4_1>, ints<q5_0>, ints<q5_1>, ints<q8_0>, nullptr, nullptr,
     ints<q4_k>, ints<q5_k>, nullptr, ints<iq4_nl>, nullptr, ints<w4>, ints<w4z>, ints<w8>, ints<w8z>},
    {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
     nullptr, nullptr, nullptr, wide_ints<w4>, wide_ints<w4z>, wide_ints<w8>, wide_ints<w8z>},
    {floats, floats, floats, group_floats<q4_0>, group_floats<q4_1>, group_floats<q5_0>, group_floats<q5_1>,
     group_floats<q8_0>, nullptr, nullptr, group_floats<q4_k>, group_floats<q5_k>, nullptr, group_floats<iq4_nl>,
     wide_floats<f8>, wide_floats<w4>, wide_floats<w4z>, wide_floats<w8>, wide_floats<w8z>}};

}  // namespace orlop::cpu::AMX_NAMESPACE
