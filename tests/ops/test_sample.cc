// The sampler: every stage of the documented order by itself, draws against the distribution, raw
// log-probabilities against double, hostile rows.
#include <algorithm>
#include <map>
#include <numeric>

#include "backend/cpu/philox.h"
#include "ops_test.h"

namespace orlop::test {
namespace {

// A row that changes nothing and is greedy.
SampleRow plain() {
  SampleRow p{};
  p.top_p = 1.0f;
  p.repetition_penalty = 1.0f;
  p.n_logprobs = -2;
  p.given = -1;
  return p;
}

struct Result {
  std::vector<SampleResult> picked;
  std::vector<TokenLogprob> top;
};

Result sample(const IsaUnderTest& isa, int threads, const std::vector<float>& logits, int vocab,
              const std::vector<SampleRow>& rows, int top_stride = 0) {
  const int n = static_cast<int>(rows.size());
  Result r;
  r.picked.assign(rows.size(), {-7, 0});
  r.top.assign(static_cast<size_t>(n * top_stride), {-7, 0});
  std::vector<unsigned char> workspace(isa.kernels.sample_workspace(n, vocab) + 64, 0xff);
  SampleArgs a{};
  a.logits = logits.data();
  a.logits_stride = static_cast<int64_t>(logits.size()) / n;
  a.rows = n;
  a.vocab = vocab;
  a.params = rows.data();
  a.results = r.picked.data();
  a.top = top_stride ? r.top.data() : nullptr;
  a.top_stride = top_stride;
  a.workspace = workspace.data();
  isa.kernels.sample(exec(isa, threads), a);
  for (size_t i = workspace.size() - 64; i < workspace.size(); ++i) CHECK(workspace[i] == 0xff);
  return r;
}

int one(const IsaUnderTest& isa, const std::vector<float>& logits, const SampleRow& p) {
  return sample(isa, 1, logits, static_cast<int>(logits.size()), {p}).picked[0].token;
}

// Draws `draws` tokens, one row a position; chi-square against `want`, which sums to one. Tokens of
// probability zero must never come. Returns the statistic less its mean, in standard deviations.
double deviation(const IsaUnderTest& isa, const std::vector<float>& logits, SampleRow p,
                 const std::vector<double>& want, int draws, uint64_t seed) {
  const int vocab = static_cast<int>(logits.size());
  std::vector<int> seen(logits.size(), 0);
  const int batch = 500;
  std::vector<float> many;
  for (int i = 0; i < batch; ++i) many.insert(many.end(), logits.begin(), logits.end());
  p.seed = seed;
  for (int d = 0; d < draws; d += batch) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < batch; ++i) {
      p.position = static_cast<uint64_t>(d + i);
      rows.push_back(p);
    }
    for (const SampleResult& r : sample(isa, 2, many, vocab, rows).picked) {
      CHECK(r.token >= 0 && r.token < vocab);
      if (r.token >= 0 && r.token < vocab) ++seen[static_cast<size_t>(r.token)];
    }
  }
  double chi = 0;
  int cells = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == 0) {
      CHECK(seen[i] == 0);
      continue;
    }
    const double expected = want[i] * draws;
    if (expected < 5) continue;
    ++cells;
    chi += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  const double freedom = std::max(1, cells - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

// The documented order, in double: temperature, top_k, top_p, min_p.
std::vector<double> distribution(const std::vector<float>& logits, const SampleRow& p) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (p.top_k > 0 && p.top_k < static_cast<int>(order.size())) order.resize(static_cast<size_t>(p.top_k));
  const double max = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  std::vector<double> w;
  for (const int i : order)
    w.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(i)]) - max) /
                         static_cast<double>(p.temperature)));
  double total = std::accumulate(w.begin(), w.end(), 0.0);
  if (p.top_p < 1) {
    double sum = 0;
    size_t n = 0;
    while (n < w.size()) {
      sum += w[n++];
      if (sum >= static_cast<double>(p.top_p) * total) break;
    }
    w.resize(n);
  }
  for (double& x : w)
    if (x < static_cast<double>(p.min_p)) x = 0;
  total = std::accumulate(w.begin(), w.end(), 0.0);
  std::vector<double> result(logits.size(), 0.0);
  for (size_t i = 0; i < w.size(); ++i) result[static_cast<size_t>(order[i])] = w[i] / total;
  return result;
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(philox_known_answers) {
  const auto equal = [](cpu::Philox x, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return x.v[0] == a && x.v[1] == b && x.v[2] == c && x.v[3] == d;
  };
  CHECK(equal(cpu::philox4x32({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  const uint32_t f = 0xffffffff;
  CHECK(equal(cpu::philox4x32({{f, f, f, f}}, f, f), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  CHECK(equal(cpu::philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
              0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(uniforms_are_uniform) {
  std::vector<int> bins(100, 0);
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = cpu::philox_uniform(i % 10, i / 10);
    CHECK(u >= 0 && u < 1);
    sum += u;
    ++bins[static_cast<size_t>(u * 100)];
  }
  CHECK(std::fabs(sum / 100000 - 0.5) < 0.004);
  double chi = 0;
  for (const int b : bins) chi += (b - 1000.0) * (b - 1000.0) / 1000.0;
  CHECK(chi < 160);  // 99 degrees of freedom
  CHECK(cpu::philox_uniform(1, 0) != cpu::philox_uniform(uint64_t{1} << 32, 0));
  CHECK(cpu::philox_uniform(0, 1) != cpu::philox_uniform(0, uint64_t{1} << 32));
}

TEST(greedy) {
  Random random(1);
  for (const IsaUnderTest& isa : isas()) {
    for (const int vocab : {1, 2, 15, 16, 17, 1023, 1025, 5000}) {
      std::vector<float> x = random.normals(static_cast<size_t>(vocab));
      const int best = static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
      CHECK(one(isa, x, plain()) == best);
      const int at = random.below(vocab);  // a tie: the lower id
      x[static_cast<size_t>(at)] = x[static_cast<size_t>(best)];
      CHECK(one(isa, x, plain()) == std::min(at, best));
    }
    std::vector<float> low(100, -infinity);
    low[70] = -3e38f;
    CHECK(one(isa, low, plain()) == 70);
    CHECK(one(isa, std::vector<float>(40, -5.0f), plain()) == 0);
  }
}

TEST(rows_without_a_distribution) {
  for (const IsaUnderTest& isa : isas())
    for (const float temperature : {0.0f, 1.0f})
      for (const int at : {0, 15, 16, 1030, 2009}) {
        SampleRow p = plain();
        p.temperature = temperature;
        p.n_logprobs = 2;
        std::vector<float> x(2010, 1.0f);
        x[static_cast<size_t>(at)] = nan;
        const Result r = sample(isa, 1, x, 2010, {p}, 2);
        CHECK(r.picked[0].token == -1 && r.picked[0].logprob != r.picked[0].logprob);
        CHECK(r.top[0].token == -1 && r.top[1].token == -1);
        x[static_cast<size_t>(at)] = infinity;
        CHECK(one(isa, x, p) == -1);
        CHECK(one(isa, std::vector<float>(2010, -infinity), p) == -1);
        p.given = 3;
        CHECK(one(isa, std::vector<float>(2010, nan), p) == -1);
      }
}

TEST(raw_logprobs) {
  Random random(2);
  for (const IsaUnderTest& isa : isas())
    for (const int vocab : {1, 7, 16, 500, 49152}) {
      const int rows = 3, stride = vocab + 5;
      const std::vector<float> x = random.normals(static_cast<size_t>(rows * stride), 4.0f);
      std::vector<SampleRow> params(3, plain());
      params[0].n_logprobs = 5;
      params[0].temperature = 0.7f;  // must not show in the logprobs
      params[1].n_logprobs = -1;
      params[2].n_logprobs = 0;
      params[2].given = vocab / 2;
      const TokenLogprob bias{0, 50.0f};
      params[0].bias = &bias;
      params[0].bias_n = 1;
      const Result r = sample(isa, 2, x, vocab, params, vocab);
      for (int row = 0; row < rows; ++row) {
        const float* l = &x[static_cast<size_t>(row * stride)];
        double sum = 0;
        for (int i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(l[i]));
        const auto logprob = [&](int i) { return static_cast<double>(l[i]) - std::log(sum); };
        const SampleResult& s = r.picked[static_cast<size_t>(row)];
        CHECK(s.token >= 0 && s.token < vocab);
        CHECK(std::fabs(static_cast<double>(s.logprob) - logprob(s.token)) < 3e-6);
        const TokenLogprob* top = &r.top[static_cast<size_t>(row * vocab)];
        if (row == 1)
          for (int i = 0; i < vocab; ++i)
            CHECK(top[i].token == i && std::fabs(static_cast<double>(top[i].logprob) - logprob(i)) < 3e-6);
        if (row == 2) CHECK(s.token == vocab / 2 && top[0].token == -7);
        if (row == 0) {
          CHECK(s.token == 0);
          std::vector<int> order(static_cast<size_t>(vocab));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return l[a] > l[b]; });
          for (int i = 0; i < std::min(5, vocab); ++i)
            CHECK(top[i].token == order[static_cast<size_t>(i)] &&
                  std::fabs(static_cast<double>(top[i].logprob) - logprob(top[i].token)) < 3e-6);
          if (vocab > 5) CHECK(top[5].token == -7);  // nothing beyond what was asked
        }
      }
    }
  // Ties go to the lower id.
  for (const IsaUnderTest& isa : isas()) {
    SampleRow p = plain();
    p.n_logprobs = 3;
    const Result r = sample(isa, 1, {1, 2, 2, 0, 2, 2}, 6, {p}, 3);
    CHECK(r.top[0].token == 1 && r.top[1].token == 2 && r.top[2].token == 4);
    CHECK(one(isa, {1, 2}, [] { SampleRow g = plain(); g.given = 9; return g; }()) == -1);
  }
}

TEST(logit_changes) {
  for (const IsaUnderTest& isa : isas()) {
    const std::vector<float> x = {1.0f, 3.0f, 2.9f, -1.0f, -2.0f};
    SampleRow p = plain();
    const TokenLogprob bias[] = {{1, -infinity}, {3, 0.5f}, {77, 9.0f}, {-1, 9.0f}};
    p.bias = bias;
    p.bias_n = 4;
    CHECK(one(isa, x, p) == 2);
    const int32_t forbidden[] = {2, 1, -3, 99};
    p.forbidden = forbidden;
    p.forbidden_n = 4;
    CHECK(one(isa, x, p) == 0);
    const TokenLogprob force[] = {{4, infinity}};
    p.bias = force;
    p.bias_n = 1;
    CHECK(one(isa, x, p) == 4);
    const int32_t all[] = {0, 1, 2, 3, 4};
    p.forbidden = all;
    p.forbidden_n = 5;
    CHECK(one(isa, x, p) == -1);
    p.temperature = 1;
    CHECK(one(isa, x, p) == -1);

    p = plain();  // repetition: positive divided, negative multiplied; the prompt counts
    TokenCount counts[] = {{1, 1, 0}, {2, 0, 1}};
    p.counts = counts;
    p.count_n = 1;
    p.repetition_penalty = 1.5f;
    CHECK(one(isa, x, p) == 2);
    p.count_n = 2;
    CHECK(one(isa, x, p) == 1);
    const TokenCount negative[] = {{0, 1, 0}};
    p.counts = negative;
    p.count_n = 1;
    CHECK(one(isa, {-1.0f, -1.2f}, p) == 1);

    p = plain();  // presence and frequency: generated tokens only
    p.counts = counts;
    p.count_n = 2;
    p.presence_penalty = 0.5f;
    CHECK(one(isa, x, p) == 1);
    counts[0].generated = 1;
    CHECK(one(isa, x, p) == 1);  // both down
    counts[1].generated = 0;
    CHECK(one(isa, x, p) == 2);
    p.presence_penalty = 0;
    p.frequency_penalty = 0.04f;
    CHECK(one(isa, x, p) == 1);
    counts[0].generated = 3;
    CHECK(one(isa, x, p) == 2);
  }
}

// A mask is a bias of -infinity on every other token, and last in order.
TEST(only_allowed_tokens) {
  Random random(91);
  for (const IsaUnderTest& isa : isas()) {
    for (const int vocab : {1, 31, 32, 33, 70, 1000}) {
      std::vector<float> x(static_cast<size_t>(vocab));
      for (float& v : x) v = random.normal(2);
      std::vector<uint32_t> allowed(static_cast<size_t>((vocab + 31) / 32), 0);
      std::vector<TokenLogprob> others;
      const int share = vocab == 1000 ? 20 : 500;  // of a thousand
      for (int t = 0; t < vocab; ++t) {
        if (t == vocab / 2 || random.below(1000) < share)
          allowed[static_cast<size_t>(t / 32)] |= uint32_t{1} << t % 32;
        else
          others.push_back({t, -infinity});
      }
      for (const float temperature : {0.0f, 1.0f, 50.0f}) {
        for (uint64_t position = 0; position < 20; ++position) {
          SampleRow masked = plain();
          masked.temperature = temperature;
          masked.seed = 7;
          masked.position = position;
          masked.top_p = position % 2 ? 0.9f : 1.0f;
          masked.top_k = position % 3 ? 0 : 5;
          masked.n_logprobs = 0;
          SampleRow biased = masked;
          masked.allowed = allowed.data();
          biased.bias = others.data();
          biased.bias_n = static_cast<int32_t>(others.size());
          const Result got = sample(isa, 1, x, vocab, {masked}), want = sample(isa, 1, x, vocab, {biased});
          const int token = got.picked[0].token;
          CHECK(token == want.picked[0].token && got.picked[0].logprob == want.picked[0].logprob);
          CHECK(token >= 0 && (allowed[static_cast<size_t>(token / 32)] >> token % 32 & 1));
        }
      }
      SampleRow none = plain();
      std::fill(allowed.begin(), allowed.end(), 0u);
      none.allowed = allowed.data();
      CHECK(one(isa, x, none) == -1);
      const TokenLogprob force[] = {{0, 1000.0f}};  // no bias lifts what is not allowed
      none.bias = force;
      none.bias_n = 1;
      CHECK(one(isa, x, none) == -1);
    }
  }
}

TEST(draws_follow_the_distribution) {
  Random random(3);
  const std::vector<float> x = random.normals(60, 1.5f);
  struct {
    float temperature, top_p, min_p;
    int top_k;
  } const settings[] = {{1.0f, 1.0f, 0, 0},     {0.6f, 1.0f, 0, 0},    {2.5f, 1.0f, 0, 0},
                        {1.0f, 0.8f, 0, 0},     {1.0f, 1.0f, 0.1f, 0}, {1.0f, 1.0f, 0, 7},
                        {0.8f, 0.9f, 0.05f, 20}, {1.5f, 0.5f, 0, 59},   {1.0f, 0.999f, 0, 60}};
  uint64_t seed = 1;
  for (const IsaUnderTest& isa : isas())
    for (const auto& s : settings) {
      SampleRow p = plain();
      p.temperature = s.temperature;
      p.top_p = s.top_p;
      p.min_p = s.min_p;
      p.top_k = s.top_k;
      const double d = deviation(isa, x, p, distribution(x, p), is_short() ? 2000 : 20000, seed++);
      if (!(d < 4.5))
        std::fprintf(stderr, "%s T %g top_k %d top_p %g min_p %g: %g sigma\n", isa.name,
                     static_cast<double>(s.temperature), s.top_k, static_cast<double>(s.top_p),
                     static_cast<double>(s.min_p), d);
      CHECK(d < 4.5);
    }
  // Wide and flat: the selections have work to do.
  const std::vector<float> wide = random.normals(is_short() ? 300 : 3000, 0.5f);
  for (const IsaUnderTest& isa : isas())
    for (int i = 0; i < 4; ++i) {
      SampleRow p = plain();
      p.temperature = 1;
      p.top_p = i == 0 ? 0.7f : i == 1 ? 0.999f : 1.0f;
      p.top_k = i == 2 ? static_cast<int>(wide.size() / 2) : 0;
      p.min_p = i == 3 ? 0.2f : 0.0f;
      CHECK(deviation(isa, wide, p, distribution(wide, p), is_short() ? 4000 : 40000, seed++) < 4.5);
    }
  // The test itself can fail: the same draws against another temperature.
  SampleRow p = plain();
  p.temperature = 1;
  SampleRow other = p;
  other.temperature = 1.15f;
  CHECK(deviation(isas()[0], x, p, distribution(x, other), 20000, 77) > 6);
}

TEST(edges_of_the_filters) {
  Random random(4);
  std::vector<float> x = random.normals(3000);
  const int best = static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
  for (const IsaUnderTest& isa : isas()) {
    for (uint64_t position = 0; position < 50; ++position) {
      SampleRow p = plain();
      p.position = position;
      p.temperature = 1;
      p.top_p = 0;
      CHECK(one(isa, x, p) == best);
      p.top_p = 1;
      p.top_k = 1;
      CHECK(one(isa, x, p) == best);
      p.top_k = 0;
      p.min_p = 1;
      CHECK(one(isa, x, p) == best);
      p.min_p = 0;
      p.temperature = 1e-30f;
      CHECK(one(isa, x, p) == best);
      p.temperature = 1e30f;  // flat
      p.top_k = 1 << 30;
      const int t = one(isa, x, p);
      CHECK(t >= 0 && t < 3000);
      p.top_k = 3;
      p.temperature = 1;
      // -inf never comes, however it gets in.
      CHECK(one(isa, {-infinity, 0.0f, -infinity, -infinity}, p) == 1);
    }
    // Ties at the border of top_k: the lower ids stay.
    SampleRow p = plain();
    p.temperature = 1;
    p.top_k = 2;
    for (uint64_t position = 0; position < 50; ++position) {
      p.position = position;
      const int t = one(isa, {0.0f, 1.0f, 1.0f, 1.0f}, p);
      CHECK(t == 1 || t == 2);
    }
  }
}

TEST(same_draw_alone_and_in_a_batch) {
  Random random(5);
  const int vocab = 5003, rows = 40;
  const std::vector<float> x = random.normals(static_cast<size_t>(rows * vocab), 2.0f);
  std::vector<SampleRow> params;
  const TokenCount counts[] = {{5, 1, 2}, {9, 0, 1}};
  for (int r = 0; r < rows; ++r) {
    SampleRow p = plain();
    p.temperature = r % 4 ? 0.3f * static_cast<float>(r % 4) : 0.0f;
    p.top_k = r % 3 ? 0 : 50;
    p.top_p = r % 5 ? 0.9f : 1.0f;
    p.seed = 42;
    p.position = static_cast<uint64_t>(r);
    p.n_logprobs = r % 2 ? 3 : -2;
    if (r % 7 == 0) p.counts = counts, p.count_n = 2, p.repetition_penalty = 1.3f;
    params.push_back(p);
  }
  for (const IsaUnderTest& isa : isas()) {
    const Result all = sample(isa, 3, x, vocab, params, 3);
    for (int r = 0; r < rows; ++r) {
      const std::vector<float> row(x.begin() + r * vocab, x.begin() + (r + 1) * vocab);
      const Result alone = sample(isa, 1, row, vocab, {params[static_cast<size_t>(r)]}, 3);
      CHECK(std::memcmp(&alone.picked[0], &all.picked[static_cast<size_t>(r)], sizeof(SampleResult)) == 0);
      CHECK(std::memcmp(alone.top.data(), &all.top[static_cast<size_t>(r * 3)], 3 * sizeof(TokenLogprob)) == 0);
    }
    // The same seed and position give the same token again, another position another stream.
    std::map<int, int> seen;
    for (uint64_t position = 0; position < 200; ++position) {
      SampleRow p = plain();
      p.temperature = 1;
      p.position = position;
      ++seen[one(isa, std::vector<float>(1000, 0.0f), p)];
    }
    CHECK(seen.size() > 150);
  }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
