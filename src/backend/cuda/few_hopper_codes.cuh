// Products of up to 32 rows of activations with coded weights, at the speed of reading these: as few_hopper.cu, but weights
// become exact bf16 in registers, where a warpgroup product takes its left operand, too.
//
// What a thread finds side by side in a row of codes are four elements in a row, of which a product wants the first two and
// the last two eight columns apart: activations, which arrive in their own order, are turned to fit, in place. Of 4 bits
// 128 + code is multiplied, which takes one instruction to make; sums of the activations that meet a scale, which who turns
// them makes on the way, take the 128 off again, as they apply zero points and mins.
#pragma once
#include "backend/cuda/few_parts.cuh"

namespace orlop::cuda::few_coded {

constexpr int step_k = 128;                                   // elements of a stage
constexpr int groups = 4, consumers = 128 * groups;           // warpgroups that multiply
constexpr int threads = consumers + 128, turners = 2;         // a warp copies weights, one activations, so many turn these
constexpr int sums_barrier = 1, scales_barrier = 2;

// wide: tiles of 256 rows of weights, 64 of each warpgroup. Else of 128, and two warpgroups take every other step of k.
// columns: rows of activations, zeros beyond those that are there.
template <Codes codes, Scales scales, bool wide, int columns>
struct Layout {
  static constexpr bool tiled = scales != Scales::none, has_min = scales == Scales::with_min, summed = codes == Codes::u4;
  static_assert(scales != Scales::any && (tiled || !summed) && (!has_min || summed));
  static constexpr int rows = wide ? 2 * fixed_tile_w : fixed_tile_w, shared_k = wide ? 1 : 2;  // shared_k: warpgroups that share it
  // Of a step. Tiled: of each unit 16 rows as they lie in memory, one tile after another. Plain: rows of 128 bytes, turned
  // as activations are.
  static constexpr int units = tiled ? step_k / static_cast<int>(unit_of(codes)) : 1, scale_bytes = has_min ? 8 : 4;
  static constexpr int unit_bytes = static_cast<int>(tile_rows) * (tiled ? 64 + scale_bytes : step_k), all_unit_bytes = rows / static_cast<int>(tile_rows) * unit_bytes;
  static constexpr int w_bytes = units * all_unit_bytes, box_bytes = columns * 128, x_bytes = 2 * box_bytes;
  static constexpr int x_sums_bytes = summed ? columns * 8 : 0;  // as accumulators begin: [pairs of columns][2][2]
  static constexpr int of_sums = columns * fixed_pitch, sums_bytes = 2 * of_sums * 4;
  // A stage is always the same turner's, and the same warpgroups': who waits for a phase of its barriers has waited for the
  // one before, else that could pass for it.
  static constexpr int stages = (225 * 1024 - 4 * few_hopper_rows - sums_bytes) / (w_bytes + x_bytes + x_sums_bytes + 32) / turners * turners;
  static constexpr int w_at = stages * x_bytes, x_sums_at = w_at + stages * w_bytes, sums_at = x_sums_at + stages * x_sums_bytes, barriers_at = sums_at + sums_bytes;
  static constexpr int scales_at = barriers_at + 32 * stages;  // of rows
  static constexpr size_t bytes = 1024 + scales_at + 4 * few_hopper_rows;
  static_assert(stages > few_ahead(w_bytes) && stages % shared_k == 0 && w_at % 1024 == 0 && sums_at % 16 == 0 && w_bytes % 128 == 0);
};

// A place in the ring, and how often it came round.
template <int stages>
struct Turn {
  int stage, parity = 0;
  __device__ void go(int by) {
    stage += by;
    if (stage >= stages) {
      stage -= stages;
      parity ^= 1;
    }
  }
};

// Activations of one stage, by a warp; their sums by tensor cores.
template <class L, int columns>
__device__ inline void turn(unsigned char* x, float* x_sums, float taken_off, int lane) {
  // Four lanes have a row's half of 64 elements, 16 each: neighbouring rows' meet all banks. Eight rows at a time, twice.
  const int row = lane / 4, q = lane % 4, first = ((2 * q) ^ row) * 16, second = ((2 * q + 1) ^ row) * 16;
#pragma unroll 1
  for (int begin = 0; begin < columns / 8; begin += 2) {
    uint4 v[2][2][2];
    const auto all = [&](auto&& f) {
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int box = 0; box < 2; ++box) f(c, box, x + box * L::box_bytes + (8 * (begin + c) + row) * 128);
    };
    all([&](int c, int box, const unsigned char* from) {
      v[c][box][0] = *reinterpret_cast<const uint4*>(from + first);
      v[c][box][1] = *reinterpret_cast<const uint4*>(from + second);
    });
    all([&](int c, int box, unsigned char* to) {
      const uint4 &low = v[c][box][0], &high = v[c][box][1];
      *reinterpret_cast<uint4*>(to + first) = make_uint4(low.x, low.z, high.x, high.z);
      *reinterpret_cast<uint4*>(to + second) = make_uint4(low.y, low.w, high.y, high.w);
    });
    if constexpr (L::summed) {
      const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
      float sum[2][2][4] = {};
#pragma unroll
      for (int e = 0; e < 4; ++e)  // products that wait for each other are far apart
        all([&](int c, int box, const unsigned char*) { mma(sum[c][box], ones, word_of(v[c][box][e / 2], e % 2 * 2), word_of(v[c][box][e / 2], e % 2 * 2 + 1)); });
      if (row == 0)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float even = taken_off * (sum[c][0][0] + sum[c][1][0]), odd = taken_off * (sum[c][0][1] + sum[c][1][1]);
          *reinterpret_cast<float4*>(x_sums + (4 * (begin + c) + q) * 4) = make_float4(even, odd, even, odd);
        }
    }
  }
  fence_async();
}

template <Codes codes, Scales scales, bool wide, int columns>
__global__ void __launch_bounds__(threads, 1)
    products(const __grid_constant__ FewArgs p, const __grid_constant__ CUtensorMap low, const __grid_constant__ CUtensorMap high, const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = Layout<codes, scales, wide, columns>;
  constexpr int N = columns / 2, stages = L::stages, steps16 = step_k / 16;
  const StreamArgs& a = p.a;
  unsigned char* const raw_shared = dynamic_shared();
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024, full = base + L::barriers_at, turned = full + 8 * stages, empty = turned + 8 * stages, arrived = empty + 8 * stages;
  unsigned char* const shared = raw_shared + (base - shared_address(raw_shared));
  float* const row_scales = reinterpret_cast<float*>(shared + L::scales_at);
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int rows_of_tile = gated ? L::rows / 2 : L::rows, share = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int begin = share_begin(p.shares, share), count = share_begin(p.shares, share + 1) - begin;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(turned + 8 * s, 1);
      barrier_init(arrived + 8 * s, 1);
      barrier_init(empty + 8 * s, consumers / 32 / L::shared_k);
    }
    barriers_there();
  }
  __syncthreads();
  let_next_start();

  const int helper = __shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / 32, 0) - consumers / 32;
  if (helper >= 0) fewer_registers<64>();
  if (helper == turners) {  // weights
    if (lane == 0) {
      const uint64_t once = read_once();
      int tile = begin / p.shares.steps, step = begin - tile * p.shares.steps;
      Turn<stages> at{0}, before{0};
      for (int i = 0; i < count; ++i) {
        if (i >= stages) barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
        if (i >= p.shares.ahead) {
          barrier_wait(full + 8 * before.stage, before.parity);
          before.go(1);
        }
        const uint32_t to = base + L::w_at + at.stage * L::w_bytes, barrier = full + 8 * at.stage;
        barrier_expect(barrier, L::w_bytes);
        const int n0 = tile * rows_of_tile, second = gated ? n0 + static_cast<int>(a.up_row) : n0 + L::rows / 2;
        const CUtensorMap* const of_second = gated ? &high : &low;
        if constexpr (L::tiled) {  // as words of eight bytes, a tile a row
#pragma unroll
          for (int u = 0; u < L::units; ++u) {
            const int k = (step * L::units + u) * (L::unit_bytes / 8);
            copy_rows_once(to + u * L::all_unit_bytes, &low, k, n0 / static_cast<int>(tile_rows), barrier, once);
            copy_rows_once(to + u * L::all_unit_bytes + L::all_unit_bytes / 2, of_second, k, second / static_cast<int>(tile_rows), barrier, once);
          }
        } else {
          copy_rows_once(to, &low, step * step_k, n0, barrier, once);
          copy_rows_once(to + L::w_bytes / 2, of_second, step * step_k, second, barrier, once);
        }
        at.go(1);
        if (++step == p.shares.steps) step = 0, ++tile;
      }
    }
    return;
  }
  if (helper == turners + 1) {  // activations
    int step = begin % p.shares.steps;
    Turn<stages> at{0};
    const auto activations = [&] {
      const uint32_t to = base + at.stage * L::x_bytes, barrier = arrived + 8 * at.stage;
      barrier_expect(barrier, L::x_bytes);
      copy_rows(to, &x, step * step_k, 0, barrier);
      copy_rows(to + L::box_bytes, &x, step * step_k + step_k / 2, 0, barrier);
      at.go(1);
      if (++step == p.shares.steps) step = 0;
    };
    if (lane == 0) prefetch_map(&x);
    wait_inputs();
    const int early = min(count, stages);
    for (int i = 0; i < early && lane == 0; ++i) activations();
    __syncwarp();
    few_scales(p, row_scales, lane);
    group_arrive(scales_barrier, consumers + 32);
    for (int i = early; i < count && lane == 0; ++i) {
      barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
      activations();
    }
    return;
  }
  if (helper >= 0) {
    const float taken_off = -static_cast<float>(128 + a.l.zero);
    Turn<stages> at{helper};
    for (int i = helper; i < count; i += turners) {
      barrier_wait(arrived + 8 * at.stage, at.parity);
      turn<L, columns>(shared + at.stage * L::x_bytes, reinterpret_cast<float*>(shared + L::x_sums_at + at.stage * L::x_sums_bytes), taken_off, lane);
      __syncwarp();
      if (lane == 0) barrier_arrive(turned + 8 * at.stage);
      at.go(turners);
    }
    return;
  }

  more_registers<104>();
  const int thread = static_cast<int>(threadIdx.x), group = __shfl_sync(all_lanes, thread / 128, 0), g = lane / 4, j = lane % 4;
  const int part = wide ? 0 : group / 2, of_rows = wide ? group : group % 2;  // which of k, which 64 rows of a stage
  const int tile = of_rows * 4 + thread % 128 / 32;
  const uint32_t codes_at = kept(base + static_cast<uint32_t>(L::w_at + tile * L::unit_bytes + (L::tiled ? g * 64 + 16 * j : g * step_k + 4 * j)));
  const uint32_t scale_from_codes = kept(static_cast<uint32_t>(64 * tile_rows + g * L::scale_bytes - (g * 64 + 16 * j)));
  const uint32_t starts_at = kept(base + static_cast<uint32_t>(L::x_sums_at + 16 * j)), barriers = kept(full);
  const bool leads = kept(static_cast<uint32_t>(lane == 0)) != 0;
  // Where sums go: gated, each fixed_tile_w has 64 rows of gate, then 64 of up.
  const int sums_block = !wide ? part : gated ? group % 2 : group / 2, sums_row = (!wide ? of_rows : gated ? group / 2 : group % 2) * 64 + thread % 128 / 32 * 16 + g;
  float* const sums = reinterpret_cast<float*>(shared + L::sums_at);
  float* const mine = sums + sums_block * L::of_sums + 2 * j * fixed_pitch + sums_row;
  const uint64_t rows = swizzled(base, 0, 1024);
  const uint32_t rows_at = kept(static_cast<uint32_t>(rows));
  const auto of_x = [&](uint32_t at) { return (rows & 0xffffffff00000000u) | at; };
  [[maybe_unused]] const float by_sum = -1.0f / static_cast<float>(128 + a.l.zero);
  Turn<stages> at{part};
  int i = part;
  wait_inputs();
  int from = 0;
  for (int tile_w = begin / p.shares.steps; from < count; ++tile_w) {
    const int tile_begin = tile_w * p.shares.steps - begin, tile_end = tile_begin + p.shares.steps, until = min(count, tile_end);
    float total[N];
#pragma unroll
    for (float& v : total) v = 0;
    int left = i < until ? (until - i + L::shared_k - 1) / L::shared_k : 0;
    i += left * L::shared_k;
    for (; left > 0; --left) {
      const uint32_t codes_here = codes_at + static_cast<uint32_t>(at.stage * L::w_bytes), barrier = barriers + static_cast<uint32_t>(8 * at.stage);
      barrier_wait(barrier, at.parity);
      const auto x_at = [&](int s) {  // step s of 16
        return of_x(rows_at + static_cast<uint32_t>(at.stage * (L::x_bytes >> 4)) + static_cast<uint32_t>(s / 4 * (L::box_bytes >> 4) + s % 4 * 2));
      };
      const auto scales_at = [&](uint32_t codes_from, int h) { return codes_from + scale_from_codes + static_cast<uint32_t>(8 * h * L::scale_bytes); };
      if constexpr (L::summed) {
        uint32_t w[steps16][4];
        float by[2], min_by[2] = {};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint4 v = shared_16(codes_here + 8 * h * 64);
          if constexpr (L::has_min) {
            const uint2 both = shared_8(scales_at(codes_here, h));
            by[h] = __uint_as_float(both.x), min_by[h] = __uint_as_float(both.y) * by_sum;
          } else {
            by[h] = __uint_as_float(shared_4(scales_at(codes_here, h)));
          }
#pragma unroll
          for (int s = 0; s < steps16; ++s) {
            const uint32_t word = word_of(v, s / 2);
            w[s][h] = masked(s % 2 ? word >> 8 : word, 0x000f000fu, 0x43004300u);
            w[s][h + 2] = masked(word >> (s % 2 * 8 + 4), 0x000f000fu, 0x43004300u);
          }
        }
        barrier_wait(barrier + (turned - full), at.parity);
        const uint32_t start = starts_at + static_cast<uint32_t>(at.stage * L::x_sums_bytes);
        float raw[N];
        float2 x_sum[N / 4];
#pragma unroll
        for (int c = 0; c < N / 4; ++c) {
          const uint4 v = shared_16(start + 64 * c);
          raw[4 * c] = __uint_as_float(v.x), raw[4 * c + 1] = __uint_as_float(v.y), raw[4 * c + 2] = __uint_as_float(v.z), raw[4 * c + 3] = __uint_as_float(v.w);
          if (L::has_min) x_sum[c] = {raw[4 * c], raw[4 * c + 1]};
        }
        products_begin();
#pragma unroll
        for (int s = 0; s < steps16; ++s) Product<__nv_bfloat16, columns>::along(raw, w[s], x_at(s), 1);
        products_commit();
        if (L::has_min)  // meanwhile
#pragma unroll
          for (int e = 0; e < N; ++e) total[e] = fmaf(min_by[e / 2 % 2], e % 2 ? x_sum[e / 4].y : x_sum[e / 4].x, total[e]);
        products_wait<0>();
        hold(raw);
        if (leads) barrier_arrive(barrier + (empty - full));
#pragma unroll
        for (int e = 0; e < N; ++e) total[e] = fmaf(by[e / 2 % 2], raw[e], total[e]);
      } else if constexpr (L::tiled) {
        constexpr int steps = steps16 / L::units;
        barrier_wait(barrier + (turned - full), at.parity);
#pragma unroll
        for (int u = 0; u < L::units; ++u) {
          uint32_t w[steps][4];
          float by[2], raw[N];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const uint32_t from = codes_here + static_cast<uint32_t>(u * L::all_unit_bytes);
            const uint4 v = shared_16(from + 8 * h * 64);
            by[h] = __uint_as_float(shared_4(scales_at(from, h)));
#pragma unroll
            for (int s = 0; s < steps; ++s) widen<codes>(v, s, 0, w[s][h], w[s][h + 2]);
          }
#pragma unroll
          for (int e = 0; e < N; ++e) raw[e] = 0;
          products_begin();
#pragma unroll
          for (int s = 0; s < steps; ++s) Product<__nv_bfloat16, columns>::along(raw, w[s], x_at(u * steps + s), 1);
          products_commit();
          products_wait<0>();
          hold(raw);
          if (u + 1 == L::units && leads) barrier_arrive(barrier + (empty - full));
#pragma unroll
          for (int e = 0; e < N; ++e) total[e] = fmaf(by[e / 2 % 2], raw[e], total[e]);
        }
      } else {
        uint32_t w[steps16][4];
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int s = 0; s < steps16; ++s) {
            const uint4 v = {shared_4(codes_here + static_cast<uint32_t>(8 * h * step_k + (s ^ g) * 16)), 0, 0, 0};
            widen<codes>(v, 0, 0, w[s][h], w[s][h + 2]);
          }
        barrier_wait(barrier + (turned - full), at.parity);
        products_begin();
#pragma unroll
        for (int s = 0; s < steps16; ++s) Product<__nv_bfloat16, columns>::along(total, w[s], x_at(s), 1);
        products_commit();
        products_wait<0>();
        hold(total);
        if (leads) barrier_arrive(barrier + (empty - full));
      }
      at.go(L::shared_k);
    }
    const auto place = [&](int e) { return mine + (8 * (e / 4) + e % 2) * fixed_pitch + 8 * (e / 2 % 2); };
    if (wide || part == 1)
#pragma unroll
      for (int e = 0; e < N; ++e) *place(e) = total[e];
    if (from == 0)
      group_sync(scales_barrier, consumers + 32);
    else
      group_sync(sums_barrier, consumers);
    if constexpr (!wide) {
      if (part == 0)
#pragma unroll
        for (int e = 0; e < N; ++e) *place(e) = total[e] + place(e)[L::of_sums];
      group_sync(sums_barrier, consumers);
    }
    FewParts<consumers, L::rows, columns>::template out<L::tiled>(p, share, tile_w, from == tile_begin, until == tile_end, begin + tile_end, sums, row_scales, thread, sums_barrier);
    group_sync(sums_barrier, consumers);  // the sums are the next tile's
    from = until;
  }
#endif
}

}  // namespace orlop::cuda::few_coded
