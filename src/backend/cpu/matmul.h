// Inside of the linear layers: packed weights, prepared activations, and what an ISA file provides.
// Included by ISA files: no STL, nothing that could be emitted out of line.
//
// Packed weights. Tiles of 16 output columns; k in groups of 32, padded with zeros. A tile of a
// quantized type is a region of scales (rounded up to 64 bytes) and then a region of codes.
//   Scales, per group (legacy types):   d f16[16], then m f16[16] if the type has mins.
//   Scales, types with groups of their own (f8, w4 .. w8z), per LinearDesc::group elements ("shares"):
//                                       scale f32[16], then min f32[16] if the type has mins.
//   Scales, per 8 groups (K types):     d f16[16], then dmin f16[16] if it has mins; then per group
//                                       scale i8[halves][16] and min i8[halves][16]
//                                       (q2_k: one byte, scale | min << 4).
//   Codes, per group: unsigned codes in planes, in this order:
//     bit plane     64 bytes: word j (8 bytes) bit 4 * column + b is the top bit of k = 4 j + b
//     2-bit plane  128 bytes: [2][16 columns][4]: byte (i, c, b) bits 2 s are k = 16 i + 4 s + b
//     4-bit plane  256 bytes: [4][16][4]: byte (i, c, b) nibble s is k = 8 i + 4 s + b
//     8-bit plane  512 bytes: [8][16][4]: byte (j, c, b) is k = 4 j + b
// so that four consecutive k of a column are one dword. Float types: bf16 pairs, per 4 k
// [2][16][2]: (k0, k2), (k1, k3), or, for fp32 compute, f32 or f16 files as [k][16].
//
// Prepared activations. Rows in blocks of R = 16 (where every part has kernels for that) or 8, then 4,
// 2, 1 (the block of a row never changes what is computed for it). Per block and group one chunk:
//   int8: i8[R][32]; f32 scale[R], scale*sum[R]; i32 -8 sum[R]; f32 scale*sum of each half [2][R];
//         i32 -sum of each half [2][R]; i32 -128 sum[R]. 64 R bytes.
//   a8:   as int8, every chunk with the row's one scale. For AMX: i8[groups / 2][R][64], a last odd
//         group as [R][32]; f32 scale[R]; i32 sum[R][groups]. At most 40 R bytes a group.
//   bf16: bf16[R][32], per 4 k in the order 0 2 1 3; f32 sum[R], sums of the halves [2][R], 4 R bytes
//         unused. 80 R bytes. For AMX: bf16[groups][R][32], f32 sum[groups][R]. 68 R bytes a group.
//   fp32: f32[R][32]. 128 R bytes. bf16 without AVX512-BF16 uses this, its values rounded to bf16.
//
// Order of operations of one output: groups in ascending k, one accumulator.
//   int8: acc = fma(float(dot), w_scale * a_scale, acc); then fma(w_min, a_scale * sum, acc). The
//         integer dot is exact. A row that holds NaN or infinity in a group gives NaN; a group whose
//         largest magnitude is below 2^-110 counts as zero.
//   bf16: per group (or half) two float32 dots of exact codes by vdpbf16ps, one of the pairs (k0, k2)
//         and one of (k1, k3), added; then acc = fma(dot, w_scale, acc) and fma(w_min, sum, acc). bf16
//         weights: the same two sums run over all of k. Without AVX512-BF16: as fp32, on activations
//         rounded to bf16.
//         With AMX (all but the K types with halves; any number of rows): of every 32 k two chains of
//         fma from zero, one over the even and one over the odd places of k in the order 0 2 1 3 of
//         every four; their sum is the group's dot, or is added to that of the groups before.
//         Denormals count as zero.
//   fp32: acc = fma(w, a, acc) for every k, w exactly as dequantize_row gives it.
// Types with groups of their own, for each of their scales (a "share" of k):
//   int8: part = fma(float(dot), a_scale, part) over the share's groups of 32, from zero; then
//         acc = fma(part, w_scale, acc), and fma(sums, w_min, acc) where sums adds up a_scale * sum.
//   bf16: the two dots run over the whole share, and so do the sums; then as above.
//   a8:   the integer dot and sum run over the whole share; acc = fma(float(dot), w_scale, acc), then
//         fma(float(sum), w_min, acc); at the end of k the result is acc * a_scale.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/kernels.h"

namespace orlop::cpu {

struct PackInfo {
  uint16_t code_bytes;    // a group's codes: 32 k x 16 columns
  uint16_t super_bytes;   // scales of super_groups groups
  uint8_t super_groups;   // 1, or 8 for K types
  uint8_t halves;         // 2: a scale for each 16 elements
  uint8_t low_bits;       // 2, 4, 8; 0: float
  uint8_t high_bits;      // 0, 1 (bit plane), 2 (2-bit plane over a 4-bit one)
  uint8_t zero;           // zero point of the unsigned codes as kernels see them
  bool has_min, sub, codebook;
  bool grouped = false;   // scales for shares of k; codebook then means e4m3
};

// Indexed by FileType; f32 and f16 rows hold for fp32 compute, packed_type() maps them elsewhere.
constexpr PackInfo pack_infos[kernel_type_count] = {
    {2048, 0, 1, 1, 0, 0, 0, false, false, false},    // f32
    {1024, 0, 1, 1, 0, 0, 0, false, false, false},    // f16
    {1024, 0, 1, 1, 0, 0, 0, false, false, false},    // bf16
    {256, 32, 1, 1, 4, 0, 8, false, false, false},    // q4_0
    {256, 64, 1, 1, 4, 0, 0, true, false, false},     // q4_1
    {320, 32, 1, 1, 4, 1, 16, false, false, false},   // q5_0
    {320, 64, 1, 1, 4, 1, 0, true, false, false},     // q5_1
    {512, 32, 1, 1, 8, 0, 128, false, false, false},  // q8_0
    {128, 320, 8, 2, 2, 0, 0, true, true, false},     // q2_k
    {192, 288, 8, 2, 2, 1, 4, false, true, false},    // q3_k
    {256, 320, 8, 1, 4, 0, 0, true, true, false},     // q4_k
    {320, 320, 8, 1, 4, 1, 0, true, true, false},     // q5_k
    {384, 288, 8, 2, 4, 2, 32, false, true, false},   // q6_k
    {256, 32, 1, 1, 4, 0, 128, false, false, true},   // iq4_nl: codebook values + 128
    {512, 64, 1, 1, 8, 0, 0, false, false, true, true},     // f8
    {256, 64, 1, 1, 4, 0, 8, false, false, false, true},    // w4
    {256, 128, 1, 1, 4, 0, 0, true, false, false, true},    // w4z
    {512, 64, 1, 1, 8, 0, 128, false, false, false, true},  // w8
    {512, 128, 1, 1, 8, 0, 0, true, false, false, true},    // w8z
};
[[gnu::always_inline]] constexpr const PackInfo& pack_info(FileType t) {
  return pack_infos[static_cast<int>(t)];
}
[[gnu::always_inline]] constexpr FileType packed_type(FileType t, Compute c) {
  return c != Compute::fp32 && (t == FileType::f32 || t == FileType::f16) ? FileType::bf16 : t;
}
// What a tile spans: groups of 32, and how many of them share a scale (types with groups of their own).
struct Span {
  int64_t groups, share;
};
[[gnu::always_inline]] constexpr int64_t scale_bytes(FileType t, const Span& s) {
  const PackInfo& f = pack_info(t);
  if (f.grouped) return (s.groups + s.share - 1) / s.share * f.super_bytes;
  return (s.groups / f.super_groups * f.super_bytes + 63) / 64 * 64;
}
[[gnu::always_inline]] constexpr int64_t tile_bytes(FileType t, const Span& s) {
  return scale_bytes(t, s) + s.groups * pack_info(t).code_bytes;
}

constexpr int int8_chunk = 64, bf16_chunk = 80, fp32_chunk = 128;  // bytes per row and group

// c [2, R, 16] = block of R rows times each of two tiles. The tiles may be one and the same; its
// second result is not used then.
using TileFn = void (*)(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
                        const Span& span, float* c);
// c [blocks, 2, 16, 16]: the same for up to many_rows rows in blocks of 16, the last of them perhaps
// shorter. What costs something to make of a tile is made once for all of them.
constexpr int many_rows = 256;
using ManyFn = void (*)(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
                        int64_t act_row_bytes, const Span& span, int rows, float* c);
struct TileFns {
  TileFn rows[5];  // R = 1, 2, 4, 8, and 16 or null
  ManyFn many = nullptr;  // used if all parts of a layer have it, then
  int fewest = 1;         // for all rows left over from blocks of 16, if they are so many
};
// Writes row r of a block of `rows` from x [k].
using PrepareFn = void (*)(const float* x, int64_t k, int64_t groups, int rows, int r,
                           unsigned char* block);

struct Epilogue {
  const float* c;   // [rows, 16]
  const float* up;  // [rows, 16], glu only
  float* out;       // row stride out_stride
  int64_t out_stride;
  const float* bias;     // [columns] or null, added to c
  const float* up_bias;  // [columns] or null, added to up
  int rows, columns;
  bool accumulate;
  Glu glu;
};

// One compute setting of an ISA.
struct ComputeIsa {
  PrepareFn prepare;
  int chunk;  // bytes per row and group that prepare fills
  TileFns fns[kernel_type_count];  // by packed type; those that it is not for have none
  PrepareFn prepare_many[2] = {};  // of blocks for TileFns::many, where that differs; [1]: for mins
  int many_chunk = 0;              // bytes per row and group of such a block
};
struct MatmulIsa {
  ComputeIsa int8, a8, fp32, bf16;
  void (*epilogue)(const Epilogue&);
};
void matmul_run(const Exec& exec, const MatmulArgs& args, const MatmulIsa& isa, const ComputeIsa& bf16);

namespace ref {
extern const MatmulIsa matmul_isa;
}
namespace avx2 {
extern const MatmulIsa matmul_isa;
}
namespace avx512 {
extern const MatmulIsa matmul_isa;
}
namespace avx512bf16 {
extern const ComputeIsa matmul_bf16;
}

// One group of a tile in plain numbers, for columns [begin, end): code[k][column] less the zero
// point (codebook looked up), scale and min of each half. Quantized types.
struct ExpandedGroup {
  float code[32][16];
  float scale[2][16], min[2][16];
};
void expand_group(FileType type, const unsigned char* tile, const Span& span, int64_t g, int begin,
                  int end, ExpandedGroup& out);
// Float types (packed type): w[k][column].
void expand_floats(FileType type, const unsigned char* tile, int64_t g, int begin, int end,
                   float w[32][16]);

}  // namespace orlop::cpu
