#include "model/side.h"

#include <algorithm>

#include "base/checked.h"

namespace orlop {

size_t batch_bytes(const ModelLimits& limits, size_t groups, size_t sampling) {
  const auto rows = static_cast<size_t>(limits.max_rows);
  const size_t pages = static_cast<size_t>(limits.max_seqs) *
                       static_cast<size_t>(div_up(limits.max_context, limits.page_tokens));
  const size_t group = Staging::room<AttentionSeq>(static_cast<size_t>(limits.max_seqs)) +
                       Staging::room<int32_t>(pages) + Staging::room<int32_t>(rows);
  return 3 * Staging::room<int32_t>(rows) + Staging::room<SampleRow>(rows) + groups * group + sampling;
}

Side::Side(const Part& part, bool last, const Config& config, const ModelLimits& limits,
           const KvCache& cache, const Weights& weights, const RopeFrequencies& rope, size_t sampling)
    : exec(part.exec),
      begin(part.begin),
      end(part.end),
      staging(*exec.device, batch_bytes(limits, cache.groups().size(), sampling)),
      inv_freq(*exec.device, rope.inv_freq.size() * sizeof(float)) {
  const Kernels& k = *exec.kernels;
  const auto rows = static_cast<size_t>(limits.max_rows);
  const auto dim = static_cast<size_t>(config.dim);
  const size_t q = static_cast<size_t>(config.heads) * static_cast<size_t>(config.head_dim);
  const size_t kv = static_cast<size_t>(config.kv_heads) * static_cast<size_t>(config.head_dim);
  const auto half = static_cast<size_t>(config.rope.dim / 2);
  const auto logit_rows = static_cast<size_t>(last ? limits.max_logit_rows : 0);
  const size_t layer_rows = begin < end ? rows : 0;

  size_t scratch = 0;
  if (layer_rows)
    scratch = k.attention_workspace(cache.desc(), config.heads, limits.max_rows, limits.max_context);
  if (last) {
    scratch = std::max(scratch, k.sample_workspace(limits.max_logit_rows, config.vocab));
    scratch = std::max(scratch, k.matmul_workspace(weights.head.desc, limits.max_logit_rows));
  }
  for (int32_t i = begin; i < end; ++i) {
    const LayerWeights& l = weights.layers[static_cast<size_t>(i)];
    for (const Linear* w : {&l.qkv, &l.out, &l.gate_up, &l.down})
      scratch = std::max(scratch, k.matmul_workspace(w->desc, limits.max_rows));
  }

  // One allocation for all activations.
  const struct {
    float** slot;
    size_t count;
  } buffers[] = {
      {&work.x, rows * dim},
      {&work.h, rows * dim},
      {&work.qkv, layer_rows * (q + 2 * kv)},
      {&work.attended, layer_rows * q},
      {&work.ffn, layer_rows * static_cast<size_t>(config.ffn_dim)},
      {&work.cos, layer_rows * half},
      {&work.sin, layer_rows * half},
      {&work.logits, logit_rows * static_cast<size_t>(config.vocab)},
  };
  size_t bytes = 0;
  for (const auto& b : buffers) bytes += round_up(b.count * sizeof(float), size_t{256});
  storage = DeviceBuffer(*exec.device, bytes + scratch);
  auto* at = storage.as<std::byte>();
  for (const auto& b : buffers) {
    *b.slot = reinterpret_cast<float*>(at);
    at += round_up(b.count * sizeof(float), size_t{256});
  }
  work.scratch = at;
  exec.device->upload(inv_freq.data(), rope.inv_freq.data(), inv_freq.bytes());
}

void Side::add_rows(const Batch& from, size_t groups) {
  batch.rows = static_cast<int32_t>(from.tokens.size());
  batch.max_context = from.max_context;
  batch.logit_row_count = static_cast<int32_t>(from.logit_rows.size());
  batch.tokens = staging.add(from.tokens);
  batch.positions = staging.add(from.positions);
  batch.logit_rows = staging.add(from.logit_rows);
  for (size_t g = 0; g < groups; ++g) {
    batch.groups[g].seq_count = static_cast<int32_t>(from.groups[g].seqs.size());
    batch.groups[g].seqs = staging.add(from.groups[g].seqs);
    batch.groups[g].slots = staging.add(from.groups[g].slots);
  }
}

void Side::add_page_tables(const Batch& from, size_t groups) {
  for (size_t g = 0; g < groups; ++g) batch.groups[g].page_table = staging.add(from.groups[g].page_table);
}

}  // namespace orlop
