// Same bits: whatever else runs, in whatever memory, each request's tokens and logprobs are those
// of the request alone. Random histories over real models: prompts with shared beginnings,
// parameters, samples, arrival times, step and page sizes, few pages (so that requests give way),
// cancellations, slow readers, prefix cache and host tier on and off, plans made ahead, steps started before
// the results of those before them are known, one to four threads; every KV type, weight format and compute setting; pages that hold nothing are NaN.
//
//   same_bits_test                  each case three times; with ORLOP_SOAK set, random cases for
//   ten minutes same_bits_test SECONDS          random cases for that long same_bits_test CASE SEED
//   one history again, as a failure names it
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "backend/backend.h"
#include "check.h"
#include "engine/engine.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "stress/guides.h"
#include "stress/tiny_gguf.h"

namespace orlop::test {
namespace {

using Random = std::mt19937_64;
uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}
bool once_in(Random& random, uint64_t n) {
  return below(random, n) == 0;
}
template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[below(random, values.size())];
}

struct Case {
  std::string name;  // without spaces
  std::string path;
  Compute compute;
  KvType kv;
  QuantOptions quant = {};
};

struct Ask {
  std::vector<int32_t> prompt;
  GivenParams given;
  bool cancelled = false;
  int64_t arrives_us = 0, cancelled_us = 0, read_pause_us = 0;
};

// What one sample gave.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs, embedding;
  std::vector<TokenLogprob> top, prompt_top;
  Finish finish = Finish::none;
  Status error = Status::ok;
  std::string message;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
}
template <class T>
bool begins(const std::vector<T>& whole, const std::vector<T>& begin) {
  return begin.size() <= whole.size() &&
         (begin.empty() || !std::memcmp(whole.data(), begin.data(), begin.size() * sizeof(T)));
}

struct Setup {
  int threads = 1;
  ModelLimits limits;
  EngineOptions options;
};

std::string test_device() {
  const char* named = std::getenv("ORLOP_TEST_DEVICE");
  return named && *named ? named : "cpu";
}

// An engine over a model; members end from the last to the first. ORLOP_TEST_GPU_LAYERS, if set: of the model's
// layers so many run on the test's device, those before them on the processor.
struct Running {
  std::unique_ptr<Backend> backend, processor;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;

  Running(const Case& c, Setup s, int64_t pages) {
    backend = make_backend({.device = test_device(), .threads = s.threads});
    s.limits.compute = c.compute;
    s.limits.kv_type = c.kv;
    s.limits.quant = c.quant;
    const auto checkpoint = Checkpoint::open(c.path, LoadMode::read);
    if (const char* above = std::getenv("ORLOP_TEST_GPU_LAYERS"); above && *above) {
      processor = make_backend({.threads = s.threads});
      const int32_t layers = read_config(*checkpoint).layers, below = std::max(0, layers - std::atoi(above));
      const Part parts[] = {{processor->exec(), 0, below, c.compute}, {backend->exec(), below, layers, c.compute}};
      model = load_model(checkpoint, parts, s.limits, nullptr);
    } else {
      model = load_model(checkpoint, backend->exec(), s.limits, nullptr);
    }
    s.options.pages.assign(model->groups().size(), pages);
    s.options.poison = true;
    model->allocate_cache(s.options.pages);
    engine = std::make_unique<Engine>(*model, s.options);
  }

  std::shared_ptr<Request> submit(const std::vector<int32_t>& prompt, const GivenParams& given) {
    ParamFacts facts;
    facts.vocab = model->config().vocab;
    facts.prompt_tokens = static_cast<int64_t>(prompt.size());
    facts.context = engine->capacity();
    facts.end_tokens = &model->config().eos;
    return engine->submit(prompt, resolve_params(given, SamplingDefaults{}, facts), nullptr,
                          nullptr, 0);
  }
};

std::vector<Answer> collect(Request& request, size_t samples, int64_t pause_us) {
  std::vector<Answer> all(samples);
  const Output* o;
  while (request.get(-1, &o) == Status::ok) {
    Answer& a = all.at(o->index);
    a.tokens.insert(a.tokens.end(), o->tokens.begin(), o->tokens.end());
    a.logprobs.insert(a.logprobs.end(), o->logprobs.begin(), o->logprobs.end());
    a.top.insert(a.top.end(), o->top.begin(), o->top.end());
    if (o->has_prompt_logprobs) {
      a.prompt_logprobs = o->prompt_logprobs;
      a.prompt_top = o->prompt_top;
    }
    a.embedding.insert(a.embedding.end(), o->embedding.begin(), o->embedding.end());
    a.finish = o->finish;
    a.error = o->error;
    a.message = o->message;
    if (pause_us) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
  }
  return all;
}

constexpr int32_t max_context = 256;

ModelLimits limits_of(int32_t rows, int32_t seqs, int32_t page_tokens, int32_t logit_rows) {
  ModelLimits l;
  l.max_rows = rows;
  l.max_seqs = seqs;
  l.max_context = max_context;
  l.max_logit_rows = logit_rows;
  l.page_tokens = page_tokens;
  return l;
}

std::vector<Ask> random_asks(Random& random, int32_t vocab) {
  const auto tokens = [&](uint64_t n) {
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = static_cast<int32_t>(below(random, static_cast<uint64_t>(vocab)));
    return ids;
  };
  const std::vector<int32_t> beginnings[2] = {tokens(140), tokens(140)};
  std::vector<Ask> asks(5 + below(random, 8));
  const bool waiting = once_in(random, 2);
  int64_t clock = 0;
  for (Ask& a : asks) {
    const std::vector<int32_t>& beginning = beginnings[below(random, 2)];
    uint64_t shared = below(random, beginning.size());
    if (once_in(random, 2)) shared = shared / 16 * 16;
    if (once_in(random, 5)) shared = 0;
    a.prompt.assign(beginning.begin(), beginning.begin() + static_cast<long>(shared));
    const std::vector<int32_t> own =
        tokens(once_in(random, 4) && shared ? 0 : 1 + below(random, 20));
    a.prompt.insert(a.prompt.end(), own.begin(), own.end());

    GivenParams& g = a.given;
    g.max_tokens = static_cast<uint32_t>(1 + below(random, 40));
    if (once_in(random, 4)) g.n = static_cast<uint32_t>(2 + below(random, 3));
    if (once_in(random, 20) && g.n == 1) g.max_tokens = 0;
    if (once_in(random, 4)) g.min_tokens = static_cast<uint32_t>(below(random, *g.max_tokens + 1));
    g.temperature = one_of(random, {0.0, 0.0, 0.7, 1.3});
    if (once_in(random, 3)) g.top_k = static_cast<int32_t>(1 + below(random, 20));
    if (once_in(random, 3)) g.top_p = 0.9;
    if (once_in(random, 4)) g.min_p = 0.05;
    // Steps with them, or with guides, wait for the one before.
    if (waiting && once_in(random, 3)) g.repetition_penalty = 1.2;
    if (waiting && once_in(random, 4)) g.presence_penalty = 0.5;
    if (waiting && once_in(random, 4)) g.frequency_penalty = -0.3;
    if (once_in(random, 4))
      g.logit_bias = {{static_cast<int32_t>(below(random, static_cast<uint64_t>(vocab))), 2.0f}};
    g.seed = random();
    g.ignore_eos = !once_in(random, 3);
    g.logprobs = one_of(random, {0, 0, 3, logprobs_all});
    if (once_in(random, 4)) g.prompt_logprobs = one_of(random, {0, 2, logprobs_all});
    g.priority = static_cast<int32_t>(below(random, 201)) - 100;
    if (once_in(random, 3)) g.cache_salt = "a";
    if (waiting && once_in(random, 4)) {
      g.guide = guides(vocab)[below(random, guides(vocab).size())];
      g.ignore_eos = false;
      g.logit_bias.clear();
      g.min_tokens = 0;
    } else if (once_in(random, 8)) {
      g.embedding = once_in(random, 2) ? Embedding::mean : Embedding::last;
      g.n = 1;
      g.prompt_logprobs = logprobs_off;
      g.max_tokens = 0;
      g.min_tokens = 0;
    }

    if (once_in(random, 2)) clock += static_cast<int64_t>(below(random, 3000));
    a.arrives_us = clock;
    a.cancelled = once_in(random, 6);
    a.cancelled_us = clock + static_cast<int64_t>(below(random, 8000));
    if (once_in(random, 5)) a.read_pause_us = static_cast<int64_t>(below(random, 2000));
  }
  return asks;
}

// Every sample by itself in an engine that holds nothing else. A GPU seals 32 keys of an int8 cache together where
// pages are multiples of it: pages of 16 have other codes than larger ones, which are all alike.
std::vector<std::vector<Answer>> alone(const Case& c, const std::vector<Ask>& asks, int32_t page) {
  Setup s;
  s.limits = limits_of(max_context, 1, test_device().starts_with("cuda") && c.kv == KvType::int8 && page % 32 == 0 ? 32 : 16, 32);
  s.options.step_tokens = max_context;
  s.options.max_running = 1;
  s.options.prefix_cache = false;
  Running r(c, s, 20);
  std::vector<std::vector<Answer>> all;
  for (const Ask& a : asks) {
    all.emplace_back();
    for (uint32_t i = 0; i < a.given.n; ++i) {
      GivenParams g = a.given;
      g.n = 1;
      g.seed = *g.seed + i;
      if (i) g.prompt_logprobs = logprobs_off;
      all.back().push_back(collect(*r.submit(a.prompt, g), 1, 0)[0]);
    }
  }
  return all;
}

Setup random_setup(Random& random, KvType kv) {
  Setup s;
  s.threads = static_cast<int>(1 + below(random, 4));
  const auto seqs = static_cast<int32_t>(1 + below(random, 9));
  const int32_t rows = std::max(seqs, one_of(random, {9, 17, 40, 64, 128}));
  const bool tiles = kv == KvType::int8 || kv == KvType::uint4;
  const int32_t page =
      tiles ? one_of(random, {16, 16, 32, 64}) : one_of(random, {8, 16, 16, 32, 48});
  s.limits = limits_of(rows, seqs, page, one_of(random, {1, 5, 32}));
  EngineOptions& o = s.options;
  o.step_tokens = rows;
  o.max_running = seqs;
  o.watermark = static_cast<int64_t>(below(random, 3));
  o.prefix_cache = !once_in(random, 4);
  o.host_tier_bytes = once_in(random, 2) ? size_t{1} << (14 + below(random, 7)) : 0;
  o.fcfs = once_in(random, 3);
  o.itl_target_ns = once_in(random, 4) ? 200'000 : 0;
  o.output_bytes = once_in(random, 3) ? 64 : size_t{1} << 20;
  o.plan_ahead = once_in(random, 3);
  o.run_ahead = !once_in(random, 3);
  o.paused = once_in(random, 2);  // then everything arrives at once
  return s;
}

struct Totals {
  uint64_t histories = 0, samples = 0, cancelled = 0, preemptions = 0, hit_tokens = 0, host_in = 0,
           tokens = 0, guided = 0, embedded = 0, steps = 0, ahead = 0;
} totals;

// What differs, or an empty text.
std::string compare(const Answer& got, const Answer& want, bool cancelled) {
  if (got.finish == Finish::error)
    return cat("error ", static_cast<int>(got.error), " ", got.message);
  if (got.finish == Finish::cancelled) {
    if (!cancelled) return "cancelled by nobody";
    return begins(want.tokens, got.tokens) && begins(want.logprobs, got.logprobs) &&
                   begins(want.top, got.top)
               ? ""
               : "what came before the cancellation";
  }
  if (got.finish != want.finish) return "finish reason";
  if (!same_bits(got.tokens, want.tokens)) {
    size_t at = 0;
    while (at < std::min(got.tokens.size(), want.tokens.size()) &&
           got.tokens[at] == want.tokens[at])
      ++at;
    return cat("tokens, from ", at, " of ", want.tokens.size(), " (", got.tokens.size(), ")");
  }
  if (!same_bits(got.logprobs, want.logprobs)) return "logprobs";
  if (!same_bits(got.top, want.top)) return "best tokens";
  if (!same_bits(got.embedding, want.embedding)) return "embedding";
  if (!same_bits(got.prompt_logprobs, want.prompt_logprobs)) return "prompt logprobs";
  if (!same_bits(got.prompt_top, want.prompt_top)) return "best tokens of the prompt";
  return "";
}

void play(Running& r, const std::vector<Ask>& asks, const std::vector<std::vector<Answer>>& want,
          bool all_at_once, const std::string& label) {
  std::vector<std::shared_ptr<Request>> requests(asks.size());
  std::vector<std::vector<Answer>> got(asks.size());
  std::vector<std::thread> readers;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::pair<int64_t, size_t>> events;  // arrivals: even, cancellations: odd
  for (size_t i = 0; i < asks.size(); ++i) {
    events.emplace_back(all_at_once ? 0 : asks[i].arrives_us, 2 * i);
    if (asks[i].cancelled) events.emplace_back(asks[i].cancelled_us, 2 * i + 1);
  }
  std::stable_sort(events.begin(), events.end());
  size_t arrivals = 0;
  for (const auto& [at_us, event] : events) {
    const size_t i = event / 2;
    if (at_us) std::this_thread::sleep_until(begin + std::chrono::microseconds(at_us));
    if (event % 2) {
      requests[i]->cancel();
      continue;
    }
    requests[i] = r.submit(asks[i].prompt, asks[i].given);
    readers.emplace_back(
        [&, i] { got[i] = collect(*requests[i], asks[i].given.n, asks[i].read_pause_us); });
    if (++arrivals == asks.size()) r.engine->resume();
  }
  for (std::thread& t : readers) t.join();
  for (size_t i = 0; i < asks.size(); ++i)
    for (size_t n = 0; n < asks[i].given.n; ++n) {
      const std::string wrong = compare(got[i][n], want[i][n], asks[i].cancelled);
      if (!wrong.empty())
        std::fprintf(stderr, "%s: request %zu sample %zu of %u (prompt %zu): %s\n", label.c_str(),
                     i, n, asks[i].given.n, asks[i].prompt.size(), wrong.c_str());
      CHECK(wrong.empty());
      ++totals.samples;
      totals.cancelled += got[i][n].finish == Finish::cancelled;
      totals.guided += asks[i].given.guide && got[i][n].finish == Finish::stop;
      totals.embedded += !got[i][n].embedding.empty();
      totals.tokens += got[i][n].tokens.size();
    }
  EngineStats s = r.engine->stats();
  for (int i = 0; i < 2000 && (s.running || s.waiting || s.pages_used); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    s = r.engine->stats();
  }
  CHECK(!s.running && !s.waiting && !s.pages_used);
  totals.preemptions += s.preemptions;
  totals.hit_tokens += s.prefix_hit_tokens;
  totals.host_in += s.host_pages_in;
  totals.steps += s.steps;
  totals.ahead += s.steps_ahead;
}

void history(const Case& c, uint64_t seed) {
  const std::string label = c.name + " " + std::to_string(seed);
  const int before = failures();
  Random random(seed);
  const int32_t vocab = read_config(*Checkpoint::open(c.path, LoadMode::read)).vocab;
  const std::vector<Ask> asks = random_asks(random, vocab);
  const Setup setup = random_setup(random, c.kv);
  const std::vector<std::vector<Answer>> want = alone(c, asks, setup.limits.page_tokens);
  int64_t longest = 0;
  for (const Ask& a : asks)
    longest = std::max(longest, static_cast<int64_t>(a.prompt.size() + *a.given.max_tokens));
  const int64_t page = setup.limits.page_tokens;
  int64_t pages = (longest + page - 1) / page + static_cast<int64_t>(below(random, 20));
  auto running = std::make_unique<Running>(c, setup, pages);
  while (running->engine->capacity() < longest) {
    running.reset();
    running = std::make_unique<Running>(c, setup, ++pages);
  }
  play(*running, asks, want, setup.options.paused, label);
  ++totals.histories;
  if (failures() != before) {
    const EngineOptions& o = setup.options;
    std::fprintf(
        stderr,
        "%s: %d threads, %d running, %d rows, pages %lld of %lld, cache %d, tier %zu, ahead "
        "%d %d, itl %lld, output %zu, paused %d\nagain: same_bits_test %s\n",
        label.c_str(), setup.threads, o.max_running, o.step_tokens, static_cast<long long>(pages),
        static_cast<long long>(page), o.prefix_cache, o.host_tier_bytes, o.plan_ahead, *o.run_ahead,
        static_cast<long long>(o.itl_target_ns), o.output_bytes, o.paused, label.c_str());
  }
}

std::vector<Case> cases_in(const TempDir& folder) {
  constexpr Compute computes[] = {Compute::fp32, Compute::bf16, Compute::int8};
  constexpr KvType kvs[] = {KvType::f32, KvType::bf16, KvType::f16, KvType::int8, KvType::uint4};
  std::vector<Case> all;
  const auto add = [&](const std::string& model, const std::string& path, Compute c, KvType kv,
                       QuantOptions quant = {}) {
    all.push_back({cat(model, ":", name(c), ":", name(kv)), path, c, kv, quant});
  };
  // Checkpoints of floats: every KV type; int8 is bf16 for them.
  for (const char* model : {"llama", "mistral-window", "qwen2", "qwen3"})
    for (int k = 0; k < 5; ++k)
      for (int c = 0; c < 2; ++c)
        add(model, std::string(TEST_DATA) + "/tiny/" + model, computes[c], kvs[k]);
  // Every weight format in every compute setting, KV types in turn; and files of many formats.
  size_t turn = 0;
  std::vector<FileType> every;
  const auto add_file = [&](const std::string& model, const std::vector<FileType>& types) {
    const std::string path = folder.write(model + ".gguf", random_gguf(types, 1));
    for (const Compute c : computes) add(model, path, c, kvs[turn++ % 5]);
  };
  for (int t = 0; t < ggml_type_count; ++t) {
    every.push_back(static_cast<FileType>(t));
    add_file(file_types[t].name, {every.back()});
  }
  add_file("mixed", every);
  // Floats quantized at load: every row type, per group and per channel, a8 and the other settings
  // in turn.
  for (const int32_t bits : {4, 8})
    for (const int32_t group : {0, 32, 64})
      for (const bool symmetric : {false, true})
        for (const Compute c : {Compute::a8, computes[turn / 2 % 3]}) {
          const QuantOptions quant{.kind = QuantOptions::Kind::dynamic,
                                   .bits = bits,
                                   .group = group,
                                   .symmetric = symmetric};
          const char* model = turn % 2 ? "llama" : "qwen3";
          add(cat(model, "-iq", bits, symmetric ? "s" : "z", group),
              std::string(TEST_DATA) + "/tiny/" + model, c, kvs[turn++ % 5], quant);
        }
  return all;
}

int run(int argc, char** argv) {
  const TempDir folder;
  const std::vector<Case> all = cases_in(folder);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const bool soak = std::getenv("ORLOP_SOAK") != nullptr;
  if (argc == 3) {
    for (const Case& c : all)
      if (c.name == argv[1]) history(c, std::strtoull(argv[2], nullptr, 10));
  } else if (argc == 2 || soak) {
    const double limit = argc == 2 ? std::atof(argv[1]) : 600;
    Random random(std::random_device{}());
    while (seconds() < limit && failures() == 0)
      history(all[below(random, all.size())], random() % 1'000'000'000);
  } else {
    for (size_t i = 0; i < (is_short() ? 1 : 3) * all.size(); ++i)
      history(all[i % all.size()], 1000 + i);
  }
  const Totals& t = totals;
  std::printf(
      "%llu histories, %llu samples (%llu cancelled, %llu guided to an end, %llu embeddings), %llu tokens, %llu preemptions, %llu "
      "cached prompt tokens, %llu pages back from the host, %llu of %llu steps ahead, %.1f s\n",
      static_cast<unsigned long long>(t.histories), static_cast<unsigned long long>(t.samples),
      static_cast<unsigned long long>(t.cancelled), static_cast<unsigned long long>(t.guided),
      static_cast<unsigned long long>(t.embedded), static_cast<unsigned long long>(t.tokens),
      static_cast<unsigned long long>(t.preemptions), static_cast<unsigned long long>(t.hit_tokens),
      static_cast<unsigned long long>(t.host_in), static_cast<unsigned long long>(t.ahead),
      static_cast<unsigned long long>(t.steps), seconds());
  CHECK(t.histories > 0);
  // A test of what happened to nobody would show nothing.
  if (argc == 1) CHECK(t.cancelled > 0 && t.preemptions > 0 && t.hit_tokens > 0 && t.host_in > 0);
  if (argc == 1) CHECK(t.guided > 0 && t.embedded > 0 && t.ahead > t.steps / 10);
  return failures() ? 1 : 0;
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) {
  try {
    const int rc = orlop::test::run(argc, argv);
    std::printf("%d passed, %d failed\n", rc == 0, rc != 0);
    return rc;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "exception: %s\n", e.what());
    std::printf("0 passed, 1 failed\n");
    return 1;
  }
}
