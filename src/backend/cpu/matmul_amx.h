// What the AMX file adds to the kernels of AVX-512.
#pragma once
#include "backend/cpu/matmul.h"

namespace orlop::cpu {

struct AmxKernels {
  PrepareFn prepare_a8, prepare_bf16;
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
    constexpr int fewest = 5;  // rows for which a tile of 16 is faster than blocks of 4, 2 and 1
    for (int t = 0; t < kernel_type_count; ++t) {
      isa.int8.fns[t].many = kernels.int8[t];
      isa.a8.fns[t].many = kernels.a8[t];
      isa.int8.fns[t].fewest = isa.a8.fns[t].fewest = fewest;
      bf16.fns[t].many = kernels.bf16[t];
    }
    isa.a8.prepare_many = kernels.prepare_a8;
    bf16.prepare_many = kernels.prepare_bf16;
    isa.int8.many_chunk = int8_chunk;
    isa.a8.many_chunk = 40;
    bf16.many_chunk = 68;
  }
  MatmulIsa isa;
  ComputeIsa bf16;
};

}  // namespace orlop::cpu
