// Attention over one block of queries, written once for every vector ISA. Included after a
// vec_ISA.h by a file that wraps it in its own functions; everything has internal linkage.
//
// Keys are reduced in chunks of attention_chunk at absolute positions. Within a chunk every query
// (a row and a head) takes: scores of its own keys, their maximum, weights exp(score - maximum), the
// sum of the weights as the products take them (rounded to bf16 with a bf16 cache), values weighted
// and added in ascending order of tokens. Chunks are folded in ascending order. Each of these is one
// chain of operations per query and does not depend on the queries beside it, so a prompt in one
// call and token by token give the same bits. Keys outside a query's range are replaced, never
// multiplied by zero: their slots may hold NaN.
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
};

// One block of queries: query i is row i / heads, head i % heads of the block.
template <class V, class C>
class AttentionTile {
  using F = typename V::F;
  static constexpr int chunk_tiles = attention_chunk / 16;
  static constexpr int tile_steps = 16 / C::pack;      // steps of 16 tokens (or dimensions)
  static constexpr int score_stride = attention_chunk;  // floats a query
  static constexpr int weight_tile = tile_steps * C::step_floats;
  static constexpr float infinity = __builtin_inff();

 public:
  AttentionTile(const AttentionArgs& a, const AttentionBlock& b)
      : a_(a), b_(b), layout_(a.kv), dims_(a.kv.head_dim), width_(padded_dim(dims_)),
        query_stride_(width_ / 16 * weight_tile) {}

  void run() {
    pack_queries();
    const int queries = b_.rows * b_.heads;
    for (int i = 0; i < queries; ++i) {
      total_max_[i] = -infinity;
      total_sum_[i] = 0;
    }
    for (int i = 0; i < queries * width_; i += 16) V::store(folded_ + i, V::zero());
    for (int32_t c = b_.chunk_begin; c < b_.chunk_end; ++c) chunk(c);
    if (!b_.partials) write_out();
  }

  // Folds the records that run() left.
  void combine() {
    for (int r = 0; r < b_.rows; ++r)
      for (int h = 0; h < b_.heads; ++h) {
        const int i = r * b_.heads + h;
        total_max_[i] = -infinity;
        total_sum_[i] = 0;
        for (int d = 0; d < width_; d += 16) V::store(folded_ + i * width_ + d, V::zero());
        for (int32_t c = b_.chunk_begin; c < b_.chunk_end; ++c) {
          if (range_begin(r, c) >= range_end(r, c)) continue;
          const float* from = record(r, h, c);
          fold(i, from[width_], from[width_ + 1], from);
        }
      }
    write_out();
  }

 private:
  int position(int row) const { return b_.seq->pos_begin + b_.row + row; }
  // A row's keys in chunk c, counted from the chunk's first.
  int range_begin(int row, int c) const {
    const int first = a_.window > 0 ? position(row) - a_.window + 1 : 0;
    const int begin = first - c * attention_chunk;
    return begin > 0 ? begin : 0;
  }
  int range_end(int row, int c) const {
    const int end = position(row) + 1 - c * attention_chunk;
    return end < attention_chunk ? end : attention_chunk;
  }
  int64_t call_row(int row) const { return int64_t{b_.seq->row_begin} + b_.row + row; }
  float* record(int row, int head, int c) const {
    return b_.partials +
           ((call_row(row) * a_.heads + b_.head + head) * b_.partial_chunks + c) *
               attention_record(dims_);
  }

  void pack_queries() {
    for (int r = 0; r < b_.rows; ++r)
      for (int h = 0; h < b_.heads; ++h) {
        const float* q = a_.q + call_row(r) * a_.q_stride + int64_t{b_.head + h} * dims_;
        float* to = query_ + (r * b_.heads + h) * query_stride_;
        for (int d = 0; d < dims_; d += 16, to += weight_tile) {
          const int n = dims_ - d < 16 ? dims_ - d : 16;
          C::put16(to, V::load_n(q + d, n));
        }
      }
  }

  void chunk(int32_t c) {
    // Rows that see keys of this chunk are neighbours: later ones start too late, earlier ones have
    // not reached it.
    int row_begin = 0, row_end = b_.rows;
    while (row_begin < row_end && range_end(row_begin, c) <= 0) ++row_begin;
    while (row_end > row_begin && range_begin(row_end - 1, c) >= attention_chunk) --row_end;
    if (row_begin == row_end) return;
    const int first = range_begin(row_begin, c), last = range_end(row_end - 1, c);
    find_tiles(c, first / 16, (last + 15) / 16);
    const int i0 = row_begin * b_.heads, i1 = row_end * b_.heads;
    all_scores(i0, i1, first / 16, (last + 15) / 16);
    // Whole steps that every row sees, done for all queries together; what a row has before and
    // after them it does alone.
    const int pack = C::pack;
    int common_begin = 0, common_end = attention_chunk / pack;
    for (int r = row_begin; r < row_end; ++r) {
      const int begin = range_begin(r, c), end = range_end(r, c);
      for (int i = r * b_.heads; i < (r + 1) * b_.heads; ++i) weigh(i, begin, end);
      if ((begin + pack - 1) / pack > common_begin) common_begin = (begin + pack - 1) / pack;
      if (end / pack < common_end) common_end = end / pack;
    }
    for (int i = i0 * width_; i < i1 * width_; i += 16) V::store(sum_ + i, V::zero());
    if (common_begin >= common_end) {
      for (int r = row_begin; r < row_end; ++r)
        row_values(r, range_begin(r, c), range_end(r, c));
    } else {
      for (int r = row_begin; r < row_end; ++r)
        row_values(r, range_begin(r, c), common_begin * pack);
      all_values(i0, i1, common_begin, common_end);
      for (int r = row_begin; r < row_end; ++r) row_values(r, common_end * pack, range_end(r, c));
    }
    for (int r = row_begin; r < row_end; ++r)
      for (int h = 0; h < b_.heads; ++h) {
        const int i = r * b_.heads + h;
        if (!b_.partials) {
          fold(i, max_[i], weight_sum_[i], sum_ + i * width_);
          continue;
        }
        float* to = record(r, h, c);
        for (int d = 0; d < width_; d += 16) V::store(to + d, V::load(sum_ + i * width_ + d));
        to[width_] = max_[i];
        to[width_ + 1] = weight_sum_[i];
      }
  }

  void find_tiles(int32_t c, int begin, int end) {
    const int page_tokens = a_.kv.page_tokens;
    for (int t = begin; t < end; ++t) {
      const int32_t at = c * attention_chunk + t * 16;
      const int64_t page = a_.page_table[b_.seq->page_begin + at / page_tokens];
      const char* head = static_cast<const char*>(a_.pages) + page * layout_.page +
                         b_.kv_head * layout_.head_block;
      const int tile = at % page_tokens / 16;
      keys_[t] = head + tile * layout_.key_tile;
      values_[t] = head + layout_.values_at + tile * layout_.value_tile;
    }
  }

  // ---- scores: [queries, 16 tokens] = q K, a chain over the dimensions each

  template <int queries, int tiles>
  void scores(int i, int tile) {
    F sum[queries][tiles];
    for (int q = 0; q < queries; ++q)
      for (int t = 0; t < tiles; ++t) sum[q][t] = V::zero();
    const float* query = query_ + i * query_stride_;
    const int steps = dims_ / C::pack;
    for (int s = 0; s < steps; ++s) {
      typename C::Factor w[queries];
#pragma GCC unroll 8
      for (int q = 0; q < queries; ++q)
        w[q] = C::factor(query + q * query_stride_ + s * C::step_floats);
#pragma GCC unroll 8
      for (int t = 0; t < tiles; ++t) {
        const typename C::Item key = C::load(keys_[tile + t] + s * 64);
#pragma GCC unroll 8
        for (int q = 0; q < queries; ++q) C::add_product(sum[q][t], key, w[q]);
      }
    }
    const F scale = V::set1(a_.scale);
    for (int q = 0; q < queries; ++q)
      for (int t = 0; t < tiles; ++t)
        V::store(score_ + (i + q) * score_stride + (tile + t) * 16, V::mul(sum[q][t], scale));
  }

  template <int queries>
  void scores_of(int i, int tile, int tile_end) {
    constexpr int tiles = queries == 1 ? 4 : C::score_tiles;
    for (; tile + tiles <= tile_end; tile += tiles) scores<queries, tiles>(i, tile);
    for (; tile < tile_end; ++tile) scores<queries, 1>(i, tile);
  }

  void all_scores(int i, int end, int tile, int tile_end) {
    for (; i + 4 <= end; i += 4) scores_of<4>(i, tile, tile_end);
    if (end - i == 3) scores_of<3>(i, tile, tile_end);
    if (end - i == 2) scores_of<2>(i, tile, tile_end);
    if (end - i == 1) scores_of<1>(i, tile, tile_end);
  }

  // Scores of keys [begin, end) become weights, in place: a tile's factors are never longer than its
  // scores. Lanes of the outermost tiles that lie outside get weight zero.
  void weigh(int i, int begin, int end) {
    float* row = score_ + i * score_stride;
    const int tile_begin = begin / 16, tile_end = (end + 15) / 16;
    F m = V::set1(-infinity);
    for (int t = tile_begin; t < tile_end; ++t) {
      F x = V::load(row + t * 16);
      if (t == tile_begin || t == tile_end - 1) {
        x = V::inside(x, begin - t * 16, end - t * 16, V::set1(-infinity));
        V::store(row + t * 16, x);
      }
      m = V::max(m, x);
    }
    const float max = V::largest(m);
    // With no weight at all -inf - -inf would be NaN.
    const F base = V::set1(max == -infinity ? 0.0f : max);
    F sum = V::zero();
    for (int t = tile_begin; t < tile_end; ++t) {
      const F x = V::exp(V::sub(V::load(row + t * 16), base));
      sum = V::add(sum, C::put16(row + t * weight_tile, x));
    }
    max_[i] = max;
    weight_sum_[i] = V::sum(sum);
  }

  // ---- values: [queries, dims] += weights V, a chain over the tokens each

  template <int queries, int vectors>
  void values(int i, int d, int step, int step_end) {
    F sum[queries][vectors];
    for (int q = 0; q < queries; ++q)
      for (int v = 0; v < vectors; ++v) sum[q][v] = V::load(sum_ + (i + q) * width_ + d + v * 16);
    const float* weights = score_ + i * score_stride;
    while (step < step_end) {
      const int tile = step / tile_steps;
      const int stop = (tile + 1) * tile_steps < step_end ? (tile + 1) * tile_steps : step_end;
      const char* from = values_[tile] + (int64_t{step % tile_steps} * width_ + d) * 4;
      for (; step < stop; ++step, from += width_ * 4) {
        typename C::Factor w[queries];
#pragma GCC unroll 8
        for (int q = 0; q < queries; ++q)
          w[q] = C::factor(weights + q * score_stride + step * C::step_floats);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          const typename C::Item value = C::load(from + v * 64);
#pragma GCC unroll 8
          for (int q = 0; q < queries; ++q) C::add_product(sum[q][v], value, w[q]);
        }
      }
    }
    for (int q = 0; q < queries; ++q)
      for (int v = 0; v < vectors; ++v) V::store(sum_ + (i + q) * width_ + d + v * 16, sum[q][v]);
  }

  template <int queries>
  void values_of(int i, int step, int step_end) {
    constexpr int vectors = queries == 1 ? 4 : C::value_vectors;
    int d = 0;
    for (; d + vectors * 16 <= width_; d += vectors * 16)
      values<queries, vectors>(i, d, step, step_end);
    for (; d < width_; d += 16) values<queries, 1>(i, d, step, step_end);
  }

  void all_values(int i, int end, int step, int step_end) {
    for (; i + 4 <= end; i += 4) values_of<4>(i, step, step_end);
    if (end - i == 3) values_of<3>(i, step, step_end);
    if (end - i == 2) values_of<2>(i, step, step_end);
    if (end - i == 1) values_of<1>(i, step, step_end);
  }

  // One row's tokens [begin, end), which may cut a step in two.
  void row_values(int row, int begin, int end) {
    if (begin >= end) return;
    const int i = row * b_.heads, pack = C::pack;
    if (begin % pack) half_values(i, begin / pack, false);
    const int step = (begin + pack - 1) / pack, step_end = end / pack;
    if (step < step_end) all_values(i, i + b_.heads, step, step_end);
    if (end % pack) half_values(i, end / pack, true);
  }

  // The first or the second token of a step, for one row's heads: the other may hold anything.
  void half_values(int i, int step, bool first) {
    const char* from = values_[step / tile_steps] + int64_t{step % tile_steps} * width_ * 4;
    for (int d = 0; d < width_; d += 16) {
      const typename C::Item value = C::load_half(from + d * 4, first);
      for (int q = i; q < i + b_.heads; ++q) {
        F sum = V::load(sum_ + q * width_ + d);
        C::add_product(sum, value, C::factor(score_ + q * score_stride + step * C::step_floats));
        V::store(sum_ + q * width_ + d, sum);
      }
    }
  }

  // ---- the chunks' parts, in ascending order

  void fold(int i, float max, float sum, const float* values) {
    const float before = total_max_[i], after = max > before ? max : before;
    const F base = V::set1(after == -infinity ? 0.0f : after);
    const F keep = V::exp(V::sub(V::set1(before), base));
    const F add = V::exp(V::sub(V::set1(max), base));
    total_sum_[i] =
        V::first(V::fma(V::set1(sum), add, V::mul(V::set1(total_sum_[i]), keep)));
    total_max_[i] = after;
    float* to = folded_ + i * width_;
    for (int d = 0; d < width_; d += 16)
      V::store(to + d, V::fma(V::load(values + d), add, V::mul(V::load(to + d), keep)));
  }

  void write_out() {
    for (int r = 0; r < b_.rows; ++r)
      for (int h = 0; h < b_.heads; ++h) {
        const int i = r * b_.heads + h;
        float* out = a_.out + call_row(r) * a_.out_stride + int64_t{b_.head + h} * dims_;
        const F inverse = V::set1(1.0f / total_sum_[i]);
        for (int d = 0; d < dims_; d += 16) {
          const int n = dims_ - d < 16 ? dims_ - d : 16;
          V::store_n(out + d, V::mul(V::load(folded_ + i * width_ + d), inverse), n);
        }
      }
  }

  const AttentionArgs& a_;
  const AttentionBlock& b_;
  const KvLayout layout_;
  const int dims_, width_, query_stride_;
  const char* keys_[chunk_tiles];    // 16 tokens each
  const char* values_[chunk_tiles];
  float max_[attention_queries], weight_sum_[attention_queries];
  float total_max_[attention_queries], total_sum_[attention_queries];
  alignas(64) float query_[attention_block_dims];
  alignas(64) float sum_[attention_block_dims];     // the chunk's weighted values
  alignas(64) float folded_[attention_block_dims];  // all chunks' so far
  alignas(64) float score_[attention_queries * score_stride];
};

}  // namespace
}  // namespace orlop::cpu
