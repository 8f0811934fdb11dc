// Philox4x32-10: counter-based random numbers (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011).
#pragma once
#include <cstdint>

namespace orlop::cpu {

struct Philox {
  uint32_t v[4];
};

inline Philox philox4x32(Philox counter, uint32_t key0, uint32_t key1) {
  uint32_t* c = counter.v;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0,
                              static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1,
                              static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits: a function of the seed and the token's position alone.
inline double philox_uniform(uint64_t seed, uint64_t position) {
  const Philox x = philox4x32(
      {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0}},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return static_cast<double>((uint64_t{x.v[0]} << 32 | x.v[1]) >> 11) * 0x1p-53;
}

}  // namespace orlop::cpu
