#include "backend/guard/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu.h"
#include "base/checked.h"

namespace orlop::guard {
namespace {

// Every live device: packing of weights is told an address alone.
struct Registry {
  std::mutex mutex;
  std::vector<GuardDevice*> devices;
};
Registry& registry() {
  static Registry r;
  return r;
}

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

GuardDevice::GuardDevice() : cpu_(cpu::make_device()) {
  std::lock_guard lock(registry().mutex);
  registry().devices.push_back(this);
}

GuardDevice::~GuardDevice() {
  std::lock_guard lock(registry().mutex);
  std::erase(registry().devices, this);
}

GuardDevice& GuardDevice::of(const void* memory) {
  std::lock_guard lock(registry().mutex);
  for (GuardDevice* device : registry().devices) {
    std::lock_guard regions(device->mutex_);
    if (device->holds(memory)) return *device;
  }
  fail(Status::internal, "guard: packing into memory of no device");
}

// Pages that nobody may touch lie before and after; the memory ends where they begin (but for what
// its alignment to 64 bytes leaves).
void* GuardDevice::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t page = page_size();
  const size_t most = memory_available();
  if (bytes > most)
    fail(Status::out_of_memory, "guard: cannot allocate ", bytes, " bytes (", most,
         " seem to be available)");
  const size_t rounded = round_up(bytes, size_t{64});
  const size_t page_bytes = round_up(rounded, page);
  void* raw = mmap(nullptr, page_bytes + 2 * page, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    fail(Status::out_of_memory, "guard: cannot allocate ", bytes, " bytes");
  const Region region{static_cast<unsigned char*>(raw) + page, page_bytes, bytes};
  // Another kind of mapping than its neighbours: the kernel neither merges nor splits them each time.
  madvise(region.pages, page_bytes, MADV_DONTDUMP);
  unsigned char* memory = region.pages + page_bytes - rounded;
  try {
    std::lock_guard lock(mutex_);
    regions_.emplace(reinterpret_cast<uintptr_t>(memory), region);
  } catch (...) {
    munmap(raw, page_bytes + 2 * page);
    throw;
  }
  return memory;
}

void GuardDevice::release(void* memory, size_t) noexcept {
  if (!memory) return;
  std::lock_guard lock(mutex_);
  const auto at = regions_.find(reinterpret_cast<uintptr_t>(memory));
  if (at == regions_.end()) return;
  munmap(at->second.pages - page_size(), at->second.page_bytes + 2 * page_size());
  regions_.erase(at);
}

std::map<uintptr_t, GuardDevice::Region>::iterator GuardDevice::find(const void* at, size_t bytes,
                                                                     const char* what) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  auto region = regions_.upper_bound(address);
  const bool any = region != regions_.begin();
  if (any) --region;
  const size_t offset = any ? address - region->first : 0;
  const bool inside = any && offset < region->second.bytes && bytes <= region->second.bytes - offset;
  if (!inside)
    fail(Status::internal, "guard: ", what, ": ", bytes, " bytes are not in the device's memory");
  return region;
}

bool GuardDevice::holds(const void* at) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  auto region = regions_.upper_bound(address);
  return region != regions_.begin() && address - (--region)->first < region->second.bytes;
}

void GuardDevice::Use::open(uintptr_t memory, Region& region, size_t begin, size_t end) {
  opened_.reserve(opened_.size() + 1);
  const bool first = region.users == 0;
  if (first || begin < region.open_begin || end > region.open_end) {
    if (!first) {  // with what lies between
      begin = std::min(begin, region.open_begin);
      end = std::max(end, region.open_end);
    }
    if (mprotect(region.pages + begin, end - begin, PROT_READ | PROT_WRITE) != 0)
      fail(Status::out_of_memory, "guard: cannot open ", end - begin, " bytes");
    region.open_begin = begin;
    region.open_end = end;
  }
  ++region.users;
  opened_.push_back(memory);
}

void GuardDevice::Use::need(const void* at, size_t bytes, const char* what) {
  if (!bytes) return;
  std::lock_guard lock(device_.mutex_);
  const auto found = device_.find(at, bytes, what);
  if (std::find(opened_.begin(), opened_.end(), found->first) == opened_.end())
    open(found->first, found->second, 0, found->second.page_bytes);
}

void GuardDevice::Use::need_part(const void* at, size_t bytes, const char* what) {
  if (!bytes) return;
  std::lock_guard lock(device_.mutex_);
  const auto found = device_.find(at, bytes, what);
  const size_t page = page_size();
  const auto begin = static_cast<size_t>(static_cast<const unsigned char*>(at) -
                                         found->second.pages);
  open(found->first, found->second, begin / page * page, round_up(begin + bytes, page));
}

GuardDevice::Use::~Use() {
  std::lock_guard lock(device_.mutex_);
  for (const uintptr_t at : opened_) {
    Region& region = device_.regions_.at(at);
    if (--region.users == 0)
      mprotect(region.pages + region.open_begin, region.open_end - region.open_begin, PROT_NONE);
  }
}

void GuardDevice::refuse_device_memory(const void* at, const char* what) {
  std::lock_guard lock(mutex_);
  if (holds(at))
    fail(Status::internal, "guard: ", what, ": device memory where host memory is meant");
}

void GuardDevice::upload(void* to, const void* from_host, size_t bytes) {
  if (!bytes) return;
  Use use(*this);
  use.need_part(to, bytes, "upload");
  refuse_device_memory(from_host, "upload");
  ++counters_.uploads;
  counters_.uploaded_bytes += bytes;
  std::memcpy(to, from_host, bytes);
}

void GuardDevice::download(void* to_host, const void* from, size_t bytes) {
  if (!bytes) return;
  Use use(*this);
  use.need_part(from, bytes, "download");
  refuse_device_memory(to_host, "download");
  ++counters_.downloads;
  counters_.downloaded_bytes += bytes;
  std::memcpy(to_host, from, bytes);
}

void GuardDevice::copy(void* to, const void* from, size_t bytes) {
  if (!bytes) return;
  Use use(*this);
  use.need_part(to, bytes, "copy");
  use.need_part(from, bytes, "copy");
  ++counters_.copies;
  std::memcpy(to, from, bytes);
}

void GuardDevice::fill(void* to, int byte, size_t bytes) {
  if (!bytes) return;
  Use use(*this);
  use.need_part(to, bytes, "fill");
  ++counters_.fills;
  std::memset(to, byte, bytes);
}

uint64_t GuardDevice::download_later(void* to_host, const void* from, size_t bytes) {
  return later(to_host, from, 1, bytes, 0, bytes ? Download::Kind::step : Download::Kind::mark);
}

uint64_t GuardDevice::download_rows_later(void* to_host, const void* from, size_t rows,
                                          size_t row_bytes, size_t stride) {
  return later(to_host, from, rows, row_bytes, stride, Download::Kind::rows) | of_rows;
}

uint64_t GuardDevice::later(void* to_host, const void* from, size_t rows, size_t row_bytes,
                            size_t stride, Download::Kind kind) {
  std::vector<unsigned char> found(rows * row_bytes);
  for (size_t i = 0; i < rows; ++i)
    download(found.data() + i * row_bytes, static_cast<const unsigned char*>(from) + i * stride,
             row_bytes);
  if (!found.empty()) {
    refuse_device_memory(to_host, "download");
    std::memset(to_host, 0xA5, found.size());
  }
  std::lock_guard lock(mutex_);
  downloads_.push_back({++tickets_, to_host, std::move(found), kind});
  return tickets_;
}

void GuardDevice::wait(uint64_t ticket) {
  using Kind = Download::Kind;
  std::lock_guard lock(mutex_);
  const bool rows = ticket & of_rows;
  const uint64_t last = ticket & ~of_rows;
  if (last > tickets_) fail(Status::internal, "guard: ticket ", last, " of ", tickets_);
  const bool mark = !rows && std::any_of(downloads_.begin(), downloads_.end(), [&](const Download& d) {
    return d.ticket == last && d.kind == Kind::mark;
  });
  const auto due = [&](const Download& d) {
    return d.ticket <= last && (mark || d.kind == (rows ? Kind::rows : Kind::step));
  };
  for (const Download& d : downloads_)
    if (due(d) && !d.bytes.empty()) std::memcpy(d.to_host, d.bytes.data(), d.bytes.size());
  downloads_.erase(std::remove_if(downloads_.begin(), downloads_.end(), due), downloads_.end());
}

size_t GuardDevice::memory_available() const { return cpu_->memory_available(); }

}  // namespace orlop::guard
