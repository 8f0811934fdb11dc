// Sixteen floats in four NEON registers (ARMv8.0). Everything has internal linkage. The names are
// those of vec_avx2.h and vec_avx512.h.
#pragma once
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

namespace orlop::cpu {
namespace {

struct Vec {
  struct F {
    float32x4_t a, b, c, d;
  };
  [[gnu::always_inline]] static inline F zero() { return set1(0.0f); }
  [[gnu::always_inline]] static inline F set1(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
  }
  [[gnu::always_inline]] static inline F load(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
  }
  [[gnu::always_inline]] static inline void store(float* p, F x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
  }
  // The first n of 16 (n in 1..16); the other lanes are zero, their memory is not touched.
  [[gnu::always_inline]] static inline F load_n(const float* p, int n) {
    if (n == 16) return load(p);
    float buffer[16] = {};
    __builtin_memcpy(buffer, p, static_cast<size_t>(n) * sizeof(float));
    return load(buffer);
  }
  [[gnu::always_inline]] static inline void store_n(float* p, F x, int n) {
    if (n == 16) return store(p, x);
    float buffer[16];
    store(buffer, x);
    __builtin_memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
  }
  [[gnu::always_inline]] static inline F add(F x, F y) {
    return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F sub(F x, F y) {
    return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F mul(F x, F y) {
    return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F fma(F x, F y, F z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
            vfmaq_f32(z.d, x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F div(F x, F y) {
    return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
  }
  // z - x * y
  [[gnu::always_inline]] static inline F fnma(F x, F y, F z) {
    return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b), vfmsq_f32(z.c, x.c, y.c),
            vfmsq_f32(z.d, x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F max(F x, F y) {
    return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b), vmaxq_f32(x.c, y.c), vmaxq_f32(x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F min(F x, F y) {
    return {vminq_f32(x.a, y.a), vminq_f32(x.b, y.b), vminq_f32(x.c, y.c), vminq_f32(x.d, y.d)};
  }
  [[gnu::always_inline]] static inline float first(F x) { return vgetq_lane_f32(x.a, 0); }
  // Lanes are added 8 apart, then 4, 2, 1.
  [[gnu::always_inline]] static inline float sum(F x) {
    const float32x4_t y = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    return vpadds_f32(vadd_f32(vget_low_f32(y), vget_high_f32(y)));
  }
  [[gnu::always_inline]] static inline float largest(F x) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.c), vmaxq_f32(x.b, x.d)));
  }
  // x in lanes [lo, hi), other elsewhere; lo and hi may lie outside 0..16.
  [[gnu::always_inline]] static inline F inside(F x, int lo, int hi, F other) {
    return {vbslq_f32(between(lo, hi), x.a, other.a), vbslq_f32(between(lo - 4, hi - 4), x.b, other.b),
            vbslq_f32(between(lo - 8, hi - 8), x.c, other.c),
            vbslq_f32(between(lo - 12, hi - 12), x.d, other.d)};
  }
  // Any lane where x is NaN or above bound?
  [[gnu::always_inline]] static inline bool any_above_or_nan(F x, F bound) {
    const uint32x4_t below = vandq_u32(vandq_u32(vcleq_f32(x.a, bound.a), vcleq_f32(x.b, bound.b)),
                                       vandq_u32(vcleq_f32(x.c, bound.c), vcleq_f32(x.d, bound.d)));
    return vminvq_u32(below) == 0;
  }
  // Sixteen bf16 pairs: the first or the second of each, as floats.
  [[gnu::always_inline]] static inline F bf16_first(const void* p) {
    return {lower(word(p, 0)), lower(word(p, 1)), lower(word(p, 2)), lower(word(p, 3))};
  }
  [[gnu::always_inline]] static inline F bf16_second(const void* p) {
    return {upper(word(p, 0)), upper(word(p, 1)), upper(word(p, 2)), upper(word(p, 3))};
  }
  // Rounded to bf16 (nearest, ties to even; NaN stays NaN).
  [[gnu::always_inline]] static inline F round_bf16(F x) {
    return {round(x.a), round(x.b), round(x.c), round(x.d)};
  }
  // Sixteen elements in two groups of eight.
  [[gnu::always_inline]] static inline F load_bf16(const void* low, const void* high) {
    const uint16x8_t l = halves(low), h = halves(high);
    return {widen(vget_low_u16(l)), widen(vget_high_u16(l)), widen(vget_low_u16(h)),
            widen(vget_high_u16(h))};
  }
  [[gnu::always_inline]] static inline F load_f16(const void* low, const void* high) {
    const float16x8_t l = vreinterpretq_f16_u16(halves(low)), h = vreinterpretq_f16_u16(halves(high));
    return {vcvt_f32_f16(vget_low_f16(l)), vcvt_f32_f16(vget_high_f16(l)),
            vcvt_f32_f16(vget_low_f16(h)), vcvt_f32_f16(vget_high_f16(h))};
  }
  [[gnu::always_inline]] static inline void store_f16(void* p, F x) {
    auto* to = static_cast<uint16_t*>(p);
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
    vst1_u16(to + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
    vst1_u16(to + 8, vreinterpret_u16_f16(vcvt_f16_f32(x.c)));
    vst1_u16(to + 12, vreinterpret_u16_f16(vcvt_f16_f32(x.d)));
  }
  // Sixteen 32-bit integers, or as many pairs of 16-bit ones.
  struct I {
    int32x4_t a, b, c, d;
  };
  [[gnu::always_inline]] static inline I zero_int() {
    const int32x4_t v = vdupq_n_s32(0);
    return {v, v, v, v};
  }
  [[gnu::always_inline]] static inline I load_int(const void* p) {
    return {vreinterpretq_s32_u32(word(p, 0)), vreinterpretq_s32_u32(word(p, 1)),
            vreinterpretq_s32_u32(word(p, 2)), vreinterpretq_s32_u32(word(p, 3))};
  }
  [[gnu::always_inline]] static inline void store_int(void* p, I x) {
    auto* to = static_cast<int32_t*>(p);
    vst1q_s32(to, x.a);
    vst1q_s32(to + 4, x.b);
    vst1q_s32(to + 8, x.c);
    vst1q_s32(to + 12, x.d);
  }
  [[gnu::always_inline]] static inline I add_int(I x, I y) {
    return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b), vaddq_s32(x.c, y.c), vaddq_s32(x.d, y.d)};
  }
  [[gnu::always_inline]] static inline F to_float(I x) {
    return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
  }
  // Pairs from 32 signed bytes; from 16 bytes of a low and a high nibble.
  [[gnu::always_inline]] static inline I pairs_i8(const void* p) {
    return pairs(vld1q_s8(static_cast<const int8_t*>(p)), vld1q_s8(static_cast<const int8_t*>(p) + 16));
  }
  [[gnu::always_inline]] static inline I pairs_u4(const void* p) {
    const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(p));
    const uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15)), high = vshrq_n_u8(bytes, 4);
    return pairs(vreinterpretq_s8_u8(vzip1q_u8(low, high)), vreinterpretq_s8_u8(vzip2q_u8(low, high)));
  }
  [[gnu::always_inline]] static inline I set1_pair(const void* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    const int32x4_t v = vdupq_n_s32(pair);
    return {v, v, v, v};
  }
  // sum + the products of a pair
  [[gnu::always_inline]] static inline I add_pairs(I sum, I x, I y) {
    return {add_pairs(sum.a, x.a, y.a), add_pairs(sum.b, x.b, y.b), add_pairs(sum.c, x.c, y.c),
            add_pairs(sum.d, x.d, y.d)};
  }
  // Rounded to integers (ties to even) and stored as 16 bits each; returns what was stored. Beyond
  // 16 bits saturated; NaN gives some number.
  [[gnu::always_inline]] static inline F put_int16(void* p, F x) {
    const I i = {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b), vcvtnq_s32_f32(x.c), vcvtnq_s32_f32(x.d)};
    auto* to = static_cast<int16_t*>(p);
    vst1q_s16(to, vcombine_s16(vqmovn_s32(i.a), vqmovn_s32(i.b)));
    vst1q_s16(to + 8, vcombine_s16(vqmovn_s32(i.c), vqmovn_s32(i.d)));
    return to_float(i);
  }
  [[gnu::always_inline]] static inline F abs(F x) {
    return {vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
  }
  // Lane i becomes (lane i - h) - (lane i) where i has the bit h, else (lane i) + (lane i + h).
  [[gnu::always_inline]] static inline F butterfly1(F x) {
    constexpr uint64_t odd = 0x8000000000000000u;
    return {combine(x.a, vrev64q_f32(x.a), odd, odd), combine(x.b, vrev64q_f32(x.b), odd, odd),
            combine(x.c, vrev64q_f32(x.c), odd, odd), combine(x.d, vrev64q_f32(x.d), odd, odd)};
  }
  [[gnu::always_inline]] static inline F butterfly2(F x) {
    constexpr uint64_t both = 0x8000000080000000u;
    return {combine(x.a, vextq_f32(x.a, x.a, 2), 0, both), combine(x.b, vextq_f32(x.b, x.b, 2), 0, both),
            combine(x.c, vextq_f32(x.c, x.c, 2), 0, both),
            combine(x.d, vextq_f32(x.d, x.d, 2), 0, both)};
  }
  [[gnu::always_inline]] static inline F butterfly4(F x) {
    return {vaddq_f32(x.a, x.b), vsubq_f32(x.a, x.b), vaddq_f32(x.c, x.d), vsubq_f32(x.c, x.d)};
  }
  [[gnu::always_inline]] static inline F butterfly8(F x) {
    return {vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d), vsubq_f32(x.a, x.c), vsubq_f32(x.b, x.d)};
  }
  // e^x for x <= 0 (a few ulp): 2^n * e^r with |r| <= ln2 / 2, the series to r^7. Zero below the
  // smallest normal number; NaN stays NaN.
  [[gnu::always_inline]] static inline F exp(F x) {
    const F t = mul(x, set1(0x1.715476p+0f));
    const F n = {vrndnq_f32(t.a), vrndnq_f32(t.b), vrndnq_f32(t.c), vrndnq_f32(t.d)};
    const F r = fnma(n, set1(-0x1.05c610p-29f), fnma(n, set1(0x1.62e430p-1f), x));
    F y = set1(1.0f / 5040);
    y = fma(y, r, set1(1.0f / 720));
    y = fma(y, r, set1(1.0f / 120));
    y = fma(y, r, set1(1.0f / 24));
    y = fma(y, r, set1(1.0f / 6));
    y = fma(y, r, set1(0.5f));
    y = fma(y, r, set1(1.0f));
    y = fma(y, r, set1(1.0f));
    return {scale(x.a, y.a, n.a), scale(x.b, y.b, n.b), scale(x.c, y.c, n.c), scale(x.d, y.d, n.d)};
  }

 private:
  [[gnu::always_inline]] static inline uint32x4_t word(const void* p, int i) {
    return vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i));
  }
  [[gnu::always_inline]] static inline uint16x8_t halves(const void* p) {
    return vreinterpretq_u16_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  }
  [[gnu::always_inline]] static inline float32x4_t lower(uint32x4_t v) {
    return vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
  }
  [[gnu::always_inline]] static inline float32x4_t upper(uint32x4_t v) {
    return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)));
  }
  [[gnu::always_inline]] static inline float32x4_t widen(uint16x4_t v) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(v), 16));
  }
  [[gnu::always_inline]] static inline uint32x4_t between(int lo, int hi) {
    constexpr int32_t first[4] = {0, 1, 2, 3};
    const int32x4_t lane = vld1q_s32(first);
    return vandq_u32(vcgeq_s32(lane, vdupq_n_s32(lo)), vcltq_s32(lane, vdupq_n_s32(hi)));
  }
  [[gnu::always_inline]] static inline I pairs(int8x16_t low, int8x16_t high) {
    return {vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(low))), vreinterpretq_s32_s16(vmovl_high_s8(low)),
            vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(high))),
            vreinterpretq_s32_s16(vmovl_high_s8(high))};
  }
  [[gnu::always_inline]] static inline int32x4_t add_pairs(int32x4_t sum, int32x4_t x, int32x4_t y) {
    const int16x8_t a = vreinterpretq_s16_s32(x), b = vreinterpretq_s16_s32(y);
    return vaddq_s32(
        sum, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
  }
  // other + x, x negated where its two halves' signs say so
  [[gnu::always_inline]] static inline float32x4_t combine(float32x4_t x, float32x4_t other, uint64_t low,
                                                           uint64_t high) {
    const uint32x4_t signs =
        vreinterpretq_u32_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
    return vaddq_f32(other, vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), signs)));
  }
  [[gnu::always_inline]] static inline float32x4_t round(float32x4_t x) {
    const uint32x4_t u = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    return upper(vbslq_u32(vceqq_f32(x, x), r, quiet));
  }
  // y * 2^n where x is not below the cut, else zero.
  [[gnu::always_inline]] static inline float32x4_t scale(float32x4_t x, float32x4_t y, float32x4_t n) {
    const int32x4_t bits = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    const uint32x4_t value = vreinterpretq_u32_f32(vmulq_f32(y, vreinterpretq_f32_s32(bits)));
    return vreinterpretq_f32_u32(vbicq_u32(value, vcltq_f32(x, vdupq_n_f32(-87.0f))));
  }
};

}  // namespace
}  // namespace orlop::cpu
