// Products of activations with packed weights: which kernels run. In the computes other than fp32 activations are
// rounded to bf16 and sums are float32; int8 and a8 are computed as bf16.
#include <new>

#include "backend/cuda/chain.cuh"
#include "backend/cuda/codes.cuh"
#include "backend/cuda/entries.h"
#include "backend/cuda/few.cuh"
#include "backend/cuda/fixed.cuh"
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/stream.cuh"
#include "backend/cuda/weights.cuh"

namespace orlop::cuda {
namespace {

// One block a row: normed and rounded.
__global__ void __launch_bounds__(norm_threads) norm_narrow(const float* x, int64_t x_stride, const float* weight, float eps, int64_t dim, __nv_bfloat16* out) {
  __shared__ float parts[8];
  wait_inputs();
  let_next_start();
  const float* from = x + blockIdx.x * x_stride;
  __nv_bfloat16* to = out + blockIdx.x * dim;
  const float scale = norm_scale(from, dim, eps, parts);
  if (dim % 4 == 0 && x_stride % 4 == 0) {
    for (int64_t i = 4 * threadIdx.x; i < dim; i += 4 * norm_threads) {
      const float4 v = *reinterpret_cast<const float4*>(from + i), w = *reinterpret_cast<const float4*>(weight + i);
      *reinterpret_cast<uint2*>(to + i) = {pair(normed(v.x, scale, w.x), normed(v.y, scale, w.y)), pair(normed(v.z, scale, w.z), normed(v.w, scale, w.w))};
    }
  } else {
    for (int64_t i = threadIdx.x; i < dim; i += norm_threads) to[i] = __float2bfloat16_rn(normed(from[i], scale, weight[i]));
  }
}

struct PlainArgs {
  Piece l;
  const unsigned char* piece;
  const void* x;
  int64_t x_stride, m;
  const int32_t* k_map;
  float* out;  // column 0 is the piece's first row
  int64_t out_stride;
  const float* bias;
  bool narrow_x, round, accumulate;
};

// A warp for each row of weights, four rows of activations at a time: float32 products, and whatever the other
// kernels have no room for.
__global__ void plain(PlainArgs a) {
  wait_inputs();
  const int lane = threadIdx.x % 32;
  const int64_t n = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32, m_begin = int64_t{blockIdx.y} * 4;
  if (n >= a.l.rows) return;
  float sum[4] = {};
  for (int64_t k = lane; k < a.l.k; k += 32) {
    const float w = weight(a.l, a.piece, n, k);
    const int64_t from = a.k_map ? a.k_map[k] : k;
    for (int i = 0; i < 4; ++i) {
      if (m_begin + i >= a.m) continue;
      const int64_t at = (m_begin + i) * a.x_stride + from;
      float x = a.narrow_x ? __bfloat162float(static_cast<const __nv_bfloat16*>(a.x)[at]) : static_cast<const float*>(a.x)[at];
      if (a.round) x = __bfloat162float(__float2bfloat16_rn(x));
      sum[i] = fmaf(w, x, sum[i]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const float s = warp_sum(sum[i]) + (a.bias ? a.bias[n] : 0.0f);
    if (lane || m_begin + i >= a.m) continue;
    float& out = a.out[(m_begin + i) * a.out_stride + n];
    out = a.accumulate ? out + s : s;
  }
}

// gate | up side by side to act(gate) * up.
__global__ void gate(const float* product, int64_t n, bool gelu, float* out, int64_t out_stride, bool accumulate, bool narrow) {
  wait_inputs();
  const int64_t row = blockIdx.x, at = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (at >= n) return;
  const float g = product[row * 2 * n + at], u = product[row * 2 * n + n + at];
  const float v = u * (gelu ? 0.5f * g * (1.0f + tanhf(0.7978845608028654f * (g + 0.044715f * g * g * g))) : g / (1.0f + expf(-g)));
  const int64_t to = row * out_stride + at;
  if (narrow)
    reinterpret_cast<__nv_bfloat16*>(out)[to] = __float2bfloat16_rn(v);
  else
    out[to] = accumulate ? out[to] + v : v;
}

bool same_kind(const Piece& a, const Piece& b) {
  return a.codes == b.codes && a.tiled == b.tiled && a.scaled == b.scaled && a.has_min == b.has_min && a.zero == b.zero && a.sub == b.sub &&
         a.rows == b.rows;
}

}  // namespace

void matmul(Context* c, const MatmulArgs& given, PluginStatus* status) try {
  MatmulArgs a = given;
  const LinearDesc& d = *a.desc;
  const Pieces all(d);
  auto* work = static_cast<unsigned char*>(a.workspace);
  const bool fp32 = d.compute == Compute::fp32, gated = d.glu != Glu::none;
  const auto* packed = static_cast<const unsigned char*>(a.packed);
  const bool few = few_takes(*c, d, all, a.m);
  if (!few && matmul_many(c, a, status)) return;
  // fixed() takes rows of bf16; its bits are stream()'s.
  static_assert(fixed_above >= plain_rows);  // up to there the workspace has no room for padded rows
  const bool many = few || (!fp32 && a.m > (c->fast ? few_rows : fixed_above));
  const bool together = gated && (all.count == 1 || (all.count == 2 && same_kind(all.piece[0], all.piece[1])));
  const int32_t* k_map = d.k_map;
  const int64_t product_from = many ? many_raw_at(d, a.m) : product_at(d, a.m);
  FewNorm few_norm;
  if (few && a.norm_weight && !k_map && !a.narrow_x && (!gated || together) && few_squares_bytes(a.m, d.k) <= a.m * product_columns(d) * 4) {
    few_norm = {reinterpret_cast<__nv_bfloat16*>(work), reinterpret_cast<float*>(work + product_from), a.norm_weight, up(d.k, k_block), 0, a.norm_eps};
    if (few_leaves(c, a.x, a.x_stride, a.m, d.k, static_cast<size_t>(product_from + few_squares_bytes(a.m, d.k)), &few_norm)) {
      a.x = reinterpret_cast<const float*>(work);
      a.x_stride = few_norm.stride;
      a.narrow_x = true;
      a.norm_weight = nullptr;
    } else {
      few_norm.rows = nullptr;
    }
  }
  if (many && (a.norm_weight || k_map || !a.narrow_x || !fixed_takes(a.x, a.x_stride, d.k))) {
    const int64_t padded = up(d.k, k_block);
    if (!few || !prepare_rows(c, Elem::bf16, {.x = a.x, .x_stride = a.x_stride, .norm_weight = a.norm_weight, .k_map = k_map, .to = work, .m = a.m, .k = d.k, .k_padded = padded, .eps = a.norm_eps, .narrow = a.narrow_x}))
      fixed_rows(c, {a.x, a.x_stride, a.norm_weight, k_map, reinterpret_cast<__nv_bfloat16*>(work), d.k, padded, a.norm_eps, a.narrow_x}, a.m);
    a.x = reinterpret_cast<const float*>(work);
    a.x_stride = up(d.k, k_block);
    a.narrow_x = true;
    a.norm_weight = nullptr;
    k_map = nullptr;
  } else if (a.norm_weight && (fp32 || (a.m > 2 && !chain_rows_of(*c, a.m)))) {
    if (fp32) {
      norm(c, {a.x, a.x_stride, a.norm_weight, a.norm_eps, reinterpret_cast<float*>(work), d.k, a.m, d.k}, status);
    } else {
      launch(c, norm_narrow, Shape{dim3(blocks(a.m, 1)), dim3(norm_threads)}, a.x, a.x_stride, a.norm_weight, a.norm_eps, d.k,
             reinterpret_cast<__nv_bfloat16*>(work));
      a.narrow_x = true;
    }
    a.x = reinterpret_cast<const float*>(work);
    a.x_stride = d.k;
    a.norm_weight = nullptr;
  }
  // alone: the whole gated product.
  const auto stream_piece = [&](int i, bool alone, float* out, int64_t out_stride, const float* bias, const float* up_bias) {
    const Piece& l = all.piece[i];
    const StreamArgs s{.l = l,
                       .low = packed + l.begin,
                       .high = packed + all.piece[alone ? all.count - 1 : i].begin,
                       .up_row = alone && all.count == 1 ? d.part_n[0] : 0,
                       .x = a.x,
                       .x_stride = a.x_stride,
                       .norm_weight = a.norm_weight,
                       .k_map = k_map,
                       .out = out,
                       .out_stride = out_stride,
                       .bias = bias,
                       .up_bias = up_bias,
                       .n = alone ? d.part_n[0] : l.rows,
                       .norm_eps = a.norm_eps,
                       .m = static_cast<int32_t>(a.m),
                       .glu = static_cast<int32_t>(alone ? d.glu : Glu::none),
                       .narrow_x = a.narrow_x,
                       .narrow_out = alone && a.narrow_out,
                       .accumulate = a.accumulate && (alone || !gated)};
    if (few_norm.rows) {
      if (!few_product(c, s, &few_norm) && status->code == 0) {  // nobody else can do what is left of the norm
        status->code = -12;
        std::snprintf(status->text, sizeof status->text, "a product of rows that lack their norm was refused");
      }
      return true;
    }
    return !fp32 && ((few && few_product(c, s, nullptr)) || (many && fixed(c, s, status)) || chain(c, s) || stream(c, s, status));
  };
  if (together && stream_piece(0, true, a.out, a.out_stride, a.bias, a.bias ? a.bias + d.part_n[0] : nullptr)) return;
  float* product = gated ? reinterpret_cast<float*>(work + product_from) : a.out;
  const int64_t stride = gated ? product_columns(d) : a.out_stride;
  int64_t column = 0;
  for (int i = 0; i < all.count; ++i) {
    const Piece& l = all.piece[i];
    const float* bias = a.bias ? a.bias + column : nullptr;
    if (!stream_piece(i, false, product + column, stride, bias, nullptr)) {
      if (a.norm_weight) {
        norm(c, {a.x, a.x_stride, a.norm_weight, a.norm_eps, a.normed, d.k, a.m, d.k}, status);
        a.x = a.normed;
        a.x_stride = d.k;
        a.norm_weight = nullptr;
      }
      launch(c, plain, Shape{dim3(blocks(l.rows, 8), blocks(a.m, 4)), dim3(256)},
             PlainArgs{l, packed + l.begin, a.x, a.x_stride, a.m, k_map, product + column, stride, bias, a.narrow_x, !fp32, a.accumulate && !gated});
    }
    column += l.rows;
  }
  if (gated)
    launch(c, gate, Shape{dim3(blocks(a.m, 1), blocks(d.part_n[0], 256)), dim3(256)}, product, d.part_n[0], d.glu == Glu::gelu_tanh, a.out,
           a.out_stride, a.accumulate, a.narrow_out);
} catch (const std::bad_alloc&) {
  status->code = -6;
  std::snprintf(status->text, sizeof status->text, "no host memory for a product");
}

}  // namespace orlop::cuda
