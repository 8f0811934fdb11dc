// Where the tiles of keys and values lie, and how a long context is read at the memory's speed.
// Everything has internal linkage.
//
// A page holds the heads of keys and values one after another; a head's part of it is short (4 KiB at
// 64 dimensions in bf16), and prefetchers lose their way between pages. A block that decodes (one row)
// over a long context therefore takes several heads, chunk by chunk, and while it computes a chunk it
// asks for the next one's pages in the order in which they lie in memory, a line for every line that it
// reads: the next chunk is in the second cache when its turn comes.
#pragma once
#include "backend/cpu/attention_tile.h"

namespace orlop::cpu {
namespace {

// Tiles [begin, end); keys from `last` on are nobody's, and need not have a page.
template <class V, class C>
void AttentionTile<V, C>::find_tiles(int32_t c, int begin, int end, int last) {
  const int page_tokens = a_.kv.page_tokens;
  for (int t = begin; t < end; ++t) {
    for (int half = 0; half < (halves_ ? 2 : 1); ++half) {
      const int in_chunk = t * 16 + half * 8 < last ? t * 16 + half * 8 : t * 16;
      const int32_t at = c * attention_chunk + in_chunk;
      const int64_t page = a_.page_table[b_.seq->page_begin + at / page_tokens];
      const char* head = static_cast<const char*>(a_.pages) + page * layout_.page +
                         kv_head_ * layout_.head_block;
      const int tile = at % page_tokens / layout_.tokens;
      source_[t].keys[half] = head + tile * layout_.key_tile;
      source_[t].values[half] = head + layout_.values_at + tile * layout_.value_tile;
    }
    keys_[t] = source_[t].keys[0];
    values_[t] = source_[t].values[0];
  }
}

// What the head at work has to ask for: its share of the next chunk, in pieces of half a head's tile.
template <class V, class C>
void AttentionTile<V, C>::find_next(int32_t c) {
  const int64_t piece = (layout_.key_tile + layout_.value_tile) / 2;
  const int pieces = b_.kv_heads * 2 * (a_.kv.page_tokens / 16);  // of a page's heads at work
  const int32_t begin = (c + 1) * attention_chunk;
  const int32_t end = c + 1 < b_.chunk_end ? position(0) + 1 : 0;
  const int first = (kv_head_ - b_.kv_head) * 2 * chunk_tiles;
  for (int i = 0; i < 2 * chunk_tiles; ++i) {
    const int32_t at = begin + (first + i) / pieces * a_.kv.page_tokens;
    const char* p = static_cast<const char*>(a_.pages);
    if (at < end)
      p += a_.page_table[b_.seq->page_begin + at / a_.kv.page_tokens] * layout_.page +
           b_.kv_head * layout_.head_block + (first + i) % pieces * piece;
    (i < chunk_tiles ? next_keys_[i] : next_values_[i - chunk_tiles]) = p;
  }
}

// Requests go to the second cache: the first one has too few under way at a time to keep memory busy.
template <class V, class C>
void AttentionTile<V, C>::fetch(const char* p, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(p + at, 0, 2);
}

// Asks for the next step's worth of a run of lines, every line once.
template <class V, class C>
[[gnu::always_inline]] inline void AttentionTile<V, C>::fetch_step(const char*& next, int number) {
  if (C::step_bytes >= 64 || number % (64 / C::step_bytes) == 0) __builtin_prefetch(next, 0, 2);
  next += C::step_bytes;
}

// Puts steps of two half tiles together, half_step bytes of each.
template <class V, class C>
void AttentionTile<V, C>::join(const char*& tile, const char* const* halves, int steps,
                               int64_t half_step) {
  char* to = reinterpret_cast<char*>(scratch_);
  tile = to;
  for (int s = 0; s < steps; ++s, to += 2 * half_step)
    for (int half = 0; half < 2; ++half)
      __builtin_memcpy(to + half * half_step, halves[half] + s * half_step,
                       static_cast<size_t>(half_step));
}

}  // namespace
}  // namespace orlop::cpu
