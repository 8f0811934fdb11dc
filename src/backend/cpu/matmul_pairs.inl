// int8 products of two rows at a time with USMMLA, included by matmul_tile.inl: [2 columns, 8 k] times
// [8 k, 2 rows].
template <FileType T, int R0, int N, int V, int Begin, int End>
OP void pair_dots(I (&dot)[V][N], const unsigned char* const (&code)[V], const Columns* columns,
                  const unsigned char* act) {
  for (int v = 0; v < V; ++v) {
    int32x4_t sum[N / 2][4];  // of columns c, c + 1: (c, first row), (c, second), (c + 1, first) ...
    for (int p = 0; p < N / 2; ++p)
      for (int c = 0; c < 4; ++c) sum[p][c] = vdupq_n_s32(0);
    static_for<Begin / 2, End / 2>([&](auto ii) __attribute__((always_inline)) {
      constexpr int i = decltype(ii)::value;
      const I x = codes<T, 2 * i>(code[v], columns[v].c0), y = codes<T, 2 * i + 1>(code[v], columns[v].c0);
      const uint8x16_t w[4] = {u8(vzip1q_s32(x.a, y.a)), u8(vzip2q_s32(x.a, y.a)),
                               u8(vzip1q_s32(x.b, y.b)), u8(vzip2q_s32(x.b, y.b))};
      for (int p = 0; p < N / 2; ++p) {
        const auto* rows = reinterpret_cast<const int8_t*>(act + 32 * (R0 + 2 * p) + 8 * i);
        const int8x16_t a = vcombine_s8(vld1_s8(rows), vld1_s8(rows + 32));
        for (int c = 0; c < 4; ++c) sum[p][c] = vusmmlaq_s32(sum[p][c], w[c], a);
      }
    });
    for (int p = 0; p < N / 2; ++p) {
      const int32x4_t(&s)[4] = sum[p];
      dot[v][2 * p] = add_int(dot[v][2 * p], {vuzp1q_s32(s[0], s[1]), vuzp1q_s32(s[2], s[3])});
      dot[v][2 * p + 1] = add_int(dot[v][2 * p + 1], {vuzp2q_s32(s[0], s[1]), vuzp2q_s32(s[2], s[3])});
    }
  }
}
