// The plugin's table, and memory: allocation, copies, the stream.
#include <atomic>
#include <memory>
#include <new>

#include "backend/cuda/beside.cuh"
#include "backend/cuda/chain.cuh"
#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"
#include "backend/cuda/few.cuh"
#include "backend/cuda/gemm.cuh"

namespace orlop::cuda {
namespace {

std::atomic<bool> waiting[64];  // by GPU: one of its contexts may wait

void open(int32_t index, bool fast, Context** out, GpuInfo* info, PluginStatus* status) {
  std::unique_ptr<Beside> beside;
  if (fast) try {
      beside = std::make_unique<Beside>();
    } catch (const std::bad_alloc&) {  // nothing is tried beside
    }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    status->code = -5;  // unsupported
    std::snprintf(status->text, sizeof status->text, "no usable GPU: %s", error != cudaSuccess ? cudaGetErrorString(error) : "the driver sees none");
    return;
  }
  if (index >= count) {
    status->code = -2;  // not found
    std::snprintf(status->text, sizeof status->text, "there is no GPU %d; the driver sees %d", index, count);
    return;
  }
  cudaDeviceProp p;
  if (!good(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties", status)) return;
  if (p.major < 8) {
    status->code = -5;
    std::snprintf(status->text, sizeof status->text, "%s has compute capability %d.%d; 8.0 or higher is needed", p.name, p.major, p.minor);
    return;
  }
  Context* c = new (std::nothrow) Context;
  if (!c) {
    status->code = -6;
    return;
  }
  c->index = index;
  c->multiprocessors = p.multiProcessorCount;
  c->capability = 10 * p.major + p.minor;
  c->block_shared = p.sharedMemPerBlockOptin;
  c->fast = fast;
  c->launches.set(p.major >= 9, p.sharedMemPerBlockOptin);
  {
    const Here here(c, status);
    if (!here || !good(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "cudaStreamCreate", status) ||
        !c->transfers.open(status)) {
      c->transfers.close();
      if (c->stream) cudaStreamDestroy(c->stream);
      delete c;
      return;
    }
    c->may_wait = fast && index < 64 && !waiting[index].exchange(true);
    if (c->may_wait && c->capability == 90) c->chain = make_chain_state(c->stream);
    if (fast && c->capability == 90 && c->block_shared >= size_t{227} << 10) c->few = make_few_state(*c);
    PluginStatus asked_again;  // whoever cannot do without it
    have_counters(c, &asked_again);
  }
  std::snprintf(info->name, sizeof info->name, "%s", p.name);
  info->major = p.major;
  info->minor = p.minor;
  info->multiprocessors = p.multiProcessorCount;
  info->total_bytes = p.totalGlobalMem;
  c->beside = beside.release();
  if (c->beside) c->beside->begin(c);
  *out = c;
}

void close(Context* c) {
  if (!c) return;
  delete c->beside;
  {
    PluginStatus status;
    const Here here(c, &status);
    if (here) {
      c->launches.clear();
      close_products(c);
      cudaStreamSynchronize(c->stream);
      c->transfers.close();
      cudaFree(c->attention_done);
      cudaFree(c->chain);
      cudaFree(c->few);
      cudaStreamDestroy(c->stream);
    }
  }
  if (c->may_wait) waiting[c->index] = false;
  delete c;
}

// What everything that touches memory begins with: the kernels that were called for go first.
bool settled(Context* c, PluginStatus* status) {
  c->transfers.join(c->stream, status);
  if (status->code) return false;
  const std::lock_guard lock(c->mutex);
  c->launches.run(c->stream, status);
  return status->code == 0;
}

void allocate(Context* c, size_t bytes, void** out, PluginStatus* status) {
  const Here here(c, status);
  if (!here || !settled(c, status)) return;
  const cudaError_t error = cudaMalloc(out, bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // not sticky: the next call starts clean
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    status->code = error == cudaErrorMemoryAllocation ? -6 : -12;
    std::snprintf(status->text, sizeof status->text, "cannot allocate %zu bytes (%zu of %zu are free): %s", bytes, free, total, cudaGetErrorString(error));
    return;
  }
  if (!good(cudaMemsetAsync(*out, 0, bytes, c->stream), "clearing memory", status)) {
    cudaFree(*out);
    *out = nullptr;
  }
}

void release(Context* c, void* memory) {
  PluginStatus status;
  const Here here(c, &status);
  if (!here) return;
  if (c->beside) c->beside->finish();  // it may be at work on it: a load that failed
  settled(c, &status);
  cudaFree(memory);  // waits for what runs
}

void upload(Context* c, void* to, const void* from, size_t bytes, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) c->transfers.upload(c->stream, to, from, bytes, status);
}

void download(Context* c, void* to, const void* from, size_t bytes, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status) && good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream), "download", status))
    good(cudaStreamSynchronize(c->stream), "download", status);
}

void download_later(Context* c, void* to, const void* from, size_t bytes, uint64_t* ticket, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) *ticket = c->transfers.download_later(c->stream, to, from, {1, bytes, bytes}, status);
}

void download_rows_later(Context* c, void* to, const void* from, size_t rows, size_t row_bytes, size_t stride, uint64_t* ticket, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) *ticket = c->transfers.page_out(c->stream, to, from, {rows, row_bytes, stride}, status);
}

void upload_rows(Context* c, void* to, const void* from, size_t rows, size_t row_bytes, size_t stride, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) c->transfers.page_in(c->stream, to, from, {rows, row_bytes, stride}, status);
}

void wait(Context* c, uint64_t ticket, PluginStatus* status) {
  const Here here(c, status);
  if (here) c->transfers.wait(ticket, status);
}

void enter_lane(Context* c, Lane** lane, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) *lane = c->transfers.enter(c->stream, status);
}

void load(Context* c, Lane* lane, void* to, const void* from, size_t bytes, PluginStatus* status) {
  const Here here(c, status);
  if (here) load_on(lane, to, from, bytes, status);
}

void leave_lane(Context* c, Lane* lane) { c->transfers.leave(lane); }

void describe(Context* c, char* to, size_t size) try {
  to[0] = 0;
  if (c->fast) describe_products(c, to, size);
} catch (const std::bad_alloc&) {
}

void coming(Context* c, const LinearDesc& desc, const void* packed) {
  if (c->beside) c->beside->product(desc, packed);
}

void end_loading(Context* c) {
  PluginStatus status;
  const Here here(c, &status);
  if (c->beside) c->beside->finish();
  if (here) c->transfers.end_lanes();
}

void copy(Context* c, void* to, const void* from, size_t bytes, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream), "copy", status);
}

void fill(Context* c, void* to, int byte, size_t bytes, PluginStatus* status) {
  const Here here(c, status);
  if (here && settled(c, status)) good(cudaMemsetAsync(to, byte, bytes, c->stream), "fill", status);
}

void memory_free(Context* c, uint64_t* bytes, PluginStatus* status) {
  const Here here(c, status);
  size_t free = 0, total = 0;
  if (here && good(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", status)) *bytes = free;
}

const Plugin table = {
    .build_id = ORLOP_CUDA_BUILD_ID,
    .open = open,
    .close = close,
    .describe_products = describe,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .download_later = download_later,
    .download_rows_later = download_rows_later,
    .upload_rows = upload_rows,
    .wait = wait,
    .enter_lane = enter_lane,
    .load = load,
    .leave_lane = leave_lane,
    .coming = coming,
    .end_loading = end_loading,
    .copy = copy,
    .fill = fill,
    .memory_free = memory_free,
    .matmul = matmul,
    .embed = embed,
    .rope_table = rope_table,
    .kv_store = kv_store,
    .kv_tail = kv_tail,
    .attention = attention,
    .norm = norm,
    .gather = gather,
    .sample = sample,
};

}  // namespace
}  // namespace orlop::cuda

const orlop::cuda::Plugin* orlop_cuda_plugin() { return &orlop::cuda::table; }
