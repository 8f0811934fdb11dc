// Selections over one row by its blocks together: histograms in each block's shared memory, of which every block
// finds the same bin. Numbers and weights are whole, so their sums do not depend on the order of additions.
#pragma once
#include "backend/cuda/sample_row.cuh"

namespace orlop::cuda {

constexpr int piece_bits = 15;  // of a weight, in histograms of 32-bit sums

// Every thread; before numbers are added.
__device__ inline uint32_t* clear_histogram(SampleShared& s, Chunk& c) {
  settle(c);
  uint32_t* h = s.histogram;
  for (int i = threadIdx.x; i < histogram_words / 4; i += sample_threads) reinterpret_cast<uint4*>(h)[i] = {};
  __syncthreads();
  return h;
}

// resident: a block's part of the row is in shared memory, hence small enough that the sums of pieces fit.
template <bool resident>
__device__ inline void add_weight(uint32_t* h, uint32_t bin, uint64_t weight) {
  atomicAdd(&h[bin], 1u);
  if constexpr (resident) {
    constexpr uint32_t piece = (1u << piece_bits) - 1;
    const auto low = static_cast<uint32_t>(weight) & piece, middle = static_cast<uint32_t>(weight >> piece_bits) & piece;
    const auto high = static_cast<uint32_t>(weight >> 2 * piece_bits);
    if (high) atomicAdd(&h[weight_bins + bin], high);
    if (middle) atomicAdd(&h[2 * weight_bins + bin], middle);
    if (low) atomicAdd(&h[3 * weight_bins + bin], low);
  } else {
    atomicAdd(reinterpret_cast<unsigned long long*>(h + weight_bins) + bin, static_cast<unsigned long long>(weight));
  }
}
template <bool resident>
__device__ inline uint64_t bin_weight(const uint32_t* h, int bin) {
  if constexpr (resident)
    return (uint64_t{h[weight_bins + bin]} << 2 * piece_bits) + (uint64_t{h[2 * weight_bins + bin]} << piece_bits) + h[3 * weight_bins + bin];
  else
    return reinterpret_cast<const uint64_t*>(h + weight_bins)[bin];
}

// The first bin with which the sum reaches the goal. weighted: of weights, `mine` being what the thread added to
// their total, and if the goal is 0 it is top_p of the total.
template <bool resident, bool weighted>
__device__ __noinline__ void find_border(SampleShared& s, Chunk& c, uint64_t goal, float top_p, uint64_t mine) {
  constexpr int per_group = (weighted ? weight_bins : count_bins) / bin_groups, each = sample_threads / bin_groups;
  const int lane = threadIdx.x % 32;
  const uint32_t* h = s.histogram;
  if constexpr (weighted) {
    mine = warp_sum(mine);
    if (lane == 0) s.warp_weight[threadIdx.x / 32] = mine;
  }
  __syncthreads();
  {
    const int group = threadIdx.x / each;
    uint64_t sum = 0;
    uint32_t count = 0;
    for (int i = threadIdx.x % each; i < per_group; i += each) {
      count += h[group * per_group + i];
      if constexpr (weighted) sum += bin_weight<resident>(h, group * per_group + i);
    }
    for (int step = each / 2; step; step /= 2) {
      count += __shfl_xor_sync(all_lanes, count, step);
      if constexpr (weighted) sum += __shfl_xor_sync(all_lanes, sum, step);
    }
    if (threadIdx.x % each == 0) {
      s.group_count[group] = count;
      if constexpr (weighted) s.group_sum[group] = sum;
    }
    if constexpr (weighted)
      if (threadIdx.x < 32) {
        const uint64_t total = warp_sum(lane < sample_warps ? s.warp_weight[lane] : 0);
        if (lane == 0) s.total = total;
      }
  }
  cluster_arrive();
  cluster_wait();
  if (threadIdx.x < 32) {
    uint64_t sum[2] = {}, total = 0;
    uint32_t count[2] = {};
#pragma unroll
    for (int b = 0; b < most_blocks; ++b) {
      if (b >= c.blocks) break;
      const uint2 n = reinterpret_cast<const uint2*>(at_block(s.group_count, b))[lane];
      count[0] += n.x, count[1] += n.y;
      if constexpr (weighted) {
        const ulonglong2 w = reinterpret_cast<const ulonglong2*>(at_block(s.group_sum, b))[lane];
        sum[0] += w.x, sum[1] += w.y;
      }
    }
    if constexpr (weighted) {
      total = warp_sum(lane < c.blocks ? *at_block(&s.total, lane) : uint64_t{0});
      if (goal == 0) {
        const double share = ceil(static_cast<double>(top_p) * static_cast<double>(total));
        goal = share >= static_cast<double>(total) ? total : share > 1 ? static_cast<uint64_t>(share) : 1;
      }
    } else {
      sum[0] = count[0], sum[1] = count[1];
    }
    const uint64_t end = warp_scan(sum[0] + sum[1]);
    const uint32_t count_end = warp_scan(count[0] + count[1]);
    const unsigned reached = __ballot_sync(all_lanes, end >= goal);
    const int holder = reached ? __ffs(reached) - 1 : 31;
    // Of its two groups.
    const bool second = end - sum[1] < goal;
    const int group = __shfl_sync(all_lanes, 2 * lane + second, holder);
    const uint64_t before = __shfl_sync(all_lanes, end - sum[1] - (second ? 0 : sum[0]), holder);
    const uint32_t count_before = __shfl_sync(all_lanes, count_end - count[1] - (second ? 0 : count[0]), holder);
    uint64_t in_bin = 0;
    uint32_t count_in = 0;
    if (lane < per_group) {
#pragma unroll
      for (int b = 0; b < most_blocks; ++b) {
        if (b >= c.blocks) break;
        const uint32_t* there = at_block(s.histogram, b);
        count_in += there[group * per_group + lane];
        if constexpr (weighted) in_bin += bin_weight<resident>(there, group * per_group + lane);
      }
    }
    if constexpr (!weighted) in_bin = count_in;
    const uint64_t bin_end = before + warp_scan(in_bin);
    const uint32_t bin_count_end = count_before + warp_scan(count_in);
    const unsigned bins = __ballot_sync(all_lanes, lane < per_group && bin_end >= goal);
    if (lane == (bins ? __ffs(bins) - 1 : per_group - 1))
      s.border = {goal,
                  bin_end - in_bin,
                  in_bin,
                  total,
                  static_cast<uint32_t>(group * per_group + lane),
                  bin_count_end - count_in,
                  count_in,
                  reached != 0};
  }
  __syncthreads();
  cluster_arrive();
  c.arrived = true;
}

// What a selection keeps: what is better than `key` (keys ascend from the best), and of those that have it the ids
// up to `id`.
struct Cut {
  uint32_t key = 0xffffffffu;
  int32_t id = INT_MAX;
  __device__ bool keeps(uint32_t k, int32_t i) const { return k < key || (k == key && i <= id); }
};

// The lowest `wanted` ids of those with the key of the cut, of which there are more.
template <class Key>
__device__ inline void cut_ids(SampleShared& s, Chunk& c, Cut& cut, uint64_t wanted, const Key& key) {
  uint32_t prefix = 0;
  for (int shift = c.vocab > 1 << 22 ? 22 : c.vocab > 1 << 11 ? 11 : 0;; shift -= 11) {
    uint32_t* h = clear_histogram(s, c);
    for (int32_t i = threadIdx.x; i < c.count; i += sample_threads) {
      const auto id = static_cast<uint32_t>(c.begin + i) >> shift;
      if (key(i) == cut.key && id >> 11 == prefix) atomicAdd(&h[id & 2047], 1u);
    }
    find_border<true, false>(s, c, wanted, 0, 0);
    prefix = prefix << 11 | s.border.bin;
    wanted -= s.border.before;
    if (shift == 0 || wanted == s.border.inside) {
      cut.id = static_cast<int32_t>(((prefix + 1) << shift) - 1);
      return;
    }
  }
}

// The `wanted` best of all x, exactly; of equals those with the lower ids. Three passes or more.
template <bool resident>
__device__ __noinline__ Cut cut_count(SampleShared& s, Chunk& c, const float* x, uint64_t wanted) {
  Cut cut;
  uint32_t prefix = 0;
  for (int level = 0; level < 3; ++level) {
    const int shift = level == 0 ? 21 : level == 1 ? 10 : 0, width = level == 2 ? 10 : 11;
    uint32_t* h = clear_histogram(s, c);
    visit<resident>(x, c.count, 0, [&](int32_t i, float v) {
      const uint32_t k = ~ordered(v) >> shift;
      if ((level == 0 || k >> width == prefix) && i < c.count) atomicAdd(&h[k & ((1u << width) - 1)], 1u);
    });
    find_border<true, false>(s, c, wanted, 0, 0);
    prefix = prefix << width | s.border.bin;
    wanted -= s.border.before;
    cut.key = prefix << shift | ((1u << shift) - 1);
    if (wanted == s.border.inside) return cut;
  }
  cut_ids(s, c, cut, wanted, [&](int32_t i) { return ~ordered(x[i]); });
  return cut;
}

// Weights as keys that ascend from the best, 1.
constexpr uint32_t one_bits = 0x3f800000u;
__device__ inline uint32_t weight_key(float w) { return one_bits - __float_as_uint(w); }

// The smallest set of best weights that reaches the goal, whose keys' first ten bits the border says.
template <bool resident>
__device__ __noinline__ Cut cut_weight(SampleShared& s, Chunk& c, const float* w) {
  Cut cut;
  uint32_t prefix = s.border.bin;
  uint64_t goal = s.border.goal - s.border.before;
  for (int shift = 10; shift >= 0; shift -= 10) {
    uint32_t* h = clear_histogram(s, c);
    visit<resident>(w, c.count, 0, [&](int32_t, float v) {
      const uint32_t k = weight_key(v) >> shift;
      if (k >> 10 != prefix) return;
      const uint64_t weight = fixed(v);
      if (weight) add_weight<resident>(h, k & 1023, weight);
    });
    find_border<resident, true>(s, c, goal, 0, 0);
    prefix = prefix << 10 | s.border.bin;
    goal -= s.border.before;
    cut.key = prefix << shift | ((1u << shift) - 1);
    if (s.border.count_inside == 1) return cut;
  }
  const uint64_t each = s.border.inside / s.border.count_inside, wanted = (goal + each - 1) / each;
  if (wanted < s.border.count_inside) cut_ids(s, c, cut, wanted, [&](int32_t i) { return weight_key(w[i]); });
  return cut;
}

// How far below the best: 64 bins for each power of two from 2^-16 to 2^16; never less for a lower logit.
__device__ inline uint32_t distance_bin(float best, float v) {
  const int bin = static_cast<int>(__float_as_uint(best - v) >> 17) - ((127 - 16) << 6);
  return static_cast<uint32_t>(min(max(bin, 0), count_bins - 1));
}

// Every block says what it gathered (thread 0 knows), the block having met; `meanwhile` is done before the others have.
// Gives the sums; a count beyond list_size says that lists are not whole. Then the first block has the row's list. To
// be followed by cluster_arrive() of every block, and by cluster_wait() of those that go on, and of those that the
// first reads from.
template <class F>
__device__ inline Gathered share_list(SampleShared& s, Chunk& c, const Gathered& mine, const F& meanwhile) {
  const int lane = threadIdx.x % 32;
  Gathered* all = s.gathered[c.gathers++];
  settle(c);
  if (threadIdx.x < c.blocks) at_block(all, threadIdx.x)[c.rank] = mine;
  cluster_arrive();
  meanwhile();
  cluster_wait();
  const Gathered one = lane < c.blocks ? all[lane] : Gathered{};
  const auto n = static_cast<uint32_t>(one.count);
  const uint32_t end = warp_scan(n);
  const Gathered sum{warp_sum(one.total), warp_sum(one.near), static_cast<int32_t>(__shfl_sync(all_lanes, end, 31))};
  if (sum.count <= list_size && c.rank == 0) {
    for (int b = threadIdx.x / 32; b < c.blocks; b += sample_warps) {
      const int here = static_cast<int>(__shfl_sync(all_lanes, n, b)), begin = static_cast<int>(__shfl_sync(all_lanes, end, b)) - here;
      const Token* from = at_block(s.own, b);
      for (int i = lane; i < here; i += 32) s.list[begin + i] = from[i];
    }
    __syncthreads();
  }
  return sum;
}

// Tokens for which `take` holds.
template <bool resident, class Take, class F>
__device__ inline int32_t gather(SampleShared& s, Chunk& c, const float* x, const Take& take, const F& meanwhile) {
  if (threadIdx.x == 0) s.list_n = 0;
  __syncthreads();
  visit<resident>(x, c.count, -INFINITY, [&](int32_t i, float v) {
    if (!take(v) || i >= c.count) return;
    const int at = atomicAdd(&s.list_n, 1);
    if (at < list_size) s.own[at] = {v, c.begin + i};
  });
  __syncthreads();
  return share_list(s, c, {0, 0, s.list_n}, meanwhile).count;
}

// Threads that work on one of n <= list_size tokens together, and how.
struct Team {
  int token, member, size;
  __device__ explicit Team(int n) {
    size = max(1, sample_threads / (n <= 64 ? 64 : n <= 128 ? 128 : 256));
    token = threadIdx.x / size;
    member = threadIdx.x % size;
  }
  template <class T>
  __device__ T sum(T v) const {
    for (int step = size / 2; step; step /= 2) v += __shfl_xor_sync(all_lanes, v, step);
    return v;
  }
};

// The n-th of the warps' best keys of a row, to s.bound: no fewer tokens than n have that or a higher one.
__device__ inline void find_bound(SampleShared& s, const Chunk& c, const uint32_t* keys, int n) {
  const int each = 32 / c.blocks, all = c.blocks * sample_warps, at = threadIdx.x / each;
  const uint32_t mine = keys[at];
  int rank = 0;
#pragma unroll 8
  for (int i = threadIdx.x % each; i < all; i += each) rank += keys[i] > mine || (keys[i] == mine && i < at);
  for (int step = each / 2; step; step /= 2) rank += __shfl_xor_sync(all_lanes, rank, step);
  if (rank == n - 1 && threadIdx.x % each == 0) s.bound = mine;
  __syncthreads();
}
// Beyond it the bound would be so low that more tokens than a list holds may have it.
__device__ inline bool few_for_bound(const Chunk& c, int n) { return n <= c.blocks * sample_warps * 3 / 4; }

}  // namespace orlop::cuda
