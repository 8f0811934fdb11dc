// What the engine costs around the model: owner-thread time per step with a model that does nothing,
// and how fast threads can submit.
//   bench_engine_overhead [sequences] [steps]
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "../tests/engine/rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

GivenParams streaming(uint32_t tokens) {
  GivenParams g;
  g.max_tokens = tokens;
  g.ignore_eos = true;
  g.temperature = 0;
  return g;
}

// Every sequence decodes `steps` tokens; a consumer takes all output through one queue, or no one
// reads. Time from the first to the last step, by the wall. ahead: each step is started before the results of
// the one before it are looked at; on a device that works on its own this time is hidden behind it.
void overhead(int sequences, int steps, bool reads, bool ahead) {
  Setup s;
  s.max_running = sequences;
  s.step_tokens = std::max(512, sequences);
  s.logit_rows = 64;
  s.context = steps + 64;
  s.pages = int64_t{sequences} * ((s.context + 15) / 16) + 8;
  s.poison = false;
  s.held = true;
  s.run_ahead = ahead;
  Rig rig(s);
  rig.model.checks = false;
  auto queue = reads ? std::make_shared<CompletionQueue>() : nullptr;
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < sequences; ++i) {
    std::vector<int32_t> prompt;
    for (int k = 0; k < 40; ++k) prompt.push_back((i * 31 + k * k) % vocab);
    prompt[0] = i % vocab;
    prompt[1] = i / vocab % vocab;
    requests.push_back(rig.submit(prompt, streaming(static_cast<uint32_t>(steps)), queue,
                                  static_cast<uint64_t>(i)));
  }
  const EngineStats before = rig.engine->stats();
  const int64_t begin = monotonic_ns();
  rig.engine->resume();
  int ended = 0;
  const Output* o;
  for (uint64_t tag; reads && ended < sequences;)
    if (queue->wait(-1, &tag) == CompletionQueue::Wait::ok)
      if (requests[tag]->get(0, &o) == Status::ok) ended += o->finish != Finish::none;
  for (auto& r : requests)
    while (r->get(-1, &o) == Status::ok) continue;
  const double wall = static_cast<double>(monotonic_ns() - begin);
  const EngineStats after = rig.engine->stats();
  const auto n = static_cast<double>(after.steps - before.steps);
  const auto part = [&](uint64_t ns) { return static_cast<double>(ns) / n / 1000; };
  std::printf("%4d sequences, %s%s: %.1f us a step by the wall; plan %.1f, the model's shell %.1f, "
              "sampling's shell %.1f, commit and hand over %.1f\n",
              sequences, reads ? "one thread reads all" : "no one reads",
              ahead ? ", ahead" : "", wall / n / 1000,
              part(after.plan_ns), part(after.forward_ns), part(after.sample_ns),
              part(after.commit_ns));
}

void submissions(int threads, int each) {
  Setup s;
  s.held = true;
  s.poison = false;
  s.max_waiting = 1 << 30;
  Rig rig(s);
  rig.model.checks = false;
  std::vector<std::vector<std::shared_ptr<Request>>> made(static_cast<size_t>(threads));
  for (auto& m : made) m.reserve(static_cast<size_t>(each));
  std::vector<std::thread> pool;
  const int64_t begin = monotonic_ns();
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      const std::vector<int32_t> prompt(32, t);
      GivenParams g = streaming(16);
      g.seed = 1;
      for (int i = 0; i < each; ++i) made[static_cast<size_t>(t)].push_back(rig.submit(prompt, g));
    });
  for (std::thread& t : pool) t.join();
  const double seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  std::printf("%d threads submit %d requests into a held engine: %.0f requests/s\n", threads,
              threads * each, threads * each / seconds);
  rig.engine.reset();
}

}  // namespace

int main(int argc, char** argv) {
  const int sequences = argc > 1 ? std::atoi(argv[1]) : 512;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 1000;
  for (const bool ahead : {false, true})
    for (const bool reads : {false, true}) overhead(sequences, steps, reads, ahead);
  submissions(8, 50000);
}
