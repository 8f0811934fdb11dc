// Pages on the move beside the steps: see Pages.
#include <algorithm>
#include <cstdint>

#include "backend/cuda/common.cuh"
#include "backend/cuda/transfers.cuh"

namespace orlop::cuda {

// A copy of two dimensions takes no stride above cudaDevAttrMaxPitch, which is no more than an int: a layer's pages are,
// in large pools.
cudaError_t copy_strided(void* to, size_t to_stride, const void* from, size_t from_stride, const Rows& rows, cudaMemcpyKind kind, cudaStream_t stream) {
  constexpr size_t most = INT32_MAX;
  if (rows.count == 1) return cudaMemcpyAsync(to, from, rows.bytes, kind, stream);
  if (to_stride <= most && from_stride <= most) return cudaMemcpy2DAsync(to, to_stride, from, from_stride, rows.bytes, rows.count, kind, stream);
  for (size_t i = 0; i < rows.count; ++i)
    if (const cudaError_t error = cudaMemcpyAsync(static_cast<char*>(to) + i * to_stride, static_cast<const char*>(from) + i * from_stride, rows.bytes, kind, stream);
        error != cudaSuccess)
      return error;
  return cudaSuccess;
}

// Slots for blocks of so many bytes. What cannot be had is done without from then on: the caller has another way, and
// what two ways bring to one place on the host would come in any order.
bool Pages::prepare(Way* way, size_t bytes) {
  if (way->missing) return false;
  if (bytes <= way->slot_bytes) return true;
  close(way);
  way->missing = true;
  const size_t slot = static_cast<size_t>(up(static_cast<int64_t>(bytes), 256));
  const int slots = static_cast<int>(std::min<size_t>(most_slots, most_aside / slot));
  if (slots < 2) return false;
  PluginStatus status;
  bool good = cudaStreamCreateWithFlags(&way->stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc(reinterpret_cast<void**>(&way->memory), slot * static_cast<size_t>(slots)) == cudaSuccess;
  for (int i = 0; good && i < slots; ++i) good = make_event(&way->filled[i], &status) && make_event(&way->emptied[i], &status);
  if (!good) {
    cudaGetLastError();
    close(way);
    way->missing = true;
    return false;
  }
  way->missing = false;
  way->slot_bytes = slot;
  way->slots = slots;
  return true;
}

// Of what was never made nothing is given back. Events may be given back before they come to pass; the memory is not:
// cudaFree waits for what uses it.
void Pages::close(Way* way) {
  if (way->stream) {
    cudaStreamSynchronize(way->stream);
    cudaStreamDestroy(way->stream);
  }
  cudaFree(way->memory);
  for (int i = 0; i < most_slots; ++i)
    for (const cudaEvent_t e : {way->filled[i], way->emptied[i]})
      if (e) cudaEventDestroy(e);
  *way = {};
}

void Pages::close() {
  close(&out_);
  close(&in_);
  ring_.close();
  landings_.close();
}

bool Pages::out(cudaStream_t main, void* to_host, const void* from, const Rows& rows, uint64_t* ticket, PluginStatus* status) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = rows.count * rows.bytes;
  Way& w = out_;
  if (!bytes || !prepare(&w, bytes)) return false;
  const int slot = w.next;
  w.next = (slot + 1) % w.slots;
  unsigned char* aside = w.memory + static_cast<size_t>(slot) * w.slot_bytes;
  // An event that was never recorded is waited for by nobody.
  if (!good(cudaStreamWaitEvent(main, w.emptied[slot]), "a page to the host", status) ||
      !good(copy_strided(aside, rows.bytes, from, rows.stride, rows, cudaMemcpyDeviceToDevice, main), "a page to the host", status) ||
      !good(cudaEventRecord(w.filled[slot], main), "a page to the host", status) ||
      !good(cudaStreamWaitEvent(w.stream, w.filled[slot]), "a page to the host", status))
    return false;
  *ticket = landings_.download_later(w.stream, to_host, aside, {1, bytes, bytes}, status);
  return status->code == 0 && good(cudaEventRecord(w.emptied[slot], w.stream), "a page to the host", status);
}

bool Pages::in(cudaStream_t main, void* to, const void* from_host, const Rows& rows, PluginStatus* status) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = rows.count * rows.bytes;
  Way& w = in_;
  if (!bytes || !prepare(&w, bytes)) return false;
  if (!ring_open_) {
    PluginStatus mine;
    ring_open_ = ring_.open(&mine);
    if (!ring_open_) return ring_.close(), false;
  }
  const int slot = w.next;
  w.next = (slot + 1) % w.slots;
  unsigned char* aside = w.memory + static_cast<size_t>(slot) * w.slot_bytes;
  if (!good(cudaStreamWaitEvent(w.stream, w.emptied[slot]), "a page from the host", status)) return false;
  ring_.upload(w.stream, aside, from_host, bytes, status);
  return status->code == 0 && good(cudaEventRecord(w.filled[slot], w.stream), "a page from the host", status) &&
         good(cudaStreamWaitEvent(main, w.filled[slot]), "a page from the host", status) &&
         good(copy_strided(to, rows.stride, aside, rows.bytes, rows, cudaMemcpyDeviceToDevice, main), "a page from the host", status) &&
         good(cudaEventRecord(w.emptied[slot], main), "a page from the host", status);
}

}  // namespace orlop::cuda
