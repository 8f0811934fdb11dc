// The ops over single rows, written once for every vector ISA. Included after a vec_ISA.h;
// everything has internal linkage. Sums of squares: element i in lane i mod 16, lanes added as a
// tree.
#pragma once
#include "backend/cpu/kv_put.h"

namespace orlop::cpu {
namespace {

// out may be x
inline void rms_norm_row(const float* x, const float* weight, float eps, float* out, int64_t dim) {
  Vec::F squares = Vec::zero();
  for (int64_t i = 0; i < dim; i += 16) {
    const Vec::F v = dim - i < 16 ? Vec::load_n(x + i, lanes(dim - i)) : Vec::load(x + i);
    squares = Vec::fma(v, v, squares);
  }
  const float mean = Vec::sum(squares) / static_cast<float>(dim);
  const Vec::F inverse = Vec::set1(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < dim; i += 16) {
    const int n = lanes(dim - i);
    if (n < 16) {
      const Vec::F v = Vec::mul(Vec::load_n(x + i, n), inverse);
      Vec::store_n(out + i, Vec::mul(v, Vec::load_n(weight + i, n)), n);
    } else {
      Vec::store(out + i, Vec::mul(Vec::mul(Vec::load(x + i), inverse), Vec::load(weight + i)));
    }
  }
}

inline void norm_rows(const NormArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    rms_norm_row(a.x + r * a.x_stride, a.weight, a.eps, a.out + r * a.out_stride, a.dim);
}

inline void rotate(float* x, int32_t half, const float* cos, const float* sin) {
  for (int32_t i = 0; i < half; i += 16) {
    const int n = lanes(half - i);
    const Vec::F p = Vec::load_n(x + i, n), q = Vec::load_n(x + half + i, n);
    const Vec::F c = Vec::load_n(cos + i, n), s = Vec::load_n(sin + i, n);
    Vec::store_n(x + i, Vec::fnma(q, s, Vec::mul(p, c)), n);
    Vec::store_n(x + half + i, Vec::fma(p, s, Vec::mul(q, c)), n);
  }
}

inline void kv_store_rows(const KvStoreArgs& a, int64_t begin, int64_t end) {
  const KvLayout layout(a.kv);
  const int32_t dims = a.kv.head_dim;
  keep_pairs(a, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    float* q = a.qkv + r * a.qkv_stride;
    const float* k = q + int64_t{a.heads} * dims;
    const float* v = k + int64_t{a.kv.kv_heads} * dims;
    for (int32_t h = 0; h < a.heads + a.kv.kv_heads; ++h) {  // k follows q
      float* x = q + int64_t{h} * dims;
      const float* weight = h < a.heads ? a.q_norm : a.k_norm;
      if (weight) rms_norm_row(x, weight, a.eps, x, dims);
      if (a.half) rotate(x, a.half, a.cos + r * a.half, a.sin + r * a.half);
    }
    const int32_t slot = a.slots[r];
    char* page = static_cast<char*>(a.pages) + slot / a.kv.page_tokens * layout.page;
    for (int32_t h = 0; h < a.kv.kv_heads; ++h)
      put_token(a.kv, layout, page + h * layout.head_block, slot % a.kv.page_tokens,
                k + int64_t{h} * dims, v + int64_t{h} * dims);
  }
}

// ---- walks over a vocabulary -----------------------------------------------------------------

// Blocks first: the maximum of 1024 elements is compared, the block that raises it is searched.
inline int64_t argmax_row(const float* x, int64_t n, float* max) {
  float best = -__builtin_inff();
  int64_t at = 0;
  for (int64_t begin = 0; begin < n; begin += 1024) {
    const int64_t end = n - begin < 1024 ? n : begin + 1024;
    const Vec::F bound = Vec::set1(best);
    bool above = false;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) above |= Vec::any_above_or_nan(Vec::load(x + i), bound);
    for (; i < end; ++i) above |= !(x[i] <= best);
    if (!above) continue;
    for (i = begin; i < end; ++i) {
      if (x[i] != x[i]) return -1;
      if (x[i] > best) best = x[i], at = i;
    }
  }
  *max = best;
  return at;
}

// Sixteen chains of f32 over 4096 elements at most, then double.
inline double sum_exp_row(const float* x, int64_t n, float max) {
  const Vec::F top = Vec::set1(max);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += 4096) {
    const int64_t end = n - begin < 4096 ? n : begin + 4096;
    Vec::F sum = Vec::zero();
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) sum = Vec::add(sum, Vec::exp(Vec::sub(Vec::load(x + i), top)));
    if (i < end) {
      const int left = static_cast<int>(end - i);
      sum = Vec::add(sum, Vec::inside(Vec::exp(Vec::sub(Vec::load_n(x + i, left), top)), 0, left,
                                      Vec::zero()));
    }
    total += static_cast<double>(Vec::sum(sum));
  }
  return total;
}

inline void weights_row(float* x, int64_t n, float max, float temperature) {
  const Vec::F top = Vec::set1(max), t = Vec::set1(temperature);
  for (int64_t i = 0; i < n; i += 16) {
    const int here = lanes(n - i);
    if (here < 16)
      Vec::store_n(x + i, Vec::exp(Vec::div(Vec::sub(Vec::load_n(x + i, here), top), t)), here);
    else
      Vec::store(x + i, Vec::exp(Vec::div(Vec::sub(Vec::load(x + i), top), t)));
  }
}

inline double sum_row(const float* x, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += 4096) {
    const int64_t end = n - begin < 4096 ? n : begin + 4096;
    Vec::F sum = Vec::zero();
    for (int64_t i = begin; i < end; i += 16)
      sum = Vec::add(sum, Vec::load_n(x + i, lanes(end - i)));
    total += static_cast<double>(Vec::sum(sum));
  }
  return total;
}

}  // namespace
}  // namespace orlop::cpu
