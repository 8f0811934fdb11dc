// Linear layers on the CPU: entry points for the kernel table. How weights are packed and what each
// compute setting does is told in matmul.h.
#pragma once
#include "ops/kernels.h"

namespace orlop::cpu {

size_t linear_bytes(const LinearDesc& desc);
int64_t linear_tiles(const LinearDesc& desc);
void linear_pack(const LinearDesc& desc, const LinearSource& source, int64_t begin, int64_t end,
                 void* packed);
size_t matmul_workspace(const LinearDesc& desc, int64_t m);

// exec.queue is a ThreadPool, or null for the calling thread alone. One packed form serves them all.
// int8 and fp32 give the same bits on every one of them; bf16 has its own on avx512bf16, amx and i8mm.
void matmul_ref(const Exec& exec, const MatmulArgs& args);
void matmul_avx2(const Exec& exec, const MatmulArgs& args);        // AVX2, FMA, F16C
void matmul_avx512(const Exec& exec, const MatmulArgs& args);      // AVX-512 F BW VL DQ VNNI
void matmul_avx512bf16(const Exec& exec, const MatmulArgs& args);  // the same and AVX512-BF16
void matmul_amx(const Exec& exec, const MatmulArgs& args);         // all that and AMX tiles, int8, bf16
void matmul_neon(const Exec& exec, const MatmulArgs& args);        // ARMv8.0
void matmul_neondot(const Exec& exec, const MatmulArgs& args);     // dotprod
void matmul_i8mm(const Exec& exec, const MatmulArgs& args);        // dotprod, i8mm, bf16
void matmul_sve(const Exec& exec, const MatmulArgs& args);         // SVE of any length

// Weights exactly as dequantize_row gives them; float types packed for bf16 or int8 are rounded to
// bf16. Then times scale.
void embed(const Exec& exec, const EmbedArgs& args);

}  // namespace orlop::cpu
