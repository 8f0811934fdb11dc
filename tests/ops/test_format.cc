// Every quantized type against the values that the Python package gguf gives, bit for bit
// (tests/data/make_blocks.py), and the float types.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/half.h"
#include "../check.h"
#include "ops/format.h"

namespace orlop {
namespace {

TEST(quantized_types_equal_gguf) {
  std::ifstream file(TEST_DATA "/blocks.bin", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  CHECK(!all.empty());
  const char* at = all.data();
  int seen = 0;
  while (at < all.data() + all.size()) {
    FileType type = FileType::f32;
    for (int t = 0; t < ggml_type_count; ++t)
      if (std::strcmp(file_types[t].name, at) == 0) type = static_cast<FileType>(t);
    CHECK(!is_float(type));
    if (is_float(type)) return;
    at += 8;
    std::vector<float> out(512);
    dequantize_row(type, reinterpret_cast<const unsigned char*>(at), 512, out.data());
    at += 512 / info(type).block_elems * info(type).block_bytes;
    const bool same = std::memcmp(out.data(), at, 2048) == 0;
    CHECK(same);
    if (!same) std::fprintf(stderr, "  %s\n", info(type).name);
    at += 2048;
    ++seen;
  }
  CHECK(seen == ggml_type_count - 3);
}

TEST(float_types) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint16_t bits = static_cast<uint16_t>(h);
    float f16 = 0, bf16 = 0;
    dequantize_row(FileType::f16, reinterpret_cast<const unsigned char*>(&bits), 1, &f16);
    dequantize_row(FileType::bf16, reinterpret_cast<const unsigned char*>(&bits), 1, &bf16);
    // Rounding back gives the same bits, but for NaN's payload.
    CHECK(f16 != f16 ? (h & 0x7c00) == 0x7c00 && (h & 0x3ff) : f32_to_f16(f16) == bits);
    CHECK(bf16 != bf16 ? (h & 0x7f80) == 0x7f80 && (h & 0x7f) : f32_to_bf16(bf16) == bits);
  }
  const float v = 1.0f / 3;
  float out = 0;
  dequantize_row(FileType::f32, reinterpret_cast<const unsigned char*>(&v), 1, &out);
  CHECK(out == v);
}

}  // namespace
}  // namespace orlop

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
