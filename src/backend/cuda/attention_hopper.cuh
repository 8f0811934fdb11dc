// Attention of prompts on Hopper: the online softmax over tiles of keys of FlashAttention (Dao et al. 2022), as
// FlashAttention-3 (Shah et al. 2024) cuts it for asynchronous products. A block has two warpgroups of 64
// query rows each and a third whose warps copy: one tiles of keys from the cache's pages, one of values, into
// rings of stages, and one the next queries. A warpgroup's scores of a tile are computed while the values of
// the one before are added. Tiles run from the newest keys to the oldest. A block works on tiles of queries
// until there are none left, and what it copies runs ahead of what it works on. Where tiles are few, several
// blocks share the keys of each (attention_split.cuh).
#pragma once
#include "backend/cuda/attention_hopper_parts.cuh"
#include "backend/cuda/attention_split.cuh"
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {

// Of coded caches: attention_codes.cuh.
template <int Dims, int N>
__device__ float turn_back(float (&o)[N], int r);

namespace {

template <bool Int8, int Dims, int Keys, int Stages, class P, bool Split, class Begin>
__device__ void produce_codes(const AttentionArgs& a, const KvLayout& layout, uint32_t base, uint32_t barriers, int32_t positions, int32_t least_rows,
                              int32_t parts, const Begin& begin);

// Exact: to the bit what the kernels of mma.sync make of a row (attention_block.cuh), tiles being its blocks.
// Split: `parts` blocks work on a tile. What earlier steps stored is copied before the kernels of this one have ended.
template <class T, KvType Type, int Dims, int Keys, int Stages, bool Turns, bool Exact, bool Whole, bool Split>
__global__ void __launch_bounds__(hopper_threads, 1)
    attend_hopper(const AttentionArgs a, const __grid_constant__ CUtensorMap pages, int32_t positions, int32_t box, int32_t least_rows, float c, int32_t parts,
                  uint32_t* done) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<Dims, Keys, Stages, Whole>;
  constexpr int keys = P::keys;
  constexpr bool coded = is_coded(Type);
  const KvLayout layout(a.kv);
  extern __shared__ unsigned char raw_shared[];
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024;
  unsigned char* const shared = raw_shared + (base - shared_address(raw_shared));
  const uint32_t barriers = base + P::barriers_at;
  const auto keys_full = [&](int s) { return barriers + 8 * s; };
  const auto keys_empty = [&](int s) { return barriers + 8 * (Stages + s); };
  const auto values_full = [&](int s) { return barriers + 8 * (2 * Stages + s); };
  const auto values_empty = [&](int s) { return barriers + 8 * (3 * Stages + s); };
  const uint32_t work_full = barriers + 8 * 4 * Stages, work_empty = work_full + 8;
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int32_t group = a.heads / a.kv.kv_heads;
  if (threadIdx.x == 0) {
    if (!coded) prefetch_map(&pages);
    for (int s = 0; s < Stages; ++s) {
      barrier_init(keys_full(s), coded ? 4 : 1);
      barrier_init(values_full(s), coded ? 4 : 1);
      barrier_init(keys_empty(s), 8);
      barrier_init(values_empty(s), 8);
    }
    barrier_init(work_full, 1);
    barrier_init(work_empty, 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if constexpr (!Split) wait_inputs();
  let_next_start();

  if (warp < 4) {
    if constexpr (!coded) fewer_registers<40>();
    const auto copy_queries = [&](const Work& work, int32_t n) {
      const int bytes = group * Dims * 4;
      barrier_wait(work_empty, n % 2 ^ 1);
      if (lane == 0) {
        *reinterpret_cast<Work*>(shared + P::work_at) = work;
        barrier_expect(work_full, P::staged ? work.count * bytes : 0);
      }
      __syncwarp();
      if (P::staged)
        for (int32_t i = lane; i < work.count; i += 32)
          copy_bytes(base + P::staged_at + i * bytes, a.q + (work.row + i) * a.q_stride + work.kv_head * group * Dims, bytes, work_full);
    };
    if constexpr (coded) {
      produce_codes<Type == KvType::int8, Dims, Keys, Stages, P, Split>(a, layout, base, barriers, positions, least_rows, parts, copy_queries);
    } else if (warp < 2) {  // 0: keys, 1: values
      const int32_t tokens = a.kv.page_tokens, in_turn = P::whole ? 1 : P::panels;
      const int32_t row_in_tile = lane / in_turn * box, panel = lane % in_turn;
      const uint32_t to = base + (warp ? P::values_at : P::keys_at) + panel * P::across + row_in_tile / 8 * P::down;
      Ring ring;
      for (int32_t n = 0;; ++n) {
        const Work work = work_at<Split>(a, positions, least_rows, n, parts);
        if (work.count == 0) break;
        const Span<Keys, false, Exact> span(work, a.window, 1);
        const Part part = part_of<Split>(span.count, parts);
        if (Split && part.begin < part.end && span.key(part.begin) + Keys > a.seqs[work.seq].pos_begin) wait_inputs();
        const int32_t* table = a.page_table + a.seqs[work.seq].page_begin;
        const auto row_of = [&](int32_t t) {  // of the box in the pool seen as rows, or -1: nothing to copy
          const int32_t token = span.key(t) + row_in_tile;
          if (row_in_tile >= keys || token + box <= span.low || token >= span.high) return -1;
          return ((table[token / tokens] * a.kv.kv_heads + work.kv_head) * 2 + warp) * tokens + token % tokens;
        };
        int32_t next = row_of(part.begin);
        for (int32_t t = part.begin; t < part.end; ++t) {
          const int32_t row = next;
          if (t + 1 < part.end) next = row_of(t + 1);
          const int bytes = __popc(__ballot_sync(all_lanes, row >= 0)) * box * 128 * (P::panels / in_turn);
          const uint32_t full = warp ? values_full(ring.stage) : keys_full(ring.stage);
          barrier_wait(warp ? values_empty(ring.stage) : keys_empty(ring.stage), ring.phase ^ 1);
          if (lane == 0) barrier_expect(full, bytes);
          __syncwarp();
          if (row >= 0) copy_box(to + ring.stage * P::tile_bytes, &pages, panel * 64, 0, 0, row / 8, full);
          ring.next<Stages>();
        }
      }
    } else if (warp == 2) {
      for (int32_t n = 0;; ++n) {
        const Work work = work_at<Split>(a, positions, least_rows, n, parts);
        if (Split && n == 0) wait_inputs();
        copy_queries(work, n);
        if (work.count == 0) break;
      }
    }
  } else {
    if constexpr (!coded) more_registers<232>();
    if constexpr (Split) wait_inputs();
    const int half = warp / 4 - 1, thread = threadIdx.x % 128, row0 = half * 64 + warp % 4 * 16 + lane / 4, key_lane = 2 * (lane % 4);
    const uint64_t q = swizzled(base + half * 64 * 128, 0, 1024);
    const uint64_t k = swizzled(base + P::keys_at, 0, P::down);
    const uint64_t v = swizzled(base + P::values_at, P::across, P::down);
    Ring key_ring, value_ring;
    if (Turns && half == 1) group_arrive(3, 256);  // the first turn is the other's

    for (int phase = 0, round = 0;; phase ^= 1, ++round) {
      barrier_wait(work_full, phase);
      const Work work = *reinterpret_cast<const Work*>(shared + P::work_at);
      if (work.count == 0) break;
      group_sync(1 + half, 128);  // the last tile's queries are done with
      const Span<Keys, coded, Exact> span(work, a.window, layout.key_tile);
      const Part part = part_of<Split>(span.count, parts);
      // Queries in the cache's type, turned as products want them.
#pragma unroll 4
      for (int i = thread; i < 64 * (Dims / 8); i += 128) {
        const int row = half * 64 + i / (Dims / 8), piece = i % (Dims / 8);
        const int position = Split && P::staged ? 0 : row / group;
        uint4 v{};
        if (Split ? row < work.count * group : position < work.count)
          v = query_piece<T>(P::staged ? reinterpret_cast<const float*>(shared + P::staged_at) + row * Dims + 8 * piece
                                       : a.q + (work.row + position) * a.q_stride + (work.kv_head * group + row % group) * Dims + 8 * piece);
        *reinterpret_cast<uint4*>(shared + piece / 8 * P::query_panel + row * 128 + (piece % 8 ^ row % 8) * 16) = v;
      }
      fence_async();
      group_sync(1 + half, 128);
      if (lane == 0) barrier_arrive(work_empty);

      int oldest[2], newest[2];
      for (int r = 0; r < 2; ++r) {
        newest[r] = work.first + min((row0 + 8 * r) / group, work.count - 1);
        oldest[r] = a.window ? newest[r] - a.window + 1 : INT_MIN;
      }
      // The first and the last key that a row sees of a tile with own keys, or without.
      const auto from_key = [&](bool own, int r) { return coded && own ? max(oldest[r], newest[r] / layout.key_tile * layout.key_tile) : oldest[r]; };
      const auto to_key = [&](bool own, int r) { return coded && !own ? newest[r] / layout.key_tile * layout.key_tile - 1 : newest[r]; };
      float s[keys / 2], o[P::parts][P::columns / 2];
      uint32_t p[keys / 4];
      RowState rows[2], all_rows[2];
      float all[Exact ? Dims / 2 : 1];  // of the chunks before
#pragma unroll
      for (int i = 0; i < P::parts; ++i)
#pragma unroll
        for (int e = 0; e < P::columns / 2; ++e) o[i][e] = 0;
      for (float& v : all) v = 0;

      const auto scores = [&] {
        const uint64_t stage = k + key_ring.stage * (P::tile_bytes / 16);
#pragma unroll
        for (int d = 0; d < Dims / 16; ++d)
          Product<T, keys>::scores(s, q + (d / 4 * P::query_panel + d % 4 * 32) / 16, stage + (d / 4 * P::across + d % 4 * 32) / 16, d != 0);
      };
      const auto values = [&] {
        const uint64_t stage = v + value_ring.stage * (P::tile_bytes / 16);
#pragma unroll
        for (int i = 0; i < keys / 16; ++i)
#pragma unroll
          for (int part = 0; part < P::parts; ++part)
            Product<T, P::columns>::values(o[part], p + 4 * i, stage + (part * (P::columns / 64) * P::across + i * 2 * P::down) / 16, 1);
      };
      const auto hold_output = [&] {
#pragma unroll
        for (int part = 0; part < P::parts; ++part) hold(o[part]);
      };
      const auto pack = [&] {
#pragma unroll
        for (int i = 0; i < keys / 4; ++i) p[i] = pair_of(T{}, s[2 * i], s[2 * i + 1]);
      };
      // Values of keys that no row sees may be anything, even NaN, of which a weight of zero does not make nothing: they
      // become zeros. So do infinite ones and NaN that some rows see and others do not, once they are added to those.
      const auto clear_values = [&](int32_t t) {
        const int32_t key = span.key(t), from = span.from(t) - key, to = span.to(t) - key;
        barrier_wait(values_full(value_ring.stage), value_ring.phase);
        unsigned char* const at = shared + P::values_at + value_ring.stage * P::tile_bytes;
        bool found = false;
        for (int i = Split ? threadIdx.x - 128 : thread; i < P::tile_bytes / 16; i += Split ? 256 : 128) {
          const int row = P::whole ? i / (64 * P::panels) * 8 + i / 8 % 8 : i / 8 % keys;
          uint4& piece = reinterpret_cast<uint4*>(at)[i];
          if (row < from || row >= to)
            piece = {};
          else
            found |= not_finite<T>(piece);
        }
        fence_async();
        if (!(Split ? group_any(5, 256, found) : group_any(1 + half, 128, found))) return;
        group_sync(5, 256);  // both warpgroups have looked, and have found the same
        for (int row = max(from, 0); row < min(to, keys); ++row) {
#pragma unroll
          for (int part = 0; part < P::parts; ++part)
#pragma unroll
            for (int i = 0; i < P::columns / 2; ++i) {
              const int d = part * P::columns + i / 4 * 8 + i % 2, r = i / 2 % 2;
              const int byte = d / 64 * P::across + row / 8 * P::down + row % 8 * 128 + (d % 64 / 8 ^ row % 8) * 16 + 2 * key_lane + d % 2 * 2;
              const float v = static_cast<float>(*reinterpret_cast<const T*>(at + byte));
              if (!(fabsf(v) <= 3.4e38f) && key + row >= from_key(t < span.own, r) && key + row <= to_key(t < span.own, r)) o[part][i] += v;
            }
        }
        group_sync(5, 256);
        for (int i = thread; i < P::tile_bytes / 2; i += 128) {
          T& v = reinterpret_cast<T*>(at)[i];
          if (!(fabsf(static_cast<float>(v)) <= 3.4e38f)) v = T(0.0f);
        }
        fence_async();
        group_sync(1 + half, 128);
      };

      const auto weigh_masked = [&](int32_t t) {
        const bool own = t < span.own;
        const int from[2] = {from_key(own, 0), from_key(own, 1)}, to[2] = {to_key(own, 0), to_key(own, 1)};
        if constexpr (Exact)
          weigh_exactly<true>(s, rows, c, span.key(t) + key_lane, from, to);
        else
          weigh<true>(s, rows, c, span.key(t) + key_lane, from, to);
      };
      const auto fold = [&](const Shares (&ends)[2]) {
#pragma unroll
        for (int i = 0; i < P::columns / 2; ++i) {
          all[i] = folded(ends[i / 2 % 2], all[i], o[0][i]);
          o[0][i] = 0;
        }
      };
      // Keys up to `seen` are seen by all rows as far as the newest go, those from `whole` on as far as the oldest do.
      const int32_t seen = coded ? work.first / layout.key_tile * layout.key_tile - 1 : work.first, whole = a.window ? span.last - a.window + 1 : 0;
      const auto inner = [&](int32_t t) { return t >= span.own && span.key(t) + keys - 1 <= seen && span.key(t) >= whole; };

      const auto first_step = [&](int32_t t) {
        barrier_wait(keys_full(key_ring.stage), key_ring.phase);
        if (Turns) group_sync(3 + half, 256);
        products_begin();
        scores();
        products_commit();
        if (Turns) group_arrive(4 - half, 256);
        products_wait<0>();
        hold(s);
        if (lane == 0) barrier_arrive(keys_empty(key_ring.stage));
        key_ring.next<Stages>();
        weigh_masked(t);
        pack();
        if (!Split || !inner(t)) clear_values(t);
      };

      const auto step = [&](int32_t t, auto masked) {
        constexpr bool Masked = decltype(masked)::value;
        barrier_wait(keys_full(key_ring.stage), key_ring.phase);
        if (Turns) group_sync(3 + half, 256);
        hold(s);
        hold_output();
        products_begin();
        scores();
        products_commit();
        barrier_wait(values_full(value_ring.stage), value_ring.phase);
        products_begin();
        values();
        products_commit();
        if (Turns) group_arrive(4 - half, 256);
        products_wait<1>();
        hold(s);
        if (lane == 0) barrier_arrive(keys_empty(key_ring.stage));
        key_ring.next<Stages>();
        Shares ends[2];
        const bool ended = Exact && span.key(t) % attention_chunk == 0;
        if (ended) ends[0] = end_chunk(rows[0], all_rows[0]), ends[1] = end_chunk(rows[1], all_rows[1]);
        if constexpr (Masked)
          weigh_masked(t);
        else if constexpr (Exact)
          weigh_exactly<false>(s, rows, c, 0, oldest, newest);
        else
          weigh<false>(s, rows, c, 0, oldest, newest);
        products_wait<0>();
        hold_output();
        if (lane == 0) barrier_arrive(values_empty(value_ring.stage));
        value_ring.next<Stages>();
        if constexpr (Exact)
          if (ended) fold(ends);
#pragma unroll
        for (int part = 0; part < P::parts; ++part)
#pragma unroll
          for (int i = 0; i < P::columns / 2; ++i) o[part][i] = __fmul_rn(o[part][i], rows[i / 2 % 2].keep);
        pack();
        if constexpr (Masked) clear_values(t);
      };
      const auto last_step = [&] {
        barrier_wait(values_full(value_ring.stage), value_ring.phase);
        hold_output();
        products_begin();
        values();
        products_commit();
        products_wait<0>();
        hold_output();
        if (lane == 0) barrier_arrive(values_empty(value_ring.stage));
        value_ring.next<Stages>();
      };
      // Where a warpgroup has no rows.
      const auto pass = [&](int32_t t) {
        barrier_wait(keys_full(key_ring.stage), key_ring.phase);
        if (Turns) group_sync(3 + half, 256);
        if (Turns) group_arrive(4 - half, 256);
        if (lane == 0) barrier_arrive(keys_empty(key_ring.stage));
        key_ring.next<Stages>();
        if (inner(t))
          barrier_wait(values_full(value_ring.stage), value_ring.phase);
        else
          clear_values(t);
        if (lane == 0) barrier_arrive(values_empty(value_ring.stage));
        value_ring.next<Stages>();
      };

      if (Split && half == 1 && work.count * group <= 64) {
        for (int32_t t = part.begin; t < part.end; ++t) pass(t);
      } else if (!Split || part.begin < part.end) {
        first_step(part.begin);
        for (int32_t t = part.begin + 1; t < part.end; ++t)
          if (inner(t))
            step(t, std::false_type{});
          else
            step(t, std::true_type{});
        last_step();
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if constexpr (Exact) {
          const Shares end = end_chunk(rows[r], all_rows[r]);
#pragma unroll
          for (int i = 2 * r; i < P::columns / 2; i += i % 2 ? 3 : 1) o[0][i] = finish(folded(end, all[i], o[0][i]), all_rows[r].sum);
        }
        float sum = rows[r].sum;
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        const int row = row0 + 8 * r, position = row / group;
        if constexpr (Split) {
          const float scale = coded ? turn_back<Dims>(o[0], r) : 1.0f;
          if (position >= work.count) continue;
          const Left<Dims> left(a, blockIdx.x, round);
          left.put_state(row, rows[r].top, sum);
#pragma unroll
          for (int part = 0; part < P::parts; ++part) left.put(row, part * P::columns, o[part], r, scale);
          continue;
        }
        float scale = Exact ? 1.0f : 1.0f / sum;
        if constexpr (coded) scale *= turn_back<Dims>(o[0], r);
        const int64_t at = (work.row + position) * a.out_stride + (work.kv_head * group + row % group) * Dims;
        const bool there = position < work.count;  // for all four lanes of a row
#pragma unroll
        for (int part = 0; part < P::parts; ++part)
          if (a.narrow_out)
            store_row(reinterpret_cast<__nv_bfloat16*>(a.out) + at + part * P::columns, o[part], r, scale, there);
          else
            store_row(a.out + at + part * P::columns, o[part], r, scale, there);
      }
      if constexpr (Split) {
        meet(done + blockIdx.x / parts, static_cast<uint32_t>((round + 1) * parts));
        fold_parts<Dims>(a, work, group, parts, round);
      }
    }
    if (Turns && half == 0) group_sync(3, 256);  // the turn that nobody takes
    if (Split && threadIdx.x == 128) end_part(done + blockIdx.x / parts, parts);
  }
#endif
}

}  // namespace
}  // namespace orlop::cuda
