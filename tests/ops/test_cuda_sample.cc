// Choosing tokens on the GPU: random and hostile rows of all kinds in one call against the rules worked out here in
// double, and against the CPU's own where it draws in the same order; a row's result alone and among others.
// Without a GPU it is skipped, saying why.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/philox.h"
#include "backend/cpu/sample.h"
#include "gpu_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::mt19937& engine() {
  static std::mt19937 e(20261130);
  return e;
}
int below(int n) { return static_cast<int>(engine()() % static_cast<unsigned>(n)); }
bool chance(int percent) { return below(100) < percent; }
float normal(float sigma) { return std::normal_distribution<float>(0, sigma)(engine()); }
template <class T>
T one_of(std::initializer_list<T> list) {
  return list.begin()[below(static_cast<int>(list.size()))];
}

// A row and what it owns.
struct Row {
  std::vector<float> logits;
  SampleRow p{};
  std::vector<TokenCount> counts;
  std::vector<TokenLogprob> bias;
  std::vector<int32_t> forbidden;
  std::vector<uint32_t> allowed;
};

SampleRow plain() {
  SampleRow p{};
  p.top_p = 1;
  p.repetition_penalty = 1;
  p.n_logprobs = -2;
  p.given = -1;
  return p;
}

struct Results {
  std::vector<SampleResult> picked;
  std::vector<TokenLogprob> top;
};

// Rows [begin, end) in one call.
Results run(const std::vector<Row>& rows, size_t begin, size_t end, int32_t vocab, int32_t top_stride, int32_t gap) {
  const size_t n = end - begin, stride = static_cast<size_t>(vocab + gap);
  std::vector<float> logits(n * stride, 99.0f);
  std::vector<SampleRow> params;
  std::vector<TokenCount> counts;
  std::vector<TokenLogprob> bias;
  std::vector<int32_t> forbidden;
  std::vector<uint32_t> allowed;
  for (size_t r = begin; r < end; ++r) {
    std::copy(rows[r].logits.begin(), rows[r].logits.end(), logits.begin() + static_cast<long>((r - begin) * stride));
    counts.insert(counts.end(), rows[r].counts.begin(), rows[r].counts.end());
    bias.insert(bias.end(), rows[r].bias.begin(), rows[r].bias.end());
    forbidden.insert(forbidden.end(), rows[r].forbidden.begin(), rows[r].forbidden.end());
    allowed.insert(allowed.end(), rows[r].allowed.begin(), rows[r].allowed.end());
  }
  const On<TokenCount> d_counts(counts);
  const On<TokenLogprob> d_bias(bias);
  const On<int32_t> d_forbidden(forbidden);
  const On<uint32_t> d_allowed(allowed);
  size_t at_counts = 0, at_bias = 0, at_forbidden = 0, at_allowed = 0;
  for (size_t r = begin; r < end; ++r) {
    SampleRow p = rows[r].p;
    p.counts = d_counts.at() + at_counts;
    p.bias = d_bias.at() + at_bias;
    p.forbidden = d_forbidden.at() + at_forbidden;
    p.allowed = rows[r].allowed.empty() ? nullptr : d_allowed.at() + at_allowed;
    at_counts += rows[r].counts.size();
    at_bias += rows[r].bias.size();
    at_forbidden += rows[r].forbidden.size();
    at_allowed += rows[r].allowed.size();
    params.push_back(p);
  }
  const On<float> d_logits(logits);
  const On<SampleRow> d_params(params);
  const On<SampleResult> picked(n, 0xee);
  const On<TokenLogprob> top(n * static_cast<size_t>(top_stride), 0xee);
  const Kernels& k = *gpu().exec().kernels;
  const On<unsigned char> work(k.sample_workspace(static_cast<int32_t>(n), vocab), 0xff);
  k.sample(gpu().exec(), {d_logits.at(), static_cast<int64_t>(stride), static_cast<int32_t>(n), vocab, d_params.at(), picked.at(),
                          top_stride ? top.at() : nullptr, top_stride, work.at()});
  work.read();
  const std::vector<float> after = d_logits.read();  // as they were
  CHECK(std::memcmp(after.data(), logits.data(), after.size() * sizeof(float)) == 0);
  return {picked.read(), top.read()};
}

std::vector<float> random_logits(int32_t vocab) {
  std::vector<float> x(static_cast<size_t>(vocab));
  const int kind = below(12);
  for (float& v : x) v = normal(kind < 4 ? 1.0f : kind < 6 ? 3.0f : kind == 6 ? 0.01f : 2.0f);
  if (kind == 7 || kind == 8)  // a language model's: a few far above the rest
    for (int i = 0, n = 1 + below(300); i < n; ++i) x[static_cast<size_t>(below(vocab))] = 12 + normal(4);
  if (kind == 9)
    for (float& v : x) v = std::round(v * 2) / 2;  // many equals
  if (kind == 10) std::fill(x.begin(), x.end(), one_of({-3.0f, 0.0f, 1e30f}));
  if (kind == 11)
    for (float& v : x)
      if (chance(97)) v = -infinity;
  if (chance(5))
    for (float& v : x) v = v > 0 ? 0.0f : v < -1 ? -0.0f : v;  // zeros of both signs are equal
  if (chance(3)) x[static_cast<size_t>(below(vocab))] = std::nanf("");
  if (chance(3)) x[static_cast<size_t>(below(vocab))] = infinity;
  if (chance(2)) std::fill(x.begin(), x.end(), -infinity);
  if (chance(3)) x[static_cast<size_t>(below(vocab))] = 3e38f, x[static_cast<size_t>(below(vocab))] = -3e38f;
  return x;
}

Row random_row(int32_t vocab) {
  Row r;
  r.logits = random_logits(vocab);
  SampleRow& p = r.p = plain();
  p.seed = (uint64_t{engine()()} << 32) + engine()();
  p.position = static_cast<uint64_t>(below(100000));
  p.temperature = one_of({0.0f, 0.0f, 0.3f, 0.7f, 1.0f, 1.0f, 1.5f, 1e-4f, 30.0f, 1e30f, infinity});
  if (chance(50)) p.top_k = one_of({1, 2, 20, 50, 50, 200, 256, 257, 1000, vocab - 1, vocab, vocab + 5});
  if (chance(50)) p.top_p = one_of({0.9f, 0.95f, 0.5f, 0.1f, 0.0f, 0.999f, 0.99999f});
  if (chance(30)) p.min_p = one_of({0.05f, 0.3f, 1.0f, 2.0f, 1e-3f, 1e-6f});
  if (chance(40)) p.n_logprobs = one_of({-1, 0, 1, 5, 20, 300});
  if (chance(5)) p.given = one_of({0, vocab - 1, vocab, below(vocab)});
  if (chance(25)) {  // tokens may come twice
    const int n = 1 + below(chance(20) ? 400 : 10);
    for (int i = 0; i < n; ++i)
      r.bias.push_back({chance(10) ? one_of({-1, vocab, 1 << 30}) : below(chance(50) ? vocab : std::min(vocab, 5)), chance(5) ? one_of({infinity, -infinity}) : normal(5)});
  }
  if (chance(30)) {
    std::vector<int32_t> ids(static_cast<size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    for (int i = 0, n = 1 + below(std::min(vocab, 300)); i < n; ++i) {
      std::swap(ids[static_cast<size_t>(i)], ids[static_cast<size_t>(i + below(vocab - i))]);
      r.counts.push_back({ids[static_cast<size_t>(i)], below(2), below(4)});
    }
    if (chance(10)) r.counts.push_back({vocab, 1, 1});
    p.repetition_penalty = one_of({1.0f, 1.1f, 2.0f, 0.5f});
    p.presence_penalty = one_of({0.0f, 0.5f, -1.0f});
    p.frequency_penalty = one_of({0.0f, 0.3f, 0.01f});
  }
  if (chance(15))
    for (int i = 0, n = 1 + below(20); i < n; ++i) r.forbidden.push_back(chance(10) ? -5 : below(vocab + 1));
  if (chance(25)) {
    r.allowed.assign(static_cast<size_t>((vocab + 31) / 32), 0);
    const int share = one_of({0, 1, 50, 990});  // of a thousand
    for (int t = 0; t < vocab; ++t)
      if (below(1000) < share) r.allowed[static_cast<size_t>(t / 32)] |= uint32_t{1} << t % 32;
    if (chance(60)) {
      const int t = below(vocab);
      r.allowed[static_cast<size_t>(t / 32)] |= uint32_t{1} << t % 32;
    }
  }
  p.counts = r.counts.data();
  p.count_n = static_cast<int32_t>(r.counts.size());
  p.bias = r.bias.data();
  p.bias_n = static_cast<int32_t>(r.bias.size());
  p.forbidden = r.forbidden.data();
  p.forbidden_n = static_cast<int32_t>(r.forbidden.size());
  p.allowed = r.allowed.empty() ? nullptr : r.allowed.data();
  return r;
}

// Logits after bias, penalties and masks.
std::vector<float> changed(const Row& r) {
  std::vector<float> x = r.logits;
  const auto known = [&](int32_t t) { return t >= 0 && t < static_cast<int32_t>(x.size()); };
  const auto tame = [](float v) { return v != v ? -infinity : std::min(v, std::numeric_limits<float>::max()); };
  for (const TokenLogprob& b : r.bias)
    if (known(b.token)) x[static_cast<size_t>(b.token)] = tame(x[static_cast<size_t>(b.token)] + b.logprob);
  const bool penalties = r.p.repetition_penalty != 1 || r.p.presence_penalty != 0 || r.p.frequency_penalty != 0;
  const bool changes = r.p.allowed || r.p.bias_n || r.p.forbidden_n || (penalties && r.p.count_n);
  if (!changes) return x;
  for (const TokenCount& c : r.counts) {
    if (!known(c.token)) continue;
    float v = x[static_cast<size_t>(c.token)];
    if (c.in_prompt || c.generated > 0) v = v > 0 ? v / r.p.repetition_penalty : v * r.p.repetition_penalty;
    if (c.generated > 0) {
      const float often = r.p.frequency_penalty * static_cast<float>(c.generated);
      v -= r.p.presence_penalty + often;
    }
    x[static_cast<size_t>(c.token)] = tame(v);
  }
  for (const int32_t t : r.forbidden)
    if (known(t)) x[static_cast<size_t>(t)] = -infinity;
  for (size_t t = 0; t < x.size() && r.p.allowed; ++t)
    if (!(r.allowed[t / 32] >> t % 32 & 1)) x[t] = -infinity;
  return x;
}

struct Drawn {
  int32_t token;
  bool close;  // rounding of sums decides between this and another
};

// The documented rules; the draw by ascending id. `got` is what is to be judged.
Drawn draw(const Row& r, int32_t got) {
  const std::vector<float> x = changed(r);
  const size_t n = x.size();
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const float best = *std::max_element(x.begin(), x.end());
  if (best == -infinity) return {-1, false};
  const float temperature = std::min(r.p.temperature, std::numeric_limits<float>::max());
  if (r.p.top_k > 0 && r.p.top_k < static_cast<int32_t>(n)) {
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
    order.resize(static_cast<size_t>(r.p.top_k));
  }
  std::vector<float> w(n, 0.0f);
  double total = 0;
  for (const int32_t t : order) {
    const auto i = static_cast<size_t>(t);
    w[i] = std::exp((x[i] - best) / temperature);
    total += static_cast<double>(w[i]);
  }
  bool unsure = false;
  if (r.p.top_p < 1) {
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const float u = w[static_cast<size_t>(a)], v = w[static_cast<size_t>(b)];
      return u > v || (u == v && a < b);
    });
    const double share = static_cast<double>(r.p.top_p) * total;
    double sum = 0;
    size_t kept = 0;
    while (kept < order.size()) {
      sum += static_cast<double>(w[static_cast<size_t>(order[kept++])]);
      unsure |= std::fabs(sum - share) <= 2e-6 * total;
      if (sum >= share) break;
    }
    // Neighbours whose weights are as good as equal may change places.
    const float at_border = w[static_cast<size_t>(order[kept - 1])], level = x[static_cast<size_t>(order[kept - 1])];
    for (size_t i = 0; i < order.size(); ++i) {
      const auto t = static_cast<size_t>(order[i]);
      unsure |= x[t] != level && std::fabs(w[t] - at_border) <= 1e-6f * at_border;
    }
    order.resize(kept);
  }
  if (r.p.min_p > 0) {
    const float least = std::min(r.p.min_p, 1.0f);
    for (const int32_t t : order) unsure |= w[static_cast<size_t>(t)] < 1 && std::fabs(w[static_cast<size_t>(t)] - least) <= 1e-6f * least;
    std::erase_if(order, [&](int32_t t) { return w[static_cast<size_t>(t)] < least; });
  }
  std::sort(order.begin(), order.end());
  double all = 0;
  for (const int32_t t : order) all += static_cast<double>(w[static_cast<size_t>(t)]);
  const double target = cpu::philox_uniform(r.p.seed, r.p.position) * all;
  double sum = 0;
  Drawn d{-1, unsure};
  for (const int32_t t : order) {
    const double before = sum;
    sum += static_cast<double>(w[static_cast<size_t>(t)]);
    if (t == got && target >= before - 2e-6 * all && target <= sum + 2e-6 * all) d.close = true;
    if (d.token < 0 && sum > target) d.token = t;
  }
  return d;
}

bool near(float a, double b) {
  if (std::isinf(static_cast<float>(b))) return a == static_cast<float>(b);
  return std::fabs(static_cast<double>(a) - b) <= 4e-6 * std::max(1.0, std::fabs(b));
}

// Counts of what was judged.
struct Seen {
  int rows = 0, drawn = 0, close = 0;
};

void judge(const Row& r, const SampleResult& got, const TokenLogprob* top, int32_t top_stride, Seen& seen) {
  const auto vocab = static_cast<int32_t>(r.logits.size());
  const int64_t wanted = r.p.n_logprobs == -1 ? int64_t{vocab} : std::max(0, r.p.n_logprobs);
  const auto top_n = static_cast<size_t>(std::min<int64_t>({wanted, vocab, top_stride}));
  ++seen.rows;
  const float best = *std::max_element(r.logits.begin(), r.logits.end());
  const bool nan = std::any_of(r.logits.begin(), r.logits.end(), [](float v) { return v != v; });
  for (size_t i = top_n; i < static_cast<size_t>(top_stride); ++i) CHECK(top[i].token == static_cast<int32_t>(0xeeeeeeee));
  if (nan || std::isinf(best)) {
    CHECK(got.token == -1 && got.logprob != got.logprob);
    for (size_t i = 0; i < top_n; ++i) CHECK(top[i].token == -1 && top[i].logprob != top[i].logprob);
    return;
  }
  double sum = 0;
  for (const float v : r.logits) sum += std::exp(static_cast<double>(v) - static_cast<double>(best));
  const double log_sum = static_cast<double>(best) + std::log(sum);
  const auto logprob = [&](int32_t t) { return static_cast<double>(r.logits[static_cast<size_t>(t)]) - log_sum; };
  if (r.p.n_logprobs >= -1 || r.p.given >= 0) {
    CHECK(got.token < 0 ? got.logprob != got.logprob : near(got.logprob, logprob(got.token)));
  } else {
    CHECK(got.logprob != got.logprob);
  }
  std::vector<int32_t> order(r.logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (r.p.n_logprobs > 0)
    std::partial_sort(order.begin(), order.begin() + static_cast<long>(top_n), order.end(), [&](int32_t a, int32_t b) {
      const float u = r.logits[static_cast<size_t>(a)], v = r.logits[static_cast<size_t>(b)];
      return u > v || (u == v && a < b);
    });
  bool right = true;
  for (size_t i = 0; i < top_n; ++i) right &= top[i].token == order[i] && near(top[i].logprob, logprob(order[i]));
  CHECK(right);
  if (r.p.given >= 0) {
    CHECK(got.token == (r.p.given < vocab ? r.p.given : -1));
    return;
  }
  // What the CPU says; it draws in the same order where nothing is filtered.
  const bool filtered = (r.p.top_k > 0 && r.p.top_k < vocab) || r.p.top_p < 1 || r.p.min_p > 0;
  int32_t want = -1;
  bool close = false;
  if (r.p.temperature <= 0 || (!filtered && vocab <= 5000)) {
    std::vector<unsigned char> work(cpu::sample_row_bytes(vocab) + 64);
    SampleResult there{};
    SampleRow p = r.p;
    p.n_logprobs = -2;
    cpu::sample_row(cpu::ref::sample_vec, {r.logits.data(), vocab, 1, vocab, &p, &there, nullptr, 0, nullptr}, 0, work.data());
    want = there.token;
  }
  if (r.p.temperature > 0) {
    const Drawn d = draw(r, got.token);
    if (!filtered && vocab <= 5000 && d.token != want) CHECK(draw(r, want).close);
    want = d.token;
    close = d.close;
    ++seen.drawn;
  }
  if (got.token != want && close) ++seen.close;
  const bool good = got.token == want || (close && got.token >= 0);
  if (!good)
    std::printf("  vocab %d: token %d, not %d: T %g top_k %d top_p %g min_p %g, bias %d counts %d forbidden %d mask %d\n", vocab, got.token, want,
                static_cast<double>(r.p.temperature), r.p.top_k, static_cast<double>(r.p.top_p), static_cast<double>(r.p.min_p), r.p.bias_n,
                r.p.count_n, r.p.forbidden_n, r.p.allowed != nullptr);
  CHECK(good);
}

TEST(rows_of_all_kinds_together) {
  struct {
    int32_t vocab, rows, gap, rounds;
  } const sizes[] = {{1, 9, 0, 3},       {7, 60, 1, 5},      {31, 33, 0, 5},      {257, 200, 3, 5},    {1000, 512, 0, 2},  {5003, 120, 0, 3},
                     {32000, 40, 0, 2},  {50257, 24, 0, 2},  {128256, 24, 0, 3},  {151936, 12, 4, 1},  {262144, 8, 0, 1},  {450001, 4, 0, 1}};
  Seen seen;
  for (const auto& size : sizes)
    for (int round = 0; round < size.rounds; ++round) {
      if (is_short() && (size.vocab > 6000 || round)) continue;
      const int32_t count = is_short() ? std::min(size.rows, 12) : size.rows;
      const int32_t top_stride = size.vocab <= 300 ? size.vocab : round % 2 ? 0 : 310;
      std::vector<Row> rows;
      for (int32_t i = 0; i < count; ++i) rows.push_back(random_row(size.vocab));
      const Results all = run(rows, 0, rows.size(), size.vocab, top_stride, size.gap);
      const auto stride = static_cast<size_t>(top_stride);
      for (size_t i = 0; i < rows.size(); ++i) judge(rows[i], all.picked[i], all.top.data() + i * stride, top_stride, seen);
      // Alone, and at another alignment: the same bits.
      for (int j = 0; j < 4; ++j) {
        const auto i = static_cast<size_t>(below(count));
        const Results alone = run(rows, i, i + 1, size.vocab, top_stride, j % 3);
        CHECK(std::memcmp(&alone.picked[0], &all.picked[i], sizeof(SampleResult)) == 0);
        CHECK(stride == 0 || std::memcmp(alone.top.data(), all.top.data() + i * stride, stride * sizeof(TokenLogprob)) == 0);
      }
    }
  std::printf("  %d rows, %d draws, of which rounding decided %d\n", seen.rows, seen.drawn, seen.close);
  CHECK(seen.close * 200 <= seen.drawn);
}

// Many best: more than one block can list.
TEST(long_lists_of_the_best) {
  for (const int32_t vocab : {300, 5003, 128256}) {
    if (is_short() && vocab > 6000) continue;
    std::vector<Row> rows(3);
    Seen seen;
    for (Row& r : rows) {
      r.logits.resize(static_cast<size_t>(vocab));
      for (float& v : r.logits) v = std::round(normal(3) * 8) / 8;
      r.p = plain();
    }
    rows[0].p.n_logprobs = vocab;
    rows[1].p.n_logprobs = std::min(vocab, 3000);
    rows[2].p.n_logprobs = -1;
    const Results got = run(rows, 0, 3, vocab, vocab, 0);
    for (size_t i = 0; i < 3; ++i) judge(rows[i], got.picked[i], got.top.data() + i * static_cast<size_t>(vocab), vocab, seen);
  }
}

// How often each comes, against its probability.
TEST(draws_follow_the_distribution) {
  const int32_t vocab = 300, count = 4000;
  Row row;
  for (int32_t i = 0; i < vocab; ++i) row.logits.push_back(std::round(normal(1) * 3) / 3);
  for (int kind = 0; kind < 5; ++kind) {
    row.p = plain();
    row.p.temperature = 0.7f;
    if (kind == 1) row.p.top_k = 17;
    if (kind == 2) row.p.top_p = 0.6f;
    if (kind == 3) row.p.min_p = 0.3f;
    if (kind == 4) row.p.top_k = 50, row.p.top_p = 0.8f, row.p.min_p = 0.05f;
    std::vector<size_t> order(static_cast<size_t>(vocab));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row.logits[a] > row.logits[b]; });
    std::vector<double> w(order.size());
    const size_t kept = row.p.top_k ? static_cast<size_t>(row.p.top_k) : order.size();
    double whole = 0, share = 0, total = 0;
    for (size_t i = 0; i < kept; ++i)
      whole += w[order[i]] = std::exp((static_cast<double>(row.logits[order[i]]) - static_cast<double>(row.logits[order[0]])) / 0.7);
    for (size_t i = 0; i < kept; ++i) {
      const double here = w[order[i]];
      if ((i && share >= static_cast<double>(row.p.top_p) * whole - 1e-9) || here < static_cast<double>(row.p.min_p)) w[order[i]] = 0;
      share += here;
    }
    for (const double v : w) total += v;
    std::vector<Row> rows(static_cast<size_t>(count), row);
    for (size_t i = 0; i < rows.size(); ++i) rows[i].p.seed = 11, rows[i].p.position = i;
    std::vector<int> seen(order.size());
    for (const SampleResult& r : run(rows, 0, rows.size(), vocab, 0, 0).picked) {
      const bool possible = r.token >= 0 && r.token < vocab && w[static_cast<size_t>(r.token)] > 0;
      CHECK(possible);
      if (possible) ++seen[static_cast<size_t>(r.token)];
    }
    double chi = 0;
    int cells = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double expect = w[i] / total * count;
      if (expect < 5) continue;
      chi += (seen[i] - expect) * (seen[i] - expect) / expect;
      ++cells;
    }
    CHECK(cells > 1 && chi <= cells + 6 * std::sqrt(2.0 * cells));
  }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
