// How a page of keys and values, and a tail, lie in GPU memory. Read by both sides of the plugin (no CUDA
// in it; common.cuh says what makes a function one of the GPU too).
//
// A pool is pages [pages], a page its heads [kv_heads] of head_bytes. One head of one page:
//   f32, bf16, f16   keys [page_tokens][head_dim], then values [page_tokens][head_dim]
//   int8, uint4      blocks of 32 tokens (16 where a page is no multiple of 32), each with all that its tokens need,
//                    so that one copy brings it: key codes, value codes, key grids, value grids, key units; as the
//                    CPU's caches (cpu/kv_layout.h and cpu/kv_code.h say what a code means; the codes are the same)
// Codes lie as a tensor core product of m16n8k16 takes its left operand: tiles of 16 x 16 codes, of which
// lane l of a warp holds 8: rows l / 4 and + 8, columns 2 (l % 4), + 1, + 8, + 9. A key tile has tokens for
// rows and dimensions for columns, a value tile dimensions for rows and tokens for columns. Dimensions are
// padded to 16 with zeros. 16 tokens have `tiles` key tiles and as many value tiles, one after another by
// dimension; a lane has a word (uint4) or two (int8) of each, of which four stand side by side (see word_at).
//   uint4   nibble i of a word and nibble i + 4: register i of the operand (two neighbouring columns).
//           All nibbles of a byte are of one token.
//   int8    bytes 0 and 2 of word r: register r (rows l / 4 + 8 r); bytes 1 and 3: register r + 2. Each is the
//           code + 128.
// Grids of keys: a pair of f16 (centre, share) of dimensions a sealing tile of key_tile tokens: 16, but 32 for
// int8 where pages are multiples of it, since grids are 11 % of what is read else. A scale is its share times the
// tile's unit, a power of two (float [block_tokens / key_tile]) that makes the largest share one of [1, 2): what
// is multiplied by shares stays within f16. Grids are in the order of grid_at. Grids of values: scale bf16
// [block_tokens], then, uint4, centre bf16 [block_tokens].
// Tails: a seat's are [kv_heads][key_tile][head_dim] bf16: keys of the tile that is not sealed yet.
#pragma once
#include "ops/kernels.h"

namespace orlop::cuda {

#ifndef ORLOP_BOTH
#define ORLOP_BOTH
#endif

ORLOP_BOTH constexpr bool is_coded(KvType type) { return type == KvType::int8 || type == KvType::uint4; }

struct KvLayout {
  int32_t page_tokens, kv_heads, head_dim;
  int32_t key_tile;     // tokens that are sealed together; 0: not coded
  int32_t tiles;        // 16 x 16 tiles of 16 tokens' keys
  int32_t lane_words;   // of a lane, of 16 tokens' keys or values
  int32_t codes;        // bytes of 16 tokens' keys or values
  int32_t block_tokens, block_bytes;  // not coded: there are no blocks
  int64_t values_at;    // from a head's start; coded: from a block's, as are
  int64_t key_grids_at, value_grids_at, key_units_at;
  int64_t head_bytes, page_bytes;
  int64_t tail_head, tail_bytes;  // of a head, of a seat; 0: there are none

  ORLOP_BOTH constexpr explicit KvLayout(const KvDesc& d)
      : page_tokens(d.page_tokens), kv_heads(d.kv_heads), head_dim(d.head_dim), key_tile(0), tiles((d.head_dim + 15) / 16),
        lane_words(0), codes(0), block_tokens(0), block_bytes(0), values_at(0), key_grids_at(0), value_grids_at(0),
        key_units_at(0), head_bytes(0), page_bytes(0), tail_head(0), tail_bytes(0) {
    if (is_coded(d.type)) {
      const bool int8 = d.type == KvType::int8;
      block_tokens = page_tokens % 32 == 0 ? 32 : 16;
      key_tile = int8 ? block_tokens : 16;
      lane_words = tiles * (int8 ? 2 : 1);
      codes = 128 * lane_words;
      values_at = int64_t{codes} * (block_tokens / 16);
      key_grids_at = 2 * values_at;
      value_grids_at = key_grids_at + int64_t{64} * tiles * (block_tokens / key_tile);
      key_units_at = value_grids_at + int64_t{int8 ? 2 : 4} * block_tokens;
      block_bytes = static_cast<int32_t>(key_units_at) + 16;  // more than there are units: blocks begin at multiples of 16
      head_bytes = int64_t{block_bytes} * (page_tokens / block_tokens);
      tail_head = int64_t{2} * key_tile * head_dim;
      tail_bytes = tail_head * kv_heads;
    } else {
      values_at = int64_t{page_tokens} * head_dim * (d.type == KvType::f32 ? 4 : 2);
      head_bytes = 2 * values_at;
    }
    page_bytes = head_bytes * kv_heads;
  }

  ORLOP_BOTH constexpr int64_t head_at(int64_t page, int32_t head) const { return page * page_bytes + head * head_bytes; }

  // Coded: where things of a token of a page stand, from the page's head. Codes: of its 16 tokens; grids and unit of keys: of
  // its sealing tile; grid of values: its scale, the centre is block_tokens further.
  ORLOP_BOTH constexpr int64_t block_at(int32_t token) const { return int64_t{block_tokens == 32 ? token / 32 : token / 16} * block_bytes; }
  ORLOP_BOTH constexpr int32_t in_block(int32_t token) const { return token & (block_tokens - 1); }
  ORLOP_BOTH constexpr int32_t tile_in_block(int32_t token) const { return key_tile < block_tokens ? in_block(token) / 16 : 0; }
  ORLOP_BOTH constexpr int64_t key_codes_of(int32_t token) const { return block_at(token) + in_block(token) / 16 * codes; }
  ORLOP_BOTH constexpr int64_t value_codes_of(int32_t token) const { return key_codes_of(token) + values_at; }
  ORLOP_BOTH constexpr int64_t key_grids_of(int32_t token) const { return block_at(token) + key_grids_at + tile_in_block(token) * (64 * tiles); }
  ORLOP_BOTH constexpr int64_t key_unit_of(int32_t token) const { return block_at(token) + key_units_at + tile_in_block(token) * 4; }
  ORLOP_BOTH constexpr int64_t value_grid_of(int32_t token) const { return block_at(token) + value_grids_at + in_block(token) * 2; }
};

// Of a lane's words of 16 tokens: where word w stands, in words. Four at a time, so that a lane reads 16
// bytes; what is left after that two or one at a time.
ORLOP_BOTH constexpr int32_t word_at(int32_t lane_words, int32_t lane, int32_t w) {
  const int32_t whole = lane_words / 4 * 4;
  if (w < whole) return (w / 4 * 32 + lane) * 4 + w % 4;
  const int32_t left = lane_words - whole, pairs = left / 2 * 2;
  if (w - whole < pairs) return whole * 32 + lane * 2 + (w - whole);
  return (whole + pairs) * 32 + lane;
}

// A code of a tile: byte from the 16 tokens' codes, and shift (uint4).
struct CodePlace {
  int32_t byte, shift;
};
ORLOP_BOTH constexpr CodePlace code_place(bool int8, int32_t lane_words, int32_t tile, int32_t row, int32_t column) {
  const int32_t lane = row % 8 * 4 + column % 8 / 2;
  const int32_t reg = row / 8 + column / 8 * 2, second = column % 2;  // register of the operand, half of it
  if (int8) return {word_at(lane_words, lane, 2 * tile + reg % 2) * 4 + 2 * second + reg / 2, 0};
  return {word_at(lane_words, lane, tile) * 4 + 2 * second + reg / 2, reg % 2 * 4};
}
ORLOP_BOTH constexpr CodePlace key_code(bool int8, int32_t lane_words, int32_t token, int32_t dim) {
  return code_place(int8, lane_words, dim / 16, token, dim % 16);
}
ORLOP_BOTH constexpr CodePlace value_code(bool int8, int32_t lane_words, int32_t token, int32_t dim) {
  return code_place(int8, lane_words, dim / 16, dim % 16, token);
}

// Grids of keys, 16-bit elements from a sealing tile's beginning: the centre of a dimension; its share is
// grid_share elements further. What a lane needs for a 16 x 16 tile are 16 bytes: centres of columns 2 (l % 4) and
// + 1, their shares, centres of columns + 8 and + 9, their shares: rows of centres and of shares in turn, if they
// are taken for a left operand.
constexpr int32_t grid_share = 2;
ORLOP_BOTH constexpr int32_t grid_at(int32_t dim) {
  return dim / 16 * 32 + dim % 8 / 2 * 8 + dim % 16 / 8 * 4 + dim % 2;
}

// Keys [page_tokens][head_dim] of a head of a page; values are values_at bytes further. Not for codes.
template <class T>
ORLOP_BOTH inline const T* plain_keys(const KvLayout& l, const void* pages, int64_t page, int32_t head) {
  return reinterpret_cast<const T*>(static_cast<const unsigned char*>(pages) + l.head_at(page, head));
}

}  // namespace orlop::cuda
