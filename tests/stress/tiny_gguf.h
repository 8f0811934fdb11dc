// A small random decoder as a GGUF file, its weights in any of the file types: random codes under
// scales that keep every layer's output near one.
#pragma once
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "format/builders.h"

namespace orlop::test {

// The numbers of GGUF's own list of types, in the order of FileType.
constexpr uint32_t gguf_type[ggml_type_count] = {0, 1, 30, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20};

inline std::string random_weights(FileType type, uint64_t elements, std::mt19937_64& random) {
  const FileTypeInfo& t = info(type);
  const uint64_t blocks = elements / t.block_elems;
  std::string out(blocks * t.block_bytes, '\0');
  for (char& c : out) c = static_cast<char>(random());
  const auto f16_at = [&](uint64_t block, size_t at, float v) {
    const uint16_t h = f32_to_f16(v);
    std::memcpy(&out[block * t.block_bytes + at], &h, 2);
  };
  for (uint64_t b = 0; b < blocks; ++b) {
    const float number = 0.3f * (static_cast<float>(random() >> 40) * 0x1p-24f - 0.5f);
    char* const block = &out[b * t.block_bytes];
    switch (type) {
      case FileType::f32:
        std::memcpy(block, &number, 4);
        break;
      case FileType::f16:
        f16_at(b, 0, number);
        break;
      case FileType::bf16: {
        const uint16_t h = f32_to_bf16(number);
        std::memcpy(block, &h, 2);
        break;
      }
      case FileType::q4_0:
        f16_at(b, 0, 0.02f);
        break;
      case FileType::q4_1:
        f16_at(b, 0, 0.02f), f16_at(b, 2, -0.15f);
        break;
      case FileType::q5_0:
        f16_at(b, 0, 0.01f);
        break;
      case FileType::q5_1:
        f16_at(b, 0, 0.01f), f16_at(b, 2, -0.155f);
        break;
      case FileType::q8_0:
      case FileType::iq4_nl:
        f16_at(b, 0, 0.0012f);
        break;
      case FileType::q2_k:
        f16_at(b, 80, 0.006f), f16_at(b, 82, 0.009f);
        break;
      case FileType::q3_k:
        f16_at(b, 108, 0.002f);
        break;
      case FileType::q4_k:
        f16_at(b, 0, 0.0005f), f16_at(b, 2, 0.00375f);
        break;
      case FileType::q5_k:
        f16_at(b, 0, 0.00025f), f16_at(b, 2, 0.00387f);
        break;
      case FileType::q6_k:
        f16_at(b, 208, 0.0001f);
        break;
    }
  }
  return out;
}

// types: of one matrix after another, from the first again when they run out.
inline std::string random_gguf(const std::vector<FileType>& types, uint64_t seed) {
  constexpr uint64_t dim = 256, ffn = 256, vocab = 160, kv = 128;
  std::mt19937_64 random(seed);
  Gguf g;
  g.str("general.architecture", "llama").u32("llama.block_count", 2);
  g.u32("llama.context_length", 512).u32("llama.embedding_length", dim);
  g.u32("llama.feed_forward_length", ffn).u32("llama.attention.head_count", 4);
  g.u32("llama.attention.head_count_kv", 2).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  g.u32("llama.vocab_size", vocab);
  size_t next = 0;
  const auto matrix = [&](const std::string& name, uint64_t k, uint64_t n) {
    const FileType type = types[next++ % types.size()];
    g.tensor(name + ".weight", {k, n}, gguf_type[static_cast<int>(type)],
             random_weights(type, k * n, random));
  };
  const auto norm = [&](const std::string& name) {
    std::string bytes;
    for (uint64_t i = 0; i < dim; ++i) bytes += raw(1.0f);
    g.tensor(name + ".weight", {dim}, 0, bytes);
  };
  matrix("token_embd", dim, vocab);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    norm(layer + "attn_norm");
    matrix(layer + "attn_q", dim, dim);
    matrix(layer + "attn_k", dim, kv);
    matrix(layer + "attn_v", dim, kv);
    matrix(layer + "attn_output", dim, dim);
    norm(layer + "ffn_norm");
    matrix(layer + "ffn_gate", dim, ffn);
    matrix(layer + "ffn_up", dim, ffn);
    matrix(layer + "ffn_down", ffn, dim);
  }
  norm("output_norm");
  matrix("output", dim, vocab);
  return g.file();
}

}  // namespace orlop::test
