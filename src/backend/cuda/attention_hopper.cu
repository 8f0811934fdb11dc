// Attention of prompts on Hopper: the online softmax over tiles of keys of FlashAttention (Dao et al. 2022), as
// FlashAttention-3 (Shah et al. 2024) cuts it for asynchronous products. A block has two warpgroups of 64
// query rows each and a warp that copies tiles of keys and values from the cache's pages, box by box, into
// rings of stages. A warpgroup's scores of a tile are computed while the values of the one before are added,
// and its softmax runs beside the other's products. Tiles run from the newest keys to the oldest.
#include <climits>

#include "backend/cuda/attention_prefill.cuh"
#include "backend/cuda/hopper.cuh"

namespace orlop::cuda {
namespace {

constexpr int query_rows = 128;
constexpr int threads = 384;

template <int Dims, int Stages>
struct Plan {
  static constexpr int keys = Dims > 128 ? 64 : 128;  // of a tile
  static constexpr int panels = (Dims + 63) / 64;     // of 64 elements, 128 bytes of a row
  static constexpr int parts = Dims > 128 ? 2 : 1;    // of the output's columns, a product each
  static constexpr int columns = Dims / parts;
  static constexpr int query_panel = query_rows * 128, panel = keys * 128;
  static constexpr int tile_bytes = panels * panel;
  static constexpr int keys_at = panels * query_panel, values_at = keys_at + Stages * tile_bytes, barriers_at = values_at + Stages * tile_bytes;
  static constexpr size_t shared = barriers_at + 4 * Stages * 8 + 1024;
};

struct Ring {
  int stage = 0, phase = 0;
  template <int Stages>
  __device__ void next() {
    if (++stage == Stages) stage = 0, phase ^= 1;
  }
};

// One row's maximum times c, this lane's share of its sum, and how much of what was summed before is kept.
struct RowState {
  float top = -INFINITY, sum = 0, keep = 1;
};

// Scores to weights, in place. rows[0] has elements 4 i and 4 i + 1, rows[1] the two after.
template <bool Masked, int N>
__device__ inline void weigh(float (&s)[N], RowState (&rows)[2], float c, int key, const int (&oldest)[2], const int (&newest)[2]) {
  if constexpr (Masked) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int row = i / 2 % 2, k = key + i / 4 * 8 + i % 2;
      if (k < oldest[row] || k > newest[row]) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) top = fmaxf(top, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
    top = fmaxf(rows[r].top, top * c);
    const float base = top == -INFINITY ? 0.0f : top;
    rows[r].keep = power_of_two(rows[r].top - base);
    rows[r].top = top;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      float& a = s[4 * i + 2 * r];
      float& b = s[4 * i + 2 * r + 1];
      a = power_of_two(fmaf(a, c, -base));
      b = power_of_two(fmaf(b, c, -base));
      sum += a + b;
    }
    rows[r].sum = fmaf(rows[r].sum, rows[r].keep, sum);
  }
}

// grid: most tiles * kv heads
template <class T, int Dims, int Stages, bool Turns, bool Early>
__global__ void __launch_bounds__(threads, 1)
    attend_hopper(const AttentionArgs a, const __grid_constant__ CUtensorMap pages, int32_t positions, int32_t box, int32_t least_rows, float c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<Dims, Stages>;
  constexpr int keys = P::keys;
  extern __shared__ unsigned char raw_shared[];
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024;
  const uint32_t barriers = base + P::barriers_at;
  const auto keys_full = [&](int s) { return barriers + 8 * s; };
  const auto keys_empty = [&](int s) { return barriers + 8 * (Stages + s); };
  const auto values_full = [&](int s) { return barriers + 8 * (2 * Stages + s); };
  const auto values_empty = [&](int s) { return barriers + 8 * (3 * Stages + s); };
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prefetch_map(&pages);
    for (int s = 0; s < Stages; ++s) {
      barrier_init(keys_full(s), 1);
      barrier_init(values_full(s), 1);
      barrier_init(keys_empty(s), 8);
      barrier_init(values_empty(s), 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  wait_inputs();
  let_next_start();

  const int32_t kv_head = blockIdx.x % a.kv.kv_heads;
  const RowTile tile = find_tile(a.seqs, a.seq_count, least_rows, positions, blockIdx.x / a.kv.kv_heads);
  if (tile.seq < 0) return;
  const AttentionSeq seq = a.seqs[tile.seq];
  const int32_t count = min(positions, seq.rows - tile.first);
  const int32_t first = seq.pos_begin + tile.first, last = first + count - 1;
  const int32_t low = a.window ? max(0, first - a.window + 1) : 0, high = last + 1;  // keys that any row sees
  const int32_t begin = low / keys, end = last / keys;                               // tiles of keys, both included

  if (warp < 4) {
    fewer_registers<24>();
    if (warp == 0) {
      const int32_t rows_of_box = lane / P::panels * box, panel = lane % P::panels;
      const int32_t tokens = a.kv.page_tokens;
      const int32_t* table = a.page_table + seq.page_begin;
      const auto row_of = [&](int32_t j) {  // of the box in the pool seen as rows, or -1: nothing to copy
        const int32_t token = j * keys + rows_of_box;
        if (rows_of_box >= keys || token + box <= low || token >= high) return -1;
        return (table[token / tokens] * a.kv.kv_heads + kv_head) * 2 * tokens + token % tokens;
      };
      const uint32_t to = base + panel * P::panel + rows_of_box * 128;
      Ring ring;
      int32_t row = row_of(end);
      for (int32_t j = end; j >= begin; --j) {
        const int32_t now = row;
        if (j > begin) row = row_of(j - 1);
        const int bytes = __popc(__ballot_sync(all_lanes, now >= 0)) * box * 128;
        barrier_wait(keys_empty(ring.stage), ring.phase ^ 1);
        if (lane == 0) barrier_expect(keys_full(ring.stage), bytes);
        __syncwarp();
        if (now >= 0) copy_box(to + P::keys_at + ring.stage * P::tile_bytes, &pages, panel * 64, now, keys_full(ring.stage));
        barrier_wait(values_empty(ring.stage), ring.phase ^ 1);
        if (lane == 0) barrier_expect(values_full(ring.stage), bytes);
        __syncwarp();
        if (now >= 0) copy_box(to + P::values_at + ring.stage * P::tile_bytes, &pages, panel * 64, now + tokens, values_full(ring.stage));
        ring.next<Stages>();
      }
    }
  } else {
    more_registers<240>();
    const int half = warp / 4 - 1, thread = threadIdx.x % 128;
    const int32_t group = a.heads / a.kv.kv_heads;
    // Queries to shared memory, in the cache's type.
#pragma unroll 4
    for (int i = thread; i < 64 * (Dims / 8); i += 128) {
      const int row = half * 64 + i / (Dims / 8), piece = i % (Dims / 8);
      const int position = row / group, head = kv_head * group + row % group;
      uint4 v{};
      if (position < count) v = query_piece<T>(a.q + (seq.row_begin + tile.first + position) * a.q_stride + head * Dims + 8 * piece);
      const uint32_t at = base + piece / 8 * P::query_panel + row * 128 + (piece % 8 ^ row % 8) * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    }
    fence_async();
    group_sync(1 + half, 128);
    if (Turns && half == 1) group_arrive(3, 256);  // the first turn is the other's

    const int row0 = half * 64 + warp % 4 * 16 + lane / 4;
    int oldest[2], newest[2];
    for (int r = 0; r < 2; ++r) {
      newest[r] = first + min((row0 + 8 * r) / group, count - 1);
      oldest[r] = a.window ? newest[r] - a.window + 1 : INT_MIN;
    }
    const uint64_t q = swizzled(base + half * 64 * 128, 0);
    const uint64_t k = swizzled(base + P::keys_at, 0);
    const uint64_t v = swizzled(base + P::values_at, P::panel);
    float s[keys / 2], o[P::parts][P::columns / 2];
    uint32_t p[keys / 4];
    RowState rows[2];
    Ring key_ring, value_ring;
#pragma unroll
    for (int i = 0; i < P::parts; ++i)
#pragma unroll
      for (int e = 0; e < P::columns / 2; ++e) o[i][e] = 0;

    const auto scores = [&] {
      const uint64_t stage = k + key_ring.stage * (P::tile_bytes / 16);
#pragma unroll
      for (int d = 0; d < Dims / 16; ++d)
        Product<T, keys>::scores(s, q + (d / 4 * P::query_panel + d % 4 * 32) / 16, stage + (d / 4 * P::panel + d % 4 * 32) / 16, d != 0);
    };
    const auto values = [&] {
      const uint64_t stage = v + value_ring.stage * (P::tile_bytes / 16);
#pragma unroll
      for (int i = 0; i < keys / 16; ++i)
#pragma unroll
        for (int part = 0; part < P::parts; ++part)
          Product<T, P::columns>::values(o[part], p + 4 * i, stage + (part * (P::columns / 64) * P::panel + i * 16 * 128) / 16, 1);
    };
    const auto hold_output = [&] {
#pragma unroll
      for (int part = 0; part < P::parts; ++part) hold(o[part]);
    };
    const auto pack = [&] {
#pragma unroll
      for (int i = 0; i < keys / 4; ++i) p[i] = pair_of(T{}, s[2 * i], s[2 * i + 1]);
    };
    // Values of keys that no row sees may be anything, even NaN, of which a weight of zero does not make nothing: they
    // become zeros. So do infinite ones and NaN that some rows see and others do not, once they are added to those.
    const auto clear_values = [&](int32_t j) {
      const int32_t from = low - j * keys, to = high - j * keys;
      barrier_wait(values_full(value_ring.stage), value_ring.phase);
      unsigned char* const at = raw_shared + (base - shared_address(raw_shared)) + P::values_at + value_ring.stage * P::tile_bytes;
      bool found = false;
      for (int i = thread; i < P::panels * keys * 8; i += 128) {
        const int row = i / 8 % keys;
        uint4& piece = reinterpret_cast<uint4*>(at)[i];
        if (row < from || row >= to)
          piece = {};
        else
          found |= not_finite<T>(piece);
      }
      fence_async();
      if (!group_any(1 + half, 128, found)) return;
      group_sync(5, 256);  // both warpgroups have looked, and have found the same
      for (int k = max(from, 0); k < min(to, keys); ++k) {
#pragma unroll
        for (int part = 0; part < P::parts; ++part)
#pragma unroll
          for (int i = 0; i < P::columns / 2; ++i) {
            const int d = part * P::columns + i / 4 * 8 + i % 2, row = i / 2 % 2;
            const float v = static_cast<float>(*reinterpret_cast<const T*>(at + d / 64 * P::panel + k * 128 + (d % 64 / 8 ^ k % 8) * 16 + 4 * (lane % 4) + d % 2 * 2));
            if (!(fabsf(v) <= 3.4e38f) && j * keys + k >= oldest[row] && j * keys + k <= newest[row]) o[part][i] += v;
          }
      }
      group_sync(5, 256);
      for (int i = thread; i < P::tile_bytes / 2; i += 128) {
        T& v = reinterpret_cast<T*>(at)[i];
        if (!(fabsf(static_cast<float>(v)) <= 3.4e38f)) v = T(0.0f);
      }
      fence_async();
      group_sync(1 + half, 128);
    };
    const int key_lane = 2 * (lane % 4);

    // The newest tile.
    barrier_wait(keys_full(0), 0);
    if (Turns) group_sync(3 + half, 256);
    products_begin();
    scores();
    products_commit();
    if (Turns && (half == 0 || begin < end)) group_arrive(4 - half, 256);  // who waits, and nobody else
    products_wait<0>();
    hold(s);
    if (lane == 0) barrier_arrive(keys_empty(0));
    key_ring.next<Stages>();
    weigh<true>(s, rows, c, end * keys + key_lane, oldest, newest);
    pack();
    clear_values(end);

    const auto step = [&](int32_t j, auto masked) {
      constexpr bool Masked = decltype(masked)::value;
      barrier_wait(keys_full(key_ring.stage), key_ring.phase);
      if (Turns) group_sync(3 + half, 256);
      hold(s);
      hold_output();
      products_begin();
      scores();
      products_commit();
      barrier_wait(values_full(value_ring.stage), value_ring.phase);
      products_begin();
      values();
      products_commit();
      if (Turns && (half == 0 || begin < j)) group_arrive(4 - half, 256);
      products_wait<1>();
      hold(s);
      if (lane == 0) barrier_arrive(keys_empty(key_ring.stage));
      key_ring.next<Stages>();
      weigh<Masked>(s, rows, c, j * keys + key_lane, oldest, newest);
      // Never so; but the assembler may not put off the weights until the values are added.
      if (Early && rows[0].sum + rows[1].sum < 0) __nanosleep(1);
      products_wait<0>();
      hold_output();
      if (lane == 0) barrier_arrive(values_empty(value_ring.stage));
      value_ring.next<Stages>();
#pragma unroll
      for (int part = 0; part < P::parts; ++part)
#pragma unroll
        for (int i = 0; i < P::columns / 2; ++i) o[part][i] *= rows[i / 2 % 2].keep;
      pack();
      if constexpr (Masked) clear_values(j);
    };
    // Tiles below `seen` are seen whole as far as the newest keys go, those from `whole` on as far as the oldest do.
    const int32_t seen = (first + 1) / keys, whole = a.window ? max(0, last - a.window + keys) / keys : 0;
    for (int32_t j = end - 1; j >= begin; --j)
      if (j < seen && j >= whole)
        step(j, std::false_type{});
      else
        step(j, std::true_type{});

    barrier_wait(values_full(value_ring.stage), value_ring.phase);
    hold_output();
    products_begin();
    values();
    products_commit();
    products_wait<0>();
    hold_output();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows[r].sum;
      sum += __shfl_xor_sync(all_lanes, sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
      const int row = row0 + 8 * r, position = row / group, head = kv_head * group + row % group;
      if (position >= count) continue;
      const float scale = 1.0f / sum;
      const int64_t at = (seq.row_begin + tile.first + position) * a.out_stride + head * Dims + key_lane;
      const auto store = [&](auto* to) {
#pragma unroll
        for (int part = 0; part < P::parts; ++part)
#pragma unroll
          for (int i = 0; i < P::columns / 8; ++i)
            store_pair(to + part * P::columns + 8 * i, o[part][4 * i + 2 * r] * scale, o[part][4 * i + 2 * r + 1] * scale);
      };
      if (a.narrow_out)
        store(reinterpret_cast<__nv_bfloat16*>(a.out) + at);
      else
        store(a.out + at);
    }
  }
#endif
}

// The pool as a matrix: a row for each page, key head, key or value, and token.
bool map_pages(const AttentionArgs& a, int32_t box, CUtensorMap* map, PluginStatus* status) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const bool got = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) == cudaSuccess;
    return got && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(entry) : nullptr;
  }();
  const auto type = a.kv.type == KvType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(a.kv.head_dim), INT_MAX}, strides[] = {static_cast<cuuint64_t>(a.kv.head_dim) * 2};
  const cuuint32_t boxes[] = {64, static_cast<cuuint32_t>(box)}, steps[] = {1, 1};
  if (encode && encode(map, type, 2, const_cast<void*>(a.pages), sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
    return true;
  status->code = -12;
  std::snprintf(status->text, sizeof status->text, "attention: the driver makes no tensor map of the cache (head_dim %d, page_tokens %d)", a.kv.head_dim,
                a.kv.page_tokens);
  return false;
}

template <class T, int Dims, int Stages, bool Turns, bool Early>
void start(Context* c, const AttentionArgs& given, int32_t least_rows, PluginStatus* status) {
  using P = Plan<Dims, Stages>;
  static std::atomic<uint64_t> allowed{0};
  const auto kernel = attend_hopper<T, Dims, Stages, Turns, Early>;
  if (!allow_once(c, allowed, reinterpret_cast<const void*>(kernel), P::shared, status)) return;
  AttentionArgs a = given;
  a.max_context = 0;  // no kernel reads it, and it would make every step's list another
  int32_t box = P::keys;  // the largest that never crosses a page's end
  while (a.kv.page_tokens % box) box /= 2;
  CUtensorMap map;
  if (!map_pages(a, box, &map, status)) return;
  const int32_t positions = tile_positions(a, query_rows);
  launch(c, kernel, Shape{dim3(blocks(most_tiles(a, positions) * a.kv.kv_heads, 1)), dim3(threads), P::shared}, a, map, positions, box, least_rows,
         a.scale * 1.4426950408889634f);
}

template <class T>
void start(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  switch (a.kv.head_dim) {
    case 64: return start<T, 64, 2, true, true>(c, a, least_rows, status);
    case 80: return start<T, 80, 2, true, true>(c, a, least_rows, status);
    case 96: return start<T, 96, 2, true, true>(c, a, least_rows, status);
    case 128: return start<T, 128, 2, true, true>(c, a, least_rows, status);
    default: return start<T, 256, 2, true, true>(c, a, least_rows, status);
  }
}

}  // namespace

bool prefill_hopper_takes(const Context* c, const AttentionArgs& a) {
  const int32_t d = a.kv.head_dim;
  return c->capability == 90 && (a.kv.type == KvType::bf16 || a.kv.type == KvType::f16) && (d == 64 || d == 80 || d == 96 || d == 128 || d == 256) &&
         a.heads / a.kv.kv_heads <= query_rows && a.kv.page_tokens % 8 == 0;
}

void prefill_hopper(Context* c, const AttentionArgs& a, int32_t least_rows, PluginStatus* status) {
  if (a.kv.type == KvType::bf16)
    start<__nv_bfloat16>(c, a, least_rows, status);
  else
    start<__half>(c, a, least_rows, status);
}

}  // namespace orlop::cuda
