// Attention of prompts in the fixed order of attention_block.cuh: deterministic mode, and what has no
// Hopper's products. A block of four warps has 64 rows of queries; while it works on a block of keys and
// values, the next one is copied from the cache's pages.
#include <climits>

#include "backend/cuda/attention_prefill.cuh"
#include "backend/cuda/kv_layout.cuh"

namespace orlop::cuda {
namespace {

constexpr int query_rows = 64;
constexpr int threads = 128;

template <int Dims>
constexpr size_t shared_bytes = size_t{(query_rows + 4 * block_keys)} * row_pitch(Dims);

// 16 bytes to shared memory, or zeros.
__device__ inline void copy_piece(uint32_t to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
#endif
}
__device__ inline void copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// grid: most tiles * kv heads
template <class T, int Dims>
__global__ void __launch_bounds__(threads, 2) attend_blocks(const AttentionArgs a, int32_t positions, int32_t least_rows, float c) {
#if __CUDA_ARCH__ >= 800
  constexpr int pitch = row_pitch(Dims), pieces = Dims / 8, stage_bytes = block_keys * pitch;
  extern __shared__ __align__(16) unsigned char shared[];
  unsigned char* const keys = shared + query_rows * pitch;  // [2] stages
  unsigned char* const values = keys + 2 * stage_bytes;     // [2]
  wait_inputs();
  let_next_start();
  const int32_t kv_head = blockIdx.x % a.kv.kv_heads, group = a.heads / a.kv.kv_heads;
  const RowTile tile = find_tile(a.seqs, a.seq_count, least_rows, positions, blockIdx.x / a.kv.kv_heads);
  if (tile.seq < 0) return;
  const AttentionSeq seq = a.seqs[tile.seq];
  const int32_t count = min(positions, seq.rows - tile.first);
  const int32_t first = seq.pos_begin + tile.first, last = first + count - 1;
  const int32_t low = a.window ? max(0, first - a.window + 1) : 0;
  const int32_t begin = low / block_keys, end = last / block_keys;  // blocks of keys, both included

  const KvLayout layout(a.kv);
  const int32_t* table = a.page_table + seq.page_begin;
  // Where a block's keys stand, found while the block before the one before is worked on; null: what nobody sees
  // may be anything, and counts as zeros.
  __shared__ const unsigned char* key_rows[2][block_keys];
  const auto find_row = [&](int32_t block) -> const unsigned char* {
    const int32_t token = block * block_keys + threadIdx.x % block_keys;
    if (token < low || token > last) return nullptr;
    return reinterpret_cast<const unsigned char*>(plain_keys<T>(layout, a.pages, table[token / layout.page_tokens], kv_head)) +
           token % layout.page_tokens * (Dims * 2);
  };
  const auto load = [&](int stage) {
    const uint32_t key_at = static_cast<uint32_t>(__cvta_generic_to_shared(keys + stage * stage_bytes));
    const uint32_t value_at = static_cast<uint32_t>(__cvta_generic_to_shared(values + stage * stage_bytes));
#pragma unroll 4
    for (int i = threadIdx.x; i < block_keys * pieces; i += threads) {
      const int row = i / pieces, piece = i % pieces;
      const unsigned char* from = key_rows[stage][row];
      const bool there = from != nullptr;
      from = there ? from + 16 * piece : static_cast<const unsigned char*>(a.pages);
      copy_piece(key_at + row * pitch + 16 * piece, from, there);
      copy_piece(value_at + row * pitch + 16 * piece, there ? from + layout.values_at : from, there);
    }
  };
  if (threadIdx.x < block_keys)
    key_rows[0][threadIdx.x] = find_row(begin);
  else
    key_rows[1][threadIdx.x - block_keys] = find_row(begin + 1);
  __syncthreads();
  load(0);
  for (int i = threadIdx.x; i < query_rows * pieces; i += threads) {
    const int row = i / pieces, piece = i % pieces, position = row / group, head = kv_head * group + row % group;
    uint4 v{};
    if (position < count) v = query_piece<T>(a.q + (seq.row_begin + tile.first + position) * a.q_stride + head * Dims + 8 * piece);
    *reinterpret_cast<uint4*>(shared + row * pitch + 16 * piece) = v;
  }

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = warp * 16 + lane / 4;
  int32_t oldest[2], newest[2];
  for (int r = 0; r < 2; ++r) {
    newest[r] = first + min((row0 + 8 * r) / group, count - 1);
    oldest[r] = a.window ? newest[r] - a.window + 1 : INT_MIN;
  }
  const uint32_t queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared + warp * 16 * pitch));
  RowStates<Dims> all, chunk;
  all.clear();
  chunk.clear();
  constexpr int chunk_blocks = attention_chunk / block_keys;
  for (int32_t b = begin; b <= end; ++b) {
    const int stage = (b - begin) % 2;
    copies_wait();
    __syncthreads();
    if (b < end) load(stage ^ 1);
    const unsigned char* const later = threadIdx.x < block_keys ? find_row(b + 2) : nullptr;
    const uint32_t k = static_cast<uint32_t>(__cvta_generic_to_shared(keys + stage * stage_bytes));
    const uint32_t v = static_cast<uint32_t>(__cvta_generic_to_shared(values + stage * stage_bytes));
    const int32_t key = b * block_keys;
    if (key + block_keys - 1 <= first && (a.window == 0 || key > last - a.window)) {
      add_block<T, false>(chunk, queries, k, v, c, key, oldest, newest);
    } else {
      take_out_unfinite<T>(chunk, values + stage * stage_bytes, key, oldest, newest);
      add_block<T, true>(chunk, queries, k, v, c, key, oldest, newest);
    }
    if (b % chunk_blocks == chunk_blocks - 1 || b == end) {
      finish_chunk(chunk);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const Shares s = shares(all.top[r], chunk.top[r]);
        all.top[r] = s.top;
        all.sum[r] = folded(s, all.sum[r], chunk.sum[r]);
#pragma unroll
        for (int i = 0; i < Dims / 8; ++i)
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e) all.out[i][e] = folded(s, all.out[i][e], chunk.out[i][e]);
      }
      chunk.clear();
    }
    if (threadIdx.x < block_keys) key_rows[stage][threadIdx.x] = later;  // load() looked there before the last barrier
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + 8 * r, position = row / group, head = kv_head * group + row % group;
    if (position >= count) continue;
    const int64_t at = (seq.row_begin + tile.first + position) * a.out_stride + head * Dims + 2 * (lane % 4);
    const auto store = [&](auto* to) {
#pragma unroll
      for (int i = 0; i < Dims / 8; ++i) store_pair(to + 8 * i, finish(all.out[i][2 * r], all.sum[r]), finish(all.out[i][2 * r + 1], all.sum[r]));
    };
    if (a.narrow_out)
      store(reinterpret_cast<__nv_bfloat16*>(a.out) + at);
    else
      store(a.out + at);
  }
#endif
}

template <class T, int Dims>
void start(Context* c, const AttentionArgs& given, int32_t least_rows, PluginStatus* status) {
  const auto kernel = attend_blocks<T, Dims>;
  if (!allow_shared(c, reinterpret_cast<const void*>(kernel), shared_bytes<Dims>, status)) return;
  AttentionArgs a = given;
  a.max_context = 0;  // no kernel reads it, and it would make every step's list another
  const int32_t positions = tile_positions(a, query_rows);
  launch(c, kernel, Shape{dim3(blocks(most_tiles(a, positions) * a.kv.kv_heads, 1)), dim3(threads), shared_bytes<Dims>}, a, positions, least_rows,
         a.scale * 1.4426950408889634f);
}

template <class T>
void start(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  switch (a.kv.head_dim) {
    case 64: return start<T, 64>(c, a, least_rows, status);
    case 80: return start<T, 80>(c, a, least_rows, status);
    case 96: return start<T, 96>(c, a, least_rows, status);
    default: return start<T, 128>(c, a, least_rows, status);
  }
}

}  // namespace

bool prefill_blocks_takes(const Context* c, const AttentionArgs& a) {
  const int32_t d = a.kv.head_dim;
  return c->capability >= 80 && (a.kv.type == KvType::bf16 || a.kv.type == KvType::f16) && (d == 64 || d == 80 || d == 96 || d == 128) &&
         a.heads / a.kv.kv_heads <= query_rows;
}

void prefill_blocks(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  if (a.kv.type == KvType::bf16)
    start<__nv_bfloat16>(c, a, least_rows, status);
  else
    start<__half>(c, a, least_rows, status);
}

bool prefill_takes(const Context* c, const AttentionArgs& a) {
  return prefill_blocks_takes(c, a) || (c->fast && prefill_hopper_takes(c, a)) || prefill_codes_takes(c, a);
}

void prefill(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  if (prefill_codes_takes(c, a))
    prefill_codes(c, a, least_rows, status);
  else if (c->fast && prefill_hopper_takes(c, a))
    prefill_hopper(c, a, least_rows, status);
  else if (prefill_exactly_takes(c, a))
    prefill_exactly(c, a, least_rows, status);
  else
    prefill_blocks(c, a, least_rows, status);
}

}  // namespace orlop::cuda
