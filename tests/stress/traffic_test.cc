// What a running engine moves between host and device, counted by the guard: one upload a step, and
// back only what was drawn or scored, with the best tokens where they were asked for. That it runs
// there at all shows that nothing above ops touches device memory. The same whether steps run ahead or not,
// whether they may (penalties: they wait) or not.
#include <chrono>
#include <thread>

#include "backend/backend.h"
#include "check.h"
#include "engine/engine.h"
#include "format/checkpoint.h"
#include "model/model.h"

namespace orlop::test {
namespace {

struct Traffic {
  uint64_t uploads, downloads, down_bytes, copies, fills, steps;
};

struct Rig {
  std::unique_ptr<Backend> backend = make_backend({.device = "guard", .threads = 2});
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;

  Rig(KvType kv, bool ahead) {
    ModelLimits l;
    l.max_rows = 40;
    l.max_seqs = 6;
    l.max_context = 256;
    l.max_logit_rows = 16;
    l.kv_type = kv;
    l.compute = Compute::bf16;
    model = load_model(Checkpoint::open(std::string(TEST_DATA) + "/tiny/qwen3", LoadMode::read),
                       backend->exec(), l, nullptr);
    EngineOptions o;
    o.step_tokens = 40;
    o.max_running = 6;
    o.pages.assign(model->groups().size(), 80);
    o.run_ahead = ahead;
    model->allocate_cache(o.pages);
    engine = std::make_unique<Engine>(*model, o);
  }

  Traffic traffic() const {
    const DeviceCounters& c = *backend->counters();
    return {c.uploads, c.downloads, c.downloaded_bytes, c.copies, c.fills, engine->stats().steps};
  }

  std::shared_ptr<Request> submit(size_t prompt, int32_t first, const GivenParams& given) {
    std::vector<int32_t> ids(prompt);
    for (size_t i = 0; i < prompt; ++i) ids[i] = static_cast<int32_t>((first + 13 * i) % 100);
    ParamFacts facts;
    facts.vocab = model->config().vocab;
    facts.prompt_tokens = static_cast<int64_t>(prompt);
    facts.context = engine->capacity();
    const std::vector<int32_t> no_ends;
    facts.end_tokens = &no_ends;
    return engine->submit(ids, resolve_params(given, SamplingDefaults{}, facts), nullptr, nullptr,
                          0);
  }

  void finish(const std::vector<std::shared_ptr<Request>>& requests) {
    for (const auto& r : requests) {
      const Output* o;
      Finish finish = Finish::none;
      while (r->get(-1, &o) == Status::ok) finish = o->finish;
      CHECK(finish == Finish::length);
    }
    for (int i = 0; i < 5000 && engine->stats().running; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // The last step is counted after its output is out.
    uint64_t steps;
    do {
      steps = engine->stats().steps;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (engine->stats().steps != steps);
  }
};

GivenParams asked(bool penalties, uint32_t tokens, int32_t logprobs, int32_t prompt_logprobs = logprobs_off) {
  GivenParams g;
  g.max_tokens = tokens;
  g.logprobs = logprobs;
  g.prompt_logprobs = prompt_logprobs;
  g.seed = 3;
  if (penalties) g.repetition_penalty = 1.1;  // counts go up with the plan
  return g;
}

void check_traffic(KvType kv, bool ahead, bool penalties) {
  Rig rig(kv, ahead);
  const auto check = [&](const std::vector<std::shared_ptr<Request>>& requests, Traffic before,
                         uint64_t down_bytes) {
    rig.finish(requests);
    const Traffic after = rig.traffic();
    const uint64_t steps = after.steps - before.steps;
    CHECK(steps > 0);
    CHECK(after.uploads - before.uploads == steps);
    CHECK(after.down_bytes - before.down_bytes == down_bytes);
    CHECK(after.copies == before.copies && after.fills == before.fills);
  };
  const auto ask = [&](uint32_t tokens, int32_t logprobs, int32_t prompt_logprobs = logprobs_off) {
    return asked(penalties, tokens, logprobs, prompt_logprobs);
  };
  // Prompts of several steps, several requests at once: eight bytes a token.
  Traffic before = rig.traffic();
  check({rig.submit(90, 1, ask(20, logprobs_off)), rig.submit(5, 2, ask(30, 0)),
         rig.submit(60, 3, ask(1, 0))},
        before, 51 * sizeof(SampleResult));
  // One alone: a download a step that draws.
  before = rig.traffic();
  check({rig.submit(30, 4, ask(25, 0))}, before, 25 * sizeof(SampleResult));
  CHECK(rig.traffic().downloads - before.downloads == 25);
  // With the four best: two downloads.
  before = rig.traffic();
  check({rig.submit(30, 5, ask(25, 4))}, before,
        25 * (sizeof(SampleResult) + 4 * sizeof(TokenLogprob)));
  CHECK(rig.traffic().downloads - before.downloads == 50);
  // The prompt's own logprobs: one row for each token but the first.
  before = rig.traffic();
  check({rig.submit(70, 6, ask(10, 0, 0))}, before, (69 + 10) * sizeof(SampleResult));
  const EngineStats stats = rig.engine->stats();
  CHECK(ahead ? stats.steps_ahead > (penalties ? 0 : stats.steps * 3 / 4) : stats.steps_ahead == 0);
}

TEST(one_upload_a_step_and_only_what_was_asked_comes_back) {
  for (const KvType kv : {KvType::bf16, KvType::uint4})
    for (const bool ahead : {false, true})
      for (const bool penalties : {false, true}) check_traffic(kv, ahead, penalties);
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
