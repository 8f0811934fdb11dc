// Gated feed-forward layer: norm, act(gate) * up in one product, down added to the residual stream.
#include "model/forward.h"
#include "ops/ops.h"

namespace orlop {

void mlp_block(const Step& s, const LayerWeights& w) {
  const Config& c = s.config;
  const int64_t rows = s.batch.rows;
  ops::norm(s.exec, {.x = s.work.x, .x_stride = c.dim, .weight = w.ffn_norm, .eps = c.norm_eps,
                     .out = s.work.h, .out_stride = c.dim, .rows = rows, .dim = c.dim});
  linear(s, w.gate_up, s.work.h, s.work.ffn, rows, false);
  linear(s, w.down, s.work.ffn, s.work.x, rows, true);
}

}  // namespace orlop
