// Which pieces make up the linear layers of each ARM level.
#include "backend/cpu/matmul_arm.h"

#include "backend/cpu/linear.h"

namespace orlop::cpu {
namespace {

MatmulIsa with_integers(const IntegerIsa& integers) {
  MatmulIsa isa = neon::matmul_isa;
  isa.int8 = integers.int8;
  isa.a8 = integers.a8;
  return isa;
}

MatmulIsa with_tiles(const MatmulIsa& tiles) {
  MatmulIsa isa = tiles;
  isa.int8.prepare = neon::matmul_isa.int8.prepare;
  isa.a8.prepare = neon::matmul_isa.a8.prepare;
  isa.fp32.prepare = neon::matmul_isa.fp32.prepare;
  isa.bf16.prepare = neon::matmul_isa.bf16.prepare;
  isa.epilogue = neon::matmul_isa.epilogue;
  return isa;
}

}  // namespace

void matmul_neon(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, neon::matmul_isa, neon::matmul_isa.bf16);
}
void matmul_neondot(const Exec& exec, const MatmulArgs& args) {
  static const MatmulIsa isa = with_integers(neondot::matmul_integers);
  matmul_run(exec, args, isa, isa.bf16);
}
void matmul_i8mm(const Exec& exec, const MatmulArgs& args) {
  static const MatmulIsa isa = with_integers(i8mm::matmul_integers);
  matmul_run(exec, args, isa, i8mm::matmul_bf16);
}
void matmul_sve(const Exec& exec, const MatmulArgs& args) {
  static const MatmulIsa isa = with_tiles(sve::matmul_isa);
  matmul_run(exec, args, isa, isa.bf16);
}

}  // namespace orlop::cpu
