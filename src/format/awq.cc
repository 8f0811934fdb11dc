// AWQ checkpoints in AutoAWQ's "gemm" layout: 4-bit codes, eight columns of n in a 32-bit word,
// nibble i of a word holding column 8 j + {0, 2, 4, 6, 1, 3, 5, 7}[i]: qweight [k, n / 8], qzeros
// [groups, n / 8], scales [groups, n]. weight = scale * (code - zero). (AutoAWQ 0.2.9,
// modules/linear/gemm.py)
#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "format/quant_tensors.h"
#include "format/safetensors.h"

namespace orlop {
namespace {

// The bits of column c within its word.
constexpr int shift_of(int64_t c) {
  constexpr int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return 4 * nibble[c % 8];
}

class AwqRows final : public QuantRows {
 public:
  const FileTensor *codes = nullptr, *zeros = nullptr, *scales = nullptr;
  int64_t n = 0, k = 0, groups = 0;
  bool with_min = true;

  uint32_t zero(int64_t g, int64_t c) const {
    return word_at(*zeros, g * (n / 8) + c / 8) >> shift_of(c) & 15;
  }
  void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
    for (int64_t i = 0; i < k; ++i)
      code[i] = word_at(*codes, i * (n / 8) + r / 8) >> shift_of(r) & 15;
    for (int64_t g = 0; g < groups; ++g) {
      scale[g] = scale_element(*scales, g * n + r);
      if (with_min) min[g] = -scale[g] * static_cast<float>(zero(g, r));
    }
  }
};

class Awq final : public QuantScheme {
 public:
  Awq(const Checkpoint& checkpoint, const Keys& keys) : QuantScheme(checkpoint, "awq") {
    const int64_t bits = keys.integer("bits", 1, 64, keys.integer("w_bit", 1, 64, 4));
    if (bits != 4) fail(Status::unsupported, keys.name("bits"), " is ", bits, "; 4 is supported");
    group_ =
        keys.integer("group_size", -1, INT32_MAX, keys.integer("q_group_size", -1, INT32_MAX, 128));
    if (group_ == 0) fail(Status::bad_format, keys.name("group_size"), " is 0");
    group_key_ = keys.name("group_size");
    std::string version = keys.text("version", keys.text("format", "gemm").c_str());
    std::transform(version.begin(), version.end(), version.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (version != "gemm")
      fail(Status::unsupported, keys.name("version"), " \"", printable(version),
           "\" is not supported; gemm is");
    if (!keys.boolean("zero_point", true))
      fail(Status::unsupported, keys.name("zero_point"), " is false, which is not supported");
    skip_ = name_list(keys, "modules_to_not_convert");
    skip_key_ = keys.name("modules_to_not_convert");
    summary_ = cat("awq, 4 bits, ", group_ < 0 ? "a scale per channel" : cat("groups of ", group_),
                   ", asymmetric");
  }

  bool holds(const std::string& module) const override {
    return checkpoint_.find(module + ".qweight") != nullptr;
  }

  QuantMatrix matrix(const std::string& module, int64_t n, int64_t k) const override {
    refuse_listed(skip_, module, skip_key_);
    ModuleTensors t(checkpoint_, module);
    const int64_t group = group_ < 0 ? k : group_;
    const int64_t groups = group_count(k, group);
    if (n % 8)
      fail(Status::bad_format, checkpoint_.path, ": ", module, ".qweight: ", n,
           " columns do not fill words of 8");
    auto rows = std::make_unique<AwqRows>();
    rows->codes = &t.need("qweight", {FileType::int32}, {k, n / 8});
    rows->zeros = &t.need("qzeros", {FileType::int32}, {groups, n / 8});
    rows->scales = &t.need("scales", float_types, {groups, n});
    rows->n = n;
    rows->k = k;
    rows->groups = groups;
    rows->with_min = !centred(*rows);

    QuantMatrix m;
    m.group = kernel_group(group, k, group_key_);
    m.type = rows->with_min ? FileType::w4z : FileType::w4;
    m.rows = std::move(rows);
    m.tensors = t.take();
    return m;
  }

 private:
  static bool centred(const AwqRows& rows) {
    for (int64_t i = 0; i < rows.groups * (rows.n / 8); ++i)
      if (word_at(*rows.zeros, i) != 0x88888888u) return false;
    return true;
  }

  std::string group_key_, skip_key_;
  int64_t group_ = 128;
  const Json* skip_ = nullptr;
};

}  // namespace

std::unique_ptr<QuantScheme> open_awq(const Checkpoint& checkpoint, const Keys& keys) {
  return std::make_unique<Awq>(checkpoint, keys);
}

}  // namespace orlop
