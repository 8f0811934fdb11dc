// Attention of prompts on Hopper: caches of int8 and uint4.
#include "backend/cuda/attention_codes.cuh"
#include "backend/cuda/attention_hopper.cuh"

namespace orlop::cuda {
namespace {

template <KvType Type, int Dims, int Stages>
void start(Context* c, const AttentionArgs& given, int32_t least_rows, PluginStatus* status) {
  using P = Plan<Dims, 64, Stages, Dims % 64 == 0>;
  static_assert(P::shared <= 232448);
  const auto kernel = attend_hopper<__nv_bfloat16, Type, Dims, 64, Stages, false, false, Dims % 64 == 0, false>;
  if (!allow_shared(c, reinterpret_cast<const void*>(kernel), P::shared, status)) return;
  AttentionArgs a = given;
  a.max_context = 0;  // no kernel reads it, and it would make every step's list another
  const int32_t positions = tile_positions(a, query_rows);
  const auto split = attend_hopper<__nv_bfloat16, Type, Dims, 64, Stages, false, false, Dims % 64 == 0, true>;
  const SplitPlan plan = plan_split(c, given, least_rows, P::keys);
  if (plan.parts > 1)
    return launch(c, split, plan.shape(P::shared), a, CUtensorMap{}, plan.positions, 0, least_rows, a.scale * 1.4426950408889634f, plan.parts, c->attention_done);
  const int64_t most = std::min<int64_t>(most_tiles(a, positions) * a.kv.kv_heads, c->multiprocessors);
  launch(c, kernel, Shape{dim3(blocks(most, 1)), dim3(hopper_threads), P::shared}, a, CUtensorMap{}, positions, 0, least_rows, a.scale * 1.4426950408889634f, 1, nullptr);
}

template <KvType Type>
void start(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  switch (a.kv.head_dim) {
    case 64: return start<Type, 64, 4>(c, a, least_rows, status);
    case 80: return start<Type, 80, 4>(c, a, least_rows, status);
    case 96: return start<Type, 96, 4>(c, a, least_rows, status);
    default: return start<Type, 128, 4>(c, a, least_rows, status);
  }
}

}  // namespace

bool prefill_codes_takes(const Context* c, const AttentionArgs& a) {
  const int32_t d = a.kv.head_dim;
  return c->fast && c->capability == 90 && is_coded(a.kv.type) && (d == 64 || d == 80 || d == 96 || d == 128) && a.heads / a.kv.kv_heads <= query_rows &&
         a.k_stride % 4 == 0;
}

void prefill_codes(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  if (a.kv.type == KvType::int8)
    start<KvType::int8>(c, a, least_rows, status);
  else
    start<KvType::uint4>(c, a, least_rows, status);
}

}  // namespace orlop::cuda
