// Choosing tokens: one block a row. The rules and their order are those of the CPU (backend/cpu/sample_ref.cc);
// among the tokens that are left the draw goes by ascending id. Sums run in a fixed order, so equal logits,
// parameters and seed give equal tokens.
#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"

namespace orlop::cuda {
namespace {

constexpr int threads = 1024;
constexpr float largest = 3.402823466e38f;

struct Best {
  float value;
  int32_t id;  // -1: none
};
__device__ inline bool better(const Best& a, const Best& b) {
  return b.id < 0 || (a.id >= 0 && (a.value > b.value || (a.value == b.value && a.id < b.id)));
}

struct Shared {
  double sums[32];
  Best best[32];
  int32_t flags[32];
  double scan[threads];
  int32_t ranks[threads];
};

// Every thread gets the sum; always the same tree.
__device__ double block_sum(Shared& s, double v) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = v;
  __syncthreads();
  double sum = 0;
  for (int i = 0; i < threads / 32; ++i) sum += s.sums[i];
  return sum;
}
__device__ Best block_best(Shared& s, Best b) {
  for (int step = 16; step; step /= 2) {
    const Best o{__shfl_xor_sync(all_lanes, b.value, step), __shfl_xor_sync(all_lanes, b.id, step)};
    if (better(o, b)) b = o;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.best[threadIdx.x / 32] = b;
  __syncthreads();
  b = s.best[0];
  for (int i = 1; i < threads / 32; ++i)
    if (better(s.best[i], b)) b = s.best[i];
  return b;
}
__device__ bool block_any(Shared& s, bool v) { return __syncthreads_or(v); }

// The best of those worse than `limit` (id -1: of all).
__device__ Best best_after(Shared& s, const float* x, int32_t n, Best limit) {
  Best b{0, -1};
  for (int32_t i = threadIdx.x; i < n; i += threads) {
    const Best c{x[i], i};
    if ((limit.id < 0 || better(limit, c)) && (limit.id != i) && better(c, b)) b = c;
  }
  return block_best(s, b);
}

// Ascending with the float.
__device__ inline uint32_t ordered(float v) {
  const uint32_t u = __float_as_uint(v);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ inline float tame(float v) { return v != v ? -INFINITY : fminf(v, largest); }

__device__ void change(const SampleRow& p, int32_t vocab, float* x) {
  if (threadIdx.x == 0)  // a token may be named more than once
    for (int32_t i = 0; i < p.bias_n; ++i)
      if (p.bias[i].token >= 0 && p.bias[i].token < vocab) x[p.bias[i].token] = tame(x[p.bias[i].token] + p.bias[i].logprob);
  __syncthreads();
  for (int32_t i = threadIdx.x; i < p.count_n; i += threads) {  // distinct tokens
    const TokenCount c = p.counts[i];
    if (c.token < 0 || c.token >= vocab) continue;
    float v = x[c.token];
    if (c.in_prompt || c.generated > 0) v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    if (c.generated > 0) v -= p.presence_penalty + p.frequency_penalty * static_cast<float>(c.generated);
    x[c.token] = tame(v);
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < p.forbidden_n; i += threads)
    if (p.forbidden[i] >= 0 && p.forbidden[i] < vocab) x[p.forbidden[i]] = -INFINITY;
  __syncthreads();
  if (p.allowed)
    for (int32_t i = threadIdx.x; i < vocab; i += threads)
      if (!(p.allowed[i / 32] >> (i % 32) & 1)) x[i] = -INFINITY;
  __syncthreads();
}

__device__ double uniform(uint64_t seed, uint64_t position) {  // Philox4x32-10 (Salmon et al. 2011)
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return static_cast<double>((uint64_t{c[0]} << 32 | c[1]) >> 11) * 0x1p-53;
}

// Which weights are kept: those whose key is above `key`, and of those that have it the first `equals`.
struct Cut {
  uint32_t key = 0;
  int64_t equals = INT32_MAX;
};

// The largest key for which the measure of all with that key or a higher one reaches `goal`.
template <class Measure>
__device__ uint32_t find_key(Shared& s, const float* x, int32_t n, double goal, const Measure& measure) {
  uint32_t key = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t tried = key | 1u << bit;
    double sum = 0;
    for (int32_t i = threadIdx.x; i < n; i += threads)
      if (ordered(x[i]) >= tried) sum += measure(x[i]);
    if (block_sum(s, sum) >= goal) key = tried;
  }
  return key;
}
template <class Measure>
__device__ double above(Shared& s, const float* x, int32_t n, uint32_t key, const Measure& measure) {
  double sum = 0;
  for (int32_t i = threadIdx.x; i < n; i += threads)
    if (ordered(x[i]) > key) sum += measure(x[i]);
  return block_sum(s, sum);
}

// Sets what the cut leaves out to zero. Threads own consecutive ids, so equals are counted in order.
__device__ void keep(Shared& s, float* x, int32_t n, Cut cut, float zero) {
  const int32_t each = (n + threads - 1) / threads, begin = threadIdx.x * each, end = min(n, begin + each);
  int32_t equals = 0;
  for (int32_t i = begin; i < end; ++i) equals += ordered(x[i]) == cut.key;
  __syncthreads();
  s.ranks[threadIdx.x] = equals;
  __syncthreads();
  int64_t before = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) before += s.ranks[t];
  for (int32_t i = begin; i < end; ++i) {
    const uint32_t key = ordered(x[i]);
    if (key > cut.key) continue;
    if (key == cut.key && before++ < cut.equals) continue;
    x[i] = zero;
  }
  __syncthreads();
}

__device__ int32_t draw(Shared& s, const SampleRow& p, float* x, int32_t n) {
  const Best top = best_after(s, x, n, {0, -1});
  if (top.value == -INFINITY) return -1;
  const float temperature = fminf(p.temperature, largest);
  const auto one = [](float) { return 1.0; };
  const auto itself = [](float v) { return static_cast<double>(v); };
  if (p.top_k > 0 && p.top_k < n) {
    Cut cut;
    cut.key = find_key(s, x, n, p.top_k, one);
    cut.equals = p.top_k - static_cast<int64_t>(above(s, x, n, cut.key, one));
    keep(s, x, n, cut, -INFINITY);
  }
  double mine = 0;
  for (int32_t i = threadIdx.x; i < n; i += threads) {
    x[i] = expf((x[i] - top.value) / temperature);
    mine += x[i];
  }
  const double total = block_sum(s, mine);
  if (p.top_p < 1.0f) {
    const double share = static_cast<double>(p.top_p) * total;
    Cut cut;
    cut.key = find_key(s, x, n, share, itself);
    const double over = above(s, x, n, cut.key, itself);
    const uint32_t u = cut.key & 0x80000000u ? cut.key & 0x7fffffffu : ~cut.key;
    const double each = __uint_as_float(u);
    cut.equals = each > 0 ? max(int64_t{1}, static_cast<int64_t>(ceil((share - over) / each))) : INT32_MAX;
    keep(s, x, n, cut, 0.0f);
  }
  const float least = fminf(p.min_p, 1.0f);
  const int32_t each = (n + threads - 1) / threads, begin = threadIdx.x * each, end = min(n, begin + each);
  double weight = 0;
  for (int32_t i = begin; i < end; ++i) {
    if (x[i] < least) x[i] = 0;
    weight += x[i];
  }
  __syncthreads();
  s.scan[threadIdx.x] = weight;
  __syncthreads();
  // One thread walks the shares and then the ids of the one that holds the point.
  if (threadIdx.x == 0) {
    double all = 0;
    for (int t = 0; t < threads; ++t) all += s.scan[t];
    const double target = uniform(p.seed, p.position) * all;
    double sum = 0;
    int holder = 0;  // the share that holds the point; if rounding leaves none, the last that has weight
    bool inside = false;
    for (int t = 0; t < threads && !inside; ++t) {
      if (s.scan[t] <= 0) continue;
      holder = t;
      inside = sum + s.scan[t] > target;
      if (!inside) sum += s.scan[t];
    }
    int32_t last = -1;
    for (int32_t i = holder * each; i < min(n, (holder + 1) * each); ++i) {
      if (x[i] <= 0) continue;
      last = i;
      sum += x[i];
      if (inside && sum > target) break;
    }
    s.flags[0] = last;
  }
  __syncthreads();
  return s.flags[0];
}

__global__ void __launch_bounds__(threads) sample_rows(SampleArgs a) {
  __shared__ Shared s;
  const int32_t row = blockIdx.x, n = a.vocab;
  const float* logits = a.logits + row * a.logits_stride;
  const SampleRow p = a.params[row];
  TokenLogprob* top = a.top ? a.top + int64_t{row} * a.top_stride : nullptr;
  const int64_t wanted = p.n_logprobs == -1 ? int64_t{n} : max(0, p.n_logprobs);
  const int32_t top_n = top ? static_cast<int32_t>(min(wanted, static_cast<int64_t>(min(n, a.top_stride)))) : 0;

  bool nan = false;
  for (int32_t i = threadIdx.x; i < n; i += threads) nan |= logits[i] != logits[i];
  nan = block_any(s, nan);
  const Best first = best_after(s, logits, n, {0, -1});
  if (nan || first.value == INFINITY || first.value == -INFINITY) {
    if (threadIdx.x == 0) a.results[row] = {-1, NAN};
    for (int32_t i = threadIdx.x; i < top_n; i += threads) top[i] = {-1, NAN};
    return;
  }
  double log_sum = 0;
  const bool want_logprob = p.n_logprobs >= -1 || p.given >= 0;
  if (want_logprob) {
    double mine = 0;
    for (int32_t i = threadIdx.x; i < n; i += threads) mine += expf(logits[i] - first.value);
    log_sum = static_cast<double>(first.value) + log(block_sum(s, mine));
  }
  const auto logprob = [&](int32_t id) { return static_cast<float>(static_cast<double>(logits[id]) - log_sum); };
  if (p.n_logprobs == -1) {
    for (int32_t i = threadIdx.x; i < top_n; i += threads) top[i] = {i, logprob(i)};
  } else {
    Best b{0, -1};
    for (int32_t i = 0; i < top_n; ++i) {
      b = best_after(s, logits, n, b);
      if (threadIdx.x == 0) top[i] = {b.id, logprob(b.id)};
    }
  }

  int32_t token;
  const bool penalties = p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
  const bool changes = p.allowed || p.bias_n > 0 || p.forbidden_n > 0 || (penalties && p.count_n > 0);
  if (p.given >= 0) {
    token = p.given < n ? p.given : -1;
  } else if (!changes && (p.temperature <= 0.0f || p.top_k == 1)) {
    token = first.id;
  } else {
    float* x = static_cast<float*>(a.workspace) + int64_t{row} * n;
    for (int32_t i = threadIdx.x; i < n; i += threads) x[i] = logits[i];
    __syncthreads();
    if (changes) change(p, n, x);
    if (p.temperature <= 0.0f) {
      const Best b = best_after(s, x, n, {0, -1});
      token = b.value == -INFINITY ? -1 : b.id;
    } else {
      token = draw(s, p, x, n);
    }
  }
  if (threadIdx.x == 0) a.results[row] = {token, want_logprob && token >= 0 ? logprob(token) : NAN};
}

}  // namespace

void sample(Context* c, const SampleArgs& a, PluginStatus* status) {
  launch(c, sample_rows, dim3(blocks(a.rows, 1)), dim3(threads), 0, a);
}

}  // namespace orlop::cuda
