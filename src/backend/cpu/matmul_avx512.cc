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

using enum FileType;

}  // namespace

constexpr MatmulIsa matmul_isa = {
    {prepare_int8, int8_chunk,
     {{}, {}, {}, int8_fns<q4_0>, int8_fns<q4_1>, int8_fns<q5_0>, int8_fns<q5_1>, int8_fns<q8_0>,
     int8_fns<q2_k>, int8_fns<q3_k>, int8_fns<q4_k>, int8_fns<q5_k>, int8_fns<q6_k>, int8_fns<iq4_nl>}},
    {prepare_floats<false>, fp32_chunk,
     {fp32_fns<f32>, fp32_fns<f16>, fp32_fns<bf16>, fp32_fns<q4_0>, fp32_fns<q4_1>, fp32_fns<q5_0>,
     fp32_fns<q5_1>, fp32_fns<q8_0>, fp32_fns<q2_k>, fp32_fns<q3_k>, fp32_fns<q4_k>, fp32_fns<q5_k>,
     fp32_fns<q6_k>, fp32_fns<iq4_nl>}},
    {prepare_floats<true>, fp32_chunk,
     {fp32_fns<f32>, fp32_fns<f16>, fp32_fns<bf16>, fp32_fns<q4_0>, fp32_fns<q4_1>, fp32_fns<q5_0>,
     fp32_fns<q5_1>, fp32_fns<q8_0>, fp32_fns<q2_k>, fp32_fns<q3_k>, fp32_fns<q4_k>, fp32_fns<q5_k>,
     fp32_fns<q6_k>, fp32_fns<iq4_nl>}},
    epilogue};

}  // namespace orlop::cpu::avx512
