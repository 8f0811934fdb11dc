// The kernels of attention, and what the table says of their memory; attention.cu chooses.
#pragma once
#include "backend/cuda/attention_decode.h"

namespace orlop::cuda {

struct StoreArgs;

// dims: 64, 80, 96, 128 or 256; a grid of x by y blocks, or of as many as take turns. False: not on this GPU, nothing was
// done. Of bf16 and fp16: a store of rows to do as well, or one of no rows; DecodePlan::kind.
bool decode_bf16(Context*, int32_t dims, const DecodeArgs&, const StoreArgs&, DecodeBlocks, unsigned x, unsigned y, PluginStatus*);
bool decode_f16(Context*, int32_t dims, const DecodeArgs&, const StoreArgs&, DecodeBlocks, unsigned x, unsigned y, PluginStatus*);
bool decode_int8(Context*, int32_t dims, const DecodeArgs&, unsigned x, unsigned y);
bool decode_uint4(Context*, int32_t dims, const DecodeArgs&, unsigned x, unsigned y);

// bf16 and fp16 in the order of attention_block.cuh; dims: 64, 80, 96 or 128.
void decode_exactly(Context*, const KvDesc&, const DecodeArgs&, unsigned x, unsigned y, PluginStatus*);

// Every type and shape, slowly.
void attend_plainly(Context*, const AttentionArgs&, PluginStatus*);

}  // namespace orlop::cuda
