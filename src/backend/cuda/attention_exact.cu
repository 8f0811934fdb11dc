// Attention of few rows in the fixed order of attention_block.cuh: deterministic mode, bf16 and fp16 pages. A
// block is one warp with up to 16 rows (heads that share keys, of one row or several neighbouring ones); it walks
// the chunks of its context, or takes one of them and leaves it to fold_chunks().
#include <atomic>

#include "backend/cuda/attention_block.cuh"

#include "backend/cuda/attention_entries.h"
#include "backend/cuda/attention_mma.cuh"
#include "backend/cuda/attention_tile.cuh"

namespace orlop::cuda {
namespace {

constexpr int rows_of_warp = 16;
template <int Dims>
constexpr int stage_bytes = 2 * block_keys * row_pitch(Dims);
template <int Dims>
constexpr int shared_of = rows_of_warp * row_pitch(Dims) + 2 * stage_bytes<Dims>;

constexpr int64_t record_of(int dims) { return dims + 4; }  // values, maximum, sum

template <class T, int Dims>
__global__ void __launch_bounds__(32) attend_exactly(const __grid_constant__ DecodeArgs a) {
  let_next_start();
  constexpr int pitch = row_pitch(Dims), pieces = Dims / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  unsigned char* const ring = shared + rows_of_warp * pitch;  // [2] of keys, values
  const int lane = threadIdx.x;
  const int32_t kv_head = blockIdx.x % a.kv_heads, part = blockIdx.x / a.kv_heads % a.head_parts;
  const int32_t first_head = kv_head * a.group + part * a.part_heads, heads = min(a.part_heads, a.group - part * a.part_heads);
  // What came before the step's first kernel, and keys of earlier steps, may be read before wait_inputs().
  decode::Tile tile;
  if (!decode::find_tile<1>(a, blockIdx.x / a.kv_heads / a.head_parts, tile)) return wait_inputs();
  const int32_t last = tile.first + tile.count - 1, low = a.window ? max(0, tile.first - a.window + 1) : 0;
  const int32_t first_chunk = low / a.chunk, chunks = last / a.chunk - first_chunk + 1;
  if (!a.walks && static_cast<int32_t>(blockIdx.y) >= chunks) return wait_inputs();
  const int32_t own_chunk = first_chunk + blockIdx.y, per_chunk = attention_chunk / block_keys;
  int32_t begin = low / block_keys, end = last / block_keys;  // blocks of keys, both included
  if (!a.walks) begin = max(begin, own_chunk * per_chunk), end = min(end, own_chunk * per_chunk + per_chunk - 1);

  const int32_t* table = a.page_table + tile.seq.page_begin;
  const unsigned char* head = a.pages + kv_head * a.head_bytes;
  const auto load = [&](int32_t block, int stage) {
    const uint32_t to = shared_address(ring + stage * stage_bytes<Dims>);
    constexpr int each = 8;  // rows of a page at least
    for (int group = 0; group < block_keys / each; ++group) {
      const int32_t token = block * block_keys + group * each;
      if (token > last) {  // zeros
        for (int i = lane; i < each * pieces; i += 32) {
          copy16(to + (group * each + i / pieces) * pitch + i % pieces * 16, a.pages, false);
          copy16(to + block_keys * pitch + (group * each + i / pieces) * pitch + i % pieces * 16, a.pages, false);
        }
        continue;
      }
      const int32_t page = decode::page_of(a, token);
      const unsigned char* from = head + uint64_t{static_cast<uint32_t>(table[page])} * a.page_bytes + int64_t{token - page * a.page_tokens} * (2 * Dims);
#pragma unroll
      for (int i = lane; i < each * pieces; i += 32) {
        const int32_t row = i / pieces, t = token + row;
        const bool seen = t >= low && t <= last;
        const uint32_t at = to + (group * each + row) * pitch + i % pieces * 16;
        copy16(at, from + i * 16, seen);
        copy16(at + block_keys * pitch, from + a.values_at + i * 16, seen);
      }
    }
  };
  const bool early = (begin + 1) * block_keys <= tile.seq.pos_begin;
  if (!early) wait_inputs();
  load(begin, 0);
  copies_end();
  if (early) wait_inputs();
  for (int i = lane; i < rows_of_warp * pieces; i += 32) {
    const int row = i / pieces, piece = i % pieces, position = row / heads;
    uint4 v{};
    if (position < tile.count)
      v = query_piece<T>(a.q + (int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + position) * a.q_stride +
                         int64_t{first_head + row % heads} * Dims + 8 * piece);
    *reinterpret_cast<uint4*>(shared + row * pitch + 16 * piece) = v;
  }
  int32_t oldest[2], newest[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    newest[r] = tile.first + min((lane / 4 + 8 * r) / heads, tile.count - 1);
    oldest[r] = a.window ? newest[r] - a.window + 1 : INT32_MIN;
  }

  RowStates<Dims> all, chunk;
  all.clear();
  chunk.clear();
  for (int32_t b = begin; b <= end; ++b) {
    const int stage = (b - begin) % 2;
    copies_wait<0>();
    __syncthreads();
    if (b < end) load(b + 1, stage ^ 1);
    copies_end();
    const uint32_t k = shared_address(ring + stage * stage_bytes<Dims>), v = k + block_keys * pitch;
    const int32_t key = b * block_keys;
    if (key + block_keys - 1 <= tile.first && (a.window == 0 || key > last - a.window)) {
      add_block<T, false>(chunk, shared_address(shared), k, v, a.scale_log2, key, oldest, newest);
    } else {
      if (tile.count > 1) take_out_unfinite<T>(chunk, ring + stage * stage_bytes<Dims> + block_keys * pitch, key, oldest, newest);
      add_block<T, true>(chunk, shared_address(shared), k, v, a.scale_log2, key, oldest, newest);
    }
    if (b % per_chunk == per_chunk - 1 || b == end) {
      finish_chunk(chunk);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const Shares s = shares(all.top[r], chunk.top[r]);
        all.top[r] = s.top;
        all.sum[r] = folded(s, all.sum[r], chunk.sum[r]);
#pragma unroll
        for (int i = 0; i < Dims / 8; ++i)
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e) all.out[i][e] = folded(s, all.out[i][e], chunk.out[i][e]);
      }
      chunk.clear();
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r, position = row / heads;
    if (position >= tile.count) continue;
    if (!a.walks && chunks > 1) {  // one chunk, folded into nothing: as it is
      float* record = a.records + ((int64_t{blockIdx.x} * a.splits + blockIdx.y) * a.tile_columns + row) * record_of(Dims);
#pragma unroll
      for (int i = 0; i < Dims / 8; ++i)
        *reinterpret_cast<float2*>(record + 8 * i + 2 * (lane % 4)) = make_float2(all.out[i][2 * r], all.out[i][2 * r + 1]);
      if (lane % 4 == 0) record[Dims] = all.top[r], record[Dims + 1] = all.sum[r];
      continue;
    }
    const int64_t at = (int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + position) * a.out_stride +
                       int64_t{first_head + row % heads} * Dims + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < Dims / 8; ++i) {
      const float x = finish(all.out[i][2 * r], all.sum[r]), y = finish(all.out[i][2 * r + 1], all.sum[r]);
      if (a.narrow_out)
        *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(a.out) + at + 8 * i) = pack_bf16(x, y);
      else
        *reinterpret_cast<float2*>(static_cast<float*>(a.out) + at + 8 * i) = make_float2(x, y);
    }
  }
}

// What attend_exactly() left of each chunk, in ascending order. One block a tile, part and key head.
template <int Dims>
__global__ void __launch_bounds__(128) fold_chunks(const __grid_constant__ DecodeArgs a) {
  let_next_start();
  const int32_t kv_head = blockIdx.x % a.kv_heads, part = blockIdx.x / a.kv_heads % a.head_parts;
  const int32_t first_head = kv_head * a.group + part * a.part_heads, heads = min(a.part_heads, a.group - part * a.part_heads);
  decode::Tile tile;
  if (!decode::find_tile<4>(a, blockIdx.x / a.kv_heads / a.head_parts, tile)) return wait_inputs();
  const int32_t last = tile.first + tile.count - 1, low = a.window ? max(0, tile.first - a.window + 1) : 0;
  const int32_t chunks = last / a.chunk - low / a.chunk + 1;
  wait_inputs();
  if (chunks == 1) return;  // done
  const int64_t size = a.tile_columns * record_of(Dims);
  for (int i = threadIdx.x; i < tile.count * heads * (Dims / 2); i += 128) {
    const int row = i / (Dims / 2), d = i % (Dims / 2) * 2;
    const float* record = a.records + int64_t{blockIdx.x} * a.splits * size + row * record_of(Dims);
    float top = -INFINITY, sum = 0, x = 0, y = 0;
    constexpr int ahead = 8;
    for (int32_t c = 0; c < chunks; c += ahead) {
      float2 v[ahead], state[ahead];
#pragma unroll
      for (int j = 0; j < ahead; ++j)
        if (c + j < chunks) {
          v[j] = *reinterpret_cast<const float2*>(record + (c + j) * size + d);
          state[j] = *reinterpret_cast<const float2*>(record + (c + j) * size + Dims);
        }
#pragma unroll
      for (int j = 0; j < ahead; ++j)
        if (c + j < chunks) {
          const Shares s = shares(top, state[j].x);
          top = s.top;
          sum = folded(s, sum, state[j].y);
          x = folded(s, x, v[j].x);
          y = folded(s, y, v[j].y);
        }
    }
    const int64_t at = (int64_t{tile.seq.row_begin} + tile.first - tile.seq.pos_begin + row / heads) * a.out_stride +
                       int64_t{first_head + row % heads} * Dims + d;
    if (a.narrow_out)
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(a.out) + at) = pack_bf16(finish(x, sum), finish(y, sum));
    else
      *reinterpret_cast<float2*>(static_cast<float*>(a.out) + at) = make_float2(finish(x, sum), finish(y, sum));
  }
}

template <class T, int Dims>
void start(Context* c, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  static std::atomic<bool> allowed[64];  // by GPU
  if (c->index >= 64 || !allowed[c->index]) {
    if (!allow_shared(c, reinterpret_cast<const void*>(attend_exactly<T, Dims>), shared_of<Dims>, status)) return;
    if (c->index < 64) allowed[c->index] = true;
  }
  launch(c, attend_exactly<T, Dims>, Shape{grid, dim3(32), shared_of<Dims>}, a);
  if (a.splits > 1) launch(c, fold_chunks<Dims>, Shape{dim3(grid.x), dim3(128)}, a);
}

template <class T>
void start(Context* c, int32_t dims, const DecodeArgs& a, dim3 grid, PluginStatus* status) {
  switch (dims) {
    case 64: return start<T, 64>(c, a, grid, status);
    case 80: return start<T, 80>(c, a, grid, status);
    case 96: return start<T, 96>(c, a, grid, status);
    default: return start<T, 128>(c, a, grid, status);
  }
}

}  // namespace

void decode_exactly(Context* c, const KvDesc& kv, const DecodeArgs& a, unsigned x, unsigned y, PluginStatus* status) {
  if (kv.type == KvType::bf16)
    start<__nv_bfloat16>(c, kv.head_dim, a, dim3(x, y), status);
  else
    start<__half>(c, kv.head_dim, a, dim3(x, y), status);
}

}  // namespace orlop::cuda
