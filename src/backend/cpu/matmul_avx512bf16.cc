// bf16 compute with AVX512-BF16's vdpbf16ps, which adds two exact products to a float32 (denormals
// count as zero). Everything else comes from matmul_avx512.cc.
// No STL here: nothing compiled with these flags may be emitted for others to link to.
// GCC 12 takes the undefined vectors inside its own AVX-512 intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "backend/cpu/matmul.h"

namespace orlop::cpu::avx512bf16 {
namespace {

#include "backend/cpu/matmul_avx512.inl"
#include "backend/cpu/matmul_bf16.inl"

OP F dp(F acc, I w, I a) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
}

template <FileType T, int R, int R0, int N, int V>
OP void bf16_part(const Columns* columns, const unsigned char* act, const Span& span) {
  constexpr PackInfo f = pack_info(T);
  Part<T, R, R0, N, V> p(columns, span);
  F dot[V][N], dot2[V][N];
  const auto clear = [&]() __attribute__((always_inline)) {
    for (int v = 0; v < V; ++v)
      for (int r = 0; r < N; ++r) dot[v][r] = dot2[v][r] = zero();
  };
  const auto step = [&](F (&to)[V][N], const I (&w)[V], int offset) __attribute__((always_inline)) {
    for (int r = 0; r < N; ++r) {
      const I a = broadcast_int(act + 64 * (R0 + r) + offset);
      for (int v = 0; v < V; ++v) to[v][r] = dp(to[v][r], w[v], a);
    }
  };
  clear();
  if constexpr (f.low_bits == 0) {
    for (int64_t g = 0; g < span.groups; ++g, act += R * bf16_chunk) {
      p.ahead();
      static_for<0, 16>([&](auto jj) __attribute__((always_inline)) {
        constexpr int j = decltype(jj)::value;
        I w[V];
        for (int v = 0; v < V; ++v) w[v] = load_int(p.code[v] + 64 * j);
        step(j % 2 == 0 ? dot : dot2, w, 4 * j);
      });
      p.next_codes();
    }
    for (int v = 0; v < V; ++v)
      for (int r = 0; r < N; ++r) p.acc[v][r] = add(dot[v][r], dot2[v][r]);
  } else {
    const unsigned char* t = reinterpret_cast<const unsigned char*>(table<T>.v);
    const I low_table = load_int(t), high_table = load_int(t + 64);
    while (const int64_t n = p.next()) {
      float sums[N] = {};
      for (int q = 0; q < n; ++q, act += R * bf16_chunk) {
        p.ahead();
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          if constexpr (!f.grouped) clear();
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            I even[V], odd[V];
            for (int v = 0; v < V; ++v) pairs<T, j>(p.code[v], low_table, high_table, even[v], odd[v]);
            step(dot, even, 8 * j);
            step(dot2, odd, 8 * j + 4);
          });
          const unsigned char* sum = act + 64 * R + 4 * R0 + (f.halves == 2 ? 4 * R * (1 + h) : 0);
          if constexpr (f.grouped) {
            if constexpr (f.has_min)
              for (int r = 0; r < N; ++r) sums[r] += float_at(sum + 4 * r);
          } else {
            for (int v = 0; v < V; ++v) {
              F scale, min;
              p.scales[v].get(q, h, scale, min);
              for (int r = 0; r < N; ++r) {
                F& acc = p.acc[v][r];
                acc = fma(add(dot[v][r], dot2[v][r]), scale, acc);
                if constexpr (f.has_min) acc = fma(min, broadcast(sum + 4 * r), acc);
              }
            }
          }
        });
        p.next_codes();
      }
      if constexpr (f.grouped) {
        for (int v = 0; v < V; ++v)
          for (int r = 0; r < N; ++r) dot[v][r] = add(dot[v][r], dot2[v][r]);
        p.close(dot, sums);
        clear();
      }
    }
  }
  p.finish();
}

template <FileType T, int R>
void tile_bf16(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               const Span& span, float* c) {
  constexpr int n = R < 8 ? R : 8, v = n == 8 ? 1 : 2;
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
    for (int h = 0; h < 2; ++h)
      sum[h] = store_bf16(load_float(v + 64 * h), chunk + 64 * r + 32 * h);
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

}  // namespace orlop::cpu::avx512bf16
