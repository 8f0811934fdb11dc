// Causal attention over the paged cache. Chunks of attention_chunk keys at absolute positions are reduced one
// by one and folded in ascending order (Milakov and Gimelshein 2018): by one block that walks them, or, for
// few rows, by a block for each chunk and one that folds what they leave. Both fold alike, so bits do not
// depend on which it is.
#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"

namespace orlop::cuda {
namespace {

constexpr int threads = 256;
constexpr int head_tile = 8;  // queries' heads of a block; they share a head of keys and values
static_assert(threads == attention_chunk, "a thread for each key of a chunk");

__device__ inline void widen(const __nv_bfloat16* from, float (&to)[8]) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  const uint32_t word[4] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(word[i] << 16);
    to[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
  }
}
__device__ inline void widen(const __half* from, float (&to)[8]) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  const __half2* pair = reinterpret_cast<const __half2*>(&v);
  for (int i = 0; i < 4; ++i) {
    const float2 f = __half22float2(pair[i]);
    to[2 * i] = f.x;
    to[2 * i + 1] = f.y;
  }
}
__device__ inline void widen(const float* from, float (&to)[8]) {
  for (int i = 0; i < 8; ++i) to[i] = from[i];
}
__device__ inline float number(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float number(__half v) { return __half2float(v); }
__device__ inline float number(float v) { return v; }

// How much of the state and of what is added is kept; a maximum of -inf (nothing yet) adds nothing.
__device__ inline void weights(float state_max, float add_max, float& max, float& keep, float& add) {
  max = add_max > state_max || add_max != add_max ? add_max : state_max;
  const float base = max == -INFINITY ? 0.0f : max;
  keep = expf(state_max - base);
  add = expf(add_max - base);
}

__device__ inline void put_output(const AttentionArgs& a, int64_t at, float v) {
  if (a.narrow_out)
    reinterpret_cast<__nv_bfloat16*>(a.out)[at] = __float2bfloat16_rn(v);
  else
    a.out[at] = v;
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
  const int64_t head_bytes = kv_head_bytes(a.kv);
  const auto cache = [&](int32_t t) {
    const int64_t page = a.page_table[seq.page_begin + t / a.kv.page_tokens];
    return reinterpret_cast<const T*>(static_cast<const unsigned char*>(a.pages) + (page * a.kv.kv_heads + kv_head) * head_bytes) +
           int64_t{t % a.kv.page_tokens} * dims;
  };

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
      const T* key = cache(t);
      for (int32_t d = 0; d < dims; d += 8) {
        float k[8];
        widen(key + d, k);
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
          const float v = number(cache(i)[int64_t{a.kv.page_tokens} * dims + d]);
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
      state[i] = state[i] * keep + sum * add;
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
      bottom[h] = bottom[h] * keep + chunk_sum * add;
      top[h] = new_max;
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < heads * dims; i += threads)
    put_output(a, row * a.out_stride + int64_t{head} * dims + i, state[i] / bottom[i / dims]);
}

// grid: [rows, heads]; what attend left of each chunk, in ascending order.
__global__ void fold(AttentionArgs a, const float* partials, int32_t chunks) {
  wait_inputs();
  const int32_t row = blockIdx.x, head = blockIdx.y, dims = a.kv.head_dim;
  const AttentionSeq seq = a.seqs[find_sequence(a.seqs, a.seq_count, row)];
  const int32_t position = seq.pos_begin + row - seq.row_begin;
  const int32_t oldest = a.window ? max(0, position - a.window + 1) : 0;
  const float* records = partials + (int64_t{row} * a.heads + head) * chunks * attention_record(dims);
  for (int d = threadIdx.x; d < dims; d += blockDim.x) {
    float top = -INFINITY, bottom = 0, value = 0;
    for (int32_t c = oldest / attention_chunk; c <= position / attention_chunk; ++c) {
      const float* record = records + c * attention_record(dims);
      float max, keep, add;
      weights(top, record[0], max, keep, add);
      bottom = bottom * keep + record[1] * add;
      value = value * keep + record[4 + d] * add;
      top = max;
    }
    put_output(a, row * a.out_stride + int64_t{head} * dims + d, value / bottom);
  }
}

template <class T>
void run(Context* c, const AttentionArgs& given, PluginStatus* status) {
  AttentionArgs a = given;
  a.max_context = 0;  // no kernel reads it, and it would make every step's list another
  const int32_t group = a.heads / a.kv.kv_heads, tiles = (group + head_tile - 1) / head_tile, dims = a.kv.head_dim;
  const int32_t wide = (dims + 31) / 32 * 32, parts = wide < threads ? threads / wide : 1;
  const size_t shared = sizeof(float) * (static_cast<size_t>(head_tile * dims) * static_cast<size_t>(2 + parts) + head_tile * (threads + 8 + 2));
  if (size_t& allowed = c->attention_shared[static_cast<int>(a.kv.type)]; shared > allowed) {
    const Here here(c, status);
    if (!here || !good(cudaFuncSetAttribute(attend<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), "attention", status)) return;
    allowed = shared;
  }
  const int32_t chunks = (given.max_context + attention_chunk - 1) / attention_chunk;
  const bool split = a.rows <= split_rows && chunks > 1;
  auto* partials = split ? static_cast<float*>(a.workspace) : nullptr;
  launch(c, attend<T>, Shape{dim3(blocks(a.rows, 1), static_cast<unsigned>(a.kv.kv_heads * tiles), split ? static_cast<unsigned>(chunks) : 1u), dim3(threads), shared}, a, tiles, partials, chunks);
  if (split)
    launch(c, fold, Shape{dim3(blocks(a.rows, 1), static_cast<unsigned>(a.heads)), dim3(128)}, a, static_cast<const float*>(partials), chunks);
}

}  // namespace

void attention(Context* c, const AttentionArgs& a, PluginStatus* status) {
  if (a.kv.type == KvType::bf16)
    run<__nv_bfloat16>(c, a, status);
  else if (a.kv.type == KvType::f16)
    run<__half>(c, a, status);
  else
    run<float>(c, a, status);
}

}  // namespace orlop::cuda
