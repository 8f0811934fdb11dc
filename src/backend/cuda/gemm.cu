// cuBLASLt, opened at run time: this file knows its functions and numbers from NVIDIA's documentation
// (cuBLAS 13.2, "Using the cuBLASLt API", and its public header's values) and needs neither the header nor the
// library to build or to load. Rows of x and of weights are, to the library, columns: out^T = W x^T, with W
// transposed.
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>

#include "backend/cuda/gemm.cuh"

namespace orlop::cuda {
namespace {

// What the library's values are called there.
enum DataType : int32_t { r_32f = 0, r_8i = 3, r_32i = 10, r_16bf = 14, r_8f_e4m3 = 28 };
enum ComputeType : int32_t { compute_32f = 68, compute_32i = 72 };
enum DescAttribute : int32_t {
  desc_transpose_a = 3,
  desc_epilogue = 7,
  desc_bias_pointer = 8,
  desc_a_scale_pointer = 17,
  desc_b_scale_pointer = 18,
  desc_fast_accumulate = 25,
  desc_bias_type = 26,
  desc_a_scale_mode = 31,
  desc_b_scale_mode = 32,
};
enum PreferenceAttribute : int32_t { preference_workspace = 1, preference_alignment_a = 5 };  // then b, c, d
constexpr int32_t operation_transposed = 1, epilogue_bias = 4, scale_outer_vector = 3;

struct Algo {
  uint64_t data[8];
};
struct Result {
  Algo algo;
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};
using Handle = struct HandleOf*;
using Desc = struct DescOf*;
using Matrix = struct MatrixOf*;
using Preference = struct PreferenceOf*;

struct Lt {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  size_t (*version)();
  int (*desc_create)(Desc*, int32_t compute, int32_t scale);
  int (*desc_destroy)(Desc);
  int (*desc_set)(Desc, int32_t attribute, const void*, size_t);
  int (*matrix_create)(Matrix*, int32_t type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*matrix_destroy)(Matrix);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*preference_set)(Preference, int32_t attribute, const void*, size_t);
  int (*heuristic)(Handle, Desc, Matrix, Matrix, Matrix, Matrix, Preference, int, Result*, int*);
  int (*check)(Handle, Desc, Matrix, Matrix, Matrix, Matrix, const Algo*, Result*);
  int (*matmul)(Handle, Desc, const void* alpha, const void*, Matrix, const void*, Matrix, const void* beta, const void*, Matrix, void*,
                Matrix, const Algo*, void* workspace, size_t, cudaStream_t);
  std::string words;  // what it is, or why it is not there
};

std::string folder_of_this() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&folder_of_this), &info) || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || path[0] != '/' ? "" : path.substr(0, slash + 1);
}

// Beside the plugin; where Python packages put it, seen from a package that the plugin lies in; as the system
// looks, which finds one that the process has open already. Never the working folder.
void* find_library() {
  const std::string own = folder_of_this();
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (!own.empty())
      for (const char* folder : {"", "../nvidia/cu13/lib/", "../nvidia/cublas/lib/"})
        if (void* handle = dlopen((own + folder + name).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return handle;
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return handle;
  }
  return nullptr;
}

// The process's; null members: it is not there.
const Lt& library() {
  static const Lt opened = [] {
    Lt l{};
    void* handle = find_library();
    if (!handle) {
      l.words = "no libcublasLt found";
      return l;
    }
    bool whole = true;
    const auto find = [&](auto& to, const char* name) {
      to = reinterpret_cast<std::decay_t<decltype(to)>>(dlsym(handle, name));
      whole = whole && to;
    };
    find(l.destroy, "cublasLtDestroy");
    find(l.version, "cublasLtGetVersion");
    find(l.desc_create, "cublasLtMatmulDescCreate");
    find(l.desc_destroy, "cublasLtMatmulDescDestroy");
    find(l.desc_set, "cublasLtMatmulDescSetAttribute");
    find(l.matrix_create, "cublasLtMatrixLayoutCreate");
    find(l.matrix_destroy, "cublasLtMatrixLayoutDestroy");
    find(l.preference_create, "cublasLtMatmulPreferenceCreate");
    find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(l.check, "cublasLtMatmulAlgoCheck");
    find(l.matmul, "cublasLtMatmul");
    find(l.create, "cublasLtCreate");
    if (!whole) {
      l.create = nullptr;
      l.words = "the libcublasLt found lacks functions";
      return l;
    }
    const size_t v = l.version();  // major * 10000 + minor * 100 + patch
    l.words = "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
    return l;
  }();
  return opened;
}

int32_t type_of(Elem e) { return e == Elem::bf16 ? r_16bf : e == Elem::e4m3 ? r_8f_e4m3 : r_8i; }
int32_t type_of(Raw r) { return r == Raw::f32 ? r_32f : r == Raw::bf16 ? r_16bf : r_32i; }
int64_t bytes_of(Elem e) { return e == Elem::bf16 ? 2 : 1; }
int64_t bytes_of(Raw r) { return r == Raw::bf16 ? 2 : 4; }

// The library's description of a product.
class Problem {
 public:
  explicit Problem(const Lt& l, const GemmArgs& a) : l_(l) {
    const bool ints = a.elem == Elem::i8;
    const auto m = static_cast<uint64_t>(a.m), n = static_cast<uint64_t>(a.n), k = static_cast<uint64_t>(a.k);
    good_ = l.desc_create(&desc, ints ? compute_32i : compute_32f, ints ? r_32i : r_32f) == 0 &&
            l.matrix_create(&w, type_of(a.elem), k, n, a.w_stride) == 0 && l.matrix_create(&x, type_of(a.elem), k, m, a.x_stride) == 0 &&
            l.matrix_create(&out, type_of(a.raw), n, m, a.out_stride) == 0;
    set(desc_transpose_a, operation_transposed);
    if (a.bias) {
      set(desc_epilogue, epilogue_bias);
      set(desc_bias_pointer, a.bias);
      set(desc_bias_type, int32_t{r_32f});
    }
    if (a.elem == Elem::e4m3) set(desc_fast_accumulate, int8_t{1});
    if (a.x_scales) {
      set(desc_a_scale_mode, scale_outer_vector);
      set(desc_b_scale_mode, scale_outer_vector);
      set(desc_a_scale_pointer, a.w_scales);
      set(desc_b_scale_pointer, a.x_scales);
    }
  }
  ~Problem() {
    if (desc) l_.desc_destroy(desc);
    for (const Matrix m : {w, x, out})
      if (m) l_.matrix_destroy(m);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  explicit operator bool() const { return good_; }

  Desc desc = nullptr;
  Matrix w = nullptr, x = nullptr, out = nullptr;

 private:
  template <class T>
  void set(DescAttribute attribute, T value) {
    good_ = good_ && l_.desc_set(desc, attribute, &value, sizeof value) == 0;
  }
  const Lt& l_;
  bool good_ = false;
};

struct Choice {
  Algo algo = {};
  uint64_t workspace = 0;
  bool usable = false;
};

// What decides which algorithm is used: all but m, of which the bucket is.
using Key = std::tuple<Elem, Raw, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int32_t, int32_t>;

struct Plan {
  Choice best;                        // for the bucket's largest m
  std::map<int64_t, Choice> for_m;    // the same where it can, for others
};

int64_t bucket(int64_t m) { return m <= 512 ? up(m, 64) : m <= 2048 ? up(m, 256) : up(m, 1024); }

// A pointer's alignment, as far as the library asks.
uint32_t alignment(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  return at % 256 == 0 ? 256 : static_cast<uint32_t>(at & -at);
}

constexpr size_t workspace_bytes = size_t{64} << 20;
constexpr size_t counter_bytes = mixed_blocks * sizeof(int);  // after it
static_assert(mixed_partial_bytes <= workspace_bytes);
constexpr size_t flush_bytes = size_t{128} << 20;  // more than caches hold
constexpr int candidates = 12;

__global__ void fill_random(uint32_t* to, int64_t words, uint32_t keep, uint32_t put) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t v = static_cast<uint32_t>(i) * 2654435761u;
    v = (v ^ v >> 15) * 2246822519u;
    to[i] = ((v ^ v >> 13) & keep) | put;
  }
}

}  // namespace

struct Products {
  const Lt& l;
  Handle handle = nullptr;
  unsigned char* workspace = nullptr;
  std::mutex mutex;  // guards what follows
  unsigned char* weights = nullptr;
  size_t weights_bytes = 0;
  bool no_weights = false;
  std::map<Key, Plan> plans;

  explicit Products(const Lt& library) : l(library) {}
  ~Products() {
    if (handle) l.destroy(handle);
    cudaFree(workspace);
    cudaFree(weights);
  }
};

namespace {

int start(const Products& p, const GemmArgs& a, const Problem& problem, const Choice& choice, cudaStream_t stream) {
  const float one = 1.0f, zero = 0.0f;
  const int32_t int_one = 1, int_zero = 0;
  const bool ints = a.elem == Elem::i8;
  const void* alpha = ints ? static_cast<const void*>(&int_one) : &one;
  const void* beta = ints ? static_cast<const void*>(&int_zero) : a.accumulate ? &one : &zero;
  return p.l.matmul(p.handle, problem.desc, alpha, a.w, problem.w, a.x, problem.x, beta, a.out, problem.out, a.out, problem.out,
                    &choice.algo, p.workspace, choice.workspace, stream);
}

int ask(const Products& p, const GemmArgs& a, const Problem& problem, int wanted, Result* results) {
  Preference preference = nullptr;
  if (p.l.preference_create(&preference)) return 0;
  const uint64_t most = workspace_bytes;
  bool good = p.l.preference_set(preference, preference_workspace, &most, sizeof most) == 0;
  const void* matrices[4] = {a.w, a.x, a.out, a.out};
  for (int i = 0; i < 4; ++i) {
    const uint32_t at = alignment(matrices[i]);
    good = good && p.l.preference_set(preference, preference_alignment_a + i, &at, sizeof at) == 0;
  }
  int found = 0;
  if (!good || p.l.heuristic(p.handle, problem.desc, problem.w, problem.x, problem.out, problem.out, preference, wanted, results, &found))
    found = 0;
  p.l.preference_destroy(preference);
  return static_cast<int>(std::remove_if(results, results + found,
                                         [](const Result& r) { return r.state != 0 || r.workspace > workspace_bytes; }) -
                          results);
}

// Times the candidates with x and out of scratch memory. Where there is none, the library's own order decides.
Choice choose(Context* c, const Products& p, GemmArgs a, bool* timed) {
  Choice best;
  a.m = bucket(a.m);
  const size_t x_bytes = static_cast<size_t>(up(a.m * a.x_stride * bytes_of(a.elem), 256));
  const size_t out_bytes = static_cast<size_t>(up(a.m * a.out_stride * bytes_of(a.raw), 256));
  const size_t scales_bytes = static_cast<size_t>(up(a.m * 4, 256));
  PluginStatus status;
  const Here here(c, &status);
  unsigned char* scratch = nullptr;
  const bool small = a.m <= 512;  // weights come from memory then, not from a cache
  if (!here || cudaMalloc(reinterpret_cast<void**>(&scratch), x_bytes + out_bytes + scales_bytes + (small ? flush_bytes : 0)) != cudaSuccess) {
    cudaGetLastError();
    scratch = nullptr;
  }
  *timed = scratch != nullptr;
  if (scratch) {
    // Pointers of the alignment that the real ones have.
    a.x = scratch + (alignment(a.x) < 256 ? alignment(a.x) : 0);
    a.out = scratch + x_bytes + (alignment(a.out) < 256 ? alignment(a.out) : 0);
    if (a.x_scales) a.x_scales = reinterpret_cast<float*>(scratch + x_bytes + out_bytes);
  }
  const Problem problem(p.l, a);
  Result results[candidates] = {};
  const int found = problem ? ask(p, a, problem, candidates, results) : 0;
  if (found) best = {results[0].algo, results[0].workspace, true};
  cudaEvent_t begin = nullptr, end = nullptr;
  if (scratch && found > 1 && cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
    const uint32_t keep = a.elem == Elem::bf16 ? 0x807f807fu : a.elem == Elem::e4m3 ? 0xbfbfbfbfu : 0xffffffffu;
    const uint32_t put = a.elem == Elem::bf16 ? 0x3f003f00u : 0u;  // below 1; e4m3: below 2
    fill_random<<<1024, 256, 0, c->stream>>>(reinterpret_cast<uint32_t*>(scratch), static_cast<int64_t>(x_bytes / 4), keep, put);
    fill_random<<<1024, 256, 0, c->stream>>>(reinterpret_cast<uint32_t*>(scratch + x_bytes),
                                             static_cast<int64_t>((out_bytes + scales_bytes) / 4), 0x007fffffu, 0x3f000000u);
    float least = 0;
    for (int i = 0; i < found; ++i) {
      const Choice candidate{results[i].algo, results[i].workspace, true};
      constexpr int most_runs = 7;
      const int runs = small ? most_runs : 3;
      float times[most_runs];
      bool good = start(p, a, problem, candidate, c->stream) == 0;
      for (int r = 0; good && r < runs; ++r) {
        if (small) cudaMemsetAsync(scratch + x_bytes + out_bytes + scales_bytes, r, flush_bytes, c->stream);
        cudaEventRecord(begin, c->stream);
        good = start(p, a, problem, candidate, c->stream) == 0;
        cudaEventRecord(end, c->stream);
        good = good && cudaEventSynchronize(end) == cudaSuccess && cudaEventElapsedTime(&times[r], begin, end) == cudaSuccess;
      }
      if (!good) continue;
      std::sort(times, times + runs);
      if (least == 0 || times[runs / 2] < least) {
        least = times[runs / 2];
        best = candidate;
      }
    }
  }
  if (begin) cudaEventDestroy(begin);
  if (end) cudaEventDestroy(end);
  cudaFree(scratch);  // waits for what runs
  return best;
}

// What was chosen once is the process's: engines on one GPU agree, and what was tried beside the loading holds.
// Without `accumulate`, which changes no algorithm. One at a time: at once they would only disturb each other's times.
Choice chosen(Context* c, const Products& p, const GemmArgs& a, const Key& key) {
  static std::mutex mutex;
  static std::map<std::pair<int32_t, Key>, Choice> all;
  std::pair<int32_t, Key> mine{c->index, key};
  std::get<8>(mine.second) &= ~2;
  const std::lock_guard lock(mutex);
  if (const auto found = all.find(mine); found != all.end()) return found->second;
  bool timed = false;
  const Choice best = choose(c, p, a, &timed);
  if (timed && best.usable) all.emplace(mine, best);
  return best;
}

// The algorithm for a product, or one that is not usable. The caller holds the lock.
const Choice& choice_of(Context* c, Products& p, const GemmArgs& a) {
  const int32_t flags = (a.bias ? 1 : 0) | (a.accumulate ? 2 : 0) | (a.x_scales ? 4 : 0);
  const auto aligned = static_cast<int32_t>(std::min({alignment(a.x), alignment(a.w), alignment(a.out)}));
  const Key key{a.elem, a.raw, a.n, a.k, a.x_stride, a.w_stride, a.out_stride, bucket(a.m), flags, aligned};
  auto found = p.plans.find(key);
  if (found == p.plans.end()) found = p.plans.emplace(key, Plan{chosen(c, p, a, key), {}}).first;
  Plan& plan = found->second;
  const auto known = plan.for_m.find(a.m);
  if (known != plan.for_m.end()) return known->second;
  Choice mine = plan.best;
  if (mine.usable) {
    const Problem problem(p.l, a);
    Result result{};
    if (problem && p.l.check(p.handle, problem.desc, problem.w, problem.x, problem.out, problem.out, &mine.algo, &result) == 0 &&
        result.workspace <= workspace_bytes) {
      mine.workspace = result.workspace;
    } else if (problem && ask(p, a, problem, 1, &result)) {
      mine = {result.algo, result.workspace, true};
    } else {
      mine.usable = false;
    }
  }
  return plan.for_m.emplace(a.m, mine).first->second;
}

struct Call {  // without padding
  const Products* p;
  GemmArgs a;
  Algo algo;
  uint64_t workspace;
};

void run(cudaStream_t stream, const void* args, PluginStatus* status) {
  Call call;
  std::memcpy(&call, args, sizeof call);
  const Problem problem(call.p->l, call.a);
  const int error = problem ? start(*call.p, call.a, problem, {call.algo, call.workspace, true}, stream) : -1;
  if (error == 0 || status->code) return;
  status->code = -12;  // internal
  std::snprintf(status->text, sizeof status->text, "%s: a product of %lld x %lld x %lld failed with its error %d", call.p->l.words.c_str(),
                static_cast<long long>(call.a.m), static_cast<long long>(call.a.n), static_cast<long long>(call.a.k), error);
}

}  // namespace

void open_library() { library(); }

Products* products(Context* c) {
  const std::lock_guard lock(c->mutex);
  if (c->products || c->no_products) return c->products;
  c->no_products = true;
  const Lt& l = library();
  PluginStatus status;
  const Here here(c, &status);
  if (!here || !l.create) return nullptr;
  auto p = std::make_unique<Products>(l);
  if (l.create(&p->handle) || 
      cudaMalloc(reinterpret_cast<void**>(&p->workspace), workspace_bytes + counter_bytes) != cudaSuccess ||
      cudaMemsetAsync(p->workspace + workspace_bytes, 0, counter_bytes, c->stream) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return c->products = p.release();
}

void close_products(Context* c) {
  delete c->products;
  c->products = nullptr;
}

void hand_over_products(Context* from, Context* to) {
  const std::lock_guard lock(to->mutex);
  if (to->products || to->no_products) return;
  to->products = from->products;
  from->products = nullptr;
}

void describe_products(Context* c, char* to, size_t size) {
  const bool there = products(c) != nullptr;
  const std::string& words = library().words;
  std::snprintf(to, size, "%s%s", words.c_str(), there || !library().create ? "" : " (cannot be used)");
}

unsigned char* weights_buffer(Context* c, Products* p, size_t* bytes) {
  const std::lock_guard lock(p->mutex);
  if (!p->weights && !p->no_weights) {
    PluginStatus status;
    const Here here(c, &status);
    size_t free = 0, total = 0;
    const bool known = here && cudaMemGetInfo(&free, &total) == cudaSuccess;
    p->weights_bytes = known ? std::min(size_t{256} << 20, total / 64 / 256 * 256) : 0;
    if (!known || cudaMalloc(reinterpret_cast<void**>(&p->weights), p->weights_bytes) != cudaSuccess) {
      cudaGetLastError();
      p->weights = nullptr;
      p->no_weights = true;
    }
  }
  *bytes = p->weights_bytes;
  return p->weights;
}

void mixed_room(Products* p, float** partials, int** counters) {
  *partials = reinterpret_cast<float*>(p->workspace);
  *counters = reinterpret_cast<int*>(p->workspace + workspace_bytes);
}

bool gemm_possible(Context* c, Products* p, const GemmArgs& a) {
  const std::lock_guard lock(p->mutex);
  return choice_of(c, *p, a).usable;
}

bool gemm(Context* c, Products* p, const GemmArgs& a) {
  Call call{p, a, {}, 0};
  {
    const std::lock_guard lock(p->mutex);
    const Choice& choice = choice_of(c, *p, a);
    if (!choice.usable) return false;
    call.algo = choice.algo;
    call.workspace = choice.workspace;
  }
  launch(c, run, call);
  return true;
}

}  // namespace orlop::cuda
