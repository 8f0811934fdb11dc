// The ops apart from matmul, ISA by ISA: functions over a range of rows, pure arithmetic. ops.cc
// spreads them over the threads and puts them into the table. Included by ISA files: no STL.
#pragma once
#include "ops/kernels.h"

namespace orlop::cpu {

// A block of queries that share heads of keys and values: rows [row, row + rows) of one
// sequence, heads [head, head + heads), over key chunks [chunk_begin, chunk_end).
struct AttentionBlock {
  const AttentionSeq* seq;
  int32_t kv_head, head, heads;
  int32_t kv_heads;      // heads of keys and values that these queries use; above 1: one row alone
  bool stream;           // fetch each next chunk early (attention_pages.h); one row alone
  int32_t row, rows;  // counted from the sequence's first row of this call
  int32_t chunk_begin, chunk_end;
  // Not null: leave each chunk's (max, sum, weighted values) here instead of combining them. One
  // record of attention_record(head_dim) floats per (row of the call, head, chunk).
  float* partials;
  int32_t partial_chunks;  // records per (row, head)
};
constexpr int32_t attention_queries = 32;       // rows * heads of a block at most
constexpr int32_t attention_block_dims = 4096;  // rows * heads * padded head_dim at most

constexpr int32_t attention_scratch_dims = 512;  // head_dim of codes, and of tiles of 8 tokens
constexpr int32_t seal_dims = 256;               // of a key tile sealed at a time

// Accumulators are whole vectors of 16; max and sum follow them.
[[gnu::always_inline]] constexpr int32_t padded_dim(int32_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}
[[gnu::always_inline]] constexpr int64_t attention_record(int32_t head_dim) {
  return padded_dim(head_dim) + 16;
}

// The parts of sampling that walk the whole vocabulary. Sums run in a fixed order of lanes.
struct SampleVec {
  // Index of the largest (the lowest of equals) and its value; -1 if any is NaN.
  int64_t (*argmax)(const float* x, int64_t n, float* max);
  double (*sum_exp)(const float* x, int64_t n, float max);  // sum of exp(x - max), max finite
  void (*weights)(float* x, int64_t n, float max, float temperature);  // exp((x - max) / t)
  double (*sum)(const float* x, int64_t n);
};

// Range functions, one set an ISA; ops.cc says which stand in for those that an ISA lacks.
namespace ref {
void rope_table(const RopeTableArgs& a, int64_t begin, int64_t end);
void kv_store(const KvStoreArgs& a, int64_t begin, int64_t end);
// Over tasks of a sequence and a key head; the rows' keys stand as kv_store leaves them.
void kv_seal(const KvStoreArgs& a, int64_t begin, int64_t end);
void kv_tail(const KvTailArgs& a, int64_t begin, int64_t end);
void norm(const NormArgs& a, int64_t begin, int64_t end);
void gather(const GatherArgs& a, int64_t begin, int64_t end);
void attention(const AttentionArgs& a, const AttentionBlock& block);
void attention_combine(const AttentionArgs& a, const AttentionBlock& block);
extern const SampleVec sample_vec;
}  // namespace ref
namespace avx2 {
void kv_store(const KvStoreArgs& a, int64_t begin, int64_t end);
void norm(const NormArgs& a, int64_t begin, int64_t end);
void attention(const AttentionArgs& a, const AttentionBlock& block);
void attention_combine(const AttentionArgs& a, const AttentionBlock& block);
extern const SampleVec sample_vec;
}  // namespace avx2
namespace avx512 {
void kv_store(const KvStoreArgs& a, int64_t begin, int64_t end);
void norm(const NormArgs& a, int64_t begin, int64_t end);
void attention(const AttentionArgs& a, const AttentionBlock& block);
void attention_combine(const AttentionArgs& a, const AttentionBlock& block);
extern const SampleVec sample_vec;
}  // namespace avx512
namespace avx512bf16 {
void attention(const AttentionArgs& a, const AttentionBlock& block);
void attention_combine(const AttentionArgs& a, const AttentionBlock& block);
}  // namespace avx512bf16
namespace neon {
void kv_store(const KvStoreArgs& a, int64_t begin, int64_t end);
void norm(const NormArgs& a, int64_t begin, int64_t end);
void attention(const AttentionArgs& a, const AttentionBlock& block);
void attention_combine(const AttentionArgs& a, const AttentionBlock& block);
extern const SampleVec sample_vec;
}  // namespace neon

// Fill the table's entries for these ops (ops.cc).
void fill_ops_ref(Kernels& k);
void fill_ops_avx2(Kernels& k);
void fill_ops_avx512(Kernels& k, bool has_bf16);
void fill_ops_neon(Kernels& k);

}  // namespace orlop::cpu
