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
  return p.allowed || p.bias_n > 0 || p.forbidden_n > 0 || (penalties && p.count_n > 0);
}

// Sums that left the numbers behind: what is not a number cannot be chosen, what is above all
// numbers is the largest of them.
float tame(float v) {
  if (v != v) return -infinity;
  return std::min(v, std::numeric_limits<float>::max());
}

void keep_allowed(const uint32_t* allowed, int32_t vocab, float* logits) {
  for (int32_t begin = 0; begin < vocab; begin += 32) {
    const uint32_t word = allowed[begin / 32];
    if (word == ~uint32_t{0}) continue;
    const int32_t n = std::min(32, vocab - begin);
    for (int32_t i = 0; i < n; ++i)
      if (!(word >> i & 1)) logits[begin + i] = -infinity;
  }
}

void change_logits(const SampleRow& p, int32_t vocab, float* logits) {
  const auto known = [&](int32_t token) { return token >= 0 && token < vocab; };
  for (int32_t i = 0; i < p.bias_n; ++i)
    if (known(p.bias[i].token)) {
      float& v = logits[p.bias[i].token];
      v = tame(v + p.bias[i].logprob);
    }
  for (int32_t i = 0; i < p.count_n; ++i) {
    const TokenCount& count = p.counts[i];
    if (!known(count.token)) continue;
    float v = logits[count.token];
    if (count.in_prompt || count.generated > 0)
      v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    if (count.generated > 0)
      v -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count.generated);
    logits[count.token] = tame(v);
  }
  for (int32_t i = 0; i < p.forbidden_n; ++i)
    if (known(p.forbidden[i])) logits[p.forbidden[i]] = -infinity;
  if (p.allowed) keep_allowed(p.allowed, vocab, logits);
}

double weight_of(const Candidate* c, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(c[i].value);
  return sum;
}

// Moves the smallest set of best candidates whose weight reaches `share` to the front and returns
// its size (at least one): a quickselect by weight, since sorting a flat distribution would cost
// more than the rest of a step.
int64_t nucleus(Candidate* c, int64_t n, double share) {
  int64_t begin = 0, end = n;  // the border lies in here
  while (end - begin > 32) {
    Candidate a = c[begin], b = c[begin + (end - begin) / 2], d = c[end - 1];
    if (better(b, a)) std::swap(a, b);
    if (better(d, b)) b = better(d, a) ? a : d;  // b: the median of three
    Candidate* middle =
        std::partition(c + begin, c + end, [&](const Candidate& x) { return better(x, b); });
    // [begin, middle) are better than b; b itself stands somewhere from middle on.
    const double left = weight_of(c + begin, middle - (c + begin));
    if (middle > c + begin && left >= share) {
      end = middle - c;
      continue;
    }
    std::iter_swap(middle, std::find_if(middle, c + end,
                                        [&](const Candidate& x) { return x.id == b.id; }));
    share -= left + static_cast<double>(b.value);
    begin = middle - c + 1;
    if (share <= 0) return begin;
  }
  std::sort(c + begin, c + end, better);
  while (begin < end) {
    share -= static_cast<double>(c[begin++].value);
    if (share <= 0) break;
  }
  return std::max<int64_t>(1, begin);
}

// A point in [0, total) to candidates in the order given.
int32_t pick(const Candidate* c, int64_t n, double uniform) {
  const double target = uniform * weight_of(c, n);
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

// The same over the whole vocabulary, in the order of ids.
int32_t pick_from_all(const SampleVec& vec, const float* weights, int64_t n, double uniform) {
  constexpr int64_t block = 4096;
  const double target = uniform * vec.sum(weights, n);
  double sum = 0;
  int32_t last = -1;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t size = std::min(block, n - begin);
    const double here = vec.sum(weights + begin, size);
    if (here <= 0) continue;
    if (begin + size < n && sum + here <= target) {
      sum += here;
      for (int64_t i = begin + size; last < begin && i-- > begin;)  // if nothing follows
        if (weights[i] > 0.0f) last = static_cast<int32_t>(i);
      continue;
    }
    for (int64_t i = begin; i < begin + size; ++i) {
      if (weights[i] <= 0.0f) continue;
      sum += static_cast<double>(weights[i]);
      last = static_cast<int32_t>(i);
      if (sum > target) return last;
    }
  }
  return last;
}

// The n best, best first.
void best(const float* logits, int64_t vocab, int64_t n, Candidate* c) {
  if (n <= 0) return;
  for (int64_t i = 0; i < n; ++i) c[i] = {logits[i], static_cast<int32_t>(i)};
  if (n > 1024) {
    for (int64_t i = n; i < vocab; ++i) c[i] = {logits[i], static_cast<int32_t>(i)};
    if (n < vocab) std::nth_element(c, c + n, c + vocab, better);
    std::sort(c, c + n, better);
    return;
  }
  // A heap of the n best so far, the worst of them in front: few candidates ever enter it.
  std::make_heap(c, c + n, better);
  for (int64_t i = n; i < vocab; ++i) {
    if (!(logits[i] > c[0].value)) continue;  // an equal has a higher id
    std::pop_heap(c, c + n, better);
    c[n - 1] = {logits[i], static_cast<int32_t>(i)};
    std::push_heap(c, c + n, better);
  }
  std::sort_heap(c, c + n, better);
}

// Draws from final logits, which become weights; -1 if none can come. The largest logit is
// subtracted before the division by the temperature, so no temperature makes a weight overflow.
int32_t draw(const SampleVec& vec, const SampleRow& p, float* logits, int64_t vocab, Candidate* c) {
  float max;
  vec.argmax(logits, vocab, &max);
  if (max == -infinity) return -1;
  const float temperature = std::min(p.temperature, std::numeric_limits<float>::max());
  const double uniform = philox_uniform(p.seed, p.position);
  const bool some = p.top_k > 0 && p.top_k < vocab;
  int64_t n = 0;
  double total = 0;
  if (some) {
    n = p.top_k;
    best(logits, vocab, n, c);
    for (int64_t i = 0; i < n; ++i) c[i].value = std::exp((c[i].value - max) / temperature);
    total = weight_of(c, n);
  } else {
    vec.weights(logits, vocab, max, temperature);
    if (p.top_p >= 1.0f && p.min_p <= 0.0f) return pick_from_all(vec, logits, vocab, uniform);
    // Most of a vocabulary weighs next to nothing: only as many candidates are looked at as the
    // nucleus can need. The largest weight is 1.
    total = vec.sum(logits, vocab);
    const float least = std::min(p.min_p, 1.0f);
    for (float cut = p.top_p < 1.0f ? std::max(0x1p-7f, least) : least;;
         cut = cut > 1e-30f ? cut * 0x1p-7f : 0.0f) {
      n = 0;
      for (int64_t i = 0; i < vocab; ++i)
        if (logits[i] >= cut) c[n++] = {logits[i], static_cast<int32_t>(i)};
      // What lies below min_p is not needed even where the nucleus would hold it.
      if (cut <= p.min_p || cut == 0.0f) break;
      if (weight_of(c, n) >= static_cast<double>(p.top_p) * total) break;
    }
  }
  if (p.top_p < 1.0f) n = nucleus(c, n, static_cast<double>(p.top_p) * total);
  if (p.min_p > 0.0f)
    n = std::remove_if(c, c + n, [&](const Candidate& x) {
          return x.value < std::min(p.min_p, 1.0f);
        }) - c;
  return pick(c, n, uniform);
}

}  // namespace

void sample_row(const SampleVec& vec, const SampleArgs& a, int32_t row, void* workspace) {
  Candidate* c = static_cast<Candidate*>(workspace);
  float* changed = reinterpret_cast<float*>(c + a.vocab);
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
  else {
    best(logits, a.vocab, top_n, c);
    for (int64_t i = 0; i < top_n; ++i)
      top[i] = {c[i].id, static_cast<float>(static_cast<double>(c[i].value) - log_sum)};
  }

  int32_t token;
  if (p.given >= 0) {
    token = p.given < a.vocab ? p.given : -1;
  } else if (!changes_logits(p) && (p.temperature <= 0.0f || p.top_k == 1)) {
    token = static_cast<int32_t>(first);
  } else {
    std::copy(logits, logits + a.vocab, changed);
    change_logits(p, a.vocab, changed);
    if (p.temperature <= 0.0f) {
      token = static_cast<int32_t>(vec.argmax(changed, a.vocab, &max));
      if (max == -infinity) token = -1;
    } else {
      token = draw(vec, p, changed, a.vocab, c);
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

void weights(float* x, int64_t n, float max, float temperature) {
  for (int64_t i = 0; i < n; ++i) x[i] = std::exp((x[i] - max) / temperature);
}

double sum(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

}  // namespace
const SampleVec sample_vec = {argmax, sum_exp, weights, sum};
}  // namespace ref

}  // namespace orlop::cpu
