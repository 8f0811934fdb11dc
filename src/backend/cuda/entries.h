// The kernels' entries, one file each; context.cu puts them into the table.
#pragma once
#include "backend/cuda/plugin.h"

namespace orlop::cuda {

void matmul(Context*, const MatmulArgs&, PluginStatus*);
void embed(Context*, const EmbedArgs&, PluginStatus*);
void rope_table(Context*, const RopeTableArgs&, PluginStatus*);
void kv_store(Context*, const KvStoreArgs&, PluginStatus*);
void kv_tail(Context*, const KvTailArgs&, PluginStatus*);
void attention(Context*, const AttentionArgs&, PluginStatus*);
bool have_counters(Context*, PluginStatus*);  // the context's, of blocks that share attention's work: zero between calls
void norm(Context*, const NormArgs&, PluginStatus*);
void gather(Context*, const GatherArgs&, PluginStatus*);
void sample(Context*, const SampleArgs&, PluginStatus*);

}  // namespace orlop::cuda
