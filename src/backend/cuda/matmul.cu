// Products of activations with packed weights. bf16: m16n8k16 tensor core steps with the weights' codes,
// which bf16 holds exactly, and float32 sums; scales and mins are applied to the sums of each group. The row
// of weights is cut into eight fixed pieces, one a warp, added in order: an output's bits depend on its own
// inputs alone, not on the number of rows. fp32: float32 throughout. int8 and a8 are computed as bf16.
#include "backend/cuda/common.cuh"
#include "backend/cuda/entries.h"
#include "backend/cuda/weights.cuh"

namespace orlop::cuda {
namespace {

constexpr int warps = 8;       // of a product's block: pieces of k
constexpr int tile_rows = 16;  // weights' rows of a block

// Activations of 16 elements of k, a thread: gathered by k_map, rounded, put into place, added up.
__global__ void prepare(const float* x, int64_t x_stride, const int32_t* k_map, int64_t k, bool fp32, InputLayout in, unsigned char* to) {
  const int64_t block16 = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (block16 >= in.sums) return;
  float* wide = reinterpret_cast<float*>(to + row * in.row_bytes);
  __nv_bfloat16* narrow = reinterpret_cast<__nv_bfloat16*>(to + row * in.row_bytes);
  float sum = 0;
  for (int i = 0; i < 16; ++i) {
    const int64_t at = block16 * 16 + i;
    const float v = at < k ? x[row * x_stride + (k_map ? k_map[at] : at)] : 0.0f;
    if (fp32) {
      wide[at] = v;
    } else {
      narrow[place(at)] = __float2bfloat16_rn(v);
      sum += __bfloat162float(__float2bfloat16_rn(v));
    }
  }
  reinterpret_cast<float*>(to + in.sums_at)[row * in.sums + block16] = sum;
}

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pair(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}

__device__ inline uint32_t less(uint32_t a, uint32_t b) {
  const __nv_bfloat162 v = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}

// A thread's 32 elements of a block of 128: four of each of eight steps, as pairs of bf16.
template <Codes codes>
struct Piece;
template <>
struct Piece<Codes::bf16> {
  uint4 v[4];
  __device__ void load(const unsigned char* row, int64_t block, int j) {
    const uint4* from = reinterpret_cast<const uint4*>(row + block * 256 + j * 64);
    for (int i = 0; i < 4; ++i) v[i] = __ldg(from + i);
  }
  __device__ void step(int i, int32_t, uint32_t& first, uint32_t& second) const {
    first = i % 2 ? v[i / 2].z : v[i / 2].x;
    second = i % 2 ? v[i / 2].w : v[i / 2].y;
  }
};
template <>
struct Piece<Codes::i8> {
  uint4 v[2];
  __device__ void load(const unsigned char* row, int64_t block, int j) {
    const uint4* from = reinterpret_cast<const uint4*>(row + block * 128 + j * 32);
    v[0] = __ldg(from);
    v[1] = __ldg(from + 1);
  }
  __device__ void step(int i, int32_t, uint32_t& first, uint32_t& second) const {
    const uint4& q = v[i / 4];
    // A byte u = code + 128 below 2^23's bits is the float 2^23 + u.
    const uint32_t u = (i % 4 == 0 ? q.x : i % 4 == 1 ? q.y : i % 4 == 2 ? q.z : q.w) ^ 0x80808080u;
    float f[4];
    for (int e = 0; e < 4; ++e) f[e] = __uint_as_float(0x4b000000u | (u >> 8 * e & 255)) - 8388736.0f;
    first = pair(f[0], f[1]);
    second = pair(f[2], f[3]);
  }
};
template <>
struct Piece<Codes::u4> {
  uint4 v;
  __device__ void load(const unsigned char* row, int64_t block, int j) {
    v = __ldg(reinterpret_cast<const uint4*>(row + block * 64 + j * 16));
  }
  __device__ void step(int i, int32_t zero, uint32_t& first, uint32_t& second) const {
    const uint32_t word = (i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w) >> (i % 2 * 8);
    // A nibble below the bits of 128 is the bf16 number 128 + code; what is taken off is exact too.
    const uint32_t off = 0x43004300u + static_cast<uint32_t>(zero) * 0x10001u;
    first = less(word & 0x000f000fu | 0x43004300u, off);
    second = less(word >> 4 & 0x000f000fu | 0x43004300u, off);
  }
};

struct ProductArgs {
  PartLayout l;
  const unsigned char* part;
  const unsigned char* input;  // as prepare leaves it
  InputLayout in;
  int64_t m;
  float* out;  // [m, ...]: column 0 is the part's first row
  int64_t out_stride;
  const float* bias;  // of the part, or null
  bool accumulate;
};

// 16 rows of weights times 8 * tiles rows of activations, by eight warps. `steps`: of 16 elements, that share
// a scale within a block; 8: the whole block does (or there are no scales); 0: any number.
template <Codes codes, int tiles, int steps>
__global__ void __launch_bounds__(32 * warps) product(ProductArgs a) {
  extern __shared__ float sums[];  // [warps][8 * tiles][16]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, j = lane % 4, group_row = lane / 4;
  const int64_t row = int64_t{blockIdx.x} * tile_rows, m_begin = int64_t{blockIdx.y} * 8 * tiles;
  const PartLayout& l = a.l;
  const int all = static_cast<int>(l.k_padded / k_block), each = (all + warps - 1) / warps;
  const int begin = warp * each, end = min(all, begin + each);
  const int64_t low = row + group_row, high = low + 8;  // padded rows exist
  const unsigned char* low_codes = a.part + low * l.row_bytes;
  const unsigned char* high_codes = a.part + high * l.row_bytes;
  const float* scales = reinterpret_cast<const float*>(a.part + l.scales_at);
  const float* mins = reinterpret_cast<const float*>(a.part + l.mins_at);
  const float* low_scales = scales + low * l.groups;
  const float* high_scales = scales + high * l.groups;
  const float* input_sums = reinterpret_cast<const float*>(a.input + a.in.sums_at);
  const unsigned group_steps = static_cast<unsigned>(l.group / 16);
  const auto group_of = [&](int b, int i) {  // of a block's step
    return steps == 8 ? static_cast<unsigned>(b) * 8 / group_steps
           : steps    ? static_cast<unsigned>(b * (8 / max(steps, 1)) + i / max(steps, 1))
                      : static_cast<unsigned>(8 * b + i) / group_steps;
  };

  float total[tiles][4] = {};
  Piece<codes> first, second;
  if (begin < end) {
    first.load(low_codes, begin, j);
    second.load(high_codes, begin, j);
  }
  for (int b = begin; b < end; ++b) {
    uint32_t w[8][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      first.step(i, l.zero, w[i][0], w[i][2]);
      second.step(i, l.zero, w[i][1], w[i][3]);
    }
    if (b + 1 < end) {  // while this block is multiplied
      first.load(low_codes, b + 1, j);
      second.load(high_codes, b + 1, j);
    }
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int64_t m = m_begin + 8 * t + group_row;
      uint4 x[4] = {};
      if (m < a.m) {
        const uint4* from = reinterpret_cast<const uint4*>(a.input + m * a.in.row_bytes + int64_t{b} * 256 + j * 64);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = from[i];
      }
      float c[4] = {};
      int since = 0;  // the step after the last that was scaled
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        mma(c, w[i], i % 2 ? x[i / 2].z : x[i / 2].x, i % 2 ? x[i / 2].w : x[i / 2].y);
        if (i < 7 && (steps ? (i + 1) % max(steps, 1) != 0 : static_cast<unsigned>(8 * b + i + 1) % group_steps != 0)) continue;
        float low_scale = 1.0f, high_scale = 1.0f;
        if (l.scaled) {
          const unsigned g = group_of(b, i);
          low_scale = low_scales[g];
          high_scale = high_scales[g];
          if (l.has_min) {
            const int64_t columns[2] = {m_begin + 8 * t + 2 * j, m_begin + 8 * t + 2 * j + 1};
            for (int e = 0; e < 2; ++e) {
              if (columns[e] >= a.m) continue;
              float sum = 0;
              for (int s = since; s <= i; ++s) sum += input_sums[columns[e] * a.in.sums + b * 8 + s];
              total[t][e] += mins[low * l.groups + g] * sum;
              total[t][2 + e] += mins[high * l.groups + g] * sum;
            }
          }
        }
        total[t][0] += low_scale * c[0];
        total[t][1] += low_scale * c[1];
        total[t][2] += high_scale * c[2];
        total[t][3] += high_scale * c[3];
        c[0] = c[1] = c[2] = c[3] = 0;
        since = i + 1;
      }
    }
  }
  for (int t = 0; t < tiles; ++t)
    for (int e = 0; e < 4; ++e)
      sums[(warp * 8 * tiles + 8 * t + 2 * j + e % 2) * tile_rows + group_row + e / 2 * 8] = total[t][e];
  __syncthreads();
  for (int at = threadIdx.x; at < 8 * tiles * tile_rows; at += 32 * warps) {
    const int64_t m = m_begin + at / tile_rows, n = row + at % tile_rows;
    if (m >= a.m || n >= l.rows) continue;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[w * 8 * tiles * tile_rows + at];
    if (a.bias) sum += a.bias[n];
    float& out = a.out[m * a.out_stride + n];
    out = a.accumulate ? out + sum : sum;
  }
}

// A warp for each row of weights, four rows of activations at a time.
__global__ void product_fp32(ProductArgs a) {
  const int lane = threadIdx.x % 32;
  const int64_t n = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32, m_begin = int64_t{blockIdx.y} * 4;
  if (n >= a.l.rows) return;
  float sum[4] = {};
  for (int64_t k = lane; k < a.l.k; k += 32) {
    const float w = weight(a.l, a.part, n, k);
    for (int i = 0; i < 4; ++i)
      if (m_begin + i < a.m) sum[i] = fmaf(w, reinterpret_cast<const float*>(a.input + (m_begin + i) * a.in.row_bytes)[k], sum[i]);
  }
  for (int i = 0; i < 4; ++i) {
    const float s = warp_sum(sum[i]) + (a.bias ? a.bias[n] : 0.0f);
    if (lane || m_begin + i >= a.m) continue;
    float& out = a.out[(m_begin + i) * a.out_stride + n];
    out = a.accumulate ? out + s : s;
  }
}

// gate | up side by side to act(gate) * up.
__global__ void gate(const float* product, int64_t n, bool gelu, float* out, int64_t out_stride, bool accumulate) {
  const int64_t row = blockIdx.y, at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= n) return;
  const float g = product[row * 2 * n + at], u = product[row * 2 * n + n + at];
  const float act = gelu ? 0.5f * g * (1.0f + tanhf(0.7978845608028654f * (g + 0.044715f * g * g * g))) : g / (1.0f + expf(-g));
  float& to = out[row * out_stride + at];
  to = accumulate ? to + act * u : act * u;
}

template <Codes codes, int steps>
void run(Context* c, const ProductArgs& a, PluginStatus* status) {
  const auto go = [&](auto* kernel, int tiles) {
    launch(c, kernel, dim3(blocks(a.l.rows, tile_rows), blocks(a.m, 8 * tiles)), dim3(32 * warps),
           sizeof(float) * warps * 8 * static_cast<size_t>(tiles) * tile_rows, a);
  };
  if (a.m <= 8) return go(product<codes, 1, steps>, 1);
  if (a.m <= 16) return go(product<codes, 2, steps>, 2);
  if (a.m <= 32) return go(product<codes, 4, steps>, 4);
  go(product<codes, 8, steps>, 8);
}

template <Codes codes>
void run(Context* c, const ProductArgs& a, PluginStatus* status) {
  if (!a.l.scaled || a.l.group % k_block == 0) return run<codes, 8>(c, a, status);
  if (a.l.group == 16) return run<codes, 1>(c, a, status);
  if (a.l.group == 32) return run<codes, 2>(c, a, status);
  if (a.l.group == 64) return run<codes, 4>(c, a, status);
  run<codes, 0>(c, a, status);
}

}  // namespace

void matmul(Context* c, const MatmulArgs& a, PluginStatus* status) {
  const LinearDesc& d = *a.desc;
  const InputLayout in(d, a.m);
  auto* input = static_cast<unsigned char*>(a.workspace);
  const bool fp32 = d.compute == Compute::fp32, gated = d.glu != Glu::none;
  launch(c, prepare, dim3(blocks(in.sums, 64), blocks(a.m, 1)), dim3(64), 0, a.x, a.x_stride, d.k_map, d.k, fp32, in, input);
  float* product_out = gated ? reinterpret_cast<float*>(input + in.bytes) : a.out;
  const int64_t product_stride = gated ? product_columns(d) : a.out_stride;
  const auto* part = static_cast<const unsigned char*>(a.packed);
  int64_t column = 0;
  for (int p = 0; p < d.part_count; ++p) {
    const PartLayout l = part_layout(d, p);
    const ProductArgs args{l, part, input, in, a.m, product_out + column, product_stride, a.bias ? a.bias + column : nullptr,
                           a.accumulate && !gated};
    if (fp32)
      launch(c, product_fp32, dim3(blocks(l.rows, 8), blocks(a.m, 4)), dim3(256), 0, args);
    else if (l.codes == Codes::u4)
      run<Codes::u4>(c, args, status);
    else if (l.codes == Codes::i8)
      run<Codes::i8>(c, args, status);
    else
      run<Codes::bf16>(c, args, status);
    part += l.bytes;
    column += l.rows;
  }
  if (gated)
    launch(c, gate, dim3(blocks(d.part_n[0], 256), blocks(a.m, 1)), dim3(256), 0, product_out, d.part_n[0],
           d.glu == Glu::gelu_tanh, a.out, a.out_stride, a.accumulate);
}

}  // namespace orlop::cuda
