#include "backend/cpu/vec_avx512.h"

#include "backend/cpu/attention_codes.h"

namespace orlop::cpu::avx512 {

void attention(const AttentionArgs& a, const AttentionBlock& block) {
  attention_of_type<CacheBf16<Vec, 4, 4>>(a, block);
}
void attention_combine(const AttentionArgs& a, const AttentionBlock& block) {
  combine_of_type<CacheBf16<Vec, 4, 4>>(a, block);
}

}  // namespace orlop::cpu::avx512
