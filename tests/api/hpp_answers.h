// test_hpp.cc's checks, and its tests of what answers hold.
#ifndef HPP_ANSWERS_H
#define HPP_ANSWERS_H
#include <chrono>
#include <cstdio>
#include <string>

#include "orlop/orlop.hpp"

namespace {

int passed = 0, failed = 0;

void check(bool ok, const char* what, const char* file, int line) {
  ok ? ++passed : ++failed;
  if (!ok) std::fprintf(stderr, "%s:%d: CHECK(%s)\n", file, line, what);
}
#define CHECK(...) check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

using orlop::Engine;
using orlop::Got;
using orlop::Output;
using orlop::Params;
using orlop::Queue;
using orlop::Request;
using orlop::Result;

Params counted(const char* text, unsigned n) {
  Params p = Params::prompt(text);
  p.max_tokens = n;
  p.temperature = 0.0;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  return p;
}

void prompt_logprobs(const Engine& engine) {
  Params p = counted("The capital of France is", 1);
  p.prompt_logprobs = 2;
  p.logprobs = 0;
  Result<Request> made = engine.generate(p);
  CHECK(made);
  if (!made) return;
  Request request = *std::move(made);
  std::size_t seen = 0;
  for (const Output& out : request) {
    CHECK(out.top_logprobs(0).empty() && out.logprobs().size() == out.tokens().size());
    if (out.prompt_logprobs().empty()) continue;
    seen += out.prompt_logprobs().size();
    CHECK(out.prompt_logprobs()[0] == 0.0f && out.prompt_top_logprobs(0)[1].token == 0);
    for (std::size_t i = 1; i < out.prompt_logprobs().size(); ++i) {
      const orlop::View<orlop_logprob> top = out.prompt_top_logprobs(i);
      CHECK(top.size() == 2 && top[0].logprob >= top[1].logprob);
      CHECK(out.prompt_logprobs()[i] < 0.0f && out.prompt_logprobs()[i] <= top[0].logprob);
    }
    CHECK(out.prompt_top_logprobs(out.prompt_logprobs().size()).empty());
  }
  CHECK(seen == request.info()->prompt_tokens && seen == 5);
}

void answers(const Engine& engine) {
  Params p = counted("Once upon a", 8);
  p.n = 2;
  p.temperature = 1.0;
  p.seed = 5;
  p.logprobs = 0;
  Result<Request> made = engine.generate(p);
  CHECK(made);
  if (!made) return;
  const auto all = made->answers();
  CHECK(all && all->size() == 2);
  if (!all || all->size() != 2) return;
  for (const orlop::Answer& a : *all) {
    CHECK(a.tokens.size() == 8 && a.logprobs.size() == 8 && !a.text.empty());
    CHECK(a.finish_reason == ORLOP_FINISH_LENGTH && a.error.code == ORLOP_OK);
    CHECK(a.stop_token == -1 && a.stop_index == -1 && a.embedding.empty());
  }
  p.n = 1;
  p.seed = 6;
  Result<Request> alone = engine.generate(p);
  CHECK(alone && *alone->read() == (*all)[1].text);
  p = Params::prompt("1, 2, 3,");
  p.temperature = 0.0;
  p.stop = {"never", " 5"};
  Result<Request> stopped = engine.generate(p);
  const auto one = stopped->answers();
  CHECK(one && (*one)[0].finish_reason == ORLOP_FINISH_STOP && (*one)[0].stop_index == 1);
  p = Params::prompt("A sentence.");
  p.embedding = ORLOP_EMBEDDING_MEAN;
  Result<Request> embedded = engine.generate(p);
  const auto vector = embedded->answers();
  CHECK(vector && (*vector)[0].embedding.size() == 576 && (*vector)[0].tokens.empty());
  p = counted("Never in time", 8);
  p.deadline = orlop::Microseconds(1);
  Result<Request> late = engine.generate(p);
  const auto failed_one = late->answers();
  CHECK(failed_one && (*failed_one)[0].error.code == ORLOP_E_DEADLINE);
  CHECK(!(*failed_one)[0].error.message.empty());
}

void guided(const Engine& engine) {
  const char schema[] = "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"boolean\"}},"
                        "\"required\":[\"n\"],\"additionalProperties\":false}";
  Params p = Params::chat("Is it true?").guided(ORLOP_GUIDE_JSON_SCHEMA, schema);
  p.temperature = 0.0;
  p.max_tokens = 64;
  Result<Request> made = engine.generate(p);
  CHECK(made);
  if (!made) return;
  const Result<std::string> text = made->read();
  CHECK(text);
  const auto followed = orlop::guide_check(ORLOP_GUIDE_JSON_SCHEMA, schema, *text);
  CHECK(followed && followed->complete && followed->accepted == text->size());
}

void loading(const std::string& config) {
  int calls = 0;
  orlop_progress last{};
  const auto made = Engine::create(
      config, [&](const orlop_progress& p) { return last = p, ++calls, true; },
      std::chrono::milliseconds(1));
  CHECK(made && *made && calls > 0);
  CHECK(last.done == 1 && last.bytes_total > 0 && last.bytes_done == last.bytes_total);
  const auto given_up = Engine::create(config, [](const orlop_progress&) { return false; },
                                       orlop::Microseconds(0));
  CHECK(!given_up && given_up.error().code == ORLOP_E_CANCELLED);
  const auto wrong = Engine::create("{}", [](const orlop_progress&) { return true; });
  CHECK(!wrong && wrong.error().code == ORLOP_E_INVALID_ARGUMENT);
}

}  // namespace
#endif
