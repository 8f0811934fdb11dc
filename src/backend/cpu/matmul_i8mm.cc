// int8 products of linear layers with USDOT and USMMLA (ARMv8.2 dotprod and i8mm). Everything else comes from matmul_neon.cc.
// No STL here: nothing compiled for an ISA may be emitted for others to link to.
#include <arm_neon.h>

#include "backend/cpu/matmul_arm.h"

namespace orlop::cpu::i8mm {
namespace {

#include "backend/cpu/matmul_neon.inl"
#include "backend/cpu/matmul_tables.inl"

}  // namespace

constexpr IntegerIsa matmul_integers = {compute_int8, compute_a8};

}  // namespace orlop::cpu::i8mm
