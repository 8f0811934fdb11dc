// bf16 compute with ARMv8.6's BFMMLA: [2 columns, 4 k] times [4 k, 2 rows], of each output two exact
// products added to a float32, then the next two; every addition rounds to odd, denormals count as
// zero. A row alone goes the same way. Everything else comes from matmul_neon.cc.
// Prepared activations, per group: bf16[R][32]; f32 sum[R], sums of the halves [2][R], 4 R bytes unused.
// Order of operations: as told in matmul.h of bf16, but with one such chain where there are two dots.
// No STL here: nothing compiled for an ISA may be emitted for others to link to.
#include <arm_neon.h>

#include "backend/cpu/matmul_arm.h"

namespace orlop::cpu::i8mm {
namespace {

#include "backend/cpu/matmul_neon.inl"

// The upper halves of eight floats, which are bf16 exactly.
OP bfloat16x8_t upper_halves(float32x4_t low, float32x4_t high) {
  return vreinterpretq_bf16_u16(
      vuzp2q_u16(vreinterpretq_u16_f32(low), vreinterpretq_u16_f32(high)));
}
// A code, a dword each, less its zero point.
template <FileType T>
OP F code_value(I code) {
  if constexpr (T == FileType::f8)
    return e4m3_to_float(code);
  else
    return to_float(add_int(code, dwords(-pack_info(T).zero)));
}

// Weights 4 J .. 4 J + 3 of eight columns: [2 columns][4 k] each.
template <FileType T, int J>
OP void quads(const unsigned char* code, int c0, bfloat16x8_t (&w)[4]) {
  if constexpr (pack_info(T).low_bits == 0) {  // pairs (k0, k2) and (k1, k3)
    const I even = load_int(code + 128 * J + 4 * c0), odd = load_int(code + 128 * J + 64 + 4 * c0);
    w[0] = vreinterpretq_bf16_u16(vzip1q_u16(u16(even.a), u16(odd.a)));
    w[1] = vreinterpretq_bf16_u16(vzip2q_u16(u16(even.a), u16(odd.a)));
    w[2] = vreinterpretq_bf16_u16(vzip1q_u16(u16(even.b), u16(odd.b)));
    w[3] = vreinterpretq_bf16_u16(vzip2q_u16(u16(even.b), u16(odd.b)));
  } else {
    const I four = codes<T, J>(code, c0);
    const auto half = [](int32x4_t bytes, bfloat16x8_t& first, bfloat16x8_t& second) __attribute__((
                          always_inline)) {
      const uint16x8_t low = vmovl_u8(vget_low_u8(u8(bytes))), high = vmovl_high_u8(u8(bytes));
      const F a = code_value<T>({s32(vmovl_u16(vget_low_u16(low))), s32(vmovl_high_u16(low))});
      const F b = code_value<T>({s32(vmovl_u16(vget_low_u16(high))), s32(vmovl_high_u16(high))});
      first = upper_halves(a.a, a.b);
      second = upper_halves(b.a, b.b);
    };
    half(four.a, w[0], w[1]);
    half(four.b, w[2], w[3]);
  }
}

template <FileType T, int R, int R0, int N, int V>
OP void bf16_part(const Columns* columns, const unsigned char* act, const Span& span) {
  constexpr PackInfo f = pack_info(T);
  constexpr int pairs = (N + 1) / 2;
  Part<T, R, R0, N, V> p(columns, span);
  // Of columns c, c + 1: (c, first row), (c, second), (c + 1, first), (c + 1, second).
  float32x4_t sum[V][pairs][4];
  const auto clear = [&]() __attribute__((always_inline)) {
    for (int v = 0; v < V; ++v)
      for (int q = 0; q < pairs; ++q)
        for (int c = 0; c < 4; ++c) sum[v][q][c] = vdupq_n_f32(0);
  };
  const auto step = [&](auto jj) __attribute__((always_inline)) {
    constexpr int j = decltype(jj)::value;
    for (int v = 0; v < V; ++v) {
      bfloat16x8_t w[4];
      quads<T, j>(p.code[v], columns[v].c0, w);
      for (int q = 0; q < pairs; ++q) {
        const auto* rows = reinterpret_cast<const uint16_t*>(act + 64 * (R0 + 2 * q) + 8 * j);
        const bfloat16x8_t x =
            vreinterpretq_bf16_u16(vcombine_u16(vld1_u16(rows), vld1_u16(rows + (N == 1 ? 0 : 32))));
        for (int c = 0; c < 4; ++c) sum[v][q][c] = vbfmmlaq_f32(sum[v][q][c], w[c], x);
      }
    }
  };
  const auto row_sum = [&](int v, int r) __attribute__((always_inline)) -> F {
    const float32x4_t(&s)[4] = sum[v][r / 2];
    if (r % 2 == 0) return {vuzp1q_f32(s[0], s[1]), vuzp1q_f32(s[2], s[3])};
    return {vuzp2q_f32(s[0], s[1]), vuzp2q_f32(s[2], s[3])};
  };
  clear();
  if constexpr (f.low_bits == 0) {
    for (int64_t g = 0; g < span.groups; ++g, act += R * bf16_chunk) {
      p.ahead();
      static_for<0, 8>(step);
      p.next_codes();
    }
    for (int v = 0; v < V; ++v)
      for (int r = 0; r < N; ++r) p.acc[v][r] = row_sum(v, r);
  } else {
    while (const int64_t n = p.next()) {
      float sums[N] = {};
      for (int q = 0; q < n; ++q, act += R * bf16_chunk) {
        p.ahead();
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          if constexpr (!f.grouped) clear();
          static_for<h * per_half, (h + 1) * per_half>(step);
          const unsigned char* words = act + 64 * R + 4 * R0 + (f.halves == 2 ? 4 * R * (1 + h) : 0);
          if constexpr (f.grouped) {
            if constexpr (f.has_min)
              for (int r = 0; r < N; ++r) sums[r] += float_at(words + 4 * r);
          } else {
            for (int v = 0; v < V; ++v) {
              F scale, min;
              p.scales[v].get(q, h, scale, min);
              for (int r = 0; r < N; ++r) {
                F& acc = p.acc[v][r];
                acc = fma(row_sum(v, r), scale, acc);
                if constexpr (f.has_min) acc = fma(min, broadcast(words + 4 * r), acc);
              }
            }
          }
        });
        p.next_codes();
      }
      if constexpr (f.grouped) {
        F whole[V][N];
        for (int v = 0; v < V; ++v)
          for (int r = 0; r < N; ++r) whole[v][r] = row_sum(v, r);
        p.close(whole, sums);
        clear();
      }
    }
  }
  p.finish();
}

template <FileType T, int R>
void tile_bf16(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               const Span& span, float* c) {
  constexpr int n = R < 4 ? R : 4, v = n == 4 ? 1 : 2;
  all_parts<R, n, v, 0>(tile0, tile1, c, [&](auto r0, const Columns* columns) {
    bf16_part<T, R, decltype(r0)::value, n, v>(columns, act, span);
  });
}

inline void prepare_bf16(const float* x, int64_t k, int64_t groups, int rows, int r,
                         unsigned char* block) {
  for (int64_t g = 0; g < groups; ++g) {
    alignas(64) float buffer[32];
    const unsigned char* v = reinterpret_cast<const unsigned char*>(group_of(x, k, g, buffer));
    unsigned char* chunk = block + g * rows * bf16_chunk;
    float* sums = reinterpret_cast<float*>(chunk + 64 * rows) + r;
    float sum[2];
    for (int h = 0; h < 2; ++h) {
      const I low = bf16_bits(load_float(v + 64 * h)), high = bf16_bits(load_float(v + 64 * h + 32));
      const F s = add(as_float(shift_left_dword<16>(low)), as_float(shift_left_dword<16>(high)));
      sum[h] = vaddvq_f32(vaddq_f32(s.a, s.b));
      unsigned char* to = chunk + 64 * r + 32 * h;
      vst1q_u8(to, vreinterpretq_u8_u16(vcombine_u16(vmovn_u32(u32(low.a)), vmovn_u32(u32(low.b)))));
      vst1q_u8(to + 16, vreinterpretq_u8_u16(vcombine_u16(vmovn_u32(u32(high.a)), vmovn_u32(u32(high.b)))));
    }
    sums[0] = sum[0] + sum[1];
    sums[rows] = sum[0];
    sums[2 * rows] = sum[1];
  }
}

template <FileType T>
constexpr TileFns bf16_fns = {
    {tile_bf16<T, 1>, tile_bf16<T, 2>, tile_bf16<T, 4>, tile_bf16<T, 8>, nullptr}};
using enum FileType;

}  // namespace

constexpr ComputeIsa matmul_bf16 = {
    prepare_bf16, bf16_chunk,
    {bf16_fns<bf16>, bf16_fns<bf16>, bf16_fns<bf16>, bf16_fns<q4_0>, bf16_fns<q4_1>, bf16_fns<q5_0>,
     bf16_fns<q5_1>, bf16_fns<q8_0>, bf16_fns<q2_k>, bf16_fns<q3_k>, bf16_fns<q4_k>, bf16_fns<q5_k>,
     bf16_fns<q6_k>, bf16_fns<iq4_nl>, bf16_fns<f8>, bf16_fns<w4>, bf16_fns<w4z>, bf16_fns<w8>,
     bf16_fns<w8z>}};

}  // namespace orlop::cpu::i8mm
