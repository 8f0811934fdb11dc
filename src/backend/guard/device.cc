#include "backend/guard/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

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
  for (GuardDevice* device : registry().devices)
    if (device->holds(memory, 1)) return *device;
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
  unsigned char* memory = region.pages + page_bytes - rounded;
  bool usable = true;
  try {
    std::lock_guard lock(mutex_);
    if (open_) usable = mprotect(region.pages, page_bytes, PROT_READ | PROT_WRITE) == 0;
    if (usable) regions_.emplace(reinterpret_cast<uintptr_t>(memory), region);
  } catch (...) {
    munmap(raw, page_bytes + 2 * page);
    throw;
  }
  if (!usable) {
    munmap(raw, page_bytes + 2 * page);
    fail(Status::out_of_memory, "guard: cannot allocate ", bytes, " bytes");
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

void GuardDevice::open() {
  std::lock_guard lock(mutex_);
  if (open_++) return;
  for (const auto& [at, region] : regions_)
    if (mprotect(region.pages, region.page_bytes, PROT_READ | PROT_WRITE) != 0) {
      for (const auto& [other, back] : regions_) mprotect(back.pages, back.page_bytes, PROT_NONE);
      --open_;
      fail(Status::out_of_memory, "guard: cannot open ", region.bytes, " bytes");
    }
}

void GuardDevice::close() noexcept {
  std::lock_guard lock(mutex_);
  if (--open_) return;
  for (const auto& [at, region] : regions_) mprotect(region.pages, region.page_bytes, PROT_NONE);
}

bool GuardDevice::holds(const void* at, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(at);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return false;
  const auto& [begin, region] = *--after;
  return address - begin < region.bytes && bytes <= region.bytes - (address - begin);
}

void GuardDevice::need(const void* at, size_t bytes, const char* what) const {
  if (bytes && !holds(at, bytes))
    fail(Status::internal, "guard: ", what, ": ", bytes, " bytes are not in the device's memory");
}

void GuardDevice::refuse_device_memory(const void* at, const char* what) const {
  if (holds(at, 1)) fail(Status::internal, "guard: ", what, ": device memory where host memory is meant");
}

void GuardDevice::upload(void* to, const void* from_host, size_t bytes) {
  if (!bytes) return;
  need(to, bytes, "upload");
  refuse_device_memory(from_host, "upload");
  ++counters_.uploads;
  counters_.uploaded_bytes += bytes;
  Open open(*this);
  std::memcpy(to, from_host, bytes);
}

void GuardDevice::download(void* to_host, const void* from, size_t bytes) {
  if (!bytes) return;
  need(from, bytes, "download");
  refuse_device_memory(to_host, "download");
  ++counters_.downloads;
  counters_.downloaded_bytes += bytes;
  Open open(*this);
  std::memcpy(to_host, from, bytes);
}

void GuardDevice::copy(void* to, const void* from, size_t bytes) {
  if (!bytes) return;
  need(to, bytes, "copy");
  need(from, bytes, "copy");
  ++counters_.copies;
  Open open(*this);
  std::memcpy(to, from, bytes);
}

void GuardDevice::fill(void* to, int byte, size_t bytes) {
  if (!bytes) return;
  need(to, bytes, "fill");
  ++counters_.fills;
  Open open(*this);
  std::memset(to, byte, bytes);
}

size_t GuardDevice::memory_available() const { return cpu_->memory_available(); }

}  // namespace orlop::guard
