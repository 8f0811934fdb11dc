// The AMX instructions that matmul_amx.cc uses. Assembly, not intrinsics: tile numbers are template
// arguments, and compilers need no flags for it. (Intel SDM volume 2, chapter 3: LDTILECFG, TDPBSSD ..)

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};
};
[[gnu::always_inline]] inline void tile_config(const TileConfig& c) {
  asm volatile("ldtilecfg %0" : : "m"(c));
}
[[gnu::always_inline]] inline void tile_release() { asm volatile("tilerelease"); }
template <int T>
[[gnu::always_inline]] inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(T));
}
template <int T>
[[gnu::always_inline]] inline void tile_load(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T>
[[gnu::always_inline]] inline void tile_store(void* p) {  // rows of 64 bytes
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(int64_t{64}), "i"(T) : "memory");
}
// C += A B: four signed bytes of A times signed ones of B a dword, or times unsigned ones, or pairs of
// bf16: per dot two chains of fma from zero, of the first and of the second ones, then their sum is
// added; denormals are zero.
template <int C, int A, int B>
[[gnu::always_inline]] inline void tile_signed() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
template <int C, int A, int B>
[[gnu::always_inline]] inline void tile_unsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
template <int C, int A, int B>
[[gnu::always_inline]] inline void tile_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
