// A chain's activations on their way to shared memory, and products with them.
#pragma once
#include "backend/cuda/chain_parts.cuh"

namespace orlop::cuda::chained {

// Of as many lanes, a power of two, in each of them. All lanes call it.
template <class T>
__device__ inline T sum_lanes(T v, int lanes) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    if (step < lanes) v += __shfl_xor_sync(all_lanes, v, step);
  return v;
}

// Activations, normed if they are to be, as pairs of bf16 to `input`. words: of the op that makes them, or null; pairs:
// of bf16, whatever a says. All threads of the warps that multiply.
template <class Input>
__device__ inline void take_x(const StreamArgs& a, const uint64_t* words, bool pairs, uint32_t launch, const Input& input, const float4 (&w)[norm_quads], float* parts) {
  const int k = static_cast<int>(a.l.k), padded = static_cast<int>(a.l.k_padded), thread = static_cast<int>(threadIdx.x);
  for (int row = 0; row < a.m; ++row) {
    if (a.narrow_x || pairs) {
      const auto* from = static_cast<const __nv_bfloat16*>(a.x) + row * a.x_stride;
      for (int first = 0; first < padded; first += 4 * 8 * threads) {
        const int begin = first + 8 * thread;
        uint32_t v[4][4] = {};
        if (words) {
          receive(words + row * row_words(k, true), begin / 2, 4 * threads, k / 2, launch, v);
        } else {
#pragma unroll
          for (int q = 0; q < 4; ++q)
            if (const int i = begin + q * 8 * threads; i < k) {
              const uint4 loaded = __ldcg(reinterpret_cast<const uint4*>(from + i));
              v[q][0] = loaded.x, v[q][1] = loaded.y, v[q][2] = loaded.z, v[q][3] = loaded.w;
            }
        }
#pragma unroll
        for (int q = 0; q < 4; ++q)
          if (first + q * 8 * threads < padded) input.put(row, begin + q * 8 * threads, padded, v[q]);
      }
      continue;
    }
    const float* from = static_cast<const float*>(a.x) + row * a.x_stride;
    for (int first = 0; first < padded; first += 4 * norm_quads * threads) {
      const int begin = first + 4 * thread;
      float4 v[norm_quads] = {};
      if (words) {
        uint32_t quads[norm_quads][4] = {};
        receive(words + row * row_words(k, false), begin, 4 * threads, k, launch, quads);
#pragma unroll
        for (int q = 0; q < norm_quads; ++q)
          v[q] = {__uint_as_float(quads[q][0]), __uint_as_float(quads[q][1]), __uint_as_float(quads[q][2]), __uint_as_float(quads[q][3])};
      } else {
#pragma unroll
        for (int q = 0; q < norm_quads; ++q)
          if (const int i = begin + q * 4 * threads; i < k) v[q] = __ldcg(reinterpret_cast<const float4*>(from + i));
      }
      if (a.norm_weight) {  // then the row ends here
        float sum = 0;
#pragma unroll
        for (int q = 0; q < norm_quads; ++q) sum = squares(v[q].x, v[q].y, v[q].z, v[q].w, sum);
        sum = warp_sum(sum);
        if (row) meet();  // parts
        if (thread % 32 == 0) parts[thread / 32] = sum;
        meet();
        sum = 0;
#pragma unroll
        for (int i = 0; i < chain_warps; ++i) sum += parts[i];
        const float scale = 1.0f / sqrtf(sum / static_cast<float>(k) + a.norm_eps);
#pragma unroll
        for (int q = 0; q < norm_quads; ++q)
          v[q] = {normed(v[q].x, scale, w[q].x), normed(v[q].y, scale, w[q].y), normed(v[q].z, scale, w[q].z), normed(v[q].w, scale, w[q].w)};
      }
#pragma unroll
      for (int q = 0; q < norm_quads; ++q)
        if (first + q * 4 * threads < padded) {
          const uint32_t pairs[2] = {pair(v[q].x, v[q].y), pair(v[q].z, v[q].w)};
          input.put(row, begin + q * 4 * threads, padded, pairs);
        }
    }
  }
}

// The activations of an op, as bf16, and products with m16n8k16. Of u4, 128 + code is multiplied, which takes one instruction to make; the sum of a group's
// activations takes the 128 off again, as it applies zero points and mins.
template <Codes codes, Scales scales>
struct Input {
  using S = Stages<codes, scales>;
  static constexpr bool summed = codes == Codes::u4;
  static constexpr bool groups = summed || scales == Scales::with_min || scales == Scales::any;  // sums of groups of x are needed
  __nv_bfloat16* x;   // [m][pitch]
  float* group_sums;  // [groups][chain_rows]
  int pitch, m, sub, group;
  float off;
  bool has_min;

  // Lanes read 16 bytes at a time: of a row 64 that lie together, or every second 16 of 128. Two rows meet all banks.
  ORLOP_BOTH static int pitch_of(const Piece& l) {
    const int padded = static_cast<int>(l.k_padded), wanted = natural_steps(codes, S::tiled) ? 64 : 16;
    return padded + (wanted - 2 * padded % 128 + 128) % 128 / 2;
  }
  static int bytes(const StreamArgs& a) { return 2 * a.m * pitch_of(a.l) + (groups ? static_cast<int>(a.l.k_padded) / (S::part / S::sub(a.l)) * chain_rows * 4 : 0); }
  __device__ Input(const StreamArgs& a, unsigned char* room)
      : x(reinterpret_cast<__nv_bfloat16*>(room)), pitch(pitch_of(a.l)), m(a.m), sub(S::sub(a.l)), group(S::part / S::sub(a.l)),
        off(static_cast<float>(128 + a.l.zero)), has_min(scales == Scales::with_min || (scales == Scales::any && a.l.has_min)) {
    group_sums = reinterpret_cast<float*>(x + m * pitch);
  }

  template <int n>
  __device__ void put(int row, int i, int padded, const uint32_t (&pairs)[n]) const {
    if (i < padded) {
      __nv_bfloat16* to = x + row * pitch;
      if constexpr (S::tiled) {  // a lane's elements of two steps side by side, then the next lane's
        to += i / 32 * 32 + i % 32 / 16 * 4 + i % 16 / 4 * 8;
#pragma unroll
        for (int e = 0; e < n; e += 2) *reinterpret_cast<uint2*>(to + 4 * e) = {pairs[e], pairs[e + 1]};
      } else if constexpr (n == 2) {
        *reinterpret_cast<uint2*>(to + i) = {pairs[0], pairs[1]};
      } else {
        *reinterpret_cast<uint4*>(to + i) = {pairs[0], pairs[1], pairs[2], pairs[3]};
      }
    }
    if constexpr (groups) {
      float sum = 0;
#pragma unroll
      for (int e = 0; e < n; ++e) sum += __uint_as_float(pairs[e] << 16) + __uint_as_float(pairs[e] & 0xffff0000u);
      sum = sum_lanes(sum, group / (2 * n));
      if (i < padded && i % group == 0) group_sums[i / group * chain_rows + row] = sum;
    }
  }

  // Of a lane, of a warp's unit: activations of row lane / 4; where there is no such row, anything: nobody sees what comes
  // of it.
  struct Taken {
    uint2 v[S::parts * S::steps];
  };
  __device__ Taken take(int u) const {
    const int lane = threadIdx.x % 32, j = lane % 4, g = lane / 4;
    Taken t;
#pragma unroll
    for (uint2& v : t.v) asm("" : "=r"(v.x), "=r"(v.y));  // whatever is there
    if (g < m) {
      const __nv_bfloat16* from = x + g * pitch + u * S::unit + (S::tiled ? 8 : S::part / 4) * j;
#pragma unroll
      for (int i = 0; i < S::parts * S::steps; i += 2) {
        const uint4 v = *reinterpret_cast<const uint4*>(from + (S::tiled ? 16 * i : i / S::steps * S::part + i % S::steps * 4));
        t.v[i] = {v.x, v.y};
        t.v[i + 1] = {v.z, v.w};
      }
    }
    return t;
  }
  // Sums of rows lane / 4 and + 8 of weights, rows lane % 4 * 2 and the next of activations.
  struct Sums {
    float of[2][4] = {};  // of even and of odd steps: chains of tensor core products are long
  };
  __device__ void multiply(Sums& sums, int u, const Taken& t, const uint4 (&q)[S::parts][2], const float* scale_row, int scale_bytes, int zero) const {
    const int j = threadIdx.x % 4;
    const int scaled_steps = S::steps / sub, scaled_shift = __ffs(scaled_steps) - 1;
    float raw[2][4] = {};
#pragma unroll
    for (int i = 0; i < S::parts * S::steps; ++i) {
      const int p = i / S::steps, s = i % S::steps;
      uint32_t w[4];
      if constexpr (summed) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t word = word_of(q[p][h], s / 2) >> (s % 2 * 8);
          w[h] = masked(word, 0x000f000fu, 0x43004300u);
          w[h + 2] = masked(word >> 4, 0x000f000fu, 0x43004300u);
        }
      } else {
        widen<codes>(q[p][0], s, zero, w[0], w[2]);
        widen<codes>(q[p][1], s, zero, w[1], w[3]);
      }
      mma(S::tiled ? raw[i % 2] : sums.of[i % 2], w, t.v[i].x, t.v[i].y);
      if constexpr (S::tiled) {
        if (scales == Scales::any ? (s + 1) & (scaled_steps - 1) : s + 1 < S::steps) continue;
        const int at = scales == Scales::any ? s >> scaled_shift : 0;
        float2 xs{};
        if (groups) xs = *reinterpret_cast<const float2*>(group_sums + (u * sub + at) * chain_rows + 2 * j % chain_rows);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float* own = scale_row + e / 2 * 2 * scale_bytes + at;
          const float of_x = e % 2 ? xs.y : xs.x;
          float sum = raw[0][e] + raw[1][e];
          if constexpr (summed) sum = fmaf(-off, of_x, sum);
          sums.of[0][e] = fmaf(own[0], sum, sums.of[0][e]);
          if (has_min) sums.of[0][e] = fmaf(own[sub], of_x, sums.of[0][e]);
          raw[0][e] = raw[1][e] = 0;
        }
      }
    }
  }
  __device__ void leave(const Sums& sums, float* to) const {  // [m][16]
    const int lane = threadIdx.x % 32, j = lane % 4, g = lane / 4;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (2 * j + e % 2 < m) to[(2 * j + e % 2) * 16 + g + e / 2 * 8] = sums.of[0][e] + sums.of[1][e];
  }
};

}  // namespace orlop::cuda::chained
