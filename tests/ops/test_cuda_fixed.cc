// Products of many rows: a row has the bits that it has alone, whatever stands beside it and wherever. Each format
// that kernels know, ragged shapes, inputs of any kind. Without a GPU it is skipped, saying why.
#include <cstdio>

#include "rows_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

void rows_alone(const Shape& s, const Way& way, int kind) {
  const Matrix l(s);
  const int64_t most = 300, n = l.desc.n(), words = way.narrow_out ? (n + 1) / 2 : n;
  const Inputs all = random_inputs(s, way, kind, most);
  const std::vector<float> want = product(gpu(), l, all, way, 0, most);
  int wrong = 0;
  const auto check = [&](int64_t begin, int64_t m) {
    const std::vector<float> got = product(gpu(), l, all, way, begin, m);
    wrong += std::memcmp(got.data(), want.data() + begin * words, got.size() * 4) != 0;
  };
  for (const int64_t row : {int64_t{0}, pick(1, 127), pick(128, 255), pick(256, 298), most - 1}) check(row, 1);
  for (const int64_t m : {2, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 257}) check(pick(0, most - m), m);
  if (wrong)
    std::printf("%s group %d, n %d, k %d, gated %d, inputs %d: %d of 18 differ\n", info(s.type).name, s.group, static_cast<int>(s.n), static_cast<int>(s.k), s.gated, kind, wrong);
  CHECK(wrong == 0);
}

TEST(rows_alone_of_every_format) {
  int i = 0;
  for (const auto& [type, group] : formats)
    for (const int64_t k : {int64_t{256} * pick(1, 3), int64_t{4096}}) {
      const Shape s{type, group, i % 2 ? pick(1, 200) : 16 * pick(1, 20), k, i % 3 == 1};
      rows_alone(s, way_at(i, s), i % 3);
      ++i;
    }
}

TEST(rows_alone_where_nothing_is_whole) {
  const std::pair<FileType, int32_t> types[] = {{FileType::bf16, 0}, {FileType::f8, 0}, {FileType::w8, 0}, {FileType::w4, 64}, {FileType::w4z, 128}, {FileType::w8z, 32}};
  int i = 0;
  for (const auto& [type, group] : types)
    for (int round = 0; round < 3; ++round, ++i) {
      const Shape s{type, group, pick(1, 300), pick(1, 1500), i % 2 == 1};
      rows_alone(s, way_at(i, s), i % 3);
    }
}

TEST(rows_alone_of_long_rows) {
  for (const FileType type : {FileType::bf16, FileType::q4_k, FileType::q8_0}) {
    const Shape s{type, 0, pick(100, 200), 14336, false};
    rows_alone(s, way_at(2, s), 0);
  }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
