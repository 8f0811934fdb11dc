// Every decoder family against logits that Hugging Face computed in float32 (tests/data/tiny), in
// each compute setting, and the same-bits rule over the whole forward pass.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "check.h"
#include "model/harness.h"

namespace orlop::test {
namespace {

constexpr const char* names[] = {"llama", "llama-bias", "llama-sharded", "llama3-rope",
                                 "mistral-window", "qwen2", "qwen3"};

std::string folder(const std::string& name) { return std::string(TEST_DATA) + "/tiny/" + name; }

float max_abs(const std::vector<float>& v) {
  float m = 0;
  for (float x : v) m = std::max(m, std::fabs(x));
  return m;
}

float max_error(const std::vector<float>& a, const std::vector<float>& b) {
  float m = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return INFINITY;
    m = std::max(m, std::fabs(a[i] - b[i]));
  }
  return m;
}

int32_t argmax(const float* row, int32_t n) {
  return static_cast<int32_t>(std::max_element(row, row + n) - row);
}

// Teacher-forced greedy steps: the argmax must be the golden token wherever the margin exceeds twice
// the error that the prompt's logits showed.
void check_greedy(LoadedModel& m, const Golden& g, float error) {
  Sequence seq{g.ids, 0, {}, 0};
  seq.ids.insert(seq.ids.end(), g.greedy.begin(), g.greedy.end());
  int32_t next_page = 0, checked = 0;
  for (size_t s = 0; s < g.greedy.size(); ++s) {
    const Slice slice{&seq, s ? 1 : static_cast<int32_t>(g.ids.size())};
    const std::vector<float> logits = step(m, {&slice, 1}, next_page);
    if (g.margin[s] <= 2 * error) continue;
    CHECK(argmax(&logits[logits.size() - static_cast<size_t>(g.vocab)], g.vocab) == g.greedy[s]);
    ++checked;
  }
  CHECK(checked > 0);
}

// Largest |error| over largest |logit|, over all prompts of a checkpoint.
float worst_error(const char* name, Compute compute, KvType kv, bool greedy) {
  LoadedModel m = load(folder(name), compute, kv);
  float worst = 0;
  for (const Golden& g : read_golden(folder(name))) {
    CHECK(g.vocab == m.model->config().vocab);
    const std::vector<float> logits = prompt_logits(m, g.ids);
    const float error = max_error(logits, g.logits);
    worst = std::max(worst, error / max_abs(g.logits));
    if (greedy) check_greedy(m, g, error);
  }
  return worst;
}

TEST(float32_logits_equal_the_reference) {
  for (const char* name : names) {
    const float worst = worst_error(name, Compute::fp32, KvType::f32, true);
    std::printf("  fp32 %-15s max |error| / max |logit| = %.2e\n", name, worst);
    CHECK(worst <= 1e-4f);
  }
}

// bf16 keeps 8 bits: a relative error of 2^-9 for each rounding of an activation, key, value or
// probability. These checkpoints have two or three layers of random weights with large spread; the
// bound allows 8 such roundings to add up in one direction.
TEST(bf16_logits_are_within_bf16_rounding) {
  for (const char* name : names) {
    const float worst = worst_error(name, Compute::bf16, KvType::bf16, true);
    std::printf("  bf16 %-15s max |error| / max |logit| = %.2e\n", name, worst);
    CHECK(worst <= 8 * 0x1p-9f);
  }
}

// Float weights have no int8 codes: the int8 setting computes them as bf16 does.
TEST(int8_setting_on_float_weights_is_bf16) {
  LoadedModel a = load(folder("llama"), Compute::bf16, KvType::bf16);
  LoadedModel b = load(folder("llama"), Compute::int8, KvType::bf16);
  for (const Golden& g : read_golden(folder("llama"))) {
    const std::vector<float> x = prompt_logits(a, g.ids), y = prompt_logits(b, g.ids);
    CHECK(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  }
}

bool same_bits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

// Eight prompts of random length: computed alone; together in one batch; in random chunks with
// others joining at random; and all that with 1, 2 and 3 threads.
void check_same_bits(const std::string& path, Compute compute, KvType kv) {
  std::mt19937 random(7);
  LoadedModel one = load(path, compute, kv, 1);
  const auto vocab = static_cast<size_t>(one.model->config().vocab);
  std::vector<Sequence> prompts(8);
  std::vector<std::vector<float>> alone;
  for (Sequence& p : prompts) {
    p.ids.resize(1 + random() % 60);
    for (int32_t& id : p.ids) id = static_cast<int32_t>(random() % vocab);
    alone.push_back(prompt_logits(one, p.ids));
  }
  for (int threads = 1; threads <= 3; ++threads) {
    LoadedModel m = load(path, compute, kv, threads);
    for (int round = 0; round < 3; ++round) {
      std::vector<Sequence> seqs(8);
      for (size_t i = 0; i < 8; ++i) {
        seqs[i].ids = prompts[i].ids;
        seqs[i].seat = static_cast<int32_t>(i);
      }
      int32_t next_page = 0;
      for (;;) {
        std::vector<Slice> slices;
        std::vector<size_t> who, from;
        int32_t room = 128;
        for (size_t i = 0; i < 8; ++i) {
          const auto left = static_cast<int32_t>(seqs[i].ids.size()) - seqs[i].done;
          if (left == 0 || (round && random() % 3 == 0)) continue;
          const int32_t rows =
              std::min(room, round ? 1 + static_cast<int32_t>(random() % left) : left);
          if (rows == 0) continue;
          room -= rows;
          who.push_back(i);
          from.push_back(static_cast<size_t>(seqs[i].done));
          slices.push_back({&seqs[i], rows});
        }
        if (slices.empty()) {
          if (std::all_of(seqs.begin(), seqs.end(), [](const Sequence& s) {
                return s.done == static_cast<int32_t>(s.ids.size());
              }))
            break;
          continue;
        }
        const std::vector<float> logits = step(m, slices, next_page);
        size_t at = 0;
        for (size_t s = 0; s < slices.size(); ++s) {
          const size_t n = static_cast<size_t>(slices[s].rows) * vocab;
          CHECK(same_bits(&logits[at], &alone[who[s]][from[s] * vocab], n));
          at += n;
        }
      }
    }
  }
}

TEST(same_bits_alone_batched_chunked_threaded) {
  for (const char* name : {"llama", "mistral-window", "qwen3"}) {
    check_same_bits(folder(name), Compute::fp32, KvType::f32);
    check_same_bits(folder(name), Compute::bf16, KvType::bf16);
  }
  for (const KvType kv : {KvType::f16, KvType::int8, KvType::uint4})
    check_same_bits(folder("llama"), Compute::bf16, kv);
}

TEST(same_bits_smollm2_quantized) {
  const char* cache = std::getenv("ORLOP_CACHE");
  const std::string path =
      std::string(cache ? cache : TEST_CACHE) + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (std::string(make_backend({.device = test_device()})->exec().kernels->isa) == "ref") {
    std::printf("skipped: the reference kernels take minutes for SmolLM2; their bits are tested on "
                "the tiny checkpoints\n");
    return;
  }
  check_same_bits(path, Compute::int8, KvType::bf16);
  check_same_bits(path, Compute::bf16, KvType::bf16);
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) {
  try {
    orlop::make_backend({.device = orlop::test::test_device(), .threads = 1});
  } catch (const orlop::Error& e) {  // ORLOP_ISA asks for what this processor lacks
    std::printf("SKIPPED: 5 cases: %s\n", e.what());
    return 77;
  }
  return orlop::test::test_main(argc, argv);
}
