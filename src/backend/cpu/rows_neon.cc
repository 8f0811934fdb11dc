#include "backend/cpu/vec_neon.h"

#include "backend/cpu/rows_tile.h"

namespace orlop::cpu::neon {

void kv_store(const KvStoreArgs& a, int64_t begin, int64_t end) { kv_store_rows(a, begin, end); }
void norm(const NormArgs& a, int64_t begin, int64_t end) { norm_rows(a, begin, end); }
const SampleVec sample_vec = {argmax_row, sum_exp_row, weights_row, sum_row};

}  // namespace orlop::cpu::neon
