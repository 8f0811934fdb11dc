// Causal attention, written plainly: each query by itself, chunk after chunk of keys, the chunks'
// softmax parts folded in ascending order (Milakov and Gimelshein 2018; Rabe and Staats 2021).
#include <cmath>

#include "backend/cpu/kv_code.h"
#include "backend/cpu/kv_layout.h"

namespace orlop::cpu::ref {
namespace {

struct Part {
  float max, sum;
  float* values;  // [head_dim], weighted by exp(score - max)
};

// into = into + from, where an empty into has max -inf. A max of -inf (no weight at all) must not
// turn into inf - inf.
void fold(Part& into, const Part& from, int32_t dims) {
  const float max = from.max > into.max || from.max != from.max ? from.max : into.max;
  const float base = max == -INFINITY ? 0.0f : max;
  const float keep = std::exp(into.max - base), add = std::exp(from.max - base);
  into.sum = into.sum * keep + from.sum * add;
  for (int32_t d = 0; d < dims; ++d) into.values[d] = into.values[d] * keep + from.values[d] * add;
  into.max = max;
}

// Keys and values of one sequence and key head as floats.
class Cache {
 public:
  // position: of the query, which says in which form it sees the keys
  Cache(const AttentionArgs& a, const AttentionSeq& seq, int32_t kv_head, int32_t position)
      : a_(a),
        layout_(a.kv),
        seq_(seq),
        kv_head_(kv_head),
        position_(position),
        dims_(a.kv.head_dim) {}

  void key(int32_t t, float* to) const {
    if (is_coded(a_.kv.type) && t / 16 == position_ / 16) return own_key(t, to);
    const int32_t tokens = layout_.tokens, in_tile = t % tokens;
    const unsigned char* tile = head(t) + t % a_.kv.page_tokens / tokens * layout_.key_tile;
    const unsigned char* extra = tile + layout_.key_extra;
    for (int32_t d = 0; d < dims_; ++d) {
      const int32_t at = d * tokens + in_tile;
      switch (a_.kv.type) {
        case KvType::f32:
          to[d] = reinterpret_cast<const float*>(tile)[at];
          break;
        case KvType::f16:
          to[d] = f16_to_f32(u16(tile, at));
          break;
        case KvType::bf16:
          to[d] = bf16_to_f32(u16(tile, (d / 2 * tokens + in_tile) * 2 + d % 2));
          break;
        case KvType::int8:
          to[d] = f16_to_f32(u16(extra, d)) +
                  i8(tile, (d / 2 * 16 + in_tile) * 2 + d % 2) * bf16_to_f32(u16(extra, dims_ + d));
          break;
        case KvType::uint4:
          to[d] = uint4_value(tile[d / 2 * 16 + in_tile] >> (d % 2 * 4), f16_to_f32(u16(extra, d)),
                              u16(extra, dims_ + d));
          break;
      }
    }
  }

  void value(int32_t t, float* to) const {
    const int32_t tokens = layout_.tokens, in_tile = t % tokens, width = padded_dim(dims_);
    const unsigned char* tile =
        head(t) + layout_.values_at + t % a_.kv.page_tokens / tokens * layout_.value_tile;
    const unsigned char* extra = tile + layout_.value_extra;
    for (int32_t d = 0; d < dims_; ++d) {
      const int32_t at = in_tile * width + d;
      switch (a_.kv.type) {
        case KvType::f32:
          to[d] = reinterpret_cast<const float*>(tile)[at];
          break;
        case KvType::f16:
          to[d] = f16_to_f32(u16(tile, at));
          break;
        case KvType::bf16:
          to[d] = bf16_to_f32(u16(tile, (in_tile / 2 * width + d) * 2 + in_tile % 2));
          break;
        case KvType::int8:
          to[d] = i8(tile, (in_tile / 2 * width + d) * 2 + in_tile % 2) *
                  bf16_to_f32(u16(extra, in_tile));
          break;
        case KvType::uint4:
          to[d] = uint4_value(tile[in_tile / 2 * width + d] >> (in_tile % 2 * 4),
                              bf16_to_f32(u16(extra, tokens + in_tile)), u16(extra, in_tile));
          break;
      }
    }
  }

 private:
  static uint16_t u16(const unsigned char* base, int64_t index) {
    return reinterpret_cast<const uint16_t*>(base)[index];
  }
  static float i8(const unsigned char* base, int64_t index) {
    return static_cast<float>(static_cast<int8_t>(base[index]));
  }
  static float uint4_value(int code, float centre, uint16_t scale) {
    return centre + static_cast<float>((code & 15) - 8) * bf16_to_f32(scale);
  }
  const unsigned char* head(int32_t t) const {
    const int32_t page = a_.page_table[seq_.page_begin + t / a_.kv.page_tokens];
    return static_cast<const unsigned char*>(a_.pages) + page * layout_.page +
           kv_head_ * layout_.head_block;
  }
  void own_key(int32_t t, float* to) const {
    if (t >= seq_.pos_begin) {
      const int64_t row = int64_t{seq_.row_begin} + t - seq_.pos_begin;
      const float* k = a_.k + row * a_.k_stride + int64_t{kv_head_} * dims_;
      for (int32_t d = 0; d < dims_; ++d) to[d] = bf16_to_f32(f32_to_bf16(k[d]));
      return;
    }
    const unsigned char* tail = static_cast<const unsigned char*>(a_.tails) +
                                seq_.seat * layout_.tail + kv_head_ * layout_.tail_head;
    for (int32_t d = 0; d < dims_; ++d)
      to[d] = bf16_to_f32(u16(tail, (d / 2 * 16 + t % 16) * 2 + d % 2));
  }

  const AttentionArgs& a_;
  const KvLayout layout_;
  const AttentionSeq& seq_;
  const int32_t kv_head_, position_, dims_;
};

// The part that keys [lo, hi) of one chunk give to one query.
void chunk_part(const AttentionArgs& a, const Cache& cache, const float* q, int32_t lo, int32_t hi,
                Part& part) {
  const int32_t dims = a.kv.head_dim;
  const bool rounds = a.kv.type == KvType::bf16;
  float scores[attention_chunk], x[attention_block_dims];
  part.max = -INFINITY;
  for (int32_t t = lo; t < hi; ++t) {
    cache.key(t, x);
    float dot = 0;
    for (int32_t d = 0; d < dims; ++d)
      dot += (rounds ? bf16_to_f32(f32_to_bf16(q[d])) : q[d]) * x[d];
    scores[t - lo] = dot * a.scale;
    if (scores[t - lo] > part.max || scores[t - lo] != scores[t - lo]) part.max = scores[t - lo];
  }
  const float base = part.max == -INFINITY ? 0.0f : part.max;
  part.sum = 0;
  for (int32_t d = 0; d < dims; ++d) part.values[d] = 0;
  for (int32_t t = lo; t < hi; ++t) {
    float p = std::exp(scores[t - lo] - base);
    // Weights are rounded as the products take them; their sum is that of the rounded ones, so that
    // they still add up to one.
    if (rounds) p = bf16_to_f32(f32_to_bf16(p));
    part.sum += p;
    cache.value(t, x);
    for (int32_t d = 0; d < dims; ++d) part.values[d] += p * x[d];
  }
}

float* record(const AttentionArgs& a, const AttentionBlock& b, int64_t row, int32_t head,
              int32_t chunk) {
  return b.partials +
         ((row * a.heads + head) * b.partial_chunks + chunk) * attention_record(a.kv.head_dim);
}

int32_t first_key(const AttentionArgs& a, int32_t position) {
  return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
}

// Chunks of one query: to the records, or folded into out; with combine, from records to out.
void query(const AttentionArgs& a, const AttentionBlock& b, int32_t r, int32_t head, bool combine) {
  const int32_t dims = a.kv.head_dim, width = padded_dim(dims);
  const int32_t position = b.seq->pos_begin + b.row + r, lo = first_key(a, position);
  const int64_t row = int64_t{b.seq->row_begin} + b.row + r;
  const float* q = a.q + row * a.q_stride + int64_t{head} * dims;
  float* out = a.out + row * a.out_stride + int64_t{head} * dims;
  float values[attention_block_dims], folded[attention_block_dims];
  const Cache cache(a, *b.seq, head / (a.heads / a.kv.kv_heads), position);
  Part total{-INFINITY, 0, folded};
  for (int32_t d = 0; d < dims; ++d) folded[d] = 0;
  for (int32_t c = b.chunk_begin; c < b.chunk_end; ++c) {
    const int32_t begin = c * attention_chunk > lo ? c * attention_chunk : lo;
    const int32_t stop = (c + 1) * attention_chunk;
    const int32_t end = stop < position + 1 ? stop : position + 1;
    if (begin >= end) continue;
    Part part{0, 0, values};
    if (b.partials) {
      float* at = record(a, b, row, head, c);
      part.values = at;
      if (combine)
        part.max = at[width], part.sum = at[width + 1];
      else
        chunk_part(a, cache, q, begin, end, part);
      at[width] = part.max, at[width + 1] = part.sum;
    } else {
      chunk_part(a, cache, q, begin, end, part);
    }
    if (!b.partials || combine) fold(total, part, dims);
  }
  if (!b.partials || combine) {
    for (int32_t d = 0; d < dims; ++d) out[d] = folded[d] / total.sum;
    if (is_coded(a.kv.type)) turn(out, dims);
  }
}

}  // namespace

void attention(const AttentionArgs& a, const AttentionBlock& b) {
  for (int32_t r = 0; r < b.rows; ++r)
    for (int32_t h = 0; h < b.heads; ++h) query(a, b, r, b.head + h, false);
}

void attention_combine(const AttentionArgs& a, const AttentionBlock& b) {
  for (int32_t r = 0; r < b.rows; ++r)
    for (int32_t h = 0; h < b.heads; ++h) query(a, b, r, b.head + h, true);
}

}  // namespace orlop::cpu::ref
