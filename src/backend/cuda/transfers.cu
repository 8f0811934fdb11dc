#include "backend/cuda/transfers.cuh"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "backend/cuda/common.cuh"

namespace orlop::cuda {
bool make_event(cudaEvent_t* event, PluginStatus* status) {
  return good(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate", status);
}

bool make_pinned(unsigned char** memory, size_t bytes, PluginStatus* status) {
  void* p = nullptr;
  const cudaError_t error = cudaHostAlloc(&p, bytes, cudaHostAllocPortable);
  *memory = static_cast<unsigned char*>(p);
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  if (status->code) return false;
  status->code = error == cudaErrorMemoryAllocation ? -6 : -12;
  std::snprintf(status->text, sizeof status->text, "cannot pin %zu bytes of host memory: %s", bytes, cudaGetErrorString(error));
  return false;
}

namespace {

constexpr size_t carried_bytes = size_t{64} << 10;  // at most
constexpr unsigned carriers = 256;

__global__ void __launch_bounds__(carriers) carry(unsigned char* to, const unsigned char* from, unsigned bytes) {
  const unsigned at = 16 * (blockIdx.x * carriers + threadIdx.x);
  if (at + 16 <= bytes)
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  else
    for (unsigned i = at; i < bytes; ++i) to[i] = from[i];
}

// Between the GPU's memory and pinned memory, in the order of the stream. Few bytes by loads and stores: kernels before
// and after wait for no copy engine, which takes longer than such a copy.
cudaError_t copy_few(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > carried_bytes || (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16) return cudaMemcpyAsync(to, from, bytes, kind, stream);
  auto n = static_cast<unsigned>(bytes);
  void* given[] = {&to, &from, &n};
  return cudaLaunchKernel(reinterpret_cast<const void*>(carry), dim3((n + 16 * carriers - 1) / (16 * carriers)), dim3(carriers), given, 0, stream);
}

// Pinning costs by the page: 64 MiB take 2.4 ms in pages of 2 MiB, and 37 ms in pages of 4 KiB.
bool make_lane(Lane* lane, PluginStatus* status) {
  if (!good(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking), "cudaStreamCreate", status)) return false;
  for (cudaEvent_t* e : {&lane->sent[0], &lane->sent[1], &lane->done})
    if (!make_event(e, status)) return false;
  constexpr size_t bytes = 2 * Lane::piece, huge = size_t{2} << 20;
  void* mapped = mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return make_pinned(&lane->memory, bytes, status);
  auto* begin = static_cast<unsigned char*>(mapped);
  auto* at = reinterpret_cast<unsigned char*>(static_cast<uintptr_t>(up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin)), huge)));
  if (at > begin) munmap(begin, static_cast<size_t>(at - begin));
  if (at < begin + huge) munmap(at + bytes, static_cast<size_t>(begin + huge - at));
  madvise(at, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < bytes; i += 4096) at[i] = 1;
  if (cudaHostRegister(at, bytes, cudaHostRegisterPortable) != cudaSuccess) {
    cudaGetLastError();
    munmap(at, bytes);
    return make_pinned(&lane->memory, bytes, status);
  }
  lane->memory = at;
  lane->registered = true;
  return true;
}

// Of what was never made nothing is given back.
void end_lane(Lane* lane) {
  if (lane->stream) {
    cudaStreamSynchronize(lane->stream);
    cudaStreamDestroy(lane->stream);
  }
  if (lane->registered) {
    cudaHostUnregister(lane->memory);
    munmap(lane->memory, 2 * Lane::piece);
  } else if (lane->memory) {
    cudaFreeHost(lane->memory);
  }
  for (const cudaEvent_t e : {lane->sent[0], lane->sent[1], lane->done})
    if (e) cudaEventDestroy(e);
  delete lane;
}

}  // namespace

// Of an event or memory that was never made nothing is given back.
bool Ring::open(PluginStatus* status) {
  if (!make_pinned(&memory_, slots * slot_bytes, status)) return false;
  for (cudaEvent_t& e : sent_)
    if (!make_event(&e, status)) return false;
  return true;
}

void Ring::close() {
  if (memory_) cudaFreeHost(memory_);
  memory_ = nullptr;
  for (cudaEvent_t& e : sent_) {
    if (e) cudaEventDestroy(e);
    e = nullptr;
  }
}

// A slot's event says that everything in it was sent. The GPU has to be a whole ring behind for this to wait.
bool Ring::next_slot(cudaStream_t stream, PluginStatus* status) {
  if (!good(cudaEventRecord(sent_[slot_], stream), "upload", status)) return false;
  slot_ = (slot_ + 1) % slots;
  used_ = 0;
  return good(cudaEventSynchronize(sent_[slot_]), "upload", status);
}

void Ring::upload(cudaStream_t stream, void* to, const void* from, size_t bytes, PluginStatus* status) {
  const std::lock_guard lock(mutex_);
  auto* at = static_cast<unsigned char*>(to);
  auto* source = static_cast<const unsigned char*>(from);
  while (bytes) {
    // What fits into one slot is one copy.
    if (used_ == slot_bytes || (used_ && bytes > slot_bytes - used_ && bytes <= slot_bytes))
      if (!next_slot(stream, status)) return;
    const size_t n = std::min(bytes, slot_bytes - used_);
    unsigned char* pinned = memory_ + static_cast<size_t>(slot_) * slot_bytes + used_;
    std::memcpy(pinned, source, n);
    if (!good(between_kernels_ ? copy_few(at, pinned, n, cudaMemcpyHostToDevice, stream) : cudaMemcpyAsync(at, pinned, n, cudaMemcpyHostToDevice, stream), "upload", status)) return;
    used_ = std::min(slot_bytes, static_cast<size_t>(up(static_cast<int64_t>(used_ + n), 64)));
    at += n;
    source += n;
    bytes -= n;
  }
}

void Landings::close() {
  for (const Landing& l : landings_) {
    if (l.memory) cudaFreeHost(l.memory);
    if (l.landed) cudaEventDestroy(l.landed);
  }
  landings_.clear();
}

Landings::Landing* Landings::landing_for(size_t bytes, PluginStatus* status) try {
  Landing* best = nullptr;  // the smallest that is large enough, else the largest
  for (Landing& l : landings_) {
    if (l.ticket) continue;
    const bool fits = l.room >= bytes;
    if (!best || (fits ? best->room < bytes || l.room < best->room : best->room < bytes && l.room > best->room)) best = &l;
  }
  if (!best) {
    landings_.emplace_back();
    best = &landings_.back();
  }
  if (!best->landed && !make_event(&best->landed, status)) return nullptr;
  if (best->room < bytes) {  // a mark needs none
    if (best->memory) cudaFreeHost(best->memory);
    best->memory = nullptr;
    best->room = 0;
    size_t room = size_t{64} << 10;
    while (room < bytes) room *= 2;
    if (!make_pinned(&best->memory, room, status)) return nullptr;
    best->room = room;
  }
  return best;
} catch (const std::bad_alloc&) {
  status->code = -6;
  std::snprintf(status->text, sizeof status->text, "no host memory for a download of %zu bytes", bytes);
  return nullptr;
}

uint64_t Landings::download_later(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status) {
  const size_t bytes = rows.count * rows.bytes;
  for (;;) {
    size_t open = 0;
    uint64_t first = 0;
    {
      const std::lock_guard lock(mutex_);
      for (const Landing& l : landings_) {
        if (!l.ticket || !l.bytes) continue;
        open += l.bytes;
        if (!first || l.ticket < first) first = l.ticket;
      }
    }
    if (!first || open + bytes <= most_landed) break;
    wait(first, status);
    if (status->code) return 0;
  }
  const std::lock_guard lock(mutex_);
  Landing* l = landing_for(bytes, status);
  if (!l) return 0;
  const cudaError_t error = !bytes                                ? cudaSuccess
                            : rows.count == 1 && between_kernels_ ? copy_few(l->memory, from, bytes, cudaMemcpyDeviceToHost, stream)
                                                                  : copy_strided(l->memory, rows.bytes, from, rows.stride, rows, cudaMemcpyDeviceToHost, stream);
  const bool copied = good(error, "download", status);
  if (!copied || !good(cudaEventRecord(l->landed, stream), "download", status)) return 0;
  l->to = to_host;
  l->bytes = bytes;
  return l->ticket = ++tickets_;
}

// All are of one stream: what is done up to the ticket is done for those before it.
void Landings::wait(uint64_t ticket, PluginStatus* status) {
  cudaEvent_t last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    uint64_t latest = 0;
    for (const Landing& l : landings_)
      if (l.ticket > latest && l.ticket <= ticket) {
        latest = l.ticket;
        last = l.landed;
      }
  }
  if (!last) return;
  // Without the lock: others may ask for more meanwhile. Nobody takes a landing before its ticket is 0.
  const bool done = good(cudaEventSynchronize(last), "waiting for the GPU", status);
  const std::lock_guard lock(mutex_);
  if (!done) return;  // nor will those who ask again be told that it is there
  for (;;) {  // in order: two may be for one place
    Landing* next = nullptr;
    for (Landing& l : landings_)
      if (l.ticket && l.ticket <= ticket && (!next || l.ticket < next->ticket)) next = &l;
    if (!next) return;
    if (next->bytes) std::memcpy(next->to, next->memory, next->bytes);
    next->ticket = 0;
  }
}

bool Transfers::open(PluginStatus* status) {
  // As launches.cu does it for the kernels between which it runs.
  return good(cudaFuncSetAttribute(carry, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared), "a kernel's shared memory", status) &&
         ring_.open(status) && make_event(&before_, status);
}

void Transfers::close() {
  pages_.close();
  ring_.close();
  landings_.close();
  if (before_) cudaEventDestroy(before_);
  end_lanes();
}

// Tickets of pages have the highest bit.
static constexpr uint64_t of_pages = uint64_t{1} << 63;

uint64_t Transfers::download_later(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status) try {
  const uint64_t ticket = landings_.download_later(stream, to_host, from, rows, status);
  if (rows.count * rows.bytes || status->code) return ticket;
  const std::lock_guard lock(ticket_mutex_);
  if (page_ticket_) marks_[ticket] = page_ticket_;
  return ticket;
} catch (const std::bad_alloc&) {
  status->code = -6;
  std::snprintf(status->text, sizeof status->text, "no host memory for a mark");
  return 0;
}

uint64_t Transfers::page_out(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status) {
  uint64_t ticket = 0;
  if (pages_.out(stream, to_host, from, rows, &ticket, status)) {
    const std::lock_guard lock(ticket_mutex_);
    page_ticket_ = std::max(page_ticket_, ticket);
    return ticket | of_pages;
  }
  if (status->code) return 0;
  pages_.wait(~of_pages, status);  // those on their way may be for the same place
  return status->code ? 0 : landings_.download_later(stream, to_host, from, rows, status);
}

void Transfers::page_in(cudaStream_t stream, void* to, const void* from_host, const Rows& rows, PluginStatus* status) {
  if (pages_.in(stream, to, from_host, rows, status)) return;
  for (size_t i = 0; i < rows.count && status->code == 0; ++i)
    ring_.upload(stream, static_cast<unsigned char*>(to) + i * rows.stride, static_cast<const unsigned char*>(from_host) + i * rows.bytes, rows.bytes, status);
}

void Transfers::wait(uint64_t ticket, PluginStatus* status) {
  if (ticket & of_pages) return pages_.wait(ticket & ~of_pages, status);
  landings_.wait(ticket, status);
  if (status->code) return;
  uint64_t of_mark = 0;
  {
    const std::lock_guard lock(ticket_mutex_);
    const auto mark = marks_.find(ticket);
    if (mark == marks_.end()) return;
    of_mark = mark->second;
  }
  pages_.wait(of_mark, status);
  if (status->code) return;
  const std::lock_guard lock(ticket_mutex_);
  marks_.erase(marks_.begin(), marks_.upper_bound(ticket));
}

Lane* Transfers::enter(cudaStream_t stream, PluginStatus* status) try {
  Lane* lane = nullptr;
  {
    const std::lock_guard lock(lane_mutex_);
    for (Lane* l : lanes_)
      if (!l->busy) lane = l;
    if (lane) lane->busy = true;
  }
  if (!lane) {  // without the lock: others copy while this thread pins its memory
    lane = new Lane;
    if (!make_lane(lane, status)) {
      end_lane(lane);
      return nullptr;
    }
    const std::lock_guard lock(lane_mutex_);
    lane->busy = true;
    try {
      lanes_.push_back(lane);
    } catch (const std::bad_alloc&) {
      end_lane(lane);
      throw;
    }
  }
  const std::lock_guard lock(lane_mutex_);
  if (good(cudaEventRecord(before_, stream), "load", status) && good(cudaStreamWaitEvent(lane->stream, before_), "load", status)) return lane;
  lane->busy = false;
  return nullptr;
} catch (const std::bad_alloc&) {
  status->code = -6;
  std::snprintf(status->text, sizeof status->text, "no host memory to load weights by");
  return nullptr;
}

void load_on(Lane* lane, void* to, const void* from, size_t bytes, PluginStatus* status) {
  auto* at = static_cast<unsigned char*>(to);
  auto* source = static_cast<const unsigned char*>(from);
  while (bytes) {
    if (lane->used == Lane::piece) {
      if (!good(cudaEventRecord(lane->sent[lane->turn], lane->stream), "load", status)) return;
      lane->turn ^= 1;
      lane->used = 0;
      if (!good(cudaEventSynchronize(lane->sent[lane->turn]), "load", status)) return;
    }
    const size_t n = std::min(bytes, Lane::piece - lane->used);
    unsigned char* pinned = lane->memory + static_cast<size_t>(lane->turn) * Lane::piece + lane->used;
    std::memcpy(pinned, source, n);
    if (!good(cudaMemcpyAsync(at, pinned, n, cudaMemcpyHostToDevice, lane->stream), "load", status)) return;
    lane->used = std::min(Lane::piece, static_cast<size_t>(up(static_cast<int64_t>(lane->used + n), 64)));
    at += n;
    source += n;
    bytes -= n;
  }
}

void Transfers::leave(Lane* lane) {
  const std::lock_guard lock(lane_mutex_);
  lane->busy = false;
  lane->behind = true;
  behind_ = true;
}

void Transfers::end_lanes() {
  const std::lock_guard lock(lane_mutex_);
  for (Lane* lane : lanes_) end_lane(lane);  // waits for its copies: nothing is left to join
  lanes_.clear();
  behind_ = false;
}

void Transfers::join(cudaStream_t stream, PluginStatus* status) {
  if (!behind_) return;
  const std::lock_guard lock(lane_mutex_);
  behind_ = false;
  for (Lane* lane : lanes_) {  // a busy one too: it may have been left and entered again
    if (!lane->behind) continue;
    if (!good(cudaEventRecord(lane->done, lane->stream), "load", status) || !good(cudaStreamWaitEvent(stream, lane->done), "load", status)) return;
    lane->behind = false;
  }
}

}  // namespace orlop::cuda
