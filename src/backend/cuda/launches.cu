// The list of kernels that wait, and the graphs of lists seen before.
#include <algorithm>
#include <new>

#include "backend/cuda/common.cuh"

namespace orlop::cuda {
namespace {

constexpr size_t most_known = 64;  // lists; the one not used for longest goes
constexpr int worth_a_graph = 8;   // kernels
constexpr int most_params = 24;    // of a kernel

uint64_t mix(uint64_t hash, uint64_t v) {
  hash = (hash ^ v) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

constexpr size_t words(size_t bytes) { return (bytes + 7) / 8; }

}  // namespace

void Launches::put(const Head& given, const void* const* params, const size_t* sizes, int count) try {
  Head head = given;
  for (int i = 0; i < count; ++i) head.params += 1 + words(sizes[i]);
  size_t at = list_.size();
  last_ = at;
  list_.resize(at + words(sizeof head) + head.params, 0);
  std::memcpy(&list_[at], &head, sizeof head);
  at += words(sizeof head);
  for (int i = 0; i < count; ++i) {
    list_[at++] = words(sizes[i]);
    std::memcpy(&list_[at], params[i], sizes[i]);
    at += words(sizes[i]);
  }
  ++count_;
} catch (const std::bad_alloc&) {
  lost_ = true;  // run() says so: no exception leaves the plugin
}

void Launches::add(const void* kernel, const Shape& s, const void* const* params, const size_t* sizes, int count) {
  put({kernel, nullptr, {s.grid.x, s.grid.y, s.grid.z}, {s.block.x, s.block.y, s.block.z}, s.shared, s.cluster, 0}, params, sizes, count);
}

bool Launches::join(const void* kernel, const Shape& s, const void* arg, bool (*join)(void* before, const void* given)) {
  if (last_ >= list_.size() || lost_) return false;
  Head head;
  std::memcpy(&head, &list_[last_], sizeof head);
  if (head.kernel != kernel || head.grid[0] != s.grid.x || head.block[0] != s.block.x || head.cluster != s.cluster) return false;
  if (!join(&list_[last_ + words(sizeof head) + 1], arg)) return false;
  head.shared = std::max<uint64_t>(head.shared, s.shared);
  std::memcpy(&list_[last_], &head, sizeof head);
  return true;
}

void* Launches::last(const void* kernel) {
  if (last_ >= list_.size() || lost_) return nullptr;
  Head head;
  std::memcpy(&head, &list_[last_], sizeof head);
  return head.kernel == kernel && !head.library ? &list_[last_ + words(sizeof head) + 1] : nullptr;
}

void Launches::drop_last() {
  list_.resize(last_);
  --count_;
}

void Launches::add(Library library, const void* args, size_t size) { put({nullptr, library, {}, {}, 0, 1, 0}, &args, &size, 1); }

// A multiprocessor's memory is split anew between cache and shared memory only when nothing runs there: one
// split for all kernels lets each begin beside the one before it.
bool Launches::prepare(const void* kernel, PluginStatus* status) {
  if (std::find(prepared_.begin(), prepared_.end(), kernel) != prepared_.end()) return true;
  cudaFuncAttributes now;
  if (!good(cudaFuncGetAttributes(&now, kernel), "looking at a kernel", status) ||
      !good(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared), "a kernel's shared memory", status) ||
      !good(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(block_shared_ - now.sharedSizeBytes)),
            "a kernel's shared memory", status))
    return false;
  prepared_.push_back(kernel);
  return true;
}

void Launches::start(cudaStream_t stream, PluginStatus* status) try {
  bool first = true;
  for (size_t at = 0; at < list_.size() && status->code == 0;) {
    Head head;
    std::memcpy(&head, &list_[at], sizeof head);
    at += words(sizeof head);
    const size_t end = at + head.params;
    void* params[most_params];
    int n = 0;
    while (at < end && n < most_params) {
      const size_t size = list_[at++];
      params[n++] = const_cast<uint64_t*>(&list_[at]);
      at += size;
    }
    if (head.library) {
      head.library(stream, params[0], status);
      continue;
    }
    if (!prepare(head.kernel, status)) return;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = static_cast<unsigned>(head.cluster);
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(head.grid[0], head.grid[1], head.grid[2]);
    config.blockDim = dim3(head.block[0], head.block[1], head.block[2]);
    config.dynamicSmemBytes = head.shared;
    config.stream = stream;
    // Both are compute capability 9's. A list's first kernel waits for the list before: attention reads what earlier
    // steps stored before it waits for the kernels of its own.
    const bool early = early_ && !first;
    first = false;
    config.attrs = attributes + (early ? 0 : 1);
    config.numAttrs = (early ? 1 : 0) + (head.cluster > 1 ? 1 : 0);
    if (good(cudaLaunchKernelExC(&config, head.kernel, params), "starting a kernel", status)) continue;
    const char* name = nullptr;
    if (cudaFuncGetName(&name, head.kernel) != cudaSuccess) name = nullptr;
    const size_t said = std::strlen(status->text);
    std::snprintf(status->text + said, sizeof status->text - said, " (%.200s, grid %u %u %u, block %u %u %u, %llu bytes of shared memory, cluster %llu)",
                  name ? name : "no name", head.grid[0], head.grid[1], head.grid[2], head.block[0], head.block[1], head.block[2],
                  static_cast<unsigned long long>(head.shared), static_cast<unsigned long long>(head.cluster));
  }
} catch (const std::bad_alloc&) {
  status->code = -6;
  std::snprintf(status->text, sizeof status->text, "no host memory for the list of kernels");
}

bool Launches::capture(cudaStream_t stream, cudaGraphExec_t* exec) {
  cudaGraph_t graph = nullptr;
  PluginStatus status;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return false;
  start(stream, &status);
  const bool whole = cudaStreamEndCapture(stream, &graph) == cudaSuccess && status.code == 0;
  const bool made = whole && cudaGraphInstantiate(exec, graph, 0) == cudaSuccess;
  if (graph) cudaGraphDestroy(graph);
  if (!made) cudaGetLastError();  // the kernels are started one by one then
  return made;
}

void Launches::run(cudaStream_t stream, PluginStatus* status) {
  if (lost_) {
    lost_ = false;
    list_.clear();
    count_ = 0;
    status->code = -6;
    std::snprintf(status->text, sizeof status->text, "no host memory for the list of kernels");
    return;
  }
  if (list_.empty()) return;
  bool done = false;
  if (count_ >= worth_a_graph) try {
    uint64_t hash = 0;
    for (const uint64_t v : list_) hash = mix(hash, v);
    auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.hash == hash && k.list == list_; });
    if (found == known_.end()) {  // a list that comes once is not worth a graph
      if (known_.size() == most_known) {
        auto oldest = std::min_element(known_.begin(), known_.end(), [](const Known& a, const Known& b) { return a.used < b.used; });
        if (oldest->graph) cudaGraphExecDestroy(oldest->graph);
        known_.erase(oldest);
      }
      known_.push_back({hash, ++clock_, list_, nullptr});
    } else {
      found->used = ++clock_;
      if (found->graph || capture(stream, &found->graph)) done = good(cudaGraphLaunch(found->graph, stream), "starting a graph", status);
    }
  } catch (const std::bad_alloc&) {  // no room to know the list by: it runs all the same
  }
  if (!done && status->code == 0) start(stream, status);
  list_.clear();
  count_ = 0;
}

void Launches::clear() {
  for (const Known& k : known_)
    if (k.graph) cudaGraphExecDestroy(k.graph);
  known_.clear();
  list_.clear();
  count_ = 0;
}

}  // namespace orlop::cuda
