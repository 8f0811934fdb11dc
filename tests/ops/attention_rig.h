// Sequences fed through kv_store, attention and kv_tail step by step, as a model would, and the
// same in double. Pages and tails are poisoned and handed out in random order.
#pragma once
#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "base/half.h"
#include "ops_test.h"

namespace orlop::test {

struct Shape {
  int heads, kv_heads, dim, page_tokens;
  KvType type;
  int window;
  int key_tile = 16;  // of coded keys
  int row() const { return (heads + 2 * kv_heads) * dim; }
};

using Rows = std::vector<float>;  // [tokens, row()] or [tokens, heads * dim]

struct Part {  // of a step: the next `rows` rows of sequence `seq`
  int seq, rows;
};
using Step = std::vector<Part>;

// Feeds the sequences through cache and attention step by step; returns each sequence's outputs.
inline std::vector<Rows> feed(const IsaUnderTest& isa, int threads, const Shape& s,
                              const std::vector<Rows>& qkv, const std::vector<Step>& steps,
                              uint32_t page_seed, std::vector<unsigned char>* pages_out = nullptr) {
  const Kernels& k = isa.kernels;
  const Exec e = exec(isa, threads);
  const KvDesc kv{s.type, s.kv_heads, s.dim, s.page_tokens};
  const size_t n = qkv.size();
  std::vector<int> length(n), first_page(n), done(n, 0);
  int page_count = 0;
  for (size_t i = 0; i < n; ++i) {
    length[i] = static_cast<int>(qkv[i].size()) / s.row();
    first_page[i] = page_count;
    page_count += (length[i] + s.page_tokens - 1) / s.page_tokens;
  }
  // One page more than needed, so that a stray read or write has somewhere to show itself.
  std::vector<int32_t> table(static_cast<size_t>(page_count) + 1);
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(page_seed));
  const size_t page_bytes = k.kv_page_bytes(kv);
  std::vector<unsigned char> storage(page_bytes * table.size() + 64, 0xff);
  unsigned char* pages =
      storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;

  // Seats too in random order, one more than needed.
  const size_t tail_bytes = k.kv_tail_bytes(kv);
  std::vector<unsigned char> tail_storage(tail_bytes * (n + 1) + 64, 0xff);
  void* tails = tail_bytes ? tail_storage.data() : nullptr;
  std::vector<int32_t> seats(n + 1);
  std::iota(seats.begin(), seats.end(), 0);
  std::shuffle(seats.begin(), seats.end(), std::mt19937(page_seed + 1));

  std::vector<Rows> outs(n);
  for (size_t i = 0; i < n; ++i)
    outs[i].assign(static_cast<size_t>(length[i] * s.heads * s.dim), nan);
  for (const Step& step : steps) {
    int rows = 0, max_context = 0;
    std::vector<AttentionSeq> seqs;
    std::vector<int32_t> slots;
    Rows in;
    for (const Part& p : step) {
      const size_t i = static_cast<size_t>(p.seq);
      seqs.push_back({rows, p.rows, done[i], first_page[i], seats[i]});
      for (int r = 0; r < p.rows; ++r) {
        const int at = done[i] + r;
        slots.push_back(table[static_cast<size_t>(first_page[i] + at / s.page_tokens)] *
                            s.page_tokens +
                        at % s.page_tokens);
      }
      in.insert(in.end(), qkv[i].begin() + done[i] * s.row(),
                qkv[i].begin() + (done[i] + p.rows) * s.row());
      rows += p.rows;
      max_context = std::max(max_context, done[i] + p.rows);
    }
    KvStoreArgs store{};
    store.kv = kv;
    store.heads = s.heads;
    store.qkv = in.data();
    store.qkv_stride = s.row();
    store.rows = rows;
    store.slots = slots.data();
    store.pages = pages;
    store.seqs = seqs.data();
    store.seq_count = static_cast<int32_t>(seqs.size());
    store.tails = tails;
    k.kv_store(e, store);
    Rows out(static_cast<size_t>(rows * s.heads * s.dim), nan);
    const size_t bytes = k.attention_workspace(kv, s.heads, rows, max_context);
    std::vector<unsigned char> workspace(bytes + 128, 0xff);
    unsigned char* aligned =
        workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
    AttentionArgs a{};
    a.kv = kv;
    a.heads = s.heads;
    a.q = in.data();
    a.q_stride = s.row();
    if (tails) {  // what kv_store left
      a.k = in.data() + s.heads * s.dim;
      a.k_stride = s.row();
      a.tails = tails;
    }
    a.out = out.data();
    a.out_stride = s.heads * s.dim;
    a.seqs = seqs.data();
    a.seq_count = static_cast<int32_t>(seqs.size());
    a.rows = rows;
    a.max_context = max_context;
    a.page_table = table.data();
    a.pages = pages;
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    a.window = s.window;
    a.workspace = aligned;
    k.attention(e, a);
    for (int i = 0; i < 64 && aligned + bytes + i < workspace.data() + workspace.size(); ++i)
      if (aligned[bytes + static_cast<size_t>(i)] != 0xff) {
        CHECK(!"attention wrote past its workspace");
        break;
      }
    if (tails)
      k.kv_tail(e, {kv, in.data() + s.heads * s.dim, s.row(), rows, seqs.data(),
                    static_cast<int32_t>(seqs.size()), tails});
    for (size_t j = 0; j < step.size(); ++j) {
      const size_t i = static_cast<size_t>(step[j].seq);
      std::copy_n(out.begin() + seqs[j].row_begin * s.heads * s.dim, step[j].rows * s.heads * s.dim,
                  outs[i].begin() + done[i] * s.heads * s.dim);
      done[i] += step[j].rows;
    }
  }
  if (pages_out) {  // in the order of the sequences' pages
    pages_out->clear();
    for (size_t i = 0; i < static_cast<size_t>(page_count); ++i) {
      const unsigned char* page = pages + static_cast<size_t>(table[i]) * page_bytes;
      pages_out->insert(pages_out->end(), page, page + page_bytes);
    }
  }
  return outs;
}

// ---- the formula, over what the cache is said to hold

// f(i) for all i below n, by as many threads as there are processors.
template <class F>
void in_parallel(int n, F&& f) {
  std::atomic<int> next{0};
  const auto run = [&] {
    for (int i; (i = next++) < n;) f(i);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < std::min(n, static_cast<int>(std::thread::hardware_concurrency())); ++i) others.emplace_back(run);
  run();
  for (std::thread& t : others) t.join();
}

// bf16 that is not below x.
inline float bf16_up(float x) {
  float y = bf16_to_f32(f32_to_bf16(x));
  while (y < x) y = bf16_to_f32(static_cast<uint16_t>(f32_to_bf16(y) + 1));
  return y;
}

// n elements at x, stride apart, as codes [-below, above] around a centre hold them. Products with
// reciprocals as the cache has them, so that no code falls the other way.
inline void hold_grid(float* x, int n, int stride, float below, float above, bool key) {
  float low = x[0], high = x[0];
  for (int i = 0; i < n; ++i)
    low = std::min(low, x[i * stride]), high = std::max(high, x[i * stride]);
  const float steps = 1.0f / (below + above);
  const float middle = low + below * (high * steps - low * steps);
  const float centre = key ? f16_to_f32(f32_to_f16(middle)) : bf16_to_f32(f32_to_bf16(middle));
  const float scale =
      bf16_up(std::max((centre - low) * (1 / below), (high - centre) * (1 / above)));
  for (int i = 0; i < n; ++i) {
    const float offset = above < 8 ? 8 : 0;  // uint4 rounds after it has added 8
    const float code = scale > 0 ? (x[i * stride] - centre) * (1 / scale) + offset : offset;
    x[i * stride] = centre + scale * std::clamp(std::rint(code) - offset, -below, above);
  }
}

// By the matrix: element (i, j) of a block has the sign of the parity of i & j.
inline void turn(float* x, int n) {
  int block = 8;
  while (n % (2 * block) == 0) block *= 2;
  for (int begin = 0; begin < n; begin += block) {
    std::vector<double> y(static_cast<size_t>(block));
    for (int i = 0; i < block; ++i)
      for (int j = 0; j < block; ++j)
        y[static_cast<size_t>(i)] += (__builtin_parity(static_cast<unsigned>(i & j)) ? -1.0 : 1.0) *
                                     static_cast<double>(x[begin + j]);
    for (int i = 0; i < block; ++i)
      x[begin + i] =
          static_cast<float>(y[static_cast<size_t>(i)] / std::sqrt(static_cast<double>(block)));
  }
}

inline void hold_int8(float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  if (largest == 0) return;
  const float scale = bf16_up(largest * (1.0f / 127));
  for (int i = 0; i < n; ++i) x[i] = scale * std::rint(x[i] * (1 / scale));
}

// Rows as the cache holds them (q as the products take it), all tiles of coded keys sealed; own:
// the keys that a query of the same tile sees.
inline Rows held(const Shape& s, const Rows& qkv, Rows& own) {
  Rows h = qkv;
  const bool bf16 = s.type != KvType::f32 && s.type != KvType::f16;
  const auto round_to = [&](float x) {
    return bf16                    ? bf16_to_f32(f32_to_bf16(x))
           : s.type == KvType::f16 ? f16_to_f32(f32_to_f16(x))
                                   : x;
  };
  const int n = static_cast<int>(qkv.size()) / s.row(), q_width = s.heads * s.dim;
  in_parallel(n, [&](int t) {
    for (int head = 0; head < s.heads + 2 * s.kv_heads; ++head) {
      float* x = &h[static_cast<size_t>(t * s.row() + head * s.dim)];
      const bool query = head < s.heads, key = head < s.heads + s.kv_heads;
      const bool codes = s.type == KvType::int8 || s.type == KvType::uint4;
      if (codes && !key) {
        turn(x, s.dim);
        if (s.type == KvType::int8)
          hold_int8(x, s.dim);
        else
          hold_grid(x, s.dim, 1, 8, 7, false);
        turn(x, s.dim);
      } else if (!query || s.type == KvType::bf16)
        for (int d = 0; d < s.dim; ++d) x[d] = round_to(x[d]);
    }
  });
  own = h;
  if (s.type == KvType::int8 || s.type == KvType::uint4)
    for (int t = 0; t + s.key_tile <= n; t += s.key_tile)
      for (int d = 0; d < s.kv_heads * s.dim; ++d)
        hold_grid(&h[static_cast<size_t>(t * s.row() + q_width + d)], s.key_tile, s.row(),
                  s.type == KvType::int8 ? 127 : 8, s.type == KvType::int8 ? 127 : 7, true);
  return h;
}

// Softmax attention in double. exact: over the rows themselves; rows before from_row stay zeros.
inline Rows formula(const Shape& s, const Rows& qkv, bool exact = false, int from_row = 0) {
  const int n = static_cast<int>(qkv.size()) / s.row();
  Rows own = qkv;
  const Rows cache = exact ? qkv : held(s, qkv, own);
  Rows out(static_cast<size_t>(n * s.heads * s.dim));
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.dim));
  in_parallel(n - from_row, [&](int at) {
    const int t = n - 1 - at;  // the longest first
    std::vector<double> p(static_cast<size_t>(n)), o(static_cast<size_t>(s.dim));
    for (int h = 0; h < s.heads; ++h) {
      const int g = h / (s.heads / s.kv_heads);
      const float* q = &cache[static_cast<size_t>(t * s.row() + h * s.dim)];
      const int lo = s.window > 0 ? std::max(0, t - s.window + 1) : 0;
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int j = lo; j <= t; ++j) {
        const Rows& from = j / s.key_tile == t / s.key_tile ? own : cache;
        const float* k = &from[static_cast<size_t>(j * s.row() + (s.heads + g) * s.dim)];
        double dots[8] = {};  // dimensions are a multiple of 8
        for (int d = 0; d < s.dim; d += 8)
          for (int i = 0; i < 8; ++i) dots[i] += static_cast<double>(q[d + i]) * static_cast<double>(k[d + i]);
        const double dot = std::accumulate(dots, dots + 8, 0.0);
        p[static_cast<size_t>(j)] = dot * scale;
        max = std::max(max, dot * scale);
      }
      std::fill(o.begin(), o.end(), 0.0);
      for (int j = lo; j <= t; ++j) {
        const double w = std::exp(p[static_cast<size_t>(j)] - max);
        sum += w;
        const float* v =
            &cache[static_cast<size_t>(j * s.row() + (s.heads + s.kv_heads + g) * s.dim)];
        for (int d = 0; d < s.dim; ++d) o[static_cast<size_t>(d)] += w * static_cast<double>(v[d]);
      }
      for (int d = 0; d < s.dim; ++d)
        out[static_cast<size_t>((t * s.heads + h) * s.dim + d)] =
            static_cast<float>(o[static_cast<size_t>(d)] / sum);
    }
  });
  return out;
}

inline double worst(const Rows& a, const Rows& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double e = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(e <= most)) most = e == e ? e : 1e30;
  }
  return most;
}

inline std::vector<Step> whole(const Shape& s, const std::vector<Rows>& qkv) {
  Step step;
  for (size_t i = 0; i < qkv.size(); ++i)
    step.push_back({static_cast<int>(i), static_cast<int>(qkv[i].size()) / s.row()});
  return {step};
}

// Random pieces, sequences mixed at random; most == 1: row by row.
inline std::vector<Step> pieces(const Shape& s, const std::vector<Rows>& qkv, Random& random,
                                int most) {
  std::vector<int> left;
  for (const Rows& r : qkv) left.push_back(static_cast<int>(r.size()) / s.row());
  std::vector<Step> steps;
  while (std::accumulate(left.begin(), left.end(), 0) > 0) {
    Step step;
    for (size_t i = 0; i < left.size(); ++i)
      if (left[i] > 0 && random.below(3)) {
        const int rows = std::min(left[i], random.between(1, most));
        step.push_back({static_cast<int>(i), rows});
        left[i] -= rows;
      }
    std::shuffle(step.begin(), step.end(), random.engine);
    if (!step.empty()) steps.push_back(step);
  }
  return steps;
}

inline std::vector<Rows> random_sequences(const Shape& s, const std::vector<int>& lengths,
                                          Random& random, float sigma = 1.0f) {
  std::vector<Rows> all;
  for (const int n : lengths)
    all.push_back(random.normals(static_cast<size_t>(n * s.row()), sigma));
  return all;
}

}  // namespace orlop::test
