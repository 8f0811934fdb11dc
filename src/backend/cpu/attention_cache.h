// How a cache's elements enter a product. A step is one vector: 16 tokens of `pack` key dimensions,
// or 16 dimensions of `pack` tokens' values, step_bytes in the cache. The other factor (query or
// weights) is kept as step_floats floats a step. Included after a vec_ISA.h; everything has
// internal linkage.
//
// score_tiles, value_vectors: how many vectors of keys or values up to four queries share at a
// time, by the number of registers.
#pragma once
#include "backend/cpu/kv_layout.h"

namespace orlop::cpu {
namespace {

template <class V>
struct FloatSums {
  static constexpr bool integers = false;
  static constexpr int score_chains = 1;
  using Sum = typename V::F;
  static inline Sum zero() { return V::zero(); }
  static inline Sum load_sum(const float* p) { return V::load(p); }
  static inline void store_sum(float* p, Sum x) { V::store(p, x); }
};

template <class V, int tiles, int vectors>
struct CacheF32 : FloatSums<V> {
  static constexpr int pack = 1, step_floats = 1, step_bytes = 64;
  static constexpr int score_tiles = tiles, value_vectors = vectors;
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
};

template <class V, int tiles, int vectors>
struct CacheF16 : CacheF32<V, tiles, vectors> {
  static constexpr int step_bytes = 32;
  using Item = typename CacheF32<V, tiles, vectors>::Item;
  static inline Item load(const char* p) { return {V::load_f16(p, p + 16)}; }
  static inline Item load_half(const char* p, bool) { return load(p); }
};

template <class V, int tiles, int vectors>
struct CacheBf16 : FloatSums<V> {  // widened to f32: the first of each pair, then the second
  static constexpr int pack = 2, step_floats = 2, step_bytes = 64;
  static constexpr int score_tiles = tiles, value_vectors = vectors;
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
};

// Codes: products of 16-bit integers, exact sums of 32 bits. A factor reaches 32767, an int8 code
// 127: sums over 512 dimensions, or the 256 tokens of a chunk, stay below 2^31.
template <class V, int chains, int vectors>
struct CacheI8 {
  static constexpr bool integers = true;
  static constexpr int pack = 2, step_floats = 1, step_bytes = 32;
  static constexpr int score_tiles = 1, value_vectors = vectors;  // every tile has its own factors
  static constexpr int score_chains = chains;
  using F = typename V::F;
  using Sum = typename V::I;
  using Item = typename V::I;
  using Factor = typename V::I;
  static inline Sum zero() { return V::zero_int(); }
  static inline Sum load_sum(const float* p) { return V::load_int(p); }
  static inline void store_sum(float* p, Sum x) { V::store_int(p, x); }
  static inline Item load(const char* p) { return V::pairs_i8(p); }
  // The other token's weight is zero, and its code a number.
  static inline Item load_half(const char* p, bool) { return V::pairs_i8(p); }
  static inline Factor factor(const float* w) { return V::set1_pair(w); }
  static inline void add_product(Sum& sum, const Item& x, const Factor& w) {
    sum = V::add_pairs(sum, x, w);
  }
  static inline F put16(float* to, F x) { return V::put_int16(to, x); }
};

template <class V, int chains, int vectors>
struct CacheU4 : CacheI8<V, chains, vectors> {
  static constexpr int step_bytes = 16;
  using Item = typename V::I;
  static inline Item load(const char* p) { return V::pairs_u4(p); }
  static inline Item load_half(const char* p, bool) { return V::pairs_u4(p); }
};

}  // namespace
}  // namespace orlop::cpu
