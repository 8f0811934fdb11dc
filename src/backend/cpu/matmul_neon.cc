// Linear layers with NEON as every ARMv8 processor has it.
// No STL here: nothing compiled for an ISA may be emitted for others to link to.
#include <arm_neon.h>

#include "backend/cpu/matmul_arm.h"

namespace orlop::cpu::neon {
namespace {

#include "backend/cpu/matmul_neon.inl"
#include "backend/cpu/matmul_tables.inl"

}  // namespace

constexpr MatmulIsa matmul_isa = {compute_int8, compute_a8, compute_floats<false>,
                                  compute_floats<true>, epilogue};

}  // namespace orlop::cpu::neon
