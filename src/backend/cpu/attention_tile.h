// Attention over one block of queries, written once for every vector ISA. Included after a
// vec_ISA.h by a file that wraps it in its own functions; everything has internal linkage.
//
// Keys are reduced in chunks of attention_chunk at absolute positions. Within a chunk every query
// (a row and a head) takes: scores of its own keys, their maximum, weights exp(score - maximum),
// the sum of the weights as the products take them (rounded to bf16 with a bf16 cache), values
// weighted and added in ascending order of tokens. Chunks are folded in ascending order. Each of
// these is one chain of operations per query and does not depend on the queries beside it, so a
// prompt in one call and token by token give the same bits. Keys outside a query's range are
// replaced, never multiplied by zero: their slots may hold NaN. (Codes may be multiplied by zero:
// they are finite.)
//
// Codes (int8, uint4): attention_codes.h.
#pragma once
#include "backend/cpu/attention_cache.h"
#include "backend/cpu/kv_put.h"

namespace orlop::cpu {
namespace {

// Where 16 tokens lie: in a tile, or in two of 8 tokens.
struct TileSource {
  const char* keys[2];
  const char* values[2];
};

// One block of queries: query i is row i / heads, head i % heads of the block. Queries of one head of
// keys and values are neighbours.
template <class V, class C>
class AttentionTile {
  using F = typename V::F;
  static constexpr int chunk_tiles = attention_chunk / 16;
  static constexpr int tile_steps = 16 / C::pack;       // steps of 16 tokens (or dimensions)
  static constexpr int score_stride = attention_chunk;  // floats a query
  static constexpr int weight_tile = tile_steps * C::step_floats;
  static constexpr float infinity = __builtin_inff();
  static constexpr bool integers = C::integers, uint4 = C::step_bytes == 16;
  static constexpr float most = 32767;  // of an integer factor

 public:
  AttentionTile(const AttentionArgs& a, const AttentionBlock& b)
      : a_(a),
        b_(b),
        layout_(a.kv),
        dims_(a.kv.head_dim),
        width_(padded_dim(dims_)),
        query_stride_(width_ / 16 * weight_tile),
        value_step_(width_ / 16 * C::step_bytes),
        group_(b.heads / b.kv_heads),
        halves_(layout_.tokens == 8) {}

  // Whether heads of so many dimensions can be done here.
  static bool fits(const KvDesc& kv) {
    return kv.head_dim <= attention_scratch_dims || (!integers && kv.page_tokens % 16 == 0);
  }

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
    return b_.partials + ((call_row(row) * a_.heads + b_.head + head) * b_.partial_chunks + c) *
                             attention_record(dims_);
  }

  void pack_queries() {
    for (int r = 0; r < b_.rows; ++r)
      for (int h = 0; h < b_.heads; ++h) {
        const int i = r * b_.heads + h;
        const float* q = a_.q + call_row(r) * a_.q_stride + int64_t{b_.head + h} * dims_;
        // Codes: scaled, but packed anew for every tile.
        float* to = query_ + i * (integers ? width_ : query_stride_);
        F scale = V::set1(1.0f);
        if constexpr (integers) {
          F top = V::zero();
          for (int d = 0; d < dims_; d += 16)
            top = V::max(top, V::abs(V::load_n(q + d, dims_ - d < 16 ? dims_ - d : 16)));
          const float largest = V::largest(top);
          query_scale_[i] = largest * (1 / most);
          scale = V::set1(to_most(largest));
        }
        for (int d = 0; d < dims_; d += 16, to += integers ? 16 : weight_tile) {
          const F x = V::load_n(q + d, dims_ - d < 16 ? dims_ - d : 16);
          if constexpr (integers)
            V::store(to, V::mul(x, scale));
          else
            C::put16(to, x);
        }
      }
  }
  // What makes `largest` an integer factor's largest; nothing for as good as nothing.
  static float to_most(float largest) { return largest > 0x1p-100f ? most / largest : 0.0f; }

  void chunk(int32_t c) {
    // Rows that see keys of this chunk are neighbours: later ones start too late, earlier ones have
    // not reached it.
    int row_begin = 0, row_end = b_.rows;
    while (row_begin < row_end && range_end(row_begin, c) <= 0) ++row_begin;
    while (row_end > row_begin && range_begin(row_end - 1, c) >= attention_chunk) --row_end;
    if (row_begin == row_end) return;
    for (int k = 0; k < b_.kv_heads; ++k) {
      kv_head_ = b_.kv_head + k;
      first_ = k * group_;
      head_chunk(c, row_begin, row_end);
    }
  }

  // What chunk c gives to the queries of one head of keys and values.
  void head_chunk(int32_t c, int row_begin, int row_end) {
    const int first = range_begin(row_begin, c), last = range_end(row_end - 1, c);
    const int tile_begin = first / 16, tile_end = (last + 15) / 16;
    find_tiles(c, tile_begin, tile_end, last);
    const int i0 = row_begin * b_.heads + first_;
    const int i1 = (row_end - 1) * b_.heads + first_ + group_;
    if (b_.stream) find_next(c);
    if constexpr (integers) {
      for (int t = tile_begin; t < tile_end; ++t) {
        if (t + 2 < tile_end) fetch(keys_[t + 2], layout_.key_tile);
        fetch(values_[t], layout_.value_tile);
        if (c * chunk_tiles + t == own_tile())
          own_scores(i0, i1, t);
        else
          tile_scores(i0, i1, t);
      }
      for (int t = tile_begin; t < tile_end; ++t) token_scales(t);
    } else if (halves_) {
      for (int t = tile_begin; t < tile_end; ++t) {
        join(keys_[t], source_[t].keys, dims_ / C::pack, C::step_bytes / 2);
        all_scores<false>(i0, i1, t, t + 1);
      }
    } else if (b_.stream) {
      all_scores<true>(i0, i1, tile_begin, tile_end);
    } else {
      all_scores<false>(i0, i1, tile_begin, tile_end);
    }
    for (int i = i0; i < i1; ++i)
      weigh(i, range_begin(i / b_.heads, c), range_end(i / b_.heads, c));
    for (int i = i0; i < i1; ++i)
      for (int d = 0; d < width_; d += 16) C::store_sum(sum_ + i * width_ + d, C::zero());
    if (halves_) {
      for (int t = tile_begin; t < tile_end; ++t) {
        join(values_[t], source_[t].values, 1, 8 / C::pack * value_step_);
        weighted_values(c, row_begin, row_end, t * 16, t * 16 + 16);
      }
    } else {
      weighted_values(c, row_begin, row_end, 0, attention_chunk);
    }
    if constexpr (integers)
      for (int i = i0; i < i1; ++i) finish_values(i);
    for (int i = i0; i < i1; ++i) {
      if (!b_.partials) {
        fold(i, max_[i], weight_sum_[i], sum_ + i * width_);
        continue;
      }
      float* to = record(i / b_.heads, i % b_.heads, c);
      for (int d = 0; d < width_; d += 16) V::store(to + d, V::load(sum_ + i * width_ + d));
      to[width_] = max_[i];
      to[width_ + 1] = weight_sum_[i];
    }
  }

  // Where tiles lie: attention_pages.h.
  void find_tiles(int32_t c, int begin, int end, int last);
  void find_next(int32_t c);
  static void fetch(const char* p, int64_t bytes);
  static void fetch_step(const char*& next, int number);
  void join(const char*& tile, const char* const* halves, int steps, int64_t half_step);

  // Codes: attention_codes.h.
  void token_scales(int t);
  void tile_scores(int i0, int i1, int t);
  void own_scores(int i0, int i1, int t);
  int own_tile() const { return position(0) / 16; }  // in which all of the block's rows stand
  void weigh_integers(int i, int begin, int end, F base);
  void finish_values(int i);

  // ---- scores: [queries, 16 tokens] = q K, a chain over the dimensions each (integers are exact
  // and can have several chains, which do not wait for each other)

  // fetching: for every line that is read, one of the next chunk is asked for.
  template <int queries, int tiles, bool fetching>
  void scores(int i, int tile) {
    constexpr int chains = C::score_chains, parts = fetching && !integers ? tiles : 1;
    typename C::Sum sum[queries][tiles * chains];
    for (int q = 0; q < queries; ++q)
      for (int t = 0; t < tiles * chains; ++t) sum[q][t] = C::zero();
    const float* query = (integers ? tile_query_ : query_) + i * query_stride_;
    const int steps = dims_ / C::pack / parts;  // a multiple of 4, or of 1 where there are parts
    for (int part = 0; part < parts; ++part) {
      const char* next = fetching ? next_keys_[tile + part] : nullptr;
      for (int begin = part * steps; begin < (part + 1) * steps; begin += chains)
#pragma GCC unroll 8
        for (int chain = 0; chain < chains; ++chain) {
          const int s = begin + chain;
          typename C::Factor w[queries];
#pragma GCC unroll 8
          for (int q = 0; q < queries; ++q)
            w[q] = C::factor(query + q * query_stride_ + s * C::step_floats);
#pragma GCC unroll 8
          for (int t = 0; t < tiles; ++t) {
            const typename C::Item key = C::load(keys_[tile + t] + s * C::step_bytes);
            if constexpr (fetching && !integers) fetch_step(next, t);
#pragma GCC unroll 8
            for (int q = 0; q < queries; ++q) C::add_product(sum[q][chain * tiles + t], key, w[q]);
          }
        }
    }
    for (int q = 0; q < queries; ++q)
      for (int t = 0; t < tiles; ++t) {
        if constexpr (chains > 1)
          for (int chain = 1; chain < chains; ++chain)
            sum[q][t] = V::add_int(sum[q][t], sum[q][chain * tiles + t]);
        V::store(score_ + (i + q) * score_stride + (tile + t) * 16, to_score(sum[q][t], i + q));
      }
  }

  F to_score(const typename C::Sum& sum, int i) const {
    const F scale = V::set1(a_.scale);
    if constexpr (integers)
      return V::mul(V::fma(V::to_float(sum), V::set1(tile_scale_), V::set1(centre_score_[i])),
                    V::set1(query_scale_[i] * a_.scale));
    else
      return V::mul(sum, scale);
  }

  template <int queries, bool fetching>
  void scores_of(int i, int tile, int tile_end) {
    constexpr int tiles = queries == 1 && !integers ? 4 : C::score_tiles;
    for (; tile + tiles <= tile_end; tile += tiles) scores<queries, tiles, fetching>(i, tile);
    for (; tile < tile_end; ++tile) scores<queries, 1, fetching>(i, tile);
  }

  template <bool fetching>
  void all_scores(int i, int end, int tile, int tile_end) {
    for (; i + 4 <= end; i += 4) scores_of<4, fetching>(i, tile, tile_end);
    if (end - i == 3) scores_of<3, fetching>(i, tile, tile_end);
    if (end - i == 2) scores_of<2, fetching>(i, tile, tile_end);
    if (end - i == 1) scores_of<1, fetching>(i, tile, tile_end);
  }

  // Scores of keys [begin, end) become weights, in place: a tile's factors are never longer than
  // its scores. Lanes of the outermost tiles that lie outside get weight zero.
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
    max_[i] = max;
    if constexpr (integers) return weigh_integers(i, begin, end, base);
    F sum = V::zero();
    for (int t = tile_begin; t < tile_end; ++t) {
      const F x = V::exp(V::sub(V::load(row + t * 16), base));
      sum = V::add(sum, C::put16(row + t * weight_tile, x));
    }
    weight_sum_[i] = V::sum(sum);
  }

  // ---- values: [queries, dims] += weights V, a chain over the tokens each

  // Tokens [lo, hi) of chunk c. Whole steps that every row sees are done for all queries together;
  // what a row has before and after them it does alone.
  void weighted_values(int c, int row_begin, int row_end, int lo, int hi) {
    const int pack = C::pack;
    int common_begin = lo / pack, common_end = hi / pack;
    for (int r = row_begin; r < row_end; ++r) {
      const int begin = (range_begin(r, c) + pack - 1) / pack, end = range_end(r, c) / pack;
      common_begin = begin > common_begin ? begin : common_begin;
      common_end = end < common_end ? end : common_end;
    }
    const bool common = common_begin < common_end;
    if (!common) common_begin = common_end = hi / pack;
    for (int r = row_begin; r < row_end; ++r) {
      const int begin = range_begin(r, c), end = range_end(r, c);
      const int stop = common_begin * pack;
      row_values(r, begin > lo ? begin : lo, end < stop ? end : stop);
    }
    if (!common) return;
    const int i0 = row_begin * b_.heads + first_;
    const int i1 = (row_end - 1) * b_.heads + first_ + group_;
    if (!integers && b_.stream)
      all_values<!integers>(i0, i1, common_begin, common_end);
    else
      all_values<false>(i0, i1, common_begin, common_end);
    for (int r = row_begin; r < row_end; ++r) {
      const int end = range_end(r, c);
      row_values(r, common_end * pack, end < hi ? end : hi);
    }
  }

  template <int queries, int vectors, bool fetching>
  void values(int i, int d, int step, int step_end) {
    typename C::Sum sum[queries][vectors];
    for (int q = 0; q < queries; ++q)
      for (int v = 0; v < vectors; ++v)
        sum[q][v] = C::load_sum(sum_ + (i + q) * width_ + d + v * 16);
    const float* weights = score_ + i * score_stride;
    while (step < step_end) {
      const int tile = step / tile_steps;
      const int stop = (tile + 1) * tile_steps < step_end ? (tile + 1) * tile_steps : step_end;
      const char* from =
          values_[tile] + int64_t{step % tile_steps} * value_step_ + d / 16 * C::step_bytes;
      const char* next = fetching ? next_values_[tile] + d / 16 * tile_steps * C::step_bytes +
                                        step % tile_steps * vectors * C::step_bytes
                                  : nullptr;
      for (; step < stop; ++step, from += value_step_) {
        typename C::Factor w[queries];
#pragma GCC unroll 8
        for (int q = 0; q < queries; ++q)
          w[q] = C::factor(weights + q * score_stride + step * C::step_floats);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          const typename C::Item value = C::load(from + v * C::step_bytes);
          if constexpr (fetching) fetch_step(next, v);
#pragma GCC unroll 8
          for (int q = 0; q < queries; ++q) C::add_product(sum[q][v], value, w[q]);
        }
      }
    }
    for (int q = 0; q < queries; ++q)
      for (int v = 0; v < vectors; ++v)
        C::store_sum(sum_ + (i + q) * width_ + d + v * 16, sum[q][v]);
  }

  template <int queries, bool fetching>
  void values_of(int i, int step, int step_end) {
    constexpr int vectors = queries == 1 ? 4 : C::value_vectors;
    int d = 0;
    for (; d + vectors * 16 <= width_; d += vectors * 16)
      values<queries, vectors, fetching>(i, d, step, step_end);
    for (; d < width_; d += 16) values<queries, 1, fetching>(i, d, step, step_end);
  }

  template <bool fetching>
  void all_values(int i, int end, int step, int step_end) {
    for (; i + 4 <= end; i += 4) values_of<4, fetching>(i, step, step_end);
    if (end - i == 3) values_of<3, fetching>(i, step, step_end);
    if (end - i == 2) values_of<2, fetching>(i, step, step_end);
    if (end - i == 1) values_of<1, fetching>(i, step, step_end);
  }

  // One row's tokens [begin, end), which may cut a step in two.
  void row_values(int row, int begin, int end) {
    if (begin >= end) return;
    const int i = row * b_.heads + first_, pack = C::pack;
    if (begin % pack) half_values(i, begin / pack, false);
    const int step = (begin + pack - 1) / pack, step_end = end / pack;
    if (step < step_end) all_values<false>(i, i + group_, step, step_end);
    if (end % pack) half_values(i, end / pack, true);
  }

  // The first or the second token of a step, for one row's heads: the other may hold anything.
  void half_values(int i, int step, bool first) {
    const char* from = values_[step / tile_steps] + int64_t{step % tile_steps} * value_step_;
    for (int d = 0; d < width_; d += 16) {
      const typename C::Item value = C::load_half(from + d / 16 * C::step_bytes, first);
      for (int q = i; q < i + group_; ++q) {
        typename C::Sum sum = C::load_sum(sum_ + q * width_ + d);
        C::add_product(sum, value, C::factor(score_ + q * score_stride + step * C::step_floats));
        C::store_sum(sum_ + q * width_ + d, sum);
      }
    }
  }

  // ---- the chunks' parts, in ascending order

  void fold(int i, float max, float sum, const float* values) {
    const float before = total_max_[i], after = max > before ? max : before;
    const F base = V::set1(after == -infinity ? 0.0f : after);
    const F keep = V::exp(V::sub(V::set1(before), base));
    const F add = V::exp(V::sub(V::set1(max), base));
    total_sum_[i] = V::first(V::fma(V::set1(sum), add, V::mul(V::set1(total_sum_[i]), keep)));
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
        float* from = folded_ + i * width_;
        if (is_coded(a_.kv.type)) turn_vectors(from, from, dims_);
        for (int d = 0; d < dims_; d += 16) {
          const int n = dims_ - d < 16 ? dims_ - d : 16;
          V::store_n(out + d, V::mul(V::load(from + d), inverse), n);
        }
      }
  }

  const AttentionArgs& a_;
  const AttentionBlock& b_;
  const KvLayout layout_;
  const int dims_, width_, query_stride_;
  const int64_t value_step_;  // bytes
  const int group_;           // queries of a row that share a head of keys and values
  const bool halves_;         // tiles of 8 tokens
  TileSource source_[chunk_tiles];
  const char* keys_[chunk_tiles];  // 16 tokens each
  const char* values_[chunk_tiles];
  int kv_head_ = 0, first_ = 0;         // the head at work, its first query of a row
  const char* next_keys_[chunk_tiles];  // what to fetch meanwhile
  const char* next_values_[chunk_tiles];
  float max_[attention_queries], weight_sum_[attention_queries];
  float total_max_[attention_queries], total_sum_[attention_queries];
  alignas(64) float query_[attention_block_dims];
  alignas(64) float sum_[attention_block_dims];     // the chunk's weighted values
  alignas(64) float folded_[attention_block_dims];  // all chunks' so far
  alignas(64) float score_[attention_queries * score_stride];
  alignas(64) float scratch_[16 * attention_scratch_dims];  // a tile
  // Codes alone. An integer factor or sum times its scale is the number meant.
  float query_scale_[attention_queries], weight_scale_[attention_queries];
  float weight_min_[attention_queries];    // sum of weights times their values' mins
  float tile_scale_;                       // the largest of the tile's channels
  float centre_score_[attention_queries];  // what their centres add to its scores
  alignas(64) float value_scale_[attention_chunk], value_min_[attention_chunk];
  alignas(64) float channel_scale_[attention_scratch_dims], channel_centre_[attention_scratch_dims];
  alignas(64) float tile_query_[integers ? attention_block_dims / 2 : 16];
};

}  // namespace
}  // namespace orlop::cpu
