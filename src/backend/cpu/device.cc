// Host memory as a Device. Where it lies: mbind(2), Linux's Documentation/admin-guide/mm/transhuge.rst.
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/machine.h"
#include "base/error.h"

namespace orlop::cpu {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

// From this size on memory comes from mmap: zero without being touched. Nobody touches it here, so
// on a machine of one node a page lies where the first thread to use it runs.
constexpr size_t map_from = huge_page;

// From this size on in huge pages, where the kernel has them: weights and caches are streamed, and
// misses of the TLB cost 1B weights a tenth of prefill and a fifth of decode. What is smaller gains
// nothing measurable, and huge pages would make it larger: a KV pool of 30 layers uses a page in
// thirty places. The mapping is only as long as asked, so at most its last, partial huge page is
// made of small ones.
constexpr size_t huge_from = size_t{32} << 20;

class CpuDevice final : public Device {
 public:
  CpuDevice() : nodes_(memory_nodes("", affinity_cpus())) {}

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
    if (bytes >= huge_from) {
      madvise(memory, length, MADV_HUGEPAGE);  // a wish; small pages do as well
      interleave(memory, length);
    }
    return memory;
  }

  // Several nodes: pages take turns over those whose processors the host lets us use. Any thread may
  // read any part of weights and caches (threads are not pinned), so the best place for all is
  // everywhere: every node's bandwidth adds up. A policy that the host has set (numactl) stands.
  void interleave(void* memory, size_t length) const {
    constexpr size_t bits = 8 * sizeof(unsigned long);
    if (nodes_.size() < 2) return;
    int policy = MPOL_DEFAULT;
    if (syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, nullptr, 0UL) || policy != MPOL_DEFAULT)
      return;
    const size_t most = static_cast<size_t>(nodes_.back()) + 1;
    std::vector<unsigned long> mask((most + bits - 1) / bits);
    for (const int node : nodes_)
      mask[static_cast<size_t>(node) / bits] |= 1UL << static_cast<size_t>(node) % bits;
    // The kernel takes one bit less than it is told. A failure leaves pages to their first user.
    syscall(SYS_mbind, memory, length, static_cast<unsigned long>(MPOL_INTERLEAVE), mask.data(),
            mask.size() * bits + 1, 0UL);
  }

  const std::vector<int> nodes_;
};

}  // namespace

std::unique_ptr<Device> make_device() { return std::make_unique<CpuDevice>(); }

}  // namespace orlop::cpu
