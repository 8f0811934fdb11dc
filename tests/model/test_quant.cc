// Quantized checkpoints that other programs packed (tests/data/make_quant.py says which), against
// logits on the weights that those programs dequantize; and weights quantized at load.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "../check.h"
#include "base/error.h"
#include "base/half.h"
#include "harness.h"
#include "model/quantize.h"

using namespace orlop;
using namespace orlop::test;

namespace {

const std::string quant = std::string(TEST_DATA) + "/quant";
const std::string tiny = std::string(TEST_DATA) + "/tiny";

LoadedModel load_with(const std::string& path, Compute compute, const QuantOptions& options) {
  LoadedModel m;
  m.backend = make_backend({.device = test_device(), .threads = 2});
  ModelLimits limits;
  limits.max_rows = 128;
  limits.max_seqs = 4;
  limits.max_context = 256;
  limits.kv_type = KvType::f32;
  limits.compute = compute;
  limits.quant = options;
  m.model = load_model(Checkpoint::open(path, LoadMode::mmap), m.backend->exec(), limits, nullptr);
  m.model->allocate_cache(std::vector<int64_t>(m.model->groups().size(), 40));
  return m;
}

// The largest difference of a logit over the largest logit, of all prompts.
double difference(LoadedModel& m, const std::vector<Golden>& golden) {
  double worst = 0, largest = 0;
  for (const Golden& g : golden) {
    const std::vector<float> logits = prompt_logits(m, g.ids);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double d = std::fabs(logits[i] - g.logits[i]);
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
      largest = std::max<double>(largest, std::fabs(g.logits[i]));
    }
  }
  return worst / largest;
}

struct Facts {
  const char* type;  // of all matrices but embedding and head
  bool a8 = false;
};
const std::map<std::string, Facts> checkpoints = {
    {"gptq-4-sym-v1-order", {"int4"}}, {"gptq-4-asym-v2", {"uint4"}},
    {"gptq-3-asym-v2", {"int4"}},      {"gptq-8-asym-v1", {"uint8"}},
    {"autogptq-2-sym-v1", {"int4"}},   {"autogptq-3-asym-order-v1", {"int4"}},
    {"autogptq-4-asym-v1", {"uint4"}}, {"awq-4", {"uint4"}},
    {"ct-w4a16-g32", {"int4"}},        {"ct-w4a16-asym-g64", {"uint4"}},
    {"ct-w8a16-channel", {"int8"}},    {"ct-w8a8", {"int8", true}},
    {"ct-fp8-dynamic", {"f8_e4m3"}},   {"ct-fp8-block", {"f8_e4m3"}},
    {"fp8-block", {"f8_e4m3"}},        {"fp8-tensor", {"f8_e4m3"}},
};

}  // namespace

TEST(every_folder_is_tested) {
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(quant)) {
    CHECK(checkpoints.contains(entry.path().filename()));
    ++folders;
  }
  CHECK(folders == checkpoints.size());
}

TEST(weights_are_those_of_the_packer) {
  for (const auto& [name, facts] : checkpoints) {
    const std::string path = quant + "/" + name;
    LoadedModel m = load_with(path, Compute::fp32, {});
    const auto golden = read_golden(path);
    const double d = difference(m, golden);
    std::printf("  fp32 %-26s max |error| / max |logit| = %.2e\n", name.c_str(), d);
    CHECK(d <= 3e-6);
    const WeightFacts found = m.model->weight_facts();
    CHECK(found.elements.size() == 2 && found.elements.contains(facts.type));
    CHECK(found.elements.contains("bf16"));
    const auto stated = stated_compute(*Checkpoint::open(path, LoadMode::mmap), {});
    CHECK(stated == (facts.a8 ? std::optional(Compute::a8) : std::nullopt));
  }
}

TEST(other_compute_settings_stay_near) {
  for (const auto& [name, facts] : checkpoints) {
    const auto golden = read_golden(quant + "/" + name);
    for (const Compute compute : {Compute::bf16, Compute::int8, Compute::a8}) {
      LoadedModel m = load_with(quant + "/" + name, compute, {});
      const double d = difference(m, golden);
      std::printf("  %s %-26s %.2e\n", orlop::name(compute), name.c_str(), d);
      CHECK(d <= 0.06);
    }
  }
}

TEST(quantization_at_load) {
  const auto golden = read_golden(tiny + "/llama");
  const struct {
    QuantOptions options;
    double limit;
  } rows[] = {
      {{.kind = QuantOptions::Kind::dynamic, .bits = 8, .group = 32, .symmetric = true}, 0.08},
      {{.kind = QuantOptions::Kind::dynamic, .bits = 8, .group = 32, .symmetric = false}, 0.08},
      {{.kind = QuantOptions::Kind::dynamic, .bits = 8, .group = 0, .symmetric = true}, 0.08},
      {{.kind = QuantOptions::Kind::dynamic, .bits = 8, .group = 128, .symmetric = false}, 0.08},
      {{.kind = QuantOptions::Kind::dynamic, .bits = 4, .group = 32, .symmetric = false}, 0.7},
      {{.kind = QuantOptions::Kind::dynamic, .bits = 4, .group = 64, .symmetric = true}, 0.7},
      {{.kind = QuantOptions::Kind::dynamic, .bits = 4, .group = 0, .symmetric = false}, 0.7},
  };
  for (const auto& row : rows) {
    LoadedModel m = load_with(tiny + "/llama", Compute::fp32, row.options);
    const double d = difference(m, golden);
    std::printf("  %d bits, groups of %d, %ssymmetric: %.2e\n", row.options.bits, row.options.group,
                row.options.symmetric ? "" : "a", d);
    CHECK(d > 1e-5 && d <= row.limit);
    for (const auto& [type, n] : m.model->weight_facts().elements)
      CHECK(type == "int8" ||
            type == info(quantized_type(row.options.bits, row.options.symmetric)).name);
  }
}

// How far scale * code (+ min) is from x at most, and on average by its square.
struct Errors {
  double worst = 0, square = 0;
};
template <class Value>
Errors errors(const std::vector<float>& x, const std::vector<uint8_t>& code, Value&& value) {
  Errors e;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::fabs(static_cast<double>(x[i]) - value(code[i]));
    e.worst = std::max(e.worst, d);
    e.square += d * d / static_cast<double>(x.size());
  }
  return e;
}

TEST(groups) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 2000; ++round) {
    const size_t n = round % 5 == 0 ? 1 + random() % 40 : 32u << random() % 4;
    std::vector<float> x(n);
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 60) - 30);
    const float middle = round % 3 ? 0 : size * normal(random);
    for (float& v : x) v = middle + size * normal(random);
    if (round % 7 == 0) x[random() % n] *= 20;
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const double range = static_cast<double>(*high) - *low;
    const double largest = std::max(std::fabs(*low), std::fabs(*high));
    std::vector<uint8_t> code(n);
    float scale, min;
    quantize_w8(x.data(), static_cast<int64_t>(n), code.data(), &scale);
    CHECK(errors(x, code, [&](int c) { return scale * double(c - 128); }).worst <=
          largest / 254 * 1.001);
    quantize_w8z(x.data(), static_cast<int64_t>(n), code.data(), &scale, &min);
    CHECK(errors(x, code, [&](int c) { return scale * double(c) + min; }).worst <=
          range / 510 * 1.001 + largest * 1e-6);
    // 4 bits: never worse than the plain rule, whose largest error is half a step everywhere.
    quantize_w4z(x.data(), static_cast<int64_t>(n), code.data(), &scale, &min);
    const Errors e = errors(x, code, [&](int c) { return scale * double(c) + min; });
    std::vector<uint8_t> plain(n);
    for (size_t i = 0; i < n; ++i)
      plain[i] = static_cast<uint8_t>(range > 0 ? std::lround((x[i] - *low) / range * 15) : 0);
    CHECK(e.square <=
          errors(x, plain, [&, least = *low](int c) { return range / 15 * c + least; }).square * 1.001 +
              largest * largest * 1e-12);
    quantize_w4(x.data(), static_cast<int64_t>(n), code.data(), &scale);
    for (size_t i = 0; i < n; ++i)
      plain[i] = static_cast<uint8_t>(8 + std::lround(x[i] / largest * 7));
    CHECK(errors(x, code, [&](int c) { return scale * double(c - 8); }).square <=
          errors(x, plain, [&](int c) { return largest / 7 * (c - 8); }).square * 1.001);
    for (const uint8_t c : code) CHECK(c < 16);
  }
}

TEST(groups_on_a_grid_keep_their_codes) {
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    const float d = f16_to_f32(f32_to_f16(1e-3f * static_cast<float>(1 + random() % 1000)));
    const float m = f16_to_f32(
        f32_to_f16(1e-3f * static_cast<float>(static_cast<int>(random() % 2000) - 1500)));
    std::vector<uint8_t> code(32), found(32);
    std::vector<float> x(32);
    for (uint8_t& c : code) c = random() % 16;
    code[3] = 0;
    code[17] = 15;
    for (size_t i = 0; i < 32; ++i) x[i] = d * static_cast<float>(code[i]) + m;
    float scale, min;
    quantize_w4z(x.data(), 32, found.data(), &scale, &min);  // Q4_1's grid
    CHECK(found == code && std::fabs(scale - d) <= d * 1e-4f && min == m);
    for (size_t i = 0; i < 32; ++i) x[i] = -d * (static_cast<float>(code[i]) - 8);
    quantize_w4(x.data(), 32, found.data(), &scale);  // Q4_0's
    CHECK(found == code && scale == -d);
  }
  std::vector<float> same(32, 0.25f), zero(32, 0.0f), denormal(32, 1e-42f);
  std::vector<uint8_t> code(32);
  float scale, min;
  for (const auto& x : {same, zero, denormal}) {
    quantize_w4z(x.data(), 32, code.data(), &scale, &min);
    CHECK(scale * static_cast<float>(code[5]) + min == x[5]);
    quantize_w8z(x.data(), 32, code.data(), &scale, &min);
    CHECK(scale * static_cast<float>(code[5]) + min == x[5]);
    quantize_w8(x.data(), 32, code.data(), &scale);
    CHECK(std::fabs(scale * static_cast<float>(code[5] - 128) - x[5]) <= 1e-6f);
    quantize_w4(x.data(), 32, code.data(), &scale);
    CHECK(std::fabs(scale * static_cast<float>(code[5] - 8) - x[5]) <= 1e-6f);
  }
}

TEST(contradictions) {
  const QuantOptions dynamic = {.kind = QuantOptions::Kind::dynamic, .bits = 8, .group = 32};
  CHECK_THROWS(invalid_argument, "is quantized already (gptq, 4 bits",
               load_with(quant + "/gptq-4-asym-v2", Compute::fp32, dynamic));
  QuantOptions named;
  named.method = "awq";
  CHECK_THROWS(invalid_argument, "is not quantized by awq but by gptq",
               load_with(quant + "/gptq-4-asym-v2", Compute::fp32, named));
  CHECK_THROWS(invalid_argument, "is not quantized by awq but holds plain weights",
               load_with(tiny + "/llama", Compute::fp32, named));
  load_with(quant + "/awq-4", Compute::fp32, named);
}

int main(int argc, char** argv) {
  return orlop::test::test_main(argc, argv);
}
