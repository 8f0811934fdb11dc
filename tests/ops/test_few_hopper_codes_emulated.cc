// Products of 9 to 32 rows with coded weights by warpgroup products (backend/cuda/few_hopper_codes.cuh) on the processor, a
// thread for each of the GPU's: every kind of code and scale, tiles and shares of all kinds. Sanitizers see every address.
#include <cstdio>

#include "backend/cuda/few_hopper_codes.cuh"
#include "few_codes_rig.h"

namespace orlop::test {
namespace {

using namespace orlop::cuda::few_coded;

// What is left for the next product, beside the rows: these times a norm's weights, and sums of their squares.
struct Left {
  std::vector<float> weight, squares;
  std::vector<__nv_bfloat16> rows;
  FewNorm norm;
  explicit Left(const StreamArgs& a)
      : weight(static_cast<size_t>(a.n)), squares(static_cast<size_t>(a.n / fixed_tile_w * a.m)), rows(static_cast<size_t>(a.n * a.m)) {
    for (float& w : weight) w = uniform(0.5f, 1.5f);
    norm = {rows.data(), squares.data(), weight.data(), a.n, static_cast<int32_t>(a.n / fixed_tile_w), 0};
  }
  void check(const StreamArgs& a) const {
    bool good = true;
    for (int row = 0; row < a.m; ++row) {
      std::vector<double> sums(static_cast<size_t>(a.n / fixed_tile_w));
      for (int64_t n = 0; n < a.n; ++n) {
        const float v = a.out[row * a.out_stride + n];
        sums[static_cast<size_t>(n / fixed_tile_w)] += double{v} * v;
        good = good && __bfloat162float(rows[static_cast<size_t>(row * a.n + n)]) == __bfloat162float(__float2bfloat16_rn(v * weight[static_cast<size_t>(n)]));
      }
      for (size_t t = 0; t < sums.size(); ++t) good = good && std::fabs(sums[t] - squares[t * static_cast<size_t>(a.m) + static_cast<size_t>(row)]) <= 1e-5 * sums[t];
    }
    CHECK(good);
  }
};

// Blocks one after another, since they wait for none that is started after them; at once where each adds up a part.
template <Codes codes, Scales scales, bool wide, int columns>
void run(const StreamArgs& a, int most_blocks) {
  using L = Layout<codes, scales, wide, columns>;
  const Piece& l = a.l;
  const int64_t padded = up(l.rows, row_block), line = l.tiled ? l.units * l.block_bytes : l.row_bytes;
  const auto codes_at = [&](const unsigned char* from) {
    return l.tiled ? CUtensorMap{from, line / 8, padded / tile_rows, line, 8, L::unit_bytes / 8, L::rows / 2 / static_cast<int>(tile_rows), false}
                   : CUtensorMap{from, l.k_padded, padded, line, 1, 128, L::rows / 2, true};
  };
  const CUtensorMap low = codes_at(a.low), high = codes_at(a.high), x{static_cast<const unsigned char*>(a.x), l.k, a.m, a.x_stride * 2, 2, 64, columns, true};
  const int64_t rows = L::rows / (a.glu ? 2 : 1), tiles = (a.n + rows - 1) / rows, steps = l.k_padded / 128;
  const int64_t room = int64_t{most_blocks} * few_hopper_rows * few_most_w;
  const Memory<uint32_t> parts(room);
  std::fill_n(parts.get(), room, FewState::empty);
  FewArgs p{a, {}, {}, {reinterpret_cast<FewState*>(parts.get()), static_cast<int32_t>(steps), static_cast<int32_t>(tiles * steps), 0, 0}};
  gridDim.x = few_blocks(most_blocks, true, &p.shares, 1, L::w_bytes);
  // A norm that scales rows by 1, of squares that tell the row and the tile.
  std::vector<float> squares;
  for (int t = 0; t < 40; ++t)
    for (int row = 0; row < a.m; ++row) squares.push_back(static_cast<float>(l.k) * (t == 0 ? 1.0f - static_cast<float>(row) / 64 : t == 39 ? static_cast<float>(row) / 64 : 0.0f));
  p.taken = {nullptr, squares.data(), nullptr, 0, 40, 0};
  std::unique_ptr<Left> left;
  if (!a.glu && !a.narrow_out && a.out_stride % 4 == 0 && a.n % fixed_tile_w == 0) {
    left = std::make_unique<Left>(a);
    p.left = left->norm;
  }
  const unsigned at_once = p.shares.parts ? gridDim.x : 1;
  for (unsigned first = 0; first < gridDim.x; first += at_once) {
    std::vector<std::unique_ptr<EmulatedBlock>> of;
    for (unsigned b = first; b < first + at_once; ++b) {
      of.push_back(std::make_unique<EmulatedBlock>(L::bytes, threads, b));
      std::memset(of.back()->memory.get(), 0xff, L::bytes);
    }
    run_blocks(of, threads, [&] { products<codes, scales, wide, columns>(p, low, high, x); });
  }
  CHECK(std::all_of(parts.get(), parts.get() + room, [](uint32_t v) { return v == FewState::empty; }));
  if (left) left->check(a);
}

template <Codes codes, Scales scales>
void run(const StreamArgs& a, bool wide, int blocks) {
  if (a.m <= 16) return wide ? run<codes, scales, true, 16>(a, blocks) : run<codes, scales, false, 16>(a, blocks);
  return wide ? run<codes, scales, true, 32>(a, blocks) : run<codes, scales, false, 32>(a, blocks);
}

struct Case {
  FewCase of;
  bool wide;
  int blocks;
};

void product(const Case& s) {
  char how[64];
  std::snprintf(how, sizeof how, "wide %d, %d blocks", s.wide, s.blocks);
  few_product(s.of, how, [&](const StreamArgs& a) {
    if (a.l.codes == Codes::i8) return a.l.tiled ? run<Codes::i8, Scales::one>(a, s.wide, s.blocks) : run<Codes::i8, Scales::none>(a, s.wide, s.blocks);
    if (a.l.codes == Codes::e4m3) return run<Codes::e4m3, Scales::none>(a, s.wide, s.blocks);
    return a.l.has_min ? run<Codes::u4, Scales::with_min>(a, s.wide, s.blocks) : run<Codes::u4, Scales::one>(a, s.wide, s.blocks);
  });
}

TEST(every_kind_of_code) {
  const Case cases[] = {
      {{FileType::w4, 128, 9, 70, 304, Glu::none, true, false, true}, false, 1},
      {{FileType::w4, 128, 32, 128, 384, Glu::none, false, false, false}, true, 1},
      {{FileType::w4, 0, 17, 200, 256, Glu::silu, true, true, false}, true, 2},
      {{FileType::w4z, 128, 20, 145, 256, Glu::none, true, false, true}, false, 2},
      {{FileType::w4z, 256, 16, 100, 512, Glu::gelu_tanh, true, false, false}, true, 1},
      {{FileType::w8, 0, 32, 150, 296, Glu::none, false, false, true}, false, 2},
      {{FileType::w8, 0, 20, 130, 301, Glu::none, false, false, true}, false, 2},
      {{FileType::w8, 0, 11, 130, 136, Glu::silu, false, true, false}, true, 1},
      {{FileType::w8, 128, 21, 150, 392, Glu::none, true, false, true}, false, 2},
      {{FileType::w8, 64, 14, 270, 256, Glu::silu, true, true, false}, true, 2},
      {{FileType::f8, 0, 24, 100, 200, Glu::silu, false, false, false}, false, 2},
      {{FileType::f8, 0, 12, 260, 128, Glu::none, true, false, false}, true, 2},
  };
  for (const Case& s : cases) product(s);
}

// Tiles that are whole numbers of shares, each of which adds up some rows.
TEST(shares_that_end_together) {
  const Case cases[] = {
      {{FileType::w4, 128, 32, 128, 128 * 4, Glu::none, true, false, true}, false, 2},
      {{FileType::w4, 128, 11, 128, 128 * 6, Glu::none, false, false, true}, false, 3},
      {{FileType::w8, 128, 18, 100, 128 * 4, Glu::silu, true, true, false}, true, 2},
  };
  for (const Case& s : cases) product(s);
}

// Rings that come round; shares that begin and end within tiles, of less than one and of several; more blocks than steps.
TEST(however_work_is_shared) {
  const Case cases[] = {
      {{FileType::w4, 128, 32, 65, 128 * 29, Glu::none, false, false, true}, false, 1},
      {{FileType::w4, 128, 18, 300, 128 * 11, Glu::none, false, false, true}, true, 1},
      {{FileType::w4, 128, 32, 390, 128 * 5, Glu::none, true, false, false}, false, 3},
      {{FileType::w4, 128, 31, 300, 128 * 7, Glu::silu, true, true, false}, false, 4},
      {{FileType::w4, 128, 32, 257, 128 * 9, Glu::none, true, false, true}, true, 5},
      {{FileType::w4, 128, 10, 512, 1032, Glu::silu, true, false, true}, true, 3},
      {{FileType::w4, 128, 9, 30, 128 * 3, Glu::none, true, false, true}, false, 7},
      {{FileType::w4, 128, 16, 140, 128, Glu::none, true, false, true}, false, 7},
      {{FileType::w8, 128, 16, 256, 128 * 29, Glu::none, true, false, true}, true, 1},
      {{FileType::w8, 128, 30, 520, 128 * 9, Glu::none, true, false, true}, true, 4},
      {{FileType::w8, 0, 32, 513, 128 * 6, Glu::none, true, false, true}, true, 4},
  };
  for (const Case& s : cases) product(s);
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::test_main(count, values); }
