// A layer of the tests of products, packed for the GPU.
#pragma once
#include "gpu_rig.h"
#include "matmul_rig.h"

namespace orlop::test {

// The same layer packed for the GPU.
struct GpuLayer {
  const LinearDesc desc;
  On<unsigned char> packed;
  explicit GpuLayer(const Layer& l) : desc(l.desc), packed(gpu().exec().kernels->linear_bytes(l.desc), 0xff) {
    LinearSource source;
    for (int p = 0; p < desc.part_count; ++p) {
      source.rows[p] = l.files[static_cast<size_t>(p)].data();
      source.row_bytes[p] = l.files[static_cast<size_t>(p)].size() / static_cast<size_t>(desc.part_n[p]);
      source.row_map[p] = l.maps[static_cast<size_t>(p)].data();
    }
    const int64_t tiles = gpu().exec().kernels->linear_tiles(desc), cut = tiles / 2;
    gpu().exec().kernels->linear_pack(desc, source, cut, tiles, packed.at());
    gpu().exec().kernels->linear_pack(desc, source, 0, cut, packed.at());
    gpu().exec().device->loaded();
  }
};

}  // namespace orlop::test
