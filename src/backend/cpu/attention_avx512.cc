#include "backend/cpu/vec_avx512.h"

#include "backend/cpu/attention_tile.h"

namespace orlop::cpu::avx512 {

void attention(const AttentionArgs& a, const AttentionBlock& block) {
  if (a.kv.type == KvType::f32)
    AttentionTile<Vec, CacheF32<Vec, 4, 4>>(a, block).run();
  else
    AttentionTile<Vec, CacheBf16<Vec, 4, 4>>(a, block).run();
}

void attention_combine(const AttentionArgs& a, const AttentionBlock& block) {
  AttentionTile<Vec, CacheF32<Vec, 4, 4>>(a, block).combine();
}

}  // namespace orlop::cpu::avx512
