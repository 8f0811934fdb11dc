// Products of 9 to 32 rows with coded weights by warpgroup products (backend/cuda/few_hopper_codes.cuh) on the processor, a
// thread for each of the GPU's: every kind of code and scale, tiles and shares of all kinds. Sanitizers see every address.
#include <cstdio>
#include <thread>

#include "backend/cuda/few_hopper_codes.cuh"
#include "few_codes_rig.h"

namespace orlop::test {
namespace {

using namespace orlop::cuda::few_coded;

// Blocks one after another: they wait for none that is started after them.
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
  const FewArgs p{a, {}, {}, {reinterpret_cast<FewState*>(parts.get()), static_cast<int32_t>(steps), static_cast<int32_t>(tiles * steps), 0, 2}};
  gridDim.x = static_cast<unsigned>(std::min<int64_t>(most_blocks, tiles * steps));
  for (unsigned turn = 0; turn < gridDim.x; ++turn) {
    EmulatedBlock own(L::bytes, threads, turn);
    std::memset(own.memory.get(), 0xff, L::bytes);
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        block = &own;
        blockIdx.x = own.number;
        threadIdx.x = t;
        products<codes, scales, wide, columns>(p, low, high, x);
      });
    for (std::thread& t : running) t.join();
  }
  CHECK(std::all_of(parts.get(), parts.get() + room, [](uint32_t v) { return v == FewState::empty; }));
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
      {{FileType::w8, 0, 11, 130, 136, Glu::silu, false, true, false}, true, 1},
      {{FileType::w8, 128, 21, 150, 392, Glu::none, true, false, true}, false, 2},
      {{FileType::w8, 64, 14, 270, 256, Glu::silu, true, true, false}, true, 2},
      {{FileType::f8, 0, 24, 100, 200, Glu::silu, false, false, false}, false, 2},
      {{FileType::f8, 0, 12, 260, 128, Glu::none, true, false, false}, true, 2},
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
