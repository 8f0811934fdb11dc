// Products of many rows (more than few_rows) in fast mode: x is made into rows of bf16, e4m3 or int8, weights that
// are packed otherwise into bf16, and a library of matrix products does the rest: cuBLASLt, opened at run time.
#pragma once
#include "backend/cuda/common.cuh"
#include "backend/cuda/many.h"

namespace orlop::cuda {

// ---- the whole product: what matmul() calls ------------------------------------------------

// Puts norm, rounding, dequantization, product, bias and gate into the list. False, and nothing was put there:
// the library is not there, or cannot do this one; the caller has kernels that can. Not for compute fp32.
// The workspace holds at least many_workspace_bytes().
bool matmul_many(Context* c, const MatmulArgs& a, PluginStatus* status);

// Frees what the context's products hold: before its stream goes.
void close_products(Context* c);
// To a context of the same GPU, unless that has its own. Nothing of them is running.
void hand_over_products(Context* from, Context* to);
// Opens the library, which needs no GPU; what needs it opens it too.
void open_library();
// "cuBLASLt 13.2.0", or why it is not used.
void describe_products(Context* c, char* to, size_t size);

// ---- one product ---------------------------------------------------------------------------

enum class Elem : int32_t { bf16, e4m3, i8 };  // of x and of w
enum class Raw : int32_t { f32, bf16, i32 };   // of out; i32: of i8 and only of it

struct GemmArgs {  // plain data without padding: part of a list of launches
  const void* x = nullptr;  // [m, k]
  const void* w = nullptr;  // [n, k]
  void* out = nullptr;      // [m, n]
  int64_t x_stride = 0, w_stride = 0, out_stride = 0;  // in elements
  int64_t m = 0, n = 0, k = 0;
  const float* x_scales = nullptr;  // e4m3: [m]
  const float* w_scales = nullptr;  // and [n]
  const float* bias = nullptr;      // [n]; out f32 only
  Elem elem = Elem::bf16;
  Raw raw = Raw::f32;
  int32_t accumulate = 0;  // out += x w^T; out f32 only
  int32_t unused = 0;
};

struct Products;  // the library, its workspace, the algorithms chosen so far

// The context's; null: there is no library. The first call opens it.
Products* products(Context* c);
// Whether the library has such a product. The first of a shape (m: its bucket) times its candidates, with
// scratch memory, and keeps the fastest.
bool gemm_possible(Context* c, Products* p, const GemmArgs& a);
// Puts a product into the list. False: not possible.
bool gemm(Context* c, Products* p, const GemmArgs& a);
// For weights made into bf16, `bytes` of them, used by one product after another; null: no memory.
unsigned char* weights_buffer(Context* c, Products* p, size_t* bytes);
// For mixed().
void mixed_room(Products* p, float** partials, int** counters);

// ---- prepare.cu ----------------------------------------------------------------------------

struct RowsArgs {
  const void* x = nullptr;  // [m, k]: float32, or bf16 where narrow
  int64_t x_stride = 0;
  const float* norm_weight = nullptr;  // [k], or null: no norm
  const int32_t* k_map = nullptr;
  unsigned char* to = nullptr;  // [m, k_padded]
  float* scales = nullptr;      // [m]: what an element of e4m3 or i8 is multiplied by
  int64_t m = 0, k = 0, k_padded = 0;
  float eps = 0;
  int32_t narrow = 0;
  // Not 0 (bf16): in tiles of as many rows for mixed(): chunks of 64 elements, of each the rows of all tiles, in
  // 128 bytes each whose 16-byte pieces are turned by the row (piece ^ row % 8), and whose elements are, in each
  // 16, 0 1 4 5 8 9 12 13, 2 3 6 7 10 11 14 15: as a thread holds the weights' (see place()).
  int64_t tile = 0;
};
// False: rows of so many elements are too long.
bool prepare_rows(Context* c, Elem elem, const RowsArgs& a);

// What a product left, on its way out: scaled, bias added, gated.
struct FinishArgs {
  const void* raw = nullptr;  // [m, n], gated [m, 2 n]: gate, up
  int64_t raw_stride = 0;
  void* out = nullptr;  // [m, n] float32, or bf16 where narrow
  int64_t out_stride = 0;
  int64_t m = 0, n = 0;
  const float* x_scales = nullptr;  // [m] with w_scales [columns of raw], or both null
  const float* w_scales = nullptr;
  const float* bias = nullptr;  // [columns of raw] or null
  Raw type = Raw::f32;
  Glu glu = Glu::none;
  bool narrow = false, accumulate = false, unused = false;
};
void finish(Context* c, const FinishArgs& a);

// ---- mixed.cu: bf16 rows with tiled weights as they are; Hopper only -------------------------

struct MixedArgs {
  Piece l;
  const unsigned char* low = nullptr;   // the piece
  const unsigned char* high = nullptr;  // gated: where the piece of `up` begins (maybe the same, up_row rows later)
  int64_t up_row = 0;
  const unsigned char* x = nullptr;  // rows in tiles: see RowsArgs
  void* out = nullptr;               // column 0 is the piece's first row; bf16 where narrow_out
  int64_t out_stride = 0;
  const float* bias = nullptr;
  const float* up_bias = nullptr;
  int64_t m = 0, n = 0;  // n: of the result
  float* partials = nullptr;
  int* counters = nullptr;  // zeros, and zeros again afterwards
  int32_t glu = 0;          // Glu
  bool narrow_out = false, accumulate = false, unused[2] = {};
};
constexpr int64_t mixed_blocks = 192;  // that may share tiles
constexpr int64_t mixed_partial_bytes = mixed_blocks * 2 * 256 * 128 * 4;
bool mixed_possible(const Context& c, const Piece& l, int64_t m);
void mixed(Context* c, const MixedArgs& a, PluginStatus* status);

// ---- dequantize.cu -------------------------------------------------------------------------

// Rows [begin, begin + rows) of a piece as bf16 [rows, k_padded]; begin: a multiple of 16. f32 pieces have none.
void dequantize(Context* c, const Piece& l, const unsigned char* piece, int64_t begin, int64_t rows, unsigned char* to);

}  // namespace orlop::cuda
