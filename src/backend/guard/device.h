// Memory that is only there while somebody works with it, and who may: see guard.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "ops/device.h"

namespace orlop::guard {

class GuardDevice final : public Device {
 public:
  GuardDevice();
  ~GuardDevice() override;
  GuardDevice(const GuardDevice&) = delete;
  GuardDevice& operator=(const GuardDevice&) = delete;

  const char* name() const override { return "guard"; }
  void* allocate(size_t bytes) override;
  void release(void* memory, size_t bytes) noexcept override;
  void upload(void* to, const void* from_host, size_t bytes) override;
  void download(void* to_host, const void* from, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void fill(void* to, int byte, size_t bytes) override;
  // As an accelerator has it: until wait() the host finds other bytes. Rows come as late as they may.
  uint64_t download_later(void* to_host, const void* from, size_t bytes) override;
  uint64_t download_rows_later(void* to_host, const void* from, size_t rows, size_t row_bytes, size_t stride) override;
  void wait(uint64_t ticket) override;
  bool asynchronous() const override { return true; }
  size_t memory_available() const override;

  DeviceCounters& counters() { return counters_; }
  const DeviceCounters& counters() const { return counters_; }

  // The live device that a piece of memory belongs to; Error(internal) if none does.
  static GuardDevice& of(const void* memory);

 private:
  struct Region {
    unsigned char* pages;  // whole pages; the memory is their last `bytes`
    size_t page_bytes;
    size_t bytes;
    int users = 0;
    size_t open_begin = 0, open_end = 0;  // of `pages`: what was opened since users was 0
  };

 public:
  // What one kernel or copy may touch, as long as this lives. Several may be there at once, on any
  // threads.
  class Use {
   public:
    explicit Use(GuardDevice& device) : device_(device) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // Opens the allocation that [at, at + bytes) lies in. Error(internal) naming `what` if there is
    // none. No bytes: nothing happens.
    void need(const void* at, size_t bytes, const char* what);
    // The same, but only the bytes' own pages.
    void need_part(const void* at, size_t bytes, const char* what);

   private:
    void open(uintptr_t memory, Region& region, size_t begin, size_t end);
    GuardDevice& device_;
    std::vector<uintptr_t> opened_;
  };

 private:
  // Under mutex_: the region that holds the bytes, see Use::need; whether one holds an address.
  std::map<uintptr_t, Region>::iterator find(const void* at, size_t bytes, const char* what);
  bool holds(const void* at) const;
  void refuse_device_memory(const void* at, const char* what);

  const std::unique_ptr<Device> cpu_;  // knows how much memory there is
  std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;  // by address of the memory
  // Tickets of rows have the highest bit.
  static constexpr uint64_t of_rows = uint64_t{1} << 63;
  struct Download {
    enum class Kind : uint8_t { step, rows, mark };
    uint64_t ticket;
    void* to_host;
    std::vector<unsigned char> bytes;
    Kind kind;
  };
  uint64_t later(void* to_host, const void* from, size_t rows, size_t row_bytes, size_t stride, Download::Kind kind);
  std::vector<Download> downloads_;  // not waited for yet
  uint64_t tickets_ = 0;
  DeviceCounters counters_;
};

}  // namespace orlop::guard
