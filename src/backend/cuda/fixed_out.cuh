// What fixed()'s kernels do with a tile's sums: scales, bias, gate, as stream() does it.
#pragma once
#include "backend/cuda/stream_order.cuh"

namespace orlop::cuda {

constexpr int fixed_tile_w = 128;                // rows of weights of a tile; gated: 64 of gate, then 64 of up
constexpr int fixed_pitch = fixed_tile_w + 4;    // of sums: [rows of activations][pitch]

// `there` rows of activations from m0, of rows of weights from n0. value(i): the sum at i, float, of four that begin at a
// multiple of four, float4. Threads `thread` of `threads` share the work. left(column, n, v): what float32 rows are now,
// four at a time where there are four.
struct LeftAlone {
  __device__ void operator()(int, int64_t, const float4&) const {}
};
// ready(): sums are there then; every thread calls it once.
struct Ready {
  __device__ void operator()() const {}
};
template <bool tiled, int at_once = 1, class Value, class Left = LeftAlone, class Sums = Ready>
__device__ inline void fixed_out(const StreamArgs& a, int64_t m0, int64_t n0, int there, int thread, int threads, const Value& value, const Left& left = {}, const Sums& ready = {}) {
  const Piece& l = a.l;
  const bool gated = a.glu != static_cast<int>(Glu::none), gelu = a.glu == static_cast<int>(Glu::gelu_tanh);
  const int fours = (gated ? fixed_tile_w / 2 : fixed_tile_w) / 4;
  const bool even = a.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 16 == 0;
  // Of so many places at once: what is added to is asked for before anything is stored, since reads behind stores wait for
  // each other. It takes registers.
#pragma unroll(at_once == 1 ? 2 : 1)
  for (int first = thread; first == thread || first < there * fours; first += at_once * threads) {
    float4 before[at_once] = {};
    if (a.accumulate && even && !a.narrow_out)
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (const int at = first + i * threads; at < there * fours && n0 + at % fours * 4 + 4 <= a.n)
          before[i] = *reinterpret_cast<const float4*>(a.out + (m0 + at / fours) * a.out_stride + n0 + at % fours * 4);
    if (first == thread) ready();
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int at = first + i * threads;
      if (at >= there * fours) break;
      const int column = at / fours, r = at % fours * 4;
      const int64_t n = n0 + r;
      if (n >= a.n) continue;
      const float4 sum = value(column * fixed_pitch + r);
      float v[4] = {sum.x, sum.y, sum.z, sum.w};
      const int count = static_cast<int>(min(a.n - n, int64_t{4}));
      const auto all = [&](auto&& f) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < count) v[e] = f(v[e], n + e, e);
      };
      if (!tiled && l.scaled) all([&](float x, int64_t o, int) { return __fmul_rn(x, reinterpret_cast<const float*>(a.low + l.scales_at)[o]); });
      if (a.bias) all([&](float x, int64_t o, int) { return __fadd_rn(x, a.bias[o]); });
      if (gated) {
        const float4 sums = value(column * fixed_pitch + r + fixed_tile_w / 2);
        const float with[4] = {sums.x, sums.y, sums.z, sums.w};
        all([&](float x, int64_t o, int e) {
          float u = with[e];
          if (!tiled && l.scaled) u = __fmul_rn(u, reinterpret_cast<const float*>(a.high + l.scales_at)[o + a.up_row]);
          if (a.up_bias) u = __fadd_rn(u, a.up_bias[o]);
          return __fmul_rn(u, activated(gelu, x));
        });
      }
      const int64_t place = (m0 + column) * a.out_stride + n;
      if (a.narrow_out) {
        auto* to = reinterpret_cast<__nv_bfloat16*>(a.out) + place;
        if (even && count == 4)
          *reinterpret_cast<uint2*>(to) = {pair(v[0], v[1]), pair(v[2], v[3])};
        else
          for (int e = 0; e < count; ++e) to[e] = __float2bfloat16_rn(v[e]);
        continue;
      }
      float* to = a.out + place;
      if (even && count == 4) {
        float4 w = {v[0], v[1], v[2], v[3]};
        if (a.accumulate) w = {__fadd_rn(before[i].x, w.x), __fadd_rn(before[i].y, w.y), __fadd_rn(before[i].z, w.z), __fadd_rn(before[i].w, w.w)};
        *reinterpret_cast<float4*>(to) = w;
        left(column, n, w);
      } else {
        for (int e = 0; e < count; ++e) to[e] = a.accumulate ? __fadd_rn(to[e], v[e]) : v[e];
      }
    }
  }
}

// Where a block stands in k: pieces of slices, as stream() has them.
struct InK {
  int units, each_slice, piece, slice_end, piece_end;
  __device__ InK(int all, int each, int begin) : units(all), each_slice(each) {
    slice(begin);
    piece_end = min(slice_end, begin + piece);
  }
  // After a piece's end; true: the slice's end, too.
  __device__ bool next() {
    const bool last = piece_end == slice_end;
    if (last) slice(piece_end);
    piece_end = min(slice_end, piece_end + piece);
    return last;
  }

 private:
  __device__ void slice(int begin) {
    slice_end = min(units, begin + each_slice);
    piece = (slice_end - begin + warps - 1) / warps;
  }
};

}  // namespace orlop::cuda
