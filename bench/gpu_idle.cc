// How much of the time a GPU has no step: host time that is not hidden behind it.
//   bench_gpu_idle MODEL [REQUESTS [RUNNING [PROMPT [TOKENS [DEVICE]]]]]     2000 450 100 100 cuda
// All requests wait from the start, of about PROMPT and TOKENS tokens; RUNNING run at once. Looked at is the time in
// which some still wait, once all have run a first time (kernels load, algorithms are chosen). A thread waits for each
// step's last ticket; from then on until the host has given the GPU the next step (its results were called for: what only
// waits in the host's list is not there yet) it has none. A step that was given while the one before ran leaves no gap.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "engine/engine.h"
#include "format/checkpoint.h"
#include "model/model.h"

using namespace orlop;

namespace {

struct StepTimes {
  int64_t begun = 0, given = 0, done = 0;  // ns; forward() was called; the first results were asked for; the last were there
  uint64_t last = 0;                       // ticket
  int32_t rows = 0;
};

// The model, watched.
class Watched final : public Model {
 public:
  explicit Watched(Model& model) : m_(model), watcher_([this] { watch(); }) {}
  ~Watched() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    more_.notify_all();
    watcher_.join();
  }
  std::vector<StepTimes> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

  const Config& config() const override { return m_.config(); }
  const ModelLimits& limits() const override { return m_.limits(); }
  const std::vector<CacheGroup>& groups() const override { return m_.groups(); }
  size_t weight_bytes() const override { return m_.weight_bytes(); }
  size_t workspace_bytes() const override { return m_.workspace_bytes(); }
  void allocate_cache(const std::vector<int64_t>& pages) override { m_.allocate_cache(pages); }
  size_t seat_bytes() const override { return m_.seat_bytes(); }
  void poison_page(int group, int32_t page) override { m_.poison_page(group, page); }
  void copy_page(int group, int32_t from, int32_t to) override { m_.copy_page(group, from, to); }
  void copy_seat(int32_t from, int32_t to) override { m_.copy_seat(from, to); }
  void read_page(int group, int32_t page, void* host) override { m_.read_page(group, page, host); }
  void write_page(int group, int32_t page, const void* host) override { m_.write_page(group, page, host); }
  void sync() override { m_.sync(); }
  const float* logits(int32_t begin, int32_t count) override { return m_.logits(begin, count); }
  void take_masks() override { m_.take_masks(); }
  void hidden(int32_t begin, int32_t count, float* out) override { m_.hidden(begin, count, out); }
  void wait(uint64_t ticket) override { m_.wait(ticket); }
  bool asynchronous() const override { return m_.asynchronous(); }
  void forward(const Batch& batch) override {
    {
      const std::lock_guard lock(mutex_);
      steps_.push_back({monotonic_ns(), 0, 0, 0, static_cast<int32_t>(batch.tokens.size())});
    }
    m_.forward(batch);
  }
  uint64_t sample_later(SampleResult* results, TokenLogprob* top, int32_t top_stride) override {
    return given(m_.sample_later(results, top, top_stride));
  }
  uint64_t mark() override { return given(m_.mark()); }

 private:
  uint64_t given(uint64_t ticket) {
    const int64_t now = monotonic_ns();
    const std::lock_guard lock(mutex_);
    if (steps_.empty()) return ticket;
    StepTimes& s = steps_.back();
    if (!s.given) s.given = now;
    s.last = ticket;
    open_.push_back(steps_.size() - 1);
    more_.notify_one();
    return ticket;
  }
  void watch() {
    std::unique_lock lock(mutex_);
    for (;;) {
      more_.wait(lock, [&] { return over_ || !open_.empty(); });
      if (open_.empty()) return;
      const size_t step = open_.front();
      const uint64_t ticket = steps_[step].last;
      open_.pop_front();
      lock.unlock();
      try {
        m_.wait(ticket);
      } catch (const Error&) {  // the engine's own wait says so
      }
      const int64_t now = monotonic_ns();
      lock.lock();
      if (steps_[step].last == ticket) steps_[step].done = now;
    }
  }

  Model& m_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable more_;
  std::vector<StepTimes> steps_;
  std::deque<size_t> open_;  // steps
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) return std::fprintf(stderr, "usage: %s MODEL [REQUESTS [RUNNING [PROMPT [TOKENS [DEVICE]]]]]\n", argv[0]), 2;
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int requests = number(2, 2000), running = number(3, 450), prompt = number(4, 100), tokens = number(5, 100);
  const std::string device = argc > 6 ? argv[6] : "cuda";
  const auto backend = make_backend({.device = device, .deterministic = false});
  ModelLimits limits;
  limits.max_rows = 4096;
  limits.max_seqs = running;
  limits.max_context = 2 * (prompt + tokens);
  limits.max_logit_rows = running;
  limits.compute = backend->default_compute();
  const auto model = load_model(Checkpoint::open(argv[1], LoadMode::mmap), backend->exec(), limits, nullptr);
  EngineOptions o;
  o.step_tokens = limits.max_rows;
  o.max_running = running;
  o.pages.assign(model->groups().size(), int64_t{running} * (limits.max_context / limits.page_tokens + 1));
  model->allocate_cache(o.pages);
  Watched watched(*model);
  int64_t some_wait_until = 0;
  EngineStats stats{};
  int64_t begin = 0;
  size_t first = 0;  // of the steps looked at
  for (int again = 0; again < 2; ++again) {
    first = watched.steps().size();
    o.paused = true;
    Engine engine(watched, o);
    std::vector<std::shared_ptr<Request>> all;
    uint32_t x = 1;  // the same each time
    for (int i = 0; i < requests; ++i) {
      const auto random = [&](int mean) { return mean / 2 + static_cast<int>((x = x * 1664525u + 1013904223u) >> 8) % (mean + 1); };
      std::vector<int32_t> ids(static_cast<size_t>(random(prompt)));
      for (int32_t& id : ids) id = random(model->config().vocab / 2);
      GivenParams given;
      given.max_tokens = static_cast<uint32_t>(random(tokens));
      given.ignore_eos = true;
      given.temperature = 0;
      ParamFacts facts;
      facts.vocab = model->config().vocab;
      facts.prompt_tokens = static_cast<int64_t>(ids.size());
      facts.context = engine.capacity();
      const std::vector<int32_t> no_ends;
      facts.end_tokens = &no_ends;
      all.push_back(engine.submit(ids, resolve_params(given, SamplingDefaults{}, facts), nullptr, nullptr, 0));
    }
    begin = monotonic_ns();
    engine.resume();
    while (engine.stats().waiting == 0 && engine.stats().finished < static_cast<uint64_t>(requests)) std::this_thread::yield();
    for (; engine.stats().waiting; std::this_thread::sleep_for(std::chrono::milliseconds(1))) some_wait_until = monotonic_ns();
    stats = engine.stats();
    for (const auto& r : all) {
      const Output* out;
      while (r->get(-1, &out) == Status::ok) continue;
    }
  }
  const std::vector<StepTimes> steps = watched.steps();
  int64_t wall = 0, idle = 0, longest = 0;
  size_t count = 0, gaps = 0;
  double rows = 0;
  std::vector<int64_t> ahead;  // how long before the end of the step before it a step was given
  for (size_t i = first + 1; i < steps.size(); ++i) {
    if (!steps[i].done || !steps[i - 1].done || steps[i].done > some_wait_until) continue;
    const int64_t gap = std::max<int64_t>(0, steps[i].given - steps[i - 1].done);
    wall += steps[i].done - steps[i - 1].done;
    idle += gap;
    longest = std::max(longest, gap);
    gaps += gap > 0;
    rows += steps[i].rows;
    ahead.push_back(steps[i - 1].done - steps[i].given);
    ++count;
  }
  if (!count) return std::printf("too few requests: no step was looked at\n"), 1;
  std::sort(ahead.begin(), ahead.end());
  const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  std::printf("%s: %zu steps of %.0f rows, %.3f ms each by the wall; no step on the device for %.3f %% of it (%zu gaps, the longest %.0f us); "
              "a step was given %.0f us before the end of the one before (median; the latest tenth: %.0f us); %llu of %llu steps ahead; %.2f s in all\n",
              device.c_str(), count, rows / static_cast<double>(count), us(wall) * 1e-3 / static_cast<double>(count),
              100.0 * static_cast<double>(idle) / static_cast<double>(wall), gaps, us(longest), us(ahead[count / 2]), us(ahead[count / 10]),
              static_cast<unsigned long long>(stats.steps_ahead), static_cast<unsigned long long>(stats.steps), us(some_wait_until - begin) * 1e-6);
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.text().c_str());
  return 1;
}
