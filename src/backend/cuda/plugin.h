// Between the core and liborlop_cuda.so: a C function table, opened at run time, so that one build of the
// core runs with and without a driver. No exception crosses it; every failure is a PluginStatus. Both
// sides are built from the same sources: build_id says so, and what differs is refused.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/kernels.h"

namespace orlop::cuda {

// What went wrong; code 0: nothing did. The numbers are those of Status.
struct PluginStatus {
  int32_t code = 0;
  char text[500] = "";
};

struct Context;  // a GPU, its stream and what belongs to them

struct GpuInfo {
  char name[200];
  int32_t major, minor;         // compute capability
  int32_t multiprocessors;
  uint64_t total_bytes;
};

// Every entry may be called from any thread. What runs on the GPU runs on the context's stream in the
// order of the calls; download waits for it, nothing else does.
struct Plugin {
  const char* build_id;
  void (*open)(int32_t index, Context** out, GpuInfo* info, PluginStatus*);
  void (*close)(Context*);
  void (*allocate)(Context*, size_t bytes, void** out, PluginStatus*);  // zeroed
  void (*release)(Context*, void*);
  void (*upload)(Context*, void* to, const void* from_host, size_t bytes, PluginStatus*);
  void (*download)(Context*, void* to_host, const void* from, size_t bytes, PluginStatus*);
  void (*copy)(Context*, void* to, const void* from, size_t bytes, PluginStatus*);
  void (*fill)(Context*, void* to, int byte, size_t bytes, PluginStatus*);
  void (*memory_free)(Context*, uint64_t* bytes, PluginStatus*);

  void (*matmul)(Context*, const MatmulArgs&, PluginStatus*);
  void (*embed)(Context*, const EmbedArgs&, PluginStatus*);
  void (*rope_table)(Context*, const RopeTableArgs&, PluginStatus*);
  void (*kv_store)(Context*, const KvStoreArgs&, PluginStatus*);
  void (*attention)(Context*, const AttentionArgs&, PluginStatus*);
  void (*norm)(Context*, const NormArgs&, PluginStatus*);
  void (*gather)(Context*, const GatherArgs&, PluginStatus*);
  void (*sample)(Context*, const SampleArgs&, PluginStatus*);
};

// The one symbol of the shared object.
using PluginEntry = const Plugin* (*)();
constexpr const char* plugin_entry_name = "orlop_cuda_plugin";

}  // namespace orlop::cuda
