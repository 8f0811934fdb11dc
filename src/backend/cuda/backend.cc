// Opens liborlop_cuda.so, or has it in the same library (ORLOP_PLUGIN_INSIDE), and makes a Backend of it: each entry of
// the kernel table calls the plugin's and turns its status into an Error.
#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>

#include "backend/cpu/cpu.h"
#include "backend/cpu/machine.h"
#include "backend/cpu/threads.h"
#include "backend/cuda/attention_decode.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/many.h"
#include "backend/cuda/pack.h"
#include "backend/cuda/plugin.h"
#include "base/error.h"

namespace orlop::cuda {
namespace {

#ifdef ORLOP_PLUGIN_INSIDE
const Plugin& plugin() { return *orlop_cuda_plugin(); }
#else
constexpr const char* library_name = "liborlop_cuda.so";

// The folder of the file that this code was loaded from, with a slash; empty if it cannot be told.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Beside the library, or where ORLOP_CUDA_LIBRARY says; else where the system looks. Never the working
// folder. It stays open: code of a driver cannot be unloaded safely.
const Plugin& plugin() {
  static std::mutex mutex;
  static const Plugin* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded) return *loaded;
  std::string path;
  if (const char* named = getenv("ORLOP_CUDA_LIBRARY"); named && *named == '/')
    path = named;
  else if (const std::string folder = own_folder(); !folder.empty() && folder[0] == '/')
    path = folder + library_name;
  void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const char* why = handle || path.empty() ? nullptr : dlerror();
  std::string words = why ? why : "";
  if (!handle) handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    if (words.empty()) words = dlerror();
    fail(Status::unsupported, "device \"cuda\": the CUDA backend cannot be loaded: ", words);
  }
  const auto entry = reinterpret_cast<PluginEntry>(dlsym(handle, plugin_entry_name));
  const Plugin* found = entry ? entry() : nullptr;
  if (!found || std::string(found->build_id) != ORLOP_CUDA_BUILD_ID)
    fail(Status::unsupported, "device \"cuda\": ", library_name, " is of another build (",
         found ? found->build_id : "unknown", "; this is ", ORLOP_CUDA_BUILD_ID, ")");
  loaded = found;
  return *loaded;
}
#endif

void check(const PluginStatus& status) {
  if (status.code) fail(static_cast<Status>(status.code), "cuda: ", status.text);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const Plugin& plugin, int32_t index, bool fast) : plugin_(plugin) {
    PluginStatus status;
    plugin_.open(index, fast, &context_, &info_, &status);
    check(status);
  }
  ~CudaDevice() override { plugin_.close(context_); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const char* name() const override { return "cuda"; }
  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* out = nullptr;
    call(plugin_.allocate, bytes, &out);
    const std::lock_guard lock(allocations_mutex());
    allocations()[reinterpret_cast<uintptr_t>(out)] = {bytes, this};
    return out;
  }
  void release(void* memory, size_t) noexcept override {
    if (!memory) return;
    {
      const std::lock_guard lock(allocations_mutex());
      allocations().erase(reinterpret_cast<uintptr_t>(memory));
    }
    plugin_.release(context_, memory);
  }
  void upload(void* to, const void* from_host, size_t bytes) override {
    if (bytes) call(plugin_.upload, to, from_host, bytes);
  }
  void download(void* to_host, const void* from, size_t bytes) override {
    if (bytes) call(plugin_.download, to_host, from, bytes);
  }
  uint64_t download_later(void* to_host, const void* from, size_t bytes) override {
    uint64_t ticket = 0;
    call(plugin_.download_later, to_host, from, bytes, &ticket);
    return ticket;
  }
  uint64_t download_rows_later(void* to_host, const void* from, size_t rows, size_t row_bytes, size_t stride) override {
    uint64_t ticket = 0;
    call(plugin_.download_rows_later, to_host, from, rows, row_bytes, stride, &ticket);
    return ticket;
  }
  void upload_rows(void* to, const void* from_host, size_t rows, size_t row_bytes, size_t stride) override {
    call(plugin_.upload_rows, to, from_host, rows, row_bytes, stride);
  }
  void wait(uint64_t ticket) override { call(plugin_.wait, ticket); }
  bool asynchronous() const override { return true; }
  void loaded() noexcept override { plugin_.end_loading(context_); }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes) call(plugin_.copy, to, from, bytes);
  }
  void fill(void* to, int byte, size_t bytes) override {
    if (bytes) call(plugin_.fill, to, byte, bytes);
  }
  size_t memory_available() const override {
    uint64_t bytes = 0;
    PluginStatus status;
    plugin_.memory_free(context_, &bytes, &status);
    return status.code ? 0 : static_cast<size_t>(bytes);
  }

  // The live device that a piece of memory belongs to: linear_pack is told no Exec.
  static CudaDevice& of(const void* memory) {
    const std::lock_guard lock(allocations_mutex());
    const auto at = reinterpret_cast<uintptr_t>(memory);
    auto found = allocations().upper_bound(at);
    if (found == allocations().begin()) fail(Status::internal, "cuda: memory of no device");
    --found;
    if (at - found->first >= found->second.bytes) fail(Status::internal, "cuda: memory of no device");
    return *found->second.device;
  }

  const Plugin& plugin() const { return plugin_; }
  Context* context() const { return context_; }
  const GpuInfo& info() const { return info_; }

 private:
  struct Allocation {
    size_t bytes;
    CudaDevice* device;
  };
  static std::mutex& allocations_mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<uintptr_t, Allocation>& allocations() {
    static std::map<uintptr_t, Allocation> map;
    return map;
  }

  template <class Entry, class... Args>
  void call(Entry entry, Args... args) {
    PluginStatus status;
    entry(context_, args..., &status);
    check(status);
  }
  const Plugin& plugin_;
  Context* context_ = nullptr;
  GpuInfo info_{};
};

// Exec::queue points at the device.
template <auto entry, class Args>
void call(const Exec& exec, const Args& args) {
  const CudaDevice& device = *static_cast<const CudaDevice*>(exec.queue);
  PluginStatus status;
  (device.plugin().*entry)(device.context(), args, &status);
  check(status);
}

// A lane that the calling thread has.
class OnLane {
 public:
  explicit OnLane(const CudaDevice& device) : device_(device) {
    PluginStatus status;
    device.plugin().enter_lane(device.context(), &lane_, &status);
    check(status);
  }
  ~OnLane() { device_.plugin().leave_lane(device_.context(), lane_); }
  OnLane(const OnLane&) = delete;
  OnLane& operator=(const OnLane&) = delete;

  void load(void* to, const void* from, size_t bytes) {
    PluginStatus status;
    device_.plugin().load(device_.context(), lane_, to, from, bytes, &status);
    check(status);
  }

 private:
  const CudaDevice& device_;
  Lane* lane_ = nullptr;
};

void pack(const LinearDesc& desc, const LinearSource& source, int64_t begin, int64_t end, void* packed) {
  const CudaDevice& device = CudaDevice::of(packed);
  if (begin == 0) device.plugin().coming(device.context(), desc, packed);
  OnLane lane(device);
  pack_tiles(desc, source, begin, end, [&](int64_t at, const void* from, size_t bytes) {
    lane.load(static_cast<unsigned char*>(packed) + at, from, bytes);
  });
}

size_t attention_workspace(const KvDesc& d, int32_t heads, int32_t rows, int32_t max_context) {
  const int64_t chunks = (int64_t{max_context} + attention_chunk - 1) / attention_chunk;
  const int64_t plain = std::min(rows, split_rows) * heads * chunks * attention_record(d.head_dim);
  const int64_t records = decode_takes(d) ? most_records * most_columns * attention_record(d.head_dim) : 0;
  return static_cast<size_t>(std::max(plain, records) * 4);
}

Kernels make_table() {
  Kernels k{};
  k.backend = "cuda";
  k.isa = "cuda";
  k.norms = k.narrow = true;
  k.linear_bytes = linear_bytes;
  k.linear_tiles = linear_tiles;
  k.linear_pack = pack;
  k.matmul_workspace = matmul_workspace_bytes;
  k.matmul = call<&Plugin::matmul, MatmulArgs>;
  k.embed = call<&Plugin::embed, EmbedArgs>;
  k.kv_page_bytes = [](const KvDesc& d) {
    if (is_coded(d.type) && d.head_dim > 256)
      fail(Status::unsupported, "kv_dtype \"", orlop::name(d.type), "\" on cuda with heads of ", d.head_dim, " dimensions; up to 256 are possible");
    return static_cast<size_t>(KvLayout(d).page_bytes);
  };
  k.kv_tail_bytes = [](const KvDesc& d) { return static_cast<size_t>(KvLayout(d).tail_bytes); };
  k.rope_table = call<&Plugin::rope_table, RopeTableArgs>;
  k.kv_store = call<&Plugin::kv_store, KvStoreArgs>;
  k.attention_workspace = attention_workspace;
  k.attention = call<&Plugin::attention, AttentionArgs>;
  k.kv_tail = call<&Plugin::kv_tail, KvTailArgs>;
  k.norm = call<&Plugin::norm, NormArgs>;
  k.gather = call<&Plugin::gather, GatherArgs>;
  k.sample_workspace = [](int32_t rows, int32_t vocab) { return size_t{4} * static_cast<size_t>(rows) * static_cast<size_t>(vocab); };
  k.sample = call<&Plugin::sample, SampleArgs>;
  return k;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int32_t index, bool fast, cpu::ThreadChoice choice)
      : kernels_(make_table()), device_(plugin(), index, fast), choice_(std::move(choice)) {}

  Exec exec() override { return {&kernels_, &device_, &device_, choice_.threads}; }
  Compute default_compute() const override { return Compute::bf16; }
  int threads() const override { return choice_.threads; }
  std::string threads_why() const override { return choice_.why; }
  bool own_memory() const override { return true; }
  size_t host_memory() override { return static_cast<size_t>(cpu::memory_available("")); }
  std::string describe() const override {
    const GpuInfo& i = device_.info();
    char products[200] = "";
    device_.plugin().describe_products(device_.context(), products, sizeof products);
    return cat("cuda: ", i.name, ", compute capability ", i.major, ".", i.minor, ", ", i.multiprocessors, " multiprocessors, ",
               i.total_bytes >> 30, " GiB", products[0] ? "; products of many rows: " : "", products);
  }

 private:
  Kernels kernels_;
  CudaDevice device_;
  cpu::ThreadChoice choice_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const std::string& device, int threads, bool fast) {
  int32_t index = 0;
  if (device.size() > 5) {
    const char* end = device.data() + device.size();
    const auto r = std::from_chars(device.data() + 5, end, index);
    if (r.ec != std::errc{} || r.ptr != end || index < 0)
      fail(Status::invalid_argument, "device \"", device, "\": a number is meant after \"cuda:\"");
  }
  cpu::ThreadChoice choice = cpu::default_threads();
  if (threads > 0) choice = {threads, cat("as asked; ", choice.why)};
  return std::make_unique<CudaBackend>(index, fast, std::move(choice));
}

bool available() {
  try {
    CudaDevice device(plugin(), 0, false);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace orlop::cuda
