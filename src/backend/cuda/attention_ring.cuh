// Blocks of coded keys and values (kv_layout.cuh) on their way to a warp. Each warp has a ring of stages in shared
// memory, which it alone fills and empties. A block is one piece of a page: from compute capability 9.0 on, one thread
// asks for all of it at once; before, lanes ask for 16 bytes at a time. A stage's barrier says when it is there.
#pragma once
#include "backend/cuda/attention_mma.cuh"
#include "backend/cuda/instructions.cuh"

namespace orlop::cuda::decode {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool copies_blocks = false;
__device__ inline bool barrier_done(uint32_t barrier, int parity) {
  int done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}
#else
constexpr bool copies_blocks = true;
#endif

// bytes: of a block; pieces: blocks of a stage.
template <int bytes, int pieces>
class BlockRing {
 public:
  static constexpr int stage_bytes = bytes * pieces;

  // memory: stages that lie together; barriers: 8 bytes a stage. All lanes.
  __device__ BlockRing(unsigned char* memory, unsigned char* barriers, int32_t stages) : memory_(memory), barriers_(shared_address(barriers)), stages_(stages) {
    if (threadIdx.x % 32 == 0) {
      for (int32_t i = 0; i < stages; ++i) barrier_init(barriers_ + 8 * i, copies_blocks ? 1 : 32);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      barriers_there();
#endif
    }
    __syncwarp();
  }

  // Asks for the next stage's blocks; null: there is none, and nobody looks where it would be. Once all lanes are done
  // with what the stage held.
  __device__ void ask(const unsigned char* const (&from)[pieces]) {
    const uint32_t to = shared_address(memory_ + asked_ * stage_bytes), barrier = barriers_ + 8 * asked_;
    const int lane = threadIdx.x % 32;
    asked_ = asked_ + 1 == stages_ ? 0 : asked_ + 1;
    if constexpr (copies_blocks) {
      if (lane != 0) return;
      int all = 0;
#pragma unroll
      for (int p = 0; p < pieces; ++p) all += from[p] ? bytes : 0;
      barrier_expect(barrier, all);
#pragma unroll
      for (int p = 0; p < pieces; ++p)
        if (from[p]) copy_bytes(to + p * bytes, from[p], bytes, barrier);
    } else {
#pragma unroll
      for (int p = 0; p < pieces; ++p)
        if (from[p])
          for (int at = 16 * lane; at < bytes; at += 16 * 32) copy16(to + p * bytes + at, from[p] + at);
      arrive_with_copies(barrier);
    }
  }

  // The stage that was asked for first and has not been taken, once it is there.
  __device__ const unsigned char* take() {
    const uint32_t barrier = barriers_ + 8 * taken_;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    while (!barrier_done(barrier, parity_)) {
    }
#else
    barrier_wait(barrier, parity_);
#endif
    const unsigned char* stage = memory_ + taken_ * stage_bytes;
    if (++taken_ == stages_) taken_ = 0, parity_ ^= 1;
    return stage;
  }

 private:
  unsigned char* const memory_;
  const uint32_t barriers_;
  const int32_t stages_;
  int32_t asked_ = 0, taken_ = 0, parity_ = 0;
};

// All threads of a block, before rings take blocks where something else was stored.
__device__ inline void rings_again() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  fence_async();
#endif
  __syncthreads();
}

}  // namespace orlop::cuda::decode
