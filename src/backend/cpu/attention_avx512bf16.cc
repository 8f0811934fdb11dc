#include "backend/cpu/vec_avx512.h"

#include "backend/cpu/attention_codes.h"

namespace orlop::cpu {
namespace {

// Pairs of bf16 multiplied and added by VDPBF16PS; a factor is a pair too.
struct CacheDot : FloatSums<Vec> {
  static constexpr int pack = 2, step_floats = 1, step_bytes = 64, score_tiles = 4,
                       value_vectors = 4;
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
};

}  // namespace

namespace avx512bf16 {

void attention(const AttentionArgs& a, const AttentionBlock& block) {
  attention_of_type<CacheDot>(a, block);
}
void attention_combine(const AttentionArgs& a, const AttentionBlock& block) {
  combine_of_type<CacheDot>(a, block);
}

}  // namespace avx512bf16
}  // namespace orlop::cpu
