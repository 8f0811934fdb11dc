// Attention of few rows over bf16 and fp16 pages.
#include "backend/cuda/attention_decode.cuh"

#include "backend/cuda/attention_entries.h"

namespace orlop::cuda {

void decode_bf16(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  decode::start<KvType::bf16>(c, dims, a, dim3(x, y), status);
}
void decode_f16(Context* c, int32_t dims, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  decode::start<KvType::f16>(c, dims, a, dim3(x, y), status);
}

}  // namespace orlop::cuda
