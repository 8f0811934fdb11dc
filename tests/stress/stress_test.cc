// Stress over the C ABI: engines that come and go while several clients submit, cancel, read slowly,
// read nothing, or leave; with few pages. The engine must live, answer every request with an end,
// hold no page when nobody does, and give the same answer to the same question before and after.
//
//   stress_test [SECONDS [SEED]]    5 seconds; 600 with ORLOP_SOAK set
#include "stress.h"

using namespace stress;

namespace {

std::string random_config(Random& random) {
  std::string j = "{\"model\": \"" + tiny(one_of(random, {"llama", "mistral-window", "qwen3"})) + "\"";
  const auto number = [&](const char* key, uint64_t v) {
    j += ", \"" + std::string(key) + "\": " + std::to_string(v);
  };
  if (const char* device = std::getenv("ORLOP_TEST_DEVICE"); device && *device)
    j += ", \"device\": \"" + std::string(device) + "\"";
  j += ", \"kv_dtype\": \"" +
       std::string(one_of(random, {"fp32", "bf16", "fp16", "int8", "uint4"})) + "\"";
  number("threads", 1 + below(random, 3));
  number("max_context", 256);
  number("max_running_seqs", 1 + below(random, 12));
  number("step_tokens", 12 + below(random, 100));
  number("max_waiting", one_of(random, {4, 40, 16384}));
  number("block_size", one_of(random, {16, 16, 32}));
  number("kv_bytes", one_of(random, {400'000, 1'000'000, 4'000'000}));
  number("output_bytes", one_of(random, {4096, 65536, 1 << 20}));
  const bool cache = !once_in(random, 4);
  j += std::string(", \"debug_poison\": true, \"enable_prefix_cache\": ") +
       (cache ? "true" : "false");
  if (cache && once_in(random, 2)) {
    j += ", \"enable_cpu_prefix_swap\": true";
    number("cpu_prefix_bytes", 1 << 20);
  }
  j += std::string(", \"debug_plan_ahead\": ") + (once_in(random, 2) ? "true" : "false");
  if (!once_in(random, 3))
    j += std::string(", \"debug_run_ahead\": ") + (once_in(random, 4) ? "false" : "true");
  if (once_in(random, 4)) number("itl_target_ms", 1);
  return j + "}";
}

struct Totals {
  std::atomic<uint64_t> engines{0}, submitted{0}, refused{0}, done{0}, cancelled{0}, failed{0},
      abandoned{0}, preemptions{0};
} totals;

// One client: a handful of requests at once, each with its own kind of reader.
class Client {
 public:
  Client(orlop_engine* engine, uint64_t seed) : engine_(engine), random_(seed) {
    CHECK(orlop_queue_create(engine, &queue_, nullptr) == ORLOP_OK);
  }

  void run(const std::atomic<bool>& stop) {
    while (!stop) {
      if (live_.size() < 12 && once_in(random_, 2)) submit();
      if (!live_.empty()) visit(below(random_, live_.size()));
      if (once_in(random_, 20)) look_around();
      if (once_in(random_, 10)) sleep_us(below(random_, 3000));
    }
  }

  // Every request must have its end if it is read to it.
  void leave(bool read_all) {
    for (Live& l : live_) {
      if (read_all) count(take_all(l.request));
      orlop_request_release(l.request);
    }
    live_.clear();
    orlop_queue_release(queue_);
    queue_ = nullptr;
  }

 private:
  enum class Reader { fast, slow, never, leaves, cancels, queued };
  struct Live {
    orlop_request* request;
    Reader reader;
    int reads_left;
    Answer answer;
  };

  void submit() {
    std::vector<int32_t> prompt(1 + below(random_, once_in(random_, 3) ? 180 : 40));
    const uint64_t family = below(random_, 3);  // beginnings are shared
    for (size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<int32_t>((i * 7 + family * 31) % vocab);
    if (once_in(random_, 2)) prompt.back() = static_cast<int32_t>(below(random_, vocab));
    orlop_generate_params p = params_of(prompt);
    const Reader reader = static_cast<Reader>(below(random_, 6));
    p.flags = once_in(random_, 2) ? ORLOP_GENERATE_IGNORE_EOS : 0;
    p.max_tokens = static_cast<uint32_t>(below(random_, 60));
    p.temperature = one_of(random_, {0.0, 1.0});
    p.n = once_in(random_, 5) ? static_cast<uint32_t>(1 + below(random_, 4)) : 1;
    p.logprobs = one_of(random_, {ORLOP_LOGPROBS_OFF, 0, 5, ORLOP_LOGPROBS_ALL});
    p.prompt_logprobs = once_in(random_, 6) ? 3 : ORLOP_LOGPROBS_OFF;
    p.priority = static_cast<int32_t>(below(random_, 201)) - 100;
    if (once_in(random_, 8)) p.deadline_us = static_cast<int64_t>(1 + below(random_, 20000));
    if (once_in(random_, 3)) {
      p.cache_salt = "salt";
      p.cache_salt_len = 4;
    }
    p.queue = reader == Reader::queued ? queue_ : nullptr;
    p.tag = live_.size();
    Live l{nullptr, reader, static_cast<int>(below(random_, 6)), {}};
    orlop_error error = new_error();
    const int32_t s = orlop_async_generate(engine_, &p, &l.request, &error);
    if (s == ORLOP_OK) {
      ++totals.submitted;
      live_.push_back(std::move(l));
      return;
    }
    ++totals.refused;
    if (s != ORLOP_E_QUEUE_FULL && s != ORLOP_E_CONTEXT_OVERFLOW)
      std::fprintf(stderr, "submit: %d %s\n", s, error.message);
    CHECK(s == ORLOP_E_QUEUE_FULL || s == ORLOP_E_CONTEXT_OVERFLOW);
  }

  void visit(size_t i) {
    Live& l = live_[i];
    int64_t wait_us = 0;
    switch (l.reader) {
      case Reader::never:
        // It stays for a while, unread, and is dropped without a word.
        if (once_in(random_, 200)) abandon(i);
        return;
      case Reader::leaves:
        if (l.reads_left-- <= 0) return abandon(i);
        break;
      case Reader::cancels:
        if (l.reads_left-- == 0) orlop_cancel(l.request);
        break;
      case Reader::slow:
        if (!once_in(random_, 8)) return;
        break;
      case Reader::fast:
        wait_us = 2000;
        break;
      case Reader::queued: {
        uint64_t tag;
        const int32_t s = orlop_queue_wait(queue_, 500, &tag, nullptr);
        CHECK(s == ORLOP_OK || s == ORLOP_TIMEOUT);
        break;
      }
    }
    const int32_t s = get(l.request, &l.answer, wait_us);
    CHECK(s == ORLOP_OK || s == ORLOP_TIMEOUT || s == ORLOP_END);
    if (s == ORLOP_END) {
      count(l.answer);
      drop(i);
    }
  }

  void count(const Answer& a) {
    if (a.finish == ORLOP_FINISH_CANCELLED) ++totals.cancelled;
    if (a.finish == ORLOP_FINISH_STOP || a.finish == ORLOP_FINISH_LENGTH) ++totals.done;
    if (a.finish != ORLOP_FINISH_ERROR) return;
    ++totals.failed;
    if (a.error != ORLOP_E_DEADLINE)
      std::fprintf(stderr, "request: %d %s\n", a.error, a.message.c_str());
    CHECK(a.error == ORLOP_E_DEADLINE);
  }

  void abandon(size_t i) {
    ++totals.abandoned;
    drop(i);
  }
  void drop(size_t i) {
    orlop_request_release(live_[i].request);
    live_[i] = std::move(live_.back());
    live_.pop_back();
  }

  void look_around() {
    const orlop_stats s = stats_of(engine_);
    CHECK(s.pages_used <= s.pages_total && s.pages_cached <= s.pages_total);
    if (live_.empty()) return;
    orlop_request_info info{};
    info.struct_size = sizeof info;
    CHECK(orlop_get_status(live_[below(random_, live_.size())].request, &info, nullptr) == ORLOP_OK);
    if (once_in(random_, 4)) {
      orlop_buffer* json = nullptr;
      CHECK(orlop_engine_info(engine_, &json, nullptr) == ORLOP_OK);
      orlop_buffer_release(json);
    }
  }

  orlop_engine* engine_;
  Random random_;
  orlop_queue* queue_ = nullptr;
  std::vector<Live> live_;
};

// One engine's life.
void era(uint64_t seed) {
  Random random(seed);
  const int before = failures;
  const std::string config = random_config(random);
  orlop_engine* engine = create(config);
  if (!engine) return;
  ++totals.engines;
  const Answer first = canary(engine);
  std::vector<Client> clients;
  for (uint64_t i = 0; i < 3; ++i) clients.emplace_back(engine, random());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (Client& c : clients) threads.emplace_back([&c, &stop] { c.run(stop); });
  const uint64_t rounds = 1 + below(random, 6);
  for (uint64_t i = 0; i < rounds; ++i) {
    sleep_us(below(random, 150'000));
    // Behind whoever never reads. A full queue may refuse it; the end of the era may not.
    if (config.find("16384") != std::string::npos) check_same(canary(engine), first);
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  totals.preemptions += stats_of(engine).preemptions;
  if (once_in(random, 3)) {
    // The engine's handle goes first; its requests keep it alive, and each still ends.
    orlop_engine_release(engine);
    for (Client& c : clients) c.leave(once_in(random, 2));
  } else {
    for (Client& c : clients) c.leave(once_in(random, 2));
    check_empty(engine);
    check_same(canary(engine), first);
    check_empty(engine);
    orlop_engine_release(engine);
  }
  if (failures != before)
    std::fprintf(stderr, "era %llu: %s\n", static_cast<unsigned long long>(seed), config.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const double limit = argc > 1 ? std::atof(argv[1]) : std::getenv("ORLOP_SOAK") ? 600 : 5;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  do era(random());
  while (seconds() < limit && failures == 0);
  std::printf("%llu engines, %llu requests (%llu refused, %llu done, %llu cancelled, %llu late, %llu "
              "abandoned), %llu preemptions, %.1f s\n",
              static_cast<unsigned long long>(totals.engines),
              static_cast<unsigned long long>(totals.submitted),
              static_cast<unsigned long long>(totals.refused),
              static_cast<unsigned long long>(totals.done),
              static_cast<unsigned long long>(totals.cancelled),
              static_cast<unsigned long long>(totals.failed),
              static_cast<unsigned long long>(totals.abandoned),
              static_cast<unsigned long long>(totals.preemptions), seconds());
  CHECK(totals.done > 0 && (totals.engines < 5 || totals.cancelled > 0));
  std::printf("%d passed, %d failed\n", failures == 0, failures != 0);
  return failures != 0;
}
