// Which kernel runs: each kind of code has a file that makes it.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "backend/cuda/few_codes.h"
#include "backend/cuda/few_codes_plan.h"

namespace orlop::cuda::few {

// Clusters that run side by side, each block alone on its multiprocessor: parts of the GPU may be too small for one more.
int clusters_at_once(const void* context, int blocks);

// go: puts it into the list, too.
bool run_i8(Context* c, const StreamArgs& a, bool go);
bool run_e4m3(Context* c, const StreamArgs& a, bool go);

template <Codes codes, Scales scales, int tiles, int columns, int warps>
void start(Context* c, const StreamArgs& a, const Plan& p, size_t shared) {
  launch(c, products<codes, scales, tiles, columns, warps>,
         Shape{dim3(static_cast<unsigned>(p.clusters * p.split)), dim3(32 * warps), shared, static_cast<unsigned>(p.split)}, a, p);
}

template <Codes codes, Scales scales, int columns>
bool run(Context* c, const StreamArgs& a, bool go) {
  using S = Stage<codes, scales>;
  constexpr bool often = columns <= 4;  // worth more kernels
  const Room room{static_cast<int>(c->block_shared), clusters_at_once, c, codes, S::tiled, S::tile_bytes, columns, x_pitch<codes, S::tiled>,
                  {{2, 8}, {4, 8}, {2, 16}}, often ? 3 : 1};
  struct Planned {
    Plan p;
    size_t shared = 0;  // 0: not possible
    bool known = false;
  };
  Planned planned;
  {  // the same products come in every step
    static std::mutex mutex;
    static std::map<std::array<int64_t, 5>, Planned> all;
    const std::lock_guard lock(mutex);
    Planned& one = all[{c->index, a.m, a.n, a.l.k_padded, a.glu}];
    if (!one.known && !plan(a, room, &one.p, &one.shared)) one.shared = 0;
    one.known = true;
    planned = one;
  }
  if (!planned.shared || !go) return planned.shared != 0;
  Plan& p = planned.p;
  const size_t shared = planned.shared;
  if constexpr (often) {
    if (p.tiles == 4) return start<codes, scales, 4, columns, 8>(c, a, p, shared), true;
    if (p.warps == 16) return start<codes, scales, 2, columns, 16>(c, a, p, shared), true;
  }
  start<codes, scales, 2, columns, 8>(c, a, p, shared);
  return true;
}

template <Codes codes, Scales scales>
bool run(Context* c, const StreamArgs& a, bool go) {
  if (a.m > 32) return run<codes, scales, 8>(c, a, go);
  if (a.m > 16) return run<codes, scales, 4>(c, a, go);
  return run<codes, scales, 2>(c, a, go);
}

}  // namespace orlop::cuda::few
