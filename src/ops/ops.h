// Ops as the model calls them: every shape rule is checked here, once, and then the table's kernel
// runs. A broken rule is a bug of ours: Error(internal) naming op and rule.
#pragma once
#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop::ops {

// Error(unsupported) naming the first op that the table lacks.
void check_table(const Kernels& kernels);

// What a matrix must look like to be packed: Error(unsupported) naming the type and k otherwise.
void check_linear(const LinearDesc& desc, const char* what);

void matmul(const Exec& exec, const MatmulArgs& args);
void embed(const Exec& exec, const EmbedArgs& args);
void rope_table(const Exec& exec, const RopeTableArgs& args);
void kv_store(const Exec& exec, const KvStoreArgs& args);
void attention(const Exec& exec, const AttentionArgs& args);
void kv_tail(const Exec& exec, const KvTailArgs& args);
void norm(const Exec& exec, const NormArgs& args);
void gather(const Exec& exec, const GatherArgs& args);
void sample(const Exec& exec, const SampleArgs& args);

}  // namespace orlop::ops
