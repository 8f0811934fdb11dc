// FP8 checkpoints of quant_method "fp8": weight in e4m3 and either weight_scale_inv, a factor per
// block of weight_block_size (DeepSeek-V3's form, transformers' FineGrainedFP8Config), or
// weight_scale, one factor for the matrix or one per channel. weight = scale * e4m3.
#include "base/error.h"
#include "format/quant_tensors.h"
#include "format/safetensors.h"

namespace orlop {
namespace {

class Fp8 final : public QuantScheme {
 public:
  Fp8(const Checkpoint& checkpoint, const Keys& keys) : QuantScheme(checkpoint, "fp8") {
    if (const Json* block = keys.find("weight_block_size")) {
      block_key_ = keys.name("weight_block_size");
      if (!block->is_array() || block->size() != 2)
        keys.wrong(*block, "weight_block_size", "a pair of numbers");
      bn_ = keys.integer_of((*block)[0], "weight_block_size", 1, INT32_MAX);
      bk_ = keys.integer_of((*block)[1], "weight_block_size", 1, INT32_MAX);
    }
    if (const std::string f = keys.text("fmt", "e4m3"); f != "e4m3" && f != "float8_e4m3fn")
      fail(Status::unsupported, keys.name("fmt"), " \"", printable(f),
           "\" is not supported; e4m3 is");
    for (const char* key : {"modules_to_not_convert", "ignored_layers"})
      if (const Json* list = name_list(keys, key)) {
        skip_ = list;
        skip_key_ = keys.name(key);
      }
    summary_ = cat("fp8 e4m3, ",
                   bn_ ? cat("blocks of ", bn_, " x ", bk_) : "a scale per matrix or channel");
  }

  bool holds(const std::string& module) const override {
    const FileTensor* t = checkpoint_.find(module + ".weight");
    return t && t->type == FileType::f8;
  }

  bool fp8_activations(const std::string&) const override { return true; }  // what the method is

  QuantMatrix matrix(const std::string& module, int64_t n, int64_t k) const override {
    refuse_listed(skip_, module, skip_key_);
    ModuleTensors t(checkpoint_, module);
    const FileTensor& weight = t.need("weight", {FileType::f8}, {n, k});
    QuantMatrix m;
    if (const FileTensor* inverse = t.find("weight_scale_inv")) {
      if (bn_) {
        t.check(*inverse, float_types, {group_count(n, bn_), group_count(k, bk_)});
        m = f8_matrix(weight, *inverse, bn_, bk_, n, k, block_key_);
      } else {
        m = whole(t, weight, *inverse, n, k);
      }
    } else if (const FileTensor* scale = t.find("weight_scale")) {
      m = whole(t, weight, *scale, n, k);
    } else {
      fail(Status::bad_format, tensor_place(weight),
           ": neither weight_scale_inv nor weight_scale is there for it");
    }
    m.tensors = t.take();
    return m;
  }

 private:
  static QuantMatrix whole(ModuleTensors& t, const FileTensor& weight, const FileTensor& scale,
                           int64_t n, int64_t k) {
    if (scale.shape.empty()) {
      t.check(scale, float_types, {});
    } else if (scale.shape.size() == 1 && scale.shape[0] == 1) {
      t.check(scale, float_types, {1});
    } else if (scale.shape.size() == 2) {
      t.check(scale, float_types, {n, 1});
      return f8_matrix(weight, scale, 1, k, n, k, "");
    } else {
      t.check(scale, float_types, {n});
      return f8_matrix(weight, scale, 1, k, n, k, "");
    }
    return f8_matrix(weight, scale, n, k, n, k, "");
  }

  int64_t bn_ = 0, bk_ = 0;  // 0: no blocks
  std::string block_key_, skip_key_;
  const Json* skip_ = nullptr;
};

}  // namespace

std::unique_ptr<QuantScheme> open_fp8(const Checkpoint& checkpoint, const Keys& keys) {
  return std::make_unique<Fp8>(checkpoint, keys);
}

}  // namespace orlop
