// How a cache's tiles enter products, for the ISAs that have no products of bf16 pairs. Everything
// has internal linkage.
#pragma once
#include "backend/cpu/kv_layout.h"

namespace orlop::cpu {
namespace {

// How a cache's elements enter a product. A step is one vector: 16 tokens of `pack` key dimensions,
// or 16 dimensions of `pack` tokens' values. The other factor (query or weights) is kept as
// step_floats floats a step.
//
// score_tiles, value_vectors: how many vectors of keys or values up to four queries share at a time,
// by the number of registers.
template <class V, int tiles, int vectors>
struct CacheF32 {
  static constexpr int pack = 1, step_floats = 1, score_tiles = tiles, value_vectors = vectors;
  using F = typename V::F;
  struct Item {
    F x;
  };
  struct Factor {
    F w;
  };
  static inline Item load(const char* p) { return {V::load(reinterpret_cast<const float*>(p))}; }
  static inline Item load_half(const char* p, bool) { return load(p); }  // a step is one token
  static inline Factor factor(const float* w) { return {V::set1(w[0])}; }
  static inline void add_product(F& sum, const Item& x, const Factor& w) {
    sum = V::fma(x.x, w.w, sum);
  }
  // Stores 16 factors (of consecutive dimensions or tokens); returns them as products take them.
  static inline F put16(float* to, F x) {
    V::store(to, x);
    return x;
  }
  static inline F get16(const float* from) { return V::load(from); }
};

template <class V, int tiles, int vectors>
struct CacheBf16 {  // expanded to f32: the first of each pair, then the second
  static constexpr int pack = 2, step_floats = 2, score_tiles = tiles, value_vectors = vectors;
  using F = typename V::F;
  struct Item {
    F first, second;
  };
  struct Factor {
    F first, second;
  };
  static inline Item load(const char* p) { return {V::bf16_first(p), V::bf16_second(p)}; }
  static inline Item load_half(const char* p, bool first) {
    return first ? Item{V::bf16_first(p), V::zero()} : Item{V::zero(), V::bf16_second(p)};
  }
  static inline Factor factor(const float* w) { return {V::set1(w[0]), V::set1(w[1])}; }
  static inline void add_product(F& sum, const Item& x, const Factor& w) {
    sum = V::fma(x.first, w.first, sum);
    sum = V::fma(x.second, w.second, sum);
  }
  static inline F put16(float* to, F x) {
    x = V::round_bf16(x);
    V::store(to, x);
    return x;
  }
  static inline F get16(const float* from) { return V::load(from); }
  // Sixteen pairs of elements, rounded as the cache rounds them.
  static inline void put_pairs(char* to, F first, F second) {
    V::store_pairs(to, V::round_bf16(first), V::round_bf16(second));
  }
};

}  // namespace
}  // namespace orlop::cpu
