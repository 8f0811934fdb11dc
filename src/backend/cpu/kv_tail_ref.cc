// Tails of caches of codes: the bf16 keys of the tile in which a sequence ends, and what becomes of
// them once the tile is complete. Every ISA uses these: a tile is sealed once in 16 steps.
#include <cstring>

#include "backend/cpu/kv_code.h"
#include "backend/cpu/kv_layout.h"

namespace orlop::cpu::ref {
namespace {

void put_key(uint16_t* tile, int32_t token, const float* k, int32_t dims) {
  for (int32_t d = 0; d < dims; ++d) tile[(d / 2 * 16 + token) * 2 + d % 2] = f32_to_bf16(k[d]);
}

}  // namespace

void kv_seal(const KvStoreArgs& a, int64_t begin, int64_t end) {
  const KvLayout layout(a.kv);
  const int32_t dims = a.kv.head_dim;
  uint16_t tile[16 * seal_dims];
  for (int64_t task = begin; task < end; ++task) {
    const AttentionSeq& seq = a.seqs[task / a.kv.kv_heads];
    const int32_t head = static_cast<int32_t>(task % a.kv.kv_heads);
    const int32_t stop = seq.pos_begin + seq.rows;
    for (int32_t first = seq.pos_begin / 16 * 16; first + 16 <= stop; first += 16) {
      const int32_t own = first > seq.pos_begin ? first : seq.pos_begin;  // the call's own rows
      const int64_t row = int64_t{seq.row_begin} + own - seq.pos_begin;
      const int32_t slot = a.slots[row] - (own - first);
      unsigned char* to = static_cast<unsigned char*>(a.pages) +
                          slot / a.kv.page_tokens * layout.page + head * layout.head_block +
                          slot % a.kv.page_tokens / 16 * layout.key_tile;
      const float* k = a.qkv + row * a.qkv_stride + int64_t{a.heads + head} * dims;
      const unsigned char* tail = static_cast<const unsigned char*>(a.tails) +
                                  seq.seat * layout.tail + head * layout.tail_head;
      // Dimension by dimension in pieces, so that a tile of any head_dim fits.
      for (int32_t d = 0; d < dims; d += seal_dims) {
        const int32_t n = dims - d < seal_dims ? dims - d : seal_dims;
        if (own > first) std::memcpy(tile, tail + int64_t{d} * 32, static_cast<size_t>(n) * 32);
        for (int32_t t = own; t < first + 16; ++t)
          put_key(tile, t - first, k + (t - own) * a.qkv_stride + d, n);
        put_keys(a.kv.type == KvType::int8, tile, dims, d, n, to);
      }
    }
  }
}

void kv_tail(const KvTailArgs& a, int64_t begin, int64_t end) {
  const KvLayout layout(a.kv);
  for (int64_t task = begin; task < end; ++task) {
    const AttentionSeq& seq = a.seqs[task / a.kv.kv_heads];
    const int32_t head = static_cast<int32_t>(task % a.kv.kv_heads);
    const int32_t stop = seq.pos_begin + seq.rows;
    if (seq.rows == 0) continue;
    const int32_t first = (stop - 1) / 16 * 16;
    auto* tile = reinterpret_cast<uint16_t*>(static_cast<unsigned char*>(a.tails) +
                                             seq.seat * layout.tail + head * layout.tail_head);
    for (int32_t t = first > seq.pos_begin ? first : seq.pos_begin; t < stop; ++t) {
      const int64_t row = int64_t{seq.row_begin} + t - seq.pos_begin;
      put_key(tile, t - first, a.k + row * a.k_stride + int64_t{head} * a.kv.head_dim,
              a.kv.head_dim);
    }
  }
}

}  // namespace orlop::cpu::ref
