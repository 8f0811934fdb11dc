// Choosing tokens: a cluster of blocks a row. Each block reads its part of the row once and keeps it in shared
// memory; what all need of each other (the best, sums, histograms' bins) goes through the cluster. The rules and
// their order are those of the CPU (backend/cpu/sample_ref.cc); among the tokens that are left the draw goes by
// ascending id. Weights are summed as whole numbers, so a row's token depends on its own logits and parameters alone.
#include "backend/cuda/entries.h"
#include "backend/cuda/sample_draw.cuh"

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
template <bool resident>
__device__ inline double sum_exp(SampleShared& s, const float* x, int32_t n, float best) {
  double sum = 0;
  const auto each = [&](float v) { return power_of_2((v - best) * log2_e); };
  visit_fours<resident>(x, n, -INFINITY, [&](int32_t, const float4& v) {
    sum += static_cast<double>((each(v.x) + each(v.y)) + (each(v.z) + each(v.w)));
  });
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

// Bias, penalties and masks; gives the thread's best of what comes out. A token may have several biases, which are
// added in their order.
template <bool resident>
__device__ __noinline__ Part change(const SampleRow& p, const Chunk& c, float* x) {
  const auto place_of = [&](int32_t token) { return token >= c.begin && token - c.begin < c.count ? token - c.begin : -1; };
  if (p.bias_n > 0) {
    if (threadIdx.x < 32)
      for (int32_t first = 0; first < p.bias_n; first += 32) {
        const int32_t i = first + threadIdx.x;
        const TokenLogprob bias = i < p.bias_n ? p.bias[i] : TokenLogprob{-1, 0};
        const int32_t at = place_of(bias.token);
        for (unsigned left = __ballot_sync(all_lanes, at >= 0); left; left &= left - 1) {  // equal tokens go one after another
          if (static_cast<int>(threadIdx.x) == __ffs(left) - 1) x[at] = tame(x[at] + bias.logprob);
          __syncwarp();
        }
      }
    __syncthreads();
  }
  if (p.count_n > 0) {
    for (int32_t i = threadIdx.x; i < p.count_n; i += sample_threads) {  // distinct tokens
      const TokenCount n = p.counts[i];
      const int32_t at = place_of(n.token);
      if (at < 0) continue;
      float v = x[at];
      if (n.in_prompt || n.generated > 0) v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
      // Rounded as the CPU does it: no fused product.
      if (n.generated > 0) v -= __fadd_rn(p.presence_penalty, __fmul_rn(p.frequency_penalty, static_cast<float>(n.generated)));
      x[at] = tame(v);
    }
    __syncthreads();
  }
  if (p.forbidden_n > 0) {
    for (int32_t i = threadIdx.x; i < p.forbidden_n; i += sample_threads)
      if (const int32_t at = place_of(p.forbidden[i]); at >= 0) x[at] = -INFINITY;
    __syncthreads();
  }
  // The mask, and the best.
  const uint32_t* allowed = p.allowed;
  constexpr int together = 4;
  float best = -INFINITY;
  int32_t id = INT_MAX;
  for (int32_t begin = 4 * threadIdx.x; begin < c.count; begin += 4 * sample_threads * together) {
    uint32_t bits[together];
#pragma unroll
    for (int u = 0; u < together; ++u) {
      const int32_t i = begin + 4 * sample_threads * u;
      bits[u] = allowed && i < c.count ? __ldg(allowed + (c.begin + i) / 32) >> (c.begin + i) % 32 & 15 : 15;
    }
#pragma unroll
    for (int u = 0; u < together; ++u) {
      const int32_t i = begin + 4 * sample_threads * u;
      if (i >= c.count) break;
      float4 v = four<resident>(x, i, c.count, -INFINITY);
      if (bits[u] != 15) {
        if (!(bits[u] & 1)) v.x = -INFINITY;
        if (!(bits[u] & 2)) v.y = -INFINITY;
        if (!(bits[u] & 4)) v.z = -INFINITY;
        if (!(bits[u] & 8)) v.w = -INFINITY;
        put_four<resident>(x, i, c.count, v);
      }
      if (v.x > best) best = v.x, id = i;
      if (v.y > best) best = v.y, id = i + 1;
      if (v.z > best) best = v.z, id = i + 2;
      if (v.w > best) best = v.w, id = i + 3;
    }
  }
  __syncthreads();
  return id == INT_MAX ? Part{0, INT_MAX, 0} : Part{ordered(best), c.begin + id, 0};
}

// Every block gives its part, and its warps' bests if they are wanted, to all others.
__device__ inline void share(Part* parts, uint32_t* warp_best, bool warps, const SampleShared& s, const Chunk& c, const Part& mine) {
  if (threadIdx.x < c.blocks) at_block(parts, threadIdx.x)[c.rank] = mine;
  if (warps && threadIdx.x < c.blocks * sample_warps)
    at_block(warp_best, threadIdx.x / sample_warps)[c.rank * sample_warps + threadIdx.x % sample_warps] = s.warp_key[threadIdx.x % sample_warps];
  cluster_arrive();
  cluster_wait();
}

// The n best of raw logits, best first. Leaves the cluster's barrier arrived at, not waited for.
template <bool resident>
__device__ __noinline__ void best_logprobs(SampleShared& s, Chunk& c, TokenLogprob* top, int32_t n, float best, float mine, double log_sum) {
  const auto logprob = [&](float v) { return static_cast<float>(static_cast<double>(v) - log_sum); };
  if (n <= list_size) {
    // As many tokens as there are bests of warps, or of threads, above a bound have it too: no fewer than n.
    int32_t listed;
    if (few_for_bound(c, n)) {
      find_bound(s, c, s.warp_best[0], n);
      const float bound = s.bound > key_minus_infinity ? from_ordered(s.bound) : -INFINITY;
      listed = gather<resident>(s, c, c.raw, [&](float v) { return v >= bound; }, [] {});
    } else {
      uint32_t* h = clear_histogram(s, c);
      atomicAdd(&h[distance_bin(best, mine)], 1u);
      find_border<true, false>(s, c, n, 0, 0);
      const uint32_t last = s.border.bin;
      listed = gather<resident>(s, c, c.raw, [&](float v) { return distance_bin(best, v) <= last; }, [] {});
    }
    if (listed <= list_size) {
      cluster_arrive();
      const Team team(listed);
      if (c.rank == 0) {
        const Token t = team.token < listed ? s.list[team.token] : Token{0, -1};
        int rank = 0;
        for (int i = team.member; i < listed; i += team.size) rank += better(s.list[i], t);
        rank = team.sum(rank);
        if (team.member == 0 && team.token < listed && rank < n) top[rank] = {t.id, logprob(t.value)};
      }
      return;
    }
  }
  const Cut cut = n < c.vocab ? cut_count<resident>(s, c, c.raw, n) : Cut{};
  int* counter = at_block(&s.out_n, 0);
  for (int32_t i = threadIdx.x; i < c.count; i += sample_threads)
    if (cut.keeps(~ordered(c.raw[i]), c.begin + i)) top[atomicAdd(counter, 1)] = {c.begin + i, c.raw[i]};
  __threadfence();
  settle(c);
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

// grid: [rows * blocks of a cluster]
template <bool resident>
__global__ void __launch_bounds__(sample_threads, 1024 / sample_threads) sample_rows(SampleArgs a, int32_t part) {
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
    part_best.sum = sum_exp<resident>(s, resident ? x : c.raw, c.count, from_ordered(part_best.key));
  cluster_wait();
  share(s.raw, s.warp_best[0], p.n_logprobs > 0 || p.temperature > 0, s, c, part_best);

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
    best = change<resident>(p, c, x);
    mine = best.key ? from_ordered(best.key) : -INFINITY;
    block_best(s, best.key, best.id);
    share(s.changed, s.warp_best[1], p.temperature > 0, s, c, best);
    best = best_part(s.changed, c.blocks);
  }
  if (best.key <= key_minus_infinity || p.temperature <= 0.0f) {
    if (c.rank == 0) finish(best.key <= key_minus_infinity ? -1 : best.id);
    return;
  }
  if (draw<resident>(s, c, s.warp_best[changes], from_ordered(best.key), mine, x)) finish(s.token);
}

}  // namespace

void sample(Context* c, const SampleArgs& a, PluginStatus*) {
  const int cluster = c->capability >= 90 ? most_blocks : 1;
  const int32_t part = (a.vocab + 4 * cluster - 1) / (4 * cluster) * 4;
  const size_t shared = sizeof(SampleShared) + 4 * static_cast<size_t>(part);
  const bool resident = cluster > 1 && shared <= c->block_shared;
  launch(c, resident ? sample_rows<true> : sample_rows<false>,
         Shape{dim3(blocks(int64_t{a.rows} * cluster, 1)), dim3(sample_threads), resident ? shared : sizeof(SampleShared), static_cast<unsigned>(cluster)}, a, part);
}

}  // namespace orlop::cuda
