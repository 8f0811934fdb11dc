// Attention: which kernel takes what. Sequences with few rows are bound by memory, those with many by
// arithmetic; a call may hold both.
#include <algorithm>
#include <climits>

#include "backend/cuda/attention_prefill.cuh"

#include "backend/cuda/attention_entries.h"
#include "backend/cuda/entries.h"
#include "backend/cuda/kv_store.cuh"

namespace orlop::cuda {
namespace {

// Of a sequence: from so many rows on it is prefill()'s. Of one alone after a long context, whose keys blocks can
// share (attention_split.cuh), fewer will do, if decode() would read the keys more than once.
int32_t many_rows(const Context* c, const AttentionArgs& a) {
  const int32_t seen = a.window ? std::min(a.window, a.max_context) : a.max_context;
  const bool shared = c->fast && c->may_wait && c->capability == 90 && a.seq_count == 1 && seen >= 2048;
  return shared ? std::max(4, 16 / (a.heads / a.kv.kv_heads)) : 16;
}

// Of more rows, blocks that do not stay come in several turns, each of which would wait for what a kernel of its own does
// beside the others.
constexpr int32_t stored_rows = 32;

// exactly: in the order of sums that prefill() has in deterministic mode.
void decode(Context* c, const AttentionArgs& a, int32_t too_many, bool exactly, PluginStatus* status) {
  const KvLayout l(a.kv);
  const bool plain = !exactly && !is_coded(a.kv.type), single = c->fast && plain && a.rows == a.seq_count;
  const bool hopper = c->capability >= 90 && c->block_shared >= size_t{227} << 10;
  const DecodePlan p = plan_decode(a.kv, a.heads, a.rows, a.seq_count, a.max_context, a.window, c->multiprocessors, c->fast, single, hopper);
  if ((p.splits > 1 || p.kind == DecodeBlocks::turns) && !have_counters(c, status)) return;
  DecodeArgs d{};
  d.q = a.q;
  d.k = a.k;
  d.tails = static_cast<const unsigned char*>(a.tails);
  d.out = a.out;
  d.seqs = a.seqs;
  d.page_table = a.page_table;
  d.pages = static_cast<const unsigned char*>(a.pages);
  d.records = static_cast<float*>(a.workspace);
  d.done = c->attention_done;
  d.q_stride = a.q_stride;
  d.k_stride = a.k_stride;
  d.out_stride = a.out_stride;
  d.page_bytes = static_cast<uint32_t>(l.page_bytes);
  d.head_bytes = l.head_bytes;
  d.values_at = static_cast<uint32_t>(l.values_at);
  d.kv_heads = l.kv_heads;
  d.group = a.heads / l.kv_heads;
  d.head_parts = p.head_parts;
  d.part_heads = p.part_heads;
  d.page_tokens = l.page_tokens;
  d.page_magic = page_magic(l.page_tokens);
  d.block_tokens = l.block_tokens;
  d.seq_count = a.seq_count;
  d.one_each = a.rows == a.seq_count;
  d.too_many = too_many;
  d.tile_rows = p.tile_rows;
  d.tile_columns = p.tile_rows * p.part_heads;
  d.window = a.window;
  d.chunk = p.chunk;
  d.splits = p.splits;
  d.walks = p.walks;
  d.shared_by = p.shared_by;
  d.narrow_out = a.narrow_out;
  d.scale_log2 = a.scale * 1.44269504088896340736f;
  const auto x = static_cast<unsigned>(p.blocks * std::max(1, p.shared_by)), y = static_cast<unsigned>(p.splits);
  if (exactly) return decode_exactly(c, a.kv, d, x, y, status);
  StoreArgs s{};  // of rows that kv_store has just put: one kernel less to wait for
  const bool stores = single && (a.rows <= stored_rows || p.kind == DecodeBlocks::turns) && reinterpret_cast<uintptr_t>(a.q) % 16 == 0 && take_store(c, a, &s);
  bool done = false;
  switch (a.kv.type) {
    case KvType::bf16:
      done = decode_bf16(c, l.head_dim, d, s, p.kind, x, y, status);
      break;
    case KvType::f16:
      done = decode_f16(c, l.head_dim, d, s, p.kind, x, y, status);
      break;
    case KvType::int8:
      done = decode_int8(c, l.head_dim, d, x, y);
      break;
    default:
      done = decode_uint4(c, l.head_dim, d, x, y);
  }
  if (done) return;
  if (stores) put_store(c, s);
  attend_plainly(c, a, status);
}

}  // namespace

bool have_counters(Context* c, PluginStatus* status) {
  if (c->attention_done) return true;
  const Here here(c, status);
  constexpr size_t bytes = sizeof(uint32_t) * most_records;
  uint32_t* counters = nullptr;
  if (!here || !good(cudaMalloc(&counters, bytes), "attention's counters", status)) return false;
  if (!good(cudaMemsetAsync(counters, 0, bytes, c->stream), "attention's counters", status)) {
    cudaFree(counters);
    return false;
  }
  c->attention_done = counters;
  return true;
}

void attention(Context* c, const AttentionArgs& a, PluginStatus* status) {
  const bool plain_type = a.kv.type == KvType::bf16 || a.kv.type == KvType::f16;
  const bool even = a.q_stride % 4 == 0 && a.out_stride % 4 == 0 && a.k_stride % 4 == 0;  // rows of whole 16 bytes
  if (!decode_takes(a.kv) || !even || !pages_are_exact(a.max_context, a.kv.page_tokens) || KvLayout(a.kv).page_bytes >> 31) return attend_plainly(c, a, status);
  const bool pair = prefill_takes(c, a), exactly = pair && plain_type && !c->fast;
  const int32_t many = many_rows(c, a);
  if (!pair || a.rows < many || a.rows == a.seq_count) return decode(c, a, INT_MAX, exactly, status);
  prefill(c, a, many, status);
  if (a.seq_count > 1) decode(c, a, many, exactly, status);  // of one sequence, all rows are prefill()'s
}

}  // namespace orlop::cuda
