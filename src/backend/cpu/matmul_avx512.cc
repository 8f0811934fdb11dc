// Linear layers with AVX-512 (F, BW, VL, DQ, VNNI): a vector of 16 columns a tile.
// No STL here: nothing compiled with these flags may be emitted for others to link to.
// GCC 12 takes the undefined vectors inside its own AVX-512 intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "backend/cpu/matmul.h"

namespace orlop::cpu::avx512 {
namespace {

#include "backend/cpu/matmul_avx512.inl"
#include "backend/cpu/matmul_tables.inl"

}  // namespace

constexpr MatmulIsa matmul_isa = {compute_int8, compute_a8, compute_floats<false>,
                                  compute_floats<true>, epilogue};

}  // namespace orlop::cpu::avx512
