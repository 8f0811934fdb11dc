// Tile kernels over a vector of 8 or 16 dwords, one lane a column. An ISA file defines the vector
// operations and includes this inside its own namespace. Layouts and order: matmul.h.
// c0: the first column this vector covers (a 16-column tile takes one or two passes).

template <int N>
struct Index {
  static constexpr int value = N;
};
template <int N, int End, class F>
[[gnu::always_inline]] inline void static_for(F&& f) {
  if constexpr (N < End) {
    f(Index<N>{});
    static_for<N + 1, End>(static_cast<F&&>(f));
  }
}

// Bytes k = 4 J .. 4 J + 3 of every column: unsigned codes.
template <FileType T, int J>
[[gnu::always_inline]] inline I codes(const unsigned char* p, int c0) {
  constexpr PackInfo f = pack_info(T);
  const unsigned char* low = p + (f.high_bits == 1 ? 64 : f.high_bits == 2 ? 128 : 0) + 4 * c0;
  I v;
  if constexpr (f.low_bits == 8) {
    return load_int(low + 64 * J);
  } else if constexpr (f.low_bits == 4) {
    v = load_int(low + 64 * (J / 2));
    if constexpr (J % 2 == 1) v = shift_right<4>(v);
    v = bit_and(v, bytes(0x0f));
    if constexpr (f.codebook) v = iq4_nl_lookup(v);
  } else {
    v = load_int(low + 64 * (J / 4));
    if constexpr (J % 4 != 0) v = shift_right<2 * (J % 4)>(v);
    v = bit_and(v, bytes(3));
  }
  if constexpr (f.high_bits == 1) {
    v = or_bit_plane(v, p + 8 * J + c0 / 2, 1 << f.low_bits);
  } else if constexpr (f.high_bits == 2) {
    I h = load_int(p + 64 * (J / 4) + 4 * c0);
    constexpr int s = J % 4;
    if constexpr (s < 2) h = shift_left<4 - 2 * s>(h);
    if constexpr (s == 3) h = shift_right<2>(h);
    v = bit_or(v, bit_and(h, bytes(0x30)));
  }
  return v;
}

// Walks the scales of a tile group by group.
template <FileType T>
struct Scales {
  static constexpr PackInfo f = pack_info(T);
  static constexpr int header = f.has_min ? 64 : 32;
  const unsigned char* at;
  int c0;
  F d, m;

  [[gnu::always_inline]] inline void start_super() {
    d = load_f16(at + 2 * c0);
    if constexpr (f.has_min) m = load_f16(at + 32 + 2 * c0);
  }
  // Scale and min of half h of group q in this super group.
  [[gnu::always_inline]] inline void get(int q, int h, F& scale, F& min) const {
    if constexpr (!f.sub) {
      scale = d;
      if constexpr (f.has_min) min = m;
    } else {
      const unsigned char* sub = at + header + (f.super_bytes - header) / 8 * q + c0;
      if constexpr (T == FileType::q2_k) {
        const I both = load_u8(sub + 16 * h);
        scale = mul(d, to_float(bit_and(both, dwords(15))));
        min = negate(mul(m, to_float(shift_right_dword<4>(both))));
      } else {
        scale = mul(d, to_float(load_i8(sub + 16 * h)));
        if constexpr (f.has_min) min = negate(mul(m, to_float(load_i8(sub + 16 * (f.halves + h)))));
      }
    }
  }
};

// Rows [R0, R0 + N) of a block of R.
template <FileType T, int R, int R0, int N>
[[gnu::always_inline]] inline void int8_part(const unsigned char* tile, const unsigned char* act,
                                             int64_t groups, float* c, int c0) {
  constexpr PackInfo f = pack_info(T);
  constexpr int sums = f.halves == 2 ? 3 : 1, negated = f.halves == 2 ? 5 : 2;
  // One or two rows alone: two chains of integer dots hide their latency (sums are exact).
  constexpr int chains = N <= 2 ? 2 : 1;
  Scales<T> scales;
  scales.at = tile;
  scales.c0 = c0;
  const unsigned char* code = tile + scale_bytes(T, groups);
  F acc[N];
  for (int r = 0; r < N; ++r) acc[r] = zero();
  for (int64_t g = 0; g < groups; g += f.super_groups, scales.at += f.super_bytes) {
    scales.start_super();
    for (int q = 0; q < f.super_groups; ++q, code += f.code_bytes, act += R * int8_chunk) {
      prefetch<f.code_bytes, N>(code);
      static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
        constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
        const unsigned char* words = act + 32 * R + 4 * R0;
        I dot[N], dot2[N];
        for (int r = 0; r < N; ++r) {
          dot[r] = zero_dot<f.zero>(words + 4 * R * (negated + (f.halves == 2 ? h : 0)) + 4 * r);
          if constexpr (chains == 2) dot2[r] = zero_int();
        }
        static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
          constexpr int j = decltype(jj)::value;
          const Dot<f.zero> w(codes<T, j>(code, c0));
          for (int r = 0; r < N; ++r) {
            I& to = chains == 2 && j % 2 == 1 ? dot2[r] : dot[r];
            to = w.add(to, act + 32 * (R0 + r) + 4 * j);
          }
        });
        F scale, min;
        scales.get(q, h, scale, min);
        for (int r = 0; r < N; ++r) {
          if constexpr (chains == 2) dot[r] = add_int(dot[r], dot2[r]);
          acc[r] = fma(to_float(dot[r]), mul(scale, broadcast(words + 4 * r)), acc[r]);
          if constexpr (f.has_min)
            acc[r] = fma(min, broadcast(words + 4 * R * (sums + (f.halves == 2 ? h : 0)) + 4 * r), acc[r]);
        }
      });
    }
  }
  for (int r = 0; r < N; ++r) store(c + 16 * (R0 + r) + c0, acc[r]);
}

template <FileType T, int R, int R0, int N>
[[gnu::always_inline]] inline void fp32_part(const unsigned char* tile, const unsigned char* act,
                                             int64_t groups, float* c, int c0) {
  constexpr PackInfo f = pack_info(T);
  const unsigned char* code = tile + scale_bytes(T, groups);
  F acc[N];
  for (int r = 0; r < N; ++r) acc[r] = zero();
  const auto step = [&](F w, int k) __attribute__((always_inline)) {
    for (int r = 0; r < N; ++r) acc[r] = fma(w, broadcast(act + 128 * (R0 + r) + 4 * k), acc[r]);
  };
  if constexpr (f.low_bits == 0) {
    for (int64_t g = 0; g < groups; ++g, code += f.code_bytes, act += R * fp32_chunk) {
      prefetch<f.code_bytes, N>(code);
      static_for<0, 8>([&](auto jj) __attribute__((always_inline)) {
        constexpr int j = decltype(jj)::value;
        if constexpr (T == FileType::f32) {
          for (int i = 0; i < 4; ++i) step(load_float(code + 64 * (4 * j + i) + 4 * c0), 4 * j + i);
        } else if constexpr (T == FileType::f16) {
          for (int i = 0; i < 4; ++i) step(load_f16(code + 32 * (4 * j + i) + 2 * c0), 4 * j + i);
        } else {
          const I v0 = load_int(code + 128 * j + 4 * c0), v1 = load_int(code + 128 * j + 64 + 4 * c0);
          step(as_float(shift_left_dword<16>(v0)), 4 * j);
          step(as_float(shift_left_dword<16>(v1)), 4 * j + 1);
          step(as_float(bit_and(v0, dwords(static_cast<int>(0xffff0000u)))), 4 * j + 2);
          step(as_float(bit_and(v1, dwords(static_cast<int>(0xffff0000u)))), 4 * j + 3);
        }
      });
    }
  } else {
    Scales<T> scales;
    scales.at = tile;
    scales.c0 = c0;
    for (int64_t g = 0; g < groups; g += f.super_groups, scales.at += f.super_bytes) {
      scales.start_super();
      for (int q = 0; q < f.super_groups; ++q, code += f.code_bytes, act += R * fp32_chunk) {
        prefetch<f.code_bytes, N>(code);
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          F scale, min;
          scales.get(q, h, scale, min);
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            const I v = codes<T, j>(code, c0);
            static_for<0, 4>([&](auto ii) __attribute__((always_inline)) {
              constexpr int i = decltype(ii)::value;
              I b = v;
              if constexpr (i > 0) b = shift_right_dword<8 * i>(b);
              if constexpr (i < 3) b = bit_and(b, dwords(255));
              if constexpr (f.zero != 0) b = add_int(b, dwords(-f.zero));
              F w = to_float(b);
              if constexpr (f.has_min)
                w = fma(w, scale, min);
              else
                w = mul(w, scale);
              step(w, 4 * j + i);
            });
          });
        });
      }
    }
  }
  for (int r = 0; r < N; ++r) store(c + 16 * (R0 + r) + c0, acc[r]);
}

// A block of R rows in sub-blocks of at most `part_rows`, all columns of the tile.
template <FileType T, int R, int R0 = 0>
void tile_int8(const unsigned char* tile, const unsigned char* act, int64_t groups, float* c) {
  constexpr int n = R < int8_rows ? R : int8_rows;
  for (int c0 = 0; c0 < 16; c0 += lanes) int8_part<T, R, R0, n>(tile, act, groups, c, c0);
  if constexpr (R0 + n < R) tile_int8<T, R, R0 + n>(tile, act, groups, c);
}
template <FileType T, int R, int R0 = 0>
void tile_fp32(const unsigned char* tile, const unsigned char* act, int64_t groups, float* c) {
  constexpr int n = R < fp32_rows ? R : fp32_rows;
  for (int c0 = 0; c0 < 16; c0 += lanes) fp32_part<T, R, R0, n>(tile, act, groups, c, c0);
  if constexpr (R0 + n < R) tile_fp32<T, R, R0 + n>(tile, act, groups, c);
}
template <FileType T>
constexpr TileFns int8_fns = {{tile_int8<T, 1>, tile_int8<T, 2>, tile_int8<T, 4>, tile_int8<T, 8>}};
template <FileType T>
constexpr TileFns fp32_fns = {{tile_fp32<T, 1>, tile_fp32<T, 2>, tile_fp32<T, 4>, tile_fp32<T, 8>}};

// ---- activations in, outputs out -------------------------------------------------------------

// x[32 g .. 32 g + 32) with zeros past k.
[[gnu::always_inline]] inline const float* group_of(const float* x, int64_t k, int64_t g,
                                                    float* buffer) {
  if (32 * g + 32 <= k) return x + 32 * g;
  for (int i = 0; i < 32; ++i) buffer[i] = 32 * g + i < k ? x[32 * g + i] : 0.0f;
  return buffer;
}

inline void prepare_int8(const float* x, int64_t k, int64_t groups, int rows, int r,
                         unsigned char* block) {
  for (int64_t g = 0; g < groups; ++g) {
    alignas(64) float buffer[32];
    const unsigned char* v = reinterpret_cast<const unsigned char*>(group_of(x, k, g, buffer));
    I largest = zero_int();
    for (int i = 0; i < 32; i += lanes)
      largest = max_unsigned(largest, bit_and(load_int(v + 4 * i), dwords(0x7fffffff)));
    const uint32_t bits = reduce_max_unsigned(largest);
    float amax;
    __builtin_memcpy(&amax, &bits, 4);
    float scale = amax / 127.0f, inverse = 127.0f / amax;
    if (!(amax >= 0x1p-110f)) scale = inverse = 0.0f;
    if (bits >= 0x7f800000u) {
      scale = __builtin_nanf("");
      inverse = 0.0f;
    }
    unsigned char* chunk = block + g * rows * int8_chunk;
    int32_t sum[2] = {};
    for (int i = 0; i < 32; i += lanes) {
      I q = zero_int();
      if (inverse != 0.0f) q = round_to_int(mul(load_float(v + 4 * i), set_float(inverse)));
      store_bytes(chunk + 32 * r + i, q);
      sum[i / 16] += reduce_add(q);
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

template <bool Round>
inline void prepare_floats(const float* x, int64_t k, int64_t groups, int rows, int r,
                           unsigned char* block) {
  for (int64_t g = 0; g < groups; ++g) {
    alignas(64) float buffer[32];
    const unsigned char* v = reinterpret_cast<const unsigned char*>(group_of(x, k, g, buffer));
    float* to = reinterpret_cast<float*>(block + g * rows * fp32_chunk) + 32 * r;
    for (int i = 0; i < 32; i += lanes) {
      F f = load_float(v + 4 * i);
      if constexpr (Round) f = as_float(shift_left_dword<16>(bf16_bits(f)));
      store(to + i, f);
    }
  }
}


[[gnu::always_inline]] inline F exp_approx(F x) {  // as in matmul_ref.cc
  x = min_float(set_float(89.0f), max_float(set_float(-104.0f), x));
  const F n = round(mul(x, set_float(0x1.715476p+0f)));
  F r = fma(n, set_float(-0x1.62e400p-1f), x);
  r = fma(n, set_float(-0x1.7f7d1cp-20f), r);
  F p = set_float(0x1.a01a02p-13f);
  constexpr float coefficients[] = {0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f,
                                    0.5f,            1.0f,           1.0f};
  for (const float coefficient : coefficients)
    p = fma(p, r, set_float(coefficient));
  const I e = round_to_int(n);
  const I half = shift_right_signed<1>(e);
  const auto two_to = [](I i) __attribute__((always_inline)) {
    return as_float(shift_left_dword<23>(add_int(i, dwords(127))));
  };
  return mul(mul(p, two_to(half)), two_to(sub_int(e, half)));
}

[[gnu::always_inline]] inline F activate(Glu glu, F x) {
  F u = x;
  if (glu == Glu::gelu_tanh)
    u = mul(x, fma(mul(x, x), set_float(0x1.2444f2p-4f), set_float(0x1.988454p+0f)));
  return div(x, add(set_float(1.0f), exp_approx(negate(u))));
}

inline void epilogue(const Epilogue& e) {
  for (int c0 = 0; c0 < e.columns; c0 += lanes) {
    const Mask mask = first_lanes(e.columns - c0);
    F bias = zero();
    if (e.bias) bias = load_masked(e.bias + c0, mask);
    for (int r = 0; r < e.rows; ++r) {
      F v = load_float(reinterpret_cast<const unsigned char*>(e.c + 16 * r + c0));
      if (e.glu != Glu::none)
        v = mul(activate(e.glu, v),
                load_float(reinterpret_cast<const unsigned char*>(e.up + 16 * r + c0)));
      if (e.bias) v = add(v, bias);
      float* out = e.out + r * e.out_stride + c0;
      if (e.accumulate) v = add(load_masked(out, mask), v);
      store_masked(out, mask, v);
    }
  }
}
