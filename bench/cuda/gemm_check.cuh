// Whether products of many rows are right: chosen rows and columns against double, every value written, nothing
// beside it, equal bits when repeated.
#pragma once
#include "gemm_matrix.cuh"

namespace {

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

}  // namespace
