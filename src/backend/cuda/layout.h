// How weights, cache and workspaces lie in GPU memory. Read by both sides of the plugin.
//
// A packed matrix is its parts one after another, each beginning at 256 bytes. A part is its codes, row
// after row of k_padded elements (rows padded to 64), then float32 scales [rows, groups], then mins if the
// type has them. Elements past k are zero and meet zero activations.
// Within each 128 elements the order is that of place(): a thread of a tensor core product finds what it
// multiplies side by side (f32: as they are).
//   f32   float32 (compute fp32, float types)
//   bf16  bfloat16: float types in the other computes; and e4m3, which bf16 holds exactly, with scales
//   i8    code - zero point as a signed byte; codes of 8 bits without one less 128, which the min makes up for
//   u4    nibbles in the order of nibble_place(); value = code - zero
#pragma once
#include "ops/kernels.h"

namespace orlop::cuda {

// common.cuh says what makes a function one of the GPU too.
#ifndef ORLOP_BOTH
#define ORLOP_BOTH
#endif

enum class Codes : uint8_t { f32, bf16, i8, u4 };

constexpr int64_t k_block = 128;   // k is padded to whole ones
constexpr int64_t row_block = 64;  // rows that linear_pack packs at a time

ORLOP_BOTH constexpr int64_t up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

// Where element k of a row stands. The product of m16n8k16 step i takes elements [16 i, 16 i + 16) of a block,
// of which a thread with lane % 4 = j holds four: 16 i + 4 j and the next; its 32 of the block lie together.
ORLOP_BOTH constexpr int64_t place(int64_t k) {
  return k / k_block * k_block + k % 16 / 4 * 32 + k % k_block / 16 * 4 + k % 4;
}

// Of u4: a word of eight nibbles is shifted and masked to the pairs (0, 4), (1, 5), (2, 6), (3, 7), which are
// then neighbours.
ORLOP_BOTH constexpr int64_t nibble_place(int64_t k) {
  const int64_t at = place(k);
  return at / 8 * 8 + at % 2 * 4 + at % 8 / 2;
}

struct PartLayout {
  Codes codes = Codes::bf16;
  bool scaled = false, has_min = false;
  int32_t zero = 0;      // u4: subtracted from the code
  int64_t rows = 0;      // of the file
  int64_t k = 0, k_padded = 0;
  int64_t group = 0;     // elements that share a scale: 16, or a multiple of 32
  int64_t groups = 0;    // a row
  int64_t row_bytes = 0;
  int64_t scales_at = 0, mins_at = 0;  // from the part's beginning
  int64_t bytes = 0;     // a multiple of 256
};

// The part of a description; types as FileType numbers them.
ORLOP_BOTH inline PartLayout part_layout(const LinearDesc& d, int part) {
  PartLayout l;
  const FileType type = d.type[part];
  const int t = static_cast<int>(type);
  const bool floats = t <= static_cast<int>(FileType::bf16);
  l.rows = d.part_n[part];
  l.k = d.k;
  l.k_padded = up(d.k, k_block);
  l.scaled = !floats;
  switch (type) {
    case FileType::f32:
    case FileType::f16:
    case FileType::bf16:
      l.codes = d.compute == Compute::fp32 ? Codes::f32 : Codes::bf16;
      break;
    case FileType::f8:
      l.codes = Codes::bf16;
      break;
    case FileType::q4_0:
    case FileType::w4:
      l.codes = Codes::u4;
      l.zero = 8;
      break;
    case FileType::q4_1:
    case FileType::q2_k:
    case FileType::q3_k:
    case FileType::q4_k:
    case FileType::w4z:
      l.codes = Codes::u4;
      l.zero = type == FileType::q3_k ? 4 : 0;
      break;
    default:
      l.codes = Codes::i8;
  }
  l.has_min = type == FileType::q4_1 || type == FileType::q5_1 || type == FileType::q2_k || type == FileType::q4_k ||
              type == FileType::q5_k || type == FileType::w4z || type == FileType::w8z;
  const bool halves = type == FileType::q2_k || type == FileType::q3_k || type == FileType::q6_k;
  l.group = !l.scaled ? l.k_padded : halves ? 16 : !has_groups(type) ? 32 : d.group[part] ? d.group[part] : l.k_padded;
  l.groups = (l.k_padded + l.group - 1) / l.group;
  l.row_bytes = l.codes == Codes::f32    ? 4 * l.k_padded
                : l.codes == Codes::bf16 ? 2 * l.k_padded
                : l.codes == Codes::i8   ? l.k_padded
                                         : l.k_padded / 2;
  const int64_t rows = up(l.rows, row_block);
  l.scales_at = rows * l.row_bytes;
  l.mins_at = l.scales_at + (l.scaled ? up(rows * l.groups * 4, 256) : 0);
  l.bytes = up(l.mins_at + (l.has_min ? rows * l.groups * 4 : 0), 256);
  return l;
}

// Activations as products take them, at the beginning of the workspace: rows of k_padded bf16 in the order
// of place() (fp32: floats, as they are); then the sum of each 16 elements, for types with mins.
struct InputLayout {
  int64_t row_bytes, sums_at, sums, bytes;
  ORLOP_BOTH InputLayout(const LinearDesc& d, int64_t m) {
    const int64_t k = up(d.k, k_block);
    row_bytes = (d.compute == Compute::fp32 ? 4 : 2) * k;
    sums_at = up(m * row_bytes, 256);
    sums = k / 16;
    bytes = sums_at + up(m * sums * 4, 256);
  }
};

// Rows of a product, before bias and gate: [m, all parts' rows].
ORLOP_BOTH inline int64_t product_columns(const LinearDesc& d) {
  int64_t n = 0;
  for (int p = 0; p < d.part_count; ++p) n += d.part_n[p];
  return n;
}
inline size_t matmul_workspace_bytes(const LinearDesc& d, int64_t m) {
  return static_cast<size_t>(InputLayout(d, m).bytes + up(m * product_columns(d) * 4, 256));
}

// A page holds, per key head, keys [page_tokens, head_dim] and then values, in the cache's type.
ORLOP_BOTH constexpr int64_t kv_element(KvType type) { return type == KvType::f32 ? 4 : 2; }
ORLOP_BOTH constexpr int64_t kv_head_bytes(const KvDesc& d) {
  return 2 * int64_t{d.page_tokens} * d.head_dim * kv_element(d.type);
}

// Partial results of attention: for each row, head and chunk of keys (max, sum, values [head_dim]).
constexpr int32_t split_rows = 64;  // calls of more rows walk the chunks in one block, in the same order
ORLOP_BOTH constexpr int64_t attention_record(int32_t head_dim) { return up(head_dim, 4) + 4; }

}  // namespace orlop::cuda
