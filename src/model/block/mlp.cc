// Gated feed-forward layer: norm, act(gate) * up in one product, down added to the residual stream.
#include "model/forward.h"

namespace orlop {

void mlp_block(const Step& s, const LayerWeights& w) {
  const int64_t rows = s.batch.rows;
  const bool narrow = narrow_for(s, w.down);
  linear(s, w.gate_up, s.work.x, s.work.ffn, rows, {.norm = w.ffn_norm, .narrow_out = narrow});
  linear(s, w.down, s.work.ffn, s.work.x, rows, {.accumulate = true, .narrow_x = narrow});
}

}  // namespace orlop
