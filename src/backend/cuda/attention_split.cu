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
  for (int32_t n = 2; n <= (large ? most_cluster : 8) && good; ++n) {
    int found = 0;
    cluster.val.clusterDim.x = static_cast<unsigned>(n);
    config.gridDim = dim3(static_cast<unsigned>(n));
    if (cudaOccupancyMaxActiveClusters(&found, kernel, &config) == cudaSuccess) room->clusters[n] = found;
  }
  cudaGetLastError();  // what cannot be had is done without
}

// Costs in tiles of keys that a block walks.
SplitPlan plan_split(Context* c, const AttentionArgs& a, const ClusterRoom& room, int32_t least_rows, int32_t positions, int32_t keys, PluginStatus* status) {
  SplitPlan plan{1, 0, false};
  if (room.clusters[1] == 0) return plan;
  // The host knows the sum of the rows only: as many sequences as may be here, of equal length, the others one row each.
  const int64_t most = std::min<int64_t>(a.seq_count, a.rows / least_rows);
  const int64_t sequences = std::clamp<int64_t>((a.rows - a.seq_count) / std::max(least_rows - 1, 1), 1, std::max<int64_t>(most, 1));
  const int64_t rows = (a.rows - (a.seq_count - sequences) + sequences - 1) / sequences;
  const int64_t work = sequences * ((rows + positions - 1) / positions) * a.kv.kv_heads;
  const int64_t seen = a.window ? std::min<int64_t>(a.max_context, int64_t{a.window} + positions) : a.max_context;
  const int64_t longest = (seen + keys - 1) / keys, shortest = a.window ? longest : (std::max<int64_t>(seen - rows, 0) + keys - 1) / keys;
  // What a block costs besides: it begins, leaves what it has, folds.
  const int64_t scale = std::max(1, 128 / a.kv.head_dim), near_alone = 2 * scale, far_alone = 3 * scale;
  const int64_t most_far = !c->may_wait || c->multiprocessors > most_blocks ? 0 : most_parts;
  const auto rounds = [&](int64_t groups) { return (work + groups - 1) / groups; };
  int64_t best = std::max(longest, rounds(c->multiprocessors) * ((longest + shortest) / 2)) * 7 / 8;
  for (int32_t n = 2; n <= std::min<int64_t>(most_parts, longest); ++n)
    for (const bool near : {true, false}) {
      const int64_t groups = near ? (n <= most_cluster ? room.clusters[n] : 0) : n <= most_far ? c->multiprocessors / n : 0;
      if (groups == 0) continue;
      const int64_t cost = rounds(groups) * ((longest + n - 1) / n + (near ? near_alone : far_alone));
      if (cost >= best) continue;
      best = cost;
      plan = {n, groups, near};
    }
  if (plan.parts > 1 && !plan.near && !have_counters(c, status)) return {1, 0, false};
  const int64_t tiles = (a.rows + most * (positions - 1)) / positions;
  plan.groups = std::min<int64_t>(std::max<int64_t>(tiles, 1) * a.kv.kv_heads, plan.groups);
  return plan;
}

}  // namespace orlop::cuda
