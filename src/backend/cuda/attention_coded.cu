// Attention of few rows over int8 and uint4 pages.
#include "backend/cuda/attention_coded.cuh"

#include <algorithm>

#include "backend/cuda/attention_entries.h"

namespace orlop::cuda {
namespace {

template <class K>
bool start_one(Context* c, DecodeArgs a, dim3 grid) {
  // As many stages as there is room for beside the blocks that are to be resident; fewer blocks where that is none.
  constexpr int kept = 1024, beside = kept + 128;  // of a multiprocessor's shared memory, for each block: its own; and what has names
  const int64_t all = static_cast<int64_t>(c->block_shared) + kept, blocks = int64_t{grid.x} * grid.y;
  const auto stages_of = [&](int resident) {
    int n = std::min(K::most_stages, (a.chunk + 32 * decode::warps - 1) / (32 * decode::warps));  // no more than a warp has units
    while (n > 0 && K::shared(n) + beside > all / resident) --n;
    return n;
  };
  int resident = static_cast<int>(std::min<int64_t>(std::max(K::resident, 2), (blocks + c->multiprocessors - 1) / c->multiprocessors));
  while (resident > 1 && stages_of(resident) == 0) --resident;
  a.stages = stages_of(resident);
  if (a.stages == 0) return false;
  launch(c, decode::attend_codes<K>, Shape{grid, dim3(decode::threads), static_cast<size_t>(K::shared(a.stages))}, a);
  return true;
}

template <KvType type, int dims, int block>
bool start(Context* c, const DecodeArgs& a, dim3 grid) {
  if (a.tile_columns <= 8) return start_one<decode::Coded<type, dims, 8, block>>(c, a, grid);
  if constexpr (dims <= 128) return start_one<decode::Coded<type, dims, 16, block>>(c, a, grid);
  return false;
}

template <KvType type, int block>
bool start(Context* c, int32_t dims, const DecodeArgs& a, dim3 grid) {
  switch (dims) {
    case 64: return start<type, 64, block>(c, a, grid);
    case 80: return start<type, 80, block>(c, a, grid);
    case 96: return start<type, 96, block>(c, a, grid);
    case 128: return start<type, 128, block>(c, a, grid);
    default: return start<type, 256, block>(c, a, grid);
  }
}

}  // namespace

bool decode_int8(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y) {
  return a.block_tokens == 32 ? start<KvType::int8, 32>(c, dims, a, dim3(x, y)) : start<KvType::int8, 16>(c, dims, a, dim3(x, y));
}
bool decode_uint4(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y) {
  return a.block_tokens == 32 ? start<KvType::uint4, 32>(c, dims, a, dim3(x, y)) : start<KvType::uint4, 16>(c, dims, a, dim3(x, y));
}

}  // namespace orlop::cuda
