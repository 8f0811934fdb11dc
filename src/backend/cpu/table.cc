// The CPU backend: a kernel table (the reference's, overwritten entry by entry by what this
// processor can do better), a device and a thread pool.
#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/threads.h"
#include "base/error.h"

namespace orlop::cpu {
namespace {

constexpr int max_threads = 1024;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const IsaChoice& isa, ThreadChoice choice)
      : isa_(isa),
        kernels_(make_kernels(isa)),
        device_(make_device()),
        pool_(choice.threads),
        why_(std::move(choice.why)) {}

  Exec exec() override { return {&kernels_, device_.get(), &pool_, pool_.size()}; }

  // Integer products are the fastest everywhere but in plain C++.
  Compute default_compute() const override {
    return isa_.level == Isa::ref ? Compute::bf16 : Compute::int8;
  }
  int threads() const override { return pool_.size(); }
  std::string threads_why() const override { return why_; }
  std::string describe() const override {
    return cat("cpu ", name(isa_.level), isa_.vnni ? "+vnni" : "", isa_.bf16 ? "+bf16" : "", isa_.amx ? "+amx" : "",
               isa_.dot ? "+dot" : "", isa_.i8mm ? "+i8mm" : "", isa_.sve ? "+sve" : "", ", ",
               pool_.size(), pool_.size() == 1 ? " thread (" : " threads (", why_, ")");
  }

 private:
  IsaChoice isa_;
  Kernels kernels_;
  std::unique_ptr<Device> device_;
  ThreadPool pool_;
  std::string why_;
};

}  // namespace

Kernels make_kernels(const IsaChoice& isa) {
  Kernels k{};
  k.backend = "cpu";
  k.isa = name(isa.level);
  k.linear_bytes = linear_bytes;
  k.linear_tiles = linear_tiles;
  k.linear_pack = linear_pack;
  k.matmul_workspace = matmul_workspace;
  k.matmul = matmul_ref;
  k.embed = embed;
  fill_ops_ref(k);
#if defined(__x86_64__)
  if (isa.level >= Isa::avx2) {
    k.matmul = matmul_avx2;
    fill_ops_avx2(k);
  }
#ifndef ORLOP_WITHOUT_AVX512
  if (isa.level >= Isa::avx512) {
    k.matmul = isa.amx ? matmul_amx : isa.bf16 ? matmul_avx512bf16 : matmul_avx512;
    fill_ops_avx512(k, isa.bf16);
  }
#endif
#elif defined(__aarch64__)
  if (isa.level == Isa::neon) {
    k.matmul = isa.sve ? matmul_sve : isa.i8mm ? matmul_i8mm : isa.dot ? matmul_neondot : matmul_neon;
    fill_ops_neon(k);
  }
#endif
  return k;
}

std::unique_ptr<Backend> make_backend(int threads) {
  if (threads < 0 || threads > max_threads)
    fail(Status::invalid_argument, "threads: ", threads, " is not between 0 (automatic) and ",
         max_threads);
  const IsaChoice isa = chosen_isa();
  ThreadChoice choice = default_threads();
  if (threads > 0) choice = {threads, cat("as asked; ", choice.why)};
  return std::make_unique<CpuBackend>(isa, std::move(choice));
}

}  // namespace orlop::cpu
