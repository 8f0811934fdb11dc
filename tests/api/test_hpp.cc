// orlop.hpp: results, ownership and the walk over outputs. Compiled as C++17, with exceptions and
// (the whole file again) without. Includes no header of src/: a program of a user's would not.
//   test_hpp        what needs no model
//   test_hpp model  the rest, with the model file that ORLOP_TEST_MODEL names; exit code 77 without
#include "hpp_answers.h"

#include <poll.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

namespace {

static_assert(std::is_move_constructible_v<Engine> && !std::is_copy_constructible_v<Engine>);
static_assert(std::is_move_assignable_v<Request> && !std::is_copy_constructible_v<Request>);
static_assert(std::is_move_constructible_v<Queue> && !std::is_copy_assignable_v<Queue>);
static_assert(std::is_nothrow_move_constructible_v<Engine>);

void results() {
  Result<int> good = 7;
  CHECK(good && good.ok() && *good == 7 && good.error().code == ORLOP_OK);
  Result<int> bad = orlop::Error{ORLOP_E_IO, "no disk"};
  CHECK(!bad && bad.error().code == ORLOP_E_IO && bad.error().message == "no disk");
  Result<std::string> text = std::string("abc");
  CHECK(text->size() == 3);
  const std::string moved = *std::move(text);
  CHECK(moved == "abc");
#ifdef ORLOP_HPP_EXCEPTIONS
  CHECK(good.value() == 7);
  int code = 0;
  std::string what;
  try {
    (void)bad.value();
  } catch (const orlop::Exception& e) {
    code = e.code();
    what = e.what();
  }
  CHECK(code == ORLOP_E_IO && what == "no disk");
#endif
  const orlop::View<int> none(nullptr, 5);
  CHECK(none.empty() && none.begin() == none.end());
}

void quoting() {
  CHECK(orlop::json_quote("a\"b\\c") == "\"a\\\"b\\\\c\"");
  CHECK(orlop::json_quote(std::string_view("\n\0\x1f", 3)) == "\"\\u000a\\u0000\\u001f\"");
  CHECK(orlop::json_quote("é") == "\"é\"");
  CHECK(*Params::chat("say \"hi\"").messages ==
        "[{\"role\":\"user\",\"content\":\"say \\\"hi\\\"\"}]");
}

void conversations() {
  orlop::Chat chat;
  CHECK(chat.json() == "[]");
  chat.add("system", "Be \"brief\".").add("user", "Hi");
  CHECK(chat.json() ==
        "[{\"role\":\"system\",\"content\":\"Be \\\"brief\\\".\"},"
        "{\"role\":\"user\",\"content\":\"Hi\"}]");
  CHECK(*Params::chat(chat).messages == chat.json());
  const Params p = Params::ids({1, 2}).guided(ORLOP_GUIDE_REGEX, "a+");
  CHECK(p.tokens->size() == 2 && p.guide == ORLOP_GUIDE_REGEX && p.guide_source == "a+");
}

void library() {
  CHECK(orlop::version().size() >= 5 && orlop::abi_version() >> 16 == ORLOP_ABI_MAJOR);
  CHECK(!orlop::feature("no such thing") && !orlop::feature(nullptr));
  const auto whole = orlop::guide_check(ORLOP_GUIDE_REGEX, "[0-9]+", "12");
  CHECK(whole && whole->accepted == 2 && whole->complete);
  const auto part = orlop::guide_check(ORLOP_GUIDE_REGEX, "[0-9]+", "12x");
  CHECK(part && part->accepted == 2 && !part->complete);
  CHECK(orlop::guide_check(ORLOP_GUIDE_REGEX, "[", "").error().code == ORLOP_E_INVALID_ARGUMENT);
}

void failures_of_creation() {
  const Result<Engine> none = Engine::open("/nonexistent/\"model\".gguf");
  CHECK(!none && none.error().code == ORLOP_E_NOT_FOUND);
  CHECK(none.error().message.find("/nonexistent/\"model\".gguf") != std::string::npos);
  const Result<Engine> syntax = Engine::create("{\"model\":");
  CHECK(!syntax && syntax.error().code == ORLOP_E_INVALID_ARGUMENT);
  const Result<Engine> key = Engine::create("{\"model\":\"x\",\"thread\":2}");
  CHECK(!key && key.error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(key.error().message.find("threads") != std::string::npos);
  const Result<std::string> inspected = orlop::inspect("/nonexistent");
  CHECK(!inspected && inspected.error().code == ORLOP_E_NOT_FOUND);
}

void chat_outputs() {
  using orlop::ChatOutput;
  static_assert(std::is_move_constructible_v<ChatOutput> && !std::is_copy_constructible_v<ChatOutput>);
  CHECK(ChatOutput::create("{}").error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(ChatOutput().push("x").error().code == ORLOP_E_INVALID_ARGUMENT);
  Result<ChatOutput> made = ChatOutput::create("{\"format\":\"hermes\",\"reasoning\":true}");
  CHECK(made && *made);
  if (!made) return;
  ChatOutput output = *std::move(made);
  CHECK(*output.push("<think>Hm.</think>So") ==
        "[{\"type\":\"reasoning\",\"text\":\"Hm.\"},{\"type\":\"content\",\"text\":\"So\"}]");
  CHECK(*output.push("<tool_call>{\"name\":\"f\",\"argum") == "[]");
  CHECK(*output.push("ents\":{}}", true) ==
        "[{\"type\":\"tool_call\",\"index\":0,\"name\":\"f\"},"
        "{\"type\":\"tool_arguments\",\"index\":0,\"text\":\"{}\"}]");
  CHECK(output.push("x").error().code == ORLOP_E_INVALID_ARGUMENT);
}

void log_sinks() {
  static_assert(std::is_nothrow_move_constructible_v<orlop::LogSink>);
  orlop::LogSink none;
  CHECK(!none);
  int first = 0, second = 0;
  orlop::LogSink one([&first](std::int32_t, std::string_view) { ++first; });
  CHECK(one);
  {
    orlop::LogSink two([&second](std::int32_t, std::string_view) { ++second; }, ORLOP_LOG_DEBUG);
    orlop::LogSink moved = std::move(two);
    one.close();  // not the latest: that one stays
    one.close();
    CHECK(!one && moved);
    one = std::move(moved);
    CHECK(one);
  }
  none = std::move(one);
  none.close();
  CHECK(first == 0 && second == 0);  // nothing was there to tell
}

void empty_handles() {
  Engine engine;
  Request request;
  CHECK(!engine && !request && !Queue());
  CHECK(engine.generate(Params::prompt("x")).error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(engine.info().error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(engine.tokenize("x").error().code == ORLOP_E_INVALID_ARGUMENT);
  Output out;
  CHECK(request.get(out).error().code == ORLOP_E_INVALID_ARGUMENT);
  int turns = 0;
  for (const Output& o : request) turns += o.last() ? 1 : 1;
  CHECK(turns == 0 && request.error().code == ORLOP_E_INVALID_ARGUMENT);
  request.cancel();
  CHECK(request.answers().error().code == ORLOP_E_INVALID_ARGUMENT);
  engine.close(), engine.close();
  request.close(), request.close();
  Queue queue;
  queue.close(), queue.close();
  CHECK(queue.wait(orlop::Microseconds(0)).error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(engine.wait().error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(out.top_logprobs(0).empty() && out.prompt_logprobs().empty());
  CHECK(out.prompt_top_logprobs(0).empty() && out.embedding().empty() && out.text().empty());
}

void walk(const Engine& engine) {
  Result<Request> made = engine.generate(counted("The capital of France is", 12));
  CHECK(made);
  if (!made) return;
  Request request = *std::move(made);
  std::string text;
  std::size_t tokens = 0;
  int last = ORLOP_FINISH_NONE;
  for (const Output& out : request) {
    text += out.text();
    tokens += out.tokens().size();
    CHECK(out.logprobs().empty());
    last = out.finish_reason();
  }
  CHECK(tokens == 12 && last == ORLOP_FINISH_LENGTH && request.error().code == ORLOP_OK);
  CHECK(text.find("Paris") != std::string::npos);
  const Result<orlop_request_info> info = request.info();
  CHECK(info && info->state == ORLOP_STATE_DONE && info->generated_tokens == 12);
  CHECK(info->first_token_ns >= info->queued_ns && info->queued_ns > 0);
  Output out;
  const Result<Got> after = request.get(out);
  CHECK(after && *after == Got::end);

  // The same request read in one piece gives the same text.
  Result<Request> again = engine.generate(counted("The capital of France is", 12));
  CHECK(again);
  const Result<std::string> whole = again->read();
  CHECK(whole && *whole == text);
}

void parameters(const Engine& engine) {
  Params p = counted("One, two,", 6);
  p.seed = 0xFFFFFFFFFFFFFFFFull;
  p.temperature = 0.8;
  p.top_k = 40;
  p.logprobs = 3;
  p.stop = {"never to be seen", "\x01\x02"};
  p.logit_bias = {{5, -INFINITY}};
  Result<Request> made = engine.generate(p);
  CHECK(made);
  if (!made) return;
  Request request = *std::move(made);
  std::size_t n = 0;
  for (const Output& out : request) {
    CHECK(out.logprobs().size() == out.tokens().size());
    for (const float f : out.logprobs()) CHECK(f <= 0.0f && std::isfinite(f));
    for (std::size_t i = 0; i < out.tokens().size(); ++i) {
      const orlop::View<orlop_logprob> top = out.top_logprobs(i);
      CHECK(top.size() == 3 && top[0].logprob >= top[1].logprob && top[1].logprob >= top[2].logprob);
      CHECK(out.logprobs()[i] <= top[0].logprob);
    }
    CHECK(out.top_logprobs(out.tokens().size()).empty());
    CHECK(out.prompt_logprobs().empty());
    n += out.tokens().size();
  }
  CHECK(n == 6);
  const Result<orlop_request_info> info = request.info();
  CHECK(info && info->seed == 0xFFFFFFFFFFFFFFFFull);

  p.top_p = 1.5;
  const Result<Request> refused = engine.generate(p);
  CHECK(!refused && refused.error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(refused.error().message.find("top_p") != std::string::npos);
  Params two = Params::prompt("a");
  two.tokens = std::vector<std::int32_t>{1};
  CHECK(engine.generate(two).error().code == ORLOP_E_INVALID_ARGUMENT);
}

void texts(const Engine& engine) {
  // More ids than a first guess holds: bytes that no vocabulary joins.
  std::string odd;
  for (int i = 0; i < 400; ++i) odd += static_cast<char>('!' + (i * 7) % 90);
  for (const std::string& text : {std::string("Hello, world!"), std::string(), odd}) {
    const Result<std::vector<std::int32_t>> ids = engine.tokenize(text);
    CHECK(ids && ids->empty() == text.empty());
    const Result<std::string> back = engine.detokenize(*ids);
    CHECK(back && *back == text);
  }
  const std::string messages = *Params::chat("Hi").messages;
  const Result<std::string> shown = engine.chat_render(messages);
  CHECK(shown && shown->find("Hi") != std::string::npos);
  const auto rendered = engine.tokenize(*shown, ORLOP_TOKENIZE_PARSE_SPECIAL);
  const auto direct = engine.chat_tokenize(messages);
  CHECK(rendered && direct && *rendered == *direct);
  CHECK(engine.detokenize({-1}).error().code == ORLOP_E_INVALID_ARGUMENT);
  const Result<std::string> info = engine.info();
  CHECK(info && info->front() == '{');
  const Result<orlop_stats> stats = engine.stats();
  CHECK(stats && stats->generated_tokens > 0 && stats->pages_total > 0);
}

void queues(const Engine& engine) {
  Result<Queue> queue = engine.queue();
  CHECK(queue && queue->fd() >= 0);
  const Result<std::optional<std::uint64_t>> idle = queue->wait(orlop::Microseconds(0));
  CHECK(idle && !idle->has_value());
  std::vector<Request> requests;
  for (std::uint64_t tag = 0; tag < 3; ++tag) {
    Params p = counted("A list:", 5);
    p.queue = &*queue;
    p.tag = tag;
    Result<Request> made = engine.generate(p);
    CHECK(made);
    if (made) requests.push_back(*std::move(made));
  }
  if (requests.size() != 3) return;
  std::size_t ended = 0, tokens = 0;
  while (ended < 3) {
    pollfd waiting{queue->fd(), POLLIN, 0};
    CHECK(poll(&waiting, 1, 60000) == 1);
    const auto tag = queue->wait(std::chrono::seconds(60));
    CHECK(tag && tag->has_value() && **tag < 3);
    if (!tag || !tag->has_value()) return;
    Output out;
    const Result<Got> got = requests[**tag].get(out, orlop::Microseconds(0));
    CHECK(got);
    if (got && *got == Got::output) {
      tokens += out.tokens().size();
      if (out.last()) ++ended;
    }
  }
  CHECK(tokens == 15);
}

void samples(const Engine& engine) {
  Params p = counted("Once upon a", 8);
  p.temperature = 1.0;
  p.seed = 5;
  p.n = 3;
  p.cache_salt = "samples";
  p.priority = 10;
  p.deadline = std::chrono::minutes(10);
  Result<Request> made = engine.generate(p);
  CHECK(made);
  if (!made) return;
  std::string texts[3];
  int ends = 0;
  for (const Output& out : *made) {
    CHECK(out.index() < 3);
    texts[out.index() % 3] += out.text();
    ends += out.last();
  }
  CHECK(ends == 3 && made->info()->samples == 3 && made->info()->generated_tokens == 24);
  for (std::uint64_t i = 0; i < 3; ++i) {
    p.n = 1;
    p.seed = 5 + i;
    Result<Request> alone = engine.generate(p);
    CHECK(alone && *alone->read() == texts[i]);
  }
  p.deadline = orlop::Microseconds(1);
  Result<Request> late = engine.generate(p);
  CHECK(late && late->read().error().code == ORLOP_E_DEADLINE);
  Result<Request> walked = engine.generate(p);
  for ([[maybe_unused]] const Output& out : *walked) {
  }
  CHECK(walked->error().code == ORLOP_E_DEADLINE);
  p.deadline = orlop::Microseconds(0);
  p.priority = 101;
  CHECK(engine.generate(p).error().code == ORLOP_E_INVALID_ARGUMENT);
}

void states(const Engine& engine) {
  std::string text = "A long way begins";
  for (int i = 0; i < 12; ++i) text += ", and then goes on";
  orlop::StateParams p;
  p.text = text;
  p.cache_salt = "from";
  p.key = "a key of enough bytes";
  const Result<std::string> saved = engine.save_state(p);
  CHECK(saved && saved->size() > 1000);
  if (!saved) return;
  orlop::StateParams to;
  to.key = p.key;
  const Result<orlop_state_info> info = engine.load_state(to, *saved);
  CHECK(info && info->shared == 1 && info->n_tokens >= 32 && info->pages > 0);
  Params again = counted(text.c_str(), 1);
  again.cache_salt = "to";
  Result<Request> request = engine.generate(again);
  CHECK(request && request->read());
  CHECK(request->info()->cached_tokens + 16 >= info->n_tokens);
  to.key = "another key of enough bytes";
  CHECK(engine.load_state(to, *saved).error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(engine.load_state(orlop::StateParams(), *saved).error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(engine.load_state(to).error().code == ORLOP_E_INVALID_ARGUMENT);
  const Result<orlop_stats> stats = engine.stats();
  CHECK(stats && stats->prefix_hit_tokens > 0 && stats->pages_cached > 0);
}

void cancelling(Engine engine) {
  Result<Request> made = engine.generate(counted("Once upon a time", 1000));
  CHECK(made);
  if (!made) return;
  Request request = *std::move(made);
  engine = Engine();  // the request keeps what it needs
  std::thread other;
  int last = ORLOP_FINISH_NONE;
  for (const Output& out : request) {
    if (!other.joinable()) other = std::thread([&request] { request.cancel(); });
    last = out.finish_reason();
  }
  other.join();
  CHECK(last == ORLOP_FINISH_CANCELLED);
}

int with_model() {
  const char* path = std::getenv("ORLOP_TEST_MODEL");
  std::FILE* file = path ? std::fopen(path, "rb") : nullptr;
  if (!file) {
    std::puts("the demo model is not there (ORLOP_TEST_MODEL)");
    return 77;
  }
  std::fclose(file);
  const std::string config =
      "{\"model\":" + orlop::json_quote(path) + ",\"threads\":2,\"max_context\":1024}";
  loading(config);
  Result<Engine> engine = Engine::create_async(config);
  CHECK(engine);
  if (engine) {
    orlop_progress progress{};
    progress.struct_size = sizeof progress;
    const Result<bool> ready = engine->wait(orlop::forever, &progress);
    CHECK(ready && *ready && progress.done == 1 && progress.bytes_done == progress.bytes_total);
    if (ready) {
      walk(*engine);
      parameters(*engine);
      prompt_logprobs(*engine);
      answers(*engine);
      guided(*engine);
      texts(*engine);
      queues(*engine);
      samples(*engine);
      states(*engine);
      cancelling(*std::move(engine));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "model") == 0) {
    if (const int skip = with_model()) return skip;
  } else {
    results();
    quoting();
    conversations();
    library();
    log_sinks();
    chat_outputs();
    failures_of_creation();
    empty_handles();
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed;
}
