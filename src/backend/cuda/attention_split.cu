// How many blocks share the keys of a tile of queries (attention_split.cuh).
#include "backend/cuda/attention_split.cuh"

#include <algorithm>

namespace orlop::cuda {

void find_cluster_room(Context* c, const void* kernel, size_t shared, ClusterRoom* room) {
  PluginStatus status;
  const Here here(c, &status);
  if (!here) return;
  room->clusters[1] = c->multiprocessors;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(hopper_threads);
  config.dynamicSmemBytes = shared;
  config.attrs = &cluster;
  config.numAttrs = 1;
  const bool good = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)) == cudaSuccess;
  const bool large = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
  for (int32_t n = 2; n <= (large ? most_parts : 8) && good; ++n) {
    int found = 0;
    cluster.val.clusterDim.x = static_cast<unsigned>(n);
    config.gridDim = dim3(static_cast<unsigned>(n));
    if (cudaOccupancyMaxActiveClusters(&found, kernel, &config) == cudaSuccess) room->clusters[n] = found;
  }
  cudaGetLastError();  // what cannot be had is done without
}

// Costs in tiles of keys that a block walks.
SplitPlan plan_split(const AttentionArgs& a, const ClusterRoom& room, int32_t least_rows, int32_t positions, int32_t keys) {
  if (room.clusters[1] == 0) return {1, 0};
  // The host knows the sum of the rows only: as many sequences as may be here, of equal length, the others one row each.
  const int64_t most = std::min<int64_t>(a.seq_count, a.rows / least_rows);
  const int64_t sequences = std::clamp<int64_t>((a.rows - a.seq_count) / std::max(least_rows - 1, 1), 1, std::max<int64_t>(most, 1));
  const int64_t rows = (a.rows - (a.seq_count - sequences) + sequences - 1) / sequences;
  const int64_t work = sequences * ((rows + positions - 1) / positions) * a.kv.kv_heads;
  const int64_t seen = a.window ? std::min<int64_t>(a.max_context, int64_t{a.window} + positions) : a.max_context;
  const int64_t longest = (seen + keys - 1) / keys, shortest = a.window ? longest : (std::max<int64_t>(seen - rows, 0) + keys - 1) / keys;
  // What a block of a cluster costs besides: it begins, leaves what it has, folds.
  const int64_t alone = 2 * std::max(1, 128 / a.kv.head_dim);
  const auto rounds = [&](int32_t parts) { return (work + room.clusters[parts] - 1) / room.clusters[parts]; };
  SplitPlan plan{1, 0};
  int64_t best = std::max(longest, rounds(1) * ((longest + shortest) / 2)) * 7 / 8;
  for (int32_t n = 2; n <= std::min<int64_t>(most_parts, longest); ++n) {
    if (room.clusters[n] == 0) continue;
    const int64_t cost = rounds(n) * ((longest + n - 1) / n + alone);
    if (cost >= best) continue;
    best = cost;
    plan.parts = n;
  }
  const int64_t tiles = (a.rows + most * (positions - 1)) / positions;
  plan.clusters = std::min<int64_t>(std::max<int64_t>(tiles, 1) * a.kv.kv_heads, room.clusters[plan.parts]);
  return plan;
}

}  // namespace orlop::cuda
