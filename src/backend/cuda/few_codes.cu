// Products of up to 64 rows of activations with weights of 8 bits: which are possible.
#include "backend/cuda/few_codes_run.cuh"

namespace orlop::cuda {
namespace {

__global__ void __launch_bounds__(256) probe() {}

bool run(Context* c, const StreamArgs& a, bool go) {
  const auto odd = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (!c->fast || c->capability != 90 || a.m <= plain_rows || a.m > few_codes_rows || !a.narrow_x || a.norm_weight || a.k_map || a.l.k % 8 ||
      a.x_stride % 8 || odd(a.x) || (a.accumulate && a.narrow_out) || a.up_row % tile_rows || (a.l.tiled && (a.l.sub > 1 || a.l.has_min)))
    return false;
  switch (a.l.codes) {
    case Codes::i8:
      return few::run_i8(c, a, go);
    case Codes::e4m3:
      return few::run_e4m3(c, a, go);
    default:
      return false;
  }
}

}  // namespace

int few::clusters_at_once(const void* of, int blocks) {
  const auto* c = static_cast<const Context*>(of);
  if (blocks == 1) return c->multiprocessors;
  static std::mutex mutex;
  static std::map<std::pair<int, int>, int> known;
  const std::lock_guard lock(mutex);
  int& n = known[{c->index, blocks}];
  if (n == 0) {
    PluginStatus status;
    const Here here(c, &status);
    constexpr auto kernel = probe;
    const auto shared = static_cast<int>(c->block_shared - 1024);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(c->multiprocessors / blocks * blocks));
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (!here || cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess || n < 1) {
      cudaGetLastError();
      n = std::max(1, c->multiprocessors / blocks - 1);
    }
    n = std::min(n, c->multiprocessors / blocks);
  }
  return n;
}

bool few_codes_possible(Context* c, const StreamArgs& a) { return run(c, a, false); }
bool few_codes(Context* c, const StreamArgs& a, PluginStatus*) { return run(c, a, true); }

}  // namespace orlop::cuda
