// Part of matmul_amx.cc: scales that span a whole tile of k or more.

// a8: tiles of 64 k, or of 32 with zeros for the rest where a share has odd groups.
template <FileType T>
struct WideInts {
  static constexpr FileType type = T;
  static constexpr bool floats = false;
  OP static int width(int64_t g, int64_t end) { return g % 2 == 0 && g + 1 < end ? 2 : 1; }
  OP static void expand(const Bytes* code, int groups, Bytes* to) {
    fetch_codes<T>(code);
    expand_bytes<T>(code, to);
    if (groups == 2) {
      fetch_codes<T>(code + pack_info(T).code_bytes);
      expand_bytes<T>(code + pack_info(T).code_bytes, to + 512);
    } else {
      for (int i = 512; i < tile_size; i += 64) _mm512_store_si512(to + i, zero_int());
    }
  }
  // What a half tile reads past its own 32 meets zeros.
  OP static const Bytes* rows_at(const Bytes* block, int64_t g, int rows) {
    return block + g / 2 * 64 * rows + g % 2 * 32;
  }
  OP static int64_t stride(int64_t g, int64_t groups) { return g + 1 == groups && g % 2 == 0 ? 32 : 64; }
  template <int C, int A, int B>
  OP static void multiply() {
    multiply_bytes<T, C, A, B>();
  }
  OP static void sums(const Bytes* block, int rows, int64_t begin, int64_t end, int64_t groups, float* to) {
    const Bytes* from = block + 32 * rows * groups + 4 * rows;
    for (int r = 0; r < rows; ++r) {
      int32_t sum = 0;
      for (int64_t g = begin; g < end; ++g) sum += int_at(from + 4 * (r * groups + g));
      to[r] = static_cast<float>(sum);
    }
  }
  OP static const Bytes* last_scale(const Bytes* block, int rows, int64_t groups) {
    return block + 32 * rows * groups;
  }
};
template <FileType T>
struct WideFloats {
  static constexpr FileType type = T;
  static constexpr bool floats = true;
  OP static int width(int64_t, int64_t) { return 1; }
  OP static void expand(const Bytes* code, int, Bytes* to) {
    fetch_codes<T>(code);
    expand_bf16<T>(code, to);
  }
  OP static const Bytes* rows_at(const Bytes* block, int64_t g, int rows) { return block + g * 64 * rows; }
  OP static int64_t stride(int64_t, int64_t) { return 64; }
  template <int C, int A, int B>
  OP static void multiply() {
    tile_bf16<C, A, B>();
  }
  OP static void sums(const Bytes* block, int rows, int64_t begin, int64_t end, int64_t groups, float* to) {
    const Mask mask = first_lanes(rows);
    F sum = zero();
    for (int64_t g = begin; g < end; ++g)
      sum = add(sum, load_masked(reinterpret_cast<const float*>(block + (groups * 64 + g * 4) * rows), mask));
    store(to, sum);
  }
  OP static const Bytes* last_scale(const Bytes*, int, int64_t) { return nullptr; }
};

struct Step {
  int64_t group, end;  // end: of its share
  bool opens, closes;  // the share
};

// acc [rows, 16] += dots [rows, 16] of a share by its scale and min; then times a scale of the rows.
template <class K>
OP void close(const float* dots, const Bytes* scales, const float* sums, const Bytes* last, int rows, float* acc) {
  const F d = load_float(scales), m = load_float(scales + (pack_info(K::type).has_min ? 64 : 0));
  const auto all = [&](int n) __attribute__((always_inline)) {
    for (int r = 0; r < n; ++r) {
      const Bytes* dot = reinterpret_cast<const Bytes*>(dots + 16 * r);
      F v = load_float(reinterpret_cast<const Bytes*>(acc + 16 * r));
      v = fma(K::floats ? load_float(dot) : to_float(load_int(dot)), d, v);
      if constexpr (pack_info(K::type).has_min) v = fma(set_float(sums[r]), m, v);
      if (last) v = mul(v, broadcast(last + 4 * r));
      store(acc + 16 * r, v);
    }
  };
  if (rows == 16)
    all(16);
  else
    all(rows);
}

// Steps of a stretch: weights and rows come from the second-level cache, which is as fast here as the
// first one plus loads and stores of sums between shorter stretches.
constexpr int wide_steps = 32, wide_steps_few = 8;

// The weights of the next stretch, or of the next pair of tiles, which lies behind this one: some lines a
// step into the second-level cache.
struct Ahead {
  const Bytes* at[2];
  int lines;
  OP Ahead(const Bytes* const (&tile)[2], int64_t codes_at, int64_t next, int64_t end, int64_t bytes, int passes) {
    const int64_t pair = 2 * (tile[1] - tile[0]);
    for (int i = 0; i < 2; ++i) at[i] = next < end ? tile[i] + codes_at + next : tile[i] + pair + codes_at;
    lines = static_cast<int>((bytes / 64 + passes - 1) / passes);
  }
  OP void step() {
    for (int n = 0; n < lines; ++n)
      for (auto& p : at) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1), p += 64;
  }
};

// A stretch of steps for N blocks of rows. parts [N, 2, 16, 16]: dots of a share that goes on.
template <class K, int N>
OP void wide_stretch(const Step* step, int steps, const Bytes* weights, const Bytes* const (&tile)[2],
                     const Bytes* const (&block)[2], const int (&rows)[2], const Span& span, Ahead& ahead, float* parts,
                     float* c) {
  alignas(64) float dots[N * 512];
  const auto put = [](float* to) __attribute__((always_inline)) {
    tile_store<0>(to), tile_store<1>(to + 256);
    if constexpr (N == 2) tile_store<2>(to + 512), tile_store<3>(to + 768);
  };
  for (int s = 0; s < steps; ++s) {
    const Step& at = step[s];
    if (at.opens) {
      tile_zero<0>(), tile_zero<1>();
      if constexpr (N == 2) tile_zero<2>(), tile_zero<3>();
    } else if (s == 0) {
      tile_load<0>(parts, 64), tile_load<1>(parts + 256, 64);
      if constexpr (N == 2) tile_load<2>(parts + 512, 64), tile_load<3>(parts + 768, 64);
    }
    ahead.step();
    const int64_t stride = K::stride(at.group, span.groups);
    const Bytes* w = weights + s * tile_size;
    tile_load<4>(K::rows_at(block[0], at.group, rows[0]), stride);
    tile_load<6>(w, 64);
    tile_load<7>(w + wide_steps * tile_size, 64);
    K::template multiply<0, 4, 6>();
    K::template multiply<1, 4, 7>();
    if constexpr (N == 2) {
      tile_load<5>(K::rows_at(block[1], at.group, rows[1]), stride);
      K::template multiply<2, 5, 6>();
      K::template multiply<3, 5, 7>();
    }
    if (at.closes) {
      put(dots);
      const int64_t share = (at.end - 1) / span.share;
      for (int n = 0; n < N; ++n) {
        float sums[16];
        if constexpr (pack_info(K::type).has_min)
          K::sums(block[n], rows[n], share * span.share, at.end, span.groups, sums);
        const Bytes* last = at.end == span.groups ? K::last_scale(block[n], rows[n], span.groups) : nullptr;
        for (int i = 0; i < 2; ++i)
          close<K>(dots + 512 * n + 256 * i, tile[i] + share * pack_info(K::type).super_bytes, sums, last, rows[n],
                   c + 512 * n + 256 * i);
      }
    } else if (s == steps - 1) {
      put(parts);
    }
  }
}

// The next steps from group g on: at most `most`; their weights, and where they end.
template <class K>
OP int64_t plan(int64_t g, const Span& span, const Bytes* const (&tile)[2], int64_t codes_at, int most, Step* step,
                int& steps, Bytes* weights) {
  for (steps = 0; steps < most && g < span.groups; ++steps) {
    const int64_t begin = g / span.share * span.share;
    const int64_t end = begin + span.share < span.groups ? begin + span.share : span.groups;
    const int width = K::width(g, end);
    for (int i = 0; i < 2; ++i)
      K::expand(tile[i] + codes_at + g * pack_info(K::type).code_bytes, width,
                weights + (i * wide_steps + steps) * tile_size);
    step[steps] = {g, end, g == begin, g + width == end};
    g += width;
  }
  return g;
}

// Where every step is a share: a block of rows times two tiles of columns at a time, and the dots of a
// step are scaled while the products of the next are on their way.
template <class K>
OP void narrow_stretch(const Step* step, int steps, const Bytes* weights, const Bytes* const (&tile)[2],
                       const Bytes* block, int rows, const Span& span, Ahead& ahead, float* c) {
  alignas(64) float dots[2 * 512];
  const auto finish = [&](int s) __attribute__((always_inline)) {
    const int64_t g = step[s].group, end = step[s].end, share = g / span.share;
    alignas(64) float sums[16];
    if constexpr (pack_info(K::type).has_min) K::sums(block, rows, g, end, span.groups, sums);
    const Bytes* last = end == span.groups ? K::last_scale(block, rows, span.groups) : nullptr;
    for (int i = 0; i < 2; ++i)
      close<K>(dots + s % 2 * 512 + 256 * i, tile[i] + share * pack_info(K::type).super_bytes, sums, last, rows,
               c + 256 * i);
  };
  const auto start = [&](int s, auto odd) __attribute__((always_inline)) {
    constexpr int sum = decltype(odd)::value * 2, a = 4 + decltype(odd)::value;
    ahead.step();
    const Bytes* w = weights + s * tile_size;
    tile_load<a>(K::rows_at(block, step[s].group, rows), K::stride(step[s].group, span.groups));
    tile_load<6>(w, 64);
    tile_zero<sum>(), tile_zero<sum + 1>();
    K::template multiply<sum, a, 6>();
    tile_load<7>(w + wide_steps * tile_size, 64);
    K::template multiply<sum + 1, a, 7>();
    tile_store<sum>(dots + sum * 256), tile_store<sum + 1>(dots + sum * 256 + 256);
  };
  for (int s = 0; s < steps; ++s) {
    if (s % 2 == 0)
      start(s, Index<0>{});
    else
      start(s, Index<1>{});
    if (s > 0) finish(s - 1);
  }
  finish(steps - 1);
}

template <class K>
void wide(const Bytes* tile0, const Bytes* tile1, const Bytes* act, int64_t act_row_bytes, const Span& span, int rows,
          float* c) {
  constexpr int code_bytes = pack_info(K::type).code_bytes;
  alignas(64) Bytes weights[2 * wide_steps * tile_size];
  alignas(64) float parts[2 * 16 * many_rows];
  const Bytes* const tile[2] = {tile0, tile1};
  const int64_t codes_at = scale_bytes(K::type, span);
  const int blocks = (rows + 15) / 16;
  for (int i = 0; i < blocks * 32; ++i) store(c + 16 * i, zero());
  const bool narrow = span.share <= (K::floats ? 1 : 2);
  const int most = narrow || blocks <= 2 ? wide_steps_few : wide_steps, together = narrow ? 1 : 2;
  const int passes = (blocks + together - 1) / together;
  Shape shape;
  for (int64_t g = 0; g < span.groups;) {
    Step step[wide_steps];
    int steps;
    const int64_t end = plan<K>(g, span, tile, codes_at, most, step, steps, weights);
    Ahead ahead(tile, codes_at, end * code_bytes, span.groups * code_bytes, blocks <= 2 ? 0 : (end - g) * code_bytes,
                passes * steps);
    g = end;
    for (int b = 0; b < blocks; b += together) {
      const int here[2] = {rows_of(rows, b), together == 2 && b + 1 < blocks ? rows_of(rows, b + 1) : 0};
      const Bytes* const block[2] = {act + 16 * b * act_row_bytes, act + 16 * (b + 1) * act_row_bytes};
      float *part = parts + 512 * b, *to = c + 512 * b;
      shape.set<64>(here[0], here[1] ? here[1] : here[0]);
      if (narrow)
        narrow_stretch<K>(step, steps, weights, tile, block[0], here[0], span, ahead, to);
      else if (here[1])
        wide_stretch<K, 2>(step, steps, weights, tile, block, here, span, ahead, part, to);
      else
        wide_stretch<K, 1>(step, steps, weights, tile, block, here, span, ahead, part, to);
    }
  }
  tile_release();
}

// bf16 weights: the tiles of weights are as they lie, and the dots are the results.
template <int N>
OP void bf16_stretch(int64_t begin, int64_t end, const Bytes* const (&code)[2], const Bytes* const (&block)[2],
                     const int (&rows)[2], Ahead& ahead, float* c) {
  if (begin == 0) {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (N == 2) tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(c, 64), tile_load<1>(c + 256, 64);
    if constexpr (N == 2) tile_load<2>(c + 512, 64), tile_load<3>(c + 768, 64);
  }
  for (int64_t g = begin; g < end; ++g) {
    if (N == 1) {  // weights come from memory
      for (int i = 0; i < tile_size; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(code[0] + (g + 4) * tile_size + i), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(code[1] + (g + 4) * tile_size + i), _MM_HINT_T0);
      }
    }
    ahead.step();
    tile_load<4>(block[0] + g * 64 * rows[0], 64);
    tile_load<6>(code[0] + g * tile_size, 64);
    tile_load<7>(code[1] + g * tile_size, 64);
    tile_bf16<0, 4, 6>();
    tile_bf16<1, 4, 7>();
    if constexpr (N == 2) {
      tile_load<5>(block[1] + g * 64 * rows[1], 64);
      tile_bf16<2, 5, 6>();
      tile_bf16<3, 5, 7>();
    }
  }
  tile_store<0>(c), tile_store<1>(c + 256);
  if constexpr (N == 2) tile_store<2>(c + 512), tile_store<3>(c + 768);
}
void floats(const Bytes* tile0, const Bytes* tile1, const Bytes* act, int64_t act_row_bytes, const Span& span,
            int rows, float* c) {
  const Bytes* const code[2] = {tile0, tile1};
  const int blocks = (rows + 15) / 16;
  const int64_t stretch = blocks <= 2 ? span.groups : 2 * wide_steps;
  Shape shape;
  for (int64_t g = 0; g < span.groups; g += stretch) {
    const int64_t end = g + stretch < span.groups ? g + stretch : span.groups;
    const int64_t bytes = blocks <= 2 ? 0 : (end - g) * tile_size;
    const int passes = static_cast<int>((blocks + 1) / 2 * (end - g));
    Ahead ahead(code, 0, end * tile_size, span.groups * tile_size, bytes, passes);
    for (int b = 0; b < blocks; b += 2) {
      const int here[2] = {rows_of(rows, b), b + 1 < blocks ? rows_of(rows, b + 1) : 0};
      const Bytes* const block[2] = {act + 16 * b * act_row_bytes, act + 16 * (b + 1) * act_row_bytes};
      shape.set<64>(here[0], here[1] ? here[1] : 1);
      if (here[1])
        bf16_stretch<2>(g, end, code, block, here, ahead, c + 512 * b);
      else
        bf16_stretch<1>(g, end, code, block, here, ahead, c + 512 * b);
    }
  }
  tile_release();
}
