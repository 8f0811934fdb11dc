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

// ---- scales that span a whole tile of k or more: two blocks of rows times two tiles of columns

// a8: tiles of 64 k, or of 32 with zeros for the rest where a share has odd groups.
template <FileType T>
struct WideInts {
  static constexpr FileType type = T;
  static constexpr bool floats = false;
  OP static int width(int64_t g, int64_t end) { return g % 2 == 0 && g + 1 < end ? 2 : 1; }
  OP static void expand(const Bytes* code, int groups, Bytes* to) {
    fetch_codes<T>(code);
    expand_bytes<T>(code, to);
    if (groups == 2) {
      fetch_codes<T>(code + pack_info(T).code_bytes);
      expand_bytes<T>(code + pack_info(T).code_bytes, to + 512);
    } else {
      for (int i = 512; i < tile_size; i += 64) _mm512_store_si512(to + i, zero_int());
    }
  }
  // What a half tile reads past its own 32 meets zeros.
  OP static const Bytes* rows_at(const Bytes* block, int64_t g, int rows) {
    return block + g / 2 * 64 * rows + g % 2 * 32;
  }
  OP static int64_t stride(int64_t g, int64_t groups) { return g + 1 == groups && g % 2 == 0 ? 32 : 64; }
  template <int C, int A, int B>
  OP static void multiply() {
    multiply_bytes<T, C, A, B>();
  }
  OP static void sums(const Bytes* block, int rows, int64_t begin, int64_t end, int64_t groups, float* to) {
    const Bytes* from = block + 32 * rows * groups + 4 * rows;
    for (int r = 0; r < rows; ++r) {
      int32_t sum = 0;
      for (int64_t g = begin; g < end; ++g) sum += int_at(from + 4 * (r * groups + g));
      to[r] = static_cast<float>(sum);
    }
  }
  OP static const Bytes* last_scale(const Bytes* block, int rows, int64_t groups) {
    return block + 32 * rows * groups;
  }
};
template <FileType T>
struct WideFloats {
  static constexpr FileType type = T;
  static constexpr bool floats = true;
  OP static int width(int64_t, int64_t) { return 1; }
  OP static void expand(const Bytes* code, int, Bytes* to) {
    fetch_codes<T>(code);
    expand_bf16<T>(code, to);
  }
  OP static const Bytes* rows_at(const Bytes* block, int64_t g, int rows) { return block + g * 64 * rows; }
  OP static int64_t stride(int64_t, int64_t) { return 64; }
  template <int C, int A, int B>
  OP static void multiply() {
    tile_bf16<C, A, B>();
  }
  OP static void sums(const Bytes* block, int rows, int64_t begin, int64_t end, int64_t groups, float* to) {
    const Mask mask = first_lanes(rows);
    F sum = zero();
    for (int64_t g = begin; g < end; ++g)
      sum = add(sum, load_masked(reinterpret_cast<const float*>(block + (groups * 64 + g * 4) * rows), mask));
    store(to, sum);
  }
  OP static const Bytes* last_scale(const Bytes*, int, int64_t) { return nullptr; }
};

struct Step {
  int64_t group, end;  // end: of its share
  bool opens, closes;  // the share
};

// acc [rows, 16] += dots [rows, 16] of a share by its scale and min; then times a scale of the rows.
template <class K>
OP void close(const float* dots, const Bytes* scales, const float* sums, const Bytes* last, int rows, float* acc) {
  const F d = load_float(scales), m = load_float(scales + (pack_info(K::type).has_min ? 64 : 0));
  const auto all = [&](int n) __attribute__((always_inline)) {
    for (int r = 0; r < n; ++r) {
      const Bytes* dot = reinterpret_cast<const Bytes*>(dots + 16 * r);
      F v = load_float(reinterpret_cast<const Bytes*>(acc + 16 * r));
      v = fma(K::floats ? load_float(dot) : to_float(load_int(dot)), d, v);
      if constexpr (pack_info(K::type).has_min) v = fma(set_float(sums[r]), m, v);
      if (last) v = mul(v, broadcast(last + 4 * r));
      store(acc + 16 * r, v);
    }
  };
  if (rows == 16)
    all(16);
  else
    all(rows);
}

// Steps of a stretch: weights and rows come from the second-level cache, which is as fast here as the
// first one plus loads and stores of sums between shorter stretches.
constexpr int wide_steps = 32, wide_steps_few = 8;

// The weights of the next stretch, or of the next pair of tiles, which lies behind this one: some lines a
// step into the second-level cache.
struct Ahead {
  const Bytes* at[2];
  int lines;
  OP Ahead(const Bytes* const (&tile)[2], int64_t codes_at, int64_t next, int64_t end, int64_t bytes, int passes) {
    const int64_t pair = 2 * (tile[1] - tile[0]);
    for (int i = 0; i < 2; ++i) at[i] = next < end ? tile[i] + codes_at + next : tile[i] + pair + codes_at;
    lines = static_cast<int>((bytes / 64 + passes - 1) / passes);
  }
  OP void step() {
    for (int n = 0; n < lines; ++n)
      for (auto& p : at) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1), p += 64;
  }
};

// A stretch of steps for N blocks of rows. parts [N, 2, 16, 16]: dots of a share that goes on.
template <class K, int N>
OP void wide_stretch(const Step* step, int steps, const Bytes* weights, const Bytes* const (&tile)[2],
                     const Bytes* const (&block)[2], const int (&rows)[2], const Span& span, Ahead& ahead, float* parts,
                     float* c) {
  alignas(64) float dots[N * 512];
  const auto put = [](float* to) __attribute__((always_inline)) {
    tile_store<0>(to), tile_store<1>(to + 256);
    if constexpr (N == 2) tile_store<2>(to + 512), tile_store<3>(to + 768);
  };
  for (int s = 0; s < steps; ++s) {
    const Step& at = step[s];
    if (at.opens) {
      tile_zero<0>(), tile_zero<1>();
      if constexpr (N == 2) tile_zero<2>(), tile_zero<3>();
    } else if (s == 0) {
      tile_load<0>(parts, 64), tile_load<1>(parts + 256, 64);
      if constexpr (N == 2) tile_load<2>(parts + 512, 64), tile_load<3>(parts + 768, 64);
    }
    ahead.step();
    const int64_t stride = K::stride(at.group, span.groups);
    const Bytes* w = weights + s * tile_size;
    tile_load<4>(K::rows_at(block[0], at.group, rows[0]), stride);
    tile_load<6>(w, 64);
    tile_load<7>(w + wide_steps * tile_size, 64);
    K::template multiply<0, 4, 6>();
    K::template multiply<1, 4, 7>();
    if constexpr (N == 2) {
      tile_load<5>(K::rows_at(block[1], at.group, rows[1]), stride);
      K::template multiply<2, 5, 6>();
      K::template multiply<3, 5, 7>();
    }
    if (at.closes) {
      put(dots);
      const int64_t share = (at.end - 1) / span.share;
      for (int n = 0; n < N; ++n) {
        float sums[16];
        if constexpr (pack_info(K::type).has_min)
          K::sums(block[n], rows[n], share * span.share, at.end, span.groups, sums);
        const Bytes* last = at.end == span.groups ? K::last_scale(block[n], rows[n], span.groups) : nullptr;
        for (int i = 0; i < 2; ++i)
          close<K>(dots + 512 * n + 256 * i, tile[i] + share * pack_info(K::type).super_bytes, sums, last, rows[n],
                   c + 512 * n + 256 * i);
      }
    } else if (s == steps - 1) {
      put(parts);
    }
  }
}

// The next steps from group g on: at most `most`; their weights, and where they end.
template <class K>
OP int64_t plan(int64_t g, const Span& span, const Bytes* const (&tile)[2], int64_t codes_at, int most, Step* step,
                int& steps, Bytes* weights) {
  for (steps = 0; steps < most && g < span.groups; ++steps) {
    const int64_t begin = g / span.share * span.share;
    const int64_t end = begin + span.share < span.groups ? begin + span.share : span.groups;
    const int width = K::width(g, end);
    for (int i = 0; i < 2; ++i)
      K::expand(tile[i] + codes_at + g * pack_info(K::type).code_bytes, width,
                weights + (i * wide_steps + steps) * tile_size);
    step[steps] = {g, end, g == begin, g + width == end};
    g += width;
  }
  return g;
}

// Where every step is a share: a block of rows times two tiles of columns at a time, and the dots of a
// step are scaled while the products of the next are on their way.
template <class K>
OP void narrow_stretch(const Step* step, int steps, const Bytes* weights, const Bytes* const (&tile)[2],
                       const Bytes* block, int rows, const Span& span, Ahead& ahead, float* c) {
  alignas(64) float dots[2 * 512];
  const auto finish = [&](int s) __attribute__((always_inline)) {
    const int64_t g = step[s].group, end = step[s].end, share = g / span.share;
    alignas(64) float sums[16];
    if constexpr (pack_info(K::type).has_min) K::sums(block, rows, g, end, span.groups, sums);
    const Bytes* last = end == span.groups ? K::last_scale(block, rows, span.groups) : nullptr;
    for (int i = 0; i < 2; ++i)
      close<K>(dots + s % 2 * 512 + 256 * i, tile[i] + share * pack_info(K::type).super_bytes, sums, last, rows,
               c + 256 * i);
  };
  const auto start = [&](int s, auto odd) __attribute__((always_inline)) {
    constexpr int sum = decltype(odd)::value * 2, a = 4 + decltype(odd)::value;
    ahead.step();
    const Bytes* w = weights + s * tile_size;
    tile_load<a>(K::rows_at(block, step[s].group, rows), K::stride(step[s].group, span.groups));
    tile_load<6>(w, 64);
    tile_zero<sum>(), tile_zero<sum + 1>();
    K::template multiply<sum, a, 6>();
    tile_load<7>(w + wide_steps * tile_size, 64);
    K::template multiply<sum + 1, a, 7>();
    tile_store<sum>(dots + sum * 256), tile_store<sum + 1>(dots + sum * 256 + 256);
  };
  for (int s = 0; s < steps; ++s) {
    if (s % 2 == 0)
      start(s, Index<0>{});
    else
      start(s, Index<1>{});
    if (s > 0) finish(s - 1);
  }
  finish(steps - 1);
}

template <class K>
void wide(const Bytes* tile0, const Bytes* tile1, const Bytes* act, int64_t act_row_bytes, const Span& span, int rows,
          float* c) {
  constexpr int code_bytes = pack_info(K::type).code_bytes;
  alignas(64) Bytes weights[2 * wide_steps * tile_size];
  alignas(64) float parts[2 * 16 * many_rows];
  const Bytes* const tile[2] = {tile0, tile1};
  const int64_t codes_at = scale_bytes(K::type, span);
  const int blocks = (rows + 15) / 16;
  for (int i = 0; i < blocks * 32; ++i) store(c + 16 * i, zero());
  const bool narrow = span.share <= (K::floats ? 1 : 2);
  const int most = narrow || blocks <= 2 ? wide_steps_few : wide_steps, together = narrow ? 1 : 2;
  const int passes = (blocks + together - 1) / together;
  Shape shape;
  for (int64_t g = 0; g < span.groups;) {
    Step step[wide_steps];
    int steps;
    const int64_t end = plan<K>(g, span, tile, codes_at, most, step, steps, weights);
    Ahead ahead(tile, codes_at, end * code_bytes, span.groups * code_bytes, blocks <= 2 ? 0 : (end - g) * code_bytes,
                passes * steps);
    g = end;
    for (int b = 0; b < blocks; b += together) {
      const int here[2] = {rows_of(rows, b), together == 2 && b + 1 < blocks ? rows_of(rows, b + 1) : 0};
      const Bytes* const block[2] = {act + 16 * b * act_row_bytes, act + 16 * (b + 1) * act_row_bytes};
      float *part = parts + 512 * b, *to = c + 512 * b;
      shape.set<64>(here[0], here[1] ? here[1] : here[0]);
      if (narrow)
        narrow_stretch<K>(step, steps, weights, tile, block[0], here[0], span, ahead, to);
      else if (here[1])
        wide_stretch<K, 2>(step, steps, weights, tile, block, here, span, ahead, part, to);
      else
        wide_stretch<K, 1>(step, steps, weights, tile, block, here, span, ahead, part, to);
    }
  }
  tile_release();
}

// bf16 weights: the tiles of weights are as they lie, and the dots are the results.
template <int N>
OP void bf16_stretch(int64_t begin, int64_t end, const Bytes* const (&code)[2], const Bytes* const (&block)[2],
                     const int (&rows)[2], Ahead& ahead, float* c) {
  if (begin == 0) {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (N == 2) tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(c, 64), tile_load<1>(c + 256, 64);
    if constexpr (N == 2) tile_load<2>(c + 512, 64), tile_load<3>(c + 768, 64);
  }
  for (int64_t g = begin; g < end; ++g) {
    if (N == 1) {  // weights come from memory
      for (int i = 0; i < tile_size; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(code[0] + (g + 4) * tile_size + i), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(code[1] + (g + 4) * tile_size + i), _MM_HINT_T0);
      }
    }
    ahead.step();
    tile_load<4>(block[0] + g * 64 * rows[0], 64);
    tile_load<6>(code[0] + g * tile_size, 64);
    tile_load<7>(code[1] + g * tile_size, 64);
    tile_bf16<0, 4, 6>();
    tile_bf16<1, 4, 7>();
    if constexpr (N == 2) {
      tile_load<5>(block[1] + g * 64 * rows[1], 64);
      tile_bf16<2, 5, 6>();
      tile_bf16<3, 5, 7>();
    }
  }
  tile_store<0>(c), tile_store<1>(c + 256);
  if constexpr (N == 2) tile_store<2>(c + 512), tile_store<3>(c + 768);
}
void floats(const Bytes* tile0, const Bytes* tile1, const Bytes* act, int64_t act_row_bytes, const Span& span,
            int rows, float* c) {
  const Bytes* const code[2] = {tile0, tile1};
  const int blocks = (rows + 15) / 16;
  const int64_t stretch = blocks <= 2 ? span.groups : 2 * wide_steps;
  Shape shape;
  for (int64_t g = 0; g < span.groups; g += stretch) {
    const int64_t end = g + stretch < span.groups ? g + stretch : span.groups;
    const int64_t bytes = blocks <= 2 ? 0 : (end - g) * tile_size;
    Ahead ahead(code, 0, end * tile_size, span.groups * tile_size, bytes, static_cast<int>((blocks + 1) / 2 * (end - g)));
    for (int b = 0; b < blocks; b += 2) {
      const int here[2] = {rows_of(rows, b), b + 1 < blocks ? rows_of(rows, b + 1) : 0};
      const Bytes* const block[2] = {act + 16 * b * act_row_bytes, act + 16 * (b + 1) * act_row_bytes};
      shape.set<64>(here[0], here[1] ? here[1] : 1);
      if (here[1])
        bf16_stretch<2>(g, end, code, block, here, ahead, c + 512 * b);
      else
        bf16_stretch<1>(g, end, code, block, here, ahead, c + 512 * b);
    }
  }
  tile_release();
}

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
