// The layout of a page of keys and values, equal for every ISA. A page holds, per key head, tiles
// of keys and then tiles of values. A tile is T = 16 tokens (8 where a page holds 8); W is head_dim
// rounded up to 16. Bytes of a token and head, keys and values:
//   f32    keys [head_dim][T], values [T][W]                                4 head_dim + 4 W
//   bf16   keys [head_dim / 2][T][2 dims], values [T / 2][W][2 tokens]      2 head_dim + 2 W
//   f16    keys [head_dim][T], values [T][W]                                2 head_dim + 2 W
//   int8   keys [head_dim / 2][T][2 dims] codes, [head_dim] centres, [head_dim] scales
//                                                                           1.25 head_dim
//          values [T / 2][W][2 tokens] codes, [T] scales                    W + 2
//   uint4  keys [head_dim / 2][T] codes of 2 dims, [head_dim] centres, [head_dim] scales
//                                                                           0.75 head_dim
//          values [T / 2][W] codes of 2 tokens, [T] scales, [T] centres     W / 2 + 4
// At head_dim 64: 512, 256, 256, 146, 84. Scales are bf16, centres of keys f16, of values bf16
// (kv_code.h says why). Of two codes in a byte the first is the lower nibble.
//
// Keys of codes have a scale and a centre per channel over a tile of 16 tokens, from when it is
// complete; until then they are bf16 in the sequence's tail (one seat and layer: a bf16 tile of
// keys per key head), and a query sees the tile in which it stands in bf16 anyway. One scale per
// token would do without tails, but keys have few large channels, the same in every token: on
// SmolLM2 mean |change of logprob| was 0.033 for int8 keys so scaled, and is 0.013 for keys and
// values as they are.
//
// Tiles are what the products take: one vector is 16 tokens of two (one) key dimensions, or 16
// dimensions of two (one) tokens' values, multiplied with a broadcast pair of bf16 (VDPBF16PS) or
// of 16-bit integers (VPDPWSSD), to which codes are widened. Tiles of 8 tokens are put together
// first. Included by ISA files: no STL.
#pragma once
#include "backend/cpu/ops.h"

namespace orlop::cpu {

[[gnu::always_inline]] constexpr bool is_coded(KvType type) {
  return type == KvType::int8 || type == KvType::uint4;
}

struct KvLayout {
  int32_t tokens;      // T
  int64_t key_tile;    // bytes of T tokens' keys
  int64_t value_tile;  // bytes of T tokens' values
  int64_t key_extra;   // from a key tile's start to what follows its codes
  int64_t value_extra;
  int64_t values_at;   // from a head block's start to its values
  int64_t head_block;  // bytes of one head in a page
  int64_t page;        // bytes of a page
  int64_t tail_head;   // bytes of one head in a tail; 0: there are none
  int64_t tail;

  [[gnu::always_inline]] inline explicit KvLayout(const KvDesc& kv) {
    const int64_t dims = kv.head_dim, width = padded_dim(kv.head_dim);
    tokens = kv.page_tokens % 16 ? 8 : 16;
    const int64_t half_bytes = kv.type == KvType::f32     ? 8  // of an element
                               : kv.type == KvType::int8  ? 2
                               : kv.type == KvType::uint4 ? 1
                                                          : 4;
    key_extra = tokens * dims * half_bytes / 2;
    value_extra = tokens * width * half_bytes / 2;
    key_tile = key_extra;
    value_tile = value_extra;
    tail_head = 0;
    if (is_coded(kv.type)) {
      key_tile += 4 * dims;
      value_tile += (kv.type == KvType::int8 ? 2 : 4) * tokens;
      tail_head = 2 * 16 * dims;
    }
    values_at = key_tile * (kv.page_tokens / tokens);
    head_block = values_at + value_tile * (kv.page_tokens / tokens);
    page = head_block * kv.kv_heads;
    tail = tail_head * kv.kv_heads;
  }
};

// Two rows of a call can share a byte of uint4 values: then the second is left to whoever stores
// the first. Widens or narrows a range of rows.
[[gnu::always_inline]] inline void keep_pairs(const KvStoreArgs& a, int64_t& begin, int64_t& end) {
  if (a.kv.type != KvType::uint4) return;
  const auto second = [&](int64_t row) {
    return row > 0 && row < a.rows && a.slots[row] % 2 && a.slots[row - 1] == a.slots[row] - 1;
  };
  begin += second(begin);
  end += second(end);
}

}  // namespace orlop::cpu
