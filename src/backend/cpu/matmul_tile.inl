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

[[gnu::always_inline]] inline float float_at(const unsigned char* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return v;
}
[[gnu::always_inline]] inline int32_t int_at(const unsigned char* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}

// e4m3 codes, one a dword: a normal number's fields move to their places and the exponent's bias from
// 7 to 127; a subnormal one is its mantissa times 2^-9; S1111111 is NaN.
[[gnu::always_inline]] inline F e4m3_to_float(I code) {
  const I magnitude = bit_and(code, dwords(0x7f)), sign = shift_left_dword<24>(bit_and(code, dwords(0x80)));
  const F normal = mul(as_float(shift_left_dword<20>(magnitude)), set_float(0x1p120f));
  const F value = select_equal(magnitude, dwords(0x7f), set_float(__builtin_nanf("")), normal);
  return as_float(bit_or(as_int(value), sign));
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

// Where the integer dot of unsigned codes starts: at -zero * sum. slots: the words of a chunk after the
// row's codes, for one row of `rows`.
template <FileType T>
[[gnu::always_inline]] inline I start_unsigned(const unsigned char* slots, int rows, int half) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (f.zero == 0) {
    return zero_int();
  } else if constexpr (f.halves == 2) {
    return shift_left_dword<__builtin_ctz(f.zero)>(broadcast_int(slots + 4 * rows * (5 + half)));
  } else if constexpr (f.zero == 128) {
    return broadcast_int(slots + 4 * rows * 7);
  } else if constexpr (f.zero == 16) {
    return shift_left_dword<1>(broadcast_int(slots + 4 * rows * 2));
  } else {
    static_assert(f.zero == 8);
    return broadcast_int(slots + 4 * rows * 2);
  }
}

// Walks the scales of a tile: those of super_groups groups at a time, or of a share. `at` stands behind
// those in use.
template <FileType T>
struct Scales {
  static constexpr PackInfo f = pack_info(T);
  static constexpr int header = f.has_min ? 64 : 32;
  const unsigned char* at;
  int c0;
  F d, m;

  [[gnu::always_inline]] inline void start() {
    if constexpr (f.grouped) {
      d = load_float(at + 4 * c0);
      if constexpr (f.has_min) m = load_float(at + 64 + 4 * c0);
    } else {
      d = load_f16(at + 2 * c0);
      if constexpr (f.has_min) m = load_f16(at + 32 + 2 * c0);
    }
    at += f.super_bytes;
  }
  // Scale and min of half h of group q in this super group.
  [[gnu::always_inline]] inline void get(int q, int h, F& scale, F& min) const {
    if constexpr (!f.sub) {
      scale = d;
      if constexpr (f.has_min) min = m;
    } else {
      const unsigned char* sub = at - f.super_bytes + header + (f.super_bytes - header) / 8 * q + c0;
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

// What a part of a tile works on: rows [R0, R0 + N) of a block of R times V vectors of columns, which
// share what is loaded of the activations.
template <FileType T, int R, int R0, int N, int V>
struct Part {
  static constexpr PackInfo f = pack_info(T);
  const Columns* columns;
  int64_t groups, share;  // groups of 32 left, and that share a scale
  int64_t left, step, jump;  // groups without fetch; bytes to the tiles read next, from the end of codes too
  Scales<T> scales[V];
  const unsigned char* code[V];
  F acc[V][N];

  [[gnu::always_inline]] inline Part(const Columns* c, const Span& span)
      : columns(c), groups(span.groups), share(f.grouped ? span.share : f.super_groups), left(span.groups) {
    constexpr int tiles = V * lanes > 16 ? V * lanes / 16 : 1;
    step = tiles * (scale_bytes(T, span) + span.groups * f.code_bytes);
    jump = step - span.groups * f.code_bytes;
    for (int v = 0; v < V; ++v) {
      scales[v].at = c[v].tile;
      scales[v].c0 = c[v].c0;
      code[v] = c[v].tile + scale_bytes(T, span);
      for (int r = 0; r < N; ++r) acc[v][r] = zero();
    }
  }
  // Groups under the next scales, 0 at the end.
  [[gnu::always_inline]] inline int64_t next() {
    if (groups <= 0) return 0;
    for (int v = 0; v < V; ++v) {
      fetch<f.super_bytes>(v, scales[v].at + step);
      scales[v].start();
    }
    const int64_t n = !f.grouped || share < groups ? share : groups;
    groups -= n;
    return n;
  }
  // Tiles follow each other in memory, so where a tile's codes end those of the next begin, behind its
  // scales.
  [[gnu::always_inline]] inline void ahead() {
    const int64_t distance = left > fetch_ahead / f.code_bytes ? fetch_ahead : fetch_ahead + jump;
    for (int v = 0; v < V; ++v) fetch<f.code_bytes>(v, code[v] + distance);
    --left;
  }
  template <int Bytes>
  [[gnu::always_inline]] inline void fetch(int v, const unsigned char* p) const {
    if (R > fetch_rows || columns[v].c0 != 0) return;  // vectors of one tile share its lines
    for (int i = 0; i < Bytes; i += 64) __builtin_prefetch(p + i);
  }
  [[gnu::always_inline]] inline void next_codes() {
    for (int v = 0; v < V; ++v) code[v] += f.code_bytes;
  }
  // A share's sum of products and sum of activations by its scale and min.
  [[gnu::always_inline]] inline void close(const F (&part)[V][N], const float (&sums)[N]) {
    for (int v = 0; v < V; ++v) {
      for (int r = 0; r < N; ++r) {
        acc[v][r] = fma(part[v][r], scales[v].d, acc[v][r]);
        if constexpr (f.has_min) acc[v][r] = fma(set_float(sums[r]), scales[v].m, acc[v][r]);
      }
    }
  }
  [[gnu::always_inline]] inline void finish() const {
    for (int v = 0; v < V; ++v)
      for (int r = 0; r < N; ++r) store(columns[v].out + 16 * (R0 + r), acc[v][r]);
  }
};

#ifdef __ARM_FEATURE_MATMUL_INT8
#include "backend/cpu/matmul_pairs.inl"
#endif

// dot[v][r] += codes [4 * Begin, 4 * End) of a group times those of the rows.
template <FileType T, int R0, int N, int V, int Begin, int End>
[[gnu::always_inline]] inline void int8_dots(I (&dot)[V][N], const unsigned char* const (&code)[V],
                                             const Columns* columns, const unsigned char* act) {
#ifdef __ARM_FEATURE_MATMUL_INT8
  if constexpr (N > 1) return pair_dots<T, R0, N, V, Begin, End>(dot, code, columns, act);
#endif
  // A row alone: two chains of integer dots hide their latency (integer sums are exact).
  constexpr bool two = N == 1 && Dot<T>::narrow == 1;
  I other[V], words[V][N];
  if constexpr (two)
    for (int v = 0; v < V; ++v) other[v] = zero_int();
  static_for<Begin, End>([&](auto jj) __attribute__((always_inline)) {
    constexpr int j = decltype(jj)::value, at = (j - Begin) % Dot<T>::narrow;
    const Dot<T> w[2] = {Dot<T>(codes<T, j>(code[0], columns[0].c0)),
                         Dot<T>(codes<T, j>(code[V - 1], columns[V - 1].c0))};
    for (int r = 0; r < N; ++r) {
      const I a = broadcast_int(act + 32 * (R0 + r) + 4 * j);
      for (int v = 0; v < V; ++v) {
        if constexpr (Dot<T>::narrow > 1) {  // sums that fit 16 bits, widened once in a while
          const I products = w[v].products(a);
          words[v][r] = at == 0 ? products : add_words(words[v][r], products);
          if constexpr (at == Dot<T>::narrow - 1 || j == End - 1)
            dot[v][r] = w[v].widen(dot[v][r], words[v][r]);
        } else {
          I& to = two && j % 2 == 1 ? other[v] : dot[v][r];
          to = w[v].add(to, a);
        }
      }
    }
  });
  if constexpr (two)
    for (int v = 0; v < V; ++v) dot[v][0] = add_int(dot[v][0], other[v]);
}

template <FileType T, int R, int R0, int N, int V>
[[gnu::always_inline]] inline void int8_part(const Columns* columns, const unsigned char* act,
                                             const Span& span) {
  constexpr PackInfo f = pack_info(T);
  Part<T, R, R0, N, V> p(columns, span);
  while (const int64_t n = p.next()) {
    F part[V][N];
    float sums[N] = {};
    if constexpr (f.grouped)
      for (int v = 0; v < V; ++v)
        for (int r = 0; r < N; ++r) part[v][r] = zero();
    for (int q = 0; q < n; ++q, act += R * int8_chunk) {
      p.ahead();
      static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
        constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
        const unsigned char* words = act + 32 * R + 4 * R0;
        constexpr int sum_slot = f.halves == 2 ? 3 + h : 1;
        I dot[V][N];
        for (int v = 0; v < V; ++v)
          for (int r = 0; r < N; ++r) dot[v][r] = start_dot<T>(words + 4 * r, R, h);
        int8_dots<T, R0, N, V, h * per_half, (h + 1) * per_half>(dot, p.code, columns, act);
        if constexpr (f.grouped) {
          for (int v = 0; v < V; ++v)
            for (int r = 0; r < N; ++r)
              part[v][r] = fma(to_float(dot[v][r]), broadcast(words + 4 * r), part[v][r]);
          if constexpr (f.has_min)
            for (int r = 0; r < N; ++r) sums[r] += float_at(words + 4 * R * sum_slot + 4 * r);
        } else {
          for (int v = 0; v < V; ++v) {
            F scale, min;
            p.scales[v].get(q, h, scale, min);
            for (int r = 0; r < N; ++r) {
              F& acc = p.acc[v][r];
              acc = fma(to_float(dot[v][r]), mul(scale, broadcast(words + 4 * r)), acc);
              if constexpr (f.has_min)
                acc = fma(min, broadcast(words + 4 * R * sum_slot + 4 * r), acc);
            }
          }
        }
      });
      p.next_codes();
    }
    if constexpr (f.grouped) p.close(part, sums);
  }
  p.finish();
}

template <FileType T, int R, int R0, int N, int V>
[[gnu::always_inline]] inline void a8_part(const Columns* columns, const unsigned char* act,
                                           const Span& span) {
  constexpr PackInfo f = pack_info(T);
  const unsigned char* a_scale = act + 32 * R + 4 * R0;  // the same in every chunk
  Part<T, R, R0, N, V> p(columns, span);
  while (const int64_t n = p.next()) {
    I dot[V][N];
    int32_t sums[N] = {};  // -8 times the sums of activations
    for (int v = 0; v < V; ++v)
      for (int r = 0; r < N; ++r) dot[v][r] = zero_int();
    for (int64_t q = 0; q < n; ++q, act += R * int8_chunk) {
      p.ahead();
      int8_dots<T, R0, N, V, 0, 8>(dot, p.code, columns, act);
      for (int r = 0; r < N; ++r) sums[r] += int_at(act + 32 * R + 4 * (2 * R + R0 + r));
      p.next_codes();
    }
    F part[V][N];
    float float_sums[N];
    for (int r = 0; r < N; ++r) {
      const int32_t shift = from_signed<T> * 16 * sums[r];
      for (int v = 0; v < V; ++v)
        part[v][r] = to_float(add_int(dot[v][r], dwords(shift + f.zero / 8 * sums[r])));
      float_sums[r] = static_cast<float>(sums[r] / -8);
    }
    p.close(part, float_sums);
  }
  for (int v = 0; v < V; ++v)
    for (int r = 0; r < N; ++r) p.acc[v][r] = mul(p.acc[v][r], broadcast(a_scale + 4 * r));
  p.finish();
}

template <FileType T, int R, int R0, int N, int V>
[[gnu::always_inline]] inline void fp32_part(const Columns* columns, const unsigned char* act,
                                             const Span& span) {
  constexpr PackInfo f = pack_info(T);
  Part<T, R, R0, N, V> p(columns, span);
  const auto step = [&](const F (&w)[V], int k) __attribute__((always_inline)) {
    for (int r = 0; r < N; ++r) {
      const F a = broadcast(act + 128 * (R0 + r) + 4 * k);
      for (int v = 0; v < V; ++v) p.acc[v][r] = fma(w[v], a, p.acc[v][r]);
    }
  };
  F w[V];
  if constexpr (f.low_bits == 0) {
    for (int64_t g = 0; g < span.groups; ++g, act += R * fp32_chunk) {
      p.ahead();
      static_for<0, 8>([&](auto jj) __attribute__((always_inline)) {
        constexpr int j = decltype(jj)::value;
        if constexpr (T == FileType::bf16) {
          I pair[V][2];
          for (int v = 0; v < V; ++v)
            for (int h = 0; h < 2; ++h)
              pair[v][h] = load_int(p.code[v] + 128 * j + 64 * h + 4 * columns[v].c0);
          for (int h = 0; h < 2; ++h) {
            for (int v = 0; v < V; ++v) w[v] = as_float(shift_left_dword<16>(pair[v][h]));
            step(w, 4 * j + h);
          }
          const I high = dwords(static_cast<int>(0xffff0000u));
          for (int h = 0; h < 2; ++h) {
            for (int v = 0; v < V; ++v) w[v] = as_float(bit_and(pair[v][h], high));
            step(w, 4 * j + 2 + h);
          }
        } else {
          for (int k = 4 * j; k < 4 * j + 4; ++k) {
            for (int v = 0; v < V; ++v)
              w[v] = T == FileType::f32 ? load_float(p.code[v] + 64 * k + 4 * columns[v].c0)
                                        : load_f16(p.code[v] + 32 * k + 2 * columns[v].c0);
            step(w, k);
          }
        }
      });
      p.next_codes();
    }
  } else {
    const auto value = [&](I four, auto ii, F scale, F min) __attribute__((always_inline)) {
      constexpr int i = decltype(ii)::value;
      if constexpr (i > 0) four = shift_right_dword<8 * i>(four);
      if constexpr (i < 3) four = bit_and(four, dwords(255));
      if constexpr (T == FileType::f8) return mul(e4m3_to_float(four), scale);
      if constexpr (f.zero != 0) four = add_int(four, dwords(-f.zero));
      if constexpr (f.has_min)
        return fma(to_float(four), scale, min);
      else
        return mul(to_float(four), scale);
    };
    while (const int64_t n = p.next()) {
      for (int q = 0; q < n; ++q, act += R * fp32_chunk) {
        p.ahead();
        static_for<0, f.halves>([&](auto half) __attribute__((always_inline)) {
          constexpr int h = decltype(half)::value, per_half = 8 / f.halves;
          F scale[V], min[V];
          for (int v = 0; v < V; ++v) p.scales[v].get(q, h, scale[v], min[v]);
          static_for<h * per_half, (h + 1) * per_half>([&](auto jj) __attribute__((always_inline)) {
            constexpr int j = decltype(jj)::value;
            I four[V];
            for (int v = 0; v < V; ++v) four[v] = codes<T, j>(p.code[v], columns[v].c0);
            static_for<0, 4>([&](auto ii) __attribute__((always_inline)) {
              for (int v = 0; v < V; ++v) w[v] = value(four[v], ii, scale[v], min[v]);
              step(w, 4 * j + decltype(ii)::value);
            });
          });
        });
        p.next_codes();
      }
    }
  }
  p.finish();
}

// Calls part(rows R0 .. of a block, V vectors of columns) until it has covered the block and both
// tiles.
template <int R, int N, int V, int R0, class PartFn>
[[gnu::always_inline]] inline void all_parts(const unsigned char* tile0, const unsigned char* tile1,
                                             float* c, const PartFn& part) {
  static_for<0, 32 / lanes / V>([&](auto ii) __attribute__((always_inline)) {
    Columns columns[V];
    for (int v = 0; v < V; ++v) {
      const int at = (decltype(ii)::value * V + v) * lanes, c0 = at % 16;
      columns[v] = {at < 16 ? tile0 : tile1, c0, c + (at < 16 ? 0 : 16 * R) + c0};
    }
    part(Index<R0>{}, columns);
  });
  if constexpr (R0 + N < R) all_parts<R, N, V, R0 + N>(tile0, tile1, c, part);
}

template <FileType T, int R>
void tile_int8(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               const Span& span, float* c) {
  constexpr int n = R < int8_rows ? R : int8_rows, v = n * 2 > int8_sums ? 1 : 2;
  all_parts<R, n, v, 0>(tile0, tile1, c, [&](auto r0, const Columns* columns) {
    int8_part<T, R, decltype(r0)::value, n, v>(columns, act, span);
  });
}
template <FileType T, int R>
void tile_a8(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
             const Span& span, float* c) {
  constexpr int n = R < int8_rows ? R : int8_rows, v = n * 2 > int8_sums ? 1 : 2;
  all_parts<R, n, v, 0>(tile0, tile1, c, [&](auto r0, const Columns* columns) {
    a8_part<T, R, decltype(r0)::value, n, v>(columns, act, span);
  });
}
template <FileType T, int R>
void tile_fp32(const unsigned char* tile0, const unsigned char* tile1, const unsigned char* act,
               const Span& span, float* c) {
  constexpr int n = R < fp32_rows ? R : fp32_rows;
  all_parts<R, n, 2, 0>(tile0, tile1, c, [&](auto r0, const Columns* columns) {
    fp32_part<T, R, decltype(r0)::value, n, 2>(columns, act, span);
  });
}
template <FileType T>
constexpr TileFns int8_fns = {
    {tile_int8<T, 1>, tile_int8<T, 2>, tile_int8<T, 4>, tile_int8<T, 8>, nullptr}};
template <FileType T>
constexpr TileFns a8_fns = {{tile_a8<T, 1>, tile_a8<T, 2>, tile_a8<T, 4>, tile_a8<T, 8>, nullptr}};
template <FileType T>
constexpr TileFns fp32_fns = {
    {tile_fp32<T, 1>, tile_fp32<T, 2>, tile_fp32<T, 4>, tile_fp32<T, 8>, nullptr}};

// ---- activations in, outputs out -------------------------------------------------------------

// x[32 g .. 32 g + 32) with zeros past k.
[[gnu::always_inline]] inline const float* group_of(const float* x, int64_t k, int64_t g,
                                                    float* buffer) {
  if (32 * g + 32 <= k) return x + 32 * g;
  for (int i = 0; i < 32; ++i) buffer[i] = 32 * g + i < k ? x[32 * g + i] : 0.0f;
  return buffer;
}

// Lanes hold the bits of the largest magnitudes: NaN is larger than all else.
[[gnu::always_inline]] inline I larger(I largest, const unsigned char* group) {
  for (int i = 0; i < 32; i += lanes)
    largest = max_unsigned(largest, bit_and(load_int(group + 4 * i), dwords(0x7fffffff)));
  return largest;
}

struct Int8Scale {
  float scale, inverse;
  [[gnu::always_inline]] inline explicit Int8Scale(I largest) {
    const uint32_t bits = reduce_max_unsigned(largest);
    float amax;
    __builtin_memcpy(&amax, &bits, 4);
    scale = amax / 127.0f, inverse = 127.0f / amax;
    if (!(amax >= 0x1p-110f)) scale = inverse = 0.0f;
    if (bits >= 0x7f800000u) {
      scale = __builtin_nanf("");
      inverse = 0.0f;
    }
  }
};

template <bool Whole>
[[gnu::always_inline]] inline void prepare_ints(const float* x, int64_t k, int64_t groups, int rows,
                                                int r, unsigned char* block) {
  alignas(64) float buffer[32];
  const auto group = [&](int64_t g) __attribute__((always_inline)) {
    return reinterpret_cast<const unsigned char*>(group_of(x, k, g, buffer));
  };
  I largest = zero_int();
  if constexpr (Whole)
    for (int64_t g = 0; g < groups; ++g) largest = larger(largest, group(g));
  const Int8Scale whole(largest);
  for (int64_t g = 0; g < groups; ++g) {
    const unsigned char* v = group(g);
    Int8Scale own = whole;
    if constexpr (!Whole) own = Int8Scale(larger(zero_int(), v));
    const float scale = own.scale, inverse = own.inverse;
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
    n[2 * rows] = -8 * (sum[0] + sum[1]);
    n[7 * rows] = -128 * (sum[0] + sum[1]);
    for (int h = 0; h < 2; ++h) {
      f[(3 + h) * rows] = scale * static_cast<float>(sum[h]);
      n[(5 + h) * rows] = -sum[h];
    }
  }
}

inline void prepare_int8(const float* x, int64_t k, int64_t groups, int rows, int r,
                         unsigned char* block) {
  prepare_ints<false>(x, k, groups, rows, r, block);
}
inline void prepare_a8(const float* x, int64_t k, int64_t groups, int rows, int r,
                       unsigned char* block) {
  prepare_ints<true>(x, k, groups, rows, r, block);
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
