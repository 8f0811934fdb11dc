// Per-head RMS norm, rotary embedding (Su et al. 2021, half-split pairs) and the store into a page.
#include <cmath>

#include "backend/cpu/kv_code.h"
#include "backend/cpu/kv_layout.h"

namespace orlop::cpu::ref {
namespace {

void head_norm(float* x, int32_t dim, const float* weight, float eps) {
  float lanes[16] = {};
  for (int32_t i = 0; i < dim; ++i) lanes[i % 16] += x[i] * x[i];
  for (int step = 8; step; step /= 2)
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  const float inverse = 1.0f / std::sqrt(lanes[0] / static_cast<float>(dim) + eps);
  for (int32_t i = 0; i < dim; ++i) x[i] = x[i] * inverse * weight[i];
}

void rotate(float* x, int32_t half, const float* cos, const float* sin) {
  for (int32_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

// Rows of a call that share a tile may be stored at the same time: every store is of one token's
// bytes (or, uint4, of the rows that keep_pairs leaves together).
void store(const KvDesc& kv, const KvLayout& layout, unsigned char* head, int32_t offset,
           const float* k, const float* v) {
  const int32_t tokens = layout.tokens, token = offset % tokens, dims = kv.head_dim;
  const int32_t width = padded_dim(dims);
  unsigned char* keys = head + offset / tokens * layout.key_tile;
  unsigned char* values = head + layout.values_at + offset / tokens * layout.value_tile;
  auto* k16 = reinterpret_cast<uint16_t*>(keys);
  auto* v16 = reinterpret_cast<uint16_t*>(values);
  float turned[attention_block_dims];
  if (is_coded(kv.type)) {
    for (int32_t d = 0; d < dims; ++d) turned[d] = v[d];
    turn(turned, dims);
    v = turned;
  }
  switch (kv.type) {
    case KvType::f32:
      for (int32_t d = 0; d < dims; ++d) {
        reinterpret_cast<float*>(keys)[d * tokens + token] = k[d];
        reinterpret_cast<float*>(values)[token * width + d] = v[d];
      }
      return;
    case KvType::bf16:
      for (int32_t d = 0; d < dims; ++d) {
        k16[(d / 2 * tokens + token) * 2 + d % 2] = f32_to_bf16(k[d]);
        v16[(token / 2 * width + d) * 2 + token % 2] = f32_to_bf16(v[d]);
      }
      return;
    case KvType::f16:
      for (int32_t d = 0; d < dims; ++d) {
        k16[d * tokens + token] = f32_to_f16_finite(k[d]);
        v16[token * width + d] = f32_to_f16_finite(v[d]);
      }
      return;
    case KvType::int8:  // keys: kv_seal
      reinterpret_cast<uint16_t*>(values + layout.value_extra)[token] =
          put_int8(v, dims, values + token / 2 * width * 2 + token % 2);
      return;
    case KvType::uint4: {
      const Grid g = put_uint4(v, dims, values + token / 2 * width, token % 2);
      auto* extra = reinterpret_cast<uint16_t*>(values + layout.value_extra);
      extra[token] = g.scale;
      extra[tokens + token] = g.centre;
      return;
    }
  }
}

}  // namespace

void kv_store(const KvStoreArgs& a, int64_t begin, int64_t end) {
  const KvLayout layout(a.kv);
  const int32_t dims = a.kv.head_dim;
  keep_pairs(a, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    float* q = a.qkv + r * a.qkv_stride;
    float* k = q + int64_t{a.heads} * dims;
    const float* v = k + int64_t{a.kv.kv_heads} * dims;
    const float* cos = a.cos + r * a.half;
    const float* sin = a.sin + r * a.half;
    for (int32_t h = 0; h < a.heads + a.kv.kv_heads; ++h) {  // k follows q
      const float* weight = h < a.heads ? a.q_norm : a.k_norm;
      if (weight) head_norm(q + int64_t{h} * dims, dims, weight, a.eps);
      if (a.half) rotate(q + int64_t{h} * dims, a.half, cos, sin);
    }
    const int32_t slot = a.slots[r];
    unsigned char* page =
        static_cast<unsigned char*>(a.pages) + slot / a.kv.page_tokens * layout.page;
    for (int32_t h = 0; h < a.kv.kv_heads; ++h)
      store(a.kv, layout, page + h * layout.head_block, slot % a.kv.page_tokens,
            k + int64_t{h} * dims, v + int64_t{h} * dims);
  }
}

}  // namespace orlop::cpu::ref
