// Equal batches have equal bits, in both modes of a backend and whatever ran between them.
//   test_model_repeat [MODEL]    a model of real size besides the tiny ones
#include <cstring>
#include <random>

#include "check.h"
#include "model/harness.h"

namespace orlop::test {
namespace {

std::string given;  // MODEL

LoadedModel load_for(const std::string& path, bool deterministic, Compute compute, int32_t rows) {
  LoadedModel m;
  m.backend = make_backend({.device = test_device(), .threads = 2, .deterministic = deterministic});
  ModelLimits limits;
  limits.max_rows = rows;
  limits.max_seqs = 64;
  limits.max_context = 512;
  limits.max_logit_rows = 64;
  limits.compute = compute;
  m.model = load_model(Checkpoint::open(path, LoadMode::mmap), m.backend->exec(), limits, nullptr);
  m.model->allocate_cache(std::vector<int64_t>(m.model->groups().size(), 64 * 32));
  return m;
}

// Prompts of the given lengths in one step, then two steps that decode; the logits of the last rows.
std::vector<float> history(LoadedModel& m, const std::vector<int32_t>& lengths, uint32_t seed) {
  std::mt19937 random(seed);
  const int32_t vocab = m.model->config().vocab;
  std::vector<Sequence> seqs(lengths.size());
  std::vector<Slice> slices;
  for (size_t i = 0; i < seqs.size(); ++i) {
    seqs[i].seat = static_cast<int32_t>(i);
    for (int32_t t = 0; t < lengths[i] + 2; ++t)
      seqs[i].ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
    slices.push_back({&seqs[i], lengths[i]});
  }
  int32_t next_page = 0;
  std::vector<float> all = step(m, slices, next_page);
  for (int again = 0; again < 2; ++again) {
    for (Slice& s : slices) s.rows = 1;
    const std::vector<float> more = step(m, slices, next_page);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

void check_repeats(const std::string& path, bool deterministic, Compute compute, int32_t rows) {
  LoadedModel m = load_for(path, deterministic, compute, rows);
  std::mt19937 random(9);
  for (int round = 0; round < (is_short() ? 2 : 5); ++round) {
    std::vector<int32_t> lengths(1 + random() % (round == 4 ? 64 : 12)), others(1 + random() % 12);
    for (auto* list : {&lengths, &others})
      for (int32_t& n : *list) n = std::max(1, static_cast<int32_t>(random() % static_cast<uint32_t>(rows / static_cast<int32_t>(list->size()))));
    const std::vector<float> first = history(m, lengths, static_cast<uint32_t>(round));
    history(m, others, 77);
    const std::vector<float> second = history(m, lengths, static_cast<uint32_t>(round));
    CHECK(first.size() == second.size());
    CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0);
    size_t odd = 0;
    for (const float v : first) odd += !(v == v);
    CHECK(odd == 0);
  }
}

TEST(equal_batches_have_equal_bits) {
  for (const bool deterministic : {true, false})
    for (const char* name : {"llama", "qwen3"})
      for (const Compute compute : {Compute::bf16, Compute::fp32})
        check_repeats(std::string(TEST_DATA) + "/tiny/" + name, deterministic, compute, 128);
}

TEST(also_of_a_model_of_real_size) {
  if (given.empty()) return;  // none was named: the tiny ones were all
  for (const bool deterministic : {true, false}) check_repeats(given, deterministic, Compute::bf16, 512);
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) {
  if (argc > 1) orlop::test::given = argv[1];
  return orlop::test::test_main(1, argv);
}
