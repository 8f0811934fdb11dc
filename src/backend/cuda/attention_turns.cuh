// Attention of many sequences with one row and few keys each over bf16 and fp16 pages, in fast mode on Hopper. As
// attention_decode.cuh has it, but blocks stay: one takes a row's head of keys and values after another, and asks for those of
// the next before it is done with one. A block that began anew for each would ask for a sequence, then for its pages, then for
// keys, and have nothing to do meanwhile.
//
// Keys and values come by tensor copies, 16 tokens of both at a time: what else is loaded then does not queue behind them.
// Rows are stored on the way as there, too. Whatever block takes it, what a row gives is the same.
#pragma once
#include "backend/cuda/attention_decode.cuh"
#include "backend/cuda/attention_ring.cuh"

namespace orlop::cuda::decode {

template <KvType type_, int dims_>
struct Turns {
  static constexpr KvType type = type_;
  static constexpr int dims = dims_, columns = 8, warps = decode_warps, unit = 16, stages = 256 / dims, resident = turns_resident;
  // A stage: of keys, then of values, squares of 16 tokens by 64 dimensions, whose 16-byte pieces are turned by the token.
  static constexpr int tiles = dims / 16, row_bytes = 2 * dims, square = unit * 128;
  static constexpr int values = dims / 64 * square, stage = 2 * values, ring = stages * stage;
  using Folds = Fold<dims, columns, warps>;
  static constexpr int at_once = 4;  // columns that are folded at a time
  // What make_row() leaves: queries, where shares come later, then key and value.
  static constexpr int row_floats = dims + 4, share_bytes = warps * at_once * row_floats * 4;
  static constexpr int shares_at = warps * ring, state_at = shares_at + share_bytes - columns * row_floats * 4;
  static constexpr int turns_at = shares_at + share_bytes + 2 * row_floats * 4, norms_at = turns_at + dims * 4;
  static constexpr int barriers_at = norms_at + 2 * dims * 4, fetched_at = barriers_at + warps * stages * 8, shared = fetched_at + 2 * 4;
  static_assert(square % 1024 == 0 && shares_at % 16 == 0 && barriers_at % 8 == 0);
  static_assert(resident * (shared + 1024) <= 228 * 1024);  // of Hopper's multiprocessor, which takes 1024 for each block itself
};

// A row's head of keys and values.
struct Item {
  int32_t number;  // from `count` on: there is none
  int32_t row, last, oldest, page_begin;
};
__device__ inline AttentionSeq seq_of(const DecodeArgs& a, int32_t number) { return a.seqs[min(number / a.kv_heads, a.seq_count - 1)]; }
__device__ inline Item item_of(const DecodeArgs& a, int32_t number, int32_t count, AttentionSeq seq) {
  Item item{number, 0, -1, 0, 0};
  if (number >= count) return item;
  item.row = number / a.kv_heads;
  if (seq.row_begin != item.row)  // sequences come in another order
    for (int32_t i = 0; i < a.seq_count; ++i) {
      seq = a.seqs[i];
      if (seq.row_begin == item.row) break;
    }
  item.last = seq.pos_begin;
  item.oldest = a.window ? max(0, item.last - a.window + 1) : 0;
  item.page_begin = seq.page_begin;
  return item;
}

template <class K>
__global__ void __launch_bounds__(K::Folds::threads, K::resident) attend_turns(const __grid_constant__ DecodeArgs a, const __grid_constant__ StoreArgs store, const __grid_constant__ CUtensorMap map) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  let_next_start();
  unsigned char* const memory = dynamic_shared_1024();
  constexpr bool half = K::type == KvType::f16;
  constexpr int warps = K::warps, quads = K::dims / 4;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, pair = lane % 4;
  const int32_t count = a.seq_count * a.kv_heads, used = a.group;
  const bool stores = store.rows != 0;
  const uint32_t ring = shared_address(memory) + warp * K::ring, full = shared_address(memory) + K::barriers_at + warp * K::stages * 8;
  if (lane == 0) {
    for (int i = 0; i < K::stages; ++i) barrier_init(full + 8 * i, 1);
    barriers_there();
    prefetch_map(&map);
  }
  __syncwarp();
  float* const rows = reinterpret_cast<float*>(memory + K::state_at);
  float* const shares = reinterpret_cast<float*>(memory + K::shares_at);
  auto* const fetched = reinterpret_cast<int32_t*>(memory + K::fetched_at);  // by turns

  // ---- what this warp asks for, of the item that it asks for
  int32_t u = 0, u_end = 0, pages = 0, at = 0, pending = 0, to_stage = 0, kv_row = 0;
  const int32_t* table = nullptr;
  const int32_t row_of_page = static_cast<int32_t>(a.page_bytes / K::row_bytes);
  const auto first_unit = [&](const Item& i) {
    const int32_t first = i.oldest / K::unit;
    return first + ((warp - first) & (warps - 1));
  };
  const auto look = [&](const Item& i, int32_t from) {  // pages of the next units: a lane's is the one that is asked for as many units later
    const int32_t unit = from + lane * warps;
    return unit * K::unit <= i.last ? a.page_table[i.page_begin + page_of(a, unit * K::unit)] : 0;
  };
  const auto begin = [&](const Item& i, int32_t its_pages) {
    u = first_unit(i), u_end = i.last / K::unit + 1;
    pages = its_pages, at = 0;
    table = a.page_table + i.page_begin;
    kv_row = i.number % a.kv_heads * static_cast<int32_t>(a.head_bytes / K::row_bytes);
  };
  const auto ask = [&] {
    if (at == 32) {
      const int32_t unit = u + lane * warps;
      if (unit < u_end) pages = table[page_of(a, unit * K::unit)];
      at = 0;
    }
    const int32_t page = __shfl_sync(all_lanes, pages, at), t = u * K::unit;
    if (lane == 0) {
      barrier_expect(full + 8 * to_stage, K::stage);
      copy_box(ring + to_stage * K::stage, &map, 0, page * row_of_page + kv_row + t - page_of(a, t) * a.page_tokens, 0, 0, full + 8 * to_stage);
    }
    u += warps;
    ++at;
    ++pending;
    to_stage = to_stage + 1 == K::stages ? 0 : to_stage + 1;
  };

  // ---- rows: a block's part of one as the model's product leaves it
  constexpr int items = (K::columns + 2) * quads, turns = (items + K::Folds::threads - 1) / K::Folds::threads;
  const int32_t heads_here = used + 2;
  float4 raw[turns];
  float cosine = 0, sine = 0;
  int32_t slot = 0;
  const auto load_row = [&](int32_t item) {
    const int32_t row = item / a.kv_heads, kv_head = item % a.kv_heads;
    const float* const from = store.qkv + int64_t{row} * store.qkv_stride;
#pragma unroll
    for (int n = 0; n < turns; ++n) {
      const int at = n * K::Folds::threads + thread, h = at / quads;
      if (h < heads_here)
        raw[n] = *reinterpret_cast<const float4*>(from + int64_t{h < used ? kv_head * a.group + h : store.heads + (h - used) * store.kv_heads + kv_head} * K::dims + at % quads * 4);
    }
    if (thread < store.half) cosine = store.cos[int64_t{row} * store.half + thread], sine = store.sin[int64_t{row} * store.half + thread];
    slot = store.slots[row];
  };

  // Products before it leave no room for its blocks, so they begin when all that they need is there. What rows are made of is
  // asked for first: behind keys it would wait for them.
  const int32_t number = static_cast<int32_t>(blockIdx.x);
  wait_inputs();
  if (number >= count) return;
  const AttentionSeq seq = seq_of(a, number);
  if (stores) {
    load_row(number);
    float* norms = reinterpret_cast<float*>(memory + K::norms_at);
    for (int i = thread; i < K::dims; i += K::Folds::threads) {
      if (store.q_norm) norms[i] = store.q_norm[i];
      if (store.k_norm) norms[K::dims + i] = store.k_norm[i];
    }
  }
  Item item = item_of(a, number, count, seq);
  begin(item, look(item, first_unit(item)));
  while (pending < K::stages && u < u_end) ask();
  int32_t next_number = item.number + static_cast<int32_t>(gridDim.x);
  AttentionSeq next_seq = seq_of(a, next_number);
  int taken_stage = 0, parity = 0;
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    // The one after that: after a block's first two, whose block asks first. Blocks ask once for each item, and ask no more
    // once there is none; so the last of all knows that it is, and leaves the counter as it was.
    int32_t more_number = 0;
    if (thread == 0) more_number = static_cast<int32_t>(atomicAdd(a.done, 1u));

    uint32_t q[K::tiles][2];
    const bool real = lane / 4 < used;
    if (stores) {
      unsigned char* const to = store.pages + uint64_t{static_cast<uint32_t>(slot / a.page_tokens)} * a.page_bytes + item.number % a.kv_heads * a.head_bytes + slot % a.page_tokens * K::row_bytes;
      float* const cosines = reinterpret_cast<float*>(memory + K::turns_at);
      __syncthreads();  // shares have been read
#pragma unroll
      for (int n = 0; n < turns; ++n) {
        const int at = n * K::Folds::threads + thread, h = at / quads;
        if (h < heads_here) *reinterpret_cast<float4*>(row_place<K>(rows, h, used) + at % quads * 4) = raw[n];
      }
      if (thread < store.half) cosines[thread] = cosine, cosines[K::dims / 2 + thread] = sine;
      __syncthreads();
      turn_rows<K>(store, used, heads_here, to, a.values_at, memory);
      const uint32_t* from = reinterpret_cast<const uint32_t*>(rows) + (real ? lane / 4 : 0) * K::row_floats + pair;
#pragma unroll
      for (int s = 0; s < K::tiles; ++s)
#pragma unroll
        for (int h = 0; h < 2; ++h) q[s][h] = real ? from[8 * s + 4 * h] : 0;
    } else {
      const float* from = a.q + int64_t{item.row} * a.q_stride + int64_t{item.number % a.kv_heads * a.group + (real ? lane / 4 : 0)} * K::dims + 2 * pair;
#pragma unroll
      for (int s = 0; s < K::tiles; ++s)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float2 v = real ? *reinterpret_cast<const float2*>(from + 16 * s + 8 * h) : make_float2(0, 0);
          q[s][h] = half ? pack_f16_finite(v.x, v.y) : pack_bf16(v.x, v.y);
        }
    }
    const Item next = item_of(a, next_number, count, next_seq);
    const int32_t next_pages = next.number < count ? look(next, first_unit(next)) : 0;
    bool ahead = false;  // whether the next item is asked for
    const auto more = [&] {
      if (u >= u_end && !ahead && next.number < count) {
        begin(next, next_pages);
        ahead = true;
      }
      if (u < u_end) ask();
    };
    while (pending < K::stages && u < u_end) ask();

    float o[K::tiles][4];  // rows of dimensions: lane / 4 and + 8; columns: 2 (lane % 4) and + 1
    float most[2], sum[2];
#pragma unroll
    for (int s = 0; s < K::tiles; ++s)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[s][e] = 0;
#pragma unroll
    for (int c = 0; c < 2; ++c) most[c] = -INFINITY, sum[c] = 0;
    const int32_t end = item.last / K::unit + 1;
#pragma unroll 1
    for (int32_t unit = first_unit(item); unit < end; unit += warps) {
      barrier_wait(full + 8 * taken_stage, parity);
      const uint32_t keys = ring + taken_stage * K::stage, values = keys + K::values;
      const int32_t t0 = unit * K::unit;
      const bool inner = t0 >= item.oldest && t0 + K::unit - 1 <= item.last;
      if (!inner || (stores && t0 + K::unit - 1 == item.last)) {
        unsigned char* const here = memory + warp * K::ring + taken_stage * K::stage;
        const auto place = [&](int token, int i) {  // of a word
          return reinterpret_cast<uint32_t*>(here + i / 32 * K::square + token * 128 + (i % 32 / 4 ^ (token & 7)) * 16) + i % 4;
        };
        if (stores && t0 + K::unit > item.last) {  // the row's own
          const uint32_t* from = reinterpret_cast<const uint32_t*>(rows) + K::columns * K::row_floats;
#pragma unroll
          for (int i = lane; i < K::dims / 2; i += 32) {
            uint32_t* const to = place(item.last - t0, i);
            to[0] = from[i], to[K::values / 4] = from[K::row_floats + i];
          }
        }
        for (int token = 0; token < K::unit; ++token)  // what nobody sees is nothing, so that no poison gets into sums
          if (t0 + token < item.oldest || t0 + token > item.last)
#pragma unroll
            for (int i = lane; i < K::dims / 2; i += 32) place(token, i)[K::values / 4] = 0;
        fence_async();
        __syncwarp();
      }
      float score[4] = {0, 0, 0, 0};  // tokens lane / 4 and + 8
      const uint32_t key = keys + lane % 16 * 128 + (lane / 16 ^ (lane & 7)) * 16;
#pragma unroll
      for (int s = 0; s < K::tiles; ++s) {
        uint32_t k[4];
        load_matrices((key ^ s % 4 * 32) + s / 4 * K::square, k);
        multiply<half>(score, k, q[s]);
      }
      if (!inner)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int32_t t = t0 + 8 * (e / 2) + lane / 4;
          if (t > item.last || t < item.oldest) score[e] = -INFINITY;
        }
      float base[2];
      bool grew = false;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float m = fmaxf(score[c], score[c + 2]);
        m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 4));
        m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 8));
        m = fmaxf(m, __shfl_xor_sync(all_lanes, m, 16)) * a.scale_log2;
        base[c] = fmaxf(most[c], m);
        grew |= base[c] != most[c];
      }
      if (__any_sync(all_lanes, grew)) {
        float keep[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          keep[c] = exp2_fast(most[c] - (base[c] == -INFINITY ? 0.0f : base[c]));
          most[c] = base[c];
          sum[c] *= keep[c];
        }
#pragma unroll
        for (int s = 0; s < K::tiles; ++s)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[s][e] *= keep[e % 2];
      }
      float p[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        p[e] = exp2_fast(__fmaf_rn(score[e], a.scale_log2, base[e % 2] == -INFINITY ? 0.0f : -base[e % 2]));
        sum[e % 2] += p[e];
      }
      uint32_t weight[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) weight[h] = transposed(half ? pack_f16(p[2 * h], p[2 * h + 1]) : pack_bf16(p[2 * h], p[2 * h + 1]));
      const uint32_t value = values + (lane % 8 + lane / 16 * 8) * 128 + (lane / 8 % 2 ^ (lane & 7)) * 16;
#pragma unroll
      for (int s = 0; s < K::tiles; ++s) {
        uint32_t v[4];
        load_transposed((value ^ s % 4 * 32) + s / 4 * K::square, v);
        multiply<half>(o[s], v, weight);
      }
      __syncwarp();
      --pending;
      if (++taken_stage == K::stages) taken_stage = 0, parity ^= 1;
      more();
    }
    if (!ahead && next.number < count) begin(next, next_pages);
    while (pending < K::stages && u < u_end) ask();
    if (stores && next.number < count) load_row(next.number);

#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum[c] += __shfl_xor_sync(all_lanes, sum[c], step);
    if (thread == 0) {
      if (more_number == count - 1) *a.done = 0;
      fetched[turn % 2] = more_number;
    }
#pragma unroll 1
    for (int first = 0; first < used; first += K::at_once) {
      __syncthreads();  // queries, or the shares before, have been read
      const int column = 2 * pair - first, here = min(used - first, K::at_once);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (column + c < 0 || column + c >= here) continue;
        float* share = shares + (warp * K::at_once + column + c) * K::row_floats;
#pragma unroll
        for (int i = 0; i < K::tiles; ++i) share[16 * i + lane / 4] = o[i][c], share[16 * i + lane / 4 + 8] = o[i][c + 2];
        if (lane < 4) share[K::dims] = most[c], share[K::dims + 1] = sum[c];
      }
      __syncthreads();
#pragma unroll 1
      for (int i = thread; i < here * (K::dims / 2); i += K::Folds::threads) {
        const int column = i / (K::dims / 2), d = i % (K::dims / 2) * 2;
        const auto total = K::Folds::template folded<warps>(warps, d, [&](int w) { return shares + (w * K::at_once + column) * K::row_floats; });
        K::Folds::put_pair(a, item.row, item.number % a.kv_heads * a.group + first + column, d, total);
      }
    }
    if (next.number >= count) return;
    next_number = 2 * static_cast<int32_t>(gridDim.x) + fetched[turn % 2];
    next_seq = seq_of(a, next_number);
    item = next;
  }
#endif
}

}  // namespace orlop::cuda::decode
