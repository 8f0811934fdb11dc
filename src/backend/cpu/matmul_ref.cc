// The linear layers in portable code: what the ISA files must compute. The order of operations is
// told in matmul.h; fp32 and int8 are bit for bit what the ISA files give.
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/matmul.h"
#include "base/half.h"

namespace orlop::cpu::ref {
namespace {

void prepare_int8(const float* x, int64_t k, int64_t groups, int rows, int r, unsigned char* block) {
  for (int64_t g = 0; g < groups; ++g) {
    float v[32];
    uint32_t largest = 0;
    for (int i = 0; i < 32; ++i) {
      v[i] = 32 * g + i < k ? x[32 * g + i] : 0.0f;
      const uint32_t bits = std::bit_cast<uint32_t>(v[i]) & 0x7fffffffu;
      largest = bits > largest ? bits : largest;
    }
    const float amax = std::bit_cast<float>(largest);
    float scale = amax / 127.0f, inverse = 127.0f / amax;
    if (!(amax >= 0x1p-110f)) scale = inverse = 0.0f;
    if (largest >= 0x7f800000u) {
      scale = std::bit_cast<float>(0x7fc00000u);
      inverse = 0.0f;
    }
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
    n[2 * rows] = -(sum[0] + sum[1]);
    for (int h = 0; h < 2; ++h) {
      f[(3 + h) * rows] = scale * static_cast<float>(sum[h]);
      n[(5 + h) * rows] = -sum[h];
    }
  }
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
              int64_t groups, float* c) {
  const PackInfo& p = pack_info(type);
  float acc[8][16] = {};
  ExpandedGroup w;
  for (int64_t g = 0; g < groups; ++g, act += R * int8_chunk) {
    expand_group(type, tile, groups, g, 0, 16, w);
    const float* f = reinterpret_cast<const float*>(act + 32 * R);
    for (int h = 0; h < p.halves; ++h) {
      for (int r = 0; r < R; ++r) {
        int32_t dot[16] = {};
        for (int i = 32 / p.halves * h; i < 32 / p.halves * (h + 1); ++i) {
          const int a = static_cast<int8_t>(act[32 * r + i]);
          for (int j = 0; j < 16; ++j) dot[j] += a * w.code[i][j];
        }
        const float sum = f[(p.halves == 2 ? 3 + h : 1) * R + r];
        for (int j = 0; j < 16; ++j) {
          acc[r][j] = std::fma(static_cast<float>(dot[j]), w.scale[h][j] * f[r], acc[r][j]);
          if (p.has_min) acc[r][j] = std::fma(w.min[h][j], sum, acc[r][j]);
        }
      }
    }
  }
  std::memcpy(c, acc, sizeof acc[0] * static_cast<size_t>(R));
}

[[gnu::noinline]] void any_fp32(FileType type, int R, const unsigned char* tile, const unsigned char* act,
              int64_t groups, float* c) {
  const PackInfo& p = pack_info(type);
  float acc[8][16] = {};
  ExpandedGroup q;
  float w[32][16];
  for (int64_t g = 0; g < groups; ++g, act += R * fp32_chunk) {
    if (p.low_bits == 0) {
      expand_floats(type, tile, g, 0, 16, w);
    } else {
      expand_group(type, tile, groups, g, 0, 16, q);
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

template <FileType T, int R>
void tile_int8(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               int64_t groups, float* c) {
  any_int8(T, R, tile0, act, groups, c);
  if (tile1 != tile0) any_int8(T, R, tile1, act, groups, c + 16 * R);
}
template <FileType T, int R>
void tile_fp32(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               int64_t groups, float* c) {
  any_fp32(T, R, tile0, act, groups, c);
  if (tile1 != tile0) any_fp32(T, R, tile1, act, groups, c + 16 * R);
}
template <FileType T>
constexpr TileFns int8_fns = {{tile_int8<T, 1>, tile_int8<T, 2>, tile_int8<T, 4>, tile_int8<T, 8>}};
template <FileType T>
constexpr TileFns fp32_fns = {{tile_fp32<T, 1>, tile_fp32<T, 2>, tile_fp32<T, 4>, tile_fp32<T, 8>}};
using enum FileType;

}  // namespace

constexpr MatmulIsa matmul_isa = {
    {prepare_int8, int8_chunk,
     {{}, {}, {}, int8_fns<q4_0>, int8_fns<q4_1>, int8_fns<q5_0>, int8_fns<q5_1>, int8_fns<q8_0>,
     int8_fns<q2_k>, int8_fns<q3_k>, int8_fns<q4_k>, int8_fns<q5_k>, int8_fns<q6_k>, int8_fns<iq4_nl>}},
    {prepare_fp32, fp32_chunk,
     {fp32_fns<f32>, fp32_fns<f16>, fp32_fns<bf16>, fp32_fns<q4_0>, fp32_fns<q4_1>, fp32_fns<q5_0>,
     fp32_fns<q5_1>, fp32_fns<q8_0>, fp32_fns<q2_k>, fp32_fns<q3_k>, fp32_fns<q4_k>, fp32_fns<q5_k>,
     fp32_fns<q6_k>, fp32_fns<iq4_nl>}},
    {prepare_bf16, fp32_chunk,
     {fp32_fns<f32>, fp32_fns<f16>, fp32_fns<bf16>, fp32_fns<q4_0>, fp32_fns<q4_1>, fp32_fns<q5_0>,
     fp32_fns<q5_1>, fp32_fns<q8_0>, fp32_fns<q2_k>, fp32_fns<q3_k>, fp32_fns<q4_k>, fp32_fns<q5_k>,
     fp32_fns<q6_k>, fp32_fns<iq4_nl>}},
    epilogue};

}  // namespace orlop::cpu::ref
