// A plugin around the plugin, for tests of a GPU that is lost: it opens what ORLOP_TEST_REAL_CUDA names and hands
// on its entries. From orlop_test_break() on the next embedding reads where there is no memory.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "backend/cuda/plugin.h"

namespace {

std::atomic<bool> broken{false};
const orlop::cuda::Plugin* real;
orlop::cuda::Plugin table;

void embed(orlop::cuda::Context* context, const orlop::EmbedArgs& args, orlop::cuda::PluginStatus* status) {
  orlop::EmbedArgs given = args;
  if (broken.exchange(false)) given.ids = reinterpret_cast<const int32_t*>(uintptr_t{1} << 46);
  real->embed(context, given, status);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const orlop::cuda::Plugin* orlop_cuda_plugin() {
  if (!real) {
    const char* path = std::getenv("ORLOP_TEST_REAL_CUDA");
    void* handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : nullptr;
    const auto entry = handle ? reinterpret_cast<orlop::cuda::PluginEntry>(dlsym(handle, orlop::cuda::plugin_entry_name)) : nullptr;
    if (!entry) return nullptr;
    real = entry();
    table = *real;
    table.embed = embed;
  }
  return &table;
}

extern "C" __attribute__((visibility("default"))) void orlop_test_break() { broken = true; }
