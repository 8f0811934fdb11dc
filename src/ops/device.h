// A place where tensors live and kernels run. Nothing above ops dereferences its memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace orlop {

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // "cpu"
  // 64-byte aligned, zeroed. Error(out_of_memory) with the size asked for. Huge allocations use
  // huge pages where that pays.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory, size_t bytes) noexcept = 0;
  virtual void upload(void* to, const void* from_host, size_t bytes) = 0;
  virtual void download(void* to_host, const void* from, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;  // within the device
  // A download in order with what was called before and after it, which the host need not wait for: to_host
  // stays valid until wait() has returned for the ticket (or for a later one), and holds the bytes then. 0
  // bytes: a ticket for all that was called before. What was called before has been started when it returns.
  virtual uint64_t download_later(void* to_host, const void* from, size_t bytes) {
    if (bytes) download(to_host, from, bytes);
    return 0;
  }
  // Returns when all that was called before the ticket's download_later(), and that, is done; throws what
  // failed of it. Tickets grow; to wait for one twice, or for an earlier one, is allowed and returns at once.
  virtual void wait(uint64_t /*ticket*/) {}
  // The same of rows of row_bytes that begin `stride` bytes apart on the device; on the host one follows another. For
  // what is large and not waited for soon: it may go beside what is called later. Its ticket is covered by later ones
  // of this function and by those of 0 bytes.
  virtual uint64_t download_rows_later(void* to_host, const void* from, size_t rows, size_t row_bytes, size_t stride) {
    uint64_t ticket = 0;
    for (size_t i = 0; i < rows; ++i)
      ticket = download_later(static_cast<unsigned char*>(to_host) + i * row_bytes,
                              static_cast<const unsigned char*>(from) + i * stride, row_bytes);
    return ticket;
  }
  // The other way: taken when it returns, there for what is called later; it may go beside what was called before.
  virtual void upload_rows(void* to, const void* from_host, size_t rows, size_t row_bytes, size_t stride) {
    for (size_t i = 0; i < rows; ++i)
      upload(static_cast<unsigned char*>(to) + i * stride, static_cast<const unsigned char*>(from_host) + i * row_bytes, row_bytes);
  }
  // Kernels and copies return before they are done: it pays to have the next step in line meanwhile.
  virtual bool asynchronous() const { return false; }
  virtual void fill(void* to, int byte, size_t bytes) = 0;
  // Weights are loaded: host memory that only loading needs may go. No linear_pack runs meanwhile.
  virtual void loaded() noexcept {}
  virtual size_t memory_available() const = 0;  // bytes that could still be allocated, a guess
};

// Owns a piece of device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device& device, size_t bytes)
      : device_(&device), data_(bytes ? device.allocate(bytes) : nullptr), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& o) noexcept { swap(o); }
  DeviceBuffer& operator=(DeviceBuffer&& o) noexcept {
    swap(o);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_) device_->release(data_, bytes_);
  }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& o) noexcept {
    std::swap(device_, o.device_);
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace orlop
