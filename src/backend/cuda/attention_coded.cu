// Attention of few rows over int8 and uint4 pages.
#include "backend/cuda/attention_coded.cuh"

#include "backend/cuda/attention_entries.h"
#include "backend/cuda/attention_start.cuh"

namespace orlop::cuda {
namespace {

template <KvType type, int dims, int key_tile>
bool start(Context* c, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  using Narrow = decode::Coded<type, dims, 8, key_tile>;
  if (a.tile_columns <= 8) return decode::start_one<Narrow>(c, a, grid, decode::attend_codes<Narrow>, status);
  if constexpr (dims <= 128) {
    using Wide = decode::Coded<type, dims, 16, key_tile>;
    return decode::start_one<Wide>(c, a, grid, decode::attend_codes<Wide>, status);
  }
  return false;
}

template <KvType type, int key_tile>
bool start(Context* c, int32_t dims, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  switch (dims) {
    case 64: return start<type, 64, key_tile>(c, a, grid, status);
    case 80: return start<type, 80, key_tile>(c, a, grid, status);
    case 96: return start<type, 96, key_tile>(c, a, grid, status);
    case 128: return start<type, 128, key_tile>(c, a, grid, status);
    default: return start<type, 256, key_tile>(c, a, grid, status);
  }
}

}  // namespace

bool decode_int8(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  return a.key_tile == 32 ? start<KvType::int8, 32>(c, dims, a, dim3(x, y), status) : start<KvType::int8, 16>(c, dims, a, dim3(x, y), status);
}
bool decode_uint4(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  return start<KvType::uint4, 16>(c, dims, a, dim3(x, y), status);
}

}  // namespace orlop::cuda
