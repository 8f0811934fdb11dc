// The store of rows into pages; sealing of key tiles, and tails, of caches of codes. Every sum is made as the CPU's
// reference makes it (cpu/kv_store_ref.cc, cpu/kv_code.h), so that the same keys and values are the same codes.
#include "backend/cuda/kv_store.cuh"

#include "backend/cuda/entries.h"

namespace orlop::cuda {
namespace {

constexpr int warps = 4;  // of a block

__device__ KvLayout layout_of(const StoreArgs& a) { return KvLayout(KvDesc{a.type, a.kv_heads, a.head_dim, a.page_tokens}); }

struct Range {
  float low = INFINITY, high = -INFINITY;
  bool poison = false;  // an element is not finite
  __device__ void add(float x) {
    low = x < low ? x : low;
    high = x > high ? x : high;
    poison |= !(x - x == 0);
  }
};
struct Grid {
  uint16_t scale, centre;
};
// bf16 that is not below
__device__ uint16_t scale_bits(float scale, bool poison) {
  if (poison) return 0x7fc0;
  if (!(scale >= 0x1p-60f)) return 0;
  return static_cast<uint16_t>((__float_as_uint(scale) + 0xffffu) >> 16);
}
__device__ float inverse_of(uint16_t scale) { return scale ? __fdiv_rn(1.0f, bf16_float(scale)) : 0.0f; }
__device__ int32_t code_of(float x, float low, float high) {
  x = x > low ? x : low;
  x = x < high ? x : high;
  return static_cast<int32_t>(__float_as_uint(__fadd_rn(x, 0x1.8p23f)) - 0x4b400000u);
}
__device__ Grid grid_of(const Range& r, float below, float above, bool f16) {
  const float steps = 1.0f / (below + above), nan = __uint_as_float(0x7fc00000);
  float centre = __fadd_rn(r.low, __fmul_rn(below, __fsub_rn(__fmul_rn(r.high, steps), __fmul_rn(r.low, steps))));
  if (r.poison) centre = nan;
  Grid g;
  g.centre = f16 ? float_f16(centre) : float_bf16(centre);
  const float c = f16 ? __half2float(__ushort_as_half(g.centre)) : bf16_float(g.centre);
  const float down = __fmul_rn(__fsub_rn(c, r.low), 1.0f / below), up = __fmul_rn(__fsub_rn(r.high, c), 1.0f / above);
  g.scale = scale_bits(down > up ? down : up, r.poison);
  return g;
}
__device__ int32_t uint4_code(float x, float centre, float inverse) {
  return code_of(__fadd_rn(__fmul_rn(__fsub_rn(x, centre), inverse), 8.0f), 0.0f, 15.0f);
}

// ---- codes

// Codes of a dimension's keys of a sealing tile, which begins at token `first` of its page.
template <bool int8, int T>
__device__ void seal_dim(const KvLayout& l, unsigned char* head, int32_t first, int32_t d, const float (&x)[T], const Grid& g) {
  const float centre = __half2float(__ushort_as_half(g.centre)), inverse = inverse_of(g.scale);
  unsigned char* codes = head + l.key_codes_of(first);
#pragma unroll
  for (int t = 0; t < T; ++t) {
    if (int8) {
      codes[t / 16 * l.codes + key_code(true, l.lane_words, t % 16, d).byte] =
          static_cast<unsigned char>(code_of(__fmul_rn(__fsub_rn(x[t], centre), inverse), -127.0f, 127.0f) + 128);
    } else if (t < 8) {  // a byte holds tokens t and t + 8
      codes[key_code(false, l.lane_words, t, d).byte] =
          static_cast<unsigned char>(uint4_code(x[t], centre, inverse) | uint4_code(x[(t + 8) % T], centre, inverse) << 4);
    }
  }
}

// Keys of the tile that ends with position `end` - 1: those from `own` on stand at k (stride apart), those
// before in the tail. A warp.
template <bool int8, int T>
__device__ void seal(const KvLayout& l, unsigned char* head, int32_t first_token, int32_t own, const float* k, int64_t k_stride,
                     const unsigned char* tail, int32_t lane) {
  const uint16_t* kept = reinterpret_cast<const uint16_t*>(tail);
  uint16_t* grids = reinterpret_cast<uint16_t*>(head + l.key_grids_of(first_token));
  uint32_t largest = 0;  // scale's bits: none is negative
  for (int32_t d = lane; d < 16 * l.tiles; d += 32) {
    float x[T];
    Range r;
#pragma unroll
    for (int t = 0; t < T; ++t) {
      x[t] = d >= l.head_dim ? 0.0f : bf16_float(t < own ? kept[t * l.head_dim + d] : float_bf16(k[(t - own) * k_stride + d]));
      r.add(x[t]);
    }
    const Grid g = int8 ? grid_of(r, 127, 127, true) : grid_of(r, 8, 7, true);
    seal_dim<int8, T>(l, head, first_token, d, x, g);
    grids[grid_at(d)] = g.centre;
    grids[grid_at(d) + grid_share] = g.scale;  // for now
    largest = max(largest, uint32_t{g.scale});
  }
  largest = __reduce_max_sync(all_lanes, largest);
  if (largest >= 0x7f80u) largest = 0x7f00u;  // NaN: its share is
  const uint32_t exponent = min(max(largest >> 7, 1u), 253u);
  const float back = __uint_as_float((254 - exponent) << 23);
  if (lane == 0) *reinterpret_cast<float*>(head + l.key_unit_of(first_token)) = __uint_as_float(exponent << 23);
  for (int32_t d = lane; d < 16 * l.tiles; d += 32) {
    uint16_t& g = grids[grid_at(d) + grid_share];
    g = __half_as_ushort(__float2half_rn(__fmul_rn(bf16_float(g), back)));
  }
}
__device__ void seal(const KvLayout& l, KvType type, unsigned char* head, int32_t first_token, int32_t own, const float* k,
                     int64_t k_stride, const unsigned char* tail, int32_t lane) {
  if (type == KvType::uint4)
    seal<false, 16>(l, head, first_token, own, k, k_stride, tail, lane);
  else if (l.key_tile == 16)
    seal<true, 16>(l, head, first_token, own, k, k_stride, tail, lane);
  else
    seal<true, 32>(l, head, first_token, own, k, k_stride, tail, lane);
}

// A token's values, turned and coded. A warp holds dimensions lane + 32 j.
__device__ void store_coded(const KvLayout& l, KvType type, unsigned char* head, int32_t token, const float* v, int32_t lane) {
  constexpr int most = 8;  // head_dim is at most 256
  const int32_t dims = l.head_dim, block = dims & -dims;
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(block)));
  float x[most];
#pragma unroll
  for (int j = 0; j < most; ++j) x[j] = 32 * j + lane < dims ? __fmul_rn(v[32 * j + lane], scale) : 0.0f;
#pragma unroll
  for (int h = 1; h < 32; h *= 2)
    if (h < block)
#pragma unroll
      for (int j = 0; j < most; ++j) {
        const float other = __shfl_xor_sync(all_lanes, x[j], h);
        x[j] = lane & h ? __fsub_rn(other, x[j]) : __fadd_rn(x[j], other);
      }
#pragma unroll
  for (int h = 1; h < most; h *= 2)
    if (32 * h < block)
#pragma unroll
      for (int j = 0; j < most; ++j)
        if (!(j & h)) {
          const float p = x[j], q = x[j + h];
          x[j] = __fadd_rn(p, q);
          x[j + h] = __fsub_rn(p, q);
        }
  Range r;
#pragma unroll
  for (int j = 0; j < most; ++j)
    if (32 * j + lane < dims) r.add(x[j]);
#pragma unroll
  for (int step = 16; step; step /= 2) {
    r.low = fminf(r.low, __shfl_xor_sync(all_lanes, r.low, step));
    r.high = fmaxf(r.high, __shfl_xor_sync(all_lanes, r.high, step));
  }
  r.poison = __any_sync(all_lanes, r.poison);
  unsigned char* codes = head + l.value_codes_of(token);
  uint16_t* grids = reinterpret_cast<uint16_t*>(head + l.value_grid_of(token));
  if (type == KvType::int8) {
    const float largest = -r.low > r.high ? -r.low : r.high;
    const uint16_t bits = scale_bits(__fmul_rn(largest, 1.0f / 127), r.poison);
    const float inverse = inverse_of(bits);
    if (lane == 0) grids[0] = bits;
#pragma unroll
    for (int j = 0; j < most; ++j) {
      const int32_t d = 32 * j + lane;
      if (d < 16 * l.tiles)
        codes[value_code(true, l.lane_words, token % 16, d).byte] =
            static_cast<unsigned char>(128 + (d < dims ? code_of(__fmul_rn(x[j], inverse), -127.0f, 127.0f) : 0));
    }
  } else {
    const Grid g = grid_of(r, 8, 7, false);
    const float centre = bf16_float(g.centre), inverse = inverse_of(g.scale);
    if (lane == 0) grids[0] = g.scale, grids[l.block_tokens] = g.centre;
#pragma unroll
    for (int j = 0; j < most; ++j) {  // a byte holds dimensions d and d + 8
      const int32_t d = 32 * j + lane, code = d < dims ? uint4_code(x[j], centre, inverse) : 0;
      const int32_t upper = __shfl_down_sync(all_lanes, code, 8);
      if (d % 16 < 8 && d < 16 * l.tiles)
        codes[value_code(false, l.lane_words, token % 16, d).byte] = static_cast<unsigned char>(code | upper << 4);
    }
  }
}

// A sequence's tail of a head; a token's key goes there as bf16.
__device__ unsigned char* tail_of(const StoreArgs& a, const KvLayout& l, int32_t seat, int32_t kv_head) {
  return a.tails + int64_t{seat} * l.tail_bytes + kv_head * l.tail_head;
}
__device__ void keep_key(const KvLayout& l, unsigned char* tail, int32_t token, const float* k, int32_t lane) {
  uint16_t* to = reinterpret_cast<uint16_t*>(tail) + token * l.head_dim;
  for (int32_t d = lane; d < l.head_dim; d += 32) to[d] = float_bf16(k[d]);
}

// ---- the kernels

__device__ void put(KvType type, void* to, int64_t at, float v) {
  if (type == KvType::f32)
    static_cast<float*>(to)[at] = v;
  else
    static_cast<uint16_t*>(to)[at] = type == KvType::bf16 ? float_bf16(v) : float_f16(v);
}

// One warp for each head of a row: queries, then keys, then values.
template <bool coded>
__global__ void __launch_bounds__(32 * warps) store_rows(const __grid_constant__ StoreArgs a) {
  let_next_start();
  const int32_t lane = threadIdx.x % 32, dims = a.head_dim;
  const int32_t head = blockIdx.y * warps + threadIdx.x / 32;
  const int64_t row = blockIdx.x;
  if (head >= a.heads + 2 * a.kv_heads) return;
  float* x = a.qkv + row * a.qkv_stride + int64_t{head} * dims;
  const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
  const KvLayout l = layout_of(a);
  const int32_t slot = is_q ? 0 : a.slots[row];
  const float* weight = is_v ? nullptr : is_q ? a.q_norm : a.k_norm;
  wait_inputs();
  if (!is_v) {
    norm_and_turn(x, dims, weight, a.eps, a.cos + row * a.half, a.sin + row * a.half, a.half, lane);
    if (is_q) return;
    __syncwarp();
  }
  const int32_t kv_head = head - a.heads - (is_v ? a.kv_heads : 0), token = slot % a.page_tokens;
  unsigned char* to = a.pages + l.head_at(slot / a.page_tokens, kv_head);
  if constexpr (!coded) {
    if (is_v) to += l.values_at;
    for (int32_t i = lane; i < dims; i += 32) put(a.type, to, int64_t{token} * dims + i, x[i]);
  } else {
    if (is_v) return store_coded(l, a.type, to, token, x, lane);
    if (!a.one_each) return;  // seal_tiles() and keep_tails()
    // A step of one row a sequence: attention reads the tail's earlier tokens only, so its own may go there now.
    const AttentionSeq seq = a.seqs[row];
    unsigned char* tail = tail_of(a, l, seq.seat, kv_head);
    const int32_t in_tile = seq.pos_begin % l.key_tile;
    if (in_tile + 1 == l.key_tile)
      seal(l, a.type, to, token - in_tile, in_tile, x, a.qkv_stride, tail, lane);
    else
      keep_key(l, tail, in_tile, x, lane);
  }
}

// The sequence and tile that is the number-th of those that this call completes. A warp; false: there are not
// as many.
__device__ bool find_sealed(const StoreArgs& a, int32_t key_tile, int32_t number, AttentionSeq& seq, int32_t& first) {
  const int32_t lane = threadIdx.x % 32;
  int32_t before = 0;
  for (int32_t base = 0; base < a.seq_count; base += 32) {
    AttentionSeq s{};
    if (base + lane < a.seq_count) s = a.seqs[base + lane];
    const int32_t own = (s.pos_begin + s.rows) / key_tile - s.pos_begin / key_tile;
    int32_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const int32_t left = __shfl_up_sync(all_lanes, sum, step);
      if (lane >= step) sum += left;
    }
    const int32_t from = before + sum - own;
    const unsigned here = __ballot_sync(all_lanes, number >= from && number < from + own);
    if (here) {
      const int source = __ffs(static_cast<int>(here)) - 1;
      seq = a.seqs[base + source];
      first = (seq.pos_begin / key_tile + number - __shfl_sync(all_lanes, from, source)) * key_tile;
      return true;
    }
    before += __shfl_sync(all_lanes, sum, 31);
  }
  return false;
}

// A warp for each head of each tile that is complete now.
__global__ void __launch_bounds__(32 * warps) seal_tiles(const __grid_constant__ StoreArgs a) {
  let_next_start();
  const int32_t lane = threadIdx.x % 32, kv_head = blockIdx.y * warps + threadIdx.x / 32;
  if (kv_head >= a.kv_heads) return;
  const KvLayout l = layout_of(a);
  AttentionSeq seq;
  int32_t first;
  const bool found = find_sealed(a, l.key_tile, blockIdx.x, seq, first);
  wait_inputs();  // blocks without a tile too: were there none with one, the kernel would end before the one before it
  if (!found) return;
  const int32_t own = max(0, seq.pos_begin - first);  // tokens of the tile that came before this call
  const int64_t row = int64_t{seq.row_begin} + first + own - seq.pos_begin;
  const int32_t slot = a.slots[row] - own;
  seal(l, a.type, a.pages + l.head_at(slot / a.page_tokens, kv_head), slot % a.page_tokens, own,
       a.qkv + row * a.qkv_stride + int64_t{a.heads + kv_head} * a.head_dim, a.qkv_stride, tail_of(a, l, seq.seat, kv_head), lane);
}

// A warp for each key head of each sequence: keys (at qkv, of no query heads) of the tile with its last position.
__global__ void __launch_bounds__(32 * warps) keep_tails(const __grid_constant__ StoreArgs a) {
  let_next_start();
  const int32_t lane = threadIdx.x % 32, kv_head = blockIdx.y * warps + threadIdx.x / 32;
  if (kv_head >= a.kv_heads) return;
  const KvLayout l = layout_of(a);
  const AttentionSeq seq = a.seqs[blockIdx.x];
  wait_inputs();
  if (seq.rows == 0) return;
  const int32_t end = seq.pos_begin + seq.rows, first = (end - 1) / l.key_tile * l.key_tile;
  for (int32_t t = max(first, seq.pos_begin); t < end; ++t)
    keep_key(l, tail_of(a, l, seq.seat, kv_head), t - first,
             a.qkv + (int64_t{seq.row_begin} + t - seq.pos_begin) * a.qkv_stride + int64_t{kv_head} * a.head_dim, lane);
}

}  // namespace

void put_store(Context* c, const StoreArgs& s) {
  launch(c, is_coded(s.type) ? store_rows<true> : store_rows<false>,
         Shape{dim3(blocks(s.rows, 1), blocks(s.heads + 2 * s.kv_heads, warps)), dim3(32 * warps)}, s);
}

bool take_store(Context* c, const AttentionArgs& a, StoreArgs* to) {
  const std::lock_guard lock(c->mutex);
  const void* last = c->launches.last(reinterpret_cast<const void*>(store_rows<false>));
  if (!last) return false;
  StoreArgs s;
  std::memcpy(&s, last, sizeof s);
  if (!s.one_each || s.rows != a.rows || s.seq_count != a.seq_count || s.seqs != a.seqs || s.qkv != a.q || s.qkv_stride != a.q_stride ||
      s.pages != a.pages || s.type != a.kv.type || s.heads != a.heads || s.kv_heads != a.kv.kv_heads || s.head_dim != a.kv.head_dim ||
      s.page_tokens != a.kv.page_tokens)
    return false;
  c->launches.drop_last();
  *to = s;
  return true;
}

// A call has as many rows as sequences only if each has one: none comes without.
void kv_store(Context* c, const KvStoreArgs& a, PluginStatus*) {
  StoreArgs s{};
  s.qkv = a.qkv;
  s.slots = a.slots;
  s.cos = a.cos;
  s.sin = a.sin;
  s.q_norm = a.q_norm;
  s.k_norm = a.k_norm;
  s.pages = static_cast<unsigned char*>(a.pages);
  s.tails = static_cast<unsigned char*>(const_cast<void*>(a.tails));
  s.seqs = a.seqs;
  s.qkv_stride = a.qkv_stride;
  s.heads = a.heads;
  s.kv_heads = a.kv.kv_heads;
  s.head_dim = a.kv.head_dim;
  s.page_tokens = a.kv.page_tokens;
  s.half = a.half;
  s.rows = static_cast<int32_t>(a.rows);
  s.seq_count = a.seq_count;
  s.type = a.kv.type;
  s.eps = a.eps;
  s.one_each = a.rows == a.seq_count;
  put_store(c, s);
  if (!is_coded(a.kv.type) || s.one_each) return;
  const int64_t tiles = a.rows / KvLayout(a.kv).key_tile + a.seq_count;
  launch(c, seal_tiles, Shape{dim3(blocks(tiles, 1), blocks(a.kv.kv_heads, warps)), dim3(32 * warps)}, s);
}

void kv_tail(Context* c, const KvTailArgs& a, PluginStatus*) {
  if (a.rows == a.seq_count) return;  // kv_store did it
  StoreArgs s{};
  s.qkv = const_cast<float*>(a.k);
  s.tails = static_cast<unsigned char*>(a.tails);
  s.seqs = a.seqs;
  s.qkv_stride = a.k_stride;
  s.kv_heads = a.kv.kv_heads;
  s.head_dim = a.kv.head_dim;
  s.page_tokens = a.kv.page_tokens;
  s.rows = static_cast<int32_t>(a.rows);
  s.seq_count = a.seq_count;
  s.type = a.kv.type;
  launch(c, keep_tails, Shape{dim3(blocks(a.seq_count, 1), blocks(a.kv.kv_heads, warps)), dim3(32 * warps)}, s);
}

}  // namespace orlop::cuda
