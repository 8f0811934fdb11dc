// Attention of few rows over bf16 and fp16 pages, at the speed of memory. A block takes one head of keys and
// values and a tile of queries that share it (the heads of its group, for one row or several neighbouring ones);
// long contexts are split into chunks, one a block, folded by the last block that is done (online softmax:
// Milakov and Gimelshein 2018; the split: Dao et al. 2023, flash decoding).
//
// A warp walks units of 16 tokens, every fourth one of its chunk (whole: eighth), by itself: cp.async brings them into its own
// ring in shared memory. Products are turned around, so that few queries waste little: scores [tokens, queries] =
// keys [tokens, dims] (left operand) x queries; outputs [dims, queries] = values turned [dims, tokens] x weights,
// which movmatrix brings from the one's result layout to the other's operand layout.
//
// In fast mode, where there is a multiprocessor for each, larger blocks take all of a sequence's keys (whole), alone or as
// a cluster: what they have does not go through memory.
//
// Where each sequence has one row, the block can do kv_store's work too: it norms and turns its own queries and, if the
// row's position is in its last chunk, the row's key and value, which go to their page and straight into the ring.
//
// What a row gives depends on its own position and keys alone, if chunks do: tiles of rows begin at absolute
// positions, units too, and what a query does not see leaves every bit of its state as it was.
#pragma once
#include "backend/cuda/common.cuh"

#include "backend/cuda/attention_fold.cuh"
#include "backend/cuda/kv_store.cuh"

namespace orlop::cuda::decode {

template <KvType type_, int dims_, int columns_, int warps_ = decode_warps, int stages_ = (dims_ > 128 ? 2 : 3),
          int resident_ = (dims_ > 128 || columns_ > 8 || warps_ > decode_warps ? 1 : 2)>
struct Plain {
  static constexpr bool whole = warps_ > decode_warps;  // compute capability 9 and up
  static constexpr KvType type = type_;
  static constexpr int dims = dims_, columns = columns_, warps = warps_;  // of the result: queries of a tile, 8 or 16
  static constexpr int tiles = dims / 16, tops = columns / 8;  // tiles of dimensions, of queries
  static constexpr int unit = 16, stages = stages_, resident = resident_;
  static constexpr int pitch = 2 * dims + 16;  // bytes of a row: ldmatrix meets no bank twice
  static constexpr int stage = 2 * unit * pitch, ring = stages * stage;  // keys, then values
  using Folds = Fold<dims, columns, warps>;
  static constexpr int state_at = warps * ring > Folds::share_bytes ? warps * ring : Folds::share_bytes;
  // A row on its way: queries where states come later, then key and value, which stay; cosines and sines; weights of
  // the norms.
  static constexpr int row_floats = dims + 4;
  static constexpr int turns_at = state_at + (columns + 2) * row_floats * 4, norms_at = turns_at + dims * 4;
  static constexpr int shared = norms_at + 2 * dims * 4;
  static_assert(row_floats == Folds::record);
  static_assert(!whole || Folds::share_bytes + Folds::state_bytes <= state_at);  // put_shares()
};

// Where head `head` of a row lies in shared memory: queries, `heads` of them here, then, behind as many as there may be, the
// key and the value.
template <class K>
__device__ inline float* row_place(float* rows, int32_t head, int32_t heads) {
  return rows + (head < heads ? head : head - heads + K::columns) * K::row_floats;
}

// A row's heads there, normed, turned and rounded to the cache's type, in place; the key and the value go to their places
// too, if there is one. All threads, which have put there what they are made of, and have met.
template <class K>
__device__ inline void turn_rows(const StoreArgs& s, int32_t heads, int32_t heads_here, unsigned char* key_place, uint32_t values_at, unsigned char* memory) {
  constexpr int pairs = K::dims / 2, pair_turns = (pairs + 31) / 32;
  constexpr bool f16 = K::type == KvType::f16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* rows = reinterpret_cast<float*>(memory + K::state_at);
  const float* cosines = reinterpret_cast<const float*>(memory + K::turns_at);
  const float* norms = reinterpret_cast<const float*>(memory + K::norms_at);
#pragma unroll 1
  for (int32_t head = warp; head < heads_here; head += K::warps) {
    float* x = row_place<K>(rows, head, heads);
    const bool is_q = head < heads, is_v = head > heads;
    if (!is_v) {
      const float* weight = (is_q ? s.q_norm : s.k_norm) ? norms + (is_q ? 0 : K::dims) : nullptr;
      norm_and_turn(x, K::dims, weight, s.eps, cosines, cosines + K::dims / 2, s.half, lane);
      __syncwarp();
    }
    uint32_t packed[pair_turns];
#pragma unroll
    for (int j = 0; j < pair_turns; ++j) {
      const int i = 32 * j + lane;
      if (i >= pairs) continue;
      const float2 p = reinterpret_cast<const float2*>(x)[i];
      if (is_q)
        packed[j] = f16 ? pack_f16_finite(p.x, p.y) : pack_bf16(p.x, p.y);
      else
        packed[j] = f16 ? uint32_t{float_f16(p.x)} | uint32_t{float_f16(p.y)} << 16 : uint32_t{float_bf16(p.x)} | uint32_t{float_bf16(p.y)} << 16;
    }
    __syncwarp();
    uint32_t* to = reinterpret_cast<uint32_t*>(key_place + (is_v ? values_at : 0));
#pragma unroll
    for (int j = 0; j < pair_turns; ++j) {
      const int i = 32 * j + lane;
      if (i >= pairs) continue;
      reinterpret_cast<uint32_t*>(x)[i] = packed[j];
      if (!is_q && key_place) to[i] = packed[j];
    }
  }
  __syncthreads();
}

// The block's part of a row as the model's product leaves it, in shared memory as turn_rows() leaves it: queries; where chunks
// end with the tile's, the key and the value too. All threads.
template <class K>
__device__ inline void make_row(const StoreArgs& s, const Work& w, unsigned char* key_place, uint32_t values_at, unsigned char* memory) {
  constexpr int threads = K::Folds::threads, quads = K::dims / 4, items = (K::columns + 2) * quads, turns = (items + threads - 1) / threads;
  const int thread = threadIdx.x;
  float* rows = reinterpret_cast<float*>(memory + K::state_at);
  float* cosines = reinterpret_cast<float*>(memory + K::turns_at);
  const int64_t row = w.tile.seq.row_begin;
  const float* from = s.qkv + row * s.qkv_stride;
  const int32_t heads = w.heads, heads_here = heads + (w.newest ? 2 : 0);
  const auto number = [&](int32_t head) { return head < heads ? w.first_head + head : s.heads + (head - heads) * s.kv_heads + w.kv_head; };
  float4 v[turns];
  float cosine = 0, sine = 0;
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    const int item = i * threads + thread, head = item / quads;
    if (head < heads_here) v[i] = *reinterpret_cast<const float4*>(from + int64_t{number(head)} * K::dims + item % quads * 4);
  }
  if (thread < s.half) cosine = s.cos[row * s.half + thread], sine = s.sin[row * s.half + thread];
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    const int item = i * threads + thread, head = item / quads;
    if (head < heads_here) *reinterpret_cast<float4*>(row_place<K>(rows, head, heads) + item % quads * 4) = v[i];
  }
  if (thread < s.half) cosines[thread] = cosine, cosines[K::dims / 2 + thread] = sine;
  __syncthreads();
  turn_rows<K>(s, heads, heads_here, key_place, values_at, memory);
}

template <class K>
__global__ void __launch_bounds__(K::Folds::threads, K::resident) attend(const __grid_constant__ DecodeArgs a, const __grid_constant__ StoreArgs store) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if constexpr (K::whole) return;
#endif
  let_next_start();
  unsigned char* memory = dynamic_shared();
  constexpr bool half = K::type == KvType::f16;
  constexpr int warps = K::warps;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pair = lane % 4;
  // Sequences and page tables came before the step's first kernel, keys of earlier positions in earlier steps:
  // both may be read before the kernels of this step have ended.
  Work w;
  const int32_t blocks = K::whole ? a.shared_by : 1, rank = blockIdx.x % blocks;  // of a cluster
  if (!w.find<warps>(a, blockIdx.x / blocks)) return wait_inputs();
  const Tile& tile = w.tile;
  const int32_t used = tile.count * w.heads;
  const bool stores = store.rows != 0;                          // then the rows' keys and values are not in their pages
  const int32_t last_there = stores ? w.last - 1 : w.last;
  int32_t slot = 0;
  if (stores) {
    slot = store.slots[tile.seq.row_begin];
    // Not seen for a layer's length: perhaps not in the second-level cache any more.
    if (const int i = 8 * threadIdx.x; i < store.half) {
      prefetch(store.cos + int64_t{tile.seq.row_begin} * store.half + i);
      prefetch(store.sin + int64_t{tile.seq.row_begin} * store.half + i);
    }
  }
  const int32_t* table = a.page_table + tile.seq.page_begin;
  const unsigned char* head = a.pages + w.kv_head * a.head_bytes;
  unsigned char* ring = memory + warp * K::ring;
  const typename K::Folds folds{reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + K::state_at)};

  // Asks for the unit that begins at t.
  const auto ask = [&](int32_t t, int stage, int32_t page, int32_t second_page) {
    constexpr int row_chunks = K::dims / 8;
    const uint32_t to = shared_address(ring + stage * K::stage);
    const unsigned char* low = head + uint64_t{static_cast<uint32_t>(page)} * a.page_bytes + int64_t{t - page_of(a, t) * a.page_tokens} * (2 * K::dims);
    const unsigned char* high = a.page_tokens == 8 ? head + uint64_t{static_cast<uint32_t>(second_page)} * a.page_bytes : low + 8 * (2 * K::dims);
    const bool all = t >= w.oldest && t + K::unit - 1 <= last_there;  // others are zeros, so that no poison gets into sums
#pragma unroll
    for (int i = 0; i < row_chunks / 2; ++i) {
      const int c = i * 32 + lane, row = c / row_chunks, chunk = c % row_chunks;
      const unsigned char* from = (row < 8 ? low : high) + row % 8 * (2 * K::dims) + chunk * 16;
      const bool seen = all || (t + row >= w.oldest && t + row <= last_there);
      copy16(to + row * K::pitch + chunk * 16, from, seen);
      copy16(to + K::unit * K::pitch + row * K::pitch + chunk * 16, from + a.values_at, seen);
    }
  };

  uint32_t q[K::tops][K::tiles][2];
  int32_t place[K::tops][2];  // positions of the results' columns
  bool waited = false;
  int32_t turn = 0;
#pragma unroll 1
  for (int32_t chunk = w.begin_chunk; chunk < w.end_chunk; ++chunk, ++turn) {
    int32_t u_end = (min((chunk + 1) * a.chunk, w.last + 1) + K::unit - 1) / K::unit;
    int32_t u = max(chunk * a.chunk, w.oldest) / K::unit;
    if (K::whole && blocks > 1) {
      const int32_t each = (u_end - u + blocks - 1) / blocks;
      u = min(u + rank * each, u_end);
      w.newest = u < u_end && u + each >= u_end;
      u_end = min(u + each, u_end);
    }
    u += (warp - u) & (warps - 1);
    // Pages of the next units: a lane's is the one that is asked for as many units later. Loads of a table whose lines
    // have left the second-level cache must not wait for each other.
    int32_t asked = u, pages = 0, second_pages = 0, at = 0;
    const auto look = [&] {
      const int32_t t = (asked + lane * warps) * K::unit;
      at = 0;
      if (asked + lane * warps >= u_end) return;
      pages = table[page_of(a, t)];
      if (a.page_tokens == 8) second_pages = table[page_of(a, min(t + 8, w.last))];
    };
    const auto ask_next = [&](int stage) {
      if (asked < u_end) {
        if (at == 32) look();
        const int32_t page = __shfl_sync(all_lanes, pages, at), second = a.page_tokens == 8 ? __shfl_sync(all_lanes, second_pages, at) : 0;
        ask(asked * K::unit, stage, page, second);
        asked += warps;
        ++at;
      }
      copies_end();
    };
    look();
#pragma unroll
    for (int i = 0; i < (K::whole ? K::stages : K::stages - 1); ++i) {
      if (!waited && !stores && asked < u_end && (asked + 1) * K::unit > tile.seq.pos_begin) {
        wait_inputs();
        waited = true;
      }
      ask_next(i);
    }
    if (turn == 0) {
      if (stores) {
        float* norms = reinterpret_cast<float*>(memory + K::norms_at);
        for (int i = threadIdx.x; i < K::dims; i += K::Folds::threads) {
          if (store.q_norm) norms[i] = store.q_norm[i];
          if (store.k_norm) norms[K::dims + i] = store.k_norm[i];
        }
      }
      if (!waited) wait_inputs();
      waited = true;
      if (stores) {
        unsigned char* to = store.pages + uint64_t{static_cast<uint32_t>(slot / a.page_tokens)} * a.page_bytes + w.kv_head * a.head_bytes +
                            slot % a.page_tokens * (2 * K::dims);
        make_row<K>(store, w, w.first_head == w.kv_head * a.group ? to : nullptr, a.values_at, memory);
      }
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        const int32_t column = 8 * n + lane / 4, row = column / w.heads;
        const bool real = column < used;
#pragma unroll
        for (int c = 0; c < 2; ++c) place[n][c] = min(tile.first + (8 * n + 2 * pair + c) / w.heads, w.last);
        if (stores) {
          const uint32_t* from = reinterpret_cast<const uint32_t*>(memory + K::state_at) + (real ? column : 0) * K::row_floats + pair;
#pragma unroll
          for (int s = 0; s < K::tiles; ++s)
#pragma unroll
            for (int h = 0; h < 2; ++h) q[n][s][h] = real ? from[8 * s + 4 * h] : 0;
          continue;
        }
        const float* from = a.q + (int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + (real ? row : 0)) * a.q_stride +
                            int64_t{w.first_head + (real ? column - row * w.heads : 0)} * K::dims + 2 * pair;
        float2 v[K::tiles][2];
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) v[s][h] = real ? *reinterpret_cast<const float2*>(from + 16 * s + 8 * h) : make_float2(0, 0);
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) q[n][s][h] = half ? pack_f16_finite(v[s][h].x, v[s][h].y) : pack_bf16(v[s][h].x, v[s][h].y);
      }
    }

    float o[K::tops][K::tiles][4];  // rows of dimensions: lane / 4 and + 8; columns: 2 (lane % 4) and + 1
    float most[K::tops][2], sum[K::tops][2];
#pragma unroll
    for (int n = 0; n < K::tops; ++n) {
#pragma unroll
      for (int s = 0; s < K::tiles; ++s)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[n][s][e] = 0;
#pragma unroll
      for (int c = 0; c < 2; ++c) most[n][c] = -INFINITY, sum[n][c] = 0;
    }

    int stage = 0;
#pragma unroll 1
    for (; u < u_end; u += warps) {
      copies_wait<K::whole ? K::stages - 1 : K::stages - 2>();
      __syncwarp();
      if (!K::whole) ask_next(stage == 0 ? K::stages - 1 : stage - 1);
      const uint32_t keys = shared_address(ring + stage * K::stage), values = keys + K::unit * K::pitch;
      const int32_t t0 = u * K::unit;
      if (stores && t0 + K::unit > w.last) {  // the row's own, over zeros
        const uint32_t* from = reinterpret_cast<const uint32_t*>(memory + K::state_at) + K::columns * K::row_floats;
        uint32_t* to = reinterpret_cast<uint32_t*>(ring + stage * K::stage + (w.last - t0) * K::pitch);
#pragma unroll
        for (int i = lane; i < K::dims / 2; i += 32) to[i] = from[i], to[K::unit * K::pitch / 4 + i] = from[K::row_floats + i];
        __syncwarp();
      }

      constexpr int parts = K::whole ? 2 : 1;  // of a sum: neither waits for the other
      float score[K::tops][4], other[K::tops][4];  // tokens lane / 4 and + 8
#pragma unroll
      for (int n = 0; n < K::tops; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) score[n][e] = other[n][e] = 0;
#pragma unroll
      for (int s = 0; s < K::tiles; ++s) {
        uint32_t k[4];
        load_matrices(keys + lane % 16 * K::pitch + lane / 16 * 16 + s * 32, k);
#pragma unroll
        for (int n = 0; n < K::tops; ++n) multiply<half>(s % parts ? other[n] : score[n], k, q[n][s]);
      }
      if (parts == 2)
#pragma unroll
        for (int n = 0; n < K::tops; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) score[n][e] += other[n][e];

      const bool inner = t0 >= w.oldest + tile.count - 1 && t0 + K::unit - 1 <= tile.first;  // every query sees every token
      uint32_t weight[K::tops][2];
#pragma unroll
      for (int n = 0; n < K::tops; ++n) {
        if (!inner)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int32_t t = t0 + 8 * (e / 2) + lane / 4, p = place[n][e % 2];
            if (t > p || (a.window && t <= p - a.window)) score[n][e] = -INFINITY;
          }
        float base[2];
        bool grew = false;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float m = fmaxf(score[n][c], score[n][c + 2]);
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 4));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 8));
          m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 16)) * a.scale_log2;
          base[c] = fmaxf(most[n][c], m);
          grew |= base[c] != most[n][c];
        }
        if (__any_sync(all_lanes, grew)) {
          float keep[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            keep[c] = exp2_fast(most[n][c] - (base[c] == -INFINITY ? 0.0f : base[c]));
            most[n][c] = base[c];
            sum[n][c] *= keep[c];
          }
#pragma unroll
          for (int s = 0; s < K::tiles; ++s)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[n][s][e] *= keep[e % 2];
        }
        float p[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          p[e] = exp2_fast(__fmaf_rn(score[n][e], a.scale_log2, base[e % 2] == -INFINITY ? 0.0f : -base[e % 2]));
          sum[n][e % 2] += p[e];
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) weight[n][h] = transposed(half ? pack_f16(p[2 * h], p[2 * h + 1]) : pack_bf16(p[2 * h], p[2 * h + 1]));
      }
#pragma unroll
      for (int s = 0; s < K::tiles; ++s) {
        uint32_t v[4];
        load_transposed(values + (lane % 8 + lane / 16 * 8) * K::pitch + lane / 8 % 2 * 16 + s * 32, v);
#pragma unroll
        for (int n = 0; n < K::tops; ++n) multiply<half>(o[n][s], v, weight[n]);
      }
      if (K::whole) {  // what it has is most often all
        __syncwarp();
        ask_next(stage);
      }
      stage = stage + 1 == K::stages ? 0 : stage + 1;
    }

    copies_wait<0>();
    __syncthreads();  // rings are free
#pragma unroll
    for (int n = 0; n < K::tops; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float s = sum[n][c];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) s += __shfl_xor_sync(all_lanes, s, step);
        if ((K::whole || a.shared_by) && 8 * n + 2 * pair + c >= used) continue;
        float* share = folds.share(warp, 8 * n + 2 * pair + c);
#pragma unroll
        for (int i = 0; i < K::tiles; ++i) share[16 * i + lane / 4] = o[n][i][c], share[16 * i + lane / 4 + 8] = o[n][i][c + 2];
        if (lane < 4) share[K::dims] = most[n][c], share[K::dims + 1] = s;
      }
    if (K::whole || a.shared_by) return folds.put_shares(a, tile, w.first_head, used);
    folds.add_shares(used, turn);
  }
  if (!a.walks && w.chunks > 1 && !folds.add_chunks(a, used, w.chunks)) return;
  folds.template put<false>(a, tile, w.first_head, w.heads, turn - 1);
}

}  // namespace orlop::cuda::decode
