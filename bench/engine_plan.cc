// What planning costs: plan and commit of a step with many decodes, without and with a crowd that
// waits; adding and ending in that crowd; admission with prefix hits. One thread, no model.
// usage: bench_engine_plan [running [waiting]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/scheduler.h"

using namespace orlop;

namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::unique_ptr<Sequence> sequence(int32_t prompt, int32_t first, int32_t most) {
  auto s = std::make_unique<Sequence>();
  s->tokens.reserve(static_cast<size_t>(most));
  for (int32_t t = 0; t < prompt; ++t) s->tokens.push_back(first + t);
  s->prompt_tokens = prompt;
  s->most_tokens = most;
  return s;
}

struct Spread {
  std::vector<double> us;
  void print(const char* what) {
    std::sort(us.begin(), us.end());
    std::printf("  %-28s %8.1f us median, %8.1f us p99\n", what, us[us.size() / 2],
                us[us.size() * 99 / 100]);
  }
};

void decode(Scheduler& scheduler, int steps) {
  StepPlan plan;
  Spread planned, committed;
  for (int i = 0; i < steps; ++i) {
    const double a = now_us();
    scheduler.plan(plan);
    const double b = now_us();
    for (const PlanSeq& p : plan.seqs)
      if (p.draw) p.sequence->tokens.push_back(i);
    const double c = now_us();
    scheduler.commit(plan);
    planned.us.push_back(b - a);
    committed.us.push_back(now_us() - c);
  }
  std::printf("  %d decodes in the last step\n", plan.decodes);
  planned.print("plan");
  committed.print("commit");
}

}  // namespace

int main(int argc, char** argv) {
  const int running = argc > 1 ? std::atoi(argv[1]) : 512;
  const int crowd = argc > 2 ? std::atoi(argv[2]) : 100'000;
  SchedulerLimits limits;
  limits.step_tokens = 2 * running;
  limits.max_seqs = running;
  limits.windows = {0, 512};
  PagePools pools({int64_t{running} * 128, int64_t{running} * 64}, 16, false);
  Scheduler scheduler(limits, pools);
  std::vector<std::unique_ptr<Sequence>> all;
  for (int i = 0; i < running; ++i) {
    all.push_back(sequence(32, i * 1000, 2000));
    scheduler.add(all.back().get());
  }
  StepPlan plan;
  for (int i = 0; i < 40; ++i) {
    scheduler.plan(plan);
    for (const PlanSeq& p : plan.seqs)
      if (p.draw) p.sequence->tokens.push_back(i);
    scheduler.commit(plan);
  }
  std::printf("%d running\n", running);
  decode(scheduler, 800);

  std::vector<std::unique_ptr<Sequence>> waiting;
  for (int i = 0; i < crowd; ++i) {
    waiting.push_back(sequence(32, -i * 1000, 64));
    waiting.back()->arrived_ns = (int64_t{i} * 7919 % crowd) * 1'000'000;
  }
  double t = now_us();
  for (auto& s : waiting) scheduler.add(s.get());
  std::printf("%d waiting\n  add    %22.2f us each\n", crowd, (now_us() - t) / crowd);
  decode(scheduler, 200);
  t = now_us();
  for (auto& s : waiting) scheduler.finish(s.get());
  std::printf("  finish %22.2f us each\n", (now_us() - t) / crowd);
  for (auto& s : all) scheduler.finish(s.get());

  // A long prompt, found in the cache but for its end, again and again.
  auto first = sequence(8192, 1, 8200);
  scheduler.add(first.get());
  while (first->committed < first->prompt_tokens) {
    scheduler.plan(plan);
    for (const PlanSeq& p : plan.seqs)
      if (p.draw) p.sequence->tokens.push_back(7);
    scheduler.commit(plan);
  }
  scheduler.finish(first.get());
  Spread joined, ended;
  for (int i = 0; i < 200; ++i) {
    auto s = sequence(8192, 1, 8200);
    scheduler.add(s.get());
    const double a = now_us();
    scheduler.plan(plan);
    const double b = now_us();
    scheduler.finish(s.get(), &plan);
    joined.us.push_back(b - a);
    ended.us.push_back(now_us() - b);
    if (s->cached < 8000) std::printf("  only %d tokens were found\n", s->cached);
  }
  std::printf("a prompt of 8,192 tokens in the cache\n");
  joined.print("plan, with its admission");
  ended.print("finish");
}
