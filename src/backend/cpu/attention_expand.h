// Tiles of a cache that the products cannot take as they lie (codes, f16, half tiles of 8 tokens),
// expanded to tiles that they can: bf16 pairs for C::pack 2, f32 for 1. Included after a vec_ISA.h;
// everything has internal linkage.
//
// int8 and uint4 values expand to their codes, which bf16 holds exactly: scales go into the weights.
// int8 keys expand to codes too: their scales go into the scores. uint4 keys, whose scales are per
// channel, expand to scale * code rounded to bf16; what the centres add to every score of a tile is
// computed once a query and tile in f32, so that a large offset costs no precision.
#pragma once
#include "backend/cpu/kv_put.h"

namespace orlop::cpu {
namespace {

// Where 16 tokens lie: a tile, or two of 8 tokens.
struct TileSource {
  const char* keys[2];
  const char* values[2];
};

template <class V, class C>
class Expand {
 public:
  Expand(const KvDesc& kv)
      : type_(kv.type), layout_(kv), dims_(kv.head_dim), width_(padded_dim(kv.head_dim)),
        halves_(layout_.tokens == 8) {}

  // Do the products take the cache's own tiles?
  bool needless() const {
    return !halves_ && (type_ == KvType::f32 || type_ == KvType::bf16);
  }

  void keys(const TileSource& from, char* to) const {
    const char* a = from.keys[0];
    if constexpr (C::pack == 1) {
      const int elem = type_ == KvType::f32 ? 4 : 2;
      const char* b = halves_ ? from.keys[1] : a + 8 * elem;
      const int64_t stride = layout_.tokens * elem;
      for (int d = 0; d < dims_; ++d, a += stride, b += stride, to += 64) {
        if (type_ == KvType::f32)
          join32(to, a, b);
        else
          V::store(reinterpret_cast<float*>(to), V::load_f16(a, b));
      }
    } else if (type_ == KvType::bf16) {
      const char* b = from.keys[1];
      for (int d = 0; d < dims_; d += 2, a += 32, b += 32, to += 64) join32(to, a, b);
    } else if (type_ == KvType::int8) {
      const char* b = halves_ ? from.keys[1] : a + 8;
      const int stride = layout_.tokens;
      for (int d = 0; d < dims_; d += 2, a += 2 * stride, b += 2 * stride, to += 64)
        V::store_pairs(to, V::load_i8(a, b), V::load_i8(a + stride, b + stride));
    } else {
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(a + layout_.key_extra) + dims_;
      for (int d = 0; d < dims_; d += 2, a += 16, to += 64)
        C::put_pairs(to, V::mul(V::load_u4(a), V::set1(bf16_to_f32(scales[d]))),
                     V::mul(V::load_u4(a + 8), V::set1(bf16_to_f32(scales[d + 1]))));
    }
  }

  // int8: the tokens' scales.
  typename V::F key_scales(const TileSource& from) const {
    return extra(from.keys, layout_.key_extra, [](auto a, auto b) { return V::load_bf16(a, b); });
  }
  // uint4: the channels' centres, [width]; zero where there is no channel.
  void key_centres(const TileSource& from, float* to) const {
    const auto* centres = reinterpret_cast<const uint16_t*>(from.keys[0] + layout_.key_extra);
    for (int d = 0; d < width_; d += 16) {
      const bool half = dims_ - d < 16;
      V::store(to + d, V::load_f16(centres + d, half ? zeros : centres + d + 8));
    }
  }

  void values(const TileSource& from, char* to) const {
    const int64_t row = layout_.value_extra / layout_.tokens;
    const char* halves[2] = {from.values[0], halves_ ? from.values[1] : from.values[0] + 8 * row};
    for (int half = 0; half < 2; ++half) {
      const char* a = halves[half];
      if (type_ == KvType::f32 || type_ == KvType::bf16) {
        __builtin_memcpy(to, a, static_cast<size_t>(8 * row));
        to += 8 * row;
      } else if constexpr (C::pack == 1) {
        for (int64_t i = 0; i < 8 * width_; i += 16, a += 32, to += 64)
          V::store(reinterpret_cast<float*>(to), V::load_f16(a, a + 16));
      } else {
        for (int pair = 0; pair < 4; ++pair, a += 2 * row)
          for (int d = 0; d < width_; d += 16, to += 64) {
            if (type_ == KvType::int8)
              V::store_pairs(to, V::load_i8(a + d, a + d + 8),
                             V::load_i8(a + row + d, a + row + d + 8));
            else
              V::store_pairs(to, V::load_u4(a + d / 2), V::load_u4(a + row + d / 2));
          }
      }
    }
  }

  // int8 and uint4: the tokens' scales; uint4: their centres.
  typename V::F value_scales(const TileSource& from) const {
    return extra(from.values, layout_.value_extra,
                 [](auto a, auto b) { return V::load_bf16(a, b); });
  }
  typename V::F value_centres(const TileSource& from) const {
    return extra(from.values, layout_.value_extra + 2 * layout_.tokens,
                 [](auto a, auto b) { return V::load_f16(a, b); });
  }

 private:
  static constexpr uint16_t zeros[8] = {};

  static void join32(char* to, const char* a, const char* b) {
    __builtin_memcpy(to, a, 32);
    __builtin_memcpy(to + 32, b, 32);
  }
  template <class Load>
  typename V::F extra(const char* const* tiles, int64_t at, Load load) const {
    return load(tiles[0] + at, halves_ ? tiles[1] + at : tiles[0] + at + 16);
  }

  const KvType type_;
  const KvLayout layout_;
  const int dims_, width_;
  const bool halves_;  // tiles of 8 tokens
};

}  // namespace
}  // namespace orlop::cpu
