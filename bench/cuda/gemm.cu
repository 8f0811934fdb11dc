// Products of many rows: right against double on samples, and how fast, alone and as a layer's chain, on one
// GPU. Built with the plugin's files; libcublasLt must be where the plugin finds it.
//   gemm [check|mixed|layer|time]   (all if none is named)
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

// ---- the reference: chosen rows and columns, in double -----------------------------------------

// What the product multiplies: normed, gathered, rounded. One block for each chosen row.
__global__ void reference_rows(RowsArgs a, Elem elem, const int64_t* chosen, float* to, float* scales) {
  __shared__ double parts[256];
  const int64_t row = chosen[blockIdx.x];
  const auto x = [&](int64_t i) {
    const int64_t at = row * a.x_stride + (a.k_map ? a.k_map[i] : i);
    return a.narrow ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(a.x)[at]) : reinterpret_cast<const float*>(a.x)[at];
  };
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.k; i += 256) sum += double{x(i)} * x(i);
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int s = 128; s; s /= 2) {
    if (threadIdx.x < s) parts[threadIdx.x] += parts[threadIdx.x + s];
    __syncthreads();
  }
  const float factor = a.norm_weight ? static_cast<float>(1.0 / sqrt(parts[0] / a.k + a.eps)) : 1.0f;
  __syncthreads();
  float most = 0;
  for (int64_t i = threadIdx.x; i < a.k; i += 256) {
    const float v = a.norm_weight ? x(i) * factor * a.norm_weight[a.k_map ? a.k_map[i] : i] : x(i);
    to[blockIdx.x * a.k + i] = v;
    most = fmaxf(most, fabsf(v));
  }
  parts[threadIdx.x] = most;
  __syncthreads();
  for (int s = 128; s; s /= 2) {
    if (threadIdx.x < s) parts[threadIdx.x] = fmax(parts[threadIdx.x], parts[threadIdx.x + s]);
    __syncthreads();
  }
  const float amax = static_cast<float>(parts[0]), top = elem == Elem::i8 ? 127.0f : 448.0f;
  if (threadIdx.x == 0) scales[blockIdx.x] = elem == Elem::bf16 ? 1.0f : amax / top;
  for (int64_t i = threadIdx.x; i < a.k; i += 256) {
    float& v = to[blockIdx.x * a.k + i];
    if (elem == Elem::bf16)
      v = __bfloat162float(__float2bfloat16_rn(v));
    else if (elem == Elem::i8)
      v = rintf(v * (top / amax));
    else
      v = static_cast<float>(__nv_fp8_e4m3(v * (top / amax)));
  }
}

__global__ void reference_products(Piece l, const unsigned char* at, const float* x, const float* scales, const int64_t* columns, int n, double* out) {
  const int64_t row = blockIdx.x, column = columns[blockIdx.y];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < l.k; i += 32) sum += double{weight(l, at, column, i)} * x[row * l.k + i];
  for (int s = 16; s; s /= 2) sum += __shfl_xor_sync(all_lanes, sum, s);
  if (threadIdx.x == 0) out[row * n + blockIdx.y] = sum * scales[row];
}

struct Case {
  const char* name;
  std::vector<int64_t> parts;
  int64_t k, m;
  FileType type;
  int32_t group;
  Compute compute;
  Glu glu;
  bool norm, narrow_x, narrow_out, accumulate, bias, mapped;
  double bound;  // of the error over a result and all results' root mean square
};

bool check(Context* c, const Case& t) {
  Matrix w(t.parts, t.k, t.type, t.group, t.compute, t.glu);
  const int64_t n = w.d.n(), columns = product_columns(w.d), x_stride = t.k + 8, out_stride = n + 8;
  float* x = room<float>(static_cast<size_t>(t.m * x_stride));
  if (t.narrow_x)
    fill_halves<<<1024, 256>>>(reinterpret_cast<__nv_bfloat16*>(x), t.m * x_stride, 11, 1.5f);
  else
    fill_floats<<<1024, 256>>>(x, t.m * x_stride, 11, 1.5f, 0.1f);
  float* norm = room<float>(static_cast<size_t>(t.k));
  fill_floats<<<64, 256>>>(norm, t.k, 12, 0.5f, 1.0f);
  float* bias = room<float>(static_cast<size_t>(columns));
  fill_floats<<<64, 256>>>(bias, columns, 13, 0.5f, 0.0f);
  int32_t* map = room<int32_t>(static_cast<size_t>(t.k));
  std::vector<int32_t> order(static_cast<size_t>(t.k));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  for (size_t i = order.size() - 1; i; --i) std::swap(order[i], order[scramble(i, 99) % (i + 1)]);
  must(cudaMemcpy(map, order.data(), order.size() * 4, cudaMemcpyHostToDevice), "map");
  if (t.mapped) w.d.k_map = map;
  float* out = room<float>(static_cast<size_t>(t.m * out_stride));
  const size_t work_bytes = static_cast<size_t>(many_workspace_bytes(w.d, t.m));
  unsigned char* work = room<unsigned char>(work_bytes);
  must(cudaMemset(work, 0xff, work_bytes + 256), "poison");
  const size_t out_bytes = static_cast<size_t>(t.m * out_stride) * (t.narrow_out ? 2 : 4);
  std::vector<float> start(static_cast<size_t>(t.m * out_stride), std::nanf(""));
  if (t.accumulate)
    for (size_t i = 0; i < start.size(); ++i) start[i] = unit_float(i, 21);
  if (!t.narrow_out)
    must(cudaMemcpy(out, start.data(), start.size() * 4, cudaMemcpyHostToDevice), "start");
  else
    must(cudaMemset(out, 0xff, out_bytes), "start");
  MatmulArgs a{&w.d, w.packed, x, x_stride, out, out_stride, t.m, t.bias ? bias : nullptr, t.accumulate, work};
  a.norm_weight = t.norm ? norm : nullptr;
  a.norm_eps = 1e-5f;
  a.narrow_x = t.narrow_x, a.narrow_out = t.narrow_out;
  PluginStatus status;
  must(cudaDeviceSynchronize(), "inputs");
  if (!matmul_many(c, a, &status)) {
    std::printf("%-34s not possible\n", t.name);
    return false;
  }
  c->launches.run(c->stream, &status);
  must(cudaStreamSynchronize(c->stream), t.name);
  if (status.code) std::printf("%s: %s\n", t.name, status.text);

  std::vector<int64_t> rows, cols;
  for (int64_t i = 0; i < std::min<int64_t>(t.m, 24); ++i) rows.push_back(i < 12 ? i * (t.m / 24 + 1) % t.m : t.m - 1 - (i - 12));
  for (int64_t i = 0; i < 64; ++i) cols.push_back(i < 40 ? scramble(i, 31) % n : i < 52 ? i - 40 : n - 1 - (i - 52));
  int64_t *chosen = room<int64_t>(rows.size()), *chosen_columns = room<int64_t>(cols.size());
  must(cudaMemcpy(chosen, rows.data(), rows.size() * 8, cudaMemcpyHostToDevice), "rows");
  float *reference_x = room<float>(rows.size() * static_cast<size_t>(t.k)), *scales = room<float>(rows.size());
  const Pieces pieces(w.d);
  Elem elem = Elem::bf16;
  if (t.compute == Compute::a8 && !pieces.piece[0].tiled && pieces.piece[0].codes == Codes::e4m3) elem = Elem::e4m3;
  if (t.compute == Compute::a8 && !pieces.piece[0].tiled && pieces.piece[0].codes == Codes::i8) elem = Elem::i8;
  reference_rows<<<static_cast<unsigned>(rows.size()), 256>>>(
      RowsArgs{.x = x, .x_stride = x_stride, .norm_weight = a.norm_weight, .k_map = w.d.k_map, .m = t.m, .k = t.k, .eps = 1e-5f, .narrow = t.narrow_x}, elem,
      chosen, reference_x, scales);
  double* sums = room<double>(rows.size() * cols.size());
  const auto products_of = [&](int64_t shift) {  // of raw columns `shift` further
    std::vector<double> all(rows.size() * cols.size()), some(all.size());
    int64_t first = 0;
    for (int i = 0; i < pieces.count; ++i) {
      const Piece& l = pieces.piece[i];
      std::vector<int64_t> own(cols.size(), 0);
      for (size_t j = 0; j < cols.size(); ++j) {
        const int64_t at = cols[j] + shift - first;
        own[j] = at >= 0 && at < l.rows ? at : 0;
      }
      must(cudaMemcpy(chosen_columns, own.data(), own.size() * 8, cudaMemcpyHostToDevice), "columns");
      reference_products<<<dim3(static_cast<unsigned>(rows.size()), static_cast<unsigned>(cols.size())), 32>>>(l, w.packed + l.begin, reference_x, scales, chosen_columns,
                                                                                                         static_cast<int>(cols.size()), sums);
      must(cudaMemcpy(some.data(), sums, some.size() * 8, cudaMemcpyDeviceToHost), "sums");
      for (size_t j = 0; j < cols.size(); ++j)
        if (const int64_t at = cols[j] + shift - first; at >= 0 && at < l.rows)
          for (size_t r = 0; r < rows.size(); ++r) all[r * cols.size() + j] = some[r * cols.size() + j];
      first += l.rows;
    }
    return all;
  };
  std::vector<double> want = products_of(0), up_want;
  if (t.glu != Glu::none) up_want = products_of(n);
  std::vector<float> got(static_cast<size_t>(t.m * out_stride));
  if (t.narrow_out) {
    std::vector<uint16_t> narrow(got.size());
    must(cudaMemcpy(narrow.data(), out, narrow.size() * 2, cudaMemcpyDeviceToHost), "out");
    for (size_t i = 0; i < got.size(); ++i) {
      const uint32_t bits = uint32_t{narrow[i]} << 16;
      std::memcpy(&got[i], &bits, 4);
    }
  } else {
    must(cudaMemcpy(got.data(), out, got.size() * 4, cudaMemcpyDeviceToHost), "out");
  }
  int64_t unwritten = 0, overwritten = 0;
  for (int64_t r = 0; r < t.m; ++r) {
    for (int64_t j = 0; j < n; ++j) unwritten += std::isnan(got[static_cast<size_t>(r * out_stride + j)]);
    for (int64_t j = n; j < out_stride; ++j) {
      const auto i = static_cast<size_t>(r * out_stride + j);
      overwritten += t.accumulate ? got[i] != start[i] : !std::isnan(got[i]);
    }
  }
  double error = 0, square = 0;
  std::vector<std::pair<double, double>> errors;
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t j = 0; j < cols.size(); ++j) {
      double v = want[r * cols.size() + j] + (t.bias ? unit_float(static_cast<uint64_t>(cols[j]), 13) * 0.5f : 0.0);
      if (t.glu != Glu::none) {
        const double u = up_want[r * cols.size() + j] + (t.bias ? unit_float(static_cast<uint64_t>(n + cols[j]), 13) * 0.5f : 0.0);
        v = (t.glu == Glu::silu ? v / (1 + std::exp(-v)) : 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))) * u;
      }
      const auto at = static_cast<size_t>(rows[r] * out_stride + cols[j]);
      if (t.accumulate) v += start[at];
      errors.push_back({std::abs(v - got[at]), std::abs(v)});
      square += v * v;
    }
  const double rms = std::sqrt(square / static_cast<double>(rows.size() * cols.size()));
  for (const auto& [off, size] : errors) error = std::max(error, off / (rms + size));
  // The same again, as a graph: equal bits.
  bool same = true;
  for (int again = 0; again < 5; ++again) {
    if (!t.narrow_out) must(cudaMemcpy(out, start.data(), start.size() * 4, cudaMemcpyHostToDevice), "start");
    must(cudaDeviceSynchronize(), "start");
    matmul_many(c, a, &status);
    for (int i = 0; i < 8 && !t.accumulate; ++i) matmul_many(c, a, &status);
    c->launches.run(c->stream, &status);
    must(cudaStreamSynchronize(c->stream), t.name);
    std::vector<unsigned char> one(out_bytes), two(out_bytes);
    must(cudaMemcpy(one.data(), out, out_bytes, cudaMemcpyDeviceToHost), "out");
    if (t.narrow_out) {
      for (size_t i = 0; i < got.size() && same; ++i) {
        uint16_t bits;
        std::memcpy(&bits, &one[2 * i], 2);
        uint32_t before;
        std::memcpy(&before, &got[i], 4);
        same = before >> 16 == bits;
      }
    } else {
      same = same && std::memcmp(one.data(), got.data(), out_bytes) == 0;
    }
  }
  const bool good = error <= t.bound && unwritten == 0 && overwritten == 0 && same && status.code == 0 && rms > 0;
  std::printf("%-34s m %5lld  error %.2e (<= %.0e)%s%s%s %s\n", t.name, static_cast<long long>(t.m), error, t.bound, unwritten ? " UNWRITTEN" : "",
              overwritten ? " OVERWRITTEN" : "", same ? "" : " OTHER BITS", good ? "ok" : "FAILED");
  for (void* p : {static_cast<void*>(x), static_cast<void*>(norm), static_cast<void*>(bias), static_cast<void*>(map), static_cast<void*>(out), static_cast<void*>(work),
                  static_cast<void*>(chosen), static_cast<void*>(chosen_columns), static_cast<void*>(reference_x), static_cast<void*>(scales), static_cast<void*>(sums)})
    cudaFree(p);
  return good;
}

bool check_all(Context* c) {
  using enum FileType;
  const Glu none = Glu::none, silu = Glu::silu, gelu = Glu::gelu_tanh;
  const Compute b = Compute::bf16, a8 = Compute::a8;
  const Case cases[] = {
      {"bf16 qkv norm bias", {1536, 512, 512}, 2048, 100, bf16, 0, b, none, true, false, false, false, true, false, 1e-3},
      {"bf16 out accumulate narrow x", {2048}, 2048, 257, bf16, 0, b, none, false, true, false, true, false, false, 1e-3},
      {"bf16 silu norm", {1536, 1536}, 576, 33, bf16, 0, b, silu, true, false, true, false, false, false, 3e-2},
      {"bf16 gelu bias k 200 rows 72", {72, 72}, 200, 47, bf16, 0, b, gelu, false, false, false, false, true, false, 3e-2},
      {"bf16 k 15000 (short rows)", {256}, 15000, 64, bf16, 0, b, none, true, false, false, true, true, false, 1e-3},
      {"bf16 k 53248", {256}, 53248, 40, bf16, 0, b, none, true, false, false, false, false, false, 1e-3},
      {"int4 g128 16 rows", {4096, 1024, 1024}, 4096, 16, w4, 128, b, none, true, false, false, false, true, false, 1e-2},
      {"q4_k 32 rows silu", {1000, 1000}, 2048, 32, q4_k, 0, b, silu, true, false, true, false, true, false, 3e-2},
      {"bf16 9 rows", {1000, 1000}, 2048, 9, bf16, 0, b, silu, true, false, true, false, true, false, 3e-2},
      {"int8 a8 9 rows", {1024}, 2048, 9, w8, 0, a8, none, true, false, false, true, false, false, 1e-3},
      {"int4 g128 norm 700 rows", {4096, 1024, 1024}, 4096, 700, w4, 128, b, none, true, false, false, false, true, false, 1e-2},
      {"q4_k silu 1100 rows", {1000, 1000}, 2048, 1100, q4_k, 0, b, silu, true, false, true, false, true, false, 3e-2},
      {"q6_k 1000 rows", {1000}, 2304, 1000, q6_k, 0, b, none, false, true, false, true, false, false, 1e-2},
      {"e4m3 g128 700 rows", {512, 128}, 1280, 700, f8, 128, b, none, true, false, false, false, false, false, 1e-2},
      {"int4 g128 down", {4096}, 14336, 256, w4, 128, b, none, false, true, false, true, false, false, 1e-2},
      {"int4 g128 gate 28672", {14336, 14336}, 4096, 130, w4, 128, b, silu, true, false, true, false, true, false, 3e-2},
      {"int4 g128 450 rows", {4096}, 4096, 450, w4, 128, b, none, false, true, true, false, true, false, 3e-2},
      {"q6_k gate rows 1000", {1000, 1000}, 2304, 90, q6_k, 0, b, gelu, true, false, true, false, true, false, 3e-2},
      {"int4 g128 norm", {4096, 1024, 1024}, 4096, 256, w4, 128, b, none, true, false, false, false, false, false, 1e-2},
      {"int4 g128 map accumulate", {4096}, 4096, 77, w4, 128, b, none, false, false, false, true, false, true, 1e-2},
      {"int4 g32 min silu", {1024, 1024}, 1024, 130, w4z, 32, b, silu, true, false, true, false, false, false, 3e-2},
      {"q4_k", {1024, 256}, 2048, 64, q4_k, 0, b, none, true, false, false, false, true, false, 1e-2},
      {"q6_k rows 1000", {1000}, 2304, 65, q6_k, 0, b, none, false, true, false, false, false, false, 1e-2},
      {"q3_k", {512}, 1280, 48, q3_k, 0, b, none, false, false, false, false, false, false, 1e-2},
      {"q5_1", {512}, 1280, 48, q5_1, 0, b, none, false, false, false, false, false, false, 1e-2},
      {"int8 g64", {512}, 1280, 500, w8, 64, b, none, false, false, false, false, false, false, 1e-2},
      {"uint8 rows", {512}, 1280, 50, w8z, 0, b, none, false, false, false, true, false, false, 1e-2},
      {"int8 rows as bf16", {512, 128}, 1280, 50, w8, 0, b, none, true, false, false, false, true, false, 1e-2},
      {"int8 rows a8 norm bias", {512, 128, 128}, 1280, 50, w8, 0, a8, none, true, false, false, false, true, false, 1e-3},
      {"int8 rows a8 silu", {3584, 3584}, 4096, 450, w8, 0, a8, silu, true, false, true, false, false, false, 3e-2},
      {"int8 rows a8 accumulate", {4096}, 3584, 450, w8, 0, a8, none, false, true, false, true, false, false, 1e-3},
      {"e4m3 rows as bf16", {512, 128}, 1280, 50, f8, 0, b, none, true, false, false, false, false, false, 1e-2},
      {"e4m3 g128 as bf16", {512, 128}, 1280, 50, f8, 128, b, none, true, false, false, false, false, false, 1e-2},
      {"e4m3 a8 norm", {1536, 512, 512}, 2048, 130, f8, 0, a8, none, true, false, false, false, false, false, 1e-2},
      {"e4m3 a8 bias", {1536, 512, 512}, 2048, 130, f8, 0, a8, none, true, false, false, false, true, false, 1e-2},
      {"e4m3 a8 silu", {3584, 3584}, 4096, 450, f8, 0, a8, silu, true, false, true, false, false, false, 3e-2},
      {"e4m3 a8 accumulate", {4096}, 14336, 450, f8, 0, a8, none, false, true, false, true, false, false, 1e-2},
  };
  bool good = true;
  for (const Case& t : cases) good = check(c, t) && good;
  return good;
}

// ---- time --------------------------------------------------------------------------------------

// Microseconds of what `put` adds to the list, `times` over, as one graph; the median of seven.
template <class Put>
double time_of(Context* c, int times, Put put) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> all;
  PluginStatus status;
  for (int round = 0; round < 9; ++round) {
    for (int i = 0; i < times; ++i) put(i);
    must(cudaEventRecord(begin, c->stream), "record");
    c->launches.run(c->stream, &status);
    must(cudaEventRecord(end, c->stream), "record");
    must(cudaEventSynchronize(end), "timing");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (round >= 2) all.push_back(ms);
  }
  if (status.code) std::printf("timing: %s\n", status.text);
  std::sort(all.begin(), all.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return all[all.size() / 2] * 1e3 / times;
}

struct Shape5 {
  int64_t n, k;
};
constexpr Shape5 shapes[] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}};
constexpr int64_t many_m[] = {64, 128, 256, 450, 1024, 2048, 4096};

void time_products(Context* c) {
  const size_t pool_bytes = size_t{2} << 30;
  unsigned char* pool = room<unsigned char>(pool_bytes);
  unsigned char* x = room<unsigned char>(size_t{4096} * 14336 * 2);
  unsigned char* out = room<unsigned char>(size_t{4096} * 128256 * 4);
  float* scales = room<float>(131072);
  fill_floats<<<64, 256>>>(scales, 131072, 3, 0.001f, 0.01f);
  Products* p = products(c);
  const struct {
    const char* name;
    Elem elem;
    Raw raw;
    int accumulate;
    double ceiling;
  } kinds[] = {{"bf16 -> f32 +=", Elem::bf16, Raw::f32, 1, 793}, {"bf16 -> f32", Elem::bf16, Raw::f32, 0, 793}, {"bf16 -> bf16", Elem::bf16, Raw::bf16, 0, 793}, {"e4m3 -> f32 +=", Elem::e4m3, Raw::f32, 1, 1400},
               {"e4m3 -> bf16", Elem::e4m3, Raw::bf16, 0, 1400}, {"i8 -> i32", Elem::i8, Raw::i32, 0, 928}};
  std::printf("products alone: microseconds (TFLOP/s, share of the ceiling measured)\n%-15s %14s", "", "n x k");
  for (const int64_t m : many_m) std::printf("        m %5lld", static_cast<long long>(m));
  std::printf("\n");
  for (const auto& kind : kinds) {
    if (kind.elem == Elem::bf16) {
      fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(pool), pool_bytes / 2, 1, 0.03f);
      fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(x), 4096 * 14336, 2, 1.0f);
    } else {
      fill_bytes<<<2048, 256>>>(pool, pool_bytes, 1, kind.elem == Elem::e4m3 ? 0xbf : 0xff);
      fill_bytes<<<2048, 256>>>(x, 4096 * 14336, 2, kind.elem == Elem::e4m3 ? 0xbf : 0xff);
    }
    must(cudaDeviceSynchronize(), "filling");
    double total[std::size(many_m)] = {};
    for (const Shape5& s : shapes) {
      std::printf("%-15s %6lldx%-7lld", kind.name, static_cast<long long>(s.n), static_cast<long long>(s.k));
      for (size_t i = 0; i < std::size(many_m); ++i) {
        const int64_t m = many_m[i];
        GemmArgs g;
        g.elem = kind.elem, g.raw = kind.raw, g.accumulate = kind.accumulate;
        g.m = m, g.n = s.n, g.k = s.k;
        g.x = x, g.out = out, g.x_stride = g.w_stride = s.k, g.out_stride = s.n;
        if (kind.elem == Elem::e4m3) g.x_scales = scales, g.w_scales = scales;
        const int64_t bytes = s.n * s.k * (kind.elem == Elem::bf16 ? 2 : 1);
        const int rotate = static_cast<int>(std::min<int64_t>(8, static_cast<int64_t>(pool_bytes) / bytes));
        g.w = pool;
        if (!gemm_possible(c, p, g)) {
          std::printf("   not possible");
          continue;
        }
        const double us = time_of(c, 8, [&](int r) {
          g.w = pool + r % rotate * bytes;
          gemm(c, p, g);
        });
        const double rate = 2.0 * static_cast<double>(m * s.n * s.k) / us * 1e-6;
        std::printf(" %7.1f %4.0f %.2f", us, rate, rate / kind.ceiling);
        total[i] += us * (s.n == 128256 ? 1 : 32);
      }
      std::printf("\n");
    }
    std::printf("%-15s %14s", kind.name, "8B ms");
    for (const double t : total) std::printf(" %14.2f", t * 1e-3);
    std::printf("\n");
  }
  for (void* q : {static_cast<void*>(pool), static_cast<void*>(x), static_cast<void*>(out), static_cast<void*>(scales)}) cudaFree(q);
}

void time_small(Context* c) {
  const int64_t m = 4096, k = 4096, n = 14336;
  float* x = room<float>(static_cast<size_t>(m * 2 * n));
  unsigned char* to = room<unsigned char>(static_cast<size_t>(m * n * 4));
  float* scales = room<float>(static_cast<size_t>(m));
  fill_floats<<<2048, 256>>>(x, m * 2 * n, 3, 1.0f, 0.0f);
  const auto report = [](const char* name, double us, double bytes) { std::printf("%-40s %8.1f us %7.0f GB/s\n", name, us, bytes / us * 1e-3); };
  for (const int64_t rows : {int64_t{4096}, int64_t{256}}) {
    for (const auto& [name, elem, size] : {std::tuple{"bf16", Elem::bf16, 2}, std::tuple{"e4m3", Elem::e4m3, 1}, std::tuple{"i8", Elem::i8, 1}}) {
      const auto go = [&](bool norm, bool narrow, int64_t width) {
        RowsArgs r{.x = x, .x_stride = width, .norm_weight = norm ? x : nullptr, .to = to, .scales = scales, .m = rows, .k = width, .k_padded = width, .eps = 1e-5f, .narrow = narrow};
        const double us = time_of(c, 8, [&](int i) {
          r.x = reinterpret_cast<unsigned char*>(x) + (narrow || width == k ? i % 2 * rows * width * 4 : 0);
          prepare_rows(c, elem, r);
        });
        char words[100];
        std::snprintf(words, sizeof words, "rows %lld x %lld %s%s -> %s", static_cast<long long>(rows), static_cast<long long>(width), narrow ? "bf16" : "f32", norm ? " norm" : "", name);
        report(words, us, static_cast<double>(rows * width * ((narrow ? 2 : 4) + size)));
      };
      go(true, false, k);
      go(false, true, k);
      go(false, true, n);
    }
    for (const Raw raw : {Raw::bf16, Raw::i32}) {
      FinishArgs f;
      f.raw = x, f.raw_stride = 2 * n, f.type = raw, f.out = to, f.out_stride = n, f.m = rows, f.n = n, f.glu = Glu::silu, f.narrow = true;
      const double us = time_of(c, 8, [&](int) { finish(c, f); });
      report(raw == Raw::bf16 ? "gate bf16 -> bf16" : "gate i32 -> bf16", us, static_cast<double>(rows * n * (raw == Raw::bf16 ? 6 : 10)));
    }
  }
  cudaFree(x);
  cudaFree(to);
  cudaFree(scales);
  size_t bytes = 0;
  unsigned char* buffer = weights_buffer(c, products(c), &bytes);
  using enum FileType;
  for (const auto& [name, type, group] : {std::tuple{"int4 g128", w4, 128}, std::tuple{"q4_k", q4_k, 0}, std::tuple{"q6_k", q6_k, 0}, std::tuple{"int8 rows", w8, 0}, std::tuple{"e4m3 g128", f8, 128},
                                          std::tuple{"e4m3 rows", f8, 0}}) {
    const Matrix w({28672}, 4096, type, group, Compute::bf16, Glu::none);
    const Piece l = Pieces(w.d).piece[0];
    const double us = time_of(c, 8, [&](int) { dequantize(c, l, w.packed, 0, l.rows, buffer); });
    char words[100];
    std::snprintf(words, sizeof words, "dequantize 28672 x 4096 %s", name);
    report(words, us, static_cast<double>(l.bytes + l.rows * l.k_padded * 2));
  }
}

// Products of tiled weights as they are, alone.
void time_mixed(Context* c) {
  using enum FileType;
  unsigned char* x = room<unsigned char>(size_t{1024} * 14336 * 2);
  float* out = room<float>(size_t{1024} * 28672);
  fill_halves<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(x), 1024 * 14336, 2, 1.0f);
  std::printf("mixed products alone: microseconds (TFLOP/s)\n");
  for (const auto& [name, type, group] : {std::tuple{"int4 g128", w4, 128}, std::tuple{"q4_k", q4_k, 0}, std::tuple{"q6_k", q6_k, 0}, std::tuple{"e4m3 g128", f8, 128}})
    for (const Shape5& s : shapes) {
      if (s.n == 128256) continue;
      const bool gated = s.n == 28672;
      std::vector<std::unique_ptr<Matrix>> w;
      for (int i = 0; i < (s.n * s.k > 40000000 ? 2 : 6); ++i)
        w.push_back(gated ? std::make_unique<Matrix>(std::vector<int64_t>{s.n / 2, s.n / 2}, s.k, type, group, Compute::bf16, Glu::silu)
                          : std::make_unique<Matrix>(std::vector<int64_t>{s.n}, s.k, type, group, Compute::bf16, Glu::none));
      std::printf("%-10s %6lldx%-6lld", name, static_cast<long long>(s.n), static_cast<long long>(s.k));
      for (const int64_t m : {int64_t{16}, int64_t{32}, int64_t{64}, int64_t{96}, int64_t{128}, int64_t{256}, int64_t{450}, int64_t{600}}) {
        MixedArgs g;
        g.x = x, g.out = out, g.m = m, g.n = gated ? s.n / 2 : s.n, g.out_stride = g.n;
        g.narrow_out = gated, g.accumulate = s.n == 4096;
        g.glu = gated ? 1 : 0;
        g.up_row = gated ? s.n / 2 : 0;
        mixed_room(products(c), &g.partials, &g.counters);
        PluginStatus status;
        const double us = time_of(c, 12, [&](int i) {
          const Matrix& mine = *w[static_cast<size_t>(i) % w.size()];
          g.l = Pieces(mine.d).piece[0];
          g.low = g.high = mine.packed;
          mixed(c, g, &status);
        });
        std::printf(" m %3lld %6.1f %4.0f", static_cast<long long>(m), us, 2.0 * static_cast<double>(m * s.n * s.k) / us * 1e-6);
      }
      std::printf("\n");
    }
  cudaFree(x);
  cudaFree(out);
}

// A layer's four products with all that belongs to them, eight layers' weights in turn.
void time_layer(Context* c) {
  using enum FileType;
  std::printf("a layer's products, whole (norm, rounding, dequantization, gate): microseconds; x 32 ms\n");
  for (const auto& [name, type, group, compute] :
       {std::tuple{"bf16", bf16, 0, Compute::bf16}, std::tuple{"int4 g128", w4, 128, Compute::bf16}, std::tuple{"q4_k", q4_k, 0, Compute::bf16},
        std::tuple{"int8 rows", w8, 0, Compute::bf16}, std::tuple{"int8 a8", w8, 0, Compute::a8}, std::tuple{"e4m3 a8", f8, 0, Compute::a8}}) {
    std::vector<std::unique_ptr<Matrix>> w;
    constexpr int layers = 3;
    for (int l = 0; l < layers; ++l) {
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{4096, 1024, 1024}, 4096, type, group, compute, Glu::none));
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{4096}, 4096, type, group, compute, Glu::none));
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{14336, 14336}, 4096, type, group, compute, Glu::silu));
      w.push_back(std::make_unique<Matrix>(std::vector<int64_t>{4096}, 14336, type, group, compute, Glu::none));
    }
    float *x = room<float>(4096 * 4096), *attended = room<float>(4096 * 4096 / 2), *qkv = room<float>(4096 * 6144), *ffn = room<float>(4096 * 14336 / 2), *norm = room<float>(4096);
    fill_floats<<<1024, 256>>>(x, 4096 * 4096, 1, 1.0f, 0.0f);
    fill_floats<<<1024, 256>>>(norm, 4096, 1, 0.1f, 0.05f);
    fill_halves<<<1024, 256>>>(reinterpret_cast<__nv_bfloat16*>(attended), 4096 * 4096, 2, 0.1f);
    unsigned char* work = room<unsigned char>(static_cast<size_t>(many_workspace_bytes(w[2]->d, 4096)) + 4096 * 14336 * 2);
    std::printf("%-12s", name);
    for (const int64_t m : {int64_t{16}, int64_t{32}, int64_t{64}, int64_t{96}, int64_t{128}, int64_t{256}, int64_t{450}, int64_t{600}, int64_t{1024}, int64_t{4096}}) {
      PluginStatus status;
      bool possible = true;
      const double us = time_of(c, 4, [&](int i) {
        const auto product = [&](int at, const float* from, int64_t from_stride, float* to, int64_t to_stride, bool normed, bool accumulate, bool narrow_x, bool narrow_out) {
          const Matrix& mine = *w[static_cast<size_t>(i % layers * 4 + at)];
          MatmulArgs a{&mine.d, mine.packed, from, from_stride, to, to_stride, m, nullptr, accumulate, work};
          a.norm_weight = normed ? norm : nullptr;
          a.norm_eps = 1e-5f;
          a.narrow_x = narrow_x, a.narrow_out = narrow_out;
          possible = matmul_many(c, a, &status) && possible;
        };
        product(0, x, 4096, qkv, 6144, true, false, false, false);
        product(1, attended, 4096, x, 4096, false, true, true, false);
        product(2, x, 4096, ffn, 14336, true, false, false, true);
        product(3, ffn, 14336, x, 4096, false, true, true, false);
      });
      std::printf("  m %4lld %7.1f (%6.2f)", static_cast<long long>(m), possible ? us : 0.0, possible ? us * 32e-3 : 0.0);
    }
    std::printf("\n");
    for (void* q : {static_cast<void*>(x), static_cast<void*>(attended), static_cast<void*>(qkv), static_cast<void*>(ffn), static_cast<void*>(norm), static_cast<void*>(work)}) cudaFree(q);
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  cudaDeviceProp p;
  must(cudaGetDeviceProperties(&p, 0), "no GPU");
  Context c;
  c.multiprocessors = p.multiProcessorCount;
  c.capability = 10 * p.major + p.minor;
  c.block_shared = p.sharedMemPerBlockOptin;
  c.fast = true;
  c.launches.set(p.major >= 9, c.block_shared);
  must(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking), "stream");
  char library[200];
  describe_products(&c, library, sizeof library);
  std::printf("%s; %s\n", p.name, library);
  bool good = true;
  if (what.empty() || what == "check") good = check_all(&c);
  if (what.empty() || what == "mixed") time_mixed(&c);
  if (what.empty() || what == "layer") time_layer(&c);
  if (what.empty() || what == "time") time_small(&c), time_products(&c);
  c.launches.clear();
  close_products(&c);
  return good ? 0 : 1;
}
