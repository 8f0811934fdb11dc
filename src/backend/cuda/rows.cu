// The small ops: embedding, rotary tables, norm, gather, and storing keys and values.
#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"
#include "backend/cuda/weights.cuh"

namespace orlop::cuda {
namespace {

__global__ void embed_rows(Piece l, const unsigned char* packed, const int32_t* ids, const SampleResult* previous, float scale,
                           float* out) {
  wait_inputs();
  const int32_t id = ids[blockIdx.x];
  const int64_t row = id >= 0 ? id : max(previous[-1 - id].token, 0);
  for (int64_t k = threadIdx.x; k < l.k; k += blockDim.x) out[blockIdx.x * l.k + k] = weight(l, packed, row, k) * scale;
}

__global__ void rope_rows(RopeTableArgs a) {
  wait_inputs();
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= a.rows * a.half) return;
  // As the CPU has it: a float product, its cosine and sine in double, rounded once.
  const float angle = __fmul_rn(static_cast<float>(a.positions[at / a.half]), a.inv_freq[at % a.half]);
  a.cos[at] = static_cast<float>(cos(static_cast<double>(angle))) * a.scale;
  a.sin[at] = static_cast<float>(sin(static_cast<double>(angle))) * a.scale;
}

// One block of 256 threads a row.
__global__ void norm_rows(NormArgs a) {
  wait_inputs();
  __shared__ float parts[8];
  const float* x = a.x + blockIdx.x * a.x_stride;
  float* out = a.out + blockIdx.x * a.out_stride;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < a.dim; i += 256) sum += x[i] * x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 8; ++i) sum += parts[i];
  const float inverse = 1.0f / sqrtf(sum / static_cast<float>(a.dim) + a.eps);
  for (int64_t i = threadIdx.x; i < a.dim; i += 256) out[i] = x[i] * inverse * a.weight[i];
}

__global__ void gather_rows(GatherArgs a) {
  wait_inputs();
  const float* x = a.x + a.index[blockIdx.x] * a.x_stride;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) a.out[blockIdx.x * a.dim + i] = x[i];
}

__device__ void put(KvType type, void* to, int64_t at, float v) {
  if (type == KvType::f32)
    static_cast<float*>(to)[at] = v;
  else if (type == KvType::bf16)
    static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(v);
  else  // what is beyond float16 becomes its largest number
    static_cast<__half*>(to)[at] = __float2half_rn(v != v ? v : fminf(fmaxf(v, -65504.0f), 65504.0f));
}

// One warp for each head of a row: queries, then keys, then values.
__global__ void store_rows(KvStoreArgs a) {
  wait_inputs();
  const int lane = threadIdx.x % 32, dims = a.kv.head_dim;
  const int head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  const int64_t row = blockIdx.x;
  if (head >= a.heads + 2 * a.kv.kv_heads) return;
  float* x = a.qkv + row * a.qkv_stride + int64_t{head} * dims;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv.kv_heads;
  if (!is_v) {
    if (const float* weight = is_q ? a.q_norm : a.k_norm) {
      float sum = 0;
      for (int i = lane; i < dims; i += 32) sum += x[i] * x[i];
      const float inverse = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(dims) + a.eps);
      for (int i = lane; i < dims; i += 32) x[i] = x[i] * inverse * weight[i];
      __syncwarp();
    }
    const float* cos = a.cos + row * a.half;
    const float* sin = a.sin + row * a.half;
    for (int i = lane; i < a.half; i += 32) {
      const float p = x[i], q = x[i + a.half];
      x[i] = p * cos[i] - q * sin[i];
      x[i + a.half] = q * cos[i] + p * sin[i];
    }
    __syncwarp();
    if (is_q) return;
  }
  const int32_t slot = a.slots[row];
  const int kv_head = head - a.heads - (is_v ? a.kv.kv_heads : 0);
  const int64_t bytes = kv_head_bytes(a.kv);
  unsigned char* to = static_cast<unsigned char*>(a.pages) +
                      (int64_t{slot / a.kv.page_tokens} * a.kv.kv_heads + kv_head) * bytes + (is_v ? bytes / 2 : 0);
  for (int i = lane; i < dims; i += 32) put(a.kv.type, to, int64_t{slot % a.kv.page_tokens} * dims + i, x[i]);
}

}  // namespace

void embed(Context* c, const EmbedArgs& a, PluginStatus* status) {
  launch(c, embed_rows, Shape{dim3(blocks(a.rows, 1)), dim3(256)}, piece_of(*a.desc, 0, 0),
         static_cast<const unsigned char*>(a.packed), a.ids, a.previous, a.scale, a.out);
}

void rope_table(Context* c, const RopeTableArgs& a, PluginStatus* status) {
  launch(c, rope_rows, Shape{dim3(blocks(a.rows * a.half, 128)), dim3(128)}, a);
}

void norm(Context* c, const NormArgs& a, PluginStatus* status) {
  launch(c, norm_rows, Shape{dim3(blocks(a.rows, 1)), dim3(256)}, a);
}

void gather(Context* c, const GatherArgs& a, PluginStatus* status) {
  launch(c, gather_rows, Shape{dim3(blocks(a.rows, 1)), dim3(256)}, a);
}

void kv_store(Context* c, const KvStoreArgs& a, PluginStatus* status) {
  const int32_t heads = a.heads + 2 * a.kv.kv_heads;
  launch(c, store_rows, Shape{dim3(blocks(a.rows, 1), blocks(heads, 4)), dim3(128)}, a);
}

}  // namespace orlop::cuda
