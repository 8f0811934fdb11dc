// Attention of few rows over bf16 and fp16 pages.
#include "backend/cuda/attention_decode.cuh"

#include "backend/cuda/attention_entries.h"
#include "backend/cuda/attention_start.cuh"

namespace orlop::cuda {
namespace {

template <KvType type, int dims>
bool start(Context* c, const DecodeArgs& a, const StoreArgs& s, bool whole, dim3 grid, PluginStatus* status) {
  if constexpr (dims <= 128)
    if (whole) {
      using Narrow = decode::Plain<type, dims, 8, whole_warps, whole_stages(dims)>;
      using Wide = decode::Plain<type, dims, 16, whole_warps, whole_stages(dims)>;
      return a.tile_columns <= 8 ? decode::start_one<Narrow>(c, a, grid, decode::attend<Narrow>, status, s)
                                 : decode::start_one<Wide>(c, a, grid, decode::attend<Wide>, status, s);
    }
  if constexpr (dims == 128)  // two stages where three do not fit (compute capability 8.9)
    if (decode::Plain<type, dims, 16>::shared > static_cast<int64_t>(c->block_shared)) {
      using Small = decode::Plain<type, dims, 16, decode_warps, 2>;
      return decode::start_one<Small>(c, a, grid, decode::attend<Small>, status, s);
    }
  using Narrow = decode::Plain<type, dims, 8>;
  // Of blocks that come in several turns, each with few keys, three side by side hide each other's beginnings and ends
  // better than two that have more on its way.
  if constexpr (dims == 128)
    if (a.tile_columns <= 8 && a.chunk <= 1024 && int64_t{grid.x} * grid.y >= int64_t{6} * c->multiprocessors) {
      using Many = decode::Plain<type, dims, 8, decode_warps, 2, 3>;
      return decode::start_one<Many>(c, a, grid, decode::attend<Many>, status, s);
    }
  if (a.tile_columns <= 8) return decode::start_one<Narrow>(c, a, grid, decode::attend<Narrow>, status, s);
  if constexpr (dims <= 128) {
    using Wide = decode::Plain<type, dims, 16>;
    return decode::start_one<Wide>(c, a, grid, decode::attend<Wide>, status, s);
  }
  return false;
}

template <KvType type>
bool start(Context* c, int32_t dims, const DecodeArgs& a, const StoreArgs& s, bool whole, dim3 grid, PluginStatus* status) {
  switch (dims) {
    case 64: return start<type, 64>(c, a, s, whole, grid, status);
    case 80: return start<type, 80>(c, a, s, whole, grid, status);
    case 96: return start<type, 96>(c, a, s, whole, grid, status);
    case 128: return start<type, 128>(c, a, s, whole, grid, status);
    default: return start<type, 256>(c, a, s, whole, grid, status);
  }
}

}  // namespace

bool decode_bf16(Context* c, int32_t dims, const DecodeArgs& a, const StoreArgs& s, bool whole, unsigned x, unsigned y, PluginStatus* status) {
  return start<KvType::bf16>(c, dims, a, s, whole, dim3(x, y), status);
}
bool decode_f16(Context* c, int32_t dims, const DecodeArgs& a, const StoreArgs& s, bool whole, unsigned x, unsigned y, PluginStatus* status) {
  return start<KvType::f16>(c, dims, a, s, whole, dim3(x, y), status);
}

}  // namespace orlop::cuda
