// Results of mixed.cu's products on their way out.
#pragma once
#include "backend/cuda/gemm.cuh"

namespace orlop::cuda::mixed_out {

constexpr int consumers = 256;  // two warpgroups; a third copies, and gives them its registers
// After the stages, a warp's: 16 rows of x by 32 of weights on their way out, padded against conflicts of banks.
constexpr int desk_stride = 36, desk_floats = 16 * desk_stride, desk_bytes = consumers / 32 * desk_floats * 4;

struct Plan {
  int32_t steps, total;  // of a tile; of all tiles
  int32_t row_tiles, m_tiles, blocks, stages, stage_bytes, slot_bytes;
  int32_t even, unused;  // even: four neighbours of a row of the result may be stored at once
};

struct Args {
  MixedArgs a;
  Plan p;
};

__device__ inline float act(float g, bool gelu) {
  const float power = gelu ? -1.5957691216057308f * (g + 0.044715f * g * g * g) : -g;
  return __fdividef(g, 1.0f + __expf(fminf(power, 80.0f)));
}

// A thread's part of 16 rows of x by its warp's rows of weights: [which eight rows of x][which product]. Of a
// float4: the first two are neighbouring rows of x, for one row of weights; the others eight rows of weights further.
struct Part {
  float4 v[2][2];
};

// What a warp's rows of a tile get: their bias, and where they go.
template <int N>
class Way {
 public:
  __device__ Way(const Args& args, int row_tile, int m_tile, float* desk)
      : a_(args.a), desk_(desk + threadIdx.x / 32 * desk_floats), even_(args.p.even), token_(int64_t{m_tile} * N), lane_(threadIdx.x % 32) {
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
    row_ = int64_t{row_tile} * (a_.glu ? 128 : 256) + group * (a_.glu ? 64 : 128) + warp * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = row_ + lane_ / 4 + i % 2 * 8 + (a_.glu ? 0 : i / 2 * 64);
      const float* from = a_.glu && i / 2 ? a_.up_bias : a_.bias;
      bias_[i] = from && row < a_.n ? from[row] : 0.0f;
    }
  }

  // Rows [16 c, 16 c + 16) of x. The warp turns them around in shared memory, so that neighbours are stored together.
  __device__ void out(int c, const Part& p) const {
    const int j = lane_ % 4, g = lane_ / 4;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const float u[4] = {p.v[t][0].x, p.v[t][0].y, p.v[t][0].z, p.v[t][0].w}, v[4] = {p.v[t][1].x, p.v[t][1].y, p.v[t][1].z, p.v[t][1].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float* to = desk_ + (8 * t + 2 * j + e % 2) * desk_stride + g + e / 2 * 8;
        const float first = u[e] + bias_[e / 2], second = v[e] + bias_[2 + e / 2];
        if (a_.glu) {
          to[0] = act(first, a_.glu == static_cast<int32_t>(Glu::gelu_tanh)) * second;
        } else {
          to[0] = first;
          to[16] = second;
        }
      }
    }
    __syncwarp();
    if (a_.glu)
      store<2>(16 * c, lane_ / 4, lane_ % 4 * 4, row_ + lane_ % 4 * 4);
    else
      store<4>(16 * c, lane_ / 8, lane_ % 8 * 4, row_ + lane_ % 4 * 4 + lane_ % 8 / 4 * 64);
    __syncwarp();
  }

 private:
  // Four neighbouring rows of weights, of `times` rows of x.
  template <int times>
  __device__ void store(int begin, int first, int at, int64_t row) const {
    constexpr int step = 16 / times;
    const bool whole = even_ && row + 4 <= a_.n;
    float4 v[times], before[times];
#pragma unroll
    for (int i = 0; i < times; ++i) {
      v[i] = *reinterpret_cast<const float4*>(desk_ + (first + i * step) * desk_stride + at);
      const int64_t token = token_ + begin + first + i * step;
      if (!a_.accumulate || !whole || token >= a_.m) continue;
      const int64_t to = token * a_.out_stride + row;
      if (a_.narrow_out) {
        const uint2 q = *reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(a_.out) + to);
        before[i] = make_float4(__uint_as_float(q.x << 16), __uint_as_float(q.x & 0xffff0000u), __uint_as_float(q.y << 16), __uint_as_float(q.y & 0xffff0000u));
      } else {
        before[i] = *reinterpret_cast<const float4*>(static_cast<const float*>(a_.out) + to);
      }
    }
#pragma unroll
    for (int i = 0; i < times; ++i) {
      const int64_t token = token_ + begin + first + i * step, to = token * a_.out_stride + row;
      if (token >= a_.m) continue;
      if (!whole) {
        const float each[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
        for (int e = 0; e < 4 && row + e < a_.n; ++e) {
          if (a_.narrow_out) {
            __nv_bfloat16* out = static_cast<__nv_bfloat16*>(a_.out) + to + e;
            *out = __float2bfloat16_rn(a_.accumulate ? __bfloat162float(*out) + each[e] : each[e]);
          } else {
            float* out = static_cast<float*>(a_.out) + to + e;
            *out = a_.accumulate ? *out + each[e] : each[e];
          }
        }
        continue;
      }
      if (a_.accumulate) v[i] = make_float4(before[i].x + v[i].x, before[i].y + v[i].y, before[i].z + v[i].z, before[i].w + v[i].w);
      if (a_.narrow_out) {
        const __nv_bfloat162 low = __floats2bfloat162_rn(v[i].x, v[i].y), high = __floats2bfloat162_rn(v[i].z, v[i].w);
        *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a_.out) + to) =
            make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
      } else {
        *reinterpret_cast<float4*>(static_cast<float*>(a_.out) + to) = v[i];
      }
    }
  }

  const MixedArgs& a_;
  float* const desk_;
  const bool even_;
  const int64_t token_;
  const int lane_;
  int64_t row_;
  float bias_[4];
};

}  // namespace orlop::cuda::mixed_out
