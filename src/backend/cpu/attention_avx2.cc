#include "backend/cpu/vec_avx2.h"

#include "backend/cpu/attention_tile.h"

namespace orlop::cpu::avx2 {

using F32 = AttentionTile<Vec, CacheF32<Vec, 1, 1>>;
using Bf16 = AttentionTile<Vec, CacheBf16<Vec, 1, 1>>;

void attention(const AttentionArgs& a, const AttentionBlock& block) {
  if (!F32::fits(a.kv)) return ref::attention(a, block);
  if (bf16_products(a.kv.type))
    Bf16(a, block).run();
  else
    F32(a, block).run();
}

void attention_combine(const AttentionArgs& a, const AttentionBlock& block) {
  if (!F32::fits(a.kv)) return ref::attention_combine(a, block);
  F32(a, block).combine();
}

}  // namespace orlop::cpu::avx2
