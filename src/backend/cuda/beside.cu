#include "backend/cuda/beside.cuh"

#include <algorithm>
#include <csignal>
#include <new>
#include <system_error>

#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"
#include "backend/cuda/few.cuh"
#include "backend/cuda/gemm.cuh"

namespace orlop::cuda {
namespace {

// Rows of the products that are tried: a short prompt's, or those of some sequences that decode.
constexpr int64_t tried_rows = 16;
// A vocabulary's matrix meets one row of a sequence.
constexpr int64_t most_columns_tried = 65536;

bool alike(const LinearDesc& a, const LinearDesc& b) {
  return a.k == b.k && a.part_count == b.part_count && a.glu == b.glu && a.compute == b.compute &&
         std::equal(a.part_n, a.part_n + a.part_count, b.part_n) && std::equal(a.type, a.type + a.part_count, b.type) &&
         std::equal(a.group, a.group + a.part_count, b.group);
}

void try_product(Context* c, const LinearDesc& d, const void* packed) {
  const bool gated = d.glu != Glu::none;
  const auto room = [](int64_t bytes) { return static_cast<size_t>(up(bytes, 256)); };
  const size_t x = room(tried_rows * d.k * 4), norm = room(d.k * 4), out = room(tried_rows * d.n() * 4);
  const size_t all = x + norm + out + matmul_workspace_bytes(d, tried_rows);
  unsigned char* memory = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&memory), all) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  cudaMemsetAsync(memory, 0, all, c->stream);
  MatmulArgs a{};
  a.desc = &d;
  a.packed = packed;
  a.x = reinterpret_cast<const float*>(memory);
  a.x_stride = d.k;
  a.out = reinterpret_cast<float*>(memory + x + norm);
  a.out_stride = d.n();
  a.m = tried_rows;
  a.workspace = memory + x + norm + out;
  a.norm_weight = gated ? reinterpret_cast<const float*>(memory + x) : nullptr;
  a.narrow_out = gated;
  PluginStatus status;  // the first step that counts says it again
  matmul(c, a, &status);
  if (status.code == 0) c->launches.run(c->stream, &status);
  c->launches.clear();
  cudaStreamSynchronize(c->stream);
  cudaFree(memory);
}

}  // namespace

Beside::Beside() {
  sigset_t all, before;  // the thread takes no signal of the host's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {  // no thread, or no memory for one: nothing is tried
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Beside::begin(Context* context) {
  const std::lock_guard lock(mutex_);
  context_ = context;
  more_.notify_one();
}

void Beside::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  const std::lock_guard one(joining_);
  if (thread_.joinable()) thread_.join();
}

void Beside::product(const LinearDesc& desc, const void* packed) try {
  if (desc.compute == Compute::fp32 || product_columns(desc) > most_columns_tried) return;
  const std::lock_guard lock(mutex_);
  if (ending_ || std::any_of(seen_.begin(), seen_.end(), [&](const LinearDesc& d) { return alike(d, desc); })) return;
  seen_.push_back(desc);
  waiting_.push_back({desc, packed});
  waiting_.back().desc.k_map = nullptr;  // not there yet
  more_.notify_one();
} catch (const std::bad_alloc&) {
}

// False: no more will come.
bool Beside::next(Matrix* matrix) {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return ending_ || (context_ && !waiting_.empty()); });
  if (!context_ || waiting_.empty()) return false;
  *matrix = waiting_.front();
  waiting_.pop_front();
  return true;
}

// On a context, and so a stream, of its own: it waits for none of the weights.
void Beside::run() try {
  open_library();
  Matrix matrix;
  if (!next(&matrix)) return;
  Context side;
  side.index = context_->index;
  side.multiprocessors = context_->multiprocessors;
  side.capability = context_->capability;
  side.block_shared = context_->block_shared;
  side.fast = true;
  side.may_wait = context_->may_wait;  // no step runs yet
  side.launches.set(side.capability >= 90, side.block_shared);
  if (cudaSetDevice(side.index) != cudaSuccess || cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  if (context_->few) side.few = make_few_state(side);
  if (products(&side)) do {
      try_product(&side, matrix.desc, matrix.packed);
    } while (next(&matrix));
  hand_over_products(&side, context_);
  close_products(&side);
  cudaFree(side.few);
  cudaStreamDestroy(side.stream);
} catch (const std::bad_alloc&) {
}

}  // namespace orlop::cuda
