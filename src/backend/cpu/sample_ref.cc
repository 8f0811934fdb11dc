#include "backend/cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/philox.h"

namespace orlop::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Best first; of equals the lower id. A total order, so that selections have one result.
bool better(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

bool changes_logits(const SampleRow& p) {
  const bool penalties = p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f ||
                         p.frequency_penalty != 0.0f;
  return p.bias_n > 0 || p.forbidden_n > 0 || (penalties && p.count_n > 0);
}

// Sums that left the numbers behind: what is not a number cannot be chosen, what is above all
// numbers is the largest of them.
float tame(float v) {
  if (v != v) return -infinity;
  return std::min(v, std::numeric_limits<float>::max());
}

void change_logits(const SampleRow& p, int32_t vocab, Candidate* c) {
  const auto known = [&](int32_t token) { return token >= 0 && token < vocab; };
  for (int32_t i = 0; i < p.bias_n; ++i)
    if (known(p.bias[i].token)) {
      float& v = c[p.bias[i].token].value;
      v = tame(v + p.bias[i].logprob);
    }
  for (int32_t i = 0; i < p.count_n; ++i) {
    const TokenCount& count = p.counts[i];
    if (!known(count.token)) continue;
    float v = c[count.token].value;
    if (count.in_prompt || count.generated > 0)
      v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    if (count.generated > 0)
      v -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count.generated);
    c[count.token].value = tame(v);
  }
  for (int32_t i = 0; i < p.forbidden_n; ++i)
    if (known(p.forbidden[i])) c[p.forbidden[i]].value = -infinity;
}

// The smallest sorted prefix whose weight reaches `share` of the whole, at least one. Sorts no
// further than that.
int64_t nucleus(Candidate* c, int64_t n, double share, bool sorted) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(c[i].value);
  double sum = 0;
  for (int64_t begin = 0, step = 64; begin < n; begin += step, step *= 4) {
    const int64_t end = std::min(n, begin + step);
    if (!sorted) {
      if (end < n) std::nth_element(c + begin, c + end, c + n, better);
      std::sort(c + begin, c + end, better);
    }
    for (int64_t i = begin; i < end; ++i) {
      sum += static_cast<double>(c[i].value);
      if (sum >= share * total) return i + 1;
    }
    if (end == n) break;
  }
  return n;
}

// Draws from candidates whose values are final logits; -1 if none can come.
int32_t draw(const SampleRow& p, Candidate* c, int64_t n) {
  float max = -infinity;
  for (int64_t i = 0; i < n; ++i) max = std::max(max, c[i].value);
  if (max == -infinity) return -1;
  bool sorted = false;
  if (p.top_k > 0 && p.top_k < n) {
    std::nth_element(c, c + p.top_k, c + n, better);
    n = p.top_k;
    std::sort(c, c + n, better);
    sorted = true;
  }
  // The largest is subtracted before the division: no temperature makes this overflow.
  for (int64_t i = 0; i < n; ++i) c[i].value = std::exp((c[i].value - max) / p.temperature);
  if (p.top_p < 1.0f) {
    n = nucleus(c, n, static_cast<double>(p.top_p), sorted);
    sorted = true;
  }
  if (p.min_p > 0.0f)  // the largest weight is 1
    n = std::remove_if(c, c + n, [&](const Candidate& x) { return x.value < std::min(p.min_p, 1.0f); }) - c;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(c[i].value);
  const double target = philox_uniform(p.seed, p.position) * total;
  double sum = 0;
  int32_t last = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (c[i].value <= 0.0f) continue;
    sum += static_cast<double>(c[i].value);
    last = c[i].id;
    if (sum > target) break;
  }
  return last;
}

// The n best of the raw distribution, best first.
void best(const float* logits, int64_t vocab, int64_t n, double log_sum, Candidate* c,
          TokenLogprob* top) {
  if (n <= 0) return;
  // A heap of the n best so far, the worst of them in front: few candidates ever enter it.
  for (int64_t i = 0; i < n; ++i) c[i] = {logits[i], static_cast<int32_t>(i)};
  std::make_heap(c, c + n, better);
  for (int64_t i = n; i < vocab; ++i) {
    if (!(logits[i] > c[0].value)) continue;  // an equal has a higher id
    std::pop_heap(c, c + n, better);
    c[n - 1] = {logits[i], static_cast<int32_t>(i)};
    std::push_heap(c, c + n, better);
  }
  std::sort_heap(c, c + n, better);
  for (int64_t i = 0; i < n; ++i)
    top[i] = {c[i].id, static_cast<float>(static_cast<double>(c[i].value) - log_sum)};
}

}  // namespace

void sample_row(const SampleVec& vec, const SampleArgs& a, int32_t row, Candidate* c) {
  const float* logits = a.logits + row * a.logits_stride;
  const SampleRow& p = a.params[row];
  SampleResult& result = a.results[row];
  TokenLogprob* top = a.top ? a.top + int64_t{row} * a.top_stride : nullptr;
  const int64_t wanted =
      p.n_logprobs == -1 ? int64_t{a.vocab} : std::max<int64_t>(0, p.n_logprobs);
  const int64_t top_n = top ? std::min<int64_t>({wanted, a.vocab, a.top_stride}) : 0;

  float max;
  const int64_t first = vec.argmax(logits, a.vocab, &max);
  // NaN anywhere, +inf, or nothing above -inf: there is no distribution.
  if (first < 0 || max == infinity || max == -infinity) {
    result = {-1, nan};
    for (int64_t i = 0; i < top_n; ++i) top[i] = {-1, nan};
    return;
  }
  double log_sum = 0;
  const bool want_logprob = p.n_logprobs >= -1 || p.given >= 0;
  if (want_logprob)
    log_sum = static_cast<double>(max) + std::log(vec.sum_exp(logits, a.vocab, max));
  if (p.n_logprobs == -1)
    for (int64_t i = 0; i < top_n; ++i)
      top[i] = {static_cast<int32_t>(i),
                static_cast<float>(static_cast<double>(logits[i]) - log_sum)};
  else
    best(logits, a.vocab, top_n, log_sum, c, top);

  int32_t token;
  if (p.given >= 0) {
    token = p.given < a.vocab ? p.given : -1;
  } else if (!changes_logits(p) && (p.temperature <= 0.0f || p.top_k == 1)) {
    token = static_cast<int32_t>(first);
  } else {
    for (int32_t i = 0; i < a.vocab; ++i) c[i] = {logits[i], i};
    change_logits(p, a.vocab, c);
    if (p.temperature <= 0.0f) {
      const Candidate& chosen = *std::min_element(c, c + a.vocab, better);
      token = chosen.value == -infinity ? -1 : chosen.id;
    } else {
      token = draw(p, c, a.vocab);
    }
  }
  result.token = token;
  result.logprob = want_logprob && token >= 0
                       ? static_cast<float>(static_cast<double>(logits[token]) - log_sum)
                       : nan;
}

namespace ref {
namespace {

int64_t argmax(const float* x, int64_t n, float* max) {
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return -1;
    if (x[i] > x[at]) at = i;
  }
  *max = x[at];
  return at;
}

double sum_exp(const float* x, int64_t n, float max) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(std::exp(x[i] - max));
  return sum;
}

}  // namespace
const SampleVec sample_vec = {argmax, sum_exp};
}  // namespace ref

}  // namespace orlop::cpu
