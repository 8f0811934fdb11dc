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

// One thread's way to the GPU while weights load.
struct Lane;

// Every entry may be called from any thread. What runs on the GPU runs on the context's stream in the
// order of the calls; download and wait wait for it, nothing else does.
struct Plugin {
  const char* build_id;
  // fast: equal batches have equal bits, nothing more; else an output row depends on its own inputs alone.
  void (*open)(int32_t index, bool fast, Context** out, GpuInfo* info, PluginStatus*);
  void (*close)(Context*);
  // Fast: the library of products of many rows, or why there is none, in words; else none.
  void (*describe_products)(Context*, char* to, size_t size);
  void (*allocate)(Context*, size_t bytes, void** out, PluginStatus*);  // zeroed
  void (*release)(Context*, void*);
  // From the host: taken when the call returns.
  void (*upload)(Context*, void* to, const void* from_host, size_t bytes, PluginStatus*);
  void (*download)(Context*, void* to_host, const void* from, size_t bytes, PluginStatus*);
  // As Device::download_later, download_rows_later, upload_rows and wait.
  void (*download_later)(Context*, void* to_host, const void* from, size_t bytes, uint64_t* ticket, PluginStatus*);
  void (*download_rows_later)(Context*, void* to_host, const void* from, size_t rows, size_t row_bytes, size_t stride, uint64_t* ticket, PluginStatus*);
  void (*upload_rows)(Context*, void* to, const void* from_host, size_t rows, size_t row_bytes, size_t stride, PluginStatus*);
  void (*wait)(Context*, uint64_t ticket, PluginStatus*);
  // Weights, from several threads at once: each enters a lane, uploads on it what comes after everything called
  // before it entered, and before everything called once it has left.
  void (*enter_lane)(Context*, Lane**, PluginStatus*);
  void (*load)(Context*, Lane*, void* to, const void* from_host, size_t bytes, PluginStatus*);
  void (*leave_lane)(Context*, Lane*);
  // A matrix of this description comes to `packed`: what products with it load with their first use may be loaded
  // beside, until loading ends.
  void (*coming)(Context*, const LinearDesc&, const void* packed);
  // All lanes are left: waits for their copies, and for what is loaded beside, and gives back their memory.
  void (*end_loading)(Context*);
  void (*copy)(Context*, void* to, const void* from, size_t bytes, PluginStatus*);
  void (*fill)(Context*, void* to, int byte, size_t bytes, PluginStatus*);
  void (*memory_free)(Context*, uint64_t* bytes, PluginStatus*);

  void (*matmul)(Context*, const MatmulArgs&, PluginStatus*);
  void (*embed)(Context*, const EmbedArgs&, PluginStatus*);
  void (*rope_table)(Context*, const RopeTableArgs&, PluginStatus*);
  void (*kv_store)(Context*, const KvStoreArgs&, PluginStatus*);
  void (*kv_tail)(Context*, const KvTailArgs&, PluginStatus*);
  void (*attention)(Context*, const AttentionArgs&, PluginStatus*);
  void (*norm)(Context*, const NormArgs&, PluginStatus*);
  void (*gather)(Context*, const GatherArgs&, PluginStatus*);
  void (*sample)(Context*, const SampleArgs&, PluginStatus*);
};

// The one symbol of the shared object. Where the plugin is part of the library, nobody else sees it.
using PluginEntry = const Plugin* (*)();
constexpr const char* plugin_entry_name = "orlop_cuda_plugin";

}  // namespace orlop::cuda

extern "C" __attribute__((visibility("default"))) const orlop::cuda::Plugin* orlop_cuda_plugin();
