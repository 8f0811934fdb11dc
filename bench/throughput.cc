// Tokens a second of a model through the C ABI: loading and the first token, a prompt, the same prompt again but
// for its last tokens, then batches that decode.
//   bench_throughput MODEL THREADS [MORE [OPTION=VALUE...]]
// MORE: further keys of the configuration, such as '"quant":"iq","quant_bits":8,"compute":"a8"'.
// Options: prefill=512 (tokens of the prompt; 0: none), batches=1,4,8,16,32, prompt=16 (tokens of each before it
// decodes), tokens=48 (that are timed of each), rounds=3 (of which the median counts; least and most tell the noise),
// prefix=0 (tokens of a prompt that is cached but for 1 %), again=0 (engines that are opened and closed before: what the
// first one of a process waits for is there then, such as a GPU's driver).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

// What all of them have drawn, and when the last of it was: between two steps, so that no sequence is ahead of others
// (where steps are shorter than looking at them, some are by a token).
struct Drawn {
  std::uint64_t least = 0, all = 0;
  std::int64_t last_ns = 0;
  bool ended = false;  // one of them has
};
Drawn drawn(const std::vector<orlop::Request>& requests) {
  const auto look = [&] {
    Drawn d;
    d.least = UINT64_MAX;
    for (const orlop::Request& r : requests) {
      const orlop_request_info i = r.info().value();
      d.least = std::min(d.least, i.generated_tokens);
      d.all += i.generated_tokens;
      d.last_ns = std::max(d.last_ns, i.last_token_ns);
      d.ended = d.ended || i.state >= ORLOP_STATE_DONE;
    }
    return d;
  };
  Drawn before = look();
  for (int i = 0; i < 100; ++i) {
    const Drawn now = look();
    if (now.all == before.all && now.last_ns == before.last_ns) return now;
    before = now;
  }
  return before;
}

// Tokens a second while all of a batch decode: from when each has its first token until each has `tokens` more. Prompts
// are not in it, and nobody is done before. 0: it is not so, because they do not all run at once, or one failed.
double decode_rate(const orlop::Engine& engine, int batch, int prompt, std::uint32_t tokens, int seed) {
  constexpr std::uint32_t ahead = 256;  // at most, of the first over the last, while prompts are computed
  std::vector<orlop::Request> all;
  for (int i = 0; i < batch; ++i) all.push_back(engine.generate(request(prompt, seed + i, tokens + ahead)).value());
  const auto until = [&](std::uint64_t least) {
    Drawn d = drawn(all);
    for (; d.least < least && !d.ended; d = drawn(all)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return d;
  };
  const Drawn begin = until(1), end = until(begin.least + tokens);
  for (orlop::Request& r : all) r.cancel();
  for (orlop::Request& r : all) (void)r.read();  // until it has ended
  if (end.ended) return 0;
  return static_cast<double>(end.all - begin.all) / (static_cast<double>(end.last_ns - begin.last_ns) * 1e-9);
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Options {
  int prefill = 512, prompt = 16, tokens = 48, rounds = 3, prefix = 0, again = 0;
  std::vector<int> batches = {1, 4, 8, 16, 32};
};

bool read_option(Options& o, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  if (name == "batches") {
    o.batches.clear();
    for (size_t at = 0; at < value.size();) {
      const size_t comma = std::min(value.find(',', at), value.size());
      o.batches.push_back(std::atoi(value.substr(at, comma - at).c_str()));
      at = comma + 1;
    }
    return true;
  }
  for (const auto& [known, place] : {std::pair{"prefill", &o.prefill}, {"prompt", &o.prompt}, {"tokens", &o.tokens},
                                     {"rounds", &o.rounds}, {"prefix", &o.prefix}, {"again", &o.again}})
    if (name == known) {
      *place = std::atoi(value.c_str());
      return true;
    }
  return false;
}

// The time of a prompt of `tokens` whose last `fresh` have never been seen with what is before them.
double first_token(const orlop::Engine& engine, int tokens, int fresh, int seed) {
  orlop::Params p = request(tokens, 7, 1);
  for (int i = 0; i < fresh; ++i) (*p.tokens)[static_cast<size_t>(tokens - 1 - i)] = 1000 + (seed * 37 + i) % 30000;
  const auto begin = std::chrono::steady_clock::now();
  engine.generate(p).value().read().value();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  bool good = argc >= 3;
  for (int i = 4; i < argc; ++i) good = good && read_option(o, argv[i]);
  if (!good) {
    std::fprintf(stderr, "usage: %s MODEL THREADS [MORE [OPTION=VALUE...]]\n", argv[0]);
    return 2;
  }
  const std::string more = argc > 3 ? argv[3] : "";
  std::string json = "{\"model\":" + orlop::json_quote(argv[1]) + ",\"threads\":" + argv[2];
  if (more.find("\"kv_bytes\"") == std::string::npos && more.find("\"kv_fraction\"") == std::string::npos) json += ",\"kv_bytes\":1500000000";
  if (more.find("\"step_tokens\"") == std::string::npos) json += ",\"step_tokens\":2048";
  json += (more.empty() ? "" : "," + more) + "}";
  std::optional<orlop::Engine> opened;
  for (int i = 0; i <= o.again; ++i) {
    opened.reset();
    const auto begin = std::chrono::steady_clock::now();
    auto made = orlop::Engine::create(json);
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return 1;
    }
    opened = std::move(made).value();
    const double loaded = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double first = seconds(*opened, 1, 16, 1, 5);
    std::printf("loaded in %.0f ms, first token %.0f ms later;", loaded * 1e3, first * 1e3);
  }
  const orlop::Engine& engine = *opened;
  if (o.prefill) {
    std::vector<double> all;
    for (int i = 0; i < o.rounds + 2; ++i) all.push_back(seconds(engine, 1, o.prefill, 1, 100 * (i + 1)));
    std::printf(" prefill %d: %.1f tokens/s (best %.1f)", o.prefill, o.prefill / median(all), o.prefill / *std::min_element(all.begin(), all.end()));
  }
  if (o.prefix) {
    std::vector<double> whole, cached;
    for (int i = 0; i < o.rounds; ++i) whole.push_back(seconds(engine, 1, o.prefix, 1, 5000 + i));
    first_token(engine, o.prefix, 0, 0);
    for (int i = 0; i < o.rounds + 2; ++i) cached.push_back(first_token(engine, o.prefix, std::max(1, o.prefix / 100), i + 1));
    std::printf("  prefix of %d: %.2f ms, cached but for 1 %%: %.2f ms (%.1f %%)", o.prefix, median(whole) * 1e3, median(cached) * 1e3,
                100 * median(cached) / median(whole));
  }
  int seed = 10000;
  for (const int batch : o.batches) {
    std::vector<double> all;
    for (int i = 0; i < o.rounds; ++i, seed += batch) all.push_back(decode_rate(engine, batch, o.prompt, static_cast<std::uint32_t>(o.tokens), seed));
    if (*std::min_element(all.begin(), all.end()) == 0) {
      std::fprintf(stderr, "%d requests do not run at once to their end: max_running_seqs, kv_bytes or max_context is too small, or one failed\n", batch);
      return 1;
    }
    std::printf("  decode %d: %.1f (%.1f to %.1f)", batch, median(all), *std::min_element(all.begin(), all.end()), *std::max_element(all.begin(), all.end()));
    std::fflush(stdout);
  }
  std::puts("");
}
