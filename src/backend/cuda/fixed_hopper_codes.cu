// fixed() for tiled 4-bit weights with one scale a unit, on Hopper: as fixed_hopper.cu, but the third warpgroup makes bf16
// of codes (exactly) on their way into the ring: natural rows, as activations lie there.
#include "backend/cuda/fixed_hopper.cuh"

namespace orlop::cuda {
namespace {

constexpr int threads = consumers + 128;
constexpr int unit = 128, unit_stages = unit / step_k;
constexpr int scale_slots = 4;

// single: no piece is longer than a unit.
template <int tile_x>
struct Layout {
  static constexpr int stages = 4, raw_slots = tile_x == 128 ? 3 : 6;
  static constexpr int w_bytes = fixed_tile_w * step_k * 2, x_bytes = tile_x * step_k * 2, stage_bytes = w_bytes + x_bytes;
  static constexpr int sums_bytes = tile_x * fixed_pitch * 4;
  static constexpr int codes_bytes = fixed_tile_w * 64, raw_bytes = codes_bytes + fixed_tile_w * 4;
  static constexpr int raw_at = stages * stage_bytes + sums_bytes, scales_at = raw_at + raw_slots * raw_bytes, barriers_at = scales_at + scale_slots * fixed_tile_w * 4;
  static constexpr size_t shared = 1024 + barriers_at + 2 * stages * 8;
};

template <Codes codes, int tile_x, bool single>
__global__ void __launch_bounds__(threads, 1) products_codes(StreamArgs a, HopperPlan p, const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = Layout<tile_x>;
  constexpr int stages = L::stages, N = tile_x / 2;
  extern __shared__ unsigned char raw_shared[];
  const uint32_t base = (shared_address(raw_shared) + 1023) / 1024 * 1024;
  unsigned char* const shared = raw_shared + (base - shared_address(raw_shared));
  float* const sums = reinterpret_cast<float*>(shared + stages * L::stage_bytes);
  float* const scales = reinterpret_cast<float*>(shared + L::scales_at);  // [scale_slots][tile_w]
  const uint32_t full = base + L::barriers_at, empty = full + 8 * stages;
  const Piece& l = a.l;
  const bool gated = a.glu != static_cast<int>(Glu::none);
  const int rank = p.split > 1 ? cluster_rank() : 0, tile = static_cast<int>(blockIdx.x) / p.split;
  const int64_t n0 = int64_t{tile / p.tiles_x} * (gated ? fixed_tile_w / 2 : fixed_tile_w), m0 = int64_t{tile % p.tiles_x} * tile_x;
  const int begin = p.split > 1 ? min(p.units, rank * p.each_slice) : 0, end = p.split > 1 ? min(p.units, begin + p.each_slice) : p.units;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(full + 8 * s, 128 + 1);
      barrier_init(empty + 8 * s, consumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x >= consumers) {
    fewer_registers<56>();
    const int thread = threadIdx.x - consumers, lane = thread % 32, c = lane % 4;
    // A warp has eight rows at a time, of which neighbours in a quarter of it are four apart: their pieces of 16 bytes
    // lie in different banks. Four lanes have a row's 64 bytes.
    const int row0 = thread / 32 * 8 + lane / 8 + lane / 4 % 2 * 4;
    const int64_t last_row = up(l.rows, row_block) - 1;
    const unsigned char* from[4];
    const unsigned char* scale_from;
    const auto row_at = [&](int r) {
      const bool second = r >= fixed_tile_w / 2;
      return min(second && gated ? n0 + a.up_row + r - fixed_tile_w / 2 : n0 + r, last_row);
    };
#pragma unroll
    for (int i = 0; i < 4; ++i) from[i] = (gated && i >= 2 ? a.high : a.low) + l.at(row_at(row0 + 32 * i), begin) + 16 * c;
    scale_from = (gated && thread >= fixed_tile_w / 2 ? a.high : a.low) + l.scale_at(row_at(thread), begin);
    const auto fetch = [&](int u) {
      if (u < end) {
        unsigned char* to = shared + L::raw_at + (u - begin) % L::raw_slots * L::raw_bytes;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          copy_later<16>(to + (row0 + 32 * i) * 64 + 16 * c, from[i]);
          from[i] += l.block_bytes;
        }
        copy_later<4>(to + L::codes_bytes + thread * 4, scale_from);
        scale_from += l.block_bytes;
      }
      close_copies();
    };
    for (int i = 0; i < L::raw_slots - 1; ++i) fetch(begin + i);
    wait_inputs();
    let_next_start();
    for (int u = begin; u < end; ++u) {
      wait_copies<L::raw_slots - 2>();
      __syncwarp();  // a row's four lanes read each other's; and all are done with the slot that fetch fills
      fetch(u + L::raw_slots - 1);
      const unsigned char* raw = shared + L::raw_at + (u - begin) % L::raw_slots * L::raw_bytes;
#pragma unroll
      for (int h = 0; h < unit_stages; ++h) {
        const int step = (u - begin) * unit_stages + h, s = step % stages;
        if (step >= stages) barrier_wait(empty + 8 * s, step / stages % 2 ^ 1);
        if (thread == 0) {
          const uint32_t to = base + s * L::stage_bytes + L::w_bytes;
          barrier_expect(full + 8 * s, L::x_bytes);
          copy_rows(to, &x, u * unit + h * step_k, static_cast<int>(m0), full + 8 * s);
          if (tile_x == 128) copy_rows(to + L::x_bytes / 2, &x, u * unit + h * step_k, static_cast<int>(m0) + 64, full + 8 * s);
        }
        if (h == 0) scales[(u - begin) % scale_slots * fixed_tile_w + thread] = *reinterpret_cast<const float*>(raw + L::codes_bytes + thread * 4);
        unsigned char* w = shared + s * L::stage_bytes;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = row0 + 32 * i;
          // Words 2 h and 2 h + 1 of this lane's pair of quarters: elements 8 (c / 2) to 8 (c / 2) + 7 of steps, of which it makes every other.
          const uint2 low = *reinterpret_cast<const uint2*>(raw + row * 64 + c / 2 * 32 + 8 * h);
          const uint2 high = *reinterpret_cast<const uint2*>(raw + row * 64 + c / 2 * 32 + 16 + 8 * h);
#pragma unroll
          for (int q = 0; q < 2; ++q) {
            const int shift = c % 2 * 8;
            const uint4 lw = {(q ? low.y : low.x) >> shift, 0, 0, 0}, hw = {(q ? high.y : high.x) >> shift, 0, 0, 0};
            uint4 v;
            widen<codes>(lw, 0, l.zero, v.x, v.y);
            widen<codes>(hw, 0, l.zero, v.z, v.w);
            const int piece = (2 * q + c % 2) * 2 + c / 2;
            *reinterpret_cast<uint4*>(w + row * 128 + (piece ^ row % 8) * 16) = v;
          }
        }
        fence_async();
        barrier_arrive(full + 8 * s);
      }
    }
  } else {
    more_registers<224>();
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + g;
    const uint64_t w = swizzled(base + group * (L::w_bytes / 2), 0, 1024), rows = swizzled(base + L::w_bytes, 0, 1024);
    float even[N], odd[N], of_slice[N], of_piece[single ? 1 : N];
#pragma unroll
    for (int i = 0; i < N; ++i) of_slice[i] = of_piece[single ? 0 : i] = 0;
    InK in_k(p.units, p.each_slice, begin);
    bool first_slice = true;
    wait_inputs();
    const auto add_slice = [&](bool first) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float& sum = sums[(8 * (i / 4) + 2 * j + i % 2) * fixed_pitch + row + 8 * (i / 2 % 2)];
        sum = first ? of_slice[i] : sum + of_slice[i];
        of_slice[i] = 0;
      }
    };
    for (int u = begin; u < end; ++u) {
#pragma unroll
      for (int h = 0; h < unit_stages; ++h) {
        const int step = (u - begin) * unit_stages + h, s = step % stages;
        barrier_wait(full + 8 * s, step / stages % 2);
        products_begin();
#pragma unroll
        for (int i = 0; i < step_k / 16; ++i) {
          const uint64_t at = static_cast<uint64_t>(s * (L::stage_bytes >> 4) + 2 * i);
          Product<__nv_bfloat16, tile_x>::scores(i % 2 ? odd : even, w + at, rows + at, h > 0 || i > 1);
        }
        products_commit();
      }
      products_wait<1>();
      arrive_if(lane == 0, empty + 8 * ((u - begin) * unit_stages % stages));
      products_wait<0>();
      hold(even);
      hold(odd);
      arrive_if(lane == 0, empty + 8 * (((u - begin) * unit_stages + 1) % stages));
      const float* scale = scales + (u - begin) % scale_slots * fixed_tile_w + row;
      const float by[2] = {scale[0], scale[8]};
      const bool last = u + 1 == in_k.piece_end;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float sum = fmaf(by[i / 2 % 2], even[i] + odd[i], single ? 0.0f : of_piece[single ? 0 : i]);
        if (single)
          of_slice[i] += sum;
        else
          of_piece[single ? 0 : i] = sum;
      }
      if (!last) continue;
      if (!single) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          of_slice[i] += of_piece[single ? 0 : i];
          of_piece[single ? 0 : i] = 0;
        }
      }
      if (in_k.next()) {
        add_slice(first_slice);
        first_slice = false;
      }
    }
    if (begin >= end) add_slice(true);
  }
  leave_tile<true>(a, m0, n0, tile_x, sums, p.split, rank);
#endif
}

template <int tile_x, bool single>
void start(Context* c, const StreamArgs& a, int64_t tiles_w, int blocks_of_k, const CUtensorMap& x) {
  const HopperPlan p(*c, a, tiles_w, tile_x, blocks_of_k);
  launch(c, products_codes<Codes::u4, tile_x, single>,
         Shape{dim3(static_cast<unsigned>(tiles_w * p.tiles_x * p.split)), dim3(threads), Layout<tile_x>::shared, static_cast<unsigned>(p.split)}, a, p, x);
}

}  // namespace

bool fixed_hopper_codes(Context* c, const StreamArgs& a, int blocks_of_k) {
  if (c->capability != 90 || a.l.codes != Codes::u4 || a.l.sub != 1 || a.l.has_min || Layout<128>::shared > c->block_shared || Layout<64>::shared > c->block_shared) return false;
  const int64_t rows = a.glu ? fixed_tile_w / 2 : fixed_tile_w, tiles_w = (a.n + rows - 1) / rows;
  const bool single = (a.l.units + blocks_of_k - 1) / blocks_of_k <= warps;
  CUtensorMap x{};
  if (!map_rows(a.x, a.l.k, a.m, a.x_stride * 2, &x)) return false;
  if (!single)  // for more columns there are too few registers
    start<64, false>(c, a, tiles_w, blocks_of_k, x);
  else if (a.m <= 64)
    start<64, true>(c, a, tiles_w, blocks_of_k, x);
  else
    start<128, true>(c, a, tiles_w, blocks_of_k, x);
  return true;
}

}  // namespace orlop::cuda
