// Attention of few rows over int8 and uint4 pages.
#include "backend/cuda/attention_coded.cuh"

#include "backend/cuda/attention_entries.h"

namespace orlop::cuda {
namespace {

template <KvType type, int dims, int key_tile>
void start(Context* c, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  using Narrow = decode::Coded<type, dims, 8, key_tile>;
  if (a.tile_columns <= 8) return decode::start_one<Narrow>(c, a, grid, decode::attend_codes<Narrow>, status);
  if constexpr (dims <= 128) {
    using Wide = decode::Coded<type, dims, 16, key_tile>;
    decode::start_one<Wide>(c, a, grid, decode::attend_codes<Wide>, status);
  }
}

template <KvType type, int key_tile>
void start(Context* c, int32_t dims, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  switch (dims) {
    case 64: return start<type, 64, key_tile>(c, a, grid, status);
    case 80: return start<type, 80, key_tile>(c, a, grid, status);
    case 96: return start<type, 96, key_tile>(c, a, grid, status);
    case 128: return start<type, 128, key_tile>(c, a, grid, status);
    default: return start<type, 256, key_tile>(c, a, grid, status);
  }
}

}  // namespace

void decode_int8(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  if (a.key_tile == 32)
    start<KvType::int8, 32>(c, dims, a, dim3(x, y), status);
  else
    start<KvType::int8, 16>(c, dims, a, dim3(x, y), status);
}
void decode_uint4(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  start<KvType::uint4, 16>(c, dims, a, dim3(x, y), status);
}

}  // namespace orlop::cuda
