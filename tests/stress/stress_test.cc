// Stress over the C ABI: engines that come and go while several clients submit, cancel, read slowly,
// read nothing, or leave; with few pages and, in a process of its own, with little memory. The
// engine must live, answer every request with an end, hold no page when nobody does, and give the
// same answer to the same question before and after.
//
//   stress_test [SECONDS [SEED]]    5 seconds; 600 with ORLOP_SOAK set
//   stress_test memory MIB          one process with that much memory left (run by itself)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "orlop/orlop.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

namespace {

std::atomic<int> failures{0};
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                                 \
    }                                                                             \
  } while (0)

using Random = std::mt19937_64;
uint64_t below(Random& random, uint64_t n) { return random() % n; }
bool once_in(Random& random, uint64_t n) { return below(random, n) == 0; }
template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[below(random, values.size())];
}
void sleep_us(uint64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

constexpr int32_t vocab = 128;  // the smallest of the models'
constexpr int64_t patience_us = 120'000'000;  // an answer that takes longer does not come

orlop_error new_error() {
  orlop_error e{};
  e.struct_size = sizeof e;
  return e;
}

orlop_engine* create(const std::string& json) {
  orlop_engine* engine = nullptr;
  orlop_error error = new_error();
  const int32_t s = orlop_engine_create(json.data(), json.size(), &engine, &error);
  if (s != ORLOP_OK) std::fprintf(stderr, "engine %s: %d %s\n", json.c_str(), s, error.message);
  CHECK(s == ORLOP_OK);
  return engine;
}

orlop_stats stats_of(orlop_engine* engine) {
  orlop_stats s{};
  s.struct_size = sizeof s;
  CHECK(orlop_engine_stats(engine, &s, nullptr) == ORLOP_OK);
  return s;
}

orlop_generate_params params_of(const std::vector<int32_t>& prompt) {
  orlop_generate_params p;
  orlop_generate_params_init(&p, sizeof p);
  p.tokens = prompt.data();
  p.n_tokens = prompt.size();
  return p;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int32_t finish = ORLOP_FINISH_NONE, error = 0;
  std::string message;
};

// One output; ORLOP_TIMEOUT after so long is a request that hangs.
int32_t get(orlop_request* request, Answer* answer, int64_t timeout_us = patience_us) {
  orlop_output o{};
  o.struct_size = sizeof o;
  const int32_t s = orlop_get(request, timeout_us, &o, nullptr);
  if (s != ORLOP_OK || !answer) return s;
  answer->tokens.insert(answer->tokens.end(), o.tokens, o.tokens + o.n_tokens);
  if (o.logprobs)
    answer->logprobs.insert(answer->logprobs.end(), o.logprobs, o.logprobs + o.n_tokens);
  answer->finish = o.finish_reason;
  answer->error = o.error_code;
  answer->message.assign(o.message ? o.message : "", o.message_len);
  return s;
}

Answer take_all(orlop_request* request) {
  Answer a;
  int32_t s;
  while ((s = get(request, &a)) == ORLOP_OK) {
  }
  CHECK(s == ORLOP_END);
  return a;
}

// The same question at any time: the answer's bits may not change.
Answer canary(orlop_engine* engine) {
  std::vector<int32_t> prompt(50);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 29 % vocab);
  orlop_generate_params p = params_of(prompt);
  p.flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED;
  p.max_tokens = 25;
  p.temperature = 0.9;
  p.seed = 7;
  p.logprobs = 0;
  p.priority = 100;
  orlop_request* r = nullptr;
  orlop_error error = new_error();
  const int32_t s = orlop_async_generate(engine, &p, &r, &error);
  if (s != ORLOP_OK) std::fprintf(stderr, "canary: %d %s\n", s, error.message);
  CHECK(s == ORLOP_OK);
  if (!r) return {};
  Answer a = take_all(r);
  if (a.finish != ORLOP_FINISH_LENGTH)
    std::fprintf(stderr, "canary: finish %d error %d %s\n", a.finish, a.error, a.message.c_str());
  CHECK(a.finish == ORLOP_FINISH_LENGTH && a.tokens.size() == 25);
  orlop_request_release(r);
  return a;
}

void check_same(const Answer& a, const Answer& b) {
  CHECK(a.tokens == b.tokens && a.logprobs.size() == b.logprobs.size() &&
        std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)) == 0);
}

// Nothing runs, nothing waits, no page is held.
void check_empty(orlop_engine* engine) {
  orlop_stats s = stats_of(engine);
  for (int i = 0; i < 30000; ++i) {
    if (!s.requests_running && !s.requests_waiting && !s.pages_used) break;
    sleep_us(1000);
    s = stats_of(engine);
  }
  if (s.requests_running || s.requests_waiting || s.pages_used || s.requests_paused)
    std::fprintf(stderr, "left: %u running, %u waiting, %llu pages, %lld paused\n",
                 s.requests_running, s.requests_waiting,
                 static_cast<unsigned long long>(s.pages_used),
                 static_cast<long long>(s.requests_paused));
  CHECK(!s.requests_running && !s.requests_waiting && !s.pages_used && !s.requests_paused);
  CHECK(s.pages_cached + s.pages_free == s.pages_total);
}

std::string tiny(const char* name) { return std::string(TEST_DATA) + "/tiny/" + name; }

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

// ---- little memory ------------------------------------------------------------------------------

size_t address_space() {
  unsigned long pages = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%lu", &pages) != 1) pages = 0;
    std::fclose(f);
  }
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Fills the memory that a limit leaves with requests that nobody reads. Each submission is accepted
// or refused as out of memory; each request ends, well or as out of memory; and once there is memory
// again all is as before.
void with_little_memory(size_t headroom) {
  const std::string config =
      "{\"model\": \"" + tiny("llama") +
      "\", \"threads\": 2, \"kv_bytes\": 4000000, \"max_running_seqs\": 16, \"output_bytes\": "
      "268435456}";
  orlop_engine* engine = create(config);
  if (!engine) return;
  const Answer first = canary(engine);

  std::vector<int32_t> prompt(200, 5);
  orlop_generate_params p = params_of(prompt);
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  p.max_tokens = 200;
  p.logprobs = p.prompt_logprobs = ORLOP_LOGPROBS_ALL;  // half a megabyte each
  std::vector<orlop_request*> requests;
  requests.reserve(4000);
  std::vector<int32_t> finishes;
  finishes.reserve(4000);

  rlimit limit{};
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  const rlimit before = limit;
  limit.rlim_cur = address_space() + headroom;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  int refused = 0, failed = 0, whole = 0, other = 0, engines = 0;
  for (int i = 0; i < 4000 && refused < 20; ++i) {
    orlop_request* r = nullptr;
    const int32_t s = orlop_async_generate(engine, &p, &r, nullptr);
    if (s == ORLOP_OK)
      requests.push_back(r);
    else if (s == ORLOP_E_OUT_OF_MEMORY)
      ++refused;
    else
      ++other;
  }
  // Nobody reads: the answers of hundreds of requests do not fit.
  for (int i = 0; i < 60000; ++i) {
    const orlop_stats now = stats_of(engine);
    if (!now.requests_running && !now.requests_waiting) break;
    sleep_us(1000);
  }
  // Another engine does not come up, or it does where there is room.
  orlop_engine* second = nullptr;
  const int32_t s = orlop_engine_create(config.data(), config.size(), &second, nullptr);
  engines = s == ORLOP_E_OUT_OF_MEMORY;
  if (s != ORLOP_OK && s != ORLOP_E_OUT_OF_MEMORY) ++other;
  orlop_engine_release(second);

  for (orlop_request* r : requests) {
    int32_t status, finish = ORLOP_FINISH_NONE, error = 0;
    do {
      orlop_output o{};
      o.struct_size = sizeof o;
      status = orlop_get(r, patience_us, &o, nullptr);
      if (status == ORLOP_OK && o.finish_reason != ORLOP_FINISH_NONE) {
        finish = o.finish_reason;
        error = o.error_code;
      }
    } while (status == ORLOP_OK);
    if (status == ORLOP_END && finish == ORLOP_FINISH_LENGTH)
      ++whole;
    else if (status == ORLOP_END && finish == ORLOP_FINISH_ERROR && error == ORLOP_E_OUT_OF_MEMORY)
      ++failed;
    else
      ++other;
    orlop_request_release(r);
  }
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  std::printf("%zu MiB left: %zu requests (%d whole, %d out of memory), %d refused, second engine "
              "%s\n", headroom >> 20, requests.size(), whole, failed, refused,
              engines ? "refused" : "made");
  CHECK(other == 0);
  CHECK(refused + failed > 0);  // else there was memory enough
  check_same(canary(engine), first);
  check_empty(engine);
  orlop_engine_release(engine);
}

// Runs this program again; true if it ended well.
bool in_own_process(const std::string& mib) {
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return false;
  self[n] = 0;
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, "memory", mib.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  const bool ended = child > 0 && waitpid(child, &status, 0) == child;
  if (ended && WIFSIGNALED(status))
    std::fprintf(stderr, "the process with %s MiB died of signal %d\n", mib.c_str(),
                 WTERMSIG(status));
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && !std::strcmp(argv[1], "memory")) {
    with_little_memory(std::strtoull(argv[2], nullptr, 10) << 20);
    return failures != 0;
  }
  const double limit = argc > 1 ? std::atof(argv[1]) : std::getenv("ORLOP_SOAK") ? 600 : 5;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  int cases = 1;
  const char* device = std::getenv("ORLOP_TEST_DEVICE");
  if (SANITIZED) {
    std::printf("SKIP little memory: a sanitizer's own memory leaves no limit to set\n");
  } else if (!device || !*device) {
    for (const char* mib : {"1", "4", "16", "48"}) {
      CHECK(in_own_process(mib));
      ++cases;
    }
  }
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
  CHECK(totals.done > 0 && totals.cancelled > 0);
  std::printf("%d passed, %d failed\n", failures ? cases - 1 : cases, failures ? 1 : 0);
  return failures != 0;
}
