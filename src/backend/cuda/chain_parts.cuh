// What the warps of a chain's block do beside multiplying: one fills the ring, some add up what the others leave; and
// how outputs get to the next product. See chain_kernel.cuh. Only code for sm_90a may call it.
#pragma once
#include "backend/cuda/chain.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stream_order.cuh"

namespace orlop::cuda {

// Outputs on their way to the next product. A word is a float, or two bf16, and the number of the launch: who reads
// it sees by that alone whether it is there already (as NCCL's LL protocol does), and nobody else waits.
constexpr int64_t most_words = 1 << 16;  // of an op
struct ChainState {
  uint32_t launches, done;  // done: blocks that are, of this launch
  uint64_t pad;
  uint64_t words[chain_most][most_words];
};

namespace chained {

constexpr int chain_warps = 16, threads = 32 * chain_warps;  // that multiply
constexpr int finishers = 2;   // warps that add up what those leave; one more fills the ring
constexpr int norm_quads = 4;  // of a row, of a thread: k of normed rows is at most 8192
constexpr int most_stages = 16;
constexpr int buffers = 4;     // of tiles' sums, which finishers take by turns

// The warps that multiply meet.
__device__ inline void meet() { group_sync(1, threads); }

// Where word i of a row stands: of 128, the first two of each four, then the others, so that what a warp reads at a time,
// two words a lane, lies together. Rows begin at multiples of 128.
ORLOP_BOTH constexpr int word_at(int i) { return (i & ~127) | (i & 2) << 5 | (i >> 2 & 31) << 1 | (i & 1); }
ORLOP_BOTH constexpr int64_t row_words(int64_t elements, bool narrow) { return up(narrow ? elements / 2 : elements, 128); }

// Rows on their way to a norm are pairs of bf16, multiplied by its weights; sums of squares of their tiles follow after all
// rows, and what is made of the rows is scaled by them. So nobody waits for a row's end to begin with it.
ORLOP_BOTH constexpr int64_t squares_words(int64_t elements) { return up((elements + 15) / 16, 128); }
ORLOP_BOTH constexpr bool norm_on_the_way(int64_t elements) { return elements % 64 == 0; }  // squares come in fours

__device__ inline void send(uint64_t* to, uint32_t value, uint32_t launch) { send_word(to, uint64_t{launch} << 32 | value); }
// Words of a row from `from` on, 4 a place, as many places as begin below `end`; waits until all are there. What is there is not
// asked for again: blocks that ask for everything are what keeps words on their way.
template <int places>
__device__ inline void receive(const uint64_t* from, int first, int step, int end, uint32_t launch, uint32_t (&to)[places][4]) {
  unsigned missing = 0;
#pragma unroll
  for (int p = 0; p < places; ++p)
    if (first + p * step < end) missing |= 1u << p;
  while (missing) {
#pragma unroll
    for (int p = 0; p < places; ++p) {
      if (!(missing >> p & 1)) continue;
      const uint64_t* at = from + word_at(first + p * step);
      uint64_t v[4];
      receive_words(at, v[0], v[1]);
      receive_words(at + 64, v[2], v[3]);
      bool there = true;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        to[p][e] = static_cast<uint32_t>(v[e]);
        there = there && static_cast<uint32_t>(v[e] >> 32) == launch;
      }
      if (there) missing &= ~(1u << p);
    }
  }
}

// 1 / the root of the mean square of a row, by what came of its tiles. A warp.
__device__ inline float scale_of_row(const uint64_t* squares, int k, float eps, uint32_t launch) {
  const int tiles = k / 16, lane = threadIdx.x % 32;
  float sum = 0;
  for (int first = 0; first < tiles; first += 256) {
    uint32_t v[2][4] = {};
    receive(squares, first + 4 * lane, 128, tiles, launch, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += __uint_as_float(v[i / 4][i % 4]);
  }
  return 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(k) + eps);
}

// A stage of the ring holds 16 rows of weights, of each warp a unit of k. Tiled: unit by unit, the codes, then the
// scales. Plain: row by row, 64 bytes apart, so that a warp's reads of 16 bytes, two rows at a time, meet all banks.
template <Codes codes, Scales scales>
struct Stages {
  static constexpr bool tiled = scales != Scales::none;
  static constexpr int part = static_cast<int>(unit_of(codes));    // elements of 64 bytes
  static constexpr int parts = tiled ? 1 : 2, unit = parts * part;  // of a row in a stage, of a warp
  static constexpr int steps = part / 16;
  ORLOP_BOTH static int scale_bytes(const Piece& l) {
    return scales == Scales::none ? 0 : scales == Scales::one ? 4 : scales == Scales::with_min ? 8 : l.scale_bytes;
  }
  ORLOP_BOTH static int sub(const Piece& l) { return scales == Scales::any ? l.sub : 1; }
  static constexpr int row_bytes = 128 * chain_warps, row_pitch = row_bytes + 64;  // plain
  ORLOP_BOTH static int unit_bytes(const Piece& l) { return tiled ? 1024 + 16 * scale_bytes(l) : 128; }  // from a warp's to the next
  ORLOP_BOTH static int stage_bytes(const Piece& l) { return tiled ? chain_warps * unit_bytes(l) : 16 * row_pitch; }
  ORLOP_BOTH static int units(const Piece& l) { return static_cast<int>(l.k_padded) / unit; }
  static constexpr int barrier_bytes = (2 * most_stages + 2 * buffers) * 8 + 4 * chain_warps;  // and parts of a norm
  ORLOP_BOTH static int sum_floats(int m) { return chain_warps * 2 * m * 16; }  // of a tile: [warps][halves][m][16]
  // Of shared memory: what is neither the ring nor x.
  ORLOP_BOTH static int besides(int m) { return barrier_bytes + buffers * sum_floats(m) * 4; }
};

// Whether an op's rows come to it on the way to its norm.
__device__ inline bool is_normed(const Chain& c, int o) { return c.op[o].source >= 0 && c.op[c.op[o].source].norm; }

// One thread: all that this block will multiply, in order.
template <Codes codes, Scales scales>
__device__ void fill(const Chain& c, uint32_t ring, uint32_t full, uint32_t empty) {
  using K = Stages<codes, scales>;
  int stage = 0, phase = 1;
  const uint64_t policy = read_once();
  const auto stage_bytes = static_cast<uint32_t>(K::stage_bytes(c.op[0].a.l));
  for (int o = 0; o < c.count; ++o) {
    const StreamArgs& a = c.op[o].a;
    const int units = K::units(a.l), tiles = static_cast<int>((a.n + 15) / 16), halves = a.glu != 0 ? 2 : 1;
    const uint64_t row_tile = uint64_t{static_cast<uint32_t>(units)} * static_cast<uint32_t>(a.l.block_bytes);
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x))
      for (int u = 0; u < units; u += chain_warps)
        for (int half = 0; half < halves; ++half) {
          const uint32_t to = ring + static_cast<uint32_t>(stage) * stage_bytes, barrier = full + 8 * static_cast<uint32_t>(stage);
          barrier_wait(empty + 8 * static_cast<uint32_t>(stage), phase);
          if constexpr (K::tiled) {
            const int bytes = min(chain_warps, units - u) * static_cast<int>(a.l.block_bytes);
            const int row = tile + (half ? static_cast<int>(a.up_row) / 16 : 0);
            barrier_expect(barrier, bytes);
            copy_bytes_once(to, (half ? a.high : a.low) + static_cast<uint32_t>(row) * row_tile + static_cast<uint32_t>(u) * static_cast<uint32_t>(a.l.block_bytes), bytes,
                            barrier, policy);
          } else {
            const int bytes = min(K::row_bytes, static_cast<int>(a.l.row_bytes) - 128 * u);
            barrier_expect(barrier, 16 * bytes);
            const unsigned char* from = (half ? a.high + a.up_row * a.l.row_bytes : a.low) + uint64_t{static_cast<uint32_t>(tile) * 16u} * static_cast<uint32_t>(a.l.row_bytes) + 128 * u;
            for (uint32_t row = 0; row < 16; ++row, from += a.l.row_bytes) copy_bytes_once(to + row * K::row_pitch, from, bytes, barrier, policy);
          }
          if (++stage == c.stages) stage = 0, phase ^= 1;
        }
  }
}

// The number of this launch. Nobody leaves before all of the block know it: the last block to leave counts it.
__device__ inline uint32_t this_launch(const Chain& c) {
  wait_inputs();
  const uint32_t next = __ldcg(&c.state->launches) + 1, launch = next ? next : 1;  // 0 is of words that never came
  group_sync(2, threads + 32 * finishers);
  return launch;
}

// What the warps left of tiles, added up in order, to where it belongs: an output each lane, of two rows of activations
// at a time. A tile is the same warp's in all ops of as many columns, which may add to what it wrote.
template <Codes codes, Scales scales>
__device__ void finish(const Chain& c, const float* sums, uint32_t ready, uint32_t taken) {
  using K = Stages<codes, scales>;
  const int lane = threadIdx.x % 32, row = lane % 16, warp = threadIdx.x / 32 - chain_warps - 1;
  const uint32_t launch = this_launch(c);
  const int m = c.op[0].a.m;
  int count = 0;
  for (int o = 0; o < c.count; ++o) {
    const StreamArgs& a = c.op[o].a;
    const bool gated = a.glu != static_cast<int>(Glu::none), kept = c.op[o].kept;
    const float* norm = c.op[o].norm;
    const int tiles = static_cast<int>((a.n + 15) / 16);
    int turn = 0;
    // All tiles before are done: else one that had none of them would be ahead by more than the buffers are.
    group_sync(3, 32 * finishers);
    float scale[chain_rows];
#pragma unroll
    for (int i = 0; i < chain_rows; ++i) {
      scale[i] = 1;
      if (i < m && is_normed(c, o))
        scale[i] = scale_of_row(c.state->words[c.op[o].source] + m * row_words(a.l.k, true) + i * squares_words(a.l.k), static_cast<int>(a.l.k), a.norm_eps, launch);
    }
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x), ++count, ++turn) {
      if (turn % finishers != warp) continue;
      const int64_t n = int64_t{tile} * 16 + row;
      float before[chain_rows / 2] = {};
      const float norm_weight = norm && n < a.n ? norm[n] : 0.0f;
      if (a.accumulate && n < a.n)
#pragma unroll
        for (int i = 0; i < chain_rows / 2; ++i)
          if (const int column = lane / 16 + 2 * i; column < m) before[i] = __ldcg(a.out + int64_t{column} * a.out_stride + n);
      const int buffer = count % buffers;
      barrier_wait(ready + 8 * static_cast<uint32_t>(buffer), count / buffers % 2);
#pragma unroll
      for (int i = 0; i < chain_rows / 2; ++i) {
        if (2 * i >= m) break;
        const int column = lane / 16 + 2 * i;
        const bool mine = column < m && n < a.n;
        const float* all = sums + buffer * K::sum_floats(m) + min(column, m - 1) * 16 + row;
        float v = 0;
#pragma unroll
        for (int w = 0; w < chain_warps; ++w) v += all[w * 2 * m * 16];
        const float of_row = lane / 16 ? scale[2 * i + 1] : scale[2 * i];
        v *= of_row;
        if (mine) {
          if (!K::tiled && a.l.scaled) v *= reinterpret_cast<const float*>(a.low + a.l.scales_at)[n];
          if (a.bias) v += a.bias[n];
        }
        if (gated) {
          float u = 0;
#pragma unroll
          for (int w = 0; w < chain_warps; ++w) u += all[(w * 2 + 1) * m * 16];
          u *= of_row;
          if (mine) {
            if (!K::tiled && a.l.scaled) u *= reinterpret_cast<const float*>(a.high + a.l.scales_at)[n + a.up_row];
            if (a.up_bias) u += a.up_bias[n];
          }
          v = u * activated(a.glu == static_cast<int>(Glu::gelu_tanh), v);
        }
        v += before[i];
        if (kept) {  // first what others wait for
          uint64_t* words = c.state->words[o];
          if (a.narrow_out || norm) {
            const float first = norm ? v * norm_weight : v, next = __shfl_down_sync(all_lanes, first, 1);
            if (mine && row % 2 == 0) send(words + column * row_words(a.n, true) + word_at(static_cast<int>(n) / 2), pair(first, next), launch);
            if (norm) {
              float squares = mine ? v * v : 0.0f;
#pragma unroll
              for (int step = 8; step; step /= 2) squares += __shfl_xor_sync(all_lanes, squares, step);
              if (mine && row == 0) send(words + m * row_words(a.n, true) + column * squares_words(a.n) + word_at(tile), __float_as_uint(squares), launch);
            }
          } else if (mine) {
            send(words + column * row_words(a.n, false) + word_at(static_cast<int>(n)), __float_as_uint(v), launch);
          }
        }
        if (!mine) continue;
        const int64_t place = int64_t{column} * a.out_stride + n;
        if (a.narrow_out)
          reinterpret_cast<__nv_bfloat16*>(a.out)[place] = __float2bfloat16_rn(v);
        else
          a.out[place] = v;
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(taken + 8 * static_cast<uint32_t>(buffer));
    }
  }
}

}  // namespace chained
}  // namespace orlop::cuda
