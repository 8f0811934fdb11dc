// Memory that is only there while somebody works with it, and who may: see guard.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

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
  size_t memory_available() const override;

  // Error(internal) naming `what` unless [at, at + bytes) lies in one allocation of this device.
  void need(const void* at, size_t bytes, const char* what) const;
  DeviceCounters& counters() { return counters_; }
  const DeviceCounters& counters() const { return counters_; }

  // The live device that a piece of memory belongs to; Error(internal) if none does.
  static GuardDevice& of(const void* memory);

  // While one of these lives, all memory of the device can be used. They nest, on any threads.
  class Open {
   public:
    explicit Open(GuardDevice& device) : device_(device) { device_.open(); }
    ~Open() { device_.close(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    GuardDevice& device_;
  };

 private:
  struct Region {
    unsigned char* pages;  // whole pages; the memory is their last `bytes`
    size_t page_bytes;
    size_t bytes;
  };
  void open();
  void close() noexcept;
  bool holds(const void* at, size_t bytes) const;
  void refuse_device_memory(const void* at, const char* what) const;

  const std::unique_ptr<Device> cpu_;  // knows how much memory there is
  mutable std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;  // by address of the memory
  int open_ = 0;
  DeviceCounters counters_;
};

}  // namespace orlop::guard
