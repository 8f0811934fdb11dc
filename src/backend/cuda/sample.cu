// Choosing tokens: a cluster of blocks a row. Each block reads its part of the row once and keeps it in shared
// memory; what all need of each other (the best, sums, histograms' bins) goes through the cluster. The rules and
// their order are those of the CPU (backend/cpu/sample_ref.cc); among the tokens that are left the draw goes by
// ascending id. Weights are summed as whole numbers, so a row's token depends on its own logits and parameters alone.
#include <atomic>

#include "backend/cuda/entries.h"
#include "backend/cuda/sample_select.cuh"

namespace orlop::cuda {
namespace {

__device__ inline float tame(float v) { return v != v ? -INFINITY : fminf(v, largest); }

// Reads the block's part, keeps it if it is to stay, and gives the thread's best.
template <bool resident>
__device__ inline void read_part(const Chunk& c, uint32_t& key, int32_t& id) {
  constexpr int together = 8;
  float best = -INFINITY;
  int32_t at = INT_MAX;
  bool nan = false;
  const bool aligned = reinterpret_cast<uintptr_t>(c.raw) % 16 == 0;
  for (int32_t begin = 4 * threadIdx.x; begin < c.count; begin += 4 * sample_threads * together) {
    float4 v[together];
#pragma unroll
    for (int u = 0; u < together; ++u) {
      const int32_t i = begin + 4 * sample_threads * u;
      if (aligned && i + 4 <= c.count) {
        v[u] = *reinterpret_cast<const float4*>(c.raw + i);
      } else {
        v[u].x = i < c.count ? c.raw[i] : -INFINITY;
        v[u].y = i + 1 < c.count ? c.raw[i + 1] : -INFINITY;
        v[u].z = i + 2 < c.count ? c.raw[i + 2] : -INFINITY;
        v[u].w = i + 3 < c.count ? c.raw[i + 3] : -INFINITY;
      }
    }
#pragma unroll
    for (int u = 0; u < together; ++u) {
      const int32_t i = begin + 4 * sample_threads * u;
      if (resident && i < c.count) *reinterpret_cast<float4*>(c.x + i) = v[u];  // a part's room is whole float4
      const float each[4] = {v[u].x, v[u].y, v[u].z, v[u].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        nan |= each[e] != each[e];
        if (each[e] > best) best = each[e], at = i + e;
      }
    }
  }
  key = nan ? key_nan : at == INT_MAX ? 0 : ordered(best);
  id = at == INT_MAX ? INT_MAX : c.begin + at;
}

// The block's sum of exp(x - best), in thread 0's warp.
__device__ inline double sum_exp(SampleShared& s, const float* x, int32_t n, float best) {
  double sum = 0;
  int32_t i = threadIdx.x;
  for (; i + 3 * sample_threads < n; i += 4 * sample_threads) {
    const float a = expf(x[i] - best), b = expf(x[i + sample_threads] - best);
    const float d = expf(x[i + 2 * sample_threads] - best), e = expf(x[i + 3 * sample_threads] - best);
    sum += static_cast<double>((a + b) + (d + e));
  }
  for (; i < n; i += sample_threads) sum += static_cast<double>(expf(x[i] - best));
  sum = warp_sum(sum);
  const int lane = threadIdx.x % 32;
  if (lane == 0) s.warp_sum[threadIdx.x / 32] = sum;
  __syncthreads();
  return threadIdx.x < 32 ? warp_sum(lane < sample_warps ? s.warp_sum[lane] : 0.0) : 0;
}

// log of the sum of exp over the row; whole warps.
__device__ inline double log_sum_of(const Part* parts, int blocks, float best) {
  const int lane = threadIdx.x % 32;
  double sum = 0;
  if (lane < blocks && parts[lane].key > key_minus_infinity)
    sum = parts[lane].sum * exp(static_cast<double>(from_ordered(parts[lane].key)) - static_cast<double>(best));
  return static_cast<double>(best) + log(warp_sum(sum));
}

// Bias, penalties and masks. A token may have several biases, which are added in their order.
__device__ void change(const SampleRow& p, const Chunk& c, float* x) {
  if (p.bias_n > 0) {
    if (threadIdx.x < 32)
      for (int32_t first = 0; first < p.bias_n; first += 32) {
        const int32_t i = first + threadIdx.x;
        const int32_t at = i < p.bias_n ? p.bias[i].token - c.begin : -1;
        const float add = i < p.bias_n ? p.bias[i].logprob : 0;
        const bool mine = i < p.bias_n && p.bias[i].token >= 0 && at >= 0 && at < c.count;
        const unsigned some = __ballot_sync(all_lanes, mine);
        for (unsigned left = some; left; left &= left - 1) {  // equal tokens go one after another
          const int lane = __ffs(left) - 1;
          if (static_cast<int>(threadIdx.x) == lane) x[at] = tame(x[at] + add);
          __syncwarp();
        }
      }
    __syncthreads();
  }
  for (int32_t i = threadIdx.x; i < p.count_n; i += sample_threads) {  // distinct tokens
    const TokenCount n = p.counts[i];
    const int32_t at = n.token - c.begin;
    if (n.token < 0 || at < 0 || at >= c.count) continue;
    float v = x[at];
    if (n.in_prompt || n.generated > 0) v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    // Rounded as the CPU does it: no fused product.
    if (n.generated > 0) v -= __fadd_rn(p.presence_penalty, __fmul_rn(p.frequency_penalty, static_cast<float>(n.generated)));
    x[at] = tame(v);
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < p.forbidden_n; i += sample_threads) {
    const int32_t at = p.forbidden[i] - c.begin;
    if (p.forbidden[i] >= 0 && at >= 0 && at < c.count) x[at] = -INFINITY;
  }
  __syncthreads();
  if (p.allowed) {
    for (int32_t i = threadIdx.x; i < c.count; i += sample_threads) {
      const int32_t id = c.begin + i;
      if (!(p.allowed[id / 32] >> (id % 32) & 1)) x[i] = -INFINITY;
    }
    __syncthreads();
  }
}

// Every block gives its part to all others.
__device__ inline void share(Part* parts, const Chunk& c, const Part& mine) {
  if (threadIdx.x < c.blocks) at_block(parts, threadIdx.x)[c.rank] = mine;
  cluster_arrive();
  cluster_wait();
}

// Best first; of equals the lower id.
__device__ inline bool better(const Token& a, const Token& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

// The n best of raw logits, best first. Leaves the cluster's barrier arrived at, not waited for.
template <bool resident>
__device__ __noinline__ void best_logprobs(SampleShared& s, Chunk& c, TokenLogprob* top, int32_t n, float best, float mine, double log_sum) {
  const auto logprob = [&](float v) { return static_cast<float>(static_cast<double>(v) - log_sum); };
  if (n <= list_size) {
    // The n best threads' bests bound the n best tokens from below.
    uint32_t* h = clear_histogram(s, c);
    atomicAdd(&h[distance_bin(best, mine)], 1u);
    find_border<true, false>(s, c, n, 0, 0);
    const uint32_t last = s.border.bin;
    const int32_t listed = gather(s, c, c.raw, [&](float v) { return distance_bin(best, v) <= last; });
    if (listed >= 0) {
      cluster_arrive();
      if (c.rank == 0 && threadIdx.x < listed) {
        const Token t = s.list[threadIdx.x];
        int rank = 0;
        for (int i = 0; i < listed; ++i) rank += better(s.list[i], t);
        if (rank < n) top[rank] = {t.id, logprob(t.value)};
      }
      return;
    }
  }
  const Cut cut = n < c.vocab ? cut_count<resident>(s, c, c.raw, n) : Cut{};
  int* counter = at_block(&s.out_n, 0);
  for (int32_t i = threadIdx.x; i < c.count; i += sample_threads)
    if (cut.keeps(~ordered(c.raw[i]), c.begin + i)) top[atomicAdd(counter, 1)] = {c.begin + i, c.raw[i]};
  __threadfence();
  cluster_arrive();
  cluster_wait();
  // A bitonic network that only ever sorts upwards, so that what would lie behind the end stays there.
  const auto at = [&](int64_t i) {
    const int2 v = __ldcg(reinterpret_cast<const int2*>(top + i));
    return Token{__int_as_float(v.y), v.x};
  };
  const int64_t all = int64_t{c.blocks} * sample_threads, first = int64_t{c.rank} * sample_threads + threadIdx.x;
  for (int64_t size = 2; size < 2 * int64_t{n}; size *= 2)
    for (int64_t step = size / 2; step; step /= 2) {
      for (int64_t pair = first;; pair += all) {
        const int64_t begin = pair / step * 2 * step, off = pair % step, i = begin + off;
        if (i >= n) break;
        const int64_t j = step == size / 2 ? begin + 2 * step - 1 - off : i + step;
        if (j >= n) continue;
        const Token low = at(i), high = at(j);
        if (better(high, low)) top[i] = {high.id, high.value}, top[j] = {low.id, low.value};
      }
      __threadfence();
      cluster_arrive();
      cluster_wait();
    }
  for (int64_t i = first; i < n; i += all) top[i].logprob = logprob(at(i).value);
  cluster_arrive();
}

// How much of `total` top_p wants at least.
__device__ inline uint64_t share_of(float top_p, uint64_t total) {
  const double share = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  return share >= static_cast<double>(total) ? total : share > 1 ? static_cast<uint64_t>(share) : 1;
}

// The first block draws from its list of n: of logits (`best` is the row's, total what they weigh together), or
// of weights, where `total` is what all tokens weigh.
__device__ __noinline__ void draw_from_list(SampleShared& s, int n, bool logits, float best, uint64_t total) {
  const SampleRow& p = s.row;
  const int i = threadIdx.x;
  const Token t = i < n ? s.list[i] : Token{0, -1};
  bool kept = i < n;
  float w = t.value;
  if (logits) {
    if (kept) {
      int rank = 0;
#pragma unroll 4
      for (int j = 0; j < n; ++j) rank += better(s.list[j], t);
      kept = rank < p.top_k;
      w = kept ? expf((t.value - best) / fminf(p.temperature, largest)) : 0;
    }
    __syncthreads();
    if (i < n) s.list[i].value = w;
  }
  uint64_t weight = kept ? fixed(w) : 0;
  if (p.top_p < 1.0f) {
    if (i < n) s.list_weight[i] = weight;
    __syncthreads();
    if (kept) {
      uint64_t before = 0, sum = 0;
#pragma unroll 4
      for (int j = 0; j < n; ++j) {
        sum += s.list_weight[j];
        if (better(s.list[j], {w, t.id})) before += s.list_weight[j];
      }
      kept = before < share_of(p.top_p, logits ? sum : total);
    }
    __syncthreads();
  }
  if (!kept || w < fminf(p.min_p, 1.0f)) weight = 0;
  if (i < n) s.list_weight[i] = weight;
  __syncthreads();
  if (weight) {
    uint64_t before = 0, sum = 0;
#pragma unroll 4
    for (int j = 0; j < n; ++j) {
      sum += s.list_weight[j];
      if (s.list[j].id < t.id) before += s.list_weight[j];
    }
    const double target = uniform(p.seed, p.position) * static_cast<double>(sum);
    if (static_cast<double>(before + weight) > target && !(static_cast<double>(before) > target)) s.token = t.id;
  }
  __syncthreads();
}

// Ids of a warp: a run of whole 128.
__device__ inline int32_t run_of(int32_t count) { return (count + 128 * sample_warps - 1) / (128 * sample_warps) * 128; }

// The drawn token's id goes to s.token of one block, which gets true.
template <bool resident>
__device__ __noinline__ bool draw(SampleShared& s, Chunk& c, float best, float mine, float* x) {
  const SampleRow& p = s.row;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Cut cut;
  bool cuts = false;
  if (p.top_k > 0 && p.top_k < c.vocab) {
    if (p.top_k <= list_size) {
      uint32_t* h = clear_histogram(s, c);
      if (mine > -INFINITY) atomicAdd(&h[distance_bin(best, mine)], 1u);
      find_border<true, false>(s, c, p.top_k, 0, 0);
      const uint32_t last = s.border.bin;
      const int32_t listed = gather(s, c, x, [&](float v) { return v > -INFINITY && distance_bin(best, v) <= last; });
      if (listed >= 0) {
        cluster_arrive();
        if (c.rank == 0) draw_from_list(s, listed, true, best, 0);
        cluster_wait();
        return c.rank == 0;
      }
    }
    cut = cut_count<resident>(s, c, x, p.top_k);
    cuts = true;
  }

  // Weights in place of logits.
  constexpr uint32_t near = 12 << 3;  // keys' first ten bits down to 2^-12
  const bool nucleus = p.top_p < 1.0f;
  const float temperature = fminf(p.temperature, largest), least = fminf(p.min_p, 1.0f);
  const int32_t run = run_of(c.count), begin = warp * run, end = min(c.count, begin + run);
  uint32_t* h = nucleus ? clear_histogram(s, c) : nullptr;
  uint64_t sum = 0;
#pragma unroll 4
  for (int32_t i = begin + lane; i < end; i += 32) {
    const float v = x[i];
    float w = expf((v - best) / temperature);
    if (cuts && !cut.keeps(~ordered(v), c.begin + i)) w = 0;
    const uint64_t weight = fixed(w);
    if (nucleus) {
      const uint32_t bin = weight_key(w) >> 20;
      if (bin < near) add_weight<resident>(h, bin, weight);
    } else if (w < least) {
      w = 0;
    }
    x[i] = w;
    if (nucleus || w > 0) sum += weight;
  }
  Cut of_weights;
  if (nucleus) {
    find_border<resident, true>(s, c, 0, p.top_p, sum);
    const uint64_t total = s.border.total;
    if (!s.border.reached) {  // far below the best: all weights
      h = clear_histogram(s, c);
      for (int32_t i = threadIdx.x; i < c.count; i += sample_threads) {
        const uint64_t weight = fixed(x[i]);
        if (weight) add_weight<resident>(h, weight_key(x[i]) >> 20, weight);
      }
      find_border<resident, true>(s, c, 0, p.top_p, sum);
    }
    if (s.border.count_before + s.border.count_inside <= list_size) {
      const uint32_t last = s.border.bin;
      const int32_t listed = gather(s, c, x, [&](float w) { return weight_key(w) >> 20 <= last; });
      if (listed >= 0) {  // ever
        cluster_arrive();
        if (c.rank == 0) draw_from_list(s, listed, false, best, total);
        cluster_wait();
        return c.rank == 0;
      }
    }
    of_weights = cut_weight<resident>(s, c, x);
    sum = 0;
    for (int32_t i = begin + lane; i < end; i += 32) {
      const float w = x[i];
      if (w >= least && of_weights.keeps(weight_key(w), c.begin + i))
        sum += fixed(w);
      else
        x[i] = 0;
    }
  }
  // By ascending id: which block's, which warp's, which token.
  sum = warp_sum(sum);
  if (lane == 0) s.warp_weight[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const uint64_t all = warp_sum(lane < sample_warps ? s.warp_weight[lane] : 0);
    if (lane < c.blocks) at_block(s.weights, lane)[c.rank] = all;
  }
  cluster_arrive();
  cluster_wait();
  uint64_t until = warp_scan(lane < c.blocks ? s.weights[lane] : 0);
  const double target = uniform(p.seed, p.position) * static_cast<double>(__shfl_sync(all_lanes, until, 31));
  unsigned reached = __ballot_sync(all_lanes, static_cast<double>(until) > target);
  if (!reached || __ffs(reached) - 1 != c.rank) return false;
  uint64_t before = c.rank ? __shfl_sync(all_lanes, until, c.rank - 1) : 0;
  until = before + warp_scan(lane < sample_warps ? s.warp_weight[lane] : 0);
  reached = __ballot_sync(all_lanes, static_cast<double>(until) > target);
  const int holder = __ffs(reached) - 1;
  if (holder) before = __shfl_sync(all_lanes, until, holder - 1);
  if (warp == holder) {
    for (int32_t first = begin; first < end; first += 128) {
      uint64_t each[4], mine_sum = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t i = first + 4 * lane + e;
        each[e] = i < end ? fixed(x[i]) : 0;
        mine_sum += each[e];
      }
      until = before + warp_scan(mine_sum);
      reached = __ballot_sync(all_lanes, static_cast<double>(until) > target);
      if (!reached) {
        before = __shfl_sync(all_lanes, until, 31);
        continue;
      }
      if (lane == __ffs(reached) - 1) {
        until -= mine_sum;
        for (int e = 0; e < 4; ++e) {
          until += each[e];
          if (static_cast<double>(until) > target) {
            s.token = c.begin + first + 4 * lane + e;
            break;
          }
        }
      }
      break;
    }
  }
  __syncthreads();
  return true;
}

// grid: [rows * blocks of a cluster]
template <bool resident>
__global__ void __launch_bounds__(sample_threads, 2) sample_rows(SampleArgs a, int32_t part) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  SampleShared& s = *reinterpret_cast<SampleShared*>(dynamic);
  Chunk c;
  c.rank = cluster_rank();
  c.blocks = cluster_blocks();
  c.vocab = a.vocab;
  c.begin = min(c.rank * part, a.vocab);
  c.count = min(part, a.vocab - c.begin);
  const int64_t row = blockIdx.x / c.blocks;
  const float* logits = a.logits + row * a.logits_stride;
  c.raw = logits + c.begin;
  float* x = resident ? reinterpret_cast<float*>(dynamic + sizeof(SampleShared)) : static_cast<float*>(a.workspace) + row * a.vocab + c.begin;
  c.x = x;
  if (threadIdx.x == 0) s.out_n = 0;
  cluster_arrive();
  wait_inputs();
  static_assert(sizeof(SampleRow) % 4 == 0 && sizeof(SampleRow) / 4 <= sample_threads);
  if (threadIdx.x < sizeof(SampleRow) / 4)
    reinterpret_cast<uint32_t*>(&s.row)[threadIdx.x] = reinterpret_cast<const uint32_t*>(a.params + row)[threadIdx.x];
  Part part_best{0, INT_MAX, 0};
  read_part<resident>(c, part_best.key, part_best.id);
  let_next_start();
  if (resident) c.raw = x;
  float mine = part_best.key ? from_ordered(part_best.key) : -INFINITY;
  block_best(s, part_best.key, part_best.id);
  const SampleRow& p = s.row;
  const bool want_logprob = p.n_logprobs >= -1 || p.given >= 0;
  if (want_logprob && part_best.key > key_minus_infinity && part_best.key < key_infinity)
    part_best.sum = sum_exp(s, resident ? x : c.raw, c.count, from_ordered(part_best.key));
  cluster_wait();
  share(s.raw, c, part_best);

  const Part first = best_part(s.raw, c.blocks);
  const int64_t wanted = p.n_logprobs == -1 ? int64_t{a.vocab} : max(0, p.n_logprobs);
  TokenLogprob* top = a.top + row * a.top_stride;
  const int32_t top_n = a.top ? static_cast<int32_t>(min(wanted, static_cast<int64_t>(min(a.vocab, a.top_stride)))) : 0;
  if (first.key <= key_minus_infinity || first.key >= key_infinity) {  // there is no distribution
    if (c.rank == 0) {
      if (threadIdx.x == 0) a.results[row] = {-1, NAN};
      for (int32_t i = threadIdx.x; i < top_n; i += sample_threads) top[i] = {-1, NAN};
    }
    return;
  }
  const float first_value = from_ordered(first.key);
  const auto finish = [&](int32_t token) {
    if (threadIdx.x >= 32) return;
    float logprob = NAN;
    if (want_logprob && token >= 0)
      logprob = static_cast<float>(static_cast<double>(logits[token]) - log_sum_of(s.raw, c.blocks, first_value));
    if (threadIdx.x == 0) a.results[row] = {token, logprob};
  };
  if (top_n > 0) {
    const double log_sum = log_sum_of(s.raw, c.blocks, first_value);
    if (p.n_logprobs == -1) {
      for (int32_t i = threadIdx.x; i < c.count && c.begin + i < top_n; i += sample_threads)
        top[c.begin + i] = {c.begin + i, static_cast<float>(static_cast<double>(c.raw[i]) - log_sum)};
    } else {
      best_logprobs<resident>(s, c, top, top_n, first_value, mine, log_sum);
      cluster_wait();
    }
  }

  const bool penalties = p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
  const bool changes = p.allowed || p.bias_n > 0 || p.forbidden_n > 0 || (penalties && p.count_n > 0);
  if (p.given >= 0 || (!changes && (p.temperature <= 0.0f || p.top_k == 1))) {
    if (c.rank == 0) finish(p.given < 0 ? first.id : p.given < a.vocab ? p.given : -1);
    return;
  }
  Part best = first;
  if constexpr (!resident) {
    for (int32_t i = threadIdx.x; i < c.count; i += sample_threads) x[i] = c.raw[i];
    __syncthreads();
  }
  if (changes) {
    __syncthreads();  // all have read what changes
    change(p, c, x);
    float value = -INFINITY;
    int32_t id = INT_MAX;
    for (int32_t i = threadIdx.x; i < c.count; i += sample_threads)
      if (x[i] > value) value = x[i], id = c.begin + i;
    mine = value;
    best = {id == INT_MAX ? 0 : ordered(value), id, 0};
    block_best(s, best.key, best.id);
    share(s.changed, c, best);
    best = best_part(s.changed, c.blocks);
  }
  if (best.key <= key_minus_infinity || p.temperature <= 0.0f) {
    if (c.rank == 0) finish(best.key <= key_minus_infinity ? -1 : best.id);
    return;
  }
  if (draw<resident>(s, c, from_ordered(best.key), mine, x)) finish(s.token);
}

constexpr int most_shared = 227 << 10;

}  // namespace

void sample(Context* c, const SampleArgs& a, PluginStatus* status) {
  const int cluster = c->capability >= 90 ? 8 : 1;
  const int32_t part = (a.vocab + 4 * cluster - 1) / (4 * cluster) * 4;
  const size_t shared = sizeof(SampleShared) + 4 * static_cast<size_t>(part);
  const dim3 grid(blocks(int64_t{a.rows} * cluster, 1));
  if (cluster == 1 || shared > most_shared) {
    launch(c, sample_rows<false>, Shape{grid, dim3(sample_threads), sizeof(SampleShared), static_cast<unsigned>(cluster)}, a, part);
    return;
  }
  static std::atomic<uint64_t> allowed{0};  // a bit for each GPU
  const uint64_t bit = uint64_t{1} << (c->index & 63);
  if (!(allowed.load() & bit)) {
    if (!allow_shared(c, reinterpret_cast<const void*>(sample_rows<true>), most_shared, status)) return;
    allowed |= bit;
  }
  launch(c, sample_rows<true>, Shape{grid, dim3(sample_threads), shared, static_cast<unsigned>(cluster)}, a, part);
}

}  // namespace orlop::cuda
