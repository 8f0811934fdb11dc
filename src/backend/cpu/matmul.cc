// The driver of every linear layer: prepares activations once, then splits tiles (or rows, where
// tiles are few) over the threads. What is computed for an element never depends on the split.
#include "backend/cpu/matmul.h"

#include <algorithm>

#include "backend/cpu/linear.h"
#include "backend/cpu/matmul_amx.h"
#include "backend/cpu/threads.h"
#include "ops/format.h"

namespace orlop::cpu {
namespace {

// Prepared rows that stay in the last-level cache while all tiles pass over them. A tile reads them at a
// few bytes a cycle, which that cache gives; fewer rows at a time would read all weights from memory
// more often.
constexpr int64_t cache_bytes = 2 << 20;
// The same for TileFns::many: processors with AMX have 2 MB, and the threads of a core share these rows.
constexpr int64_t many_cache_bytes = 1440 << 10;
// Below this many activations the calling thread prepares them alone: waking threads costs more.
constexpr int64_t alone_elems = 16 << 10;

// Rows in blocks of 1 << top, the rest as one block where it has at least `fewest` rows, or else in
// smaller powers of two.
struct Blocks {
  int64_t m;
  int top, fewest;
  int64_t full() const { return m >> top; }
  int rest() const { return static_cast<int>(m & ((1 << top) - 1)); }
  int64_t count() const {
    return full() + (rest() >= fewest && rest() ? 1 : __builtin_popcount(static_cast<unsigned>(rest())));
  }
};
struct Block {
  int64_t row;
  int rows, index;  // rows = 1 << index, or fewer if index = top
};
Block block_at(const Blocks& s, int64_t b) {
  if (b < s.full()) return {b << s.top, 1 << s.top, s.top};
  int64_t row = s.full() << s.top;
  if (s.rest() >= s.fewest) return {row, s.rest(), s.top};
  for (int index = s.top - 1, left = static_cast<int>(b - s.full());; --index) {
    if (!((s.rest() >> index) & 1)) continue;
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
  int64_t act_row_bytes, many_row_bytes;
};

struct Job {
  const MatmulArgs* args;
  const MatmulIsa* isa;
  int64_t groups, pairs, blocks, chunk_blocks;  // chunk_blocks: row blocks that share the cache
  Blocks shape;
  int pieces;  // that the preparation of a block is cut into
  bool many, split_rows;
  float* mapped;  // [m, k] in the packed order of k, or null
  PrepareFn prepare[kinds], prepare_many[kinds];
  int chunk[kinds];
  unsigned char* act[kinds];
  int64_t act_row_bytes[kinds], many_row_bytes[kinds];  // the second: where blocks for TileFns::many lie
  int parts;
  Part part[LinearDesc::max_parts];
};

// A piece of a block: some groups of its rows, or some rows where a scale spans all groups.
void prepare_piece(const Job& job, const Block& block, int kind, int piece) {
  const MatmulArgs& a = *job.args;
  const bool many = job.many && block.index == job.shape.top;
  const bool whole = kind == token_ints || (many && job.prepare_many[kind] != job.prepare[kind]);
  const int64_t total = whole ? block.rows : job.groups;
  const int64_t begin = total * piece / job.pieces, end = total * (piece + 1) / job.pieces;
  const int64_t k = a.desc->k, k_begin = whole ? 0 : 32 * begin, k_end = whole ? k : std::min(k, 32 * end);
  const PrepareFn fn = many ? job.prepare_many[kind] : job.prepare[kind];
  unsigned char* to = job.act[kind] + block.row * (many ? job.many_row_bytes[kind] : job.act_row_bytes[kind]);
  if (!whole) to += begin * block.rows * job.chunk[kind];
  for (int64_t r = whole ? begin : 0; r < (whole ? end : block.rows); ++r) {
    const float* x = job.mapped ? job.mapped + (block.row + r) * k : a.x + (block.row + r) * a.x_stride;
    if (k_begin < k_end)
      fn(x + k_begin, k_end - k_begin, whole ? job.groups : end - begin, block.rows, static_cast<int>(r), to);
  }
}

void prepare_rows(const void* p, int64_t begin, int64_t end, int) {
  const Job& job = *static_cast<const Job*>(p);
  const MatmulArgs& a = *job.args;
  const int64_t k = a.desc->k;
  for (int64_t i = begin; i < end; ++i) {
    const Block block = block_at(job.shape, i / job.pieces);
    if (job.mapped) {
      for (int64_t r = block.row; r < block.row + block.rows; ++r)
        for (int64_t j = 0; j < k; ++j) job.mapped[r * k + j] = a.x[r * a.x_stride + a.desc->k_map[j]];
    }
    for (int kind = 0; kind < kinds; ++kind)
      if (job.prepare[kind]) prepare_piece(job, block, kind, static_cast<int>(i % job.pieces));
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
  alignas(64) float c[2 * 16 * many_rows];  // the second half: up, where types differ
  Epilogue e;
  e.out_stride = a.out_stride;
  e.accumulate = a.accumulate;
  e.glu = a.desc->glu;
  const auto multiply = [&](const Part& by, const Block& block, const unsigned char* second, int rows,
                            float* to) {
    const unsigned char* first = &by == &part ? tile0 : second;
    if (rows)
      by.fns.many(first, second, by.act + block.row * by.many_row_bytes, by.many_row_bytes, by.span, rows, to);
    else
      by.fns.rows[block.index](first, second, by.act + block.row * by.act_row_bytes, by.span, to);
  };
  for (int64_t b = block_begin; b < block_end;) {
    Block block = block_at(job.shape, b);
    int count = 1, rows = 0;  // rows: of `count` blocks at once
    if (job.many && block.index == job.shape.top) {
      const int most = alike ? many_rows : many_rows / 2;
      for (rows = block.rows; b + count < block_end && rows < most; ++count) {
        const Block next = block_at(job.shape, b + count);
        if (next.index != job.shape.top) break;
        rows += next.rows;
      }
    }
    float* const up = c + 16 * many_rows;
    multiply(part, block, alike ? tile1 : tile0, rows, c);
    if (!alike) multiply(job.part[1], block, tile1, rows, up);
    const int tile_floats = 16 * (rows ? 16 : block.rows);
    for (int j = 0; j < count; ++j) {
      block = block_at(job.shape, b + j);
      e.rows = block.rows;
      e.c = c + 2 * j * tile_floats;
      e.up = alike ? e.c + tile_floats : up + 2 * j * tile_floats;
      for (int i = 0; i < (glu || !two ? 1 : 2); ++i) {
        e.columns = static_cast<int>(std::min<int64_t>(16, part.columns - (tile + i) * 16));
        e.out = a.out + block.row * a.out_stride + column + 16 * i;
        e.bias = a.bias ? a.bias + column + 16 * i : nullptr;
        e.up_bias = a.bias && glu ? e.bias + a.desc->n() : nullptr;
        job.isa->epilogue(e);
        e.c += tile_floats;
      }
    }
    b += count;
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
  job.shape = {args.m, 4, 16};
  job.many = true;
  int mins = 0;
  for (int p = 0; p < d.part_count; ++p) {
    const Kind kind = kind_of(d.type[p], d.compute);
    used[kind] = true;
    job.part[p].type = packed_type(d.type[p], d.compute);
    job.part[p].fns = compute[kind]->fns[static_cast<int>(job.part[p].type)];
    if (!job.part[p].fns.many) job.many = false;
    if (pack_info(job.part[p].type).has_min) mins = 1;
  }
  for (int p = 0; p < d.part_count; ++p) {
    if (job.many)
      job.shape.fewest = std::min(job.shape.fewest, job.part[p].fns.fewest);
    else if (!job.part[p].fns.rows[4])
      job.shape.top = 3;
  }
  job.blocks = job.shape.count();
  for (int kind = 0; kind < kinds; ++kind) {
    if (!used[kind]) continue;
    const ComputeIsa& isa_of = *compute[kind];
    job.prepare[kind] = isa_of.prepare;
    job.prepare_many[kind] = isa_of.prepare_many[mins] ? isa_of.prepare_many[mins] : isa_of.prepare;
    job.chunk[kind] = isa_of.chunk;
    job.act_row_bytes[kind] = job.groups * isa_of.chunk;
    job.many_row_bytes[kind] = job.groups * isa_of.many_chunk;
    job.act[kind] = area;
    area += args.m * job.act_row_bytes[kind];
  }
  if (d.k_map) job.mapped = reinterpret_cast<float*>(area);

  const bool glu = d.glu != Glu::none;
  const unsigned char* packed = static_cast<const unsigned char*>(args.packed);
  int64_t row_bytes = 0;  // that the tiles of all passes read of a row
  for (int p = 0; p < d.part_count; ++p) {
    Part& part = job.part[p];
    const Kind kind = kind_of(d.type[p], d.compute);
    part.span = {job.groups, d.group[p] ? d.group[p] / 32 : job.groups};
    part.act = job.act[kind];
    part.act_row_bytes = job.act_row_bytes[kind];
    part.many_row_bytes = job.many_row_bytes[kind];
    row_bytes = std::max(row_bytes, job.many ? part.many_row_bytes : part.act_row_bytes);
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
  job.chunk_blocks = std::max<int64_t>(1, (job.many ? many_cache_bytes : cache_bytes) / (row_bytes << job.shape.top));
  // Rows enough for a tile of weights to take longer than taking turns: threads that others slow down
  // get fewer.
  const bool dynamic = job.many && job.blocks >= 8;
  if (dynamic || (job.pairs < 4 * threads && job.blocks >= 2)) {
    job.split_rows = true;
    int64_t few = job.many ? std::max<int64_t>(2, job.blocks * job.pairs / (8 * threads))
                           : std::max<int64_t>(1, job.blocks / (2 * threads));
    if (few > many_rows / 16) few = few / (many_rows / 16) * (many_rows / 16);
    job.chunk_blocks = std::min(job.chunk_blocks, few);
  }
  if (job.many && job.chunk_blocks > 1) job.chunk_blocks &= ~int64_t{1};  // they go by twos
  const int64_t items =
      job.split_rows ? (job.blocks + job.chunk_blocks - 1) / job.chunk_blocks * job.pairs : job.pairs;
  job.pieces = 1;
  if (!pool || threads == 1 || args.m * d.k <= alone_elems) {
    prepare_rows(&job, 0, job.blocks, 0);
  } else {
    if (!d.k_map) job.pieces = static_cast<int>(std::min<int64_t>(16, (threads + job.blocks - 1) / job.blocks));
    pool->run(prepare_rows, &job, job.blocks * job.pieces);
  }
  if (!pool || threads == 1)
    run_tiles(&job, 0, items, 0);
  else if (dynamic)
    pool->run_dynamic(run_tiles, &job, items, std::max<int64_t>(1, items / (12 * threads)));
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
#ifndef ORLOP_WITHOUT_AVX512
void matmul_avx512(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, avx512::matmul_isa, avx512::matmul_isa.bf16);
}
void matmul_avx512bf16(const Exec& exec, const MatmulArgs& args) {
  matmul_run(exec, args, avx512::matmul_isa, avx512bf16::matmul_bf16);
}
void matmul_amx(const Exec& exec, const MatmulArgs& args) {
  static const AmxIsa isa(amx::kernels);
  matmul_run(exec, args, isa.isa, isa.bf16);
}
#endif
#endif

}  // namespace orlop::cpu
