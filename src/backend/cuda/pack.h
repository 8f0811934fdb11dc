// Packing of weights for the GPU, on the host: what linear_pack writes, without CUDA.
#pragma once
#include <functional>

#include "backend/cuda/layout.h"

namespace orlop::cuda {

size_t linear_bytes(const LinearDesc& desc);
int64_t linear_tiles(const LinearDesc& desc);
// Calls put(offset from the packed matrix, bytes, their number) for what tiles [begin, end) hold.
using Put = std::function<void(int64_t, const void*, size_t)>;
void pack_tiles(const LinearDesc& desc, const LinearSource& source, int64_t begin, int64_t end, const Put& put);

}  // namespace orlop::cuda
