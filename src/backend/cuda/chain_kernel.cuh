// Products of very few rows of activations, one after another in one kernel: a decode step of one sequence. What
// bounds it is reading the weights, and a kernel's end and the next one's beginning take microseconds in which
// memory has nothing to do. Here weights never stop coming: a block stays on its multiprocessor, one of its warps
// fills a ring in shared memory by bulk copies (PTX ISA 9.0, cp.async.bulk), and runs on into the next product's
// weights, which depend on nothing, while the others wait for other blocks' outputs and read them.
//
// A block takes tiles of 16 rows of weights (gated: 16 of gate and as many of up), every gridDim-th; 16 warps share
// k (chain_input.cuh), and others add their sums, in order (chain_parts.cuh).
#pragma once
#include <algorithm>

#include "backend/cuda/chain_input.cuh"

namespace orlop::cuda {
namespace {

using namespace chained;

template <Codes codes, Scales scales>
__global__ void __launch_bounds__(threads + 32 + 32 * finishers, 1) products_in_turn(const __grid_constant__ Chain c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Stages<codes, scales>;
  using In = Input<codes, scales>;
  unsigned char* shared = dynamic_shared();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, j = lane % 4, g = lane / 4, m = c.op[0].a.m;
  const int stage_bytes = S::stage_bytes(c.op[0].a.l), unit_bytes = S::unit_bytes(c.op[0].a.l), scale_bytes = S::scale_bytes(c.op[0].a.l);
  unsigned char* beside = shared + c.stages * stage_bytes;
  const uint32_t full = shared_address(beside), empty = full + 8 * most_stages, ready = empty + 8 * most_stages, taken = ready + 8 * buffers;
  float* norm_parts = reinterpret_cast<float*>(beside + (2 * most_stages + 2 * buffers) * 8);
  float* sums = reinterpret_cast<float*>(beside + S::barrier_bytes);  // [buffers][warps][halves][m][16]
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < most_stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, chain_warps);
    }
    for (uint32_t b = 0; b < buffers; ++b) {
      barrier_init(ready + 8 * b, chain_warps);
      barrier_init(taken + 8 * b, 1);
    }
    barriers_there();
  }
  __syncthreads();
  if (warp >= chain_warps) {
    if (warp > chain_warps)
      finish<codes, scales>(c, sums, ready, taken);
    else if (lane == 0)
      fill<codes, scales>(c, shared_address(shared), full, empty);
    return;
  }

  int stage = 0, phase = 0, count = 0;  // count: tiles of this block so far
  uint32_t launch = 0;
  for (int o = 0; o < c.count; ++o) {
    const ChainOp& op = c.op[o];
    const StreamArgs& a = op.a;
    const bool gated = a.glu != static_cast<int>(Glu::none);
    const int tiles = static_cast<int>((a.n + 15) / 16), units = S::units(a.l), zero = a.l.zero;
    const In in(a, beside + S::besides(m));
    float4 norm_weights[norm_quads] = {};
    if (o + 1 < c.count && c.op[o + 1].a.norm_weight)
      if (const int i = 32 * static_cast<int>(threadIdx.x); i < c.op[o + 1].a.l.k) prefetch_line(c.op[o + 1].a.norm_weight + i);
    if (a.norm_weight && !is_normed(c, o))
#pragma unroll
      for (int q = 0; q < norm_quads; ++q)
        if (const int i = 4 * (static_cast<int>(threadIdx.x) + q * threads); i < a.l.k) norm_weights[q] = *reinterpret_cast<const float4*>(a.norm_weight + i);
    if (o == 0) {
      launch = this_launch(c);
      let_next_start();
    } else {
      meet();  // x is read no more
    }
    take_x(a, op.source < 0 ? nullptr : c.state->words[op.source], is_normed(c, o), launch, in, norm_weights, norm_parts);
    meet();

    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x), ++count) {
      typename In::Sums of[2];
      for (int first = 0; first < units; first += chain_warps) {
        const int u = first + warp;
        const typename In::Taken x = in.take(min(u, units - 1));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (half && !gated) break;
          const unsigned char* at = shared + stage * stage_bytes + warp * unit_bytes;
          barrier_wait(full + 8 * static_cast<uint32_t>(stage), phase);
          uint4 q[S::parts][2];
#pragma unroll
          for (int p = 0; p < S::parts; ++p)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              q[p][h] = *reinterpret_cast<const uint4*>(S::tiled ? at + (g + 8 * h) * 64 + 16 * j : at + (g + 8 * h) * S::row_pitch + 64 * p + 16 * j);
          const float* scale_row = reinterpret_cast<const float*>(at + 1024 + g * scale_bytes);
          const auto read = [&] {
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * static_cast<uint32_t>(stage));
          };
          if (!S::tiled) read();  // scales are read all along
          if (u < units) in.multiply(of[half], u, x, q, scale_row, scale_bytes, zero);
          if (S::tiled) read();
          if (++stage == c.stages) stage = 0, phase ^= 1;
        }
      }
      const int buffer = count % buffers, turn = count / buffers % 2;
      barrier_wait(taken + 8 * static_cast<uint32_t>(buffer), turn ^ 1);
      float* own = sums + buffer * S::sum_floats(m) + warp * 2 * m * 16;
      in.leave(of[0], own);
      if (gated) in.leave(of[1], own + m * 16);
      __syncwarp();
      if (lane == 0) barrier_arrive(ready + 8 * static_cast<uint32_t>(buffer));
    }
  }
  if (c.count == 1) return;
  meet();
  if (threadIdx.x == 0 && atomicAdd(&c.state->done, 1u) == gridDim.x - 1) {
    c.state->done = 0;
    c.state->launches = launch;
  }
#endif
}

struct Bytes {
  const char *begin, *end;
  bool meets(const Bytes& o) const { return begin < o.end && o.begin < end; }
};
Bytes rows(const void* at, int64_t m, int64_t stride, int64_t n, bool narrow) {
  const auto* begin = static_cast<const char*>(at);
  return {begin, begin + ((m - 1) * stride + n) * (narrow ? 2 : 4)};
}
Bytes output(const StreamArgs& a) { return rows(a.out, a.m, a.out_stride, a.n, a.narrow_out); }
Bytes input(const StreamArgs& a) { return rows(a.x, a.m, a.x_stride, a.l.k, a.narrow_x); }

// Whether the op can follow the chain's, which then knows it.
bool follow(Chain& c, ChainOp op) {
  const StreamArgs& a = op.a;
  if (c.count == chain_most || c.op[0].a.m != a.m) return false;
  int32_t source = -1;
  for (int32_t i = 0; i < c.count; ++i) {
    const StreamArgs& before = c.op[i].a;
    if (output(before).meets(input(a))) {
      if (before.out != a.x || before.n != a.l.k || before.m != a.m || before.out_stride != a.x_stride || before.narrow_out != a.narrow_x) return false;
      source = i;
    }
    // What a block writes must not be what another one still reads. An output that is added to is its thread's own.
    if (c.op[i].source < 0 && output(a).meets(input(before))) return false;
    if (output(a).meets(output(before)) && (a.out != before.out || a.n != before.n || a.m != before.m || a.out_stride != before.out_stride ||
                                            (a.glu == 0) != (before.glu == 0) || a.narrow_out != before.narrow_out))
      return false;
  }
  if (source >= 0) {
    ChainOp& from = c.op[source];
    const float* norm = norm_on_the_way(a.l.k) ? a.norm_weight : nullptr;
    if (from.kept && from.norm != norm) return false;
    if (a.m * (norm ? row_words(a.l.k, true) + squares_words(a.l.k) : row_words(a.l.k, a.narrow_x)) > most_words) return false;
    from.kept = 1;
    from.norm = norm;
  }
  op.source = source;
  c.op[c.count++] = op;
  return true;
}

}  // namespace
}  // namespace orlop::cuda
