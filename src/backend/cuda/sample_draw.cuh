// Drawing one row's token from its final logits: top_k, weights, top_p, min_p, and the draw by ascending id.
#pragma once
#include "backend/cuda/sample_select.cuh"

namespace orlop::cuda {

// How much of `total` top_p wants at least.
__device__ inline uint64_t share_of(float top_p, uint64_t total) {
  const double share = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  return share >= static_cast<double>(total) ? total : share > 1 ? static_cast<uint64_t>(share) : 1;
}

// The weight of a logit no higher than the best; scale: log2_e over the temperature.
__device__ inline float weight_of(float v, float best, float scale) { return power_of_2((v - best) * scale); }

// The first block draws from its list of n: of logits, with `best` the row's, or of weights, where `total` is what all
// tokens weigh. point: in [0, 1).
static __device__ __noinline__ void draw_from_list(SampleShared& s, int n, bool logits, float best, float scale, uint64_t total, double point) {
  const SampleRow& p = s.row;
  const Team team(n);
  const int i = team.token;
  const Token t = i < n ? s.list[i] : Token{0, -1};
  bool kept = i < n;
  float w = t.value;
  if (logits) {
    int rank = 0;
#pragma unroll 4
    for (int j = team.member; j < n; j += team.size) rank += better(s.list[j], t);
    kept &= team.sum(rank) < p.top_k;
    w = kept ? weight_of(t.value, best, scale) : 0;
    __syncthreads();
    if (i < n && team.member == 0) s.list[i].value = w;
  }
  uint64_t weight = kept ? fixed(w) : 0;
  if (p.top_p < 1.0f) {
    if (i < n && team.member == 0) s.list_weight[i] = weight;
    __syncthreads();
    uint64_t before = 0, sum = 0;
#pragma unroll 4
    for (int j = team.member; j < n; j += team.size) {
      const uint64_t other = s.list_weight[j];
      sum += other;
      if (better(s.list[j], {w, t.id})) before += other;
    }
    before = team.sum(before);
    sum = team.sum(sum);
    kept &= before < share_of(p.top_p, logits ? sum : total);
    __syncthreads();
  }
  if (!kept || w < fminf(p.min_p, 1.0f)) weight = 0;
  if (i < n && team.member == 0) s.list_weight[i] = weight;
  __syncthreads();
  uint64_t before = 0, sum = 0;
#pragma unroll 4
  for (int j = team.member; j < n; j += team.size) {
    const uint64_t other = s.list_weight[j];
    sum += other;
    if (s.list[j].id < t.id) before += other;
  }
  before = team.sum(before);
  const double target = point * static_cast<double>(team.sum(sum));
  if (weight && static_cast<double>(before + weight) > target && !(static_cast<double>(before) > target)) s.token = t.id;
  __syncthreads();
}

// Ids of a warp: a run of whole 128.
__device__ inline int32_t run_of(int32_t count) { return (count + 128 * sample_warps - 1) / (128 * sample_warps) * 128; }

// The drawn token's id goes to s.token of one block, which gets true. keys: the warps' bests of all blocks.
template <bool resident>
__device__ __noinline__ bool draw(SampleShared& s, Chunk& c, const uint32_t* keys, float best, float mine, float* x) {
  const SampleRow& p = s.row;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // No temperature makes it infinite.
  const float scale = fminf(log2_e / fminf(p.temperature, largest), largest);
  double point = 0;
  const auto find_point = [&] { point = uniform(p.seed, p.position); };
  if (p.top_k > 0 && p.top_k < c.vocab) {
    if (p.top_k <= list_size) {
      // As in best_logprobs.
      int32_t listed;
      if (few_for_bound(c, p.top_k)) {
        find_bound(s, c, keys, p.top_k);
        const float bound = s.bound > key_minus_infinity ? from_ordered(s.bound) : -largest;
        listed = gather<resident>(s, c, x, [&](float v) { return v >= bound; }, find_point);
      } else {
        uint32_t* h = clear_histogram(s, c);
        if (mine > -INFINITY) atomicAdd(&h[distance_bin(best, mine)], 1u);
        find_border<true, false>(s, c, p.top_k, 0, 0);
        const uint32_t last = s.border.bin;
        listed = gather<resident>(s, c, x, [&](float v) { return v > -INFINITY && distance_bin(best, v) <= last; }, find_point);
      }
      if (listed <= list_size) {
        cluster_arrive();
        if (c.rank == 0) draw_from_list(s, listed, true, best, scale, 0, point);
        cluster_wait();
        return c.rank == 0;
      }
    }
    const Cut cut = cut_count<resident>(s, c, x, p.top_k);
    for (int32_t i = threadIdx.x; i < c.count; i += sample_threads)
      if (!cut.keeps(~ordered(x[i]), c.begin + i)) x[i] = -INFINITY;
    __syncthreads();
  }

  const bool nucleus = p.top_p < 1.0f;
  const float least = fminf(p.min_p, 1.0f);
  const int32_t run = run_of(c.count), begin = warp * run, end = min(c.count, begin + run);
  // Of four neighbours; min_p comes after top_p.
  const float lowest = nucleus ? 0.0f : least;
  const auto weights_of = [&](const float4& v) {
    float4 w{weight_of(v.x, best, scale), weight_of(v.y, best, scale), weight_of(v.z, best, scale), weight_of(v.w, best, scale)};
    if (w.x < lowest) w.x = 0;
    if (w.y < lowest) w.y = 0;
    if (w.z < lowest) w.z = 0;
    if (w.w < lowest) w.w = 0;
    return w;
  };
  // A lane's weights are summed as they come, the lanes' sums exactly.
  float sums[4] = {};
  const auto add = [&](const float4& w) { sums[0] += w.x, sums[1] += w.y, sums[2] += w.z, sums[3] += w.w; };
  const auto lane_sum = [&] { return fixed((sums[0] + sums[1]) + (sums[2] + sums[3])); };
  constexpr int together = 4;
  uint64_t sum = 0;
  if (!nucleus) {
    for (int32_t first = begin + 4 * lane; first < end; first += 128 * together) {
      float4 v[together];
#pragma unroll
      for (int u = 0; u < together; ++u) v[u] = four<resident>(x, first + 128 * u, end, -INFINITY);
#pragma unroll
      for (int u = 0; u < together; ++u) add(weights_of(v[u]));
    }
    sum = lane_sum();
  } else {
    // Weights take the logits' places; those from 2^-12 on are listed: mostly they are few and enough.
    if (threadIdx.x == 0) s.list_n = 0;
    __syncthreads();
    constexpr float near = 0x1p-12f;
    uint64_t near_sum = 0;
    bool room = true;  // once there is none the number does not matter
    const auto list = [&](int32_t i, float w) {
      if (w < near) return;
      near_sum += fixed(w);
      if (!room) return;
      const int at = atomicAdd(&s.list_n, 1);
      room = at < list_size;
      if (room) s.own[at] = {w, c.begin + i};
    };
    visit_fours<resident>(x, c.count, -INFINITY, [&](int32_t i, const float4& v) {
      if (i >= c.count) return;
      const float4 w = weights_of(v);
      put_four<resident>(x, i, c.count, w);
      add(w);
      if (fmaxf(fmaxf(w.x, w.y), fmaxf(w.z, w.w)) >= near) {
        list(i, w.x);
        list(i + 1, w.y);
        list(i + 2, w.z);
        list(i + 3, w.w);
      }
    });
    const uint64_t all = warp_sum(lane_sum());
    near_sum = warp_sum(near_sum);
    if (lane == 0) s.warp_weight[warp] = all, s.warp_near[warp] = near_sum;
    __syncthreads();
    const Gathered here{warp_sum(lane < sample_warps ? s.warp_weight[lane] : 0), warp_sum(lane < sample_warps ? s.warp_near[lane] : 0), s.list_n};
    const Gathered found = share_list(s, c, here, find_point);
    const uint64_t goal = share_of(p.top_p, found.total);
    const bool enough = found.near >= goal;
    if (enough && found.count <= list_size) {
      cluster_arrive();
      if (c.rank == 0) draw_from_list(s, found.count, false, best, scale, found.total, point);
      cluster_wait();
      return c.rank == 0;
    }
    // A histogram of those, or of all with their sum exactly.
    uint32_t* h = clear_histogram(s, c);
    visit<resident>(x, c.count, 0, [&](int32_t, float w) {
      if (enough && w < near) return;
      const uint64_t weight = fixed(w);
      if (!weight) return;
      sum += weight;
      add_weight<resident>(h, weight_key(w) >> 20, weight);
    });
    find_border<resident, true>(s, c, enough ? goal : 0, p.top_p, sum);
    if (s.border.count_before + s.border.count_inside <= list_size) {
      const uint32_t last = s.border.bin;
      const uint64_t total = enough ? found.total : s.border.total;
      const int32_t listed = gather<resident>(s, c, x, [&](float w) { return weight_key(w) >> 20 <= last; }, [] {});
      if (listed <= list_size) {
        cluster_arrive();
        if (c.rank == 0) draw_from_list(s, listed, false, best, scale, total, point);
        cluster_wait();
        return c.rank == 0;
      }
    }
    const Cut of_weights = cut_weight<resident>(s, c, x);
    sum = 0;
    const auto kept = [&](int32_t i, float w) { return w >= least && of_weights.keeps(weight_key(w), c.begin + i) ? w : 0.0f; };
    for (int32_t first = begin + 4 * lane; first < end; first += 128 * together) {
      float4 v[together];
#pragma unroll
      for (int u = 0; u < together; ++u) v[u] = four<resident>(x, first + 128 * u, end, 0);
#pragma unroll
      for (int u = 0; u < together; ++u) {
        const int32_t i = first + 128 * u;
        if (i >= end) break;
        const float4 w{kept(i, v[u].x), kept(i + 1, v[u].y), kept(i + 2, v[u].z), kept(i + 3, v[u].w)};
        put_four<resident>(x, i, end, w);
        sum += fixed(w.x) + fixed(w.y) + fixed(w.z) + fixed(w.w);
      }
    }
    __syncwarp();
  }
  // By ascending id: which block's, which warp's, which token.
  sum = warp_sum(sum);
  if (lane == 0) s.warp_weight[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const uint64_t all = warp_sum(lane < sample_warps ? s.warp_weight[lane] : 0);
    if (lane < c.blocks) at_block(s.weights, lane)[c.rank] = all;
  }
  settle(c);
  cluster_arrive();
  find_point();
  cluster_wait();
  uint64_t until = warp_scan(lane < c.blocks ? s.weights[lane] : 0);
  const double target = point * static_cast<double>(__shfl_sync(all_lanes, until, 31));
  unsigned reached = __ballot_sync(all_lanes, static_cast<double>(until) > target);
  if (!reached || __ffs(reached) - 1 != c.rank) return false;
  uint64_t before = c.rank ? __shfl_sync(all_lanes, until, c.rank - 1) : 0;
  until = before + warp_scan(lane < sample_warps ? s.warp_weight[lane] : 0);
  reached = __ballot_sync(all_lanes, static_cast<double>(until) > target);
  const int holder = __ffs(reached) - 1;
  if (holder) before = __shfl_sync(all_lanes, until, holder - 1);
  if (warp == holder) {
    // One by one the weights may come to less than their lane's sum: then it is the last that has any.
    int32_t token = -1;
    for (int32_t first = begin; first < end; first += 128) {
      const int32_t at = first + 4 * lane;
      float4 w = four<resident>(x, at, end, nucleus ? 0 : -INFINITY);
      if (!nucleus) w = weights_of(w);
      const auto some_of = [](float one) { return one > 0 ? max(fixed(one), uint64_t{1}) : 0; };
      const uint64_t each[4] = {some_of(w.x), some_of(w.y), some_of(w.z), some_of(w.w)};
      const uint64_t all = each[0] + each[1] + each[2] + each[3];
      until = before + warp_scan(all);
      reached = __ballot_sync(all_lanes, all && static_cast<double>(until) > target);
      const unsigned some = __ballot_sync(all_lanes, all != 0);
      if (some) {
        const int there = reached ? __ffs(reached) - 1 : 31 - __clz(some);
        until -= all;
        int32_t mine_token = -1;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const bool over = static_cast<double>(until) > target;
          if (each[e] && !over) mine_token = c.begin + at + e;
          until += each[e];
        }
        token = __shfl_sync(all_lanes, mine_token, there);
      }
      if (reached) break;
      before = __shfl_sync(all_lanes, until, 31);
    }
    if (lane == 0) s.token = token;
  }
  __syncthreads();
  return true;
}

}  // namespace orlop::cuda
