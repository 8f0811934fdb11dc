// How much of the KV pages works while requests wait: 1,000 requests whose lengths have heavy tails
// (lognormal), all there from the start, over a pool that holds about a twentieth of them; the
// scheduler alone, with a clock that counts rows. Averages over the steps in which something waits:
//   filled  tokens in the pages that sequences hold / what those pages could hold: the rest is lost
//           to last pages that are not full
//   in use  pages that sequences hold / pages that there are: the rest is free, or held by the
//           prefix cache alone and so there for the next newcomer
//   scarce  the same over those of the steps that have rows left, in which newcomers wait for pages
//           and for nothing else
//   again   rows computed a second time after preemptions / rows
// usage: bench_engine_pages [pages [block_size [requests [seed]]]]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <unordered_set>
#include <vector>

#include "engine/scheduler.h"

using namespace orlop;

namespace {

struct Load {
  const char* name;
  double prompt_median, prompt_sigma, answer_median, answer_sigma;
};

struct Live : Sequence {
  size_t target = 0;
};

void measure(const Load& load, int64_t pages, int32_t block, int requests, uint64_t seed) {
  SchedulerLimits limits;
  limits.max_seqs = 512;
  PagePools pools({pages}, block, false);
  Scheduler scheduler(limits, pools);
  std::mt19937_64 random(seed);
  const auto draw = [&](double median, double sigma, double most) {
    std::normal_distribution<double> normal(std::log(median), sigma);
    return static_cast<int32_t>(std::clamp(std::exp(normal(random)), 1.0, most));
  };
  std::vector<std::unique_ptr<Live>> all;
  int64_t tokens = 0, longest = 0;
  const double room = static_cast<double>(scheduler.capacity());
  for (int i = 0; i < requests; ++i) {
    auto s = std::make_unique<Live>();
    const int32_t prompt = draw(load.prompt_median, load.prompt_sigma, std::min(8192.0, room / 2));
    const int32_t answer = draw(load.answer_median, load.answer_sigma, std::min(2048.0, room / 2));
    for (int32_t t = 0; t < prompt; ++t) s->tokens.push_back(static_cast<int32_t>(random() >> 40));
    s->prompt_tokens = prompt;
    s->target = static_cast<size_t>(prompt) + static_cast<size_t>(answer);
    s->arrived_ns = i * 1000;
    tokens += static_cast<int64_t>(s->target);
    longest = std::max(longest, static_cast<int64_t>(s->target));
    scheduler.add(s.get());
    all.push_back(std::move(s));
  }
  StepPlan plan;
  PlanInput input;
  double filled = 0, in_use = 0, scarce = 0, running = 0;
  int64_t steps = 0, waiting_steps = 0, scarce_steps = 0, rows = 0, preemptions = 0;
  while (!scheduler.idle()) {
    input.now_ns += 1'000'000 + 50'000 * int64_t{plan.rows};
    scheduler.plan(plan, input);
    preemptions += plan.preemptions;
    rows += plan.rows;
    ++steps;
    for (const PlanSeq& p : plan.seqs)
      if (p.draw) p.sequence->tokens.push_back(static_cast<int32_t>(random() >> 40));
    scheduler.commit(plan);
    if (scheduler.waiting()) {
      int64_t held = 0;
      std::unordered_set<int32_t> once;
      for (const auto& s : all)
        for (size_t i = 0; i < s->pages[0].size(); ++i)
          if (once.insert(s->pages[0][i]).second)
            held += std::min<int64_t>(block, s->computed - static_cast<int64_t>(i) * block);
      ++waiting_steps;
      const double used = static_cast<double>(pools.group(0).used());
      filled += static_cast<double>(held) / (used * block);
      in_use += used / static_cast<double>(pages);
      if (plan.rows < limits.step_tokens) {
        scarce += used / static_cast<double>(pages);
        ++scarce_steps;
      }
      running += static_cast<double>(scheduler.running());
    }
    for (const PlanSeq& p : plan.seqs)
      if (p.sequence->tokens.size() >= static_cast<Live*>(p.sequence)->target)
        scheduler.finish(p.sequence);
  }
  const double n = static_cast<double>(waiting_steps);
  const double least = static_cast<double>(tokens - requests);  // the last token is not computed
  char scarcely[32] = "never";
  if (scarce_steps)
    std::snprintf(scarcely, sizeof scarcely, "%.2f %%",
                  100 * scarce / static_cast<double>(scarce_steps));
  std::printf("%-8s %8.0f %8lld %8.1f %8lld/%-8lld %7.2f %% %7.2f %% %9s %6.2f %% %8lld\n",
              load.name, static_cast<double>(tokens) / requests, static_cast<long long>(longest),
              running / n, static_cast<long long>(waiting_steps), static_cast<long long>(steps),
              100 * filled / n, 100 * in_use / n, scarcely,
              100 * (static_cast<double>(rows) - least) / static_cast<double>(rows),
              static_cast<long long>(preemptions));
}

}  // namespace

int main(int argc, char** argv) {
  const auto arg = [&](int i, long d) { return argc > i ? std::atol(argv[i]) : d; };
  const int64_t pages = arg(1, 4096);
  const auto block = static_cast<int32_t>(arg(2, 16));
  const auto requests = static_cast<int>(arg(3, 1000));
  std::printf("%lld pages of %d tokens, %d requests\n", static_cast<long long>(pages), block,
              requests);
  std::printf("%-8s %8s %8s %8s %8s/%-8s %9s %9s %9s %8s %8s\n", "load", "tokens", "longest",
              "running", "waiting", "steps", "filled", "in use", "scarce", "again", "preempted");
  const Load loads[] = {
      {"mixed", 250, 1.1, 150, 1.0}, {"chat", 120, 1.0, 250, 0.8}, {"long", 900, 1.3, 100, 1.0}};
  for (const Load& l : loads) measure(l, pages, block, requests, static_cast<uint64_t>(arg(4, 1)));
}
