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

OP F dp(F acc, I w, I a) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
}

// Weights 4 J .. 4 J + 3 of every column as bf16 pairs (k0, k2) and (k1, k3).
template <FileType T, int J>
OP void pairs(const unsigned char* code, I low_table, I high_table, I& even, I& odd) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (f.low_bits == 4 && f.high_bits == 0) {
    const I v = load_int(code + 64 * (J / 2));
    even = _mm512_permutexvar_epi16(J % 2 == 0 ? v : shift_right<4>(v), low_table);
    odd = _mm512_permutexvar_epi16(shift_right<J % 2 == 0 ? 8 : 12>(v), low_table);
  } else if constexpr (f.low_bits == 8) {
    // bytes, less 128, to the top bytes of dwords; a float of 8 bits is a bf16 and 16 zeros
    const I v = _mm512_xor_si512(load_int(code + 64 * J), bytes(0x80));
    const auto high = [](I top) __attribute__((always_inline)) {
      return _mm512_castps_si512(to_float(shift_right_signed<24>(top)));
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

template <FileType T, int R, int R0, int N>
OP void bf16_part(const Columns& first, const Columns& second, const unsigned char* act, int64_t groups) {
  constexpr PackInfo f = pack_info(T);
  const unsigned char* code[2] = {first.tile + scale_bytes(T, groups),
                                  second.tile + scale_bytes(T, groups)};
  F acc[2][N];
  for (int r = 0; r < N; ++r) acc[0][r] = acc[1][r] = zero();
  if constexpr (f.low_bits == 0) {
    F acc2[2][N];
    for (int r = 0; r < N; ++r) acc2[0][r] = acc2[1][r] = zero();
    for (int64_t g = 0; g < groups; ++g, act += R * bf16_chunk) {
      for (int v = 0; v < 2; ++v) prefetch<f.code_bytes, R>(code[v]);
      static_for<0, 16>([&](auto jj) __attribute__((always_inline)) {
        constexpr int j = decltype(jj)::value;
        const I w0 = load_int(code[0] + 64 * j), w1 = load_int(code[1] + 64 * j);
        for (int r = 0; r < N; ++r) {
          const I a = broadcast_int(act + 64 * (R0 + r) + 4 * j);
          F& to0 = j % 2 == 0 ? acc[0][r] : acc2[0][r];
          F& to1 = j % 2 == 0 ? acc[1][r] : acc2[1][r];
          to0 = dp(to0, w0, a);
          to1 = dp(to1, w1, a);
        }
      });
      for (int v = 0; v < 2; ++v) code[v] += f.code_bytes;
    }
    for (int v = 0; v < 2; ++v)
      for (int r = 0; r < N; ++r) acc[v][r] = add(acc[v][r], acc2[v][r]);
  } else {
    const unsigned char* t = reinterpret_cast<const unsigned char*>(table<T>.v);
    const I low_table = load_int(t), high_table = load_int(t + 64);
    Scales<T> scales[2] = {{first.tile, 0, {}, {}}, {second.tile, 0, {}, {}}};
    for (int64_t g = 0; g < groups; g += f.super_groups) {
      for (int v = 0; v < 2; ++v) scales[v].start_super();
      for (int q = 0; q < f.super_groups; ++q, act += R * bf16_chunk) {
        for (int v = 0; v < 2; ++v) prefetch<f.code_bytes, R>(code[v]);
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          F dot[2][N], dot2[2][N];
          for (int v = 0; v < 2; ++v)
            for (int r = 0; r < N; ++r) dot[v][r] = dot2[v][r] = zero();
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            I even[2], odd[2];
            for (int v = 0; v < 2; ++v) pairs<T, j>(code[v], low_table, high_table, even[v], odd[v]);
            for (int r = 0; r < N; ++r) {
              const I a = broadcast_int(act + 64 * (R0 + r) + 8 * j);
              dot[0][r] = dp(dot[0][r], even[0], a);
              dot[1][r] = dp(dot[1][r], even[1], a);
            }
            for (int r = 0; r < N; ++r) {
              const I a = broadcast_int(act + 64 * (R0 + r) + 8 * j + 4);
              dot2[0][r] = dp(dot2[0][r], odd[0], a);
              dot2[1][r] = dp(dot2[1][r], odd[1], a);
            }
          });
          const unsigned char* sums = act + 64 * R + 4 * R0 + (f.halves == 2 ? 4 * R * (1 + h) : 0);
          for (int v = 0; v < 2; ++v) {
            F scale, min;
            scales[v].get(q, h, scale, min);
            for (int r = 0; r < N; ++r) {
              acc[v][r] = fma(add(dot[v][r], dot2[v][r]), scale, acc[v][r]);
              if constexpr (f.has_min) acc[v][r] = fma(min, broadcast(sums + 4 * r), acc[v][r]);
            }
          }
        });
        for (int v = 0; v < 2; ++v) code[v] += f.code_bytes;
      }
      for (int v = 0; v < 2; ++v) scales[v].at += f.super_bytes;
    }
  }
  for (int r = 0; r < N; ++r) {
    store(first.out + 16 * (R0 + r), acc[0][r]);
    store(second.out + 16 * (R0 + r), acc[1][r]);
  }
}

template <FileType T, int R>
void tile_bf16(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               int64_t groups, float* c) {
  constexpr int n = R < 4 ? R : 4;
  all_parts<R, n, 0>(tile0, tile1, c, [&](auto r0, const Columns& first, const Columns& second) {
    bf16_part<T, R, decltype(r0)::value, n>(first, second, act, groups);
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
constexpr TileFns bf16_fns = {{tile_bf16<T, 1>, tile_bf16<T, 2>, tile_bf16<T, 4>, tile_bf16<T, 8>}};
using enum FileType;

}  // namespace

constexpr ComputeIsa matmul_bf16 = {
    prepare_bf16, bf16_chunk,
    {bf16_fns<bf16>, bf16_fns<bf16>, bf16_fns<bf16>, bf16_fns<q4_0>, bf16_fns<q4_1>, bf16_fns<q5_0>,
     bf16_fns<q5_1>, bf16_fns<q8_0>, bf16_fns<q2_k>, bf16_fns<q3_k>, bf16_fns<q4_k>, bf16_fns<q5_k>,
     bf16_fns<q6_k>, bf16_fns<iq4_nl>}};

}  // namespace orlop::cpu::avx512bf16
