// Attention over int8 and uint4 codes, what differs from floats. Everything has internal linkage.
//
// Codes are multiplied as integers (attention_cache.h). Keys, x = centre + scale * code per
// channel: a query is scaled to 16 bits by its largest element; for every tile it is multiplied by
// the channels' scales over the largest of them, and rounded. What the centres add to all scores of
// the tile is summed in f32, so that a large offset costs no precision. Values: weights are
// multiplied by the tokens' scales and scaled to 16 bits by the largest of the chunk; what centres
// add is summed in f32. Sums of weights are of the weights themselves. Codes of uint4 are taken as
// they are, [0, 15], around centre - 8 * scale.
#pragma once
#include "backend/cpu/attention_pages.h"

namespace orlop::cpu {
namespace {

// What is kept of each token's values besides its codes.
template <class V, class C>
void AttentionTile<V, C>::token_scales(int t) {
  const char* at = values_[t] + layout_.value_extra;
  const F scale = V::load_bf16(at, at + 16);
  V::store(value_scale_ + t * 16, scale);
  if constexpr (uint4)
    V::store(value_min_ + t * 16, V::fnma(V::set1(8.0f), scale, V::load_bf16(at + 32, at + 48)));
}

// Scores of a tile of codes: the queries are packed anew, with the channels' scales.
template <class V, class C>
void AttentionTile<V, C>::tile_scores(int i0, int i1, int t) {
  const auto* centres = reinterpret_cast<const uint16_t*>(keys_[t] + layout_.key_extra);
  const uint16_t* scales = centres + dims_;
  static constexpr uint16_t nothing[8] = {};
  F top = V::zero();
  for (int d = 0; d < width_; d += 16) {
    const bool half = dims_ - d < 16;
    const F scale = V::load_bf16(scales + d, half ? nothing : scales + d + 8);
    const F centre = V::load_f16(centres + d, half ? nothing : centres + d + 8);
    V::store(channel_scale_ + d, scale);
    V::store(channel_centre_ + d, uint4 ? V::fnma(V::set1(8.0f), scale, centre) : centre);
    top = V::max(top, scale);
  }
  tile_scale_ = V::largest(top);
  const F inverse = V::set1(tile_scale_ > 0 ? 1 / tile_scale_ : 0.0f);
  for (int d = 0; d < width_; d += 16)
    V::store(channel_scale_ + d, V::mul(V::load(channel_scale_ + d), inverse));
  for (int i = i0; i < i1; ++i) {
    const float* q = query_ + i * width_;
    float* to = tile_query_ + i * query_stride_;
    F sum = V::zero();
    for (int d = 0; d < width_; d += 16, to += weight_tile) {
      const F x = V::load(q + d);
      sum = V::fma(x, V::load(channel_centre_ + d), sum);
      C::put16(to, V::mul(x, V::load(channel_scale_ + d)));
    }
    centre_score_[i] = V::sum(sum);  // NaN if a channel is
  }
  all_scores<false>(i0, i1, t, t + 1);
}

// Scores of the own tile, whose keys are in bf16: from the tail what is older than this call, else
// from its rows. Tokens after the last row count as zero until weigh() leaves them out.
template <class V, class C>
void AttentionTile<V, C>::own_scores(int i0, int i1, int t) {
  char* tile = reinterpret_cast<char*>(scratch_);
  const int first = own_tile() * 16, call = b_.seq->pos_begin;
  if (call > first)
    __builtin_memcpy(tile,
                     static_cast<const char*>(a_.tails) + b_.seq->seat * layout_.tail +
                         kv_head_ * layout_.tail_head,
                     static_cast<size_t>(layout_.tail_head));
  else
    __builtin_memset(tile, 0, static_cast<size_t>(layout_.tail_head));
  for (int p = first > call ? first : call; p <= position(b_.rows - 1); ++p)
    put_bf16_key(
        reinterpret_cast<uint16_t*>(tile), 16, p - first,
        a_.k + (int64_t{b_.seq->row_begin} + p - call) * a_.k_stride + int64_t{kv_head_} * dims_,
        dims_);
  for (int i = i0; i < i1; ++i) {
    const float* q = query_ + i * width_;
    F sum = V::zero();
    for (int d = 0; d < dims_; d += 2) {
      sum = V::fma(V::bf16_first(tile + d * 32), V::set1(q[d]), sum);
      sum = V::fma(V::bf16_second(tile + d * 32), V::set1(q[d + 1]), sum);
    }
    V::store(score_ + i * score_stride + t * 16, V::mul(sum, V::set1(query_scale_[i] * a_.scale)));
  }
}

template <class V, class C>
void AttentionTile<V, C>::weigh_integers(int i, int begin, int end, F base) {
  float* row = score_ + i * score_stride;
  const int tile_begin = begin / 16, tile_end = (end + 15) / 16;
  F sum = V::zero(), min_sum = V::zero(), top = V::zero(), poison = V::zero();
  for (int t = tile_begin; t < tile_end; ++t) {
    F scale = V::load(value_scale_ + t * 16),
      min = uint4 ? V::load(value_min_ + t * 16) : V::zero();
    if (t == tile_begin || t == tile_end - 1) {  // outside they may be NaN
      scale = V::inside(scale, begin - t * 16, end - t * 16, V::zero());
      min = V::inside(min, begin - t * 16, end - t * 16, V::zero());
    }
    const F x = V::exp(V::sub(V::load(row + t * 16), base));
    sum = V::add(sum, x);
    min_sum = V::fma(x, min, min_sum);
    const F weight = V::mul(x, scale);
    top = V::max(top, weight);
    poison = V::add(poison, V::sub(weight, weight));
    V::store(row + t * 16, weight);
  }
  const float largest = V::largest(top);
  const F scale = V::set1(to_most(largest));
  for (int t = tile_begin; t < tile_end; ++t)
    C::put16(row + t * weight_tile, V::mul(V::load(row + t * 16), scale));
  weight_sum_[i] = V::sum(sum);
  weight_min_[i] = V::sum(min_sum);
  weight_scale_[i] = largest * (1 / most) + V::sum(poison);
}

// Integers to floats, and what the mins add to every dimension.
template <class V, class C>
void AttentionTile<V, C>::finish_values(int i) {
  const F scale = V::set1(weight_scale_[i]), min = V::set1(uint4 ? weight_min_[i] : 0.0f);
  for (int d = 0; d < width_; d += 16) {
    float* at = sum_ + i * width_ + d;
    V::store(at, V::fma(V::to_float(V::load_int(at)), scale, min));
  }
}

// bf16 caches are this ISA's own; registers for all others as theirs. Heads too large for the
// scratch are rare enough for the reference.
template <class Bf16, class Run>
void of_type(KvType type, const Run& run) {
  constexpr int tiles = Bf16::score_tiles, vectors = Bf16::value_vectors;
  switch (type) {
    case KvType::f32:
      return run(CacheF32<Vec, tiles, vectors>{});
    case KvType::bf16:
      return run(Bf16{});
    case KvType::f16:
      return run(CacheF16<Vec, tiles, vectors>{});
    case KvType::int8:
      return run(CacheI8<Vec, tiles, vectors>{});
    case KvType::uint4:
      return run(CacheU4<Vec, tiles, vectors>{});
  }
}
template <class Bf16>
void attention_of_type(const AttentionArgs& a, const AttentionBlock& block) {
  of_type<Bf16>(a.kv.type, [&](auto cache) {
    using Tile = AttentionTile<Vec, decltype(cache)>;
    if (Tile::fits(a.kv))
      Tile(a, block).run();
    else
      ref::attention(a, block);
  });
}
template <class Bf16>
void combine_of_type(const AttentionArgs& a, const AttentionBlock& block) {
  using Tile = AttentionTile<Vec, CacheF32<Vec, 1, 1>>;  // records are floats
  if (a.kv.head_dim <= attention_scratch_dims ||
      (!is_coded(a.kv.type) && a.kv.page_tokens % 16 == 0))
    Tile(a, block).combine();
  else
    ref::attention_combine(a, block);
}

}  // namespace
}  // namespace orlop::cpu
