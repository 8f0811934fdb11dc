#include "format/quant.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "format/quant_tensors.h"
#include "format/safetensors.h"

namespace orlop {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

class F8Rows final : public QuantRows {
 public:
  F8Rows(const FileTensor& weight, const FileTensor& scale, int64_t bn, int64_t k, int64_t groups)
      : weight_(weight), scale_(scale), bn_(bn), k_(k), groups_(groups) {}
  void row(int64_t r, uint8_t* code, float* scale, float*) const override {
    std::memcpy(code, weight_.data.data() + r * k_, static_cast<size_t>(k_));
    for (int64_t i = 0; i < k_; ++i)
      if ((code[i] & 0x7f) == 0x7f)
        fail(Status::bad_format, tensor_place(weight_), ": element ", i, " of row ", r, " is NaN");
    for (int64_t g = 0; g < groups_; ++g) scale[g] = scale_element(scale_, r / bn_ * groups_ + g);
  }

 private:
  const FileTensor& weight_;
  const FileTensor& scale_;
  const int64_t bn_, k_, groups_;
};

}  // namespace

float scale_element(const FileTensor& t, int64_t i) {
  const float v = float_element(t, i);
  if (!(std::fabs(v) <= 3.402823466e38f))
    fail(Status::bad_format, tensor_place(t), ": element ", i, " is ", v, ", no finite scale");
  return v;
}

const FileTensor* ModuleTensors::find(const char* suffix) {
  const FileTensor* t = checkpoint_.find(cat(module_, ".", suffix));
  if (t) used_.push_back(t);
  return t;
}

const FileTensor& ModuleTensors::need(const char* suffix, std::initializer_list<FileType> types,
                                      std::initializer_list<int64_t> shape) {
  const FileTensor* t = find(suffix);
  if (!t)
    fail(Status::bad_format, checkpoint_.path, ": tensor ", module_, ".", suffix, " is missing");
  check(*t, types, shape);
  return *t;
}

void ModuleTensors::check(const FileTensor& t, std::initializer_list<FileType> types,
                          std::initializer_list<int64_t> shape) const {
  if (std::find(types.begin(), types.end(), t.type) == types.end()) {
    std::string wanted;
    for (const FileType type : types) wanted += cat(wanted.empty() ? "" : " or ", info(type).name);
    fail(Status::bad_format, tensor_place(t), " is of type ", info(t.type).name, ", ", wanted,
         " is needed");
  }
  if (!std::equal(shape.begin(), shape.end(), t.shape.begin(), t.shape.end()))
    fail(Status::bad_format, tensor_place(t), " has shape ", shape_text(t.shape), ", ",
         shape_text({shape.begin(), shape.size()}), " is what the configuration asks for");
}

int32_t kernel_group(int64_t group, int64_t k, const std::string& key) {
  if (group >= k) return 0;
  if (group % 32 != 0)
    fail(Status::unsupported, key, " is ", group, ", multiples of 32 are supported");
  return checked_cast<int32_t>(group, key.c_str());
}

std::vector<int32_t> order_of_groups(const FileTensor& t, int64_t k, int64_t group) {
  const int64_t groups = group_count(k, group);
  std::vector<int64_t> at(static_cast<size_t>(groups), 0);  // members, then the next free place
  bool in_order = true;
  for (int64_t i = 0; i < k; ++i) {
    const uint32_t g = word_at(t, i);
    if (g >= static_cast<uint64_t>(groups))
      fail(Status::bad_format, tensor_place(t), ": element ", i, " names group ",
           static_cast<int32_t>(g), ", there are ", groups);
    ++at[g];
    in_order = in_order && g == static_cast<uint64_t>(i / group);
  }
  if (in_order) return {};
  int64_t begin = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t members = at[static_cast<size_t>(g)];
    if (members != std::min(group, k - g * group))
      fail(Status::unsupported, tensor_place(t), ": group ", g, " has ", members,
           " elements, groups of ", group, " are supported");
    at[static_cast<size_t>(g)] = begin;
    begin += members;
  }
  std::vector<int32_t> order(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i)
    order[static_cast<size_t>(at[word_at(t, i)]++)] = static_cast<int32_t>(i);
  return order;
}

const Json* name_list(const Keys& keys, const char* key) {
  const Json* list = keys.find(key);
  if (!list) return nullptr;
  if (!list->is_array()) keys.wrong(*list, key, "a list of strings");
  for (const Json& name : *list)
    if (!name.is_string()) keys.wrong(*list, key, "a list of strings");
  return list;
}

void refuse_listed(const Json* list, const std::string& module, const std::string& where) {
  if (!list) return;
  for (const Json& name : *list)
    if (name.get_ref<const std::string&>() == module)
      fail(Status::bad_format, where, " names ", module, ", but its tensors are quantized");
}

QuantMatrix f8_matrix(const FileTensor& weight, const FileTensor& scale, int64_t bn, int64_t bk,
                      int64_t n, int64_t k, const std::string& key) {
  QuantMatrix m;
  m.type = FileType::f8;
  m.group = kernel_group(bk, k, key);
  const int64_t groups = group_count(k, bk);
  // n is the caller's: rows of [0, n) read scales of [0, ceil(n / bn)).
  if (static_cast<uint64_t>(group_count(n, bn)) * static_cast<uint64_t>(groups) *
          info(scale.type).block_bytes !=
      scale.data.size())
    fail(Status::bad_format, tensor_place(scale), " has ", scale.data.size(),
         " bytes for blocks of ", bn, " x ", bk, " of a matrix of ", n, " x ", k);
  m.rows = std::make_unique<F8Rows>(weight, scale, bn, k, groups);
  return m;
}

bool QuantScheme::is_idle(std::string_view tensor) {
  static constexpr std::array<std::string_view, 2> endings = {".input_scale", ".input_zero_point"};
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view e) { return tensor.ends_with(e); });
}

std::unique_ptr<QuantScheme> QuantScheme::open(const Checkpoint& checkpoint) {
  if (checkpoint.kind != Checkpoint::Kind::hugging_face || !checkpoint.config.is_object())
    return nullptr;
  const std::string file = cat(checkpoint.path, "/config.json");
  const Keys config(checkpoint.config, file);
  const Json* object = nullptr;
  std::string name;
  for (const char* key : {"quantization_config", "compression_config"}) {
    object = config.find(key);
    name = key;
    if (object) break;
  }
  if (!object) return nullptr;
  if (!object->is_object()) config.wrong(*object, name.c_str(), "an object");
  const Keys keys(*object, file, name + ".");
  const std::string method = keys.text("quant_method", "");
  if (method == "gptq") return open_gptq(checkpoint, keys);
  if (method == "awq") return open_awq(checkpoint, keys);
  if (method == "fp8") return open_fp8(checkpoint, keys);
  if (method == "compressed-tensors") return open_compressed(checkpoint, keys);
  if (method.empty()) keys.missing("quant_method");
  fail(Status::unsupported, keys.name("quant_method"), " \"", printable(method),
       "\" is not supported; gptq, awq, fp8 and compressed-tensors are");
}

}  // namespace orlop
