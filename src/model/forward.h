// What the decoder's blocks share while a step runs: activations, weights, cache, device arrays.
#pragma once
#include <cstdint>

#include "model/kv_cache.h"
#include "model/weights.h"
#include "ops/kernels.h"

namespace orlop {

// Activation buffers, device memory, sized by ModelLimits at load; float32, attended and ffn narrow where
// the backend allows it.
struct Workspace {
  float* x = nullptr;       // [rows, dim] the residual stream
  float* h = nullptr;       // [rows, dim] its normed copy; after the layers, the kept rows
  float* qkv = nullptr;     // [rows, (heads + 2 kv_heads) * head_dim]
  float* attended = nullptr;  // [rows, heads * head_dim]
  float* ffn = nullptr;     // [rows, ffn]
  float* cos = nullptr;     // [rows, rope.dim / 2]
  float* sin = nullptr;
  float* logits = nullptr;  // [max_logit_rows, vocab]
  void* scratch = nullptr;  // for whichever kernel runs
};

// Addresses of one step's arrays on the device, see Batch.
struct DeviceBatch {
  struct Group {
    const AttentionSeq* seqs = nullptr;
    const int32_t* page_table = nullptr;
    const int32_t* slots = nullptr;
    int32_t seq_count = 0;
  };
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* logit_rows = nullptr;
  const SampleRow* samples = nullptr;  // [logit_rows] or null
  Group groups[max_cache_groups];
  int32_t rows = 0;
  int32_t logit_row_count = 0;
  int32_t max_context = 0;
};

struct Step {
  const Exec& exec;
  const Config& config;
  const KvCache& cache;
  const Workspace& work;
  const DeviceBatch& batch;
  int32_t rope_half;
};

struct LinearUse {
  bool accumulate = false;
  const float* norm = nullptr;  // [k]: x is normed first
  bool narrow_x = false, narrow_out = false;  // see MatmulArgs
};
// x W^T (+ bias) of this step's rows; the one way a linear layer is applied.
void linear(const Step& step, const Linear& weights, const float* x, float* out, int64_t rows,
            const LinearUse& use = {});
// Whether what only `reader` reads may be narrow.
bool narrow_for(const Step& step, const Linear& reader);

// The decoder's blocks (block/): each reads and updates the residual stream work.x.
void attention_block(const Step& step, const LayerWeights& weights, int32_t layer);
void mlp_block(const Step& step, const LayerWeights& weights);

}  // namespace orlop
