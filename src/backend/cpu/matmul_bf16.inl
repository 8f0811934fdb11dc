// Codes of quantized weights as bf16, for kernels that multiply in bf16. Included after matmul_avx512.inl,
// in the same namespace.

// bf16 of every code less its zero point, twice over where 5 bits index it and fewer are used.
template <FileType T>
struct Table {
  alignas(64) uint16_t v[64];
  constexpr Table() : v() {
    constexpr int values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
    constexpr PackInfo f = pack_info(T);
    if constexpr (T == FileType::f8) {  // the subnormal numbers, mantissa * 2^-9
      for (int i = 0; i < 64; ++i)
        v[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(i % 8) * 0x1p-9f) >> 16);
      return;
    }
    constexpr int bits = f.low_bits + (f.low_bits == 8 ? 0 : f.high_bits);
    for (int i = 0; i < 64; ++i) {
      const int code = i % (1 << (bits > 6 ? 6 : bits));
      const float value = static_cast<float>(f.codebook ? values[code] : code - f.zero);
      v[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
    }
  }
};
template <FileType T>
constexpr Table<T> table{};

OP I words(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }

// e4m3 codes in words to bf16. The fields move to their places with the exponent's bias from 7 to 127;
// a subnormal number or NaN comes from the table, by mantissa.
OP void e4m3_pair(I code, I table, I& out) {
  const I magnitude = bit_and(code, words(0x7f));
  const I sign = shift_left<8>(bit_and(code, words(0x80)));
  I v = _mm512_add_epi16(shift_left<4>(magnitude), words(120 << 7));
  const __mmask32 small = _mm512_cmplt_epi16_mask(magnitude, words(8));
  v = _mm512_mask_permutexvar_epi16(v, small, magnitude, table);
  v = _mm512_mask_mov_epi16(v, _mm512_cmpeq_epi16_mask(magnitude, words(0x7f)), words(0x7fc0));
  out = bit_or(v, sign);
}

// Weights 4 J .. 4 J + 3 of every column as bf16 pairs (k0, k2) and (k1, k3).
template <FileType T, int J>
OP void pairs(const unsigned char* code, I low_table, I high_table, I& even, I& odd) {
  constexpr PackInfo f = pack_info(T);
  if constexpr (T == FileType::f8) {
    const I v = load_int(code + 64 * J);
    e4m3_pair(bit_and(v, words(0xff)), low_table, even);
    e4m3_pair(shift_right<8>(v), low_table, odd);
  } else if constexpr (f.low_bits == 4 && f.high_bits == 0) {
    const I v = load_int(code + 64 * (J / 2));
    even = _mm512_permutexvar_epi16(J % 2 == 0 ? v : shift_right<4>(v), low_table);
    odd = _mm512_permutexvar_epi16(shift_right<J % 2 == 0 ? 8 : 12>(v), low_table);
  } else if constexpr (f.low_bits == 8) {
    // bytes, less the zero point, to the top bytes of dwords; a float of 8 bits is a bf16 and 16 zeros
    I v = load_int(code + 64 * J);
    if constexpr (f.zero != 0) v = _mm512_xor_si512(v, bytes(f.zero));
    const auto high = [](I top) __attribute__((always_inline)) {
      const I whole = f.zero != 0 ? shift_right_signed<24>(top) : shift_right_dword<24>(top);
      return _mm512_castps_si512(to_float(whole));
    };
    even = bit_or(high(shift_left_dword<8>(v)), shift_right_dword<16>(high(shift_left_dword<24>(v))));
    odd = bit_or(high(v), shift_right_dword<16>(high(shift_left_dword<16>(v))));
  } else {
    const I v = codes<T, J>(code, 0);
    if constexpr (f.high_bits == 2) {
      even = _mm512_permutex2var_epi16(low_table, v, high_table);
      odd = _mm512_permutex2var_epi16(low_table, shift_right<8>(v), high_table);
    } else {
      even = _mm512_permutexvar_epi16(v, low_table);
      odd = _mm512_permutexvar_epi16(shift_right<8>(v), low_table);
    }
  }
}

// 16 floats as bf16, of every four in the order 0 2 1 3; gives the sum of what they became.
OP float store_bf16(F x, unsigned char* to) {
  const I bits = bf16_bits(x);
  // dwords k0 k1 k2 k3 -> words k0 k2 k1 k3: k2 and k3 move into the high halves of k0 and k1
  const I high = shift_left_dword<16>(_mm512_shuffle_epi32(bits, _MM_PERM_DCDC));
  const I both = bit_or(bits, high);  // lanes 0 and 1 of every four hold the pairs
  const __m512i pick = _mm512_setr_epi64(0, 2, 4, 6, 0, 0, 0, 0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_castsi512_si256(_mm512_permutexvar_epi64(pick, both)));
  return _mm512_reduce_add_ps(as_float(shift_left_dword<16>(bits)));
}
