// Tile kernels over a vector of 8 or 16 dwords, one lane a column. An ISA file defines the vector
// operations and includes this inside its own namespace. Layouts and order: matmul.h.
// c0: the first column this vector covers.

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

// A vector of columns: those of `tile` from c0 on, and where row 0 of the results goes.
struct Columns {
  const unsigned char* tile;
  int c0;
  float* out;
};

// Rows [R0, R0 + N) of a block of R times two vectors of columns, which share what is loaded of the
// activations.
template <FileType T, int R, int R0, int N>
[[gnu::always_inline]] inline void int8_part(const Columns& first, const Columns& second,
                                             const unsigned char* act, int64_t groups) {
  constexpr PackInfo f = pack_info(T);
  constexpr int sums = f.halves == 2 ? 3 : 1, negated = f.halves == 2 ? 5 : 2;
  // A row alone: two chains of integer dots hide their latency (integer sums are exact).
  constexpr int chains = N == 1 ? 2 : 1;
  Scales<T> scales[2] = {{first.tile, first.c0, {}, {}}, {second.tile, second.c0, {}, {}}};
  const unsigned char* code[2] = {first.tile + scale_bytes(T, groups),
                                  second.tile + scale_bytes(T, groups)};
  F acc[2][N];
  for (int r = 0; r < N; ++r) acc[0][r] = acc[1][r] = zero();
  for (int64_t g = 0; g < groups; g += f.super_groups) {
    for (int v = 0; v < 2; ++v) scales[v].start_super();
    for (int q = 0; q < f.super_groups; ++q, act += R * int8_chunk) {
      for (int v = 0; v < 2; ++v) prefetch<f.code_bytes, R>(code[v]);
      static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
        constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
        const unsigned char* words = act + 32 * R + 4 * R0;
        I dot[2][N], dot2[2][N];
        for (int r = 0; r < N; ++r) {
          dot[0][r] = dot[1][r] = zero_dot<f.zero>(words + 4 * R * (negated + (f.halves == 2 ? h : 0)) + 4 * r);
          if constexpr (chains == 2) dot2[0][r] = dot2[1][r] = zero_int();
        }
        static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
          constexpr int j = decltype(jj)::value;
          const Dot<f.zero> w0(codes<T, j>(code[0], scales[0].c0)), w1(codes<T, j>(code[1], scales[1].c0));
          for (int r = 0; r < N; ++r) {
            const I a = broadcast_int(act + 32 * (R0 + r) + 4 * j);
            I& to0 = chains == 2 && j % 2 == 1 ? dot2[0][r] : dot[0][r];
            I& to1 = chains == 2 && j % 2 == 1 ? dot2[1][r] : dot[1][r];
            to0 = w0.add(to0, a);
            to1 = w1.add(to1, a);
          }
        });
        for (int v = 0; v < 2; ++v) {
          F scale, min;
          scales[v].get(q, h, scale, min);
          for (int r = 0; r < N; ++r) {
            if constexpr (chains == 2) dot[v][r] = add_int(dot[v][r], dot2[v][r]);
            acc[v][r] = fma(to_float(dot[v][r]), mul(scale, broadcast(words + 4 * r)), acc[v][r]);
            if constexpr (f.has_min)
              acc[v][r] = fma(min, broadcast(words + 4 * R * (sums + (f.halves == 2 ? h : 0)) + 4 * r),
                              acc[v][r]);
          }
        }
      });
      for (int v = 0; v < 2; ++v) code[v] += f.code_bytes;
    }
    for (int v = 0; v < 2; ++v) scales[v].at += f.super_bytes;
  }
  for (int r = 0; r < N; ++r) {
    store(first.out + 16 * (R0 + r), acc[0][r]);
    store(second.out + 16 * (R0 + r), acc[1][r]);
  }
}

template <FileType T, int R, int R0, int N>
[[gnu::always_inline]] inline void fp32_part(const Columns& first, const Columns& second,
                                             const unsigned char* act, int64_t groups) {
  constexpr PackInfo f = pack_info(T);
  const int c0[2] = {first.c0, second.c0};
  const unsigned char* code[2] = {first.tile + scale_bytes(T, groups),
                                  second.tile + scale_bytes(T, groups)};
  F acc[2][N];
  for (int r = 0; r < N; ++r) acc[0][r] = acc[1][r] = zero();
  const auto step = [&](F w0, F w1, int k) __attribute__((always_inline)) {
    for (int r = 0; r < N; ++r) {
      const F a = broadcast(act + 128 * (R0 + r) + 4 * k);
      acc[0][r] = fma(w0, a, acc[0][r]);
      acc[1][r] = fma(w1, a, acc[1][r]);
    }
  };
  if constexpr (f.low_bits == 0) {
    for (int64_t g = 0; g < groups; ++g, act += R * fp32_chunk) {
      for (int v = 0; v < 2; ++v) prefetch<f.code_bytes, R>(code[v]);
      static_for<0, 8>([&](auto jj) __attribute__((always_inline)) {
        constexpr int j = decltype(jj)::value;
        if constexpr (T == FileType::bf16) {
          I v[2][2];
          for (int i = 0; i < 2; ++i)
            for (int h = 0; h < 2; ++h) v[i][h] = load_int(code[i] + 128 * j + 64 * h + 4 * c0[i]);
          for (int h = 0; h < 2; ++h)
            step(as_float(shift_left_dword<16>(v[0][h])), as_float(shift_left_dword<16>(v[1][h])), 4 * j + h);
          const I high = dwords(static_cast<int>(0xffff0000u));
          for (int h = 0; h < 2; ++h)
            step(as_float(bit_and(v[0][h], high)), as_float(bit_and(v[1][h], high)), 4 * j + 2 + h);
        } else {
          for (int k = 4 * j; k < 4 * j + 4; ++k) {
            if constexpr (T == FileType::f32)
              step(load_float(code[0] + 64 * k + 4 * c0[0]), load_float(code[1] + 64 * k + 4 * c0[1]), k);
            else
              step(load_f16(code[0] + 32 * k + 2 * c0[0]), load_f16(code[1] + 32 * k + 2 * c0[1]), k);
          }
        }
      });
      for (int v = 0; v < 2; ++v) code[v] += f.code_bytes;
    }
  } else {
    Scales<T> scales[2] = {{first.tile, first.c0, {}, {}}, {second.tile, second.c0, {}, {}}};
    const auto value = [&](I four, auto ii, F scale, F min) __attribute__((always_inline)) {
      constexpr int i = decltype(ii)::value;
      if constexpr (i > 0) four = shift_right_dword<8 * i>(four);
      if constexpr (i < 3) four = bit_and(four, dwords(255));
      if constexpr (f.zero != 0) four = add_int(four, dwords(-f.zero));
      if constexpr (f.has_min)
        return fma(to_float(four), scale, min);
      else
        return mul(to_float(four), scale);
    };
    for (int64_t g = 0; g < groups; g += f.super_groups) {
      for (int v = 0; v < 2; ++v) scales[v].start_super();
      for (int q = 0; q < f.super_groups; ++q, act += R * fp32_chunk) {
        for (int v = 0; v < 2; ++v) prefetch<f.code_bytes, R>(code[v]);
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          F scale[2], min[2];
          for (int v = 0; v < 2; ++v) scales[v].get(q, h, scale[v], min[v]);
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            const I v0 = codes<T, j>(code[0], c0[0]), v1 = codes<T, j>(code[1], c0[1]);
            static_for<0, 4>([&](auto ii) __attribute__((always_inline)) {
              step(value(v0, ii, scale[0], min[0]), value(v1, ii, scale[1], min[1]),
                   4 * j + decltype(ii)::value);
            });
          });
        });
        for (int v = 0; v < 2; ++v) code[v] += f.code_bytes;
      }
      for (int v = 0; v < 2; ++v) scales[v].at += f.super_bytes;
    }
  }
  for (int r = 0; r < N; ++r) {
    store(first.out + 16 * (R0 + r), acc[0][r]);
    store(second.out + 16 * (R0 + r), acc[1][r]);
  }
}

// Calls part(rows R0 .. of a block, first columns, second columns) over the block and both tiles.
template <int R, int Rows, int R0, class Part>
[[gnu::always_inline]] inline void all_parts(const unsigned char* tile0, const unsigned char* tile1,
                                             float* c, const Part& part) {
  if constexpr (lanes == 16) {
    part(Index<R0>{}, Columns{tile0, 0, c}, Columns{tile1, 0, c + 16 * R});
  } else {
    part(Index<R0>{}, Columns{tile0, 0, c}, Columns{tile0, 8, c + 8});
    part(Index<R0>{}, Columns{tile1, 0, c + 16 * R}, Columns{tile1, 8, c + 16 * R + 8});
  }
  if constexpr (R0 + Rows < R) all_parts<R, Rows, R0 + Rows>(tile0, tile1, c, part);
}

template <FileType T, int R>
void tile_int8(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               int64_t groups, float* c) {
  constexpr int n = R < int8_rows ? R : int8_rows;
  all_parts<R, n, 0>(tile0, tile1, c, [&](auto r0, const Columns& first, const Columns& second) {
    int8_part<T, R, decltype(r0)::value, n>(first, second, act, groups);
  });
}
template <FileType T, int R>
void tile_fp32(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               int64_t groups, float* c) {
  constexpr int n = R < fp32_rows ? R : fp32_rows;
  all_parts<R, n, 0>(tile0, tile1, c, [&](auto r0, const Columns& first, const Columns& second) {
    fp32_part<T, R, decltype(r0)::value, n>(first, second, act, groups);
  });
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
    F bias = zero(), up_bias = zero();
    if (e.bias) bias = load_masked(e.bias + c0, mask);
    if (e.up_bias) up_bias = load_masked(e.up_bias + c0, mask);
    for (int r = 0; r < e.rows; ++r) {
      F v = load_float(reinterpret_cast<const unsigned char*>(e.c + 16 * r + c0));
      if (e.bias) v = add(v, bias);
      if (e.glu != Glu::none) {
        F up = load_float(reinterpret_cast<const unsigned char*>(e.up + 16 * r + c0));
        if (e.up_bias) up = add(up, up_bias);
        v = mul(activate(e.glu, v), up);
      }
      float* out = e.out + r * e.out_stride + c0;
      if (e.accumulate) v = add(load_masked(out, mask), v);
      store_masked(out, mask, v);
    }
  }
}
