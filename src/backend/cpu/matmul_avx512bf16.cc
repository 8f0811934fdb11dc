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

// bf16 of every code less its zero point, twice over where 5 bits index it and fewer are used.
template <FileType T>
struct Table {
  alignas(64) uint16_t v[64];
  constexpr Table() : v() {
    constexpr int values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
    constexpr PackInfo f = pack_info(T);
    if constexpr (T == FileType::f8) {  // the subnormal numbers, mantissa * 2^-9
      for (int i = 0; i < 64; ++i)
        v[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(i % 8) * 0x1p-9f) >> 16);
      return;
    }
    constexpr int bits = f.low_bits + (f.low_bits == 8 ? 0 : f.high_bits);
    for (int i = 0; i < 64; ++i) {
      const int code = i % (1 << (bits > 6 ? 6 : bits));
      const float value = static_cast<float>(f.codebook ? values[code] : code - f.zero);
      v[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
    }
  }
};
template <FileType T>
constexpr Table<T> table{};

OP I words(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }
OP F dp(F acc, I w, I a) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
}

// e4m3 codes in words to bf16. The fields move to their places with the exponent's bias from 7 to 127;
// a subnormal number or NaN comes from the table, by mantissa.
OP void e4m3_pair(I code, I table, I& out) {
  const I magnitude = bit_and(code, words(0x7f));
  const I sign = shift_left<8>(bit_and(code, words(0x80)));
  I v = _mm512_add_epi16(shift_left<4>(magnitude), words(120 << 7));
  const __mmask32 small = _mm512_cmplt_epi16_mask(magnitude, words(8));
  v = _mm512_mask_permutexvar_epi16(v, small, magnitude, table);
  v = _mm512_mask_mov_epi16(v, _mm512_cmpeq_epi16_mask(magnitude, words(0x7f)), words(0x7fc0));
  out = bit_or(v, sign);
}

// Weights 4 J .. 4 J + 3 of every column as bf16 pairs (k0, k2) and (k1, k3).
template <FileType T, int J>
OP void pairs(const unsigned char* code, I low_table, I high_table, I& even, I& odd) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (T == FileType::f8) {
    const I v = load_int(code + 64 * J);
    e4m3_pair(bit_and(v, words(0xff)), low_table, even);
    e4m3_pair(shift_right<8>(v), low_table, odd);
  } else if constexpr (f.low_bits == 4 && f.high_bits == 0) {
    const I v = load_int(code + 64 * (J / 2));
    even = _mm512_permutexvar_epi16(J % 2 == 0 ? v : shift_right<4>(v), low_table);
    odd = _mm512_permutexvar_epi16(shift_right<J % 2 == 0 ? 8 : 12>(v), low_table);
  } else if constexpr (f.low_bits == 8) {
    // bytes, less the zero point, to the top bytes of dwords; a float of 8 bits is a bf16 and 16 zeros
    I v = load_int(code + 64 * J);
    if constexpr (f.zero != 0) v = _mm512_xor_si512(v, bytes(f.zero));
    const auto high = [](I top) __attribute__((always_inline)) {
      const I whole = f.zero != 0 ? shift_right_signed<24>(top) : shift_right_dword<24>(top);
      return _mm512_castps_si512(to_float(whole));
    };
    even = bit_or(high(shift_left_dword<8>(v)), shift_right_dword<16>(high(shift_left_dword<24>(v))));
    odd = bit_or(high(v), shift_right_dword<16>(high(shift_left_dword<16>(v))));
  } else {
    const I v = codes<T, J>(code, 0);
    if constexpr (f.high_bits == 2) {
      even = _mm512_permutex2var_epi16(low_table, v, high_table);
      odd = _mm512_permutex2var_epi16(low_table, shift_right<8>(v), high_table);
    } else {
      even = _mm512_permutexvar_epi16(v, low_table);
      odd = _mm512_permutexvar_epi16(shift_right<8>(v), low_table);
    }
  }
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
    for (int h = 0; h < 2; ++h) {
      const I bits = bf16_bits(load_float(v + 64 * h));
      sum[h] = _mm512_reduce_add_ps(as_float(shift_left_dword<16>(bits)));
      // dwords k0 k1 k2 k3 -> words k0 k2 k1 k3: k2 and k3 move into the high halves of k0 and k1
      const I high = shift_left_dword<16>(_mm512_shuffle_epi32(bits, _MM_PERM_DCDC));
      const I both = bit_or(bits, high);  // lanes 0 and 1 of every four hold the pairs
      const __m512i pick = _mm512_setr_epi64(0, 2, 4, 6, 0, 0, 0, 0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(chunk + 64 * r + 32 * h),
                          _mm512_castsi512_si256(_mm512_permutexvar_epi64(pick, both)));
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

}  // namespace orlop::cpu::avx512bf16
