// What the engine counts. Written by the owner thread, read from anywhere.
#pragma once
#include <atomic>
#include <cstdint>

namespace orlop {

struct EngineStats {
  // now
  uint64_t running, waiting, paused;
  uint64_t pages_total, pages_used, pages_shared, pages_cached, pages_free;
  uint64_t host_pages_total, host_pages_used;
  double prompt_tokens_per_s, generated_tokens_per_s;  // over the last second or so
  // since creation
  uint64_t steps, prompt_tokens, generated_tokens, finished, preemptions, prefix_hit_tokens,
      prefix_lookup_tokens, host_pages_out, host_pages_in;
  uint64_t step_ns, model_ns;  // whole steps; of that, inside the model
  uint64_t plan_ns, forward_ns, sample_ns, commit_ns;  // parts of step_ns
  uint64_t last_step_ns;
  uint64_t steps_ahead;  // of the steps, those started before the results of the one before were known
};

struct Counters {
  using Count = std::atomic<uint64_t>;
  Count running{0}, waiting{0}, paused{0}, pages_total{0}, pages_used{0},
      pages_shared{0}, pages_cached{0}, host_pages_total{0}, host_pages_used{0}, steps{0}, prompt_tokens{0}, generated_tokens{0},
      finished{0}, preemptions{0}, prefix_hit_tokens{0}, prefix_lookup_tokens{0},
      host_pages_out{0}, host_pages_in{0}, step_ns{0}, plan_ns{0}, forward_ns{0}, sample_ns{0},
      commit_ns{0}, last_step_ns{0}, steps_ahead{0};

  static void add(Count& counter, uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }
  static void set(Count& counter, uint64_t n) { counter.store(n, std::memory_order_relaxed); }

  // The rates: tokens between two looks half a second or more apart.
  void measure_rates(int64_t now_ns) {
    const int64_t since = now_ns - rates_at_ns_.load(std::memory_order_relaxed);
    if (since < 500'000'000) return;
    const uint64_t in = prompt_tokens.load(std::memory_order_relaxed);
    const uint64_t out = generated_tokens.load(std::memory_order_relaxed);
    // After a pause the time since the last look says nothing.
    const double seconds = static_cast<double>(since) * 1e-9;
    prompt_rate_.store(static_cast<double>(in - rated_in_) / seconds, std::memory_order_relaxed);
    generated_rate_.store(static_cast<double>(out - rated_out_) / seconds,
                          std::memory_order_relaxed);
    rated_in_ = in;
    rated_out_ = out;
    rates_at_ns_.store(now_ns, std::memory_order_relaxed);
  }
  // Work begins after a pause: a long one is not part of what is measured, short ones are.
  void begin_rates(int64_t now_ns) {
    if (now_ns - rates_at_ns_.load(std::memory_order_relaxed) < 1'000'000'000) return;
    rated_in_ = prompt_tokens.load(std::memory_order_relaxed);
    rated_out_ = generated_tokens.load(std::memory_order_relaxed);
    rates_at_ns_.store(now_ns, std::memory_order_relaxed);
  }

  EngineStats read(int64_t now_ns) const {
    const auto get = [](const Count& c) { return c.load(std::memory_order_relaxed); };
    EngineStats s{};
    s.running = get(running);
    s.waiting = get(waiting);
    s.paused = get(paused);
    s.pages_total = get(pages_total);
    s.pages_used = get(pages_used);
    s.pages_shared = get(pages_shared);
    s.pages_cached = get(pages_cached);
    const uint64_t held = s.pages_used + s.pages_cached;
    s.pages_free = s.pages_total > held ? s.pages_total - held : 0;
    s.host_pages_total = get(host_pages_total);
    s.host_pages_used = get(host_pages_used);
    // Nothing ran for two seconds: nothing per second.
    if (now_ns - rates_at_ns_.load(std::memory_order_relaxed) < 2'000'000'000) {
      s.prompt_tokens_per_s = prompt_rate_.load(std::memory_order_relaxed);
      s.generated_tokens_per_s = generated_rate_.load(std::memory_order_relaxed);
    }
    s.steps = get(steps);
    s.prompt_tokens = get(prompt_tokens);
    s.generated_tokens = get(generated_tokens);
    s.finished = get(finished);
    s.preemptions = get(preemptions);
    s.prefix_hit_tokens = get(prefix_hit_tokens);
    s.prefix_lookup_tokens = get(prefix_lookup_tokens);
    s.host_pages_out = get(host_pages_out);
    s.host_pages_in = get(host_pages_in);
    s.step_ns = get(step_ns);
    s.plan_ns = get(plan_ns);
    s.forward_ns = get(forward_ns);
    s.sample_ns = get(sample_ns);
    s.commit_ns = get(commit_ns);
    s.model_ns = s.forward_ns + s.sample_ns;
    s.last_step_ns = get(last_step_ns);
    s.steps_ahead = get(steps_ahead);
    return s;
  }

 private:
  std::atomic<double> prompt_rate_{0}, generated_rate_{0};
  std::atomic<int64_t> rates_at_ns_{0};
  uint64_t rated_in_ = 0, rated_out_ = 0;
};

}  // namespace orlop
