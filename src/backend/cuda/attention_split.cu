// How many blocks share the keys of a tile of queries (attention_split.cuh).
#include "backend/cuda/attention_split.cuh"

#include <algorithm>

namespace orlop::cuda {

SplitPlan plan_split(Context* c, const AttentionArgs& a, int32_t least_rows, int32_t keys) {
  const SplitPlan none{1, 0, 0};
  if (!c->may_wait || c->multiprocessors > most_blocks) return none;
  // The host knows the sum of the rows only: as many sequences as may be here, of equal length, the others one row each.
  const int64_t most = std::min<int64_t>(a.seq_count, a.rows / least_rows);
  const int64_t sequences = std::clamp<int64_t>((a.rows - a.seq_count) / std::max(least_rows - 1, 1), 1, std::max<int64_t>(most, 1));
  const int64_t rows = std::max<int64_t>(1, (a.rows - (a.seq_count - sequences) + sequences - 1) / sequences);
  const int32_t group = a.heads / a.kv.kv_heads;
  SplitPlan plan = none;
  int64_t best = INT64_MAX;
  // Costs in tenths of what a tile of keys takes a block both of whose warpgroups have rows. One alone takes less,
  // unless time goes into what codes stand for.
  for (const int32_t wide : {query_rows, query_rows / 2}) {
    const int32_t positions = wide / group;
    if (positions == 0) break;
    const int64_t work = sequences * ((rows + positions - 1) / positions) * a.kv.kv_heads;
    const int64_t seen = a.window ? std::min<int64_t>(a.max_context, int64_t{a.window} + positions) : a.max_context;
    const int64_t longest = (seen + keys - 1) / keys, shortest = a.window ? longest : (std::max<int64_t>(seen - rows, 0) + keys - 1) / keys;
    const int64_t one = !is_coded(a.kv.type) && std::min<int64_t>(rows, positions) * group <= query_rows / 2 ? 7 : 10;
    // What a block costs besides: its beginning, leaving what it has, folding. Walking alone, it has the first only.
    const int64_t beside = 24 * std::max(1, 128 / a.kv.head_dim);
    const auto rounds = [&](int64_t tiles) { return (work + tiles - 1) / tiles; };
    if (wide == query_rows) best = std::max(longest, rounds(c->multiprocessors) * ((longest + shortest) / 2)) * 9;
    for (int32_t n = 2; n <= std::min<int64_t>(most_parts, longest); ++n) {
      const int64_t tiles = c->multiprocessors / n;
      if (tiles == 0) break;
      const int64_t cost = rounds(tiles) * ((longest + n) / n * one + beside);  // the newest tile takes longer
      if (cost >= best) continue;
      best = cost;
      plan = {n, positions, tiles};
    }
  }
  if (plan.parts == 1 || !c->attention_done) return none;
  const int64_t tiles = (a.rows + most * (plan.positions - 1)) / plan.positions;
  plan.tiles = std::min(std::max<int64_t>(tiles, 1) * a.kv.kv_heads, plan.tiles);
  return plan;
}

}  // namespace orlop::cuda
