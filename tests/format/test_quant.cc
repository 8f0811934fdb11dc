// Readers of quantized checkpoints, on matrices packed here bit by bit from the layouts as
// published (the packers' own files are tests/model/test_quant.cc's).
#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "../check.h"
#include "base/error.h"
#include "base/half.h"
#include "format/quant.h"
#include "format/quant_tensors.h"

using namespace orlop;

namespace {

struct Folder {
  Checkpoint c;
  std::deque<std::vector<std::byte>> bytes;

  explicit Folder(Json quantization) {
    c.kind = Checkpoint::Kind::hugging_face;
    c.path = "models/q";
    c.config = Json{{"quantization_config", std::move(quantization)}};
  }
  template <class T>
  Folder& add(const std::string& name, FileType type, std::vector<int64_t> shape,
              const std::vector<T>& values) {
    auto& to = bytes.emplace_back(values.size() * sizeof(T));
    std::memcpy(to.data(), values.data(), to.size());
    const auto found = c.index.find(name);
    if (found == c.index.end()) {
      c.index.emplace(name, c.tensors.size());
      c.tensors.push_back({name, type, std::move(shape), to, nullptr});
    } else {
      c.tensors[found->second] = {name, type, std::move(shape), to, nullptr};
    }
    return *this;
  }
  QuantMatrix matrix(int64_t n, int64_t k) const {
    const auto scheme = QuantScheme::open(c);
    CHECK(scheme && scheme->holds("m"));
    return scheme->matrix("m", n, k);
  }
};

// Bit `bit` of a stream of words gets the bits of `code`.
void put(std::vector<uint32_t>& words, size_t stride, size_t offset, int64_t index, int bits,
         uint32_t code) {
  for (int b = 0; b < bits; ++b) {
    const int64_t bit = index * bits + b;
    words[offset + static_cast<size_t>(bit / 32) * stride] |= (code >> b & 1) << (bit % 32);
  }
}

// A quantized matrix in plain numbers.
struct Plain {
  int64_t n, k, group, groups;
  int bits;
  std::vector<uint32_t> code, zero;  // [n, k], [n, groups]
  std::vector<float> scale;          // [n, groups], float16 values
  std::vector<int32_t> g_idx;        // [k]

  Plain(std::mt19937& random, int64_t n_, int64_t k_, int64_t group_, int bits_, bool symmetric,
        bool mixed)
      : n(n_), k(k_), group(group_), groups((k_ + group_ - 1) / group_), bits(bits_) {
    const uint32_t top = (1u << bits) - 1;
    for (int64_t i = 0; i < n * k; ++i) code.push_back(static_cast<uint32_t>(random()) & top);
    for (int64_t i = 0; i < n * groups; ++i) {
      zero.push_back(symmetric ? 1u << (bits - 1) : static_cast<uint32_t>(random()) & top);
      scale.push_back(f16_to_f32(f32_to_f16(static_cast<float>(random() % 1000 + 1) * 1e-4f *
                                            (random() % 8 ? 1.0f : -1.0f))));
    }
    for (int64_t i = 0; i < k; ++i) g_idx.push_back(static_cast<int32_t>(i / group));
    if (mixed) std::shuffle(g_idx.begin(), g_idx.end(), random);
  }
  float weight(int64_t r, int64_t i) const {
    const int64_t g = r * groups + g_idx[static_cast<size_t>(i)];
    return scale[static_cast<size_t>(g)] *
           (static_cast<float>(code[static_cast<size_t>(r * k + i)]) -
            static_cast<float>(zero[static_cast<size_t>(g)]));
  }
  std::vector<uint16_t> halves(bool transposed) const {
    std::vector<uint16_t> h(scale.size());
    for (int64_t r = 0; r < n; ++r)
      for (int64_t g = 0; g < groups; ++g)
        h[static_cast<size_t>(transposed ? g * n + r : r * groups + g)] =
            f32_to_f16(scale[static_cast<size_t>(r * groups + g)]);
    return h;
  }
  // Codes along k (or zero points along n) in words, transposed as GPTQ has them.
  Folder gptq(bool v1, bool act_order) const {
    Folder f({{"quant_method", "gptq"},
              {"bits", bits},
              {"group_size", group == k ? -1 : group},
              {"desc_act", act_order},
              {"checkpoint_format", v1 ? "gptq" : "gptq_v2"}});
    std::vector<uint32_t> codes(static_cast<size_t>(k * bits / 32 * n));
    const auto words = static_cast<size_t>(n * bits / 32);
    std::vector<uint32_t> zeros(words * static_cast<size_t>(groups));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < k; ++i)
        put(codes, static_cast<size_t>(n), static_cast<size_t>(r), i, bits,
            code[static_cast<size_t>(r * k + i)]);
      for (int64_t g = 0; g < groups; ++g)
        put(zeros, 1, static_cast<size_t>(g) * words, r, bits,
            zero[static_cast<size_t>(r * groups + g)] - (v1 ? 1 : 0));
    }
    f.add("m.qweight", FileType::int32, {k * bits / 32, n}, codes);
    f.add("m.qzeros", FileType::int32, {groups, n * bits / 32}, zeros);
    f.add("m.scales", FileType::f16, {groups, n}, halves(true));
    if (act_order) f.add("m.g_idx", FileType::int32, {k}, g_idx);
    return f;
  }
  Folder awq() const {
    Folder f({{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"version", "GEMM"}});
    constexpr int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    std::vector<uint32_t> codes(static_cast<size_t>(k * n / 8)),
        zeros(static_cast<size_t>(groups * n / 8));
    for (int64_t j = 0; j < n / 8; ++j)
      for (int nibble = 0; nibble < 8; ++nibble) {
        const int64_t r = 8 * j + order[nibble];
        for (int64_t i = 0; i < k; ++i)
          codes[static_cast<size_t>(i * n / 8 + j)] |= code[static_cast<size_t>(r * k + i)]
                                                       << (4 * nibble);
        for (int64_t g = 0; g < groups; ++g)
          zeros[static_cast<size_t>(g * n / 8 + j)] |= zero[static_cast<size_t>(r * groups + g)]
                                                       << (4 * nibble);
      }
    f.add("m.qweight", FileType::int32, {k, n / 8}, codes);
    f.add("m.qzeros", FileType::int32, {groups, n / 8}, zeros);
    f.add("m.scales", FileType::f16, {groups, n}, halves(true));
    return f;
  }
  static Json group_json(int bits, bool symmetric, int64_t group, bool channel) {
    Json w = {{"num_bits", bits},
              {"type", "int"},
              {"symmetric", symmetric},
              {"strategy", channel ? "channel" : "group"}};
    if (!channel) w["group_size"] = group;
    return {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", w}}}}}};
  }
  Folder packed(bool symmetric, bool act_order, bool packed_zeros) const {
    Folder f(group_json(bits, symmetric, group, group == k));
    const auto words = static_cast<size_t>((k * bits + 31) / 32);
    std::vector<uint32_t> codes(words * static_cast<size_t>(n));
    std::vector<uint32_t> zeros(static_cast<size_t>((n * bits + 31) / 32 * groups));
    std::vector<int8_t> plain_zeros(static_cast<size_t>(n * groups));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < k; ++i)
        put(codes, 1, static_cast<size_t>(r) * words, i, bits,
            code[static_cast<size_t>(r * k + i)]);
      for (int64_t g = 0; g < groups; ++g) {
        const uint32_t z = zero[static_cast<size_t>(r * groups + g)];
        put(zeros, static_cast<size_t>(groups), static_cast<size_t>(g), r, bits, z);
        plain_zeros[static_cast<size_t>(r * groups + g)] =
            static_cast<int8_t>(static_cast<int>(z) - (1 << (bits - 1)));
      }
    }
    f.add("m.weight_packed", FileType::int32, {n, static_cast<int64_t>(words)}, codes);
    f.add("m.weight_scale", FileType::f16, {n, groups}, halves(false));
    f.add("m.weight_shape", FileType::int64, {2}, std::vector<int64_t>{n, k});
    if (act_order) f.add("m.weight_g_idx", FileType::int32, {k}, g_idx);
    if (symmetric) return f;
    if (packed_zeros)
      f.add("m.weight_zero_point", FileType::int32, {(n * bits + 31) / 32, groups}, zeros);
    else
      f.add("m.weight_zero_point", FileType::int8, {n, groups}, plain_zeros);
    return f;
  }
};

float value(FileType type, int code, float scale, float min) {
  switch (type) {
    case FileType::w4:
      return scale * static_cast<float>(code - 8);
    case FileType::w8:
      return scale * static_cast<float>(code - 128);
    default:
      return scale * static_cast<float>(code) + min;
  }
}

// Every weight of the matrix as the kernels would read it.
void check(const Plain& p, const QuantMatrix& m) {
  const int64_t group = m.group ? m.group : p.k;
  CHECK(group == (p.group >= p.k ? p.k : p.group));
  CHECK(m.k_map.empty() || m.k_map.size() == static_cast<size_t>(p.k));
  const int top = m.type == FileType::w4 || m.type == FileType::w4z ? 15 : 255;
  std::vector<uint8_t> code(static_cast<size_t>(p.k));
  std::vector<float> scale(static_cast<size_t>(p.groups)), min(scale.size());
  bool good = true;
  for (int64_t r = 0; r < p.n; ++r) {
    m.rows->row(r, code.data(), scale.data(), min.data());
    for (int64_t i = 0; i < p.k; ++i) {
      const int64_t at = m.k_map.empty() ? i : m.k_map[static_cast<size_t>(i)];
      const size_t g = static_cast<size_t>(i / group);
      const float v = value(m.type, code[static_cast<size_t>(i)], scale[g], min[g]);
      const float tolerance = std::fabs(scale[g]) * (min[g] != 0 ? 3e-5f : 0.0f);
      good = good && code[static_cast<size_t>(i)] <= top &&
             std::fabs(v - p.weight(r, at)) <= tolerance;
    }
  }
  CHECK(good);
}

Folder good_gptq(std::mt19937& random) {
  return Plain(random, 32, 64, 32, 4, false, true).gptq(true, true);
}

}  // namespace

TEST(gptq) {
  std::mt19937 random(1);
  for (const int bits : {2, 3, 4, 8})
    for (const bool v1 : {true, false})
      for (const bool symmetric : {true, false})
        for (const int64_t group : {32, 64, 128, 192}) {
          const bool mixed = random() % 2;
          const Plain p(random, 32 * (1 + random() % 3), 192, group, bits, symmetric, mixed);
          const Folder f = p.gptq(v1, mixed);
          const QuantMatrix m = f.matrix(p.n, p.k);
          CHECK(m.type == (bits < 4    ? FileType::w4
                           : symmetric ? (bits == 4 ? FileType::w4 : FileType::w8)
                                       : (bits == 4 ? FileType::w4z : FileType::w8z)));
          check(p, m);
        }
}

TEST(awq) {
  std::mt19937 random(2);
  for (const int64_t group : {32, 64, 128})
    for (const bool symmetric : {false, true}) {
      const Plain p(random, 8 * (1 + random() % 9), 128, group, 4, symmetric, false);
      const Folder f = p.awq();
      const QuantMatrix m = f.matrix(p.n, p.k);
      CHECK(m.type == (symmetric ? FileType::w4 : FileType::w4z));
      check(p, m);
    }
}

TEST(compressed_packed) {
  std::mt19937 random(3);
  for (int bits = 2; bits <= 8; ++bits)
    for (const bool symmetric : {true, false})
      for (const int64_t group : {32, 96, 160}) {
        const bool mixed = group != 160 && random() % 2;
        const Plain p(random, 1 + random() % 40, 160, group, bits, symmetric, mixed);
        const Folder f = p.packed(symmetric, mixed, random() % 2);
        check(p, f.matrix(p.n, p.k));
      }
}

TEST(compressed_int8_and_fp8) {
  std::mt19937 random(4);
  const int64_t n = 5, k = 96;
  std::vector<int8_t> codes(static_cast<size_t>(n * k)), zeros(5);
  for (auto& c : codes) c = static_cast<int8_t>(random());
  for (auto& z : zeros) z = static_cast<int8_t>(random());
  const std::vector<float> scales = {0.5f, 2, -1, 0, 3};
  Json config = Plain::group_json(8, true, 0, true);
  config["format"] = "int-quantized";
  config["config_groups"]["group_0"]["input_activations"] = {
      {"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
  for (const bool symmetric : {true, false}) {
    config["config_groups"]["group_0"]["weights"]["symmetric"] = symmetric;
    Folder f(config);
    f.add("m.weight", FileType::int8, {n, k}, codes);
    f.add("m.weight_scale", FileType::f32, {n, 1}, scales);
    if (!symmetric) f.add("m.weight_zero_point", FileType::int8, {n, 1}, zeros);
    CHECK(QuantScheme::open(f.c)->int8_activations() && !QuantScheme::open(f.c)->fp8_activations("m"));
    const QuantMatrix m = f.matrix(n, k);
    CHECK(m.type == (symmetric ? FileType::w8 : FileType::w8z) && m.group == 0);
    std::vector<uint8_t> code(static_cast<size_t>(k));
    for (int64_t r = 0; r < n; ++r) {
      float scale = 0, min = 0;
      m.rows->row(r, code.data(), &scale, &min);
      for (size_t i = 0; i < code.size(); ++i) {
        const int q = codes[static_cast<size_t>(r * k) + i];
        const int z = symmetric ? 0 : zeros[static_cast<size_t>(r)];
        CHECK(value(m.type, code[i], scale, min) ==
              scales[static_cast<size_t>(r)] * static_cast<float>(q - z));
      }
    }
  }

  config["format"] = "float-quantized";
  config["config_groups"]["group_0"]["weights"] = {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", "channel"}};
  for (const char* type : {"int", "float"}) {
    config["config_groups"]["group_0"]["input_activations"]["type"] = type;
    Folder floats(config);
    CHECK(!QuantScheme::open(floats.c)->int8_activations());
    CHECK(QuantScheme::open(floats.c)->fp8_activations("m") == (std::string(type) == "float"));
    // Of two groups, the module's own counts.
    Json two = config;
    two["config_groups"]["group_0"]["targets"] = {"m"};
    two["config_groups"]["group_1"] = two["config_groups"]["group_0"];
    two["config_groups"]["group_1"]["targets"] = {"other"};
    two["config_groups"]["group_1"].erase("input_activations");
    Folder groups(two);
    CHECK(QuantScheme::open(groups.c)->fp8_activations("m") == (std::string(type) == "float"));
    CHECK(!QuantScheme::open(groups.c)->fp8_activations("other"));
  }

  Json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {4, 32}}};
  Folder f(fp8);
  std::vector<float> blocks(2 * 3);
  for (float& b : blocks) b = static_cast<float>(random() % 100);
  for (int8_t& c : codes)
    if ((c & 0x7f) == 0x7f) c = 0;
  f.add("m.weight", FileType::f8, {n, k}, codes);
  f.add("m.weight_scale_inv", FileType::f32, {2, 3}, blocks);
  const QuantMatrix m = f.matrix(n, k);
  CHECK(m.type == FileType::f8 && m.group == 32);
  CHECK(QuantScheme::open(f.c)->fp8_activations("m") && !QuantScheme::open(f.c)->int8_activations());
  std::vector<uint8_t> code(static_cast<size_t>(k));
  float scale[3];
  for (int64_t r = 0; r < n; ++r) {
    m.rows->row(r, code.data(), scale, nullptr);
    CHECK(std::memcmp(code.data(), codes.data() + r * k, static_cast<size_t>(k)) == 0);
    for (int64_t g = 0; g < 3; ++g) CHECK(scale[g] == blocks[static_cast<size_t>(r / 4 * 3 + g)]);
  }
  codes[static_cast<size_t>(2 * k) + 7] = 0x7f;
  Folder broken(fp8);
  broken.add("m.weight", FileType::f8, {n, k}, codes);
  broken.add("m.weight_scale_inv", FileType::f32, {2, 3}, blocks);
  CHECK_THROWS(bad_format, "element 7 of row 2 is NaN",
               broken.matrix(n, k).rows->row(2, code.data(), scale, nullptr));
}

TEST(nothing_stated) {
  Folder f(nullptr);
  CHECK(!QuantScheme::open(f.c));
  f.c.kind = Checkpoint::Kind::gguf;
  CHECK(!QuantScheme::open(f.c));
}

TEST(configurations_that_are_refused) {
  const auto open = [](const Json& q) { QuantScheme::open(Folder(q).c); };
  const auto with = [&](Json q, const char* key, const Json& v) {
    q[key] = v;
    open(q);
  };
  CHECK_THROWS(bad_format, "models/q/config.json: quantization_config is 3", open(3));
  CHECK_THROWS(bad_format, "quantization_config.quant_method is missing", open(Json::object()));
  CHECK_THROWS(unsupported, "quant_method \"bitsandbytes\" is not supported; gptq, awq, fp8",
               open({{"quant_method", "bitsandbytes"}}));
  const Json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}};
  open(gptq);
  CHECK_THROWS(unsupported, "quantization_config.bits is 5", with(gptq, "bits", 5));
  CHECK_THROWS(bad_format, "quantization_config.bits is \"4\"", with(gptq, "bits", "4"));
  CHECK_THROWS(bad_format, "group_size is 0", with(gptq, "group_size", 0));
  CHECK_THROWS(bad_format, "group_size is -2", with(gptq, "group_size", -2));
  CHECK_THROWS(unsupported, "checkpoint_format \"marlin\"",
               with(gptq, "checkpoint_format", "marlin"));
  CHECK_THROWS(unsupported, "format \"gptq_p\"", with(gptq, "format", "gptq_p"));
  CHECK_THROWS(unsupported, "is_marlin_format", with(gptq, "is_marlin_format", true));
  CHECK_THROWS(unsupported, "pack_dtype \"int64\"", with(gptq, "pack_dtype", "int64"));
  CHECK_THROWS(unsupported, "dynamic is {", with(gptq, "dynamic", Json{{"-:x", Json::object()}}));
  const Json awq = {{"quant_method", "awq"}, {"bits", 4}};
  open(awq);
  CHECK_THROWS(unsupported, "bits is 8", with(awq, "bits", 8));
  CHECK_THROWS(unsupported, "version \"gemv\"", with(awq, "version", "GEMV"));
  CHECK_THROWS(unsupported, "zero_point is false", with(awq, "zero_point", false));
  CHECK_THROWS(bad_format, "modules_to_not_convert is \"x\"",
               with(awq, "modules_to_not_convert", "x"));
  const Json fp8 = {{"quant_method", "fp8"}};
  open(fp8);
  CHECK_THROWS(unsupported, "fmt \"e5m2\"", with(fp8, "fmt", "e5m2"));
  CHECK_THROWS(bad_format, "weight_block_size is [1]", with(fp8, "weight_block_size", Json{1}));
  const Json ct = Plain::group_json(4, true, 32, false);
  open(ct);
  CHECK_THROWS(unsupported, "format \"nvfp4-pack-quantized\"",
               with(ct, "format", "nvfp4-pack-quantized"));
  CHECK_THROWS(unsupported, "quantization_status \"frozen\"",
               with(ct, "quantization_status", "frozen"));
  CHECK_THROWS(unsupported, "kv_cache_scheme is {",
               with(ct, "kv_cache_scheme", Json{{"num_bits", 8}}));
  CHECK_THROWS(unsupported, "sparsity_config.format \"sparse-bitmask\"",
               with(ct, "sparsity_config", Json{{"format", "sparse-bitmask"}}));
  CHECK_THROWS(bad_format, "config_groups is {}", with(ct, "config_groups", Json::object()));
  const auto weights = [&](const char* key, const Json& v) {
    Json q = ct;
    q["config_groups"]["group_0"]["weights"][key] = v;
    open(q);
  };
  CHECK_THROWS(unsupported, "config_groups.group_0.weights.num_bits is 9", weights("num_bits", 9));
  CHECK_THROWS(unsupported, "weights.type \"fp\"", weights("type", "fp"));
  CHECK_THROWS(unsupported, "weights.strategy \"tensor_group\"",
               weights("strategy", "tensor_group"));
  CHECK_THROWS(bad_format, "weights.group_size is 0", weights("group_size", 0));
  CHECK_THROWS(bad_format, "block_structure is missing", weights("strategy", "block"));
  CHECK_THROWS(unsupported, "weights.dynamic is true", weights("dynamic", true));
  const auto activations = [&](const char* key, const Json& v) {
    Json q = ct;
    q["config_groups"]["group_0"]["input_activations"] = {
        {"num_bits", 8}, {"type", "int"}, {key, v}};
    open(q);
  };
  activations("dynamic", true);
  CHECK_THROWS(unsupported, "input_activations.symmetric is false",
               activations("symmetric", false));
  CHECK_THROWS(unsupported, "input_activations.strategy is \"group\"",
               activations("strategy", "group"));
}

TEST(tensors_that_lie) {
  std::mt19937 random(5);
  const Folder good = good_gptq(random);
  const auto matrix = [](const Folder& f, int64_t n = 32, int64_t k = 64) {
    return f.matrix(n, k);
  };
  matrix(good);
  CHECK_THROWS(bad_format, "tensor m.qweight has shape [8, 32], [12, 32] is what",
               matrix(good, 32, 96));
  CHECK_THROWS(bad_format, "do not fill words", matrix(good, 33, 64));
  {
    Folder f = good_gptq(random);
    f.c.index.erase("m.qzeros");
    CHECK_THROWS(bad_format, "tensor m.qzeros is missing", matrix(f));
  }
  {
    Folder f = good_gptq(random);
    f.c.index.erase("m.g_idx");
    CHECK_THROWS(bad_format, "m.g_idx is missing, desc_act needs it", matrix(f));
  }
  for (const int32_t wrong : {2, -1, INT32_MAX}) {
    Folder f = good_gptq(random);
    std::vector<int32_t> g_idx(64, 0);
    g_idx[5] = wrong;
    f.add("m.g_idx", FileType::int32, {64}, g_idx);
    CHECK_THROWS(bad_format, "element 5 names group", matrix(f));
  }
  {
    Folder f = good_gptq(random);
    std::vector<int32_t> g_idx(64, 0);
    g_idx[63] = 1;
    f.add("m.g_idx", FileType::int32, {64}, g_idx);
    CHECK_THROWS(unsupported, "group 0 has 63 elements", matrix(f));
  }
  {
    Folder f = good_gptq(random);
    f.add("m.scales", FileType::int32, {2, 32}, std::vector<int32_t>(64));
    CHECK_THROWS(bad_format, "m.scales is of type i32", matrix(f));
  }
  for (const float wrong : {NAN, INFINITY, -INFINITY}) {
    Folder f = good_gptq(random);
    f.add("m.scales", FileType::f32, {2, 32}, std::vector<float>(64, wrong));
    const QuantMatrix m = matrix(f);
    std::vector<uint8_t> code(64);
    float scale[2], min[2];
    CHECK_THROWS(bad_format, "no finite scale", m.rows->row(0, code.data(), scale, min));
  }
  {
    Json odd = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 16}};
    Folder f(odd);
    f.add("m.qweight", FileType::int32, {32, 1}, std::vector<int32_t>(32));
    f.add("m.qzeros", FileType::int32, {2, 1}, std::vector<int32_t>(2));
    f.add("m.scales", FileType::f16, {2, 8}, std::vector<uint16_t>(16));
    CHECK_THROWS(unsupported, "quantization_config.group_size is 16, multiples of 32",
                 matrix(f, 8, 32));
  }
  {
    Json listed = {{"quant_method", "fp8"}, {"modules_to_not_convert", {"m"}}};
    Folder f(listed);
    f.add("m.weight", FileType::f8, {1, 2}, std::vector<uint8_t>(2));
    CHECK_THROWS(bad_format, "names m, but its tensors are quantized", matrix(f, 1, 2));
    f.c.config["quantization_config"].erase("modules_to_not_convert");
    CHECK_THROWS(bad_format, "neither weight_scale_inv nor weight_scale", matrix(f, 1, 2));
  }
  {  // A zero point that 3 bits do not hold.
    Plain p(random, 4, 32, 32, 3, false, false);
    Folder f = p.packed(false, false, false);
    f.add("m.weight_zero_point", FileType::int8, {4, 1}, std::vector<int8_t>(4, 100));
    const QuantMatrix m = matrix(f, 4, 32);
    std::vector<uint8_t> code(32);
    float scale, min;
    CHECK_THROWS(bad_format, "holds 100, no zero point of 3 bits",
                 m.rows->row(0, code.data(), &scale, &min));
    f.add("m.weight_shape", FileType::int64, {2}, std::vector<int64_t>{4, 31});
    CHECK_THROWS(bad_format, "is [4, 31], the configuration asks for [4, 32]", matrix(f, 4, 32));
  }
}

int main(int argc, char** argv) {
  return orlop::test::test_main(argc, argv);
}
