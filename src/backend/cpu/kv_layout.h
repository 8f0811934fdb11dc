// The layout of a page of keys and values. A page holds, per key head, a block of keys and then a
// block of values:
//   bf16: keys   [page_tokens / 16][head_dim / 2][16 tokens][2 dims]
//         values [page_tokens / 2][padded_dim][2 tokens]
//   f32:  keys   [page_tokens / 16][head_dim][16 tokens]
//         values [page_tokens][padded_dim]
// so that one 64-byte vector is 16 tokens of two (one) key dimensions, or 16 dimensions of two (one)
// tokens' values: what VDPBF16PS multiplies with a broadcast pair. Included by ISA files: no STL.
#pragma once
#include "backend/cpu/ops.h"

namespace orlop::cpu {

struct KvLayout {
  int64_t key_tile;     // bytes of 16 tokens' keys
  int64_t value_tile;   // bytes of 16 tokens' values
  int64_t values_at;    // bytes from a head block's start to its values
  int64_t head_block;   // bytes of one head in a page
  int64_t page;         // bytes of a page

  [[gnu::always_inline]] inline explicit KvLayout(const KvDesc& kv) {
    const int64_t elem = kv.type == KvType::bf16 ? 2 : 4;
    key_tile = 16 * elem * kv.head_dim;
    value_tile = 16 * elem * padded_dim(kv.head_dim);
    values_at = key_tile * (kv.page_tokens / 16);
    head_block = values_at + value_tile * (kv.page_tokens / 16);
    page = head_block * kv.kv_heads;
  }
};

}  // namespace orlop::cpu
