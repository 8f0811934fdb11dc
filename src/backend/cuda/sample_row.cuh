// What the blocks that choose one row's token share: their state, sums and the best of a block.
#pragma once
#include <climits>

#include "backend/cuda/cluster.cuh"

namespace orlop::cuda {

constexpr int sample_threads = 512, sample_warps = sample_threads / 32;
constexpr int most_blocks = 8;             // of a row
constexpr int list_size = 256;             // tokens that one block can finish with
constexpr int bin_groups = 64;             // of a histogram
constexpr int count_bins = 2048;           // of a histogram of numbers
constexpr int weight_bins = 1024;          // of one of weights: numbers, then the three pieces of their sums
constexpr int histogram_words = 4 * weight_bins;
constexpr float largest = 3.402823466e38f;

// The best of some tokens. Keys ascend with the logit: 0 none, then -infinity.
constexpr uint32_t key_minus_infinity = 0x007fffffu, key_infinity = 0xff800000u, key_nan = 0xffffffffu;
struct Part {
  uint32_t key;
  int32_t id;
  double sum;  // of exp(logit - best)
};

// Of tokens in a list: a logit or a weight.
struct Token {
  float value;
  int32_t id;
};

// Best first; of equals the lower id.
__device__ inline bool better(const Token& a, const Token& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

// Where a selection ends: the last bin that it needs anything of.
struct Border {
  uint64_t goal, before, inside;  // sums (of weights, or numbers): wanted; of the bins before; of this one
  uint64_t total;                 // weights: of all tokens
  uint32_t bin, count_before, count_inside;
  bool reached;                   // else all bins together have less than the goal
};

// What a block found when it gathered tokens.
struct Gathered {
  uint64_t total, near;  // what its tokens weigh; those that it listed
  int32_t count;         // that it would list
};

struct SampleShared {
  SampleRow row;
  // Of each block of the row; changed: after bias, penalties and masks.
  Part raw[most_blocks], changed[most_blocks];
  uint32_t warp_best[2][most_blocks * sample_warps];  // keys, of raw and changed
  Gathered gathered[4][most_blocks];                  // a row gathers so often at most
  uint64_t weights[most_blocks];
  uint32_t bound;                                     // key
  uint32_t warp_key[sample_warps];
  int32_t warp_id[sample_warps];
  double warp_sum[sample_warps];
  uint64_t warp_weight[sample_warps], warp_near[sample_warps];
  Border border;
  // Other blocks read these.
  alignas(16) uint64_t group_sum[bin_groups];
  alignas(16) uint32_t group_count[bin_groups];
  uint64_t total;
  alignas(16) uint32_t histogram[histogram_words];
  int32_t list_n, out_n;  // tokens for `own`; tokens written to the row's best
  int32_t token;           // drawn
  Token own[list_size];   // this block's
  Token list[list_size];  // the first block: all of the row's
  uint64_t list_weight[list_size];
};

// A block's part of a row.
struct Chunk {
  int rank, blocks;
  int32_t begin, count, vocab;
  const float* raw;  // the logits; where they do not stay in shared memory x is a copy, made when one is needed
  float* x;
  int gathers = 0;
  bool arrived = false;  // at the cluster's barrier, to be waited for before histograms change and before the next
};

// Until then other blocks may read this one's histogram.
__device__ inline void settle(Chunk& c) {
  if (c.arrived) cluster_wait();
  c.arrived = false;
}

// Ascending with the float; zeros of both signs are one.
__device__ inline uint32_t ordered(float v) {
  const uint32_t u = __float_as_uint(v + 0.0f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ inline float from_ordered(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

__device__ inline uint32_t warp_max_of(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(all_lanes, v);
#else
  for (int step = 16; step; step /= 2) v = max(v, __shfl_xor_sync(all_lanes, v, step));
  return v;
#endif
}
__device__ inline int32_t warp_min_of(int32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(all_lanes, v);
#else
  for (int step = 16; step; step /= 2) v = min(v, __shfl_xor_sync(all_lanes, v, step));
  return v;
#endif
}
// The highest key, and the lowest id that has it.
__device__ inline void warp_best(uint32_t& key, int32_t& id) {
  const uint32_t best = warp_max_of(key);
  id = warp_min_of(key == best ? id : INT_MAX);
  key = best;
}
// Every thread gets the block's; warp_key[] has each warp's. Between two calls the block meets at least once.
__device__ inline void block_best(SampleShared& s, uint32_t& key, int32_t& id) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  warp_best(key, id);
  if (lane == 0) s.warp_key[warp] = key, s.warp_id[warp] = id;
  __syncthreads();
  key = lane < sample_warps ? s.warp_key[lane] : 0;
  id = lane < sample_warps ? s.warp_id[lane] : INT_MAX;
  warp_best(key, id);
}

// Of all blocks.
__device__ inline Part best_part(const Part* parts, int blocks) {
  const int lane = threadIdx.x % 32;
  Part p{lane < blocks ? parts[lane].key : 0, lane < blocks ? parts[lane].id : INT_MAX, 0};
  warp_best(p.key, p.id);
  return p;
}

// A weight as a whole number of 2^-44 (it and sums of such are below 2^19): sums are exact, whatever their order.
constexpr int weight_bits = 44;
__device__ inline uint64_t fixed(float w) {
  const uint32_t u = __float_as_uint(w), exponent = u >> 23, digits = (u & 0x7fffffu) | 0x800000u;
  const int shift = static_cast<int>(exponent) - 127 + weight_bits - 23;
  if (exponent == 0 || shift <= -24) return 0;
  return shift >= 0 ? uint64_t{digits} << shift : uint64_t{digits >> -shift};
}

// 2^v, of v <= 0; of 0 it is 1. Weights that are not normal numbers become 0.
__device__ inline float power_of_2(float v) {
  float w;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(w) : "f"(v));
  return fminf(w, 1.0f);
}
constexpr float log2_e = 1.44269504f;

// Four neighbours from i on, i being a whole four; what lies behind the end is `none`.
template <bool resident>
__device__ inline float4 four(const float* x, int32_t i, int32_t end, float none) {
  if (resident || i >= end) return i < end ? *reinterpret_cast<const float4*>(x + i) : float4{none, none, none, none};
  return {x[i], i + 1 < end ? x[i + 1] : none, i + 2 < end ? x[i + 2] : none, i + 3 < end ? x[i + 3] : none};
}
template <bool resident>
__device__ inline void put_four(float* x, int32_t i, int32_t end, const float4& v) {
  if (resident) {
    *reinterpret_cast<float4*>(x + i) = v;
    return;
  }
  x[i] = v.x;
  if (i + 1 < end) x[i + 1] = v.y;
  if (i + 2 < end) x[i + 2] = v.z;
  if (i + 3 < end) x[i + 3] = v.w;
}
// f(i, values) for the thread's share of [0, end), four neighbours at a time, several loads before the first use.
template <bool resident, class F>
__device__ inline void visit_fours(const float* x, int32_t end, float none, const F& f) {
  constexpr int together = 4;
  for (int32_t begin = 4 * threadIdx.x; begin < end; begin += 4 * sample_threads * together) {
    float4 v[together];
#pragma unroll
    for (int u = 0; u < together; ++u) v[u] = four<resident>(x, begin + 4 * sample_threads * u, end, none);
#pragma unroll
    for (int u = 0; u < together; ++u) f(begin + 4 * sample_threads * u, v[u]);
  }
}
// f(i, value); behind the end it may be called with `none`.
template <bool resident, class F>
__device__ inline void visit(const float* x, int32_t end, float none, const F& f) {
  visit_fours<resident>(x, end, none, [&](int32_t i, const float4& v) {
    f(i, v.x);
    f(i + 1, v.y);
    f(i + 2, v.z);
    f(i + 3, v.w);
  });
}

__device__ inline double uniform(uint64_t seed, uint64_t position) {  // Philox4x32-10 (Salmon et al. 2011)
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return static_cast<double>((uint64_t{c[0]} << 32 | c[1]) >> 11) * 0x1p-53;
}

__device__ inline uint64_t warp_scan(uint64_t v) {  // inclusive
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t o = __shfl_up_sync(all_lanes, v, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) v += o;
  }
  return v;
}
__device__ inline uint32_t warp_scan(uint32_t v) {
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t o = __shfl_up_sync(all_lanes, v, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) v += o;
  }
  return v;
}

}  // namespace orlop::cuda
