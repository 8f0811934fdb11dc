// The workspace of products of many rows, as matmul_many() uses it. Read by both sides of the plugin.
#pragma once
#include "backend/cuda/layout.h"

namespace orlop::cuda {

constexpr int64_t few_rows = 32;   // up to here a product reads its weights as they are packed, in one pass,
constexpr int64_t plain_rows = 8;  // in fast mode those that a library takes as they are, and on Hopper all, only up to here

// Up to here weights that are tiled are multiplied as they are (Hopper), by x in tiles of mixed_rows() rows; above,
// making bf16 of them costs less than it gains.
constexpr int64_t mixed_most_rows = 256;
constexpr int64_t mixed_rows(int64_t m) {
  const int64_t tiles = (m + 127) / 128, each = (m + tiles - 1) / tiles;
  return each <= 32 ? 32 : each <= 64 ? 64 : each <= 96 ? 96 : 128;
}

// x as rows of k_padded elements; a scale for each; what the product leaves, before it is finished.
inline int64_t many_scales_at(const LinearDesc& d, int64_t m) { return up((m <= mixed_most_rows ? up(m, mixed_rows(m)) : m) * up(d.k, k_block) * 2, 256); }
inline int64_t many_raw_at(const LinearDesc& d, int64_t m) { return many_scales_at(d, m) + up(m * 4, 256); }
inline int64_t many_workspace_bytes(const LinearDesc& d, int64_t m) {
  return d.compute == Compute::fp32 || m <= plain_rows ? 0 : many_raw_at(d, m) + up(m * product_columns(d) * 4, 256);
}

inline size_t matmul_workspace_bytes(const LinearDesc& d, int64_t m) {
  const int64_t few = few_workspace_bytes(d, m), many = many_workspace_bytes(d, m);
  return static_cast<size_t>(few > many ? few : many);
}

}  // namespace orlop::cuda
