// Vector operations of NEON for matmul_tile.inl, included inside an ISA file's own namespace: two
// registers of four columns. What the compiler's flags allow decides how int8 products are made: USDOT
// (i8mm), SDOT (dotprod), or, in ARMv8.0, SMULL and sums of pairs.
struct I {
  int32x4_t a, b;
};
struct F {
  float32x4_t a, b;
};
struct Mask {
  int n;  // the first n lanes
};
constexpr int lanes = 8;
// 32 registers hold the integer and the float sums of so many rows and vectors of columns
constexpr int int8_rows = 4, int8_sums = 4, fp32_rows = 4;

#define OP [[gnu::always_inline]] inline
OP uint8x16_t u8(int32x4_t v) { return vreinterpretq_u8_s32(v); }
OP int8x16_t s8(int32x4_t v) { return vreinterpretq_s8_s32(v); }
OP uint16x8_t u16(int32x4_t v) { return vreinterpretq_u16_s32(v); }
OP uint32x4_t u32(int32x4_t v) { return vreinterpretq_u32_s32(v); }
OP int32x4_t s32(uint8x16_t v) { return vreinterpretq_s32_u8(v); }
OP int32x4_t s32(uint16x8_t v) { return vreinterpretq_s32_u16(v); }
OP int32x4_t s32(uint32x4_t v) { return vreinterpretq_s32_u32(v); }

OP I load_int(const unsigned char* p) { return {s32(vld1q_u8(p)), s32(vld1q_u8(p + 16))}; }
OP I dwords(int v) { return {vdupq_n_s32(v), vdupq_n_s32(v)}; }
OP I zero_int() { return dwords(0); }
OP I bytes(int b) {
  const int32x4_t v = s32(vdupq_n_u8(static_cast<uint8_t>(b)));
  return {v, v};
}
OP I bit_and(I x, I y) { return {vandq_s32(x.a, y.a), vandq_s32(x.b, y.b)}; }
OP I bit_or(I x, I y) { return {vorrq_s32(x.a, y.a), vorrq_s32(x.b, y.b)}; }
OP I bit_xor(I x, I y) { return {veorq_s32(x.a, y.a), veorq_s32(x.b, y.b)}; }
OP I add_int(I x, I y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
OP I sub_int(I x, I y) { return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b)}; }
OP I max_unsigned(I x, I y) {
  return {s32(vmaxq_u32(u32(x.a), u32(y.a))), s32(vmaxq_u32(u32(x.b), u32(y.b)))};
}
template <int N> OP I shift_right(I v) {
  return {s32(vshrq_n_u16(u16(v.a), N)), s32(vshrq_n_u16(u16(v.b), N))};
}
template <int N> OP I shift_left(I v) {
  return {s32(vshlq_n_u16(u16(v.a), N)), s32(vshlq_n_u16(u16(v.b), N))};
}
template <int N> OP I shift_right_dword(I v) {
  return {s32(vshrq_n_u32(u32(v.a), N)), s32(vshrq_n_u32(u32(v.b), N))};
}
template <int N> OP I shift_right_signed(I v) { return {vshrq_n_s32(v.a, N), vshrq_n_s32(v.b, N)}; }
template <int N> OP I shift_left_dword(I v) { return {vshlq_n_s32(v.a, N), vshlq_n_s32(v.b, N)}; }
OP I load_i8(const unsigned char* p) {
  const int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
  return {vmovl_s16(vget_low_s16(v)), vmovl_high_s16(v)};
}
OP I load_u8(const unsigned char* p) {
  const uint16x8_t v = vmovl_u8(vld1_u8(p));
  return {s32(vmovl_u16(vget_low_u16(v))), s32(vmovl_high_u16(v))};
}
OP uint32_t reduce_max_unsigned(I v) { return vmaxvq_u32(vmaxq_u32(u32(v.a), u32(v.b))); }
OP int32_t reduce_add(I v) { return vaddvq_s32(vaddq_s32(v.a, v.b)); }
OP void store_bytes(unsigned char* p, I v) {  // the low byte of 8 dwords
  const uint16x8_t words = vcombine_u16(vmovn_u32(u32(v.a)), vmovn_u32(u32(v.b)));
  vst1_u8(p, vmovn_u16(words));
}

OP F set_float(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
OP F zero() { return set_float(0.0f); }
OP F load_float(const unsigned char* p) {
  return {vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))};
}
OP F load_f16(const unsigned char* p) {
  const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(p));
  return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
}
OP F broadcast(const unsigned char* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return set_float(v);
}
OP I broadcast_int(const unsigned char* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return dwords(v);
}
OP void store(float* p, F v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}
OP F fma(F x, F y, F z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
OP F mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
OP F add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
OP F div(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
OP F min_float(F x, F y) { return {vminq_f32(x.a, y.a), vminq_f32(x.b, y.b)}; }
OP F max_float(F x, F y) { return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b)}; }
OP F round(F x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
OP I round_to_int(F x) { return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b)}; }
OP F to_float(I x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
OP F as_float(I x) { return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)}; }
OP I as_int(F x) { return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)}; }
OP F select_equal(I x, I y, F yes, F no) {
  return {vbslq_f32(vceqq_s32(x.a, y.a), yes.a, no.a), vbslq_f32(vceqq_s32(x.b, y.b), yes.b, no.b)};
}
OP F negate(F x) { return {vnegq_f32(x.a), vnegq_f32(x.b)}; }
OP Mask first_lanes(int n) { return {n < lanes ? n : lanes}; }
OP F load_masked(const float* p, Mask m) {
  float buffer[lanes] = {};
  for (int i = 0; i < m.n; ++i) buffer[i] = p[i];
  return {vld1q_f32(buffer), vld1q_f32(buffer + 4)};
}
OP void store_masked(float* p, Mask m, F v) {
  if (m.n == lanes) return store(p, v);
  float buffer[lanes];
  store(buffer, v);
  for (int i = 0; i < m.n; ++i) p[i] = buffer[i];
}

OP I or_bit_plane(I v, const unsigned char* plane, int byte) {
  constexpr uint8_t spread[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                  2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  const uint8x16_t bits = u8(broadcast_int(plane).a), value = vdupq_n_u8(static_cast<uint8_t>(byte));
  const auto set = [&](int32x4_t x, const uint8_t* from) __attribute__((always_inline)) {
    const uint8x16_t on = vtstq_u8(vqtbl1q_u8(bits, vld1q_u8(from)), bit);
    return s32(vorrq_u8(u8(x), vandq_u8(on, value)));
  };
  return {set(v.a, spread), set(v.b, spread + 16)};
}
OP I iq4_nl_lookup(I v) {  // ggml's iq4_nl codebook + 128
  constexpr uint8_t values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                  129, 141, 153, 166, 181, 197, 217, 241};
  const uint8x16_t table = vld1q_u8(values);
  return {s32(vqtbl1q_u8(table, u8(v.a))), s32(vqtbl1q_u8(table, u8(v.b)))};
}

template <FileType T>
OP I start_unsigned(const unsigned char* slots, int rows, int half);  // matmul_tile.inl
#if defined(__ARM_FEATURE_MATMUL_INT8)
template <FileType T>
constexpr int from_signed = 0;
template <FileType T>
OP I start_dot(const unsigned char* slots, int rows, int half) {
  return start_unsigned<T>(slots, rows, half);
}
template <FileType T>
struct Dot {
  static constexpr int narrow = 1;
  I w;
  [[gnu::always_inline]] inline explicit Dot(I codes) : w(codes) {}
  [[gnu::always_inline]] inline I add(I acc, I x) const {
    return {vusdotq_s32(acc.a, u8(w.a), s8(x.a)), vusdotq_s32(acc.b, u8(w.b), s8(x.b))};
  }
};
#else
// Codes of 8 bits are taken as signed, less 128: the dot of w8z lacks 128 times the sum.
template <FileType T>
constexpr bool eight_bits = pack_info(T).low_bits == 8 || T == FileType::iq4_nl;
template <FileType T>
constexpr int from_signed = eight_bits<T> ? -1 : 0;  // times 128 sums that a8's dots have too much
template <FileType T>
OP I start_dot(const unsigned char* slots, int rows, int half) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (eight_bits<T> && f.zero == 128) {
    return zero_int();
  } else if constexpr (eight_bits<T>) {
    return sub_int(zero_int(), broadcast_int(slots + 4 * 7 * rows));
  } else {
    return start_unsigned<T>(slots, rows, half);
  }
}
template <FileType T>
struct Dot {
  static constexpr int narrow = 1;
  I w;
  [[gnu::always_inline]] inline explicit Dot(I codes) : w(codes) {
    if constexpr (eight_bits<T>) w = bit_xor(codes, bytes(0x80));
  }
  [[gnu::always_inline]] inline I add(I acc, I x) const {
    return {dot(acc.a, s8(w.a), s8(x.a)), dot(acc.b, s8(w.b), s8(x.b))};
  }
  [[gnu::always_inline]] static inline int32x4_t dot(int32x4_t acc, int8x16_t x, int8x16_t y) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(acc, x, y);
#else
    // Two products fit 16 bits: at most 2 * 128 * 127.
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
#endif
  }
};
#endif
constexpr int64_t fetch_ahead = 2048;
constexpr int fetch_rows = 2;
OP int32x4_t bf16_bits(float32x4_t x) {
  const uint32x4_t v = vreinterpretq_u32_f32(x), high = vshrq_n_u32(v, 16);
  const uint32x4_t even = vandq_u32(high, vdupq_n_u32(1));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(v, vaddq_u32(even, vdupq_n_u32(0x7fff))), 16);
  return s32(vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(high, vdupq_n_u32(0x40))));
}
OP I bf16_bits(F x) { return {bf16_bits(x.a), bf16_bits(x.b)}; }

#include "backend/cpu/matmul_tile.inl"
