// Attention of few rows: what its kernels are told, and how work is cut. Host only, but for DecodeArgs.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cuda/layout.h"
#include "backend/cuda/kv_layout.cuh"
#include "backend/cuda/plugin.h"

namespace orlop::cuda {

constexpr int decode_warps = 4;  // of a block
constexpr int whole_warps = 8;   // of one that has a multiprocessor to itself

// Blocks of a call: each is one piece of the work; each has a multiprocessor to itself, and all keys of its rows, alone or
// with a cluster's others (whole_warps); or they stay and take one row's head after another (attention_turns.cuh).
enum class DecodeBlocks { plain, whole, turns };

// No padding: equal calls are equal bytes.
struct DecodeArgs {
  const float* q;
  const float* k;
  const unsigned char* tails;
  void* out;
  const AttentionSeq* seqs;
  const int32_t* page_table;
  const unsigned char* pages;
  float* records;  // [tiles of rows][head_parts][kv_heads][splits][tile_columns][head_dim + 4]
  uint32_t* done;  // [tiles of rows][head_parts][kv_heads], or how many items are taken (attention_turns.cuh); zero before and after
  int64_t q_stride, k_stride, out_stride;
  int64_t head_bytes;
  uint32_t page_bytes, values_at;
  int32_t kv_heads, group, head_parts, part_heads;  // a group's heads are taken in parts of part_heads
  int32_t page_tokens, block_tokens;
  int32_t stages;  // attend_codes: of a warp's ring, chosen when it is started; else 0
  int32_t seq_count, one_each;  // one_each: as many sequences as rows
  int32_t too_many;             // sequences of as many rows are someone else's
  int32_t tile_rows, tile_columns;
  int32_t window;
  int32_t chunk, splits, walks;  // a block walks all chunks of its tile, or takes one of at most `splits`
  int32_t narrow_out;
  float scale_log2;
  uint32_t page_magic;  // page_of()
  // Fast: a tile is one row, and its keys are those of so many blocks, which are a cluster if there are several, in one
  // chunk: its warps' shares are its outputs. 0: it is not so.
  int32_t shared_by;
};
static_assert(sizeof(DecodeArgs) == 9 * 8 + 4 * 8 + 22 * 4);

// The page of token t, for t * page_tokens < 2^32: t over page_tokens by a product.
inline uint32_t page_magic(int32_t page_tokens) { return static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint32_t>(page_tokens) + 1); }
inline bool pages_are_exact(int32_t max_context, int32_t page_tokens) { return int64_t{max_context} * page_tokens < int64_t{1} << 32; }

// Of a call whose contexts are split: tiles at most; and what their chunks leave, in tiles of most_columns queries.
constexpr int64_t most_records = 4096;
constexpr int32_t most_columns = 16;

inline bool decode_takes(const KvDesc& d) {
  const int32_t n = d.head_dim;
  return d.type != KvType::f32 && (n == 64 || n == 80 || n == 96 || n == 128 || n == 256);
}

// How the rows of a call become blocks.
struct DecodePlan {
  int32_t part_heads, head_parts, tile_rows;
  int64_t blocks;        // before the split: tiles of rows, parts of heads, key heads
  int32_t chunk, splits;
  bool walks;
  int32_t shared_by;  // DecodeArgs
  DecodeBlocks kind;
};

// Units of 16 tokens that a warp of such blocks asks for at once: as many as there is memory for.
constexpr int whole_stages(int32_t head_dim) { return head_dim <= 64 ? 5 : head_dim <= 96 ? 4 : 3; }

constexpr int turns_resident = 3;             // blocks of a multiprocessor
constexpr int turns_least = 2;                // rows' heads for each: fewer are better split
constexpr int32_t turns_most_keys = 1024;     // of one row: more would take a block longer than others take for all of theirs
inline bool turns_take(const KvDesc& d, int32_t group) {
  return (d.type == KvType::bf16 || d.type == KvType::f16) && (d.head_dim == 64 || d.head_dim == 128) && group <= 8 && d.page_tokens % 16 == 0;
}

// A number that is not below n and stays the same for a while when n grows: at most an eighth more.
constexpr int32_t stepped(int32_t n) {
  int32_t step = 128;
  while (step < n / 8) step *= 2;
  return (n + step - 1) / step * step;
}

// single: rows are sequences' only ones, and their sums may have any order. hopper: a GPU like that.
inline DecodePlan plan_decode(const KvDesc& kv, int32_t heads, int32_t rows, int32_t seq_count, int32_t max_context, int32_t window,
                              int32_t multiprocessors, bool fast, bool single, bool hopper) {
  DecodePlan p{};
  const int32_t group = heads / kv.kv_heads, columns = kv.head_dim > 128 || group <= 8 ? 8 : most_columns;
  p.head_parts = (group + columns - 1) / columns;
  p.part_heads = (group + p.head_parts - 1) / p.head_parts;
  p.tile_rows = 1;
  if (rows > seq_count) {  // rows of a sequence share keys: powers of two, since tiles stand at their multiples
    const int32_t most = kv.head_dim > 128 ? 8 : most_columns;
    while (p.tile_rows < 8 && 2 * p.tile_rows * p.part_heads <= most) p.tile_rows *= 2;
  }
  const int64_t tiles = std::min<int64_t>(rows, rows / p.tile_rows + 2 * int64_t{seq_count});
  p.blocks = tiles * kv.kv_heads * p.head_parts;
  // Keys that a tile sees, at most; a window may begin and end inside a chunk.
  const int64_t context = stepped(max_context);
  if (window >= context) window = 0;
  const int64_t seen = window ? std::min<int64_t>(context, int64_t{window} + p.tile_rows) : context;
  // Where multiprocessors are left over, a tile's keys are a cluster's, each block with what it can ask for at once, or
  // twice as many: its blocks are done sooner than those that pass what they have through memory.
  if (hopper && single && kv.head_dim <= 128) {
    const int64_t at_once = int64_t{16} * whole_warps * whole_stages(kv.head_dim);
    for (int64_t n = 1; n <= 8 && p.kind != DecodeBlocks::whole; n *= 2)
      if (p.blocks * n <= (n > 1 ? multiprocessors / 8 * 8 : multiprocessors) && seen <= n * at_once * (n == 8 ? 2 : 1)) {
        p.kind = DecodeBlocks::whole;
        p.shared_by = static_cast<int32_t>(n);
      }
    if (p.kind == DecodeBlocks::whole) {
      p.chunk = static_cast<int32_t>(context);
      p.splits = 1;
      return p;
    }
  }
  if (hopper && single && turns_take(kv, group) && seen <= turns_most_keys && p.blocks >= int64_t{turns_least} * multiprocessors) {
    p.kind = DecodeBlocks::turns;
    p.chunk = static_cast<int32_t>(context);
    p.splits = p.shared_by = 1;
    return p;
  }
  if (!fast) {
    p.chunk = is_coded(kv.type) ? 2 * attention_chunk : attention_chunk;
  } else {
    // What a number of splits costs, in tokens that a block walks: waves of blocks, each with what a block costs
    // by itself, and the fold. A context much longer than the others must not be one block's work: at most 8192.
    const int64_t unit = is_coded(kv.type) ? 128 : 64, slots = int64_t{is_coded(kv.type) ? 4 : 2} * multiprocessors, alone = 100, fold = 10;
    const int64_t most = std::min<int64_t>((seen + unit - 1) / unit, 
                                           p.blocks > most_records ? 1 : std::max<int64_t>(1, most_records * most_columns / (p.blocks * p.tile_rows * p.part_heads)));
    int64_t best = INT64_MAX;
    for (int64_t n = 1; n <= std::min<int64_t>(most, 256); ++n) {
      const int64_t chunk = up((seen + n - 1) / n, unit), cost = (p.blocks * n + slots - 1) / slots * (chunk + alone) + (n > 1 ? fold * n : 0);
      if (cost >= best || (chunk > 8192 && n < most)) continue;
      best = cost;
      p.chunk = static_cast<int32_t>(chunk);
    }
    if (best == INT64_MAX) p.chunk = static_cast<int32_t>(up((seen + most - 1) / most, unit));
  }
  const int64_t splits = window ? (seen - 1) / p.chunk + 2 : (context + p.chunk - 1) / p.chunk;
  p.splits = static_cast<int32_t>(splits);
  const int64_t columns_left = p.blocks * splits * p.tile_rows * p.part_heads;
  p.walks = p.splits > 1 && (p.blocks > most_records || columns_left > most_records * most_columns);
  if (p.walks) p.splits = 1;
  p.shared_by = single && p.splits == 1 && !p.walks;
  return p;
}

}  // namespace orlop::cuda
