// Attention over int8 and uint4 pages.
#include "backend/cuda/attention_decode.cuh"

#include "backend/cuda/attention_entries.h"

namespace orlop::cuda {

void decode_int8(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  decode::start<KvType::int8>(c, dims, a, dim3(x, y), status);
}
void decode_uint4(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  decode::start<KvType::uint4>(c, dims, a, dim3(x, y), status);
}

}  // namespace orlop::cuda
