// Vector operations of AVX-512 for matmul_tile.inl, included inside an ISA file's own namespace.
using I = __m512i;
using F = __m512;
using Mask = __mmask16;
constexpr int lanes = 16;
// 32 registers hold the integer and the float sums of so many rows and vectors of columns
constexpr int int8_rows = 8, int8_sums = 8, fp32_rows = 8;

#define OP [[gnu::always_inline]] inline
OP I load_int(const unsigned char* p) { return _mm512_loadu_si512(p); }
OP I zero_int() { return _mm512_setzero_si512(); }
OP I bytes(int b) { return _mm512_set1_epi8(static_cast<char>(b)); }
OP I dwords(int v) { return _mm512_set1_epi32(v); }
OP I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
OP I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
OP I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
OP I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
OP I max_unsigned(I a, I b) { return _mm512_max_epu32(a, b); }
template <int N> OP I shift_right(I v) { return _mm512_srli_epi16(v, N); }
template <int N> OP I shift_left(I v) { return _mm512_slli_epi16(v, N); }
template <int N> OP I shift_right_dword(I v) { return _mm512_srli_epi32(v, N); }
template <int N> OP I shift_right_signed(I v) { return _mm512_srai_epi32(v, N); }
template <int N> OP I shift_left_dword(I v) { return _mm512_slli_epi32(v, N); }
OP I load_i8(const unsigned char* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OP I load_u8(const unsigned char* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OP uint32_t reduce_max_unsigned(I v) { return _mm512_reduce_max_epu32(v); }
OP int32_t reduce_add(I v) { return _mm512_reduce_add_epi32(v); }
OP void store_bytes(unsigned char* p, I v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}

OP F zero() { return _mm512_setzero_ps(); }
OP F set_float(float v) { return _mm512_set1_ps(v); }
OP F load_float(const unsigned char* p) { return _mm512_loadu_ps(p); }
OP F load_f16(const unsigned char* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
OP F broadcast(const unsigned char* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_ps(v);
}
OP I broadcast_int(const unsigned char* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return dwords(v);
}
OP void store(float* p, F v) { _mm512_storeu_ps(p, v); }
OP F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
OP F mul(F a, F b) { return _mm512_mul_ps(a, b); }
OP F add(F a, F b) { return _mm512_add_ps(a, b); }
OP F div(F a, F b) { return _mm512_div_ps(a, b); }
OP F min_float(F a, F b) { return _mm512_min_ps(a, b); }
OP F max_float(F a, F b) { return _mm512_max_ps(a, b); }
OP F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
OP I round_to_int(F a) { return _mm512_cvtps_epi32(a); }
OP F to_float(I a) { return _mm512_cvtepi32_ps(a); }
OP F as_float(I a) { return _mm512_castsi512_ps(a); }
OP I as_int(F a) { return _mm512_castps_si512(a); }
OP F select_equal(I a, I b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmpeq_epi32_mask(a, b), no, yes);
}
OP F negate(F a) { return as_float(_mm512_xor_si512(_mm512_castps_si512(a), dwords(INT32_MIN))); }
OP Mask first_lanes(int n) { return static_cast<Mask>(n >= 16 ? 0xffff : (1 << n) - 1); }
OP F load_masked(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
OP void store_masked(float* p, Mask m, F v) { _mm512_mask_storeu_ps(p, m, v); }

OP I or_bit_plane(I v, const unsigned char* plane, int byte) {
  uint64_t bits;
  __builtin_memcpy(&bits, plane, 8);
  return _mm512_mask_add_epi8(v, bits, v, bytes(byte));
}
OP I iq4_nl_lookup(I v) {  // ggml's iq4_nl codebook + 128
  const I table = _mm512_broadcast_i32x4(_mm_setr_epi8(
      1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
      static_cast<char>(153), static_cast<char>(166), static_cast<char>(181), static_cast<char>(197),
      static_cast<char>(217), static_cast<char>(241)));
  return _mm512_shuffle_epi8(table, v);
}
template <FileType T>
OP I start_unsigned(const unsigned char* slots, int rows, int half);  // matmul_tile.inl
template <FileType T>
OP I start_dot(const unsigned char* slots, int rows, int half) {
  return start_unsigned<T>(slots, rows, half);
}
template <FileType T>
constexpr int from_signed = 0;
template <FileType T>
struct Dot {
  static constexpr int narrow = 1;
  I w;
  [[gnu::always_inline]] inline explicit Dot(I codes) : w(codes) {}
  [[gnu::always_inline]] inline I add(I acc, I a) const {
    return _mm512_dpbusd_epi32(acc, w, a);
  }
};
// Weights come from memory, each line once for a block of rows. 4 KB ahead is some 60 lines, what two
// cores need in flight to cover the latency at full bandwidth.
constexpr int64_t fetch_ahead = 4096;
constexpr int fetch_rows = 8;
OP I bf16_bits(F x) {
  const I v = _mm512_castps_si512(x);
  const I even = bit_and(shift_right_dword<16>(v), dwords(1));
  const I rounded = shift_right_dword<16>(add_int(v, add_int(even, dwords(0x7fff))));
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                               bit_or(shift_right_dword<16>(v), dwords(0x40)));
}

#include "backend/cpu/matmul_tile.inl"
