// Host memory as a Device.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu.h"
#include "backend/cpu/machine.h"
#include "base/error.h"

namespace orlop::cpu {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

// From this size on memory comes from mmap: zero without being touched, and in huge pages where the
// kernel has them (weights and caches are streamed: fewer TLB misses). The mapping is only as long
// as asked, so at most its last, partial huge page is made of small ones.
constexpr size_t map_from = huge_page;

class CpuDevice final : public Device {
 public:
  const char* name() const override { return "cpu"; }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* memory = bytes >= map_from ? map(bytes) : small(bytes);
    if (!memory)
      fail(Status::out_of_memory, "cpu: cannot allocate ", bytes, " bytes (", memory_available(),
           " seem to be available)");
    return memory;
  }

  void release(void* memory, size_t bytes) noexcept override {
    if (!memory) return;
    if (bytes >= map_from)
      munmap(memory, bytes);
    else
      std::free(memory);
  }

  void upload(void* to, const void* from_host, size_t bytes) override { copy(to, from_host, bytes); }
  void download(void* to_host, const void* from, size_t bytes) override {
    copy(to_host, from, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes) std::memcpy(to, from, bytes);
  }
  void fill(void* to, int byte, size_t bytes) override {
    if (bytes) std::memset(to, byte, bytes);
  }

  size_t memory_available() const override {
    return static_cast<size_t>(cpu::memory_available(""));
  }

 private:
  static void* small(size_t bytes) {
    const size_t rounded = (bytes + 63) / 64 * 64;
    void* memory = std::aligned_alloc(64, rounded);
    if (memory) std::memset(memory, 0, rounded);
    return memory;
  }

  // Maps more than asked and gives back what lies before the first 2 MiB border and after the end.
  void* map(size_t bytes) const {
    if (bytes > std::numeric_limits<size_t>::max() / 2) return nullptr;
    // Linux hands out more address space than it can fill and kills the process later; refuse now
    // what cannot be there.
    if (bytes > memory_available()) return nullptr;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t length = (bytes + page - 1) / page * page;
    void* raw = mmap(nullptr, length + huge_page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    const uintptr_t at = reinterpret_cast<uintptr_t>(raw);
    const uintptr_t begin = (at + huge_page - 1) / huge_page * huge_page;
    if (begin > at) munmap(raw, begin - at);
    const uintptr_t end = begin + length, raw_end = at + length + huge_page;
    if (raw_end > end) munmap(reinterpret_cast<void*>(end), raw_end - end);
    void* memory = reinterpret_cast<void*>(begin);
    madvise(memory, length, MADV_HUGEPAGE);  // a wish; small pages do as well
    return memory;
  }
};

}  // namespace

std::unique_ptr<Device> make_device() { return std::make_unique<CpuDevice>(); }

}  // namespace orlop::cpu
