// compressed-tensors checkpoints (compressed-tensors 0.20: compressors/,
// quantization/quant_args.py). pack-quantized: weight_packed [n, ceil(k * bits / 32)], codes code +
// 2^(bits-1) without gaps along
//   k; weight_zero_point of int8, or packed the same way along n; weight_g_idx [k].
// int-quantized, naive-quantized: weight in int8; float-quantized: weight in e4m3.
// weight_scale [n, groups], [n, 1], [1], or one for each block. weight = scale * (code - zero
// point).
#include <algorithm>
#include <map>
#include <optional>

#include "base/checked.h"
#include "base/error.h"
#include "format/quant_tensors.h"
#include "format/safetensors.h"

namespace orlop {
namespace {

// One config group: how weights are quantized and which modules.
struct Group {
  int bits = 8;
  bool floats = false, symmetric = true, int8_activations = false, fp8_activations = false, act_order = false;
  enum class Strategy { tensor, channel, group, block } strategy = Strategy::tensor;
  int64_t size = 0, bn = 0, bk = 0;
  std::string key;  // "FILE: quantization_config.config_groups.NAME."
  std::vector<std::string> targets;
};

class IntRows final : public QuantRows {
 public:
  FileType type = FileType::w8;
  const FileTensor *codes = nullptr, *scales = nullptr, *zeros = nullptr, *g_idx = nullptr;
  bool packed = true, packed_zeros = false, one_scale = false;
  int bits = 8;
  int64_t n = 0, k = 0, group = 0, groups = 0;

  // As signed numbers.
  int zero(int64_t g, int64_t r) const {
    if (!zeros) return 0;
    if (packed_zeros)
      return static_cast<int>(
                 code_at(r, bits, [&](int64_t i) { return word_at(*zeros, i * groups + g); })) -
             (1 << (bits - 1));
    const int z =
        static_cast<int8_t>(zeros->data[static_cast<size_t>(one_scale ? 0 : r * groups + g)]);
    if (z < -(1 << (bits - 1)) || z >= 1 << (bits - 1))
      fail(Status::bad_format, tensor_place(*zeros), " holds ", z, ", no zero point of ", bits,
           " bits");
    return z;
  }

  void row(int64_t r, uint8_t* code, float* scale, float* min) const override {
    std::vector<uint8_t> filed;
    uint8_t* to = code;
    if (g_idx) {
      filed.resize(static_cast<size_t>(k));
      to = filed.data();
    }
    if (packed) {
      const int64_t words = (k * bits + 31) / 32;
      unpack_codes(
          k, bits, [&](int64_t i) { return word_at(*codes, r * words + i); }, to);
    } else {
      for (int64_t i = 0; i < k; ++i)  // int8 + 128
        to[i] = static_cast<uint8_t>(codes->data[static_cast<size_t>(r * k + i)]) ^ 0x80;
    }
    if (g_idx) {
      std::vector<int64_t> at(static_cast<size_t>(groups));
      for (int64_t g = 0; g < groups; ++g) at[static_cast<size_t>(g)] = g * group;
      for (int64_t i = 0; i < k; ++i)
        code[at[word_at(*g_idx, i)]++] = filed[static_cast<size_t>(i)];
    }
    const int middle = packed ? 1 << (bits - 1) : 128;
    const int kernel_middle = type == FileType::w4 ? 8 : 128;
    for (int64_t g = 0; g < groups; ++g) {
      scale[g] = scale_element(*scales, one_scale ? 0 : r * groups + g);
      const int z = zero(g, r);
      if (type == FileType::w4z || type == FileType::w8z) {
        min[g] = -scale[g] * static_cast<float>(middle + z);
      } else if (const int shift = kernel_middle - middle - z) {
        const int64_t end = std::min(k, (g + 1) * group);
        for (int64_t i = g * group; i < end; ++i) code[i] = static_cast<uint8_t>(code[i] + shift);
      }
    }
  }
};

class Compressed final : public QuantScheme {
 public:
  Compressed(const Checkpoint& checkpoint, const Keys& keys)
      : QuantScheme(checkpoint, "compressed-tensors") {
    if (const std::string status = keys.text("quantization_status", "compressed");
        status != "compressed")
      fail(Status::unsupported, keys.name("quantization_status"), " \"", printable(status),
           "\" is not supported; compressed is");
    for (const char* key : {"kv_cache_scheme", "transform_config"})
      if (const Json* v = keys.find(key); v && !v->empty())
        fail(Status::unsupported, keys.name(key), " is ", Keys::show(*v),
             ", which is not supported");
    if (const Json* v = keys.find("sparsity_config"); v && !v->empty()) {
      if (!v->is_object()) keys.wrong(*v, "sparsity_config", "an object");
      const Keys sparsity = keys.inside(*v, "sparsity_config");
      if (const std::string f = sparsity.text("format", "dense"); f != "dense")
        fail(Status::unsupported, sparsity.name("format"), " \"", printable(f),
             "\" is not supported; dense is");
    }
    ignore_ = name_list(keys, "ignore");
    ignore_key_ = keys.name("ignore");
    check_format(keys);

    const Json* groups = keys.find("config_groups");
    if (!groups) keys.missing("config_groups");
    if (!groups->is_object() || groups->empty())
      keys.wrong(*groups, "config_groups", "an object of at least one group");
    if (groups->size() > 64)
      fail(Status::unsupported, keys.name("config_groups"), " has ", groups->size(),
           " groups, at most 64 are supported");
    for (const auto& [name, object] : groups->items()) {
      if (!object.is_object()) keys.wrong(object, "config_groups", "an object of objects");
      groups_.push_back(read_group(keys.inside(object, cat("config_groups.", printable(name)))));
    }
    const Group& g = groups_[0];
    summary_ = cat("compressed-tensors, ", g.floats ? "fp8 e4m3" : cat("int", g.bits), ", ",
                   g.strategy == Group::Strategy::group     ? cat("groups of ", g.size)
                   : g.strategy == Group::Strategy::block   ? cat("blocks of ", g.bn, " x ", g.bk)
                   : g.strategy == Group::Strategy::channel ? "a scale per channel"
                                                            : "a scale per matrix",
                   g.symmetric ? ", symmetric" : ", asymmetric",
                   g.int8_activations  ? ", int8 activations"
                   : g.fp8_activations ? ", fp8 activations"
                                       : "",
                   groups_.size() > 1 ? cat(", and ", groups_.size() - 1, " other groups") : "");
    for (const Group& each : groups_)
      int8_activations_ = int8_activations_ || each.int8_activations;
  }

  bool holds(const std::string& module) const override {
    if (checkpoint_.find(module + ".weight_packed")) return true;
    const FileTensor* t = checkpoint_.find(module + ".weight");
    return t && (t->type == FileType::int8 || t->type == FileType::f8);
  }

  bool fp8_activations(const std::string& module) const override {
    return group_of(module).fp8_activations;
  }

  QuantMatrix matrix(const std::string& module, int64_t n, int64_t k) const override {
    refuse_listed(ignore_, module, ignore_key_);
    const Group& g = group_of(module);
    ModuleTensors t(checkpoint_, module);
    return g.floats ? float_matrix(g, t, n, k) : int_matrix(g, t, module, n, k);
  }

 private:
  static void check_format(const Keys& keys) {
    const std::string format = keys.text("format", "");
    for (const char* known : {"", "pack-quantized", "int-quantized", "float-quantized",
                              "naive-quantized", "mixed-precision"})
      if (format == known) return;
    fail(Status::unsupported, keys.name("format"), " \"", printable(format),
         "\" is not supported; pack-quantized, int-quantized, float-quantized and naive-quantized "
         "are");
  }

  static Group read_group(const Keys& k) {
    Group g;
    g.key = k.name("");
    check_format(k);
    if (const Json* targets = name_list(k, "targets"))
      for (const Json& t : *targets) g.targets.push_back(t.get<std::string>());
    if (const Json* v = k.find("output_activations"); v && !v->empty())
      fail(Status::unsupported, k.name("output_activations"), " is ", Keys::show(*v),
           ", which is not supported");
    const Json* weights = k.find("weights");
    if (!weights) k.missing("weights");
    if (!weights->is_object()) k.wrong(*weights, "weights", "an object");
    const Keys w = k.inside(*weights, "weights");
    const std::string type = w.text("type", "int");
    if (type != "int" && type != "float")
      fail(Status::unsupported, w.name("type"), " \"", printable(type),
           "\" is not supported; int and float are");
    g.floats = type == "float";
    g.bits = static_cast<int>(w.integer("num_bits", 1, 64, 8));
    if (g.floats ? g.bits != 8 : g.bits < 2 || g.bits > 8)
      fail(Status::unsupported, w.name("num_bits"), " is ", g.bits, " for type ", type, "; ",
           g.floats ? "8 is supported" : "2 to 8 are supported");
    g.symmetric = w.boolean("symmetric", true);
    if (g.floats && !g.symmetric)
      fail(Status::unsupported, w.name("symmetric"), " is false for floats");
    if (w.find("dynamic") && *w.find("dynamic") != false)
      fail(Status::unsupported, w.name("dynamic"), " is ", Keys::show(*w.find("dynamic")),
           ", which is not supported");
    if (const Json* order = w.find("actorder"))
      g.act_order = *order == "group" || *order == "dynamic" || *order == true;
    read_strategy(w, g);

    if (const Json* v = k.find("input_activations"); v && !v->empty()) {
      if (!v->is_object()) k.wrong(*v, "input_activations", "an object");
      const Keys a = k.inside(*v, "input_activations");
      const std::string kind = a.text("type", "int");
      const int64_t bits = a.integer("num_bits", 1, 64, 8);
      // 16 bits: nothing is rounded that we would keep. Floats of 8 bits: computed finer here.
      if (bits != 8 && bits != 16)
        fail(Status::unsupported, a.name("num_bits"), " is ", bits, "; 8 and 16 are supported");
      g.int8_activations = kind == "int" && bits == 8 && !g.floats;
      g.fp8_activations = kind == "float" && bits == 8 && g.floats;
      if (g.int8_activations) check_activations(a);
    }
    return g;
  }

  // Scales are made as tokens come, around zero, whatever was calibrated for tensors.
  static void check_activations(const Keys& a) {
    if (!a.boolean("symmetric", true))
      fail(Status::unsupported, a.name("symmetric"),
           " is false; symmetric activations are supported");
    const std::string by = a.text("strategy", "token");
    if (by != "token" && by != "tensor")
      fail(Status::unsupported, a.name("strategy"), " is \"", printable(by),
           "\"; token and tensor are supported");
  }

  static void read_strategy(const Keys& w, Group& g) {
    using S = Group::Strategy;
    const int64_t size = w.integer("group_size", -1, INT32_MAX, 0);
    std::string strategy = w.text("strategy", "");
    if (strategy.empty()) strategy = size > 0 ? "group" : size < 0 ? "channel" : "tensor";
    if (strategy == "tensor") {
      g.strategy = S::tensor;
    } else if (strategy == "channel") {
      g.strategy = S::channel;
    } else if (strategy == "group") {
      g.strategy = S::group;
      if (size < 1) fail(Status::bad_format, w.name("group_size"), " is ", size, " with groups");
      g.size = size;
    } else if (strategy == "block") {
      g.strategy = S::block;
      const Json* block = w.find("block_structure");
      if (!block) w.missing("block_structure");
      if (!block->is_array() || block->size() != 2)
        w.wrong(*block, "block_structure", "a pair of numbers");
      g.bn = w.integer_of((*block)[0], "block_structure", 1, INT32_MAX);
      g.bk = w.integer_of((*block)[1], "block_structure", 1, INT32_MAX);
    } else {
      fail(Status::unsupported, w.name("strategy"), " \"", printable(strategy),
           "\" is not supported; tensor, channel, group and block are");
    }
  }

  // The first group of several that names the module; "Linear" is every matrix.
  const Group& group_of(const std::string& module) const {
    if (groups_.size() == 1) return groups_[0];
    for (const Group& g : groups_)
      for (const std::string& target : g.targets) {
        if (target.starts_with("re:"))
          fail(Status::unsupported, g.key, "targets holds \"", printable(target),
               "\": patterns are supported in files with one group only");
        if (target == module || target == "Linear") return g;
      }
    fail(Status::bad_format, checkpoint_.path, ": ", module,
         " is quantized, but no group of config_groups names it");
  }

  static QuantMatrix float_matrix(const Group& g, ModuleTensors& t, int64_t n, int64_t k) {
    const FileTensor& weight = t.need("weight", {FileType::f8}, {n, k});
    using S = Group::Strategy;
    QuantMatrix m;
    if (g.strategy == S::block) {
      const FileTensor& scale =
          t.need("weight_scale", float_types, {group_count(n, g.bn), group_count(k, g.bk)});
      m = f8_matrix(weight, scale, g.bn, g.bk, n, k, g.key + "weights.block_structure");
    } else if (g.strategy == S::group) {
      const FileTensor& scale = t.need("weight_scale", float_types, {n, group_count(k, g.size)});
      m = f8_matrix(weight, scale, 1, g.size, n, k, g.key + "weights.group_size");
    } else if (g.strategy == S::channel) {
      m = f8_matrix(weight, t.need("weight_scale", float_types, {n, 1}), 1, k, n, k, "");
    } else {
      m = f8_matrix(weight, one_scale(t), n, k, n, k, "");
    }
    m.tensors = t.take();
    return m;
  }

  static const FileTensor& one_scale(ModuleTensors& t) {
    const FileTensor* scale = t.find("weight_scale");
    if (!scale || !scale->shape.empty()) return t.need("weight_scale", float_types, {1});
    t.check(*scale, float_types, {});
    return *scale;
  }

  QuantMatrix int_matrix(const Group& g, ModuleTensors& t, const std::string& module, int64_t n,
                         int64_t k) const {
    using S = Group::Strategy;
    if (g.strategy == S::block)
      fail(Status::unsupported, g.key, "weights.strategy \"block\" is not supported for integers");
    const int64_t group = g.strategy == S::group ? g.size : k;
    const int64_t groups = group_count(k, group);
    auto rows = std::make_unique<IntRows>();
    rows->n = n;
    rows->k = k;
    rows->group = group;
    rows->groups = groups;
    rows->bits = g.bits;
    rows->one_scale = g.strategy == S::tensor;
    rows->packed = checkpoint_.find(module + ".weight_packed") != nullptr;
    if (rows->packed) {
      const int64_t bits = checked_mul<int64_t>(k, g.bits, "weight_packed");
      rows->codes = &t.need("weight_packed", {FileType::int32}, {n, (bits + 31) / 32});
      check_shape(t, n, k);
    } else {
      rows->codes = &t.need("weight", {FileType::int8}, {n, k});
    }
    rows->scales =
        rows->one_scale ? &one_scale(t) : &t.need("weight_scale", float_types, {n, groups});
    if (const FileTensor* zeros = t.find("weight_zero_point"); zeros && !g.symmetric) {
      rows->zeros = zeros;
      rows->packed_zeros = zeros->type == FileType::int32;
      if (rows->packed_zeros) {
        const int64_t bits = checked_mul<int64_t>(n, g.bits, "weight_zero_point");
        t.check(*zeros, {FileType::int32}, {(bits + 31) / 32, groups});
      } else if (rows->one_scale && zeros->shape.empty()) {
        t.check(*zeros, {FileType::int8}, {});
      } else if (rows->one_scale) {
        t.check(*zeros, {FileType::int8}, {1});
      } else {
        t.check(*zeros, {FileType::int8}, {n, groups});
      }
      if (rows->one_scale && rows->packed_zeros)
        fail(Status::unsupported, tensor_place(*zeros), ": packed zero points of a whole matrix");
    } else if (!g.symmetric) {
      fail(Status::bad_format, checkpoint_.path, ": tensor ", module,
           ".weight_zero_point is missing, symmetric is false");
    }

    QuantMatrix m;
    m.group = kernel_group(group, k, g.key + "weights.group_size");
    if (const FileTensor* g_idx = t.find("weight_g_idx")) {
      t.check(*g_idx, {FileType::int32}, {k});
      m.k_map = order_of_groups(*g_idx, k, group);
      if (!m.k_map.empty()) rows->g_idx = g_idx;
    } else if (g.act_order && groups > 1) {
      fail(Status::bad_format, checkpoint_.path, ": tensor ", module,
           ".weight_g_idx is missing, actorder needs it");
    }
    // Differences of a code and a zero point fit a code of the next wider kernel type, if there is
    // one; not so those of 4 and 8 bits.
    const bool narrow = rows->packed && g.bits <= 4;
    const bool off_centre = rows->zeros && (rows->packed ? g.bits == 4 || g.bits == 8 : true);
    rows->type = narrow ? (off_centre ? FileType::w4z : FileType::w4)
                        : (off_centre ? FileType::w8z : FileType::w8);
    m.type = rows->type;
    m.rows = std::move(rows);
    m.tensors = t.take();
    return m;
  }

  // weight_shape repeats n and k.
  static void check_shape(ModuleTensors& t, int64_t n, int64_t k) {
    const FileTensor* shape = t.find("weight_shape");
    if (!shape) return;
    t.check(*shape, {FileType::int64, FileType::int32}, {2});
    const auto at = [&](int64_t i) {
      if (shape->type == FileType::int32)
        return static_cast<int64_t>(static_cast<int32_t>(word_at(*shape, i)));
      int64_t v;
      std::memcpy(&v, shape->data.data() + 8 * i, 8);
      return v;
    };
    if (at(0) != n || at(1) != k)
      fail(Status::bad_format, tensor_place(*shape), " is [", at(0), ", ", at(1),
           "], the configuration asks for [", n, ", ", k, "]");
  }

  std::vector<Group> groups_;
  const Json* ignore_ = nullptr;
  std::string ignore_key_;
};

}  // namespace

std::unique_ptr<QuantScheme> open_compressed(const Checkpoint& checkpoint, const Keys& keys) {
  return std::make_unique<Compressed>(checkpoint, keys);
}

}  // namespace orlop
