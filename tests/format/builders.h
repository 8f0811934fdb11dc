// Small checkpoint files made by hand: well-formed by default, with every number open to lies.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace orlop::test {

inline std::span<const std::byte> as_span(const std::string& s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

template <class T>
std::string raw(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

// A copy whose first byte is aligned as a mapped file's is.
class Aligned {
 public:
  explicit Aligned(const std::string& s) : size_(s.size()), words_(s.size() / 64 + 1) {
    s.copy(reinterpret_cast<char*>(words_.data()), size_);
  }
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(words_.data()), size_};
  }

 private:
  struct alignas(64) Word {
    char c[64];
  };
  size_t size_;
  std::vector<Word> words_;
};

inline std::string safetensors(const std::string& header, const std::string& data) {
  return raw<uint64_t>(header.size()) + header + data;
}

struct Gguf {
  uint32_t version = 3;
  std::vector<std::string> keys;     // encoded entries
  std::vector<std::string> tensors;  // encoded entries
  std::string data;
  uint64_t alignment = 32;
  int64_t key_count = -1, tensor_count = -1;  // -1: the truth

  static std::string text(const std::string& s) { return raw<uint64_t>(s.size()) + s; }
  Gguf& key(const std::string& name, uint32_t type, const std::string& value) {
    keys.push_back(text(name) + raw(type) + value);
    return *this;
  }
  Gguf& u32(const std::string& name, uint32_t v) { return key(name, 4, raw(v)); }
  Gguf& f32(const std::string& name, float v) { return key(name, 6, raw(v)); }
  Gguf& str(const std::string& name, const std::string& v) { return key(name, 8, text(v)); }
  Gguf& strings(const std::string& name, const std::vector<std::string>& v) {
    std::string s = raw<uint32_t>(8) + raw<uint64_t>(v.size());
    for (const std::string& e : v) s += text(e);
    return key(name, 9, s);
  }
  template <class T>
  Gguf& numbers(const std::string& name, uint32_t type, const std::vector<T>& v) {
    std::string s = raw(type) + raw<uint64_t>(v.size());
    for (T e : v) s += raw(e);
    return key(name, 9, s);
  }
  Gguf& tensor_raw(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                   uint64_t offset) {
    std::string s = text(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) s += raw(d);
    tensors.push_back(s + raw(type) + raw(offset));
    return *this;
  }
  // A tensor placed after those before it, with its own bytes.
  Gguf& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
               const std::string& bytes) {
    pad(data);
    tensor_raw(name, dims, type, data.size());
    data += bytes;
    return *this;
  }
  void pad(std::string& s) const {
    while (s.size() % alignment) s += '\0';
  }
  std::string head() const {
    std::string s = "GGUF" + raw(version);
    s += raw<uint64_t>(tensor_count < 0 ? tensors.size() : static_cast<uint64_t>(tensor_count));
    s += raw<uint64_t>(key_count < 0 ? keys.size() : static_cast<uint64_t>(key_count));
    for (const std::string& k : keys) s += k;
    for (const std::string& t : tensors) s += t;
    return s;
  }
  std::string file() const {
    std::string s = head();
    pad(s);
    s += data;
    pad(s);
    return s;
  }
};

// The metadata of a llama of two tiny layers, without tensors.
inline Gguf llama_gguf() {
  Gguf g;
  g.str("general.architecture", "llama").u32("llama.block_count", 2);
  g.u32("llama.context_length", 64).u32("llama.embedding_length", 32);
  g.u32("llama.feed_forward_length", 64).u32("llama.attention.head_count", 4);
  g.u32("llama.attention.head_count_kv", 2).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  g.strings("tokenizer.ggml.tokens", {"a", "b", "<|im_end|>", "<s>"});
  return g;
}

class TempDir {
 public:
  TempDir() {
    std::string pattern = std::filesystem::temp_directory_path() / "orlop-format-XXXXXX";
    if (!mkdtemp(pattern.data())) fail(Status::io, "no temporary folder");
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(file(name), std::ios::binary) << content;
    return file(name);
  }

 private:
  std::string path_;
};

}  // namespace orlop::test
