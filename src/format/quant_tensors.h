// Shared by the readers of quantized checkpoints: a module's tensors, checked, and codes out of
// packed words.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_keys.h"
#include "format/quant.h"

namespace orlop {

// "FILE: tensor NAME", for messages.
std::string tensor_place(const FileTensor& tensor);

// Element i of a tensor of floats. Error(unsupported) for other types.
float float_element(const FileTensor& tensor, int64_t i);
// The same for a scale: Error(bad_format) if it is NaN or infinite.
float scale_element(const FileTensor& tensor, int64_t i);

inline uint32_t word_at(const FileTensor& tensor, int64_t i) {
  uint32_t v;
  std::memcpy(&v, tensor.data.data() + 4 * static_cast<size_t>(i), 4);
  return v;
}

// Codes of `bits` bits that follow each other without gaps in 32-bit words, lowest bits first;
// word(i) gives the i-th.
template <class Word>
void unpack_codes(int64_t count, int bits, Word&& word, uint8_t* code) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t held = 0;
  int have = 0;
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (have < bits) {
      held |= uint64_t{word(next++)} << have;
      have += 32;
    }
    code[i] = static_cast<uint8_t>(held & mask);
    held >>= bits;
    have -= bits;
  }
}
// One such code: number i.
template <class Word>
uint32_t code_at(int64_t i, int bits, Word&& word) {
  const int64_t bit = i * bits;
  uint64_t held = word(bit / 32);
  if (bit % 32 + bits > 32) held |= uint64_t{word(bit / 32 + 1)} << 32;
  return static_cast<uint32_t>(held >> (bit % 32)) & ((1u << bits) - 1);
}

// The tensors of one module.
class ModuleTensors {
 public:
  ModuleTensors(const Checkpoint& checkpoint, const std::string& module)
      : checkpoint_(checkpoint), module_(module) {}

  // Null when it is not there. Remembers what was found.
  const FileTensor* find(const char* suffix);
  // Error(bad_format) unless it is there, of one of these types and of this shape.
  const FileTensor& need(const char* suffix, std::initializer_list<FileType> types,
                         std::initializer_list<int64_t> shape);
  void check(const FileTensor& tensor, std::initializer_list<FileType> types,
             std::initializer_list<int64_t> shape) const;
  std::vector<const FileTensor*> take() { return std::move(used_); }

 private:
  const Checkpoint& checkpoint_;
  const std::string& module_;
  std::vector<const FileTensor*> used_;
};

constexpr std::initializer_list<FileType> float_types = {FileType::f32, FileType::f16,
                                                         FileType::bf16};

// ceil(k / group), as the file's tensors have it.
inline int64_t group_count(int64_t k, int64_t group) {
  return (k + group - 1) / group;
}

// The groups of a row as kernels take them: 0 where one covers the row, else a multiple of 32.
// Error(unsupported) names `key`.
int32_t kernel_group(int64_t group, int64_t k, const std::string& key);

// g_idx -> the order of k that sorts it by group, empty when it is in order already. Every group
// must have `group` elements (the last one fewer if k is no multiple).
std::vector<int32_t> order_of_groups(const FileTensor& g_idx, int64_t k, int64_t group);

// A module that the configuration excludes by name must not be quantized.
void refuse_listed(const Json* list, const std::string& module, const std::string& where);
// The key's list of names, null if absent. Error(bad_format) if it is no list of strings.
const Json* name_list(const Keys& keys, const char* key);

std::unique_ptr<QuantScheme> open_gptq(const Checkpoint& checkpoint, const Keys& keys);
std::unique_ptr<QuantScheme> open_awq(const Checkpoint& checkpoint, const Keys& keys);
std::unique_ptr<QuantScheme> open_fp8(const Checkpoint& checkpoint, const Keys& keys);
std::unique_ptr<QuantScheme> open_compressed(const Checkpoint& checkpoint, const Keys& keys);

// Bytes of e4m3 in file order, [n, k], and scales of blocks of bn rows by bk elements.
QuantMatrix f8_matrix(const FileTensor& weight, const FileTensor& scale, int64_t bn, int64_t bk,
                      int64_t n, int64_t k, const std::string& key);

}  // namespace orlop
