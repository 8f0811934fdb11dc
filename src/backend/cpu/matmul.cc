// The driver of every linear layer: prepares activations once, then splits tiles (or rows, where
// tiles are few) over the threads. What is computed for an element never depends on the split.
#include "backend/cpu/matmul.h"

#include <algorithm>

#include "backend/cpu/linear.h"
#include "backend/cpu/threads.h"
#include "ops/format.h"

namespace orlop::cpu {
namespace {

// Prepared rows that stay in the second-level cache while all tiles pass over them.
constexpr int64_t cache_bytes = 320 << 10;
// Below this many activations the calling thread prepares them alone: waking threads costs more.
constexpr int64_t alone_elems = 16 << 10;

// Rows in blocks of 1 << top, the rest in smaller powers of two.
struct Block {
  int64_t row;
  int rows, index;  // rows = 1 << index
};
int64_t block_count(int64_t m, int top) {
  return (m >> top) + __builtin_popcountll(static_cast<uint64_t>(m & ((1 << top) - 1)));
}
Block block_at(int64_t m, int top, int64_t b) {
  const int64_t full = m >> top;
  if (b < full) return {b << top, 1 << top, top};
  int64_t row = full << top;
  for (int index = top - 1, left = static_cast<int>(b - full);; --index) {
    if (!((m >> index) & 1)) continue;
    if (left-- == 0) return {row, 1 << index, index};
    row += 1 << index;
  }
}

// What prepared activations look like: groups of 32 in int8, floats, int8 with one scale a row.
enum Kind { ints, floats, token_ints, kinds };
Kind kind_of(FileType type, Compute compute) {
  const PackInfo& f = pack_info(type);
  if (f.low_bits == 0 || type == FileType::f8) return floats;
  if (compute == Compute::int8) return ints;
  return compute != Compute::a8 ? floats : f.grouped ? token_ints : ints;
}

struct Part {
  FileType type;
  Span span;
  TileFns fns;
  const unsigned char* packed;
  int64_t tile_bytes, first_pair, tiles, first_column, columns;
  const unsigned char* act;
  int64_t act_row_bytes;
};

struct Job {
  const MatmulArgs* args;
  const MatmulIsa* isa;
  int64_t groups, pairs, blocks, chunk_blocks;  // chunk_blocks: row blocks that share the cache
  int top;  // blocks of 1 << top rows
  bool split_rows;
  float* mapped;  // [m, k] in the packed order of k, or null
  PrepareFn prepare[kinds];
  unsigned char* act[kinds];
  int64_t act_row_bytes[kinds];
  int parts;
  Part part[LinearDesc::max_parts];
};

void prepare_rows(const void* p, int64_t begin, int64_t end, int) {
  const Job& job = *static_cast<const Job*>(p);
  const MatmulArgs& a = *job.args;
  const int64_t k = a.desc->k;
  for (int64_t b = begin; b < end; ++b) {
    const Block block = block_at(a.m, job.top, b);
    for (int r = 0; r < block.rows; ++r) {
      const float* x = a.x + (block.row + r) * a.x_stride;
      if (job.mapped) {
        float* to = job.mapped + (block.row + r) * k;
        for (int64_t i = 0; i < k; ++i) to[i] = x[a.desc->k_map[i]];
        x = to;
      }
      for (int kind = 0; kind < kinds; ++kind)
        if (job.prepare[kind])
          job.prepare[kind](x, k, job.groups, block.rows, r,
                            job.act[kind] + block.row * job.act_row_bytes[kind]);
    }
  }
}

// A pair of tiles: neighbours in a part, or gate and up.
void run_pair(const Job& job, int64_t pair, int64_t block_begin, int64_t block_end) {
  const MatmulArgs& a = *job.args;
  const bool glu = a.desc->glu != Glu::none;
  int p = 0;
  if (!glu)
    while (p + 1 < job.parts && pair >= job.part[p + 1].first_pair) ++p;
  const Part& part = job.part[p];
  const int64_t tile = glu ? pair : 2 * (pair - part.first_pair);
  const unsigned char* tile0 = part.packed + tile * part.tile_bytes;
  const bool two = glu || tile + 1 < part.tiles;
  const unsigned char* tile1 = glu ? job.part[1].packed + tile * job.part[1].tile_bytes
                               : two ? tile0 + part.tile_bytes
                                     : tile0;
  const bool alike = !glu || (job.part[1].type == part.type && job.part[1].span.share == part.span.share);
  const int64_t column = part.first_column + tile * 16;
  alignas(64) float c[2 * 16 * 16], up[2 * 16 * 16];
  Epilogue e;
  e.out_stride = a.out_stride;
  e.accumulate = a.accumulate;
  e.glu = a.desc->glu;
  for (int64_t b = block_begin; b < block_end; ++b) {
    const Block block = block_at(a.m, job.top, b);
    e.rows = block.rows;
    e.c = c;
    e.up = c + 16 * block.rows;
    const TileFn fn = part.fns.rows[block.index];
    fn(tile0, alike ? tile1 : tile0, part.act + block.row * part.act_row_bytes, part.span, c);
    if (!alike) {
      const Part& second = job.part[1];
      second.fns.rows[block.index](tile1, tile1, second.act + block.row * second.act_row_bytes,
                                   second.span, up);
      e.up = up;
    }
    for (int i = 0; i < (glu || !two ? 1 : 2); ++i) {
      e.columns = static_cast<int>(std::min<int64_t>(16, part.columns - (tile + i) * 16));
      e.out = a.out + block.row * a.out_stride + column + 16 * i;
      e.bias = a.bias ? a.bias + column + 16 * i : nullptr;
      e.up_bias = a.bias && glu ? e.bias + a.desc->n() : nullptr;
      job.isa->epilogue(e);
      e.c += 16 * block.rows;
    }
  }
}

void run_tiles(const void* p, int64_t begin, int64_t end, int) {
  const Job& job = *static_cast<const Job*>(p);
  if (job.split_rows) {  // items: row chunk by row chunk, every tile of it
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / job.pairs * job.chunk_blocks;
      run_pair(job, i % job.pairs, b, std::min(b + job.chunk_blocks, job.blocks));
    }
    return;
  }
  for (int64_t b = 0; b < job.blocks; b += job.chunk_blocks)
    for (int64_t t = begin; t < end; ++t)
      run_pair(job, t, b, std::min(b + job.chunk_blocks, job.blocks));
}

}  // namespace

size_t matmul_workspace(const LinearDesc& d, int64_t m) {
  bool used[kinds] = {};
  for (int p = 0; p < d.part_count; ++p) used[kind_of(d.type[p], d.compute)] = true;
  const int64_t groups = (d.k + 31) / 32, wide = fp32_chunk;  // the widest form of floats
  const int64_t row = groups * (int8_chunk * (used[ints] + used[token_ints]) + wide * used[floats]) +
                      (d.k_map ? 4 * d.k : 0);
  return static_cast<size_t>(m * row + 128);
}

void matmul_run(const Exec& exec, const MatmulArgs& args, const MatmulIsa& isa, const ComputeIsa& bf16) {
  if (args.m <= 0) return;
  const LinearDesc& d = *args.desc;
  ThreadPool* pool = static_cast<ThreadPool*>(exec.queue);
  Job job{};
  job.args = &args;
  job.isa = &isa;
  job.groups = (d.k + 31) / 32;
  job.parts = d.part_count;

  const ComputeIsa* compute[kinds];
  compute[ints] = &isa.int8;
  compute[floats] = d.compute == Compute::fp32 ? &isa.fp32 : &bf16;
  compute[token_ints] = &isa.a8;
  unsigned char* area = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<uintptr_t>(args.workspace) + 63) / 64 * 64);
  bool used[kinds] = {};
  job.top = 4;
  for (int p = 0; p < d.part_count; ++p) {
    const Kind kind = kind_of(d.type[p], d.compute);
    used[kind] = true;
    job.part[p].type = packed_type(d.type[p], d.compute);
    job.part[p].fns = compute[kind]->fns[static_cast<int>(job.part[p].type)];
    if (!job.part[p].fns.rows[4]) job.top = 3;
  }
  job.blocks = block_count(args.m, job.top);
  for (int kind = 0; kind < kinds; ++kind) {
    if (!used[kind]) continue;
    job.prepare[kind] = compute[kind]->prepare;
    job.act_row_bytes[kind] = job.groups * compute[kind]->chunk;
    job.act[kind] = area;
    area += args.m * job.act_row_bytes[kind];
  }
  if (d.k_map) job.mapped = reinterpret_cast<float*>(area);

  const bool glu = d.glu != Glu::none;
  const unsigned char* packed = static_cast<const unsigned char*>(args.packed);
  int64_t row_bytes = 0;
  for (int p = 0; p < d.part_count; ++p) {
    Part& part = job.part[p];
    const Kind kind = kind_of(d.type[p], d.compute);
    part.span = {job.groups, d.group[p] ? d.group[p] / 32 : job.groups};
    part.act = job.act[kind];
    part.act_row_bytes = job.act_row_bytes[kind];
    row_bytes = std::max(row_bytes, part.act_row_bytes);
    part.tile_bytes = tile_bytes(part.type, part.span);
    part.tiles = (d.part_n[p] + 15) / 16;
    part.columns = d.part_n[p];
    part.packed = packed;
    if (p > 0 && !glu) {
      part.first_pair = job.pairs;
      part.first_column = job.part[p - 1].first_column + job.part[p - 1].columns;
    }
    job.pairs = glu ? part.tiles : part.first_pair + (part.tiles + 1) / 2;
    packed += glu ? part.tile_bytes : part.tiles * part.tile_bytes;
  }
  if (glu)  // gate and up tiles alternate
    job.part[0].tile_bytes = job.part[1].tile_bytes = job.part[0].tile_bytes + job.part[1].tile_bytes;

  const int threads = pool ? pool->size() : 1;
  job.chunk_blocks = std::max<int64_t>(1, cache_bytes / (row_bytes << job.top));
  if (job.pairs < 4 * threads && job.blocks >= 2) {
    job.split_rows = true;
    job.chunk_blocks = std::min(job.chunk_blocks, std::max<int64_t>(1, job.blocks / (2 * threads)));
  }
  const int64_t items =
      job.split_rows ? (job.blocks + job.chunk_blocks - 1) / job.chunk_blocks * job.pairs : job.pairs;
  if (!pool || threads == 1 || args.m * d.k <= alone_elems)
    prepare_rows(&job, 0, job.blocks, 0);
  else
    pool->run(prepare_rows, &job, job.blocks);
  if (!pool || threads == 1)
    run_tiles(&job, 0, items, 0);
  else
    pool->run(run_tiles, &job, items);
}

void matmul_ref(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, ref::matmul_isa, ref::matmul_isa.bf16);
}
#if defined(__x86_64__)
void matmul_avx2(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, avx2::matmul_isa, avx2::matmul_isa.bf16);
}
void matmul_avx512(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, avx512::matmul_isa, avx512::matmul_isa.bf16);
}
void matmul_avx512bf16(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, avx512::matmul_isa, avx512bf16::matmul_bf16);
}
#endif

}  // namespace orlop::cpu
