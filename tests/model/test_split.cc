// A model in two parts: the first layers on one backend, the rest, the head and the sampling on another.
// ORLOP_TEST_DEVICE names the second (and, where both are of one kind, the first as well): cpu, guard, cuda.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "check.h"
#include "model/harness.h"
#include "model/warm_up.h"

namespace orlop::test {
namespace {

// llama has three layers, the others two; the last two share their embedding with the head.
constexpr const char* names[] = {"llama", "mistral-window", "llama-bias", "qwen3"};

std::string folder(const std::string& name) { return std::string(TEST_DATA) + "/tiny/" + name; }

LoadedModel whole(const std::string& name, Compute compute, KvType kv) {
  return load(folder(name), compute, kv, 2, 128, test_device(), Split{});
}

LoadedModel in_parts(const std::string& name, Compute compute, KvType kv, int32_t above,
                     const std::string& lower = test_device(), LoadMode mode = LoadMode::mmap) {
  return load(folder(name), compute, kv, 2, 128, test_device(), {above, lower}, mode);
}

std::vector<int32_t> random_ids(std::mt19937& random, size_t n, int32_t vocab) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return ids;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0 &&
         std::none_of(a.begin(), a.end(), [](float x) { return std::isnan(x); });
}

// Three sequences: prompts in chunks, then decoding together; on the way the first one's pages are copied and its
// seat with them, the second one's pages go to the host and come back elsewhere. All logits, step after step.
std::vector<float> history(LoadedModel& m) {
  Model& model = *m.model;
  const auto groups = static_cast<int>(model.groups().size());
  std::mt19937 random(31);
  std::vector<Sequence> seqs(3);
  for (size_t i = 0; i < seqs.size(); ++i) {
    seqs[i].ids = random_ids(random, 50, model.config().vocab);
    seqs[i].seat = static_cast<int32_t>(i);
  }
  int32_t next_page = 0;
  std::vector<float> all;
  const auto run = [&](std::vector<Slice> slices) {
    const std::vector<float> logits = step(m, slices, next_page);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  run({{&seqs[0], 19}, {&seqs[1], 1}});
  run({{&seqs[1], 36}, {&seqs[0], 8}, {&seqs[2], 5}});
  for (size_t p = 0; p < seqs[0].pages.size(); ++p) {
    const auto to = static_cast<int32_t>(200 + p);
    for (int g = 0; g < groups; ++g) {
      model.copy_page(g, seqs[0].pages[p], to);
      model.poison_page(g, seqs[0].pages[p]);
    }
    seqs[0].pages[p] = to;
  }
  model.copy_seat(seqs[0].seat, 7);
  seqs[0].seat = 7;
  std::vector<std::vector<unsigned char>> host;
  for (const int32_t page : seqs[1].pages)
    for (int g = 0; g < groups; ++g) {
      host.emplace_back(model.groups()[static_cast<size_t>(g)].page_bytes);
      model.read_page(g, page, host.back().data());
    }
  model.sync();
  for (const int32_t page : seqs[1].pages)
    for (int g = 0; g < groups; ++g) model.poison_page(g, page);
  size_t at = 0;
  for (int32_t& page : seqs[1].pages) {
    page += 220;
    for (int g = 0; g < groups; ++g) model.write_page(g, page, host[at++].data());
  }
  for (int i = 0; i < 5; ++i) run({{&seqs[0], 1}, {&seqs[1], 1}, {&seqs[2], 1 + i % 2}});
  return all;
}

TEST(split_at_every_layer_the_bits_are_those_of_the_whole) {
  for (const char* name : names)
    for (const KvType kv : {KvType::bf16, KvType::int8, KvType::uint4}) {
      if (kv == KvType::uint4 && is_short()) continue;
      LoadedModel one = whole(name, Compute::bf16, kv);
      const std::vector<float> want = history(one);
      for (int32_t above = 0; above <= one.model->config().layers; ++above) {
        LoadedModel m = in_parts(name, Compute::bf16, kv, above);
        for (size_t g = 0; g < one.model->groups().size(); ++g)
          CHECK(m.model->groups()[g].page_bytes == one.model->groups()[g].page_bytes);
        CHECK(m.model->seat_bytes() == one.model->seat_bytes());
        CHECK(!m.model->asynchronous());
        CHECK(same(history(m), want));
      }
    }
}

// The embedding is packed for both parts: the bytes of a file that was read are still there for the second.
TEST(a_shared_embedding_of_a_file_that_was_read) {
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
    LoadedModel one = whole("llama-bias", Compute::fp32, KvType::f32);
    LoadedModel m = in_parts("llama-bias", Compute::fp32, KvType::f32, 1, test_device(), mode);
    CHECK(m.model->weight_bytes() > one.model->weight_bytes());
    const std::vector<size_t> parts = m.model->part_weight_bytes();
    CHECK(parts.size() == 2 && parts[0] && parts[1] && parts[0] + parts[1] == m.model->weight_bytes());
    CHECK(one.model->part_weight_bytes() == std::vector<size_t>{one.model->weight_bytes()});
    CHECK(same(history(m), history(one)));
  }
}

// The processor's kernels below, the device's above: the bounds of test_golden.cc.
TEST(processor_and_device_stay_within_the_golden_bounds) {
  for (const auto& [compute, kv, bound] :
       {std::tuple{Compute::fp32, KvType::f32, 1e-4f}, std::tuple{Compute::bf16, KvType::bf16, 8 * 0x1p-9f}})
    for (const char* name : names) {
      float worst = 0;
      const int32_t layers = read_config(*Checkpoint::open(folder(name), LoadMode::mmap)).layers;
      for (int32_t above = 0; above < layers; ++above) {
        LoadedModel m = in_parts(name, compute, kv, above, "cpu");
        for (const Golden& g : read_golden(folder(name))) {
          const std::vector<float> logits = prompt_logits(m, g.ids);
          float largest = 0;
          for (const float x : g.logits) largest = std::max(largest, std::fabs(x));
          for (size_t i = 0; i < logits.size(); ++i)
            worst = std::isnan(logits[i]) ? INFINITY
                                          : std::max(worst, std::fabs(logits[i] - g.logits[i]) / largest);
        }
      }
      std::printf("  %s %-15s max |error| / max |logit| = %.2e\n", orlop::name(compute), name, worst);
      CHECK(worst <= bound);
    }
}

// Greedy steps of one sequence whose tokens are named by where they were drawn, or by themselves.
std::vector<int32_t> greedy(LoadedModel& m, bool by_place) {
  constexpr int32_t prompt = 9, steps = 12;
  std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5}, drawn, table = {0, 1};
  SampleRow sample{};
  sample.top_p = sample.repetition_penalty = 1;
  sample.given = -1;
  const SampleRow samples[] = {sample, sample};
  std::vector<SampleResult> results(2);
  for (int32_t s = 0; s < steps; ++s) {
    const int32_t rows = s ? 1 : prompt, begin = s ? prompt + s - 1 : 0;
    std::vector<int32_t> slots;
    for (int32_t p = begin; p < begin + rows; ++p) slots.push_back(p);
    // The prompt keeps two rows; the later draws.
    const std::vector<int32_t> kept = s ? std::vector<int32_t>{0} : std::vector<int32_t>{2, prompt - 1};
    const AttentionSeq seq{.row_begin = 0, .rows = rows, .pos_begin = begin, .page_begin = 0, .seat = 0};
    Batch batch;
    batch.tokens = tokens;
    batch.positions = slots;
    for (size_t g = 0; g < m.model->groups().size(); ++g) batch.groups[g] = {std::span(&seq, 1), table, slots};
    batch.logit_rows = kept;
    batch.samples = std::span(samples, kept.size());
    batch.max_context = begin + rows;
    m.model->forward(batch);
    m.model->logits(0, static_cast<int32_t>(kept.size()));
    const uint64_t ticket = m.model->sample_later(results.data(), nullptr, 0);
    // By place: the next step is in line before anyone here looks.
    if (!by_place) m.model->wait(ticket);
    tokens = {by_place ? -static_cast<int32_t>(kept.size()) : results[kept.size() - 1].token};
    if (by_place && s + 1 < steps) continue;
    m.model->wait(ticket);
    drawn.push_back(results[kept.size() - 1].token);
  }
  return by_place ? drawn : std::vector<int32_t>{drawn.back()};
}

TEST(tokens_may_be_named_by_where_they_were_drawn) {
  LoadedModel one = whole("llama", Compute::fp32, KvType::f32);
  const std::vector<int32_t> want = greedy(one, false);
  CHECK(want.size() == 1 && want[0] >= 0);
  CHECK(greedy(one, true) == want);
  for (const int32_t above : {0, 1}) {
    LoadedModel m = in_parts("llama", Compute::fp32, KvType::f32, above);
    CHECK(greedy(m, false) == want);
    CHECK(greedy(m, true) == want);
  }
}

TEST(the_warm_up_leaves_the_first_part_alone) {
  LoadedModel one = whole("llama", Compute::bf16, KvType::int8);
  const std::vector<float> want = history(one);
  LoadedModel m = in_parts("llama", Compute::bf16, KvType::int8, 1);
  warm_up(*m.model);
  std::vector<float> row(static_cast<size_t>(m.model->config().vocab));
  const float* logits = m.model->logits(0, 1);
  m.backend->exec().device->download(row.data(), logits, row.size() * sizeof(float));
  for (const float v : row) CHECK(std::isfinite(v));
  m.model->allocate_cache({0});
  m.model->allocate_cache({300});
  CHECK(same(history(m), want));
}

TEST(parts_that_are_no_model_are_refused) {
  const auto backend = make_backend({.threads = 1});
  const Exec exec = backend->exec();
  ModelLimits limits;
  limits.max_context = 64;
  const auto of = [&](std::vector<Part> parts) {
    return load_model(Checkpoint::open(folder("llama"), LoadMode::mmap), parts, limits, nullptr);
  };
  CHECK(of({{exec, 0, 3}})->limits().compute == Compute::bf16);
  CHECK(of({{exec, 0, 1}, {exec, 1, 2}, {exec, 2, 3, Compute::fp32}})->limits().compute == Compute::fp32);
  CHECK_THROWS(internal, "parts", of({}));
  CHECK_THROWS(internal, "parts", of({{exec, 0, 2}}));
  CHECK_THROWS(internal, "parts", of({{exec, 0, 4}}));
  CHECK_THROWS(internal, "parts", of({{exec, 0, 1}, {exec, 2, 3}}));
  CHECK_THROWS(internal, "parts", of({{exec, 0, 2}, {exec, 2, 1}}));
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
