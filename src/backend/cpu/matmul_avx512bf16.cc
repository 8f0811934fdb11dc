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

OP F dp(F acc, I w, const unsigned char* a) {
  int32_t v;
  __builtin_memcpy(&v, a, 4);
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(dwords(v)));
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

template <FileType T, int R>
void tile_bf16(const unsigned char* tile, const unsigned char* act, int64_t groups, float* c) {
  constexpr PackInfo f = pack_info(T);
  const unsigned char* code = tile + scale_bytes(T, groups);
  F acc[R];
  for (int r = 0; r < R; ++r) acc[r] = zero();
  if constexpr (f.low_bits == 0) {
    F acc2[R];
    for (int r = 0; r < R; ++r) acc2[r] = zero();
    for (int64_t g = 0; g < groups; ++g, code += f.code_bytes, act += R * bf16_chunk) {
      prefetch<f.code_bytes, R>(code);
      static_for<0, 8>([&](auto jj) __attribute__((always_inline)) {
        constexpr int j = decltype(jj)::value;
        const I even = load_int(code + 128 * j), odd = load_int(code + 128 * j + 64);
        for (int r = 0; r < R; ++r) {
          acc[r] = dp(acc[r], even, act + 64 * r + 8 * j);
          acc2[r] = dp(acc2[r], odd, act + 64 * r + 8 * j + 4);
        }
      });
    }
    for (int r = 0; r < R; ++r) acc[r] = add(acc[r], acc2[r]);
  } else {
    const unsigned char* t = reinterpret_cast<const unsigned char*>(table<T>.v);
    const I low_table = load_int(t), high_table = load_int(t + 64);
    Scales<T> scales;
    scales.at = tile;
    scales.c0 = 0;
    for (int64_t g = 0; g < groups; g += f.super_groups, scales.at += f.super_bytes) {
      scales.start_super();
      for (int q = 0; q < f.super_groups; ++q, code += f.code_bytes, act += R * bf16_chunk) {
        prefetch<f.code_bytes, R>(code);
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          F dot[R], dot2[R];
          for (int r = 0; r < R; ++r) dot[r] = dot2[r] = zero();
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            I even, odd;
            pairs<T, j>(code, low_table, high_table, even, odd);
            for (int r = 0; r < R; ++r) {
              dot[r] = dp(dot[r], even, act + 64 * r + 8 * j);
              dot2[r] = dp(dot2[r], odd, act + 64 * r + 8 * j + 4);
            }
          });
          F scale, min;
          scales.get(q, h, scale, min);
          const unsigned char* sums = act + 64 * R + (f.halves == 2 ? 4 * R * (1 + h) : 0);
          for (int r = 0; r < R; ++r) {
            acc[r] = fma(add(dot[r], dot2[r]), scale, acc[r]);
            if constexpr (f.has_min) acc[r] = fma(min, broadcast(sums + 4 * r), acc[r]);
          }
        });
      }
    }
  }
  for (int r = 0; r < R; ++r) store(c + 16 * r, acc[r]);
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
