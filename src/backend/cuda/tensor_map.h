// The driver's function that makes tensor maps, found at run time: the plugin is not linked with the driver.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

namespace orlop::cuda {

using TensorMapEncode = decltype(&cuTensorMapEncodeTiled);

// Null: this driver has none.
inline TensorMapEncode tensor_map_encode() {
  static const TensorMapEncode encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const bool got = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) == cudaSuccess;
    return got && found == cudaDriverEntryPointSuccess ? reinterpret_cast<TensorMapEncode>(entry) : nullptr;
  }();
  return encode;
}

}  // namespace orlop::cuda
