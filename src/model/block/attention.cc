// Self-attention: norm, fused q|k|v, rotary embedding and cache store, attention over the cache,
// output projection added to the residual stream.
#include <cmath>

#include "model/forward.h"
#include "ops/ops.h"

namespace orlop {

void attention_block(const Step& s, const LayerWeights& w, int32_t layer) {
  const Config& c = s.config;
  const int group = s.cache.group_of(layer);
  const DeviceBatch::Group& batch = s.batch.groups[group];
  const int64_t rows = s.batch.rows;
  const int64_t qkv_width = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
  const int64_t out_width = int64_t{c.heads} * c.head_dim;

  const bool narrow = narrow_for(s, w.out);
  linear(s, w.qkv, s.work.x, s.work.qkv, rows, {.norm = w.attn_norm});
  ops::kv_store(s.exec, {.kv = s.cache.desc(),
                         .heads = c.heads,
                         .qkv = s.work.qkv,
                         .qkv_stride = qkv_width,
                         .rows = rows,
                         .slots = batch.slots,
                         .cos = s.work.cos,
                         .sin = s.work.sin,
                         .half = s.rope_half,
                         .q_norm = w.q_norm,
                         .k_norm = w.k_norm,
                         .eps = c.norm_eps,
                         .pages = s.cache.pages(layer),
                         .seqs = batch.seqs,
                         .seq_count = batch.seq_count,
                         .tails = s.cache.tails(layer)});
  const float* k = s.work.qkv + int64_t{c.heads} * c.head_dim;
  ops::attention(s.exec, {.kv = s.cache.desc(),
                          .heads = c.heads,
                          .q = s.work.qkv,
                          .q_stride = qkv_width,
                          .k = k,
                          .k_stride = qkv_width,
                          .tails = s.cache.tails(layer),
                          .out = s.work.attended,
                          .out_stride = out_width,
                          .seqs = batch.seqs,
                          .seq_count = batch.seq_count,
                          .rows = s.batch.rows,
                          .max_context = s.batch.max_context,
                          .page_table = batch.page_table,
                          .pages = s.cache.pages(layer),
                          .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                          .window = s.cache.groups()[static_cast<size_t>(group)].window,
                          .workspace = s.work.scratch,
                          .narrow_out = narrow});
  if (s.cache.tails(layer))
    ops::kv_tail(s.exec, {.kv = s.cache.desc(),
                          .k = k,
                          .k_stride = qkv_width,
                          .rows = rows,
                          .seqs = batch.seqs,
                          .seq_count = batch.seq_count,
                          .tails = s.cache.tails(layer)});
  linear(s, w.out, s.work.attended, s.work.x, rows, {.accumulate = true, .narrow_x = narrow});
}

}  // namespace orlop
