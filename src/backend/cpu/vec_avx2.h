// Sixteen floats in two AVX2 registers. Included by files compiled for AVX2 alone; everything has
// internal linkage. vec_avx512.h offers the same names.
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace orlop::cpu {
namespace {

struct Vec {
  struct F {
    __m256 a, b;
  };
  [[gnu::always_inline]] static inline F zero() {
    return {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  [[gnu::always_inline]] static inline F set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
  }
  [[gnu::always_inline]] static inline F load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  [[gnu::always_inline]] static inline void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  // The first n of 16 (n in 1..16); the other lanes are zero, their memory is not touched.
  [[gnu::always_inline]] static inline F load_n(const float* p, int n) {
    return {_mm256_maskload_ps(p, below(n)), _mm256_maskload_ps(p + 8, below(n - 8))};
  }
  [[gnu::always_inline]] static inline void store_n(float* p, F x, int n) {
    _mm256_maskstore_ps(p, below(n), x.a);
    _mm256_maskstore_ps(p + 8, below(n - 8), x.b);
  }
  [[gnu::always_inline]] static inline F add(F x, F y) {
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
  }
  [[gnu::always_inline]] static inline F sub(F x, F y) {
    return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
  }
  [[gnu::always_inline]] static inline F mul(F x, F y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
  }
  [[gnu::always_inline]] static inline F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  [[gnu::always_inline]] static inline F div(F x, F y) {
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
  }
  // z - x * y
  [[gnu::always_inline]] static inline F fnma(F x, F y, F z) {
    return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
  }
  [[gnu::always_inline]] static inline F max(F x, F y) {
    return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
  }
  [[gnu::always_inline]] static inline F min(F x, F y) {
    return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
  }
  [[gnu::always_inline]] static inline float first(F x) { return _mm256_cvtss_f32(x.a); }
  // Lanes are added 8 apart, then 4, 2, 1.
  [[gnu::always_inline]] static inline float sum(F x) {
    const __m256 y = _mm256_add_ps(x.a, x.b);
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
  }
  [[gnu::always_inline]] static inline float largest(F x) {
    const __m256 y = _mm256_max_ps(x.a, x.b);
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
  }
  // x in lanes [lo, hi), other elsewhere; lo and hi may lie outside 0..16.
  [[gnu::always_inline]] static inline F inside(F x, int lo, int hi, F other) {
    return {_mm256_blendv_ps(other.a, x.a, _mm256_castsi256_ps(between(lo, hi))),
            _mm256_blendv_ps(other.b, x.b, _mm256_castsi256_ps(between(lo - 8, hi - 8)))};
  }
  // Any lane where x is NaN or above bound?
  [[gnu::always_inline]] static inline bool any_above_or_nan(F x, F bound) {
    return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x.a, bound.a, _CMP_NLE_UQ),
                                           _mm256_cmp_ps(x.b, bound.b, _CMP_NLE_UQ))) != 0;
  }
  // Sixteen bf16 pairs: the first or the second of each, as floats.
  [[gnu::always_inline]] static inline F bf16_first(const void* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(word(p, 0), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(word(p, 1), 16))};
  }
  [[gnu::always_inline]] static inline F bf16_second(const void* p) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    return {_mm256_castsi256_ps(_mm256_and_si256(word(p, 0), high)),
            _mm256_castsi256_ps(_mm256_and_si256(word(p, 1), high))};
  }
  // Rounded to bf16 (nearest, ties to even; NaN stays NaN).
  [[gnu::always_inline]] static inline F round_bf16(F x) { return {round(x.a), round(x.b)}; }
  // Sixteen elements in two groups of eight.
  [[gnu::always_inline]] static inline F load_bf16(const void* low, const void* high) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(low)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(high)), 16))};
  }
  [[gnu::always_inline]] static inline F load_f16(const void* low, const void* high) {
    return {_mm256_cvtph_ps(load128(low)), _mm256_cvtph_ps(load128(high))};
  }
  [[gnu::always_inline]] static inline void store_f16(void* p, F x) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(static_cast<__m128i*>(p) + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
  }
  // Sixteen 32-bit integers, or as many pairs of 16-bit ones.
  struct I {
    __m256i a, b;
  };
  [[gnu::always_inline]] static inline I zero_int() {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  [[gnu::always_inline]] static inline I load_int(const void* p) {
    return {word(p, 0), word(p, 1)};
  }
  [[gnu::always_inline]] static inline void store_int(void* p, I x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, x.b);
  }
  [[gnu::always_inline]] static inline I add_int(I x, I y) {
    return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
  }
  [[gnu::always_inline]] static inline F to_float(I x) {
    return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
  }
  // Pairs from 32 signed bytes; from 16 bytes of a low and a high nibble.
  [[gnu::always_inline]] static inline I pairs_i8(const void* p) {
    const auto* q = static_cast<const __m128i*>(p);
    return {_mm256_cvtepi8_epi16(load128(q)), _mm256_cvtepi8_epi16(load128(q + 1))};
  }
  [[gnu::always_inline]] static inline I pairs_u4(const void* p) {
    const __m128i bytes = load128(p);
    return {nibbles(_mm256_cvtepu8_epi32(bytes)),
            nibbles(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
  }
  [[gnu::always_inline]] static inline I set1_pair(const void* p) {
    const __m256i v = _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
    return {v, v};
  }
  // sum + the products of a pair
  [[gnu::always_inline]] static inline I add_pairs(I sum, I x, I y) {
    return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, y.a)),
            _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, y.b))};
  }
  // Rounded to integers (ties to even) and stored as 16 bits each; returns what was stored. Beyond
  // 16 bits saturated; NaN gives some number.
  [[gnu::always_inline]] static inline F put_int16(void* p, F x) {
    const __m256i a = _mm256_cvtps_epi32(x.a), b = _mm256_cvtps_epi32(x.b);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    _mm256_storeu_si256(static_cast<__m256i*>(p), packed);
    return {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)};
  }
  [[gnu::always_inline]] static inline F abs(F x) {
    const __m256 bits = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(x.a, bits), _mm256_and_ps(x.b, bits)};
  }
  // Lane i becomes (lane i - h) - (lane i) where i has the bit h, else (lane i) + (lane i + h).
  [[gnu::always_inline]] static inline F butterfly1(F x) {
    return {combine(x.a, _mm256_permute_ps(x.a, 0xb1), 1),
            combine(x.b, _mm256_permute_ps(x.b, 0xb1), 1)};
  }
  [[gnu::always_inline]] static inline F butterfly2(F x) {
    return {combine(x.a, _mm256_permute_ps(x.a, 0x4e), 2),
            combine(x.b, _mm256_permute_ps(x.b, 0x4e), 2)};
  }
  [[gnu::always_inline]] static inline F butterfly4(F x) {
    return {combine(x.a, _mm256_permute2f128_ps(x.a, x.a, 1), 4),
            combine(x.b, _mm256_permute2f128_ps(x.b, x.b, 1), 4)};
  }
  [[gnu::always_inline]] static inline F butterfly8(F x) {
    return {_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
  }
  // e^x for x <= 0 (a few ulp): 2^n * e^r with |r| <= ln2 / 2, the series to r^7. Zero below the
  // smallest normal number; NaN stays NaN.
  [[gnu::always_inline]] static inline F exp(F x) {
    const F t = mul(x, set1(0x1.715476p+0f));
    const F n = {_mm256_round_ps(t.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_ps(t.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
    const F r = fnma(n, set1(-0x1.05c610p-29f), fnma(n, set1(0x1.62e430p-1f), x));
    F y = set1(1.0f / 5040);
    y = fma(y, r, set1(1.0f / 720));
    y = fma(y, r, set1(1.0f / 120));
    y = fma(y, r, set1(1.0f / 24));
    y = fma(y, r, set1(1.0f / 6));
    y = fma(y, r, set1(0.5f));
    y = fma(y, r, set1(1.0f));
    y = fma(y, r, set1(1.0f));
    return {scale(x.a, y.a, n.a), scale(x.b, y.b, n.b)};
  }

 private:
  [[gnu::always_inline]] static inline __m256 combine(__m256 x, __m256 other, int h) {
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i upper =
        _mm256_cmpeq_epi32(_mm256_and_si256(lane, _mm256_set1_epi32(h)), _mm256_set1_epi32(h));
    return _mm256_add_ps(other,
                         _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(upper, 31))));
  }
  [[gnu::always_inline]] static inline __m128i load128(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  [[gnu::always_inline]] static inline __m256i nibbles(__m256i bytes) {
    return _mm256_and_si256(_mm256_or_si256(bytes, _mm256_slli_epi32(bytes, 12)),
                            _mm256_set1_epi32(0x000f000f));
  }
  [[gnu::always_inline]] static inline __m256i word(const void* p, int i) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p) + i);
  }
  [[gnu::always_inline]] static inline __m256i below(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  }
  [[gnu::always_inline]] static inline __m256i between(int lo, int hi) {
    return _mm256_andnot_si256(below(lo), below(hi));
  }
  [[gnu::always_inline]] static inline __m256 round(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(u, _mm256_set1_epi32(0x400000)));
    const __m256 picked =
        _mm256_blendv_ps(_mm256_castsi256_ps(r), quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_and_ps(picked,
                         _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  // y * 2^n where x is not below the cut, else zero.
  [[gnu::always_inline]] static inline __m256 scale(__m256 x, __m256 y, __m256 n) {
    const __m256i bits =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_NLT_UQ);
    return _mm256_and_ps(keep, _mm256_mul_ps(y, _mm256_castsi256_ps(bits)));
  }
};

}  // namespace
}  // namespace orlop::cpu
