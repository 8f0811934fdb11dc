// Sixteen floats in one AVX-512 register. Included by files compiled for AVX-512 alone; everything
// has internal linkage. vec_avx2.h offers the same names.
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace orlop::cpu {
namespace {

struct Vec {
  using F = __m512;
  [[gnu::always_inline]] static inline F zero() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static inline F set1(float x) { return _mm512_set1_ps(x); }
  [[gnu::always_inline]] static inline F load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  // The first n of 16 (n in 1..16); the other lanes are zero, their memory is not touched.
  [[gnu::always_inline]] static inline F load_n(const float* p, int n) {
    return _mm512_maskz_loadu_ps(first_n(n), p);
  }
  [[gnu::always_inline]] static inline void store_n(float* p, F x, int n) {
    _mm512_mask_storeu_ps(p, first_n(n), x);
  }
  [[gnu::always_inline]] static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  [[gnu::always_inline]] static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
  // c - a * b
  [[gnu::always_inline]] static inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  [[gnu::always_inline]] static inline F max(F a, F b) { return _mm512_max_ps(a, b); }
  [[gnu::always_inline]] static inline F min(F x, F y) { return _mm512_min_ps(x, y); }
  [[gnu::always_inline]] static inline float first(F x) { return _mm512_cvtss_f32(x); }
  // Lanes are added 8 apart, then 4, 2, 1.
  [[gnu::always_inline]] static inline float sum(F x) {
    const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
  }
  [[gnu::always_inline]] static inline float largest(F x) {
    const __m256 y = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
  }
  // x in lanes [lo, hi), other elsewhere; lo and hi may lie outside 0..16.
  [[gnu::always_inline]] static inline F inside(F x, int lo, int hi, F other) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __mmask16 in = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo)) &
                         _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(hi));
    return _mm512_mask_blend_ps(in, other, x);
  }
  // Any lane where x is NaN or above bound?
  [[gnu::always_inline]] static inline bool any_above_or_nan(F x, F bound) {
    return _mm512_cmp_ps_mask(x, bound, _CMP_NLE_UQ) != 0;
  }
  // Sixteen bf16 pairs: the first or the second of each, as floats.
  [[gnu::always_inline]] static inline F bf16_first(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  [[gnu::always_inline]] static inline F bf16_second(const void* p) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  // Rounded to bf16 (nearest, ties to even; NaN stays NaN).
  [[gnu::always_inline]] static inline F round_bf16(F x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(
        _mm512_and_si512(r, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  // Sixteen elements in two groups of eight.
  [[gnu::always_inline]] static inline F load_bf16(const void* low, const void* high) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(low, high)), 16));
  }
  [[gnu::always_inline]] static inline F load_f16(const void* low, const void* high) {
    return _mm512_cvtph_ps(load256(low, high));
  }
  [[gnu::always_inline]] static inline void store_f16(void* p, F x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // Sixteen 32-bit integers, or as many pairs of 16-bit ones.
  using I = __m512i;
  [[gnu::always_inline]] static inline I zero_int() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline I load_int(const void* p) { return _mm512_loadu_si512(p); }
  [[gnu::always_inline]] static inline void store_int(void* p, I x) { _mm512_storeu_si512(p, x); }
  [[gnu::always_inline]] static inline I add_int(I x, I y) { return _mm512_add_epi32(x, y); }
  [[gnu::always_inline]] static inline F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  // Pairs from 32 signed bytes; from 16 bytes of a low and a high nibble.
  [[gnu::always_inline]] static inline I pairs_i8(const void* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static inline I pairs_u4(const void* p) {
    const I x = _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm512_ternarylogic_epi32(x, _mm512_slli_epi32(x, 12), _mm512_set1_epi32(0x000f000f),
                                     0xa8);  // (x | y) & mask
  }
  [[gnu::always_inline]] static inline I set1_pair(const void* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);  // which a product takes as it loads it
  }
  // sum + the products of a pair
  [[gnu::always_inline]] static inline I add_pairs(I sum, I x, I y) {
    return _mm512_dpwssd_epi32(sum, x, y);
  }
  // Rounded to integers (ties to even) and stored as 16 bits each; returns what was stored. Beyond
  // 16 bits saturated; NaN gives some number.
  [[gnu::always_inline]] static inline F put_int16(void* p, F x) {
    const I i = _mm512_cvtps_epi32(x);
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(i));
    return _mm512_cvtepi32_ps(i);
  }
  [[gnu::always_inline]] static inline F abs(F x) { return _mm512_abs_ps(x); }
  // Lane i becomes (lane i - h) - (lane i) where i has the bit h, else (lane i) + (lane i + h).
  [[gnu::always_inline]] static inline F butterfly1(F x) {
    const F other = _mm512_permute_ps(x, 0xb1);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), 0xaaaa, other, x);
  }
  [[gnu::always_inline]] static inline F butterfly2(F x) {
    const F other = _mm512_permute_ps(x, 0x4e);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), 0xcccc, other, x);
  }
  [[gnu::always_inline]] static inline F butterfly4(F x) {
    const F other = _mm512_shuffle_f32x4(x, x, 0xb1);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), 0xf0f0, other, x);
  }
  [[gnu::always_inline]] static inline F butterfly8(F x) {
    const F other = _mm512_shuffle_f32x4(x, x, 0x4e);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), 0xff00, other, x);
  }
  // e^x for x <= 0 (a few ulp): 2^n * e^r with |r| <= ln2 / 2, the series to r^7. Zero below the
  // smallest normal number; NaN stays NaN.
  [[gnu::always_inline]] static inline F exp(F x) {
    const F n = _mm512_roundscale_ps(mul(x, set1(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F r = fnma(n, set1(-0x1.05c610p-29f), fnma(n, set1(0x1.62e430p-1f), x));
    F y = set1(1.0f / 5040);
    y = fma(y, r, set1(1.0f / 720));
    y = fma(y, r, set1(1.0f / 120));
    y = fma(y, r, set1(1.0f / 24));
    y = fma(y, r, set1(1.0f / 6));
    y = fma(y, r, set1(0.5f));
    y = fma(y, r, set1(1.0f));
    y = fma(y, r, set1(1.0f));
    const __mmask16 keep = _mm512_cmp_ps_mask(x, set1(-87.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(keep, y, n);
  }

 private:
  [[gnu::always_inline]] static inline __m256i load256(const void* low, const void* high) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(low))),
        _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
  }
  [[gnu::always_inline]] static inline __mmask16 first_n(int n) {
    return static_cast<__mmask16>((1u << n) - 1);
  }
};

}  // namespace
}  // namespace orlop::cpu
