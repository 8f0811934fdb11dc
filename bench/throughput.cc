// Tokens a second of a model through the C ABI: a prompt of 512 tokens, then batches that decode.
//   bench_throughput MODEL THREADS [MORE]
// MORE: further keys of the configuration, such as '"quant":"iq","quant_bits":8,"compute":"a8"'.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "orlop/orlop.hpp"

namespace {

orlop::Params request(int prompt, int seed, std::uint32_t max_tokens) {
  orlop::Params p;
  std::uint32_t x = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  p.tokens.emplace();
  for (int i = 0; i < prompt; ++i) {
    x = x * 1664525u + 1013904223u;
    p.tokens->push_back(static_cast<std::int32_t>(1000 + (x >> 16) % 30000));
  }
  p.max_tokens = max_tokens;
  p.temperature = 0;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  return p;
}

double seconds(const orlop::Engine& engine, int batch, int prompt, std::uint32_t tokens, int seed) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<orlop::Request> all;
  for (int i = 0; i < batch; ++i) all.push_back(engine.generate(request(prompt, seed + i, tokens)).value());
  for (orlop::Request& r : all) r.read().value();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL THREADS [MORE]\n", argv[0]);
    return 2;
  }
  const std::string more = argc > 3 ? std::string(",") + argv[3] : "";
  auto made = orlop::Engine::create("{\"model\":" + orlop::json_quote(argv[1]) + ",\"threads\":" + argv[2] +
                                    ",\"kv_bytes\":1500000000,\"step_tokens\":2048" + more + "}");
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 1;
  }
  const orlop::Engine engine = std::move(made).value();
  double prefill = 1e9;
  for (int i = 0; i < 5; ++i) prefill = std::min(prefill, seconds(engine, 1, 512, 1, 100 * i));
  std::printf("prefill 512: %.1f tokens/s", 512 / prefill);
  int seed = 1000;
  for (const int batch : {1, 4, 8, 16, 32}) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i, seed += 200) {
      const double few = seconds(engine, batch, 16, 4, seed), many = seconds(engine, batch, 16, 52, seed + 100);
      best = std::min(best, (many - few) / 48);
    }
    std::printf("  decode %d: %.1f", batch, batch / best);
    std::fflush(stdout);
  }
  std::puts("");
}
