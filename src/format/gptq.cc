// GPTQ checkpoints as AutoGPTQ and GPTQModel write them. Codes of 2, 3, 4 or 8 bits follow each
// other along k without gaps in 32-bit words, qweight [k * bits / 32, n]; zero points along n
// likewise, qzeros [groups, n * bits / 32]; scales [groups, n]; g_idx [k] names the group of every
// k. weight = scale * (code - zero). checkpoint_format "gptq" stores each zero point less 1,
// "gptq_v2" as it is. (AutoGPTQ 0.7.1, nn_modules/qlinear/qlinear_cuda.py; GPTQModel, docs of
// checkpoint formats.)
#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "format/quant_tensors.h"
#include "format/safetensors.h"

namespace orlop {
namespace {

class GptqRows final : public QuantRows {
 public:
  FileType type = FileType::w4;
  const FileTensor *codes = nullptr, *zeros = nullptr, *scales = nullptr;
  const FileTensor* g_idx = nullptr;  // where elements are to be put in order of their groups
  int64_t n = 0, k = 0, group = 0, groups = 0;
  int bits = 4;
  bool less_one = false;

  uint32_t zero(int64_t g, int64_t column) const {
    const int64_t words = n * bits / 32;
    const uint32_t z =
        code_at(column, bits, [&](int64_t i) { return word_at(*zeros, g * words + i); });
    return less_one ? (z + 1) & ((1u << bits) - 1) : z;
  }

  void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
    const auto word = [&](int64_t i) { return word_at(*codes, i * n + r); };
    if (!g_idx) {
      unpack_codes(k, bits, word, code);
    } else {
      std::vector<uint8_t> as_filed(static_cast<size_t>(k));
      unpack_codes(k, bits, word, as_filed.data());
      std::vector<int64_t> at(static_cast<size_t>(groups));
      for (int64_t g = 0; g < groups; ++g) at[static_cast<size_t>(g)] = g * group;
      for (int64_t i = 0; i < k; ++i)
        code[at[word_at(*g_idx, i)]++] = as_filed[static_cast<size_t>(i)];
    }
    for (int64_t g = 0; g < groups; ++g) {
      scale[g] = scale_element(*scales, g * n + r);
      const uint32_t z = zero(g, r);
      if (type == FileType::w4z || type == FileType::w8z) {
        min[g] = -scale[g] * static_cast<float>(z);
      } else if (bits < 4) {  // any zero point: all differences fit a code of w4
        const int64_t end = std::min(k, (g + 1) * group);
        for (int64_t i = g * group; i < end; ++i) code[i] = static_cast<uint8_t>(code[i] + 8 - z);
      }
    }
  }
};

class Gptq final : public QuantScheme {
 public:
  Gptq(const Checkpoint& checkpoint, const Keys& keys)
      : QuantScheme(checkpoint, "gptq"), file_(keys.file()) {
    bits_ = static_cast<int>(keys.integer("bits", 1, 64));
    if (bits_ != 2 && bits_ != 3 && bits_ != 4 && bits_ != 8)
      fail(Status::unsupported, keys.name("bits"), " is ", bits_, "; 2, 3, 4 and 8 are supported");
    group_ = keys.integer("group_size", -1, INT32_MAX, 128);
    if (group_ == 0) fail(Status::bad_format, keys.name("group_size"), " is 0");
    group_key_ = keys.name("group_size");
    const bool sym = keys.boolean("sym", true);
    act_order_ = keys.boolean("desc_act", false);
    std::string format = keys.text("checkpoint_format", "");
    const char* key = "checkpoint_format";
    if (format.empty()) {
      format = keys.text("format", "gptq");
      key = "format";
    }
    if (keys.boolean("is_marlin_format", false))
      fail(Status::unsupported, keys.name("is_marlin_format"),
           " is true; gptq and gptq_v2 layouts "
           "are supported");
    if (format != "gptq" && format != "gptq_v2")
      fail(Status::unsupported, keys.name(key), " \"", printable(format),
           "\" is not supported; gptq and gptq_v2 are");
    less_one_ = format == "gptq";
    if (const std::string words = keys.text("pack_dtype", "int32"); words != "int32")
      fail(Status::unsupported, keys.name("pack_dtype"), " \"", printable(words),
           "\" is not supported; int32 is");
    for (const char* feature : {"dynamic", "adapter", "rotation"})
      if (const Json* v = keys.find(feature); v && !v->empty() && *v != false && *v != "")
        fail(Status::unsupported, keys.name(feature), " is ", Keys::show(*v),
             ", which is not supported");
    summary_ = cat("gptq, ", bits_, " bits, ",
                   group_ < 0 ? "a scale per channel" : cat("groups of ", group_),
                   sym ? ", symmetric" : ", asymmetric", act_order_ ? ", act-order" : "");
  }

  bool holds(const std::string& module) const override {
    return checkpoint_.find(module + ".qweight") != nullptr;
  }

  QuantMatrix matrix(const std::string& module, int64_t n, int64_t k) const override {
    ModuleTensors t(checkpoint_, module);
    const std::string where = cat(checkpoint_.path, ": ", module, ".qweight");
    const int64_t group = group_ < 0 ? k : group_;
    const int64_t groups = group_count(k, group);
    const int64_t k_bits = checked_mul<int64_t>(k, bits_, where.c_str());
    const int64_t n_bits = checked_mul<int64_t>(n, bits_, where.c_str());
    if (k_bits % 32 || n_bits % 32)
      fail(Status::bad_format, where, ": codes of ", bits_, " bits of a matrix of ", n, " x ", k,
           " do not fill words");
    auto rows = std::make_unique<GptqRows>();
    rows->codes = &t.need("qweight", {FileType::int32}, {k_bits / 32, n});
    rows->zeros = &t.need("qzeros", {FileType::int32}, {groups, n_bits / 32});
    rows->scales = &t.need("scales", float_types, {groups, n});
    rows->n = n;
    rows->k = k;
    rows->group = group;
    rows->groups = groups;
    rows->bits = bits_;
    rows->less_one = less_one_;

    QuantMatrix m;
    m.group = kernel_group(group, k, group_key_);
    if (const FileTensor* g_idx = t.find("g_idx")) {
      t.check(*g_idx, {FileType::int32}, {k});
      if (act_order_ || !all_zero(*g_idx, k)) m.k_map = order_of_groups(*g_idx, k, group);
      if (!m.k_map.empty()) rows->g_idx = g_idx;
    } else if (act_order_ && groups > 1) {
      fail(Status::bad_format, checkpoint_.path, ": tensor ", module,
           ".g_idx is missing, desc_act needs it");
    }
    rows->type = bits_ < 4        ? FileType::w4
                 : bits_ == 4     ? (centred(*rows) ? FileType::w4 : FileType::w4z)
                 : centred(*rows) ? FileType::w8
                                  : FileType::w8z;
    m.type = rows->type;
    m.rows = std::move(rows);
    m.tensors = t.take();
    return m;
  }

 private:
  // Some files without act-order leave it so.
  static bool all_zero(const FileTensor& g_idx, int64_t k) {
    for (int64_t i = 0; i < k; ++i)
      if (word_at(g_idx, i)) return false;
    return true;
  }

  bool centred(const GptqRows& rows) const {
    const uint32_t middle = 1u << (bits_ - 1);
    for (int64_t g = 0; g < rows.groups; ++g)
      for (int64_t c = 0; c < rows.n; ++c)
        if (rows.zero(g, c) != middle) return false;
    return true;
  }

  std::string file_, group_key_;
  int bits_ = 4;
  int64_t group_ = 128;
  bool act_order_ = false, less_one_ = true;
};

}  // namespace

std::unique_ptr<QuantScheme> open_gptq(const Checkpoint& checkpoint, const Keys& keys) {
  return std::make_unique<Gptq>(checkpoint, keys);
}

}  // namespace orlop
