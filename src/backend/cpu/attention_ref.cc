// Causal attention, written plainly: each query by itself, chunk after chunk of keys, the chunks'
// softmax parts folded in ascending order (Milakov and Gimelshein 2018; Rabe and Staats 2021).
#include <cmath>

#include "backend/cpu/kv_layout.h"
#include "base/half.h"

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
  for (int32_t d = 0; d < dims; ++d)
    into.values[d] = into.values[d] * keep + from.values[d] * add;
  into.max = max;
}

float load(KvType type, const unsigned char* base, int64_t index) {
  if (type == KvType::f32) return reinterpret_cast<const float*>(base)[index];
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(base)[index]);
}

// The part that keys [lo, hi) of one chunk give to one query.
void chunk_part(const AttentionArgs& a, const KvLayout& layout, const AttentionSeq& seq,
                int32_t kv_head, const float* q, int32_t lo, int32_t hi, Part& part) {
  const int32_t dims = a.kv.head_dim, width = padded_dim(dims);
  const bool bf16 = a.kv.type == KvType::bf16;
  float scores[attention_chunk];
  const auto tile_at = [&](int32_t position) {
    const int32_t page = a.page_table[seq.page_begin + position / a.kv.page_tokens];
    return static_cast<const unsigned char*>(a.pages) + page * layout.page +
           kv_head * layout.head_block;
  };
  part.max = -INFINITY;
  for (int32_t t = lo; t < hi; ++t) {
    const int32_t offset = t % a.kv.page_tokens, in_tile = offset % 16;
    const unsigned char* keys = tile_at(t) + offset / 16 * layout.key_tile;
    float dot = 0;
    for (int32_t d = 0; d < dims; ++d) {
      const int64_t at = bf16 ? (d / 2 * 16 + in_tile) * 2 + d % 2 : d * 16 + in_tile;
      const float x = bf16 ? bf16_to_f32(f32_to_bf16(q[d])) : q[d];
      dot += x * load(a.kv.type, keys, at);
    }
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
    if (bf16) p = bf16_to_f32(f32_to_bf16(p));
    part.sum += p;
    const int32_t offset = t % a.kv.page_tokens, in_tile = offset % 16;
    const unsigned char* values = tile_at(t) + layout.values_at + offset / 16 * layout.value_tile;
    for (int32_t d = 0; d < dims; ++d) {
      const int64_t at = bf16 ? (in_tile / 2 * width + d) * 2 + in_tile % 2 : in_tile * width + d;
      part.values[d] += p * load(a.kv.type, values, at);
    }
  }
}

float* record(const AttentionArgs& a, const AttentionBlock& b, int64_t row, int32_t head,
              int32_t chunk) {
  return b.partials + ((row * a.heads + head) * b.partial_chunks + chunk) *
                          attention_record(a.kv.head_dim);
}

int32_t first_key(const AttentionArgs& a, int32_t position) {
  return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
}

// Chunks of one query: to the records, or folded into out; with combine, from records to out.
void query(const AttentionArgs& a, const AttentionBlock& b, int32_t r, int32_t head, bool combine) {
  const KvLayout layout(a.kv);
  const int32_t dims = a.kv.head_dim, width = padded_dim(dims);
  const int32_t position = b.seq->pos_begin + b.row + r, lo = first_key(a, position);
  const int64_t row = int64_t{b.seq->row_begin} + b.row + r;
  const float* q = a.q + row * a.q_stride + int64_t{head} * dims;
  float* out = a.out + row * a.out_stride + int64_t{head} * dims;
  float values[attention_block_dims], folded[attention_block_dims];
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
        chunk_part(a, layout, *b.seq, b.kv_head, q, begin, end, part);
      at[width] = part.max, at[width + 1] = part.sum;
    } else {
      chunk_part(a, layout, *b.seq, b.kv_head, q, begin, end, part);
    }
    if (!b.partials || combine) fold(total, part, dims);
  }
  if (!b.partials || combine)
    for (int32_t d = 0; d < dims; ++d) out[d] = folded[d] / total.sum;
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
