// Element types as files store them. Shared by the readers and the kernels; what a kernel does with
// a type is src/ops/format.h.
#pragma once
#include <cstdint>

namespace orlop {

// Block layouts of the types q2_k to q8_0 and iq4_nl: ggml's published definitions, restated in
// ops/format.cc. f8 is OCP's e4m3 (no infinity). w4 to w8z are what quantized checkpoints and
// quantization at load become: codes of 4 or 8 bits with a float32 scale (and min) for each group of
// a row, see QuantRows; files do not hold them as such. The integers after them are plain arrays of
// numbers in a file, no weights.
enum class FileType : uint8_t {
  f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl,
  f8, w4, w4z, w8, w8z,
  int8, uint8, int32, int64,
};
constexpr int ggml_type_count = 14;    // those that a GGUF file may hold
constexpr int kernel_type_count = 19;  // those that kernels know
constexpr int file_type_count = 23;

struct FileTypeInfo {
  const char* name;
  uint32_t block_elems;  // elements a block (1: floats)
  uint32_t block_bytes;
};

constexpr FileTypeInfo file_types[file_type_count] = {
    {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},      {"q4_0", 32, 18},
    {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},    {"q8_0", 32, 34},
    {"q2_k", 256, 84},  {"q3_k", 256, 110}, {"q4_k", 256, 144},  {"q5_k", 256, 176},
    {"q6_k", 256, 210}, {"iq4_nl", 32, 18}, {"f8_e4m3", 1, 1},   {"int4", 1, 1},
    {"uint4", 1, 1},    {"int8", 1, 1},     {"uint8", 1, 1},     {"i8", 1, 1},
    {"u8", 1, 1},       {"i32", 1, 4},      {"i64", 1, 8},
};
[[gnu::always_inline]] constexpr const FileTypeInfo& info(FileType t) { return file_types[static_cast<int>(t)]; }

// Types whose scales stand apart, one for each group of a row that LinearDesc::group tells.
[[gnu::always_inline]] constexpr bool has_groups(FileType t) { return t >= FileType::f8 && t <= FileType::w8z; }

// How products are computed. fp32: float32 throughout. bf16: activations rounded to bf16, weights
// exact where their codes fit bf16, else rounded to it; float32 sums. int8: activations in int8 with
// one scale per 32 elements; weights stay in their own codes; float weights fall back to bf16. (As a
// model's setting int8 means the feed-forward layers and the head; attention's projections are
// computed as in bf16: see model/weights.cc.) a8: activations in int8 with one scale per token, for
// the types w4 to w8z; ggml's quantized types are then computed as in int8, floats as in bf16. (As a
// model's setting a8 means the feed-forward layers.)
enum class Compute : uint8_t { fp32, bf16, int8, a8 };
[[gnu::always_inline]] constexpr const char* name(Compute c) {
  return c == Compute::fp32 ? "fp32" : c == Compute::bf16 ? "bf16" : c == Compute::int8 ? "int8" : "a8";
}

// What the KV cache stores. int8 and uint4: values with a scale (uint4: and a centre) per token and
// head; keys with scale and centre per channel and tile of 16 tokens. A query sees the keys of its own
// tile in bf16 and those of earlier tiles in codes: the form depends on positions alone.
enum class KvType : uint8_t { f32, bf16, f16, int8, uint4 };
[[gnu::always_inline]] constexpr const char* name(KvType t) {
  return t == KvType::f32    ? "fp32"
         : t == KvType::bf16 ? "bf16"
         : t == KvType::f16  ? "fp16"
         : t == KvType::int8 ? "int8"
                             : "uint4";
}

}  // namespace orlop
