// What the ARM files of the linear layers offer. Included by ISA files: no STL.
#pragma once
#include "backend/cpu/matmul.h"

namespace orlop::cpu {

struct IntegerIsa {
  ComputeIsa int8, a8;
};
namespace neon {
extern const MatmulIsa matmul_isa;
}
namespace neondot {
extern const IntegerIsa matmul_integers;
}
namespace i8mm {
extern const IntegerIsa matmul_integers;
extern const ComputeIsa matmul_bf16;
}
namespace sve {
extern const MatmulIsa matmul_isa;  // tiles alone: what comes before and after them is NEON's
}

}  // namespace orlop::cpu
