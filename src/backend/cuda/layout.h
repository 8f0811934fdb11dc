// How weights, cache and workspaces lie in GPU memory. Read by both sides of the plugin.
//
// A packed matrix is one or several pieces (Piece), each beginning at 256 bytes: neighbouring parts of one
// type are one piece, their rows one after another. Rows are padded to 64, k to 128; elements past k are
// zero and meet zero activations.
//   f32   float32 (compute fp32, f32 and f16 files)
//   bf16  bfloat16: bf16 files, and float types in the other computes
//   i8    code - zero point as a signed byte; codes of 8 bits without one less 128, which the min makes up for
//   e4m3  the file's bytes
//   u4    nibbles; value = code - zero
// Plain pieces are rows of k_padded elements in their own order, as libraries take them; a float32 scale for
// each row (i8, e4m3) follows.
// Tiled pieces (u4, those with mins, and i8 and e4m3 with scales for groups) are tiles of 16 rows: for each unit
// of k (unit_of() elements), 64 bytes of each row, then of each row `sub` float32 scales and as many mins. In a
// row's 64 bytes the order is that of place(): a thread of a tensor core product finds what it multiplies side
// by side.
#pragma once
#include "ops/kernels.h"

namespace orlop::cuda {

// common.cuh says what makes a function one of the GPU too.
#ifndef ORLOP_BOTH
#define ORLOP_BOTH
#endif

enum class Codes : uint8_t { f32, bf16, i8, e4m3, u4 };

constexpr int64_t k_block = 128;   // k is padded to whole ones
constexpr int64_t row_block = 64;  // rows that linear_pack packs at a time; rows are padded to whole ones
constexpr int64_t tile_rows = 16;

ORLOP_BOTH constexpr int64_t up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

// Elements of 64 bytes of a row (f32: as bf16).
ORLOP_BOTH constexpr int64_t unit_of(Codes codes) {
  return codes == Codes::u4 ? 128 : codes == Codes::i8 || codes == Codes::e4m3 ? 64 : 32;
}

// Where element k of a unit stands in a tiled piece. The product of m16n8k16 step i takes elements
// [16 i, 16 i + 16), of which a thread with lane % 4 = j holds four: 16 i + 4 j and the next; its quarter of the
// unit lies together.
ORLOP_BOTH constexpr int64_t place(int64_t k, int64_t unit) { return k % 16 / 4 * (unit / 4) + k / 16 * 4 + k % 4; }

// Of u4: a word of eight nibbles is shifted and masked to the pairs (0, 4), (1, 5), (2, 6), (3, 7), which are
// then neighbours.
ORLOP_BOTH constexpr int64_t nibble_place(int64_t k) {
  const int64_t at = place(k, 128);
  return at / 8 * 8 + at % 2 * 4 + at % 8 / 2;
}

struct Piece {
  int32_t part = 0, parts = 0;  // of the description: the first, and how many
  Codes codes = Codes::bf16;
  bool tiled = false, scaled = false, has_min = false;
  int32_t zero = 0;             // u4: subtracted from the code
  int32_t sub = 0;              // tiled: scales of a unit
  int64_t rows = 0;             // of all its parts
  int64_t k = 0, k_padded = 0;
  int64_t group = 0;            // elements that share a scale: 16, a multiple of 32, or all
  int64_t row_bytes = 0;        // plain
  int64_t block_bytes = 0;      // tiled: of 16 rows and a unit
  int64_t units = 0;            // of a row
  int64_t scale_bytes = 0;      // tiled: scales and mins of a row's unit
  int64_t scales_at = 0;        // plain; from the piece's beginning
  int64_t begin = 0, bytes = 0;        // of the piece; multiples of 256

  // Tiled: of the 64 bytes of a row's unit; then of its first scale and min, from there.
  ORLOP_BOTH int64_t at(int64_t row, int64_t unit) const {
    return (row / tile_rows * units + unit) * block_bytes + row % tile_rows * 64;
  }
  ORLOP_BOTH int64_t scale_at(int64_t row, int64_t unit) const {
    return (row / tile_rows * units + unit) * block_bytes + 64 * tile_rows + row % tile_rows * scale_bytes;
  }
  ORLOP_BOTH int64_t min_at(int64_t row, int64_t unit) const { return scale_at(row, unit) + 4 * sub; }
};

ORLOP_BOTH constexpr bool has_halves(FileType type) {
  return type == FileType::q2_k || type == FileType::q3_k || type == FileType::q6_k;
}

// The piece that begins with `part`; types as FileType numbers them.
ORLOP_BOTH inline Piece piece_of(const LinearDesc& d, int part, int64_t begin) {
  Piece l;
  const FileType type = d.type[part];
  l.part = part;
  l.begin = begin;
  l.k = d.k;
  l.k_padded = up(d.k, k_block);
  // Tiles hold rows of one part.
  do {
    l.rows += d.part_n[part + l.parts++];
  } while (part + l.parts < d.part_count && d.type[part + l.parts] == type && d.group[part + l.parts] == d.group[part] &&
           d.part_n[part + l.parts - 1] % tile_rows == 0);
  l.scaled = static_cast<int>(type) > static_cast<int>(FileType::bf16);
  switch (type) {
    case FileType::f32:
    case FileType::f16:
    case FileType::bf16:
      l.codes = d.compute == Compute::fp32 && type != FileType::bf16 ? Codes::f32 : Codes::bf16;
      break;
    case FileType::f8:
      l.codes = Codes::e4m3;
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
  l.group = !l.scaled ? l.k_padded : has_halves(type) ? 16 : !has_groups(type) ? 32 : d.group[part] ? d.group[part] : l.k_padded;
  const int64_t unit = unit_of(l.codes), padded_rows = up(l.rows, row_block);
  l.units = l.k_padded / unit;
  l.tiled = l.codes == Codes::u4 || l.has_min || (l.scaled && l.group < l.k_padded);
  if (l.tiled) {
    l.sub = static_cast<int32_t>(l.group % unit == 0 ? 1 : l.group == 16 ? unit / 16 : l.group % 64 == 0 ? unit / 64 : unit / 32);
    l.scale_bytes = 4 * l.sub * (l.has_min ? 2 : 1);
    l.block_bytes = tile_rows * (64 + l.scale_bytes);
    l.bytes = up(padded_rows / tile_rows * l.units * l.block_bytes, 256);
    return l;
  }
  l.row_bytes = l.k_padded * (l.codes == Codes::f32 ? 4 : l.codes == Codes::bf16 ? 2 : 1);
  l.scales_at = padded_rows * l.row_bytes;
  l.bytes = up(l.scales_at + (l.scaled ? padded_rows * 4 : 0), 256);
  return l;
}

// All pieces of a description, in order.
struct Pieces {
  int32_t count = 0;
  Piece piece[LinearDesc::max_parts];
  int64_t bytes = 0;
  ORLOP_BOTH explicit Pieces(const LinearDesc& d) {
    for (int p = 0; p < d.part_count; p += piece[count++].parts) {
      piece[count] = piece_of(d, p, bytes);
      bytes += piece[count].bytes;
    }
  }
};

// Rows of a product, before bias and gate: [m, all parts' rows].
ORLOP_BOTH inline int64_t product_columns(const LinearDesc& d) {
  int64_t n = 0;
  for (int p = 0; p < d.part_count; ++p) n += d.part_n[p];
  return n;
}

// The workspace of a product of few rows: its input, normed; and the product before the gate.
ORLOP_BOTH inline int64_t product_at(const LinearDesc& d, int64_t m) { return up(m * d.k * (d.compute == Compute::fp32 ? 4 : 2), 256); }
ORLOP_BOTH inline int64_t few_workspace_bytes(const LinearDesc& d, int64_t m) { return product_at(d, m) + up(m * product_columns(d) * 4, 256); }

// Partial results of attention: for each row, head and chunk of keys (max, sum, values [head_dim]).
constexpr int32_t split_rows = 64;  // calls of more rows walk the chunks in one block, in the same order
ORLOP_BOTH constexpr int64_t attention_record(int32_t head_dim) { return up(head_dim, 4) + 4; }

}  // namespace orlop::cuda
