// Latency under company, on a real model through the C ABI.
//   bench_latency MODEL [threads] [prompt_tokens]
//
// 1. Eight streams decode; a long prompt arrives. Inter-token times of the streams while it is
//    computed against their median before it came, and the long prompt's time to first token against
//    what it takes alone: with a latency target, with chunked prefill alone, and in one piece.
// 2. Time to first token of a prompt of 4,096 tokens that is cached but for 1 %, against that of the
//    same prompt uncached.
// 3. The owner thread's part of a step at many running sequences.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <time.h>

#include "orlop/orlop.hpp"

namespace {

constexpr int streams = 8;

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

orlop::Engine open(const std::string& model, int threads, const std::string& more) {
  return orlop::Engine::create("{\"model\":" + orlop::json_quote(model) + ",\"threads\":" +
                               std::to_string(threads) + ",\"kv_bytes\":1500000000" + more + "}")
      .value();
}

std::vector<std::int32_t> tokens(int n, int seed) {
  std::vector<std::int32_t> t;
  std::uint32_t x = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    t.push_back(static_cast<std::int32_t>(1000 + (x >> 16) % 30000));
  }
  return t;
}

orlop::Params request(std::vector<std::int32_t> prompt, std::uint32_t max_tokens) {
  orlop::Params p;
  p.tokens = std::move(prompt);
  p.max_tokens = max_tokens;
  p.temperature = 0;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  return p;
}

double first_token_ms(const orlop::Request& r) {
  const orlop_request_info i = r.info().value();
  return static_cast<double>(i.first_token_ns - i.queued_ns) * 1e-6;
}

struct Company {
  double p50, p99, worst, first_token;
};

// The streams decode; after 80 tokens of each the guest comes (long_prompt > 0), and times between
// tokens are taken until its first token; or none comes, and they are taken for the next 720: about
// as many, since a stream's step gets longer with its context.
Company measure(const orlop::Engine& engine, int long_prompt, int seed) {
  constexpr int quiet = 80, alone = 800;
  orlop::Queue queue = engine.queue().value();
  std::vector<orlop::Request> all;
  for (int i = 0; i < streams; ++i) {
    orlop::Params p = request(tokens(64, seed * 100 + i), 6000);
    p.queue = &queue;
    p.tag = static_cast<std::uint64_t>(i);
    all.push_back(engine.generate(p).value());
  }
  std::vector<double> last(streams, 0), times;
  std::vector<int> taken(streams, 0);
  orlop::Request guest;
  bool begun = false;
  orlop::Output out;
  const auto ended = [&] {
    return long_prompt ? begun && guest.info().value().first_token_ns != 0
                       : *std::min_element(taken.begin(), taken.end()) > alone;
  };
  while (!ended()) {
    const auto tag = queue.wait(std::chrono::milliseconds(500)).value();
    if (!tag || *tag >= streams) continue;
    if (all[*tag].get(out, std::chrono::microseconds(0)).value() != orlop::Got::output) continue;
    const double t = now_ms();
    const auto n = static_cast<int>(out.tokens().size());
    double& l = last[*tag];
    taken[*tag] += n;
    if (begun)
      for (int i = 0; i < n; ++i) times.push_back((t - l) / n);
    l = t;
    if (!begun && *std::min_element(taken.begin(), taken.end()) > quiet) {
      if (long_prompt) guest = engine.generate(request(tokens(long_prompt, seed + 7), 2)).value();
      begun = true;
    }
  }
  return {quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1),
          long_prompt ? first_token_ms(guest) : 0};
}

double prefill_alone(const orlop::Engine& engine, int n, int seed) {
  orlop::Request r = engine.generate(request(tokens(n, seed), 2)).value();
  r.read().value();
  return first_token_ms(r);
}

void show(const char* what, const Company& c, double median, double alone) {
  std::printf("%-28s p50 %.2f  p99 %.2f  worst %.2f x the undisturbed median; first token of the "
              "long prompt %.2f x alone\n", what, c.p50 / median, c.p99 / median, c.worst / median,
              c.first_token / alone);
}

void company(const std::string& model, int threads, int long_prompt) {
  double alone, median;
  {
    const orlop::Engine e = open(model, threads, ",\"step_tokens\":512");
    prefill_alone(e, 600, 1);
    alone = prefill_alone(e, long_prompt, 2);
    const Company c = measure(e, 0, 10);
    median = c.p50;
    std::printf("%d streams undisturbed: %.1f ms between tokens (p99 %.2f x); prompt of %d alone: "
                "first token after %.0f ms\n", streams, median, c.p99 / median, long_prompt, alone);
    show("chunks of 512, no target:", measure(e, long_prompt, 11), median, alone);
  }
  for (const double factor : {1.6, 1.8, 2.0}) {
    char config[100], what[60];
    std::snprintf(config, sizeof config, ",\"step_tokens\":512,\"itl_target_ms\":%.2f",
                  factor * median);
    std::snprintf(what, sizeof what, "itl_target_ms %.1f x median:", factor);
    const orlop::Engine e = open(model, threads, config);
    prefill_alone(e, 2000, 3);
    measure(e, 1000, 5);  // the cost model has seen such steps
    show(what, measure(e, long_prompt, 12), median, alone);
  }
  const orlop::Engine e = open(model, threads, ",\"step_tokens\":8192");
  show("in one piece:", measure(e, long_prompt, 13), median, alone);
}

void cached_prefix(const std::string& model, int threads) {
  const orlop::Engine e = open(model, threads, "");
  prefill_alone(e, 600, 21);
  std::vector<double> ratios;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::int32_t> prompt = tokens(4096, 30 + round);
    orlop::Request cold = e.generate(request(prompt, 2)).value();
    cold.read().value();
    for (int i = 4055; i < 4096; ++i) prompt[static_cast<size_t>(i)] = 2000 + i;
    orlop::Request warm = e.generate(request(prompt, 2)).value();
    warm.read().value();
    const orlop_request_info info = warm.info().value();
    ratios.push_back(first_token_ms(warm) / first_token_ms(cold));
    std::printf("4096 tokens, first token: %.0f ms uncached, %.1f ms with %d cached: %.2f %%\n",
                first_token_ms(cold), first_token_ms(warm), static_cast<int>(info.cached_tokens),
                100 * ratios.back());
  }
  std::printf("median %.2f %%\n", 100 * quantile(ratios, 0.5));
}

void owner_part(const std::string& model, int threads) {
  const orlop::Engine e = open(model, threads, ",\"max_running_seqs\":512,\"max_context\":256");
  std::vector<orlop::Request> all;
  for (int i = 0; i < 512; ++i) all.push_back(e.generate(request(tokens(8, i), 24)).value());
  for (orlop::Request& r : all) r.read().value();
  const orlop_stats s = e.stats().value();
  const double step = static_cast<double>(s.step_ns_total), inside = static_cast<double>(s.model_ns_total);
  std::printf("512 running: %.1f ms a step, outside the model %.3f ms: %.2f %%\n",
              step / static_cast<double>(s.steps) * 1e-6,
              (step - inside) / static_cast<double>(s.steps) * 1e-6, 100 * (step - inside) / step);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_latency MODEL [threads] [prompt_tokens]\n");
    return 2;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  try {
    company(argv[1], threads, argc > 3 ? std::atoi(argv[3]) : 6000);
    cached_prefix(argv[1], threads);
    owner_part(argv[1], threads);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
