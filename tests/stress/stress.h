// What the stress programs share: calls of the C ABI, and the question whose answer never changes.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "orlop/orlop.h"

namespace stress {

inline std::atomic<int> failures{0};
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      ++stress::failures;                                                         \
    }                                                                             \
  } while (0)

using Random = std::mt19937_64;
inline uint64_t below(Random& random, uint64_t n) { return random() % n; }
inline bool once_in(Random& random, uint64_t n) { return below(random, n) == 0; }
template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[below(random, values.size())];
}
inline void sleep_us(uint64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

constexpr int32_t vocab = 128;  // the smallest of the models'
constexpr int64_t patience_us = 120'000'000;  // an answer that takes longer does not come

inline orlop_error new_error() {
  orlop_error e{};
  e.struct_size = sizeof e;
  return e;
}

inline orlop_engine* create(const std::string& json) {
  orlop_engine* engine = nullptr;
  orlop_error error = new_error();
  const int32_t s = orlop_engine_create(json.data(), json.size(), &engine, &error);
  if (s != ORLOP_OK) std::fprintf(stderr, "engine %s: %d %s\n", json.c_str(), s, error.message);
  CHECK(s == ORLOP_OK);
  return engine;
}

inline orlop_stats stats_of(orlop_engine* engine) {
  orlop_stats s{};
  s.struct_size = sizeof s;
  CHECK(orlop_engine_stats(engine, &s, nullptr) == ORLOP_OK);
  return s;
}

inline orlop_generate_params params_of(const std::vector<int32_t>& prompt) {
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
inline int32_t get(orlop_request* request, Answer* answer, int64_t timeout_us = patience_us) {
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

inline Answer take_all(orlop_request* request) {
  Answer a;
  int32_t s;
  while ((s = get(request, &a)) == ORLOP_OK) {
  }
  CHECK(s == ORLOP_END);
  return a;
}

// The same question at any time: the answer's bits may not change.
inline Answer canary(orlop_engine* engine) {
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

inline void check_same(const Answer& a, const Answer& b) {
  CHECK(a.tokens == b.tokens && a.logprobs.size() == b.logprobs.size() &&
        std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)) == 0);
}

// Nothing runs, nothing waits, no page is held.
inline void check_empty(orlop_engine* engine) {
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

inline std::string tiny(const char* name) { return std::string(TEST_DATA) + "/tiny/" + name; }

}  // namespace stress
