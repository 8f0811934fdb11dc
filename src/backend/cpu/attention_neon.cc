#include "backend/cpu/vec_neon.h"

#include "backend/cpu/attention_codes.h"

namespace orlop::cpu::neon {

void attention(const AttentionArgs& a, const AttentionBlock& block) {
  attention_of_type<CacheBf16<Vec, 1, 1>>(a, block);
}
void attention_combine(const AttentionArgs& a, const AttentionBlock& block) {
  combine_of_type<CacheBf16<Vec, 1, 1>>(a, block);
}

}  // namespace orlop::cpu::neon
