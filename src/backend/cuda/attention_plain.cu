// Attention for what the other kernels do not take: fp32 pages, head sizes of any kind. Chunks of
// attention_chunk keys at absolute positions are reduced one by one and folded in ascending order (Milakov and
// Gimelshein 2018): by one block that walks them, or, for few rows, by a block for each chunk and one that folds
// what they leave. Both fold alike, so bits do not depend on which it is.
#include <atomic>

#include "backend/cuda/common.cuh"

#include "backend/cuda/attention_entries.h"

namespace orlop::cuda {
namespace {

constexpr int threads = 256;
constexpr int head_tile = 8;  // queries' heads of a block; they share a head of keys and values
static_assert(threads == attention_chunk, "a thread for each key of a chunk");

__device__ inline float number(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float number(__half v) { return __half2float(v); }
__device__ inline float number(float v) { return v; }
__device__ inline float bf16(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

// Keys and values of a sequence and a head, as floats.
template <class T>
struct Cache {
  const AttentionArgs& a;
  const KvLayout l;
  const AttentionSeq& seq;
  const int32_t kv_head;
  __device__ Cache(const AttentionArgs& args, const AttentionSeq& s, int32_t head, int32_t) : a(args), l(args.kv), seq(s), kv_head(head) {}
  __device__ const T* at(int32_t t) const {
    return plain_keys<T>(l, a.pages, a.page_table[seq.page_begin + t / l.page_tokens], kv_head) + int64_t{t % l.page_tokens} * l.head_dim;
  }
  __device__ void key(int32_t t, int32_t d, float (&to)[8]) const {  // dimensions d to d + 7
    const T* from = at(t) + d;
    for (int i = 0; i < 8; ++i) to[i] = number(from[i]);
  }
  __device__ float value(int32_t t, int32_t d) const { return number(at(t)[int64_t{l.page_tokens} * l.head_dim + d]); }
};

// The same of codes: cpu/kv_code.h. Keys of the query's own tile are bf16, of the tail or the call's own rows.
template <bool int8>
struct Codes8 {};
template <bool int8>
struct Cache<Codes8<int8>> {
  const AttentionArgs& a;
  const KvLayout l;
  const AttentionSeq& seq;
  const int32_t kv_head, position;
  __device__ Cache(const AttentionArgs& args, const AttentionSeq& s, int32_t head, int32_t query)
      : a(args), l(args.kv), seq(s), kv_head(head), position(query) {}
  __device__ const unsigned char* head(int32_t t) const {
    return static_cast<const unsigned char*>(a.pages) + l.head_at(a.page_table[seq.page_begin + t / l.page_tokens], kv_head);
  }
  __device__ static float code(const unsigned char* codes, CodePlace p) {
    if (int8) return static_cast<float>(codes[p.byte] - 128);
    return static_cast<float>((codes[p.byte] >> p.shift & 15) - 8);
  }
  __device__ void key(int32_t t, int32_t d, float (&to)[8]) const {
    const int32_t in_page = t % l.page_tokens;
    if (t / l.key_tile == position / l.key_tile) {
      if (t >= seq.pos_begin) {
        const float* k = a.k + (int64_t{seq.row_begin} + t - seq.pos_begin) * a.k_stride + int64_t{kv_head} * l.head_dim + d;
        for (int i = 0; i < 8; ++i) to[i] = number(__float2bfloat16_rn(k[i]));
      } else {
        const uint16_t* k = reinterpret_cast<const uint16_t*>(static_cast<const unsigned char*>(a.tails) + int64_t{seq.seat} * l.tail_bytes + kv_head * l.tail_head) +
                            t % l.key_tile * l.head_dim + d;
        for (int i = 0; i < 8; ++i) to[i] = bf16(k[i]);
      }
      return;
    }
    const unsigned char* h = head(t);
    const uint16_t* grids = reinterpret_cast<const uint16_t*>(h + l.key_grids_of(in_page));
    const float unit = *reinterpret_cast<const float*>(h + l.key_unit_of(in_page));
    for (int i = 0; i < 8; ++i)
      to[i] = fmaf(code(h + l.key_codes_of(in_page), key_code(int8, l.lane_words, in_page % 16, d + i)), __half2float(__ushort_as_half(grids[grid_at(d + i) + grid_share])) * unit,
                   __half2float(__ushort_as_half(grids[grid_at(d + i)])));
  }
  __device__ float value(int32_t t, int32_t d) const {
    const int32_t in_page = t % l.page_tokens;
    const unsigned char* h = head(t);
    const uint16_t* grids = reinterpret_cast<const uint16_t*>(h + l.value_grid_of(in_page));
    const float c = code(h + l.value_codes_of(in_page), value_code(int8, l.lane_words, in_page % 16, d));
    return int8 ? c * bf16(grids[0]) : fmaf(c, bf16(grids[0]), bf16(grids[l.block_tokens]));
  }
};

// Outputs [heads][dims] in shared memory, over the sums, to their row; values of codes were turned (cpu/kv_code.h).
__device__ void finish(const AttentionArgs& a, float* x, int32_t heads, int64_t row, int32_t head) {
  const int32_t dims = a.kv.head_dim;
  __syncthreads();
  if (is_coded(a.kv.type)) {
    const int32_t block = dims & -dims;
    const float scale = 1.0f / sqrtf(static_cast<float>(block));
    for (int h = 1; h < block; h *= 2) {
      for (int p = threadIdx.x; p < heads * dims / 2; p += blockDim.x) {
        const int i = p / h * 2 * h + p % h;
        const float v = x[i], w = x[i + h];
        x[i] = v + w;
        x[i + h] = v - w;
      }
      __syncthreads();
    }
    for (int i = threadIdx.x; i < heads * dims; i += blockDim.x) x[i] *= scale;
    __syncthreads();
  }
  const int64_t to = row * a.out_stride + int64_t{head} * dims;
  for (int i = threadIdx.x; i < heads * dims; i += blockDim.x) {
    if (a.narrow_out)
      reinterpret_cast<__nv_bfloat16*>(a.out)[to + i] = __float2bfloat16_rn(x[i]);
    else
      a.out[to + i] = x[i];
  }
}

// Both ways of folding round alike: no product is left to the compiler to fuse or not.
// How much of the state and of what is added is kept; a maximum of -inf (nothing yet) adds nothing.
__device__ inline void weights(float state_max, float add_max, float& max, float& keep, float& add) {
  max = add_max > state_max || add_max != add_max ? add_max : state_max;
  const float base = max == -INFINITY ? 0.0f : max;
  keep = expf(state_max - base);
  add = expf(add_max - base);
}


__device__ int find_sequence(const AttentionSeq* seqs, int32_t count, int32_t row) {
  int32_t low = 0, high = count - 1;  // the last that begins at or before the row, rows ascend
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (seqs[middle].row_begin <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// grid: [rows, kv heads * tiles of heads, chunks or 1]
template <class T>
__global__ void __launch_bounds__(threads) attend(AttentionArgs a, int32_t tiles, float* partials, int32_t chunks) {
  let_next_start();
  wait_inputs();
  extern __shared__ float shared[];
  const int32_t dims = a.kv.head_dim, group = a.heads / a.kv.kv_heads;
  const int32_t row = blockIdx.x, kv_head = blockIdx.y / tiles, first = blockIdx.y % tiles * head_tile;
  const int32_t heads = min(head_tile, group - first), head = kv_head * group + first;
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t wide = (dims + 31) / 32 * 32, parts = max(1, threads / wide);  // threads of a value's dims; shares of a chunk's keys
  float* q = shared;                             // [head_tile][dims]
  float* score = q + head_tile * dims;           // [head_tile][threads]
  float* added = score + head_tile * threads;    // [parts][head_tile][dims]
  float* state = added + parts * head_tile * dims;  // [head_tile][dims]
  float* warp_part = state + head_tile * dims;   // [head_tile][8]
  float* top = warp_part + head_tile * 8;        // [head_tile]: maximum, then sum, of the state
  float* bottom = top + head_tile;

  const AttentionSeq seq = a.seqs[find_sequence(a.seqs, a.seq_count, row)];
  const int32_t position = seq.pos_begin + row - seq.row_begin;
  const int32_t oldest = a.window ? max(0, position - a.window + 1) : 0;
  const Cache<T> cache(a, seq, kv_head, position);

  for (int i = threadIdx.x; i < heads * dims; i += threads) {
    q[i] = a.q[row * a.q_stride + int64_t{head} * dims + i];
    state[i] = 0;
  }
  if (threadIdx.x < head_tile) top[threadIdx.x] = -INFINITY, bottom[threadIdx.x] = 0;
  __syncthreads();

  const int32_t last = position / attention_chunk;
  const bool split = partials != nullptr;
  const int32_t begin = split ? blockIdx.z : oldest / attention_chunk, end = split ? min(last, begin) : last;
  if (split && (begin > last || begin < oldest / attention_chunk)) return;  // fold() does not look there
  for (int32_t chunk = begin; chunk <= end; ++chunk) {
    const int32_t t = chunk * attention_chunk + threadIdx.x;
    const bool seen = t <= position && t >= oldest;
    float dot[head_tile] = {};
    if (seen) {
      for (int32_t d = 0; d < dims; d += 8) {
        float k[8];
        cache.key(t, d, k);
        for (int h = 0; h < heads; ++h)
          for (int e = 0; e < 8; ++e) dot[h] = fmaf(q[h * dims + d + e], k[e], dot[h]);
      }
    }
    float peak[head_tile];
    for (int h = 0; h < heads; ++h) {
      dot[h] = seen ? dot[h] * a.scale : -INFINITY;
      const float m = warp_max(dot[h]);
      if (lane == 0) warp_part[h * 8 + warp] = m;
    }
    __syncthreads();
    for (int h = 0; h < heads; ++h) {
      peak[h] = warp_part[h * 8];
      for (int w = 1; w < 8; ++w) peak[h] = fmaxf(peak[h], warp_part[h * 8 + w]);
    }
    __syncthreads();
    for (int h = 0; h < heads; ++h) {
      const float p = seen ? expf(dot[h] - peak[h]) : 0.0f;  // a chunk that is walked has a key that is seen
      score[h * threads + threadIdx.x] = p;
      const float s = warp_sum(p);
      if (lane == 0) warp_part[h * 8 + warp] = s;
    }
    __syncthreads();
    // Values: a thread for each dimension and share of the keys.
    const int32_t t_begin = max(oldest, chunk * attention_chunk), t_end = min(position + 1, (chunk + 1) * attention_chunk);
    const int32_t share = threadIdx.x / wide;
    if (share < parts)
      for (int32_t d = threadIdx.x % wide; d < dims; d += wide < threads ? wide : threads) {
        float sum[head_tile] = {};
        const int32_t each = attention_chunk / parts, from = chunk * attention_chunk + share * each;
        for (int32_t i = max(t_begin, from); i < min(t_end, from + each); ++i) {
          const float v = cache.value(i, d);
          for (int h = 0; h < heads; ++h) sum[h] = fmaf(score[h * threads + i - chunk * attention_chunk], v, sum[h]);
        }
        for (int h = 0; h < heads; ++h) added[(share * head_tile + h) * dims + d] = sum[h];
      }
    __syncthreads();
    for (int i = threadIdx.x; i < heads * dims; i += threads) {
      const int h = i / dims;
      float sum = 0, chunk_sum = 0;
      for (int s = 0; s < parts; ++s) sum += added[(s * head_tile + h) * dims + i % dims];
      for (int w = 0; w < 8; ++w) chunk_sum += warp_part[h * 8 + w];
      if (split) {
        float* record = partials + ((int64_t{row} * a.heads + head + h) * chunks + chunk) * attention_record(dims);
        record[4 + i % dims] = sum;
        if (i % dims == 0) record[0] = peak[h], record[1] = chunk_sum;
        continue;
      }
      float new_max, keep, add;
      weights(top[h], peak[h], new_max, keep, add);
      state[i] = __fmaf_rn(state[i], keep, __fmul_rn(sum, add));
    }
    if (split) return;
    __syncthreads();
    if (threadIdx.x < heads) {
      const int h = threadIdx.x;
      float chunk_sum = 0, new_max, keep, add;
      for (int w = 0; w < 8; ++w) chunk_sum += warp_part[h * 8 + w];
      float chunk_max = -INFINITY;
      for (int i = 0; i < heads; ++i)
        if (i == h) chunk_max = peak[i];
      weights(top[h], chunk_max, new_max, keep, add);
      bottom[h] = __fmaf_rn(bottom[h], keep, __fmul_rn(chunk_sum, add));
      top[h] = new_max;
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < heads * dims; i += threads) state[i] /= bottom[i / dims];
  finish(a, state, heads, row, head);
}

// grid: [rows, heads]; what attend left of each chunk, in ascending order.
__global__ void fold(AttentionArgs a, const float* partials, int32_t chunks) {
  let_next_start();
  wait_inputs();
  const int32_t row = blockIdx.x, head = blockIdx.y, dims = a.kv.head_dim;
  const AttentionSeq seq = a.seqs[find_sequence(a.seqs, a.seq_count, row)];
  const int32_t position = seq.pos_begin + row - seq.row_begin;
  const int32_t oldest = a.window ? max(0, position - a.window + 1) : 0;
  const float* records = partials + (int64_t{row} * a.heads + head) * chunks * attention_record(dims);
  extern __shared__ float shared[];  // [dims]
  for (int d = threadIdx.x; d < dims; d += blockDim.x) {
    float top = -INFINITY, bottom = 0, value = 0;
    for (int32_t c = oldest / attention_chunk; c <= position / attention_chunk; ++c) {
      const float* record = records + c * attention_record(dims);
      float max, keep, add;
      weights(top, record[0], max, keep, add);
      bottom = __fmaf_rn(bottom, keep, __fmul_rn(record[1], add));
      value = __fmaf_rn(value, keep, __fmul_rn(record[4 + d], add));
      top = max;
    }
    shared[d] = value / bottom;
  }
  finish(a, shared, 1, row, head);
}

template <class T>
void run(Context* c, const AttentionArgs& given, PluginStatus* status) {
  AttentionArgs a = given;
  a.max_context = 0;  // no kernel reads it, and it would make every step's list another
  const int32_t group = a.heads / a.kv.kv_heads, tiles = (group + head_tile - 1) / head_tile, dims = a.kv.head_dim;
  const int32_t wide = (dims + 31) / 32 * 32, parts = wide < threads ? threads / wide : 1;
  const size_t shared = sizeof(float) * (static_cast<size_t>(head_tile * dims) * static_cast<size_t>(2 + parts) + head_tile * (threads + 8 + 2));
  static std::atomic<size_t> allowed[64];  // by GPU
  if (shared > 48 * 1024 && (c->index >= 64 || shared > allowed[c->index])) {
    if (!allow_shared(c, reinterpret_cast<const void*>(attend<T>), shared, status)) return;
    if (c->index < 64) allowed[c->index] = shared;
  }
  const int32_t chunks = (given.max_context + attention_chunk - 1) / attention_chunk;
  const bool split = a.rows <= split_rows && chunks > 1;
  auto* partials = split ? static_cast<float*>(a.workspace) : nullptr;
  launch(c, attend<T>, Shape{dim3(blocks(a.rows, 1), static_cast<unsigned>(a.kv.kv_heads * tiles), split ? static_cast<unsigned>(chunks) : 1u), dim3(threads), shared}, a, tiles, partials, chunks);
  if (split)
    launch(c, fold, Shape{dim3(blocks(a.rows, 1), static_cast<unsigned>(a.heads)), dim3(128), sizeof(float) * static_cast<size_t>(dims)}, a, static_cast<const float*>(partials), chunks);
}

}  // namespace

void attend_plainly(Context* c, const AttentionArgs& a, PluginStatus* status) {
  switch (a.kv.type) {
    case KvType::f32:
      return run<float>(c, a, status);
    case KvType::bf16:
      return run<__nv_bfloat16>(c, a, status);
    case KvType::f16:
      return run<__half>(c, a, status);
    case KvType::int8:
      return run<Codes8<true>>(c, a, status);
    case KvType::uint4:
      return run<Codes8<false>>(c, a, status);
  }
}

}  // namespace orlop::cuda
