// Attention of few rows: from what the warps of a block have, to outputs. States are records of floats: values
// [dims], weighted by 2 to the power of (score - maximum); then maximum and sum, twice: the chunks of a walk use
// the two by turns.
#pragma once
#include "backend/cuda/attention_mma.cuh"
#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/cluster.cuh"

namespace orlop::cuda::decode {

constexpr int warps = decode_warps, threads = 32 * warps;

template <int dims, int columns, int warps_ = decode_warps>
struct Fold {
  static constexpr int warps = warps_, threads = 32 * warps;
  static constexpr int record = dims + 4, quads = dims / 4;
  static constexpr int share_bytes = warps * columns * record * 4, state_bytes = columns * record * 4;  // of shared memory

  float* shares;  // of the warps: where their rings are
  float* states;
  __device__ float* share(int warp, int column) const { return shares + (warp * columns + column) * record; }
  __device__ float* state(int column) const { return states + column * record; }

  // (top, bottom, o) += (max, sum, v); a maximum of -inf is of no keys at all.
  static __device__ void add(float& top, float& bottom, float4& o, float max, float sum, const float4& v) {
    const float new_top = fmaxf(top, max), base = new_top == -INFINITY ? 0.0f : new_top;
    const float keep = exp2_fast(top - base), added = exp2_fast(max - base);
    bottom = __fmaf_rn(bottom, keep, __fmul_rn(sum, added));
    o.x = __fmaf_rn(o.x, keep, __fmul_rn(v.x, added));
    o.y = __fmaf_rn(o.y, keep, __fmul_rn(v.y, added));
    o.z = __fmaf_rn(o.z, keep, __fmul_rn(v.z, added));
    o.w = __fmaf_rn(o.w, keep, __fmul_rn(v.w, added));
    top = new_top;
  }

  // The warps' shares of a chunk into the state; turn: how many chunks there were before.
  __device__ void add_shares(int32_t used, int32_t turn) const {
    __syncthreads();
    const int slot = dims + turn % 2 * 2, before = dims + (turn + 1) % 2 * 2;
#pragma unroll 1
    for (int item = threadIdx.x; item < used * quads; item += threads) {
      const int column = item / quads, d = item % quads * 4;
      float top = -INFINITY, bottom = 0;
      float4 v = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < warps; ++w) {
        const float* from = share(w, column);
        add(top, bottom, v, from[dims], from[dims + 1], *reinterpret_cast<const float4*>(from + d));
      }
      float* to = state(column);
      if (turn) {
        float all_top = to[before], all_bottom = to[before + 1];
        float4 all = *reinterpret_cast<const float4*>(to + d);
        add(all_top, all_bottom, all, top, bottom, v);
        top = all_top, bottom = all_bottom, v = all;
      }
      *reinterpret_cast<float4*>(to + d) = v;
      if (d == 0) to[slot] = top, to[slot + 1] = bottom;
    }
    __syncthreads();
  }

  // The warps' shares of a row, whose keys are all there, to outputs; where they are a cluster's blocks', the first takes
  // what the others have folded.
  __device__ void put_shares(const DecodeArgs& a, const Tile& tile, int32_t first_head, int32_t used) const {
    constexpr int pairs = dims / 2;
    const int32_t blocks = a.shared_by;
    float* own = shares + warps * columns * record;  // [columns]
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < used * pairs; item += threads) {
      const int column = item / pairs, d = item % pairs * 2;
      const Sum sum = folded<warps>(warps, d, [&](int w) { return share(w, column); });
      if (blocks == 1) {
        put_pair(a, tile.seq.row_begin, first_head + column, d, sum);
      } else {
        *reinterpret_cast<float2*>(own + column * record + d) = make_float2(sum.x, sum.y);
        if (d == 0) *reinterpret_cast<float2*>(own + column * record + dims) = make_float2(sum.top, sum.bottom);
      }
    }
    if (blocks == 1) return;
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    const int rank = cluster_rank();
    if (rank == 0)
#pragma unroll 1
      for (int item = threadIdx.x; item < used * pairs; item += threads) {
        const int column = item / pairs, d = item % pairs * 2;
        put_pair(a, tile.seq.row_begin, first_head + column, d, folded<8>(blocks, d, [&](int i) { return at_block(own, i) + column * record; }));
      }
    __syncwarp();
    cluster_arrive();
    if (rank) cluster_wait();  // until it has been read
  }

  struct Sum {
    float top, bottom, x, y;  // of a row's dimensions d and d + 1
  };
  // Of `count` records, at most `most`.
  template <int most, class At>
  static __device__ Sum folded(int count, int d, const At& at) {
    float2 of[most], v[most];  // maximum and sum; values
    Sum sum{-INFINITY, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < most; ++i)
      if (i < count) {
        const float* from = at(i);
        of[i] = *reinterpret_cast<const float2*>(from + dims);
        v[i] = *reinterpret_cast<const float2*>(from + d);
        sum.top = fmaxf(sum.top, of[i].x);
      }
    const float base = sum.top == -INFINITY ? 0.0f : sum.top;
#pragma unroll
    for (int i = 0; i < most; ++i)
      if (i < count) {
        const float keep = exp2_fast(of[i].x - base);
        sum.bottom = __fmaf_rn(of[i].y, keep, sum.bottom);
        sum.x = __fmaf_rn(v[i].x, keep, sum.x);
        sum.y = __fmaf_rn(v[i].y, keep, sum.y);
      }
    return sum;
  }
  static __device__ void put_pair(const DecodeArgs& a, int64_t row, int32_t head, int d, const Sum& sum) {
    const float x = sum.x / sum.bottom + 0.0f, y = sum.y / sum.bottom + 0.0f;  // + 0: no minus zero
    const int64_t to = row * a.out_stride + int64_t{head} * dims + d;
    if (a.narrow_out)
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(a.out) + to) = pack_bf16(x, y);
    else
      *reinterpret_cast<float2*>(static_cast<float*>(a.out) + to) = make_float2(x, y);
  }

  // The state goes to the split's records; the last block of a tile to be done folds them all, in order, into its
  // state. False: this is not the last.
  __device__ bool add_chunks(const DecodeArgs& a, int32_t used, int32_t chunks) const {
    __shared__ bool is_last;
    const int64_t size = int64_t{a.tile_columns} * record;
    float* records = a.records + int64_t{blockIdx.x} * a.splits * size;
    float* own = records + blockIdx.y * size;
#pragma unroll 1
    for (int item = threadIdx.x; item < used * (quads + 1); item += threads) {
      const int column = item / (quads + 1), d = item % (quads + 1) * 4;
      *reinterpret_cast<float4*>(own + column * record + d) = *reinterpret_cast<const float4*>(state(column) + d);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(a.done + blockIdx.x, 1u) + 1 == static_cast<uint32_t>(chunks);
    __syncthreads();
    if (!is_last) return false;
    __threadfence();
    if (threadIdx.x == 0) a.done[blockIdx.x] = 0;
#pragma unroll 1
    for (int item = threadIdx.x; item < used * quads; item += threads) {
      const int column = item / quads, d = item % quads * 4;
      float top = -INFINITY, bottom = 0;
      float4 o = make_float4(0, 0, 0, 0);
      constexpr int ahead = 8;
#pragma unroll 1
      for (int32_t c = 0; c < chunks; c += ahead) {
        float4 v[ahead];
        float2 other[ahead];
#pragma unroll
        for (int j = 0; j < ahead; ++j) {
          const float* from = records + min(c + j, chunks - 1) * size + column * record;
          v[j] = __ldcg(reinterpret_cast<const float4*>(from + d));
          other[j] = __ldcg(reinterpret_cast<const float2*>(from + dims));
        }
#pragma unroll
        for (int j = 0; j < ahead; ++j)
          if (c + j < chunks) add(top, bottom, o, other[j].x, other[j].y, v[j]);
      }
      *reinterpret_cast<float4*>(state(column) + d) = o;
      if (d == 0) state(column)[dims] = top, state(column)[dims + 1] = bottom;
    }
    __syncthreads();
    return true;
  }

  // Outputs: values over sums; of codes, turned back (cpu/kv_code.h says how values were turned).
  template <bool coded>
  __device__ void put(const DecodeArgs& a, const Tile& tile, int32_t first_head, int32_t heads, int32_t turn) const {
    const int32_t used = tile.count * heads, slot = dims + turn % 2 * 2 + 1;
    constexpr int block = dims & -dims;
    const float scale = coded ? 1.0f / sqrtf(static_cast<float>(block)) : 1.0f;
    if constexpr (coded) {
      const int lane = threadIdx.x % 32;
#pragma unroll 1
      for (int column = threadIdx.x / 32; column < used; column += warps) {
        float* x = state(column);
#pragma unroll 1
        for (int h = 1; h < block; h *= 2) {
#pragma unroll
          for (int p = 0; p < dims / 2; p += 32)
            if (p + lane < dims / 2) {
              const int i = 2 * (p + lane) - ((p + lane) & (h - 1));
              const float v = x[i], w = x[i + h];
              x[i] = v + w;
              x[i + h] = v - w;
            }
          __syncwarp();
        }
      }
      __syncthreads();
    }
    const int64_t row = int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin;
#pragma unroll 1
    for (int item = threadIdx.x; item < used * quads; item += threads) {
      const int column = item / quads, d = item % quads * 4, r = column / heads;
      const float bottom = state(column)[slot];
      float4 v = *reinterpret_cast<const float4*>(state(column) + d);
      v.x = v.x * scale / bottom + 0.0f;  // + 0: no minus zero
      v.y = v.y * scale / bottom + 0.0f;
      v.z = v.z * scale / bottom + 0.0f;
      v.w = v.w * scale / bottom + 0.0f;
      const int64_t to = (row + r) * a.out_stride + int64_t{first_head + column - r * heads} * dims + d;
      if (a.narrow_out)
        *reinterpret_cast<uint2*>(static_cast<uint16_t*>(a.out) + to) = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
      else
        *reinterpret_cast<float4*>(static_cast<float*>(a.out) + to) = v;
    }
  }
};

// What a block works on: a tile of queries, its heads, and chunks of its keys.
struct Work {
  Tile tile;
  int32_t kv_head, first_head, heads;
  int32_t oldest, last;                    // positions that any query sees
  int32_t begin_chunk, end_chunk, chunks;  // chunks: all of the tile's
  bool newest;                             // the block's chunks end with the tile's

  // block: among those that have different tiles or heads.
  template <int of_block = warps>
  __device__ bool find(const DecodeArgs& a, int32_t block = blockIdx.x) {
    kv_head = block % a.kv_heads;
    const int32_t rest = block / a.kv_heads, part = rest % a.head_parts;
    first_head = kv_head * a.group + part * a.part_heads;
    heads = min(a.part_heads, a.group - part * a.part_heads);
    if (!find_tile<of_block>(a, rest / a.head_parts, tile)) return false;
    last = tile.first + tile.count - 1;
    oldest = a.window ? max(0, tile.first - a.window + 1) : 0;
    begin_chunk = oldest / a.chunk;
    chunks = last / a.chunk - begin_chunk + 1;
    end_chunk = begin_chunk + chunks;
    newest = true;
    if (a.walks) return true;
    begin_chunk += blockIdx.y;
    if (begin_chunk >= end_chunk) return false;
    newest = begin_chunk + 1 == end_chunk;
    end_chunk = begin_chunk + 1;
    return true;
  }
};

}  // namespace orlop::cuda::decode
