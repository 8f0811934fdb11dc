// The instructions of amx_tiles.inl in plain loops, after the operation sections of Intel's SDM, so
// that the kernels can be tested on processors without AMX.

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};
struct Tile {
  alignas(64) unsigned char at[16][64];
};
inline thread_local Tile tiles[8];
inline thread_local TileConfig tile_shape;

inline void tile_config(const TileConfig& c) {
  tile_shape = c;
  __builtin_memset(tiles, 0, sizeof tiles);
}
inline void tile_release() { tile_shape = {}; }
template <int T>
void tile_zero() {
  __builtin_memset(&tiles[T], 0, sizeof(Tile));
}
template <int T>
void tile_load(const void* p, int64_t stride) {
  if (!tile_shape.rows[T]) __builtin_trap();
  __builtin_memset(&tiles[T], 0, sizeof(Tile));
  for (int r = 0; r < tile_shape.rows[T]; ++r)
    __builtin_memcpy(tiles[T].at[r], static_cast<const char*>(p) + r * stride, tile_shape.bytes[T]);
}
template <int T>
void tile_store(void* p) {
  if (!tile_shape.rows[T]) __builtin_trap();
  for (int r = 0; r < tile_shape.rows[T]; ++r)
    __builtin_memcpy(static_cast<char*>(p) + r * 64, tiles[T].at[r], tile_shape.bytes[T]);
}
template <int C, int A, int B>
void check_shapes() {  // what the processor takes for an invalid opcode
  const TileConfig& s = tile_shape;
  if (s.rows[C] != s.rows[A] || s.bytes[C] != s.bytes[B] || s.bytes[A] != 4 * s.rows[B]) __builtin_trap();
}
template <int C, int A, int B, bool Signed>
void tile_bytes_product() {
  check_shapes<C, A, B>();
  for (int m = 0; m < tile_shape.rows[C]; ++m) {
    int32_t sum[16];
    __builtin_memcpy(sum, tiles[C].at[m], 64);
    for (int k = 0; k < tile_shape.rows[B]; ++k)
      for (int n = 0; n < 16; ++n)
        for (int i = 0; i < 4; ++i) {
          const int b = tiles[B].at[k][4 * n + i];
          sum[n] += static_cast<int8_t>(tiles[A].at[m][4 * k + i]) * (Signed ? static_cast<int8_t>(b) : b);
        }
    __builtin_memcpy(tiles[C].at[m], sum, 64);
  }
}
template <int C, int A, int B>
void tile_signed() {
  tile_bytes_product<C, A, B, true>();
}
template <int C, int A, int B>
void tile_unsigned() {
  tile_bytes_product<C, A, B, false>();
}
inline float flushed(float v) { return __builtin_fabsf(v) < 0x1p-126f ? __builtin_copysignf(0.0f, v) : v; }
template <int C, int A, int B>
void tile_bf16() {
  check_shapes<C, A, B>();
  const auto value = [](const unsigned char* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, 2);
    return flushed(__builtin_bit_cast(float, static_cast<uint32_t>(half) << 16));
  };
  for (int m = 0; m < tile_shape.rows[C]; ++m) {
    float sum[16], chain[2][16] = {};
    __builtin_memcpy(sum, tiles[C].at[m], 64);
    for (int k = 0; k < tile_shape.rows[B]; ++k)
      for (int i = 0; i < 2; ++i) {
        const float a = value(tiles[A].at[m] + 4 * k + 2 * i);
        for (int n = 0; n < 16; ++n)
          chain[i][n] = flushed(__builtin_fmaf(a, value(tiles[B].at[k] + 4 * n + 2 * i), chain[i][n]));
      }
    for (int n = 0; n < 16; ++n)
      sum[n] = flushed(flushed(sum[n]) + flushed(chain[0][n] + chain[1][n]));
    __builtin_memcpy(tiles[C].at[m], sum, 64);
  }
}
