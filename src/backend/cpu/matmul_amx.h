// What the AMX file adds to the kernels of AVX-512.
#pragma once
#include "backend/cpu/matmul.h"

namespace orlop::cpu {

struct AmxKernels {
  PrepareFn prepare_a8[2], prepare_bf16[2];  // without sums of rows, with them
  ManyFn int8[kernel_type_count], a8[kernel_type_count], bf16[kernel_type_count];  // or null
};
namespace amx {
extern const AmxKernels kernels;
}
namespace amx_emulated {  // the same, without the instructions; tests have it
extern const AmxKernels kernels;
}

// Integer kernels give the bits of AVX-512's, so those keep the few rows. bf16 sums in an order of its
// own, at any number of rows.
struct AmxIsa {
  explicit AmxIsa(const AmxKernels& kernels) : isa(avx512::matmul_isa), bf16(avx512bf16::matmul_bf16) {
    // Rows for which a tile of 16 is faster than blocks of 8, 4, 2 and 1.
    constexpr int fewest_int8 = 16, fewest_a8 = 8;
    for (int t = 0; t < kernel_type_count; ++t) {
      isa.int8.fns[t].many = kernels.int8[t];
      isa.a8.fns[t].many = kernels.a8[t];
      isa.int8.fns[t].fewest = fewest_int8;
      isa.a8.fns[t].fewest = fewest_a8;
      bf16.fns[t].many = kernels.bf16[t];
    }
    for (int mins = 0; mins < 2; ++mins) {
      isa.a8.prepare_many[mins] = kernels.prepare_a8[mins];
      bf16.prepare_many[mins] = kernels.prepare_bf16[mins];
    }
    isa.int8.many_chunk = int8_chunk;
    isa.a8.many_chunk = 40;
    bf16.many_chunk = 68;
  }
  MatmulIsa isa;
  ComputeIsa bf16;
};

}  // namespace orlop::cpu
