// The linear layers in portable code: what the ISA files must compute. The order of operations is
// told in matmul.h; fp32 and int8 are bit for bit what the ISA files give.
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/matmul.h"
#include "base/half.h"

namespace orlop::cpu::ref {
namespace {

// The bits of the largest magnitude: NaN is larger than all else.
uint32_t largest_of(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

struct Int8Scale {
  float scale, inverse;
  explicit Int8Scale(uint32_t largest) {
    const float amax = std::bit_cast<float>(largest);
    scale = amax / 127.0f, inverse = 127.0f / amax;
    if (!(amax >= 0x1p-110f)) scale = inverse = 0.0f;
    if (largest >= 0x7f800000u) {
      scale = std::bit_cast<float>(0x7fc00000u);
      inverse = 0.0f;
    }
  }
};

void prepare_ints(const float* x, int64_t k, int64_t groups, int rows, int r, unsigned char* block,
                  const Int8Scale* whole) {
  for (int64_t g = 0; g < groups; ++g) {
    float v[32];
    for (int i = 0; i < 32; ++i) v[i] = 32 * g + i < k ? x[32 * g + i] : 0.0f;
    const Int8Scale own = whole ? *whole : Int8Scale(largest_of(v, 32));
    const float scale = own.scale, inverse = own.inverse;
    unsigned char* chunk = block + g * rows * int8_chunk;
    int32_t sum[2] = {};
    for (int i = 0; i < 32; ++i) {
      const int q = inverse == 0.0f ? 0 : static_cast<int>(std::nearbyint(v[i] * inverse));
      chunk[32 * r + i] = static_cast<unsigned char>(static_cast<int8_t>(q));
      sum[i / 16] += q;
    }
    float* f = reinterpret_cast<float*>(chunk + 32 * rows) + r;
    int32_t* n = reinterpret_cast<int32_t*>(chunk + 32 * rows) + r;
    f[0] = scale;
    f[rows] = scale * static_cast<float>(sum[0] + sum[1]);
    n[2 * rows] = -8 * (sum[0] + sum[1]);
    n[7 * rows] = -128 * (sum[0] + sum[1]);
    for (int h = 0; h < 2; ++h) {
      f[(3 + h) * rows] = scale * static_cast<float>(sum[h]);
      n[(5 + h) * rows] = -sum[h];
    }
  }
}

void prepare_int8(const float* x, int64_t k, int64_t groups, int rows, int r, unsigned char* block) {
  prepare_ints(x, k, groups, rows, r, block, nullptr);
}

void prepare_a8(const float* x, int64_t k, int64_t groups, int rows, int r, unsigned char* block) {
  const Int8Scale whole(largest_of(x, k));
  prepare_ints(x, k, groups, rows, r, block, &whole);
}

void prepare_fp32(const float* x, int64_t k, int64_t groups, int rows, int r, unsigned char* block) {
  for (int64_t g = 0; g < groups; ++g) {
    float* to = reinterpret_cast<float*>(block + g * rows * fp32_chunk) + 32 * r;
    for (int i = 0; i < 32; ++i) to[i] = 32 * g + i < k ? x[32 * g + i] : 0.0f;
  }
}

void prepare_bf16(const float* x, int64_t k, int64_t groups, int rows, int r, unsigned char* block) {
  for (int64_t g = 0; g < groups; ++g) {
    float* to = reinterpret_cast<float*>(block + g * rows * fp32_chunk) + 32 * r;
    for (int i = 0; i < 32; ++i)
      to[i] = 32 * g + i < k ? bf16_to_f32(f32_to_bf16(x[32 * g + i])) : 0.0f;
  }
}

// Type and number of rows R are run-time values here: the reference is to be small.
[[gnu::noinline]] void any_int8(FileType type, int R, const unsigned char* tile, const unsigned char* act,
                                const Span& span, float* c) {
  const PackInfo& p = pack_info(type);
  float acc[8][16] = {}, part[8][16] = {}, part_sum[8] = {};
  ExpandedGroup w;
  for (int64_t g = 0; g < span.groups; ++g, act += R * int8_chunk) {
    expand_group(type, tile, span, g, 0, 16, w);
    const float* f = reinterpret_cast<const float*>(act + 32 * R);
    const bool last = (g + 1) % span.share == 0 || g + 1 == span.groups;
    for (int h = 0; h < p.halves; ++h) {
      for (int r = 0; r < R; ++r) {
        int32_t dot[16] = {};
        for (int i = 32 / p.halves * h; i < 32 / p.halves * (h + 1); ++i) {
          const int a = static_cast<int8_t>(act[32 * r + i]);
          for (int j = 0; j < 16; ++j) dot[j] += a * static_cast<int>(w.code[i][j]);
        }
        const float sum = f[(p.halves == 2 ? 3 + h : 1) * R + r];
        part_sum[r] += sum;
        for (int j = 0; j < 16; ++j) {
          const float d = static_cast<float>(dot[j]);
          if (!p.grouped) {
            acc[r][j] = std::fma(d, w.scale[h][j] * f[r], acc[r][j]);
            if (p.has_min) acc[r][j] = std::fma(w.min[h][j], sum, acc[r][j]);
            continue;
          }
          part[r][j] = std::fma(d, f[r], part[r][j]);
          if (!last) continue;
          acc[r][j] = std::fma(part[r][j], w.scale[h][j], acc[r][j]);
          if (p.has_min) acc[r][j] = std::fma(part_sum[r], w.min[h][j], acc[r][j]);
          part[r][j] = 0;
        }
        if (last) part_sum[r] = 0;
      }
    }
  }
  std::memcpy(c, acc, sizeof acc[0] * static_cast<size_t>(R));
}

[[gnu::noinline]] void any_a8(FileType type, int R, const unsigned char* tile, const unsigned char* act,
                              const Span& span, float* c) {
  const PackInfo& p = pack_info(type);
  const float* scale = reinterpret_cast<const float*>(act + 32 * R);  // the same in every chunk
  float acc[8][16] = {};
  int32_t dot[8][16] = {}, sum[8] = {};
  ExpandedGroup w;
  for (int64_t g = 0; g < span.groups; ++g, act += R * int8_chunk) {
    expand_group(type, tile, span, g, 0, 16, w);
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < 32; ++i) {
        const int a = static_cast<int8_t>(act[32 * r + i]);
        sum[r] += a;
        for (int j = 0; j < 16; ++j) dot[r][j] += a * static_cast<int>(w.code[i][j]);
      }
      if ((g + 1) % span.share && g + 1 != span.groups) continue;
      for (int j = 0; j < 16; ++j) {
        acc[r][j] = std::fma(static_cast<float>(dot[r][j]), w.scale[0][j], acc[r][j]);
        if (p.has_min) acc[r][j] = std::fma(static_cast<float>(sum[r]), w.min[0][j], acc[r][j]);
        dot[r][j] = 0;
      }
      sum[r] = 0;
    }
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < 16; ++j) c[16 * r + j] = acc[r][j] * scale[r];
}

[[gnu::noinline]] void any_fp32(FileType type, int R, const unsigned char* tile, const unsigned char* act,
                                const Span& span, float* c) {
  const PackInfo& p = pack_info(type);
  float acc[8][16] = {};
  ExpandedGroup q;
  float w[32][16];
  for (int64_t g = 0; g < span.groups; ++g, act += R * fp32_chunk) {
    if (p.low_bits == 0) {
      expand_floats(type, tile, g, 0, 16, w);
    } else {
      expand_group(type, tile, span, g, 0, 16, q);
      for (int i = 0; i < 32; ++i) {
        for (int j = 0; j < 16; ++j) {
          const float code = q.code[i][j], scale = q.scale[i / 16][j];
          w[i][j] = p.has_min ? std::fma(code, scale, q.min[i / 16][j]) : code * scale;
        }
      }
    }
    const float* a = reinterpret_cast<const float*>(act);
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < 32; ++i)
        for (int j = 0; j < 16; ++j) acc[r][j] = std::fma(w[i][j], a[32 * r + i], acc[r][j]);
  }
  std::memcpy(c, acc, sizeof acc[0] * static_cast<size_t>(R));
}

// e^x: x = n ln2 + r, a polynomial in r, times 2^n in two exact steps.
float exp_approx(float x) {
  x = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  if (x != x) return x;
  const float n = std::nearbyint(x * 0x1.715476p+0f);
  float r = std::fma(n, -0x1.62e400p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a01a02p-13f;  // 1/7!
  constexpr float coefficients[] = {0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f,
                                    0.5f,            1.0f,           1.0f};
  for (const float coefficient : coefficients)
    p = std::fma(p, r, coefficient);
  const int e = static_cast<int>(n), half = e >> 1;
  const auto two_to = [](int i) { return std::bit_cast<float>((i + 127) << 23); };
  return p * two_to(half) * two_to(e - half);
}

float activate(Glu glu, float x) {
  if (glu == Glu::silu) return x / (1.0f + exp_approx(-x));
  // gelu_tanh: x (1 + tanh u) / 2 = x / (1 + e^(-2u))
  const float u = x * std::fma(x * x, 0x1.2444f2p-4f, 0x1.988454p+0f);  // 2 u
  return x / (1.0f + exp_approx(-u));
}

void epilogue(const Epilogue& e) {
  for (int r = 0; r < e.rows; ++r) {
    for (int j = 0; j < e.columns; ++j) {
      float v = e.c[16 * r + j];
      if (e.bias) v += e.bias[j];
      if (e.glu != Glu::none) {
        const float up = e.up[16 * r + j];
        v = activate(e.glu, v) * (e.up_bias ? up + e.up_bias[j] : up);
      }
      float& out = e.out[r * e.out_stride + j];
      out = e.accumulate ? out + v : v;
    }
  }
}

using Any = void (*)(FileType, int, const unsigned char*, const unsigned char*, const Span&, float*);
template <Any any, FileType T, int R>
void tile(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
          const Span& span, float* c) {
  any(T, R, tile0, act, span, c);
  if (tile1 != tile0) any(T, R, tile1, act, span, c + 16 * R);
}
template <Any any, FileType T>
constexpr TileFns fns = {
    {tile<any, T, 1>, tile<any, T, 2>, tile<any, T, 4>, tile<any, T, 8>, nullptr}};
using enum FileType;
template <Any any>
constexpr ComputeIsa compute(PrepareFn prepare, int chunk) {
  return {prepare, chunk,
          {fns<any, f32>, fns<any, f16>, fns<any, bf16>, fns<any, q4_0>, fns<any, q4_1>,
           fns<any, q5_0>, fns<any, q5_1>, fns<any, q8_0>, fns<any, q2_k>, fns<any, q3_k>,
           fns<any, q4_k>, fns<any, q5_k>, fns<any, q6_k>, fns<any, iq4_nl>, fns<any, f8>,
           fns<any, w4>, fns<any, w4z>, fns<any, w8>, fns<any, w8z>}};
}

}  // namespace

constexpr MatmulIsa matmul_isa = {compute<any_int8>(prepare_int8, int8_chunk),
                                  compute<any_a8>(prepare_a8, int8_chunk),
                                  compute<any_fp32>(prepare_fp32, fp32_chunk),
                                  compute<any_fp32>(prepare_bf16, fp32_chunk), epilogue};

}  // namespace orlop::cpu::ref
