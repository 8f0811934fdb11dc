// Spreads the range functions of ops.h over the thread pool and puts them into the table.
#include "backend/cpu/ops.h"

#include <algorithm>

#include "backend/cpu/kv_layout.h"
#include "backend/cpu/sample.h"
#include "backend/cpu/threads.h"

namespace orlop::cpu {
namespace {

ThreadPool& pool(const Exec& exec) {
  return *static_cast<ThreadPool*>(exec.queue);
}

// An op whose rows are independent: body is a range function.
template <class Args, void (*body)(const Args&, int64_t, int64_t)>
void by_rows(const Exec& exec, const Args& args, int64_t grain) {
  pool(exec).run([](const void* a, int64_t begin, int64_t end,
                    int) { body(*static_cast<const Args*>(a), begin, end); },
                 &args, args.rows, grain);
}

// Rows worth a thread: below some ten thousand elements one thread is done before another wakes.
int64_t row_grain(int64_t elements_a_row) {
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(1, elements_a_row));
}

template <void (*body)(const RopeTableArgs&, int64_t, int64_t)>
void rope_table_op(const Exec& exec, const RopeTableArgs& a) {
  by_rows<RopeTableArgs, body>(exec, a, row_grain(int64_t{a.half} * 32));
}
template <void (*body)(const KvStoreArgs&, int64_t, int64_t)>
void kv_store_op(const Exec& exec, const KvStoreArgs& a) {
  by_rows<KvStoreArgs, body>(exec, a, row_grain(a.qkv_stride * 2));
  if (!is_coded(a.kv.type)) return;
  bool seals = false;
  for (int32_t s = 0; s < a.seq_count; ++s)
    seals |= a.seqs[s].pos_begin % 16 + a.seqs[s].rows >= 16;
  if (!seals) return;
  pool(exec).run([](const void* args, int64_t begin, int64_t end,
                    int) { ref::kv_seal(*static_cast<const KvStoreArgs*>(args), begin, end); },
                 &a, int64_t{a.seq_count} * a.kv.kv_heads);
}
void kv_tail_op(const Exec& exec, const KvTailArgs& a) {
  pool(exec).run([](const void* args, int64_t begin, int64_t end,
                    int) { ref::kv_tail(*static_cast<const KvTailArgs*>(args), begin, end); },
                 &a, int64_t{a.seq_count} * a.kv.kv_heads, 64);
}
template <void (*body)(const NormArgs&, int64_t, int64_t)>
void norm_op(const Exec& exec, const NormArgs& a) {
  by_rows<NormArgs, body>(exec, a, row_grain(a.dim));
}
template <void (*body)(const GatherArgs&, int64_t, int64_t)>
void gather_op(const Exec& exec, const GatherArgs& a) {
  by_rows<GatherArgs, body>(exec, a, row_grain(a.dim));
}

size_t kv_page_bytes(const KvDesc& kv) {
  return static_cast<size_t>(KvLayout(kv).page);
}

size_t kv_tail_bytes(const KvDesc& kv) {
  return static_cast<size_t>(KvLayout(kv).tail);
}

// ---- attention: a list of row tiles, the longest first, times key heads (and chunks) ----------

struct Tile {
  int32_t seq, row, rows;
  int64_t cost;  // keys read, about
};

// How the heads and rows of a group of queries are cut into blocks.
struct Blocks {
  int32_t group;      // query heads a key head
  int32_t heads;      // of them in a block
  int32_t per_group;  // blocks that a group needs
  int32_t rows;       // rows of a block
  Blocks(const KvDesc& kv, int32_t all_heads) {
    const int32_t most =
        std::max(1, std::min(attention_queries, attention_block_dims / padded_dim(kv.head_dim)));
    group = all_heads / kv.kv_heads;
    per_group = (group + most - 1) / most;
    heads = (group + per_group - 1) / per_group;
    rows = std::max(1, std::min(16, most / heads));
  }
};

// With few rows there are too few tiles to keep the threads busy: then each chunk of keys is a task
// and a second round combines them. More rows than this are never split, which bounds the records.
constexpr int32_t split_rows = 4;

int32_t chunks_of(int32_t context) {
  return (context + attention_chunk - 1) / attention_chunk;
}

size_t align64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

size_t attention_workspace(const KvDesc& kv, int32_t heads, int32_t rows, int32_t max_context) {
  const size_t records = static_cast<size_t>(std::min(rows, split_rows)) *
                         static_cast<size_t>(heads) * static_cast<size_t>(chunks_of(max_context));
  return align64(static_cast<size_t>(rows) * sizeof(Tile)) +
         records * static_cast<size_t>(attention_record(kv.head_dim)) * sizeof(float);
}

struct AttentionJob {
  const AttentionArgs* args;
  const Tile* tiles;
  Blocks blocks;
  int32_t blocks_a_tile;
  int32_t chunks;  // 0: every task does all chunks
  float* partials;
};

AttentionBlock block_of(const AttentionJob& job, int64_t task) {
  const Tile& tile = job.tiles[task / job.blocks_a_tile];
  const int32_t in_tile = static_cast<int32_t>(task % job.blocks_a_tile);
  const int32_t kv_head = in_tile / job.blocks.per_group, part = in_tile % job.blocks.per_group;
  AttentionBlock b;
  b.seq = &job.args->seqs[tile.seq];
  b.kv_head = kv_head;
  b.head = kv_head * job.blocks.group + part * job.blocks.heads;
  b.heads = std::min(job.blocks.heads, job.blocks.group - part * job.blocks.heads);
  b.row = tile.row;
  b.rows = tile.rows;
  b.chunk_begin = 0;
  b.chunk_end = chunks_of(b.seq->pos_begin + tile.row + tile.rows);
  if (const int32_t first = b.seq->pos_begin + tile.row - job.args->window + 1;
      job.args->window > 0 && first > 0)
    b.chunk_begin = first / attention_chunk;
  b.partials = job.partials;
  b.partial_chunks = job.chunks;
  return b;
}

template <void (*body)(const AttentionArgs&, const AttentionBlock&),
          void (*combine)(const AttentionArgs&, const AttentionBlock&)>
void attention_op(const Exec& exec, const AttentionArgs& a) {
  const Blocks blocks(a.kv, a.heads);
  Tile* tiles = static_cast<Tile*>(a.workspace);
  int64_t tile_count = 0;
  for (int32_t s = 0; s < a.seq_count; ++s)
    for (int32_t row = 0, rows; row < a.seqs[s].rows; row += rows) {
      rows = std::min(blocks.rows, a.seqs[s].rows - row);
      // Rows of a block see the keys of one tile in bf16: their own.
      if (is_coded(a.kv.type)) rows = std::min(rows, 16 - (a.seqs[s].pos_begin + row) % 16);
      const int64_t context = a.seqs[s].pos_begin + row + rows;
      const int64_t keys = a.window > 0 ? std::min<int64_t>(context, a.window + rows) : context;
      tiles[tile_count++] = {s, row, rows, keys * (rows + 2)};
    }
  std::sort(tiles, tiles + tile_count,
            [](const Tile& x, const Tile& y) { return x.cost > y.cost; });
  AttentionJob job{&a, tiles, blocks, a.kv.kv_heads * blocks.per_group, 0, nullptr};
  const int64_t tasks = tile_count * job.blocks_a_tile;
  const int threads = pool(exec).size();
  const auto run_block = [](const void* j, int64_t begin, int64_t end, int) {
    const AttentionJob& job = *static_cast<const AttentionJob*>(j);
    for (int64_t task = begin; task < end; ++task) body(*job.args, block_of(job, task));
  };
  const int32_t chunks = chunks_of(a.max_context);
  if (threads == 1 || a.rows > split_rows || tasks >= 4 * threads || chunks < 4) {
    pool(exec).run_dynamic(run_block, &job, tasks);
    return;
  }
  job.chunks = chunks;
  job.partials = reinterpret_cast<float*>(static_cast<unsigned char*>(a.workspace) +
                                          align64(static_cast<size_t>(a.rows) * sizeof(Tile)));
  pool(exec).run_dynamic(
      [](const void* j, int64_t begin, int64_t end, int) {
        const AttentionJob& job = *static_cast<const AttentionJob*>(j);
        for (int64_t task = begin; task < end; ++task) {
          AttentionBlock b = block_of(job, task / job.chunks);
          const int32_t chunk = static_cast<int32_t>(task % job.chunks);
          if (chunk < b.chunk_begin || chunk >= b.chunk_end) continue;
          b.chunk_begin = chunk;
          b.chunk_end = chunk + 1;
          body(*job.args, b);
        }
      },
      &job, tasks * chunks);
  pool(exec).run(
      [](const void* j, int64_t begin, int64_t end, int) {
        const AttentionJob& job = *static_cast<const AttentionJob*>(j);
        for (int64_t task = begin; task < end; ++task) combine(*job.args, block_of(job, task));
      },
      &job, tasks);
}

// ---- sampling ------------------------------------------------------------------------------

// Rows are spread over at most this many pieces, each with its own workspace.
constexpr int32_t sample_pieces = 16;

size_t sample_workspace(int32_t rows, int32_t vocab) {
  return static_cast<size_t>(std::min(rows, sample_pieces) * sample_row_bytes(vocab));
}

template <const SampleVec& vec>
void sample_op(const Exec& exec, const SampleArgs& a) {
  pool(exec).run_dynamic(
      [](const void* args, int64_t begin, int64_t end, int) {
        const SampleArgs& a = *static_cast<const SampleArgs*>(args);
        const int64_t pieces = std::min(a.rows, sample_pieces);
        for (int64_t piece = begin; piece < end; ++piece)
          for (int64_t row = piece * a.rows / pieces; row < (piece + 1) * a.rows / pieces; ++row)
            sample_row(
                vec, a, static_cast<int32_t>(row),
                static_cast<unsigned char*>(a.workspace) + piece * sample_row_bytes(a.vocab));
      },
      &a, std::min(a.rows, sample_pieces));
}

}  // namespace

void fill_ops_ref(Kernels& k) {
  k.kv_page_bytes = kv_page_bytes;
  k.kv_tail_bytes = kv_tail_bytes;
  k.kv_tail = kv_tail_op;
  k.rope_table = rope_table_op<ref::rope_table>;
  k.kv_store = kv_store_op<ref::kv_store>;
  k.attention_workspace = attention_workspace;
  k.attention = attention_op<ref::attention, ref::attention_combine>;
  k.norm = norm_op<ref::norm>;
  k.gather = gather_op<ref::gather>;
  k.sample_workspace = sample_workspace;
  k.sample = sample_op<ref::sample_vec>;
}

#if defined(__x86_64__)
void fill_ops_avx2(Kernels& k) {
  k.kv_store = kv_store_op<avx2::kv_store>;
  k.attention = attention_op<avx2::attention, avx2::attention_combine>;
  k.norm = norm_op<avx2::norm>;
  k.sample = sample_op<avx2::sample_vec>;
}

void fill_ops_avx512(Kernels& k, bool has_bf16) {
  k.kv_store = kv_store_op<avx512::kv_store>;
  k.attention = has_bf16 ? attention_op<avx512bf16::attention, avx512bf16::attention_combine>
                         : attention_op<avx512::attention, avx512::attention_combine>;
  k.norm = norm_op<avx512::norm>;
  k.sample = sample_op<avx512::sample_vec>;
}
#endif

}  // namespace orlop::cpu
