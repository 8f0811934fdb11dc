// Attention of prompts on Hopper: caches of bf16 and fp16.
#include <type_traits>

#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/tensor_map.h"

namespace orlop::cuda {
namespace {

// The pool as a tensor of 8 tokens' rows: elements, tokens, panels (where rows are whole ones), eights of tokens.
bool map_pages(const AttentionArgs& a, int32_t box, bool whole, CUtensorMap* map, PluginStatus* status) {
  const TensorMapEncode encode = tensor_map_encode();
  const auto type = a.kv.type == KvType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto dims = static_cast<cuuint64_t>(a.kv.head_dim);
  const cuuint64_t sizes[] = {whole ? 64 : dims, 8, whole ? dims / 64 : 1, INT_MAX / 8}, strides[] = {dims * 2, 128, dims * 16};
  const cuuint32_t boxes[] = {64, 8, static_cast<cuuint32_t>(sizes[2]), static_cast<cuuint32_t>(box / 8)}, steps[] = {1, 1, 1, 1};
  if (encode && encode(map, type, 4, const_cast<void*>(a.pages), sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
    return true;
  status->code = -12;
  std::snprintf(status->text, sizeof status->text, "attention: the driver makes no tensor map of the cache (head_dim %d, page_tokens %d)", a.kv.head_dim,
                a.kv.page_tokens);
  return false;
}

template <class T, int Dims, int Stages, bool Turns, bool Exact, bool Whole = Dims % 64 == 0, int Keys = (Dims > 128 ? 64 : 128)>
void start(Context* c, const AttentionArgs& given, int32_t least_rows, PluginStatus* status) {
  using P = Plan<Dims, Keys, Stages, Whole>;
  static_assert(P::shared <= 232448);
  constexpr KvType type = std::is_same_v<T, __half> ? KvType::f16 : KvType::bf16;
  const auto kernel = attend_hopper<T, type, Dims, Keys, Stages, Turns, Exact, Whole, false>;
  if (!allow_shared(c, reinterpret_cast<const void*>(kernel), P::shared, status)) return;
  AttentionArgs a = given;
  a.max_context = 0;  // no kernel reads it, and it would make every step's list another
  int32_t box = P::keys;  // the largest that never crosses a page's end
  while (a.kv.page_tokens % box) box /= 2;
  CUtensorMap map{};
  if (!map_pages(a, box, P::whole, &map, status)) return;
  const int32_t positions = tile_positions(a, query_rows);
  if constexpr (!Exact) {
    const auto split = attend_hopper<T, type, Dims, Keys, Stages, Turns, false, Whole, true>;
    const SplitPlan plan = plan_split(c, given, least_rows, P::keys);
    if (plan.parts > 1)
      return launch(c, split, plan.shape(P::shared), a, map, plan.positions, box, least_rows, a.scale * 1.4426950408889634f, plan.parts, c->attention_done);
  }
  const int64_t most = std::min<int64_t>(most_tiles(a, positions) * a.kv.kv_heads, c->multiprocessors);
  launch(c, kernel, Shape{dim3(blocks(most, 1)), dim3(hopper_threads), P::shared}, a, map, positions, box, least_rows, a.scale * 1.4426950408889634f, 1, nullptr);
}

template <class T>
void start(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  switch (a.kv.head_dim) {
    case 64: return start<T, 64, 4, true, false>(c, a, least_rows, status);
    case 80: return start<T, 80, 2, true, false>(c, a, least_rows, status);
    case 96: return start<T, 96, 2, true, false>(c, a, least_rows, status);
    case 128: return start<T, 128, 2, true, false>(c, a, least_rows, status);
    default: return start<T, 256, 2, true, false>(c, a, least_rows, status);
  }
}
template <class T>
void start_exactly(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  switch (a.kv.head_dim) {
    case 64: return start<T, 64, 4, true, true, true, block_keys>(c, a, least_rows, status);
    case 80: return start<T, 80, 4, true, true, false, block_keys>(c, a, least_rows, status);
    case 96: return start<T, 96, 4, true, true, false, block_keys>(c, a, least_rows, status);
    default: return start<T, 128, 4, true, true, true, block_keys>(c, a, least_rows, status);
  }
}

}  // namespace

bool prefill_hopper_takes(const Context* c, const AttentionArgs& a) {
  const int32_t d = a.kv.head_dim;
  return c->capability == 90 && (a.kv.type == KvType::bf16 || a.kv.type == KvType::f16) && (d == 64 || d == 80 || d == 96 || d == 128 || d == 256) &&
         a.heads / a.kv.kv_heads <= query_rows && a.kv.page_tokens % 8 == 0;
}

bool prefill_exactly_takes(const Context* c, const AttentionArgs& a) { return prefill_hopper_takes(c, a) && prefill_blocks_takes(c, a); }

void prefill_exactly(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  if (a.kv.type == KvType::bf16)
    start_exactly<__nv_bfloat16>(c, a, least_rows, status);
  else
    start_exactly<__half>(c, a, least_rows, status);
}

void prefill_hopper(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  if (a.kv.type == KvType::bf16)
    start<__nv_bfloat16>(c, a, least_rows, status);
  else
    start<__half>(c, a, least_rows, status);
}

}  // namespace orlop::cuda
