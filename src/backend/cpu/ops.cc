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

// ---- attention: a list of row tiles, the longest first, times key heads -----------------------

// Rows of a sequence over a range of key chunks.
struct Tile {
  int32_t seq, row, rows;
  int32_t chunk_begin, chunk_end;
  bool split;    // one of several pieces: it leaves records, which a second round combines
  bool stream;   // one row over a long context: its blocks take several key heads each
  int64_t cost;  // of a block: keys read, about
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

// A block that decodes over a long context takes as many key heads as lie together, while two chunks of
// them fit a cache of this size and enough blocks remain for the threads (attention_pages.h). It should
// run on for some chunks: nobody fetches its first one.
constexpr int64_t stream_bytes = int64_t{3} << 18, stream_chunks = 4;

int32_t streamed_heads(const KvDesc& kv, const Blocks& blocks, int64_t chunks, int threads) {
  const int64_t bytes = 2 * attention_chunk / kv.page_tokens * KvLayout(kv).head_block;
  const int32_t most = std::min(attention_queries, attention_block_dims / padded_dim(kv.head_dim));
  int32_t heads = 1;
  for (int32_t n = 2; n <= kv.kv_heads; ++n)
    if (kv.kv_heads % n == 0 && n * blocks.group <= most && n * bytes <= stream_bytes &&
        chunks / stream_chunks * (kv.kv_heads / n) >= 2 * threads)
      heads = n;
  return heads;
}

// A tile that costs more than its share of the threads' time is cut by chunks of keys into pieces,
// and a second round combines what they leave. Records are bounded: calls whose rows would need more
// (and more than few_rows) are not cut. So are the pieces.
constexpr size_t record_bytes_bound = size_t{8} << 20;
constexpr int32_t few_rows = 4, most_pieces = 2048;

int32_t chunks_of(int32_t context) {
  return (context + attention_chunk - 1) / attention_chunk;
}

size_t align64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

size_t record_bytes(const KvDesc& kv, int32_t heads, int32_t context) {  // of one row
  return static_cast<size_t>(heads) * static_cast<size_t>(chunks_of(context)) *
         static_cast<size_t>(attention_record(kv.head_dim)) * sizeof(float);
}

size_t records_bound(size_t row_bytes) {
  return std::max(record_bytes_bound, few_rows * row_bytes);
}

size_t tiles_bytes(int32_t rows) {
  return align64((static_cast<size_t>(rows) + most_pieces) * sizeof(Tile));
}

size_t attention_workspace(const KvDesc& kv, int32_t heads, int32_t rows, int32_t max_context) {
  const size_t row_bytes = record_bytes(kv, heads, max_context);
  return tiles_bytes(rows) + std::min(static_cast<size_t>(rows) * row_bytes,
                                      records_bound(row_bytes));
}

struct AttentionJob {
  const AttentionArgs* args;
  const Tile* tiles;
  Blocks blocks;
  int32_t blocks_a_tile;
  int32_t stream_heads;
  int32_t chunks;  // records a row and head
  float* partials;
};

// False where the tile has less blocks.
bool block_of(const AttentionJob& job, int64_t task, AttentionBlock& b) {
  const Tile& tile = job.tiles[task / job.blocks_a_tile];
  const int32_t in_tile = static_cast<int32_t>(task % job.blocks_a_tile);
  if (tile.stream && in_tile >= job.args->kv.kv_heads / job.stream_heads) return false;
  const int32_t kv_head = in_tile / job.blocks.per_group, part = in_tile % job.blocks.per_group;
  b.seq = &job.args->seqs[tile.seq];
  b.kv_head = kv_head;
  b.head = kv_head * job.blocks.group + part * job.blocks.heads;
  b.heads = std::min(job.blocks.heads, job.blocks.group - part * job.blocks.heads);
  b.kv_heads = 1;
  b.stream = tile.stream;
  if (tile.stream) {
    b.kv_heads = job.stream_heads;
    b.kv_head = in_tile * b.kv_heads;
    b.head = b.kv_head * job.blocks.group;
    b.heads = b.kv_heads * job.blocks.group;
  }
  b.row = tile.row;
  b.rows = tile.rows;
  b.chunk_begin = tile.chunk_begin;
  b.chunk_end = tile.chunk_end;
  b.partials = tile.split ? job.partials : nullptr;
  b.partial_chunks = job.chunks;
  return true;
}

// Cuts the tiles that cost too much; what was cut is kept, whole, after the pieces. Returns how many
// tiles there are without those.
int64_t cut_tiles(Tile* tiles, int64_t count, int64_t most_cost, int64_t* cut) {
  Tile* const last = tiles + count + most_pieces;
  Tile* whole = last;  // grows downwards
  int64_t n = count;
  for (int64_t i = 0; i < count; ++i) {
    const Tile t = tiles[i];
    const int32_t chunks = t.chunk_end - t.chunk_begin;
    const auto pieces = static_cast<int32_t>(
        std::min<int64_t>(chunks / (t.stream ? stream_chunks : 1),
                          (t.cost + most_cost - 1) / std::max<int64_t>(1, most_cost)));
    if (pieces < 2 || n + pieces >= whole - tiles) continue;
    *--whole = t;
    whole->split = true;
    whole->stream = false;  // what is to be combined
    for (int32_t p = 0; p < pieces; ++p) {
      Tile& to = p == 0 ? tiles[i] : tiles[n++];
      to = *whole;
      to.stream = t.stream;
      to.chunk_begin = t.chunk_begin + chunks * p / pieces;
      to.chunk_end = t.chunk_begin + chunks * (p + 1) / pieces;
      to.cost = t.cost / pieces;
    }
  }
  *cut = last - whole;
  std::copy(whole, last, tiles + n);
  return n;
}

template <void (*body)(const AttentionArgs&, const AttentionBlock&),
          void (*combine)(const AttentionArgs&, const AttentionBlock&)>
void attention_op(const Exec& exec, const AttentionArgs& a) {
  const Blocks blocks(a.kv, a.heads);
  Tile* tiles = static_cast<Tile*>(a.workspace);
  int64_t count = 0, cost = 0, cut = 0, chunks = 0;
  const int threads = pool(exec).size();
  const int32_t blocks_a_tile = a.kv.kv_heads * blocks.per_group;
  for (int32_t s = 0; s < a.seq_count; ++s)
    if (a.seqs[s].rows == 1 && chunks_of(a.seqs[s].pos_begin + 1) >= 2 * stream_chunks)
      chunks += chunks_of(a.seqs[s].pos_begin + 1);
  // (Codes keep the processor busy, not the memory.)
  const bool streams = blocks.per_group == 1 && a.kv.page_tokens % 16 == 0 && !is_coded(a.kv.type);
  const int32_t stream_heads = streams ? streamed_heads(a.kv, blocks, chunks, threads) : 1;
  for (int32_t s = 0; s < a.seq_count; ++s)
    for (int32_t row = 0, rows; row < a.seqs[s].rows; row += rows) {
      rows = std::min(blocks.rows, a.seqs[s].rows - row);
      // Rows of a block see the keys of one tile in bf16: their own.
      if (is_coded(a.kv.type)) rows = std::min(rows, 16 - (a.seqs[s].pos_begin + row) % 16);
      const int32_t position = a.seqs[s].pos_begin + row, context = position + rows;
      const int64_t keys = a.window > 0 ? std::min<int64_t>(context, a.window + rows) : context;
      const int32_t first = a.window > 0 ? std::max(0, position - a.window + 1) : 0;
      const int32_t begin = first / attention_chunk, end = chunks_of(context);
      const bool stream = streams && a.seqs[s].rows == 1 && end - begin >= 2 * stream_chunks;
      const int32_t heads = stream ? stream_heads : 1;
      tiles[count] = {s, row, rows, begin, end, false, stream, keys * (rows + 2) * heads};
      cost += tiles[count++].cost * (blocks_a_tile / heads);
    }
  AttentionJob job{&a, tiles, blocks, blocks_a_tile, stream_heads, chunks_of(a.max_context), nullptr};
  const size_t row_bytes = record_bytes(a.kv, a.heads, a.max_context);
  if (threads > 1 && static_cast<size_t>(a.rows) * row_bytes <= records_bound(row_bytes)) {
    job.partials = reinterpret_cast<float*>(static_cast<unsigned char*>(a.workspace) +
                                            tiles_bytes(a.rows));
    // Four tasks a thread, or shorter ones where nothing is cut.
    count = cut_tiles(tiles, count, cost / (4 * threads), &cut);
  }
  std::sort(tiles, tiles + count, [](const Tile& x, const Tile& y) { return x.cost > y.cost; });
  pool(exec).run_dynamic(
      [](const void* j, int64_t begin, int64_t end, int) {
        const AttentionJob& job = *static_cast<const AttentionJob*>(j);
        AttentionBlock block;
        for (int64_t task = begin; task < end; ++task)
          if (block_of(job, task, block)) body(*job.args, block);
      },
      &job, count * job.blocks_a_tile);
  if (!cut) return;
  job.tiles = tiles + count;
  pool(exec).run(
      [](const void* j, int64_t begin, int64_t end, int) {
        const AttentionJob& job = *static_cast<const AttentionJob*>(j);
        AttentionBlock block;
        for (int64_t task = begin; task < end; ++task)
          if (block_of(job, task, block)) combine(*job.args, block);
      },
      &job, cut * job.blocks_a_tile);
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

#ifndef ORLOP_WITHOUT_AVX512
void fill_ops_avx512(Kernels& k, bool has_bf16) {
  k.kv_store = kv_store_op<avx512::kv_store>;
  k.attention = has_bf16 ? attention_op<avx512bf16::attention, avx512bf16::attention_combine>
                         : attention_op<avx512::attention, avx512::attention_combine>;
  k.norm = norm_op<avx512::norm>;
  k.sample = sample_op<avx512::sample_vec>;
}
#endif
#elif defined(__aarch64__)
void fill_ops_neon(Kernels& k) {
  k.kv_store = kv_store_op<neon::kv_store>;
  k.attention = attention_op<neon::attention, neon::attention_combine>;
  k.norm = norm_op<neon::norm>;
  k.sample = sample_op<neon::sample_vec>;
}
#endif

}  // namespace orlop::cpu
