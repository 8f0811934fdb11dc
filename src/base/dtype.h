// Element types as files store them. Shared by the readers and the kernels; what a kernel does with
// a type is src/ops/format.h.
#pragma once
#include <cstdint>

namespace orlop {

// Block layouts of the quantized types: ggml's published definitions, restated in ops/format.cc.
enum class FileType : uint8_t {
  f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl,
};
constexpr int file_type_count = 14;

struct FileTypeInfo {
  const char* name;
  uint32_t block_elems;  // elements a block (1: floats)
  uint32_t block_bytes;
};

constexpr FileTypeInfo file_types[file_type_count] = {
    {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},      {"q4_0", 32, 18},
    {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},    {"q8_0", 32, 34},
    {"q2_k", 256, 84},  {"q3_k", 256, 110}, {"q4_k", 256, 144},  {"q5_k", 256, 176},
    {"q6_k", 256, 210}, {"iq4_nl", 32, 18},
};
[[gnu::always_inline]] constexpr const FileTypeInfo& info(FileType t) { return file_types[static_cast<int>(t)]; }

// How products are computed. fp32: float32 throughout. bf16: activations rounded to bf16, weights
// exact where their codes fit bf16, else rounded to it; float32 sums. int8: activations in int8 with
// one scale per 32 elements; weights stay in their own codes; float weights fall back to bf16. (As a
// model's setting int8 means the feed-forward layers and the head; attention's projections are
// computed as in bf16: see model/weights.cc.)
enum class Compute : uint8_t { fp32, bf16, int8 };
[[gnu::always_inline]] constexpr const char* name(Compute c) {
  return c == Compute::fp32 ? "fp32" : c == Compute::bf16 ? "bf16" : "int8";
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
