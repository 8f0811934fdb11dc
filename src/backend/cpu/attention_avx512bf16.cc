#include "backend/cpu/vec_avx512.h"

#include "backend/cpu/attention_tile.h"

namespace orlop::cpu {
namespace {

// Pairs of bf16 multiplied and added by VDPBF16PS; a factor is a pair too.
struct CacheDot {
  static constexpr int pack = 2, step_floats = 1, score_tiles = 4, value_vectors = 4;
  using F = Vec::F;
  struct Item {
    __m512i x;
  };
  struct Factor {
    __m512i w;
  };
  [[gnu::always_inline]] static inline Item load(const char* p) { return {_mm512_loadu_si512(p)}; }
  [[gnu::always_inline]] static inline Item load_half(const char* p, bool first) {
    const unsigned keep = first ? 0x0000ffffu : 0xffff0000u;
    return {_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(keep)))};
  }
  [[gnu::always_inline]] static inline Factor factor(const float* w) {
    return {_mm512_castps_si512(_mm512_set1_ps(*w))};
  }
  [[gnu::always_inline]] static inline void add_product(F& sum, const Item& x, const Factor& w) {
    sum = _mm512_dpbf16_ps(sum, (__m512bh)x.x, (__m512bh)w.w);
  }
  [[gnu::always_inline]] static inline F put16(float* to, F x) {
    const __m256i pairs = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(pairs), 16));
  }
  [[gnu::always_inline]] static inline F get16(const float* from) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(pairs), 16));
  }
  [[gnu::always_inline]] static inline void put_pairs(char* to, F first, F second) {
    // All of the first, then all of the second: interleaved.
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                           8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, both));
  }
};

}  // namespace

namespace avx512bf16 {

using F32 = AttentionTile<Vec, CacheF32<Vec, 4, 4>>;
using Bf16 = AttentionTile<Vec, CacheDot>;

void attention(const AttentionArgs& a, const AttentionBlock& block) {
  if (!F32::fits(a.kv)) return ref::attention(a, block);
  if (bf16_products(a.kv.type))
    Bf16(a, block).run();
  else
    F32(a, block).run();
}

void attention_combine(const AttentionArgs& a, const AttentionBlock& block) {
  if (!F32::fits(a.kv)) return ref::attention_combine(a, block);
  F32(a, block).combine();
}

}  // namespace avx512bf16
}  // namespace orlop::cpu
