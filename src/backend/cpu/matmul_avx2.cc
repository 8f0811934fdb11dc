// Linear layers with AVX2, FMA and F16C: two vectors of 8 columns a tile.
// No STL here: nothing compiled with these flags may be emitted for others to link to.
#include <immintrin.h>

#include "backend/cpu/matmul.h"

namespace orlop::cpu::avx2 {
namespace {

using I = __m256i;
using F = __m256;
using Mask = __m256i;
constexpr int lanes = 8;
constexpr int int8_rows = 4, int8_sums = 4, fp32_rows = 4;  // as 16 registers allow

#define OP [[gnu::always_inline]] inline
OP I load_int(const unsigned char* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
OP I zero_int() { return _mm256_setzero_si256(); }
OP I bytes(int b) { return _mm256_set1_epi8(static_cast<char>(b)); }
OP I dwords(int v) { return _mm256_set1_epi32(v); }
OP I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
OP I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
OP I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
OP I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
OP I max_unsigned(I a, I b) { return _mm256_max_epu32(a, b); }
template <int N> OP I shift_right(I v) { return _mm256_srli_epi16(v, N); }
template <int N> OP I shift_left(I v) { return _mm256_slli_epi16(v, N); }
template <int N> OP I shift_right_dword(I v) { return _mm256_srli_epi32(v, N); }
template <int N> OP I shift_right_signed(I v) { return _mm256_srai_epi32(v, N); }
template <int N> OP I shift_left_dword(I v) { return _mm256_slli_epi32(v, N); }
OP I load_i8(const unsigned char* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
OP I load_u8(const unsigned char* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
OP uint32_t reduce_max_unsigned(I v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
OP int32_t reduce_add(I v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}
OP void store_bytes(unsigned char* p, I v) {  // the low byte of 8 dwords
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

OP F zero() { return _mm256_setzero_ps(); }
OP F set_float(float v) { return _mm256_set1_ps(v); }
OP F load_float(const unsigned char* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
OP F load_f16(const unsigned char* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OP F broadcast(const unsigned char* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_ps(v);
}
OP I broadcast_int(const unsigned char* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return dwords(v);
}
OP void store(float* p, F v) { _mm256_storeu_ps(p, v); }
OP F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
OP F mul(F a, F b) { return _mm256_mul_ps(a, b); }
OP F add(F a, F b) { return _mm256_add_ps(a, b); }
OP F div(F a, F b) { return _mm256_div_ps(a, b); }
OP F min_float(F a, F b) { return _mm256_min_ps(a, b); }
OP F max_float(F a, F b) { return _mm256_max_ps(a, b); }
OP F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
OP I round_to_int(F a) { return _mm256_cvtps_epi32(a); }
OP F to_float(I a) { return _mm256_cvtepi32_ps(a); }
OP F as_float(I a) { return _mm256_castsi256_ps(a); }
OP I as_int(F a) { return _mm256_castps_si256(a); }
OP F select_equal(I a, I b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, as_float(_mm256_cmpeq_epi32(a, b)));
}
OP F negate(F a) { return _mm256_xor_ps(a, as_float(dwords(INT32_MIN))); }
OP Mask first_lanes(int n) {
  return _mm256_cmpgt_epi32(dwords(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OP F load_masked(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
OP void store_masked(float* p, Mask m, F v) { _mm256_maskstore_ps(p, m, v); }

OP I or_bit_plane(I v, const unsigned char* plane, int byte) {
  int32_t bits;
  __builtin_memcpy(&bits, plane, 4);
  const I spread = _mm256_shuffle_epi8(
      dwords(bits), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                     2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const I bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
  const I set = _mm256_cmpeq_epi8(bit_and(spread, bit), bit);
  return bit_or(v, bit_and(set, bytes(byte)));
}
OP I iq4_nl_lookup(I v) {  // ggml's iq4_nl codebook + 128
  const I table = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
      static_cast<char>(153), static_cast<char>(166), static_cast<char>(181), static_cast<char>(197),
      static_cast<char>(217), static_cast<char>(241)));
  return _mm256_shuffle_epi8(table, v);
}
// Codes of 8 bits are taken as signed, less 128: the dot of w8z lacks 128 times the sum.
template <FileType T>
constexpr bool eight_bits = pack_info(T).low_bits == 8 || T == FileType::iq4_nl;
template <FileType T>
constexpr int from_signed = eight_bits<T> ? -1 : 0;  // times 128 sums that a8's dots have too much
template <FileType T>
OP I start_unsigned(const unsigned char* slots, int rows, int half);  // matmul_tile.inl
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
// vpmaddubsw adds two products in int16: at most 2 * 127 times the largest code, so some of them may be
// added up there. Codes of 8 bits are made signed and their sign moved to the activation: at most
// 2 * 128 * 127, no room for a second one.
OP I add_words(I a, I b) { return _mm256_add_epi16(a, b); }
template <FileType T>
struct Dot {
  static constexpr PackInfo f = pack_info(T);
  static constexpr int largest = eight_bits<T> ? 128 : (1 << (f.low_bits + f.high_bits)) - 1;
  static constexpr int room = 32767 / (2 * 127 * largest);
  static constexpr int narrow = room > 8 ? 8 : room;
  I w, sign;
  [[gnu::always_inline]] inline explicit Dot(I codes) : w(codes), sign(codes) {
    if constexpr (eight_bits<T>) {
      sign = _mm256_xor_si256(codes, bytes(0x80));
      w = _mm256_abs_epi8(sign);
    }
  }
  [[gnu::always_inline]] inline I products(I a) const {
    if constexpr (eight_bits<T>) a = _mm256_sign_epi8(a, sign);
    return _mm256_maddubs_epi16(w, a);
  }
  [[gnu::always_inline]] inline I widen(I acc, I words) const {
    return add_int(acc, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  }
  [[gnu::always_inline]] inline I add(I acc, I a) const { return widen(acc, products(a)); }
};
constexpr int64_t fetch_ahead = 2048;
constexpr int fetch_rows = 2;
OP I bf16_bits(F x) {
  const I v = _mm256_castps_si256(x);
  const I even = bit_and(shift_right_dword<16>(v), dwords(1));
  const I rounded = shift_right_dword<16>(add_int(v, add_int(even, dwords(0x7fff))));
  const I nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, bit_or(shift_right_dword<16>(v), dwords(0x40)), nan);
}

#include "backend/cpu/matmul_tile.inl"
#include "backend/cpu/matmul_tables.inl"

}  // namespace

constexpr MatmulIsa matmul_isa = {compute_int8, compute_a8, compute_floats<false>,
                                  compute_floats<true>, epilogue};

}  // namespace orlop::cpu::avx2
