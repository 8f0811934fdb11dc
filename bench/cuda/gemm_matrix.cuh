// Random matrices and rows on the GPU, for bench/cuda/gemm.cu.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/gemm.cuh"
#include "backend/cuda/weights.cuh"

using namespace orlop;
using namespace orlop::cuda;

namespace {

void must(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

template <class T>
T* room(size_t count) {
  void* p = nullptr;
  must(cudaMalloc(&p, count * sizeof(T) + 256), "cudaMalloc");
  return static_cast<T*>(p);
}

__host__ __device__ inline uint32_t scramble(uint64_t i, uint32_t seed) {
  uint32_t v = static_cast<uint32_t>(i) * 2654435761u ^ static_cast<uint32_t>(i >> 32) * 40503u ^ seed;
  v = (v ^ v >> 15) * 2246822519u;
  v = (v ^ v >> 13) * 3266489917u;
  return v ^ v >> 16;
}
__host__ __device__ inline float unit_float(uint64_t i, uint32_t seed) { return static_cast<float>(scramble(i, seed) >> 8) * 0x1p-23f - 1.0f; }

__global__ void fill_floats(float* to, int64_t n, uint32_t seed, float scale, float add) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) to[i] = unit_float(i, seed) * scale + add;
}
__global__ void fill_halves(__nv_bfloat16* to, int64_t n, uint32_t seed, float scale) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) to[i] = __float2bfloat16_rn(unit_float(i, seed) * scale);
}
__global__ void fill_bytes(unsigned char* to, int64_t n, uint32_t seed, unsigned char keep) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) to[i] = scramble(i, seed) & keep;
}
// Scales and mins of a piece whose bytes are random.
__global__ void fill_scales(Piece l, unsigned char* at) {
  const int64_t row = blockIdx.x, rows = up(l.rows, row_block);
  if (row >= rows) return;
  if (!l.tiled) {
    if (threadIdx.x == 0) reinterpret_cast<float*>(at + l.scales_at)[row] = 0.002f + 0.001f * unit_float(row, 77);
    return;
  }
  for (int64_t u = threadIdx.x; u < l.units; u += blockDim.x)
    for (int s = 0; s < l.sub; ++s) {
      reinterpret_cast<float*>(at + l.scale_at(row, u))[s] = 0.002f + 0.001f * unit_float((row * l.units + u) * 8 + s, 78);
      if (l.has_min) reinterpret_cast<float*>(at + l.min_at(row, u))[s] = 0.01f * unit_float((row * l.units + u) * 8 + s, 79);
    }
}

// A matrix of random weights.
struct Matrix {
  LinearDesc d;
  unsigned char* packed;
  Matrix(std::vector<int64_t> parts, int64_t k, FileType type, int32_t group, Compute compute, Glu glu) {
    d = {};
    d.k = k;
    d.part_count = static_cast<int32_t>(parts.size());
    for (size_t p = 0; p < parts.size(); ++p) d.type[p] = type, d.part_n[p] = parts[p], d.group[p] = group;
    d.glu = glu;
    d.compute = compute;
    const Pieces pieces(d);
    packed = room<unsigned char>(static_cast<size_t>(pieces.bytes));
    for (int i = 0; i < pieces.count; ++i) {
      const Piece& l = pieces.piece[i];
      if (l.codes == Codes::bf16)
        fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(packed + l.begin), l.bytes / 2, 5, 0.03f);
      else
        fill_bytes<<<2048, 256>>>(packed + l.begin, l.bytes, 6, l.codes == Codes::e4m3 ? 0xbf : 0xff);
      if (l.scaled) fill_scales<<<static_cast<unsigned>(up(l.rows, row_block)), 64>>>(l, packed + l.begin);
    }
    must(cudaDeviceSynchronize(), "filling a matrix");
  }
  ~Matrix() { cudaFree(packed); }
  Matrix(const Matrix&) = delete;
};

}  // namespace
