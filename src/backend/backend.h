// What a backend offers to whoever joins it with a model (src/api).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop {

// What went to a device and came back. Any thread may read them.
struct DeviceCounters {
  std::atomic<uint64_t> uploads{0}, downloads{0}, copies{0}, fills{0};  // not empty
  std::atomic<uint64_t> uploaded_bytes{0}, downloaded_bytes{0};
  std::atomic<uint64_t> kernel_calls{0};
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Exec exec() = 0;
  virtual Compute default_compute() const = 0;  // best for this machine
  virtual int threads() const = 0;
  virtual std::string threads_why() const = 0;
  virtual std::string describe() const = 0;     // kernels chosen, in words
  // The device's memory is its own and taken when it is asked for, so that a KV cache gets what is left in the end.
  virtual bool own_memory() const { return false; }
  // It stands beside the processor, which may take some of a model's layers (n_gpu_layers).
  virtual bool beside_processor() const { return own_memory(); }
  virtual size_t host_memory() { return exec().device->memory_available(); }  // as Device::memory_available
  virtual const DeviceCounters* counters() const { return nullptr; }  // null: it does not count
};

struct BackendOptions {
  std::string device = "cpu";
  int threads = 0;  // 0: chosen from the machine
  // A request's bits depend on itself alone; else (where that costs speed: cuda) equal batches have equal bits.
  bool deterministic = true;
};
// Error(unsupported | not_found) names the device. The only function that names backends.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);
// For orlop_feature: "cuda", "avx2", "avx512", … compiled in and usable here.
bool backend_feature(const std::string& name);

}  // namespace orlop
