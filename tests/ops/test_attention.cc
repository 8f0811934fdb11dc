// kv_store and attention: against the formula in double, and bit for bit over every way to cut the
// same work. Pages are poisoned with NaN and handed out in random order.
#include <algorithm>
#include <numeric>

#include "base/half.h"
#include "ops_test.h"

namespace orlop::test {
namespace {

struct Shape {
  int heads, kv_heads, dim, page_tokens;
  KvType type;
  int window;
  int row() const { return (heads + 2 * kv_heads) * dim; }
};

using Rows = std::vector<float>;  // [tokens, row()] or [tokens, heads * dim]

struct Part {  // of a step: the next `rows` rows of sequence `seq`
  int seq, rows;
};
using Step = std::vector<Part>;

// Feeds the sequences through cache and attention step by step; returns each sequence's outputs.
std::vector<Rows> feed(const IsaUnderTest& isa, int threads, const Shape& s,
                       const std::vector<Rows>& qkv, const std::vector<Step>& steps,
                       uint32_t page_seed) {
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
  void* pages = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;

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
      seqs.push_back({rows, p.rows, done[i], first_page[i], p.seq});
      for (int r = 0; r < p.rows; ++r) {
        const int at = done[i] + r;
        slots.push_back(table[static_cast<size_t>(first_page[i] + at / s.page_tokens)] *
                            s.page_tokens + at % s.page_tokens);
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
    for (size_t j = 0; j < step.size(); ++j) {
      const size_t i = static_cast<size_t>(step[j].seq);
      std::copy_n(out.begin() + seqs[j].row_begin * s.heads * s.dim,
                  step[j].rows * s.heads * s.dim, outs[i].begin() + done[i] * s.heads * s.dim);
      done[i] += step[j].rows;
    }
  }
  return outs;
}

// Softmax attention in double over what the cache holds (values as the cache rounds them).
Rows formula(const Shape& s, const Rows& qkv) {
  const int n = static_cast<int>(qkv.size()) / s.row();
  const auto cached = [&](float x) {
    return static_cast<double>(s.type == KvType::bf16 ? bf16_to_f32(f32_to_bf16(x)) : x);
  };
  Rows out(static_cast<size_t>(n * s.heads * s.dim));
  std::vector<double> p(static_cast<size_t>(n));
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.dim));
  for (int t = 0; t < n; ++t)
    for (int h = 0; h < s.heads; ++h) {
      const int g = h / (s.heads / s.kv_heads);
      const float* q = &qkv[static_cast<size_t>(t * s.row() + h * s.dim)];
      const int lo = s.window > 0 ? std::max(0, t - s.window + 1) : 0;
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int j = lo; j <= t; ++j) {
        const float* k = &qkv[static_cast<size_t>(j * s.row() + (s.heads + g) * s.dim)];
        double dot = 0;
        for (int d = 0; d < s.dim; ++d) dot += cached(q[d]) * cached(k[d]);
        p[static_cast<size_t>(j)] = dot * scale;
        max = std::max(max, dot * scale);
      }
      for (int j = lo; j <= t; ++j)
        sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - max);
      for (int d = 0; d < s.dim; ++d) {
        double o = 0;
        for (int j = lo; j <= t; ++j)
          o += p[static_cast<size_t>(j)] *
               cached(qkv[static_cast<size_t>(j * s.row() + (s.heads + s.kv_heads + g) * s.dim + d)]);
        out[static_cast<size_t>((t * s.heads + h) * s.dim + d)] = static_cast<float>(o / sum);
      }
    }
  return out;
}

double worst(const Rows& a, const Rows& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double e = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(e <= most)) most = e == e ? e : 1e30;
  }
  return most;
}

std::vector<Step> whole(const Shape& s, const std::vector<Rows>& qkv) {
  Step step;
  for (size_t i = 0; i < qkv.size(); ++i)
    step.push_back({static_cast<int>(i), static_cast<int>(qkv[i].size()) / s.row()});
  return {step};
}

// Random pieces, sequences mixed at random; most == 1: row by row.
std::vector<Step> pieces(const Shape& s, const std::vector<Rows>& qkv, Random& random, int most) {
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

std::vector<Rows> random_sequences(const Shape& s, const std::vector<int>& lengths, Random& random,
                                   float sigma = 1.0f) {
  std::vector<Rows> all;
  for (const int n : lengths) all.push_back(random.normals(static_cast<size_t>(n * s.row()), sigma));
  return all;
}

const Shape shapes[] = {
    {9, 3, 64, 16, KvType::bf16, 0},  {9, 3, 64, 32, KvType::f32, 0},
    {4, 4, 32, 16, KvType::bf16, 0},  {8, 1, 16, 48, KvType::bf16, 0},
    {2, 1, 80, 16, KvType::bf16, 37}, {4, 2, 128, 64, KvType::bf16, 300},
    {2, 2, 24, 16, KvType::f32, 5},   {3, 1, 256, 16, KvType::bf16, 1},
    {40, 1, 8, 16, KvType::bf16, 0},  {6, 3, 96, 16, KvType::f32, 256},
    {5, 1, 64, 16, KvType::bf16, 17}, {2, 1, 40, 16, KvType::bf16, 0},
};

TEST(attention_equals_the_formula) {
  Random random(1);
  for (const Shape& s : shapes) {
    const std::vector<Rows> qkv = random_sequences(s, {1, 33, 290}, random);
    std::vector<Rows> want;
    for (const Rows& r : qkv) want.push_back(formula(s, r));
    for (const IsaUnderTest& isa : isas()) {
      const std::vector<Rows> got = feed(isa, 2, s, qkv, whole(s, qkv), 7);
      // Values are normal numbers, weights add up to one: bf16 weights are off by 2^-9 at most, in
      // float only sums round.
      const double bound = s.type == KvType::bf16 ? 8e-3 : 1e-5;
      for (size_t i = 0; i < qkv.size(); ++i) {
        const double e = worst(got[i], want[i]);
        if (!(e <= bound))
          std::fprintf(stderr, "%s heads %d/%d dim %d window %d seq %zu: error %g\n", isa.name,
                       s.heads, s.kv_heads, s.dim, s.window, i, e);
        CHECK(e <= bound);
      }
    }
  }
}

// One call, random pieces and row by row; alone and in a batch; 1, 2, 3 threads; pages elsewhere.
TEST(attention_bits_do_not_depend_on_the_cut) {
  Random random(2);
  for (const Shape& s : shapes) {
    const std::vector<Rows> qkv = random_sequences(s, {270, 31, 2, 150}, random);
    for (const IsaUnderTest& isa : isas()) {
      if (!std::strcmp(isa.name, "ref") && s.dim > 64) continue;  // slow, and no vectors to get wrong
      const std::vector<Rows> want = feed(isa, 1, s, qkv, whole(s, qkv), 1);
      for (const Rows& r : want)
        CHECK(std::none_of(r.begin(), r.end(), [](float x) { return x != x; }));
      for (int threads = 1; threads <= 3; ++threads)
        for (const int most : {1, 7, 40, 270}) {
          const std::vector<Rows> got = feed(isa, threads, s, qkv, pieces(s, qkv, random, most),
                                             static_cast<uint32_t>(threads * 1000 + most));
          for (size_t i = 0; i < qkv.size(); ++i) {
            const bool same = same_bits(got[i], want[i]);
            if (!same)
              std::fprintf(stderr, "%s heads %d/%d dim %d window %d threads %d pieces %d seq %zu\n",
                           isa.name, s.heads, s.kv_heads, s.dim, s.window, threads, most, i);
            CHECK(same);
          }
        }
      for (size_t i = 0; i < qkv.size(); ++i) {
        const std::vector<Rows> alone = {qkv[i]};
        CHECK(same_bits(feed(isa, 3, s, alone, whole(s, alone), 99)[0], want[i]));
      }
    }
  }
}

// A context long enough that single rows are split into chunks over threads.
TEST(attention_split_decode_is_the_same) {
  Random random(3);
  for (const int window : {0, 900}) {
    const Shape s{6, 2, 64, 16, KvType::bf16, window};
    const std::vector<Rows> qkv = random_sequences(s, {1500, 1100}, random);
    for (const IsaUnderTest& isa : isas()) {
      const std::vector<Rows> want = feed(isa, 1, s, qkv, whole(s, qkv), 1);
      std::vector<Step> steps = {{{0, 1490}, {1, 1090}}};
      for (int i = 0; i < 10; ++i) steps.push_back({{0, 1}, {1, 1}});
      CHECK(feed(isa, 3, s, qkv, steps, 5) == want);
      CHECK(feed(isa, 1, s, qkv, steps, 6) == want);
    }
  }
}

// Scores beyond what exp can take, infinite ones, and a NaN that must stay in its own future.
TEST(attention_hostile_values) {
  Random random(4);
  for (const KvType type : {KvType::f32, KvType::bf16}) {
    const Shape s{4, 2, 32, 16, type, 0};
    for (const IsaUnderTest& isa : isas()) {
      std::vector<Rows> qkv = random_sequences(s, {300}, random, 1e4f);
      const std::vector<Rows> huge = feed(isa, 2, s, qkv, whole(s, qkv), 1);
      const Rows want = formula(s, qkv[0]);
      // One key wins almost everywhere; near ties are decided by rounding, so count agreements.
      size_t near = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK(std::isfinite(huge[0][i]));
        near += std::fabs(huge[0][i] - want[i]) <= 0.02f * 1e4f;
      }
      CHECK(near > want.size() * 97 / 100);

      // A key whose score is -inf for every query gets no weight.
      qkv = random_sequences(s, {40}, random);
      for (int t = 0; t < 40; ++t)
        for (int d = 0; d < (s.heads + s.kv_heads) * s.dim; ++d)
          qkv[0][static_cast<size_t>(t * s.row() + d)] = t == 0 && d >= s.heads * s.dim ? -3e38f : 2.0f;
      const std::vector<Rows> barred = feed(isa, 2, s, qkv, whole(s, qkv), 1);
      for (int t = 1; t < 40; ++t)
        for (int d = 0; d < s.heads * s.dim; ++d)
          CHECK(std::isfinite(barred[0][static_cast<size_t>(t * s.heads * s.dim + d)]));

      // NaN in one token's value and key: rows before it keep their bits, in one call as alone.
      for (const int bad : {17, 18, 33, 256, 257}) {
        qkv = random_sequences(s, {290}, random);
        const std::vector<Rows> clean = feed(isa, 1, s, qkv, whole(s, qkv), 1);
        for (int d = s.heads * s.dim; d < s.row(); ++d)
          qkv[0][static_cast<size_t>(bad * s.row() + d)] = nan;
        const std::vector<Rows> got = feed(isa, 2, s, qkv, whole(s, qkv), 1);
        const size_t before = static_cast<size_t>(bad * s.heads * s.dim);
        CHECK(std::memcmp(got[0].data(), clean[0].data(), before * sizeof(float)) == 0);
        for (size_t i = before; i < got[0].size(); ++i) CHECK(got[0][i] != got[0][i]);
      }
    }
  }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
