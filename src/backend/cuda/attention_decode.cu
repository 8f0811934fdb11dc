// Attention of few rows over bf16 and fp16 pages.
#include "backend/cuda/attention_decode.cuh"

#include "backend/cuda/attention_entries.h"
#include "backend/cuda/attention_start.cuh"
#include "backend/cuda/attention_turns.cuh"
#include "backend/cuda/tensor_map.h"

namespace orlop::cuda {
namespace {

// As many blocks as run at a time.
template <class K>
bool start_turns(Context* c, const DecodeArgs& a, const StoreArgs& s, PluginStatus* status) {
  // Of all pages: 64 dimensions, rows of keys or values, more dimensions, keys and values.
  const TensorMapEncode encode = tensor_map_encode();
  const cuuint64_t sizes[] = {64, INT32_MAX, K::dims / 64, 2}, strides[] = {K::row_bytes, 128, a.values_at};
  const cuuint32_t box[] = {64, K::unit, K::dims / 64, 2}, steps[] = {1, 1, 1, 1};
  CUtensorMap map{};
  if (!encode || encode(&map, K::type == KvType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<unsigned char*>(a.pages), sizes,
                        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    return false;
  return decode::start_one<K>(c, a, dim3(static_cast<unsigned>(K::resident * c->multiprocessors)), decode::attend_turns<K>, status, s, map);
}

template <KvType type, int dims>
bool start(Context* c, const DecodeArgs& a, const StoreArgs& s, DecodeBlocks kind, dim3 grid, PluginStatus* status) {
  if constexpr (dims <= 128)
    if (kind == DecodeBlocks::whole) {
      using Narrow = decode::Plain<type, dims, 8, whole_warps, whole_stages(dims)>;
      using Wide = decode::Plain<type, dims, 16, whole_warps, whole_stages(dims)>;
      return a.tile_columns <= 8 ? decode::start_one<Narrow>(c, a, grid, decode::attend<Narrow>, status, s)
                                 : decode::start_one<Wide>(c, a, grid, decode::attend<Wide>, status, s);
    }
  if constexpr (dims == 64 || dims == 128)
    if (kind == DecodeBlocks::turns && start_turns<decode::Turns<type, dims>>(c, a, s, status)) return true;
  if constexpr (dims == 128)  // two stages where three do not fit (compute capability 8.9)
    if (decode::Plain<type, dims, 16>::shared > static_cast<int64_t>(c->block_shared)) {
      using Small = decode::Plain<type, dims, 16, decode_warps, 2>;
      return decode::start_one<Small>(c, a, grid, decode::attend<Small>, status, s);
    }
  using Narrow = decode::Plain<type, dims, 8>;
  if (a.tile_columns <= 8) return decode::start_one<Narrow>(c, a, grid, decode::attend<Narrow>, status, s);
  if constexpr (dims <= 128) {
    using Wide = decode::Plain<type, dims, 16>;
    return decode::start_one<Wide>(c, a, grid, decode::attend<Wide>, status, s);
  }
  return false;
}

template <KvType type>
bool start(Context* c, int32_t dims, const DecodeArgs& a, const StoreArgs& s, DecodeBlocks kind, dim3 grid, PluginStatus* status) {
  switch (dims) {
    case 64: return start<type, 64>(c, a, s, kind, grid, status);
    case 80: return start<type, 80>(c, a, s, kind, grid, status);
    case 96: return start<type, 96>(c, a, s, kind, grid, status);
    case 128: return start<type, 128>(c, a, s, kind, grid, status);
    default: return start<type, 256>(c, a, s, kind, grid, status);
  }
}

}  // namespace

bool decode_bf16(Context* c, int32_t dims, const DecodeArgs& a, const StoreArgs& s, DecodeBlocks kind, unsigned x, unsigned y, PluginStatus* status) {
  return start<KvType::bf16>(c, dims, a, s, kind, dim3(x, y), status);
}
bool decode_f16(Context* c, int32_t dims, const DecodeArgs& a, const StoreArgs& s, DecodeBlocks kind, unsigned x, unsigned y, PluginStatus* status) {
  return start<KvType::f16>(c, dims, a, s, kind, dim3(x, y), status);
}

}  // namespace orlop::cuda
