// One token's keys and values into the tiles of a page. Included after a vec_ISA.h; everything has
// internal linkage. Rows of a call that share a tile may be stored at the same time: every store is
// of this token's bytes alone (or, uint4, of the rows that keep_pairs leaves together).
#pragma once
#include "backend/cpu/kv_code.h"
#include "backend/cpu/kv_layout.h"

namespace orlop::cpu {
namespace {

[[gnu::always_inline]] inline int lanes(int64_t left) {
  return left < 16 ? static_cast<int>(left) : 16;
}

// As turn(), from x to `to`, which is padded to whole vectors (and may be x).
inline void turn_vectors(const float* x, float* to, int dims) {
  const int block = turn_block(dims);
  const Vec::F scale = Vec::set1(1.0f / __builtin_sqrtf(static_cast<float>(block)));
  for (int d = 0; d < dims; d += 16) {
    Vec::F v = Vec::mul(Vec::load_n(x + d, lanes(dims - d)), scale);
    v = Vec::butterfly4(Vec::butterfly2(Vec::butterfly1(v)));
    Vec::store(to + d, block > 8 ? Vec::butterfly8(v) : v);
  }
  for (int h = 16; h < block; h *= 2)
    for (int i = 0; i < dims; i += 2 * h)
      for (int d = i; d < i + h; d += 16) {
        const Vec::F a = Vec::load(to + d), b = Vec::load(to + d + h);
        Vec::store(to + d, Vec::add(a, b));
        Vec::store(to + d + h, Vec::sub(a, b));
      }
}

// tile: bf16 [dims / 2][tokens][2]
inline void put_bf16_key(uint16_t* tile, int tokens, int token, const float* k, int dims) {
  for (int d = 0; d < dims; d += 16) {
    const int n = lanes(dims - d);
    alignas(64) uint32_t bits[16];  // in the upper half of each
    Vec::store(reinterpret_cast<float*>(bits), Vec::round_bf16(Vec::load_n(k + d, n)));
    for (int i = 0; i < n; ++i)
      tile[((d + i) / 2 * tokens + token) * 2 + i % 2] = static_cast<uint16_t>(bits[i] >> 16);
  }
}

inline void put_f16(uint16_t* to, int64_t stride, const float* x, int dims) {
  const Vec::F low = Vec::set1(-65504.0f), high = Vec::set1(65504.0f);
  for (int d = 0; d < dims; d += 16) {
    const int n = lanes(dims - d);
    alignas(64) uint16_t bits[16];
    // The second of max and min is what NaN gives.
    Vec::store_f16(bits, Vec::min(high, Vec::max(low, Vec::load_n(x + d, n))));
    for (int i = 0; i < n; ++i) to[(d + i) * stride] = bits[i];
  }
}

inline void put_token(const KvDesc& kv, const KvLayout& layout, char* head, int offset,
                      const float* k, const float* v) {
  const int tokens = layout.tokens, token = offset % tokens, dims = kv.head_dim;
  const int width = padded_dim(dims);
  char* keys = head + offset / tokens * layout.key_tile;
  char* values = head + layout.values_at + offset / tokens * layout.value_tile;
  auto* k16 = reinterpret_cast<uint16_t*>(keys);
  auto* v16 = reinterpret_cast<uint16_t*>(values);
  auto* value_codes = reinterpret_cast<unsigned char*>(values);
  auto* value_extra = reinterpret_cast<uint16_t*>(values + layout.value_extra);
  alignas(64) float turned[attention_block_dims];
  if (is_coded(kv.type)) {
    turn_vectors(v, turned, dims);
    v = turned;
  }
  switch (kv.type) {
    case KvType::f32:
      for (int d = 0; d < dims; ++d) {
        reinterpret_cast<float*>(keys)[d * tokens + token] = k[d];
        reinterpret_cast<float*>(values)[token * width + d] = v[d];
      }
      return;
    case KvType::bf16:
      put_bf16_key(k16, tokens, token, k, dims);
      v16 += token / 2 * width * 2 + token % 2;
      for (int d = 0; d < dims; d += 16) {
        const int n = lanes(dims - d);
        alignas(64) uint32_t bits[16];
        Vec::store(reinterpret_cast<float*>(bits), Vec::round_bf16(Vec::load_n(v + d, n)));
        for (int i = 0; i < n; ++i) v16[(d + i) * 2] = static_cast<uint16_t>(bits[i] >> 16);
      }
      return;
    case KvType::f16:
      put_f16(k16 + token, tokens, k, dims);
      put_f16(v16 + token * width, 1, v, dims);
      return;
    case KvType::int8:  // keys: kv_seal
      value_extra[token] = put_int8(v, dims, value_codes + token / 2 * width * 2 + token % 2);
      return;
    case KvType::uint4: {
      const Grid g = put_uint4(v, dims, value_codes + token / 2 * width, token % 2);
      value_extra[token] = g.scale;
      value_extra[tokens + token] = g.centre;
      return;
    }
  }
}

}  // namespace
}  // namespace orlop::cpu
