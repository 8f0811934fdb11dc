// Linear layers with SVE vectors of any length, a column a dword: a tile of 16 columns is 4 vectors of
// 128 bits, 2 of 256, one of 512 or more (of which 16 lanes are used). Layouts and order: matmul.h.
// Activations are prepared, and outputs finished, by matmul_neon.cc.
// Vectors whose size the compiler does not know cannot stand in arrays or structs: up to four rows
// have variables of their own, and each() goes over them.
// No STL here: nothing compiled for an ISA may be emitted for others to link to.
#include <arm_sve.h>

#include "backend/cpu/matmul_arm.h"

namespace orlop::cpu::sve {
namespace {

#define OP [[gnu::always_inline]] inline
using I = svuint32_t;
using S = svint32_t;
using F = svfloat32_t;

template <int N>
struct Index {
  static constexpr int value = N;
};
template <int N, int End, class Fn>
OP void static_for(Fn&& f) {
  if constexpr (N < End) {
    f(Index<N>{});
    static_for<N + 1, End>(static_cast<Fn&&>(f));
  }
}
// fn(row, its variables)
template <int N, class V, class Fn>
OP void each(const Fn& fn, V& a, V& b, V& c, V& d) {
  fn(Index<0>{}, a);
  if constexpr (N > 1) fn(Index<1>{}, b);
  if constexpr (N > 2) {
    fn(Index<2>{}, c);
    fn(Index<3>{}, d);
  }
}
template <int N, class V, class W, class Fn>
OP void each(const Fn& fn, V& a, V& b, V& c, V& d, W& e, W& f, W& g, W& h) {
  fn(Index<0>{}, a, e);
  if constexpr (N > 1) fn(Index<1>{}, b, f);
  if constexpr (N > 2) {
    fn(Index<2>{}, c, g);
    fn(Index<3>{}, d, h);
  }
}

OP float float_at(const unsigned char* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return v;
}
OP int32_t int_at(const unsigned char* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}
OP I load(svbool_t pg, const unsigned char* p) {
  return svld1_u32(pg, reinterpret_cast<const uint32_t*>(p));
}
OP F load_float(svbool_t pg, const unsigned char* p) {
  return svld1_f32(pg, reinterpret_cast<const float*>(p));
}
OP F load_f16(svbool_t pg, const unsigned char* p) {
  const I bits = svld1uh_u32(pg, reinterpret_cast<const uint16_t*>(p));
  return svcvt_f32_f16_x(pg, svreinterpret_f16_u32(bits));
}
// z + x * y, rounded once
OP F fma(svbool_t pg, F x, F y, F z) { return svmla_f32_x(pg, z, x, y); }

// ---- weights

// Bytes k = 4 J .. 4 J + 3 of every column from c0 on: unsigned codes.
template <FileType T, int J>
OP svuint8_t codes(svbool_t pg, const unsigned char* p, int c0) {
  constexpr PackInfo f = pack_info(T);
  const svbool_t all = svptrue_b8();
  const unsigned char* low = p + (f.high_bits == 1 ? 64 : f.high_bits == 2 ? 128 : 0) + 4 * c0;
  constexpr int per_byte = 8 / f.low_bits;
  svuint8_t v = svreinterpret_u8_u32(load(pg, low + 64 * (J / per_byte)));
  if constexpr (f.low_bits == 4) {
    if constexpr (J % 2 == 1)
      v = svlsr_n_u8_x(all, v, 4);
    else
      v = svand_n_u8_x(all, v, 15);
    if constexpr (f.codebook) {  // ggml's iq4_nl codebook + 128
      static constexpr uint8_t values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                             129, 141, 153, 166, 181, 197, 217, 241};
      v = svtbl_u8(svld1rq_u8(all, values), v);
    }
  } else if constexpr (f.low_bits == 2) {
    if constexpr (J % 4 != 0) v = svlsr_n_u8_x(all, v, 2 * (J % 4));
    v = svand_n_u8_x(all, v, 3);
  }
  if constexpr (f.high_bits == 1) {
    // The plane is what a predicate of bytes looks like in memory.
    const svbool_t on = *reinterpret_cast<const svbool_t*>(p + 8 * J + c0 / 2);
    v = svorr_n_u8_m(on, v, 1 << f.low_bits);
  } else if constexpr (f.high_bits == 2) {
    svuint8_t h = svreinterpret_u8_u32(load(pg, p + 64 * (J / 4) + 4 * c0));
    constexpr int s = J % 4;
    if constexpr (s < 2) h = svlsl_n_u8_x(all, h, 4 - 2 * s);
    if constexpr (s == 3) h = svlsr_n_u8_x(all, h, 2);
    v = svorr_u8_x(all, v, svand_n_u8_x(all, h, 0x30));
  }
  return v;
}

template <FileType T>
constexpr bool eight_bits = pack_info(T).low_bits == 8 || T == FileType::iq4_nl;
// As SDOT takes them: codes of 8 bits less 128.
template <FileType T, int J>
OP svint8_t signed_codes(svbool_t pg, const unsigned char* p, int c0) {
  svuint8_t v = codes<T, J>(pg, p, c0);
  if constexpr (eight_bits<T>) v = sveor_n_u8_x(svptrue_b8(), v, 128);
  return svreinterpret_s8_u8(v);
}
// Where such a dot starts: at -zero * sum, or what was taken off codes of 8 bits. slots: the words of a
// chunk after the row's codes, for one row of `rows`.
template <FileType T>
OP int32_t start_dot(const unsigned char* slots, int rows, int half) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (eight_bits<T>) return f.zero == 128 ? 0 : -int_at(slots + 4 * 7 * rows);
  if constexpr (f.zero == 0) return 0;
  if constexpr (f.halves == 2) return f.zero * int_at(slots + 4 * rows * (5 + half));
  return f.zero / 8 * int_at(slots + 4 * rows * 2);
}

// Scale and min of half h of group q under the scales at `at`.
template <FileType T>
OP F scale_of(svbool_t pg, const unsigned char* at, int q, int h, int c0) {
  constexpr PackInfo f = pack_info(T);
  constexpr int header = f.has_min ? 64 : 32;
  if constexpr (f.grouped) return load_float(pg, at + 4 * c0);
  const F d = load_f16(pg, at + 2 * c0);
  if constexpr (!f.sub) return d;
  const unsigned char* sub = at + header + (f.super_bytes - header) / 8 * q + 16 * h + c0;
  if constexpr (T == FileType::q2_k)
    return svmul_f32_x(pg, d, svcvt_f32_u32_x(pg, svand_n_u32_x(pg, svld1ub_u32(pg, sub), 15)));
  return svmul_f32_x(
      pg, d, svcvt_f32_s32_x(pg, svld1sb_s32(pg, reinterpret_cast<const int8_t*>(sub))));
}
template <FileType T>
OP F min_of(svbool_t pg, const unsigned char* at, int q, int h, int c0) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (f.grouped) return load_float(pg, at + 64 + 4 * c0);
  const F m = load_f16(pg, at + 32 + 2 * c0);
  if constexpr (!f.sub) return m;
  const unsigned char* sub = at + 64 + (f.super_bytes - 64) / 8 * q + 16 * h + c0;
  if constexpr (T == FileType::q2_k)
    return svneg_f32_x(
        pg, svmul_f32_x(pg, m, svcvt_f32_u32_x(pg, svlsr_n_u32_x(pg, svld1ub_u32(pg, sub), 4))));
  return svneg_f32_x(
      pg, svmul_f32_x(pg, m, svcvt_f32_s32_x(pg, svld1sb_s32(pg, reinterpret_cast<const int8_t*>(
                                                                     sub + 16 * f.halves)))));
}

// e4m3 codes, one a dword: see matmul_tile.inl.
OP F e4m3_to_float(svbool_t pg, I code) {
  const I magnitude = svand_n_u32_x(pg, code, 0x7f);
  const I sign = svlsl_n_u32_x(pg, svand_n_u32_x(pg, code, 0x80), 24);
  const F normal =
      svmul_n_f32_x(pg, svreinterpret_f32_u32(svlsl_n_u32_x(pg, magnitude, 20)), 0x1p120f);
  const F value = svsel_f32(svcmpeq_n_u32(pg, magnitude, 0x7f), svdup_n_f32(__builtin_nanf("")), normal);
  return svreinterpret_f32_u32(svorr_u32_x(pg, svreinterpret_u32_f32(value), sign));
}

// Walks what lies under one scale after the other.
template <FileType T>
struct Walk {
  static constexpr PackInfo f = pack_info(T);
  const unsigned char* at;  // the scales in use
  const unsigned char* code;
  int64_t groups, share;  // groups of 32 left, and that share scales
  bool begun = false;

  OP Walk(const unsigned char* tile, const Span& span)
      : at(tile),
        code(tile + scale_bytes(T, span)),
        groups(span.groups),
        share(f.grouped ? span.share : f.super_groups) {}
  // Groups under the next scales, 0 at the end.
  OP int64_t next() {
    if (groups <= 0) return 0;
    if (begun) at += f.super_bytes;
    begun = true;
    const int64_t n = !f.grouped || share < groups ? share : groups;
    groups -= n;
    return n;
  }
};
template <FileType T, int R>
OP void prefetch(const unsigned char* code) {
  if constexpr (R <= 2)
    for (int i = 0; i < pack_info(T).code_bytes; i += 64) __builtin_prefetch(code + 2048 + i);
}

// ---- rows [R0, R0 + N) of a block of R times the columns from c0 on

// dots += codes [4 Begin, 4 End) of a group times those of the rows.
template <FileType T, int R0, int N, int Begin, int End>
OP void dots(svbool_t pg, const unsigned char* code, int c0, const unsigned char* act, S& a, S& b, S& c,
             S& d) {
  static_for<Begin / 4, End / 4>([&](auto quarter) __attribute__((always_inline)) {
    constexpr int j = 4 * decltype(quarter)::value;
    const svint8_t w0 = signed_codes<T, j>(pg, code, c0), w1 = signed_codes<T, j + 1>(pg, code, c0),
                   w2 = signed_codes<T, j + 2>(pg, code, c0), w3 = signed_codes<T, j + 3>(pg, code, c0);
    each<N>(
        [&](auto row, S& dot) __attribute__((always_inline)) {
          const svint8_t x = svld1rq_s8(svptrue_b8(), reinterpret_cast<const int8_t*>(
                                                          act + 32 * (R0 + decltype(row)::value) + 4 * j));
          dot = svdot_lane_s32(dot, w0, x, 0);
          dot = svdot_lane_s32(dot, w1, x, 1);
          dot = svdot_lane_s32(dot, w2, x, 2);
          dot = svdot_lane_s32(dot, w3, x, 3);
        },
        a, b, c, d);
  });
}

template <FileType T, int R, int R0, int N>
OP void int8_part(const unsigned char* tile, int c0, const unsigned char* act, const Span& span,
                  float* out) {
  constexpr PackInfo f = pack_info(T);
  const svbool_t pg = svwhilelt_b32_s32(c0, 16);
  Walk<T> walk(tile, span);
  F acc0 = svdup_n_f32(0), acc1 = acc0, acc2 = acc0, acc3 = acc0;
  while (const int64_t n = walk.next()) {
    F part0 = svdup_n_f32(0), part1 = part0, part2 = part0, part3 = part0;
    float sums[N] = {};
    for (int q = 0; q < n; ++q, act += R * int8_chunk) {
      prefetch<T, R>(walk.code);
      const unsigned char* words = act + 32 * R + 4 * R0;
      static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
        constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
        constexpr int sum_slot = f.halves == 2 ? 3 + h : 1;
        S dot0 = svdup_n_s32(0), dot1 = dot0, dot2 = dot0, dot3 = dot0;
        each<N>(
            [&](auto row, S& dot) __attribute__((always_inline)) {
              dot = svdup_n_s32(start_dot<T>(words + 4 * decltype(row)::value, R, h));
            },
            dot0, dot1, dot2, dot3);
        dots<T, R0, N, h * per_half, (h + 1) * per_half>(pg, walk.code, c0, act, dot0, dot1, dot2, dot3);
        if constexpr (f.grouped) {
          each<N>(
              [&](auto row, S& dot, F& part) __attribute__((always_inline)) {
                constexpr int r = decltype(row)::value;
                part = fma(pg, svcvt_f32_s32_x(pg, dot), svdup_n_f32(float_at(words + 4 * r)), part);
                if constexpr (f.has_min) sums[r] += float_at(words + 4 * R * sum_slot + 4 * r);
              },
              dot0, dot1, dot2, dot3, part0, part1, part2, part3);
        } else {
          const F scale = scale_of<T>(pg, walk.at, q, h, c0);
          each<N>(
              [&](auto row, S& dot, F& acc) __attribute__((always_inline)) {
                const unsigned char* word = words + 4 * decltype(row)::value;
                acc = fma(pg, svcvt_f32_s32_x(pg, dot), svmul_n_f32_x(pg, scale, float_at(word)), acc);
              },
              dot0, dot1, dot2, dot3, acc0, acc1, acc2, acc3);
          if constexpr (f.has_min) {
            const F min = min_of<T>(pg, walk.at, q, h, c0);
            each<N>(
                [&](auto row, F& acc) __attribute__((always_inline)) {
                  acc = svmla_n_f32_x(
                      pg, acc, min, float_at(words + 4 * R * sum_slot + 4 * decltype(row)::value));
                },
                acc0, acc1, acc2, acc3);
          }
        }
      });
      walk.code += f.code_bytes;
    }
    if constexpr (f.grouped) {
      const F scale = scale_of<T>(pg, walk.at, 0, 0, c0);
      each<N>([&](auto, F& part, F& acc)
                  __attribute__((always_inline)) { acc = fma(pg, part, scale, acc); },
              part0, part1, part2, part3, acc0, acc1, acc2, acc3);
      if constexpr (f.has_min) {
        const F min = min_of<T>(pg, walk.at, 0, 0, c0);
        each<N>([&](auto row, F& acc)
                    __attribute__((always_inline)) {
                      acc = svmla_n_f32_x(pg, acc, min, sums[decltype(row)::value]);
                    },
                acc0, acc1, acc2, acc3);
      }
    }
  }
  each<N>([&](auto row, F& acc)
              __attribute__((always_inline)) { svst1_f32(pg, out + 16 * decltype(row)::value, acc); },
          acc0, acc1, acc2, acc3);
}

template <FileType T, int R, int R0, int N>
OP void a8_part(const unsigned char* tile, int c0, const unsigned char* act, const Span& span, float* out) {
  constexpr PackInfo f = pack_info(T);
  const svbool_t pg = svwhilelt_b32_s32(c0, 16);
  const unsigned char* a_scale = act + 32 * R + 4 * R0;  // the same in every chunk
  Walk<T> walk(tile, span);
  F acc0 = svdup_n_f32(0), acc1 = acc0, acc2 = acc0, acc3 = acc0;
  while (const int64_t n = walk.next()) {
    S dot0 = svdup_n_s32(0), dot1 = dot0, dot2 = dot0, dot3 = dot0;
    int32_t sums[N] = {};  // -8 times the sums of activations
    for (int64_t q = 0; q < n; ++q, act += R * int8_chunk) {
      prefetch<T, R>(walk.code);
      dots<T, R0, N, 0, 8>(pg, walk.code, c0, act, dot0, dot1, dot2, dot3);
      for (int r = 0; r < N; ++r) sums[r] += int_at(act + 32 * R + 4 * (2 * R + R0 + r));
      walk.code += f.code_bytes;
    }
    const F scale = scale_of<T>(pg, walk.at, 0, 0, c0);
    each<N>(
        [&](auto row, S& dot, F& acc) __attribute__((always_inline)) {
          // Codes of 8 bits lack 128 times the sum; then the zero point.
          constexpr int times = f.zero / 8 - (eight_bits<T> ? 16 : 0);
          const S whole = svadd_n_s32_x(pg, dot, times * sums[decltype(row)::value]);
          acc = fma(pg, svcvt_f32_s32_x(pg, whole), scale, acc);
        },
        dot0, dot1, dot2, dot3, acc0, acc1, acc2, acc3);
    if constexpr (f.has_min) {
      const F min = min_of<T>(pg, walk.at, 0, 0, c0);
      each<N>(
          [&](auto row, F& acc) __attribute__((always_inline)) {
            acc = svmla_n_f32_x(pg, acc, min, static_cast<float>(sums[decltype(row)::value] / -8));
          },
          acc0, acc1, acc2, acc3);
    }
  }
  each<N>(
      [&](auto row, F& acc) __attribute__((always_inline)) {
        constexpr int r = decltype(row)::value;
        svst1_f32(pg, out + 16 * r, svmul_n_f32_x(pg, acc, float_at(a_scale + 4 * r)));
      },
      acc0, acc1, acc2, acc3);
}

template <FileType T, int R, int R0, int N>
OP void fp32_part(const unsigned char* tile, int c0, const unsigned char* act, const Span& span,
                  float* out) {
  constexpr PackInfo f = pack_info(T);
  const svbool_t pg = svwhilelt_b32_s32(c0, 16);
  Walk<T> walk(tile, span);
  F acc0 = svdup_n_f32(0), acc1 = acc0, acc2 = acc0, acc3 = acc0;
  // Weights k .. k + 3 of every column.
  const auto step = [&](F w0, F w1, F w2, F w3, int k) __attribute__((always_inline)) {
    each<N>(
        [&](auto row, F& acc) __attribute__((always_inline)) {
          const F x = svld1rq_f32(svptrue_b32(), reinterpret_cast<const float*>(
                                                     act + 128 * (R0 + decltype(row)::value) + 4 * k));
          acc = svmla_lane_f32(acc, w0, x, 0);
          acc = svmla_lane_f32(acc, w1, x, 1);
          acc = svmla_lane_f32(acc, w2, x, 2);
          acc = svmla_lane_f32(acc, w3, x, 3);
        },
        acc0, acc1, acc2, acc3);
  };
  if constexpr (f.low_bits == 0) {
    const unsigned char* code = walk.code;
    for (int64_t g = 0; g < span.groups; ++g, act += R * fp32_chunk, code += f.code_bytes) {
      prefetch<T, R>(code);
      for (int k = 0; k < 32; k += 4) {
        if constexpr (T == FileType::bf16) {
          const I even = load(pg, code + 32 * k + 4 * c0), odd = load(pg, code + 32 * k + 64 + 4 * c0);
          const auto low = [&](I v) __attribute__((always_inline)) {
            return svreinterpret_f32_u32(svlsl_n_u32_x(pg, v, 16));
          };
          const auto high = [&](I v) __attribute__((always_inline)) {
            return svreinterpret_f32_u32(svand_n_u32_x(pg, v, 0xffff0000u));
          };
          step(low(even), low(odd), high(even), high(odd), k);
        } else {
          const auto at = [&](int i) __attribute__((always_inline)) {
            return T == FileType::f32 ? load_float(pg, code + 64 * i + 4 * c0)
                                      : load_f16(pg, code + 32 * i + 2 * c0);
          };
          step(at(k), at(k + 1), at(k + 2), at(k + 3), k);
        }
      }
    }
  } else {
    while (const int64_t n = walk.next()) {
      for (int q = 0; q < n; ++q, act += R * fp32_chunk) {
        prefetch<T, R>(walk.code);
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          const F scale = scale_of<T>(pg, walk.at, q, h, c0);
          F min = scale;
          if constexpr (f.has_min) min = min_of<T>(pg, walk.at, q, h, c0);
          const auto value = [&](I four, auto ii) __attribute__((always_inline)) {
            constexpr int i = decltype(ii)::value;
            if constexpr (i > 0) four = svlsr_n_u32_x(pg, four, 8 * i);
            if constexpr (i < 3) four = svand_n_u32_x(pg, four, 255);
            if constexpr (T == FileType::f8) {
              return svmul_f32_x(pg, e4m3_to_float(pg, four), scale);
            } else {
              const F code = svcvt_f32_s32_x(pg, svsub_n_s32_x(pg, svreinterpret_s32_u32(four), f.zero));
              if constexpr (f.has_min) return fma(pg, code, scale, min);
              return svmul_f32_x(pg, code, scale);
            }
          };
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            const I four = svreinterpret_u32_u8(codes<T, j>(pg, walk.code, c0));
            step(value(four, Index<0>{}), value(four, Index<1>{}), value(four, Index<2>{}),
                 value(four, Index<3>{}), 4 * j);
          });
        });
        walk.code += f.code_bytes;
      }
    }
  }
  each<N>([&](auto row, F& acc)
              __attribute__((always_inline)) { svst1_f32(pg, out + 16 * decltype(row)::value, acc); },
          acc0, acc1, acc2, acc3);
}

// ---- tiles

enum class Kind { int8, a8, fp32 };

template <Kind kind, FileType T, int R>
void tile(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
          const Span& span, float* c) {
  constexpr int n = R < 4 ? R : 4;
  const int step = static_cast<int>(svcntw());
  for (int t = 0; t < (tile0 == tile1 ? 1 : 2); ++t)
    for (int c0 = 0; c0 < 16; c0 += step)
      static_for<0, R / n>([&](auto block) __attribute__((always_inline)) {
        constexpr int r0 = decltype(block)::value * n;
        float* out = c + 16 * R * t + 16 * r0 + c0;
        const unsigned char* from = t == 0 ? tile0 : tile1;
        if constexpr (kind == Kind::int8)
          int8_part<T, R, r0, n>(from, c0, act, span, out);
        else if constexpr (kind == Kind::a8)
          a8_part<T, R, r0, n>(from, c0, act, span, out);
        else
          fp32_part<T, R, r0, n>(from, c0, act, span, out);
      });
}
template <Kind kind, FileType T>
constexpr TileFns fns = {
    {tile<kind, T, 1>, tile<kind, T, 2>, tile<kind, T, 4>, tile<kind, T, 8>, nullptr}};
template <FileType T>
constexpr TileFns int8_fns = fns<Kind::int8, T>;
template <FileType T>
constexpr TileFns a8_fns = fns<Kind::a8, T>;
template <FileType T>
constexpr TileFns fp32_fns = fns<Kind::fp32, T>;

constexpr PrepareFn prepare_int8 = nullptr, prepare_a8 = nullptr;  // NEON's
template <bool Round>
constexpr PrepareFn prepare_floats = nullptr;
#include "backend/cpu/matmul_tables.inl"

}  // namespace

constexpr MatmulIsa matmul_isa = {compute_int8, compute_a8, compute_floats<false>,
                                  compute_floats<true>, nullptr};

}  // namespace orlop::cpu::sve
