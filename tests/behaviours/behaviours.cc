// The twelve behaviours of behaviours.txt in C++17, each a test of that name.
//   behaviours_cc [NAME]   all, or those whose name holds NAME
// ORLOP_TEST_DATA and ORLOP_TEST_MODEL say where tests/data and the demo model are.
#include <orlop/orlop.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using orlop::Answer;
using orlop::Engine;
using orlop::Got;
using orlop::Output;
using orlop::Params;
using orlop::Queue;
using orlop::Request;
using orlop::Result;

int failures = 0;
const char* skipped = nullptr;  // set by a test that cannot run: why
std::string self, data, model;

void check(bool ok, const char* what, int line) {
  if (ok) return;
  ++failures;
  std::fprintf(stderr, "behaviours.cc:%d: CHECK(%s)\n", line, what);
}
#define CHECK(...) check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __LINE__)

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  CHECK(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spit(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  CHECK(out.flush());
}

// tests/data/tiny/llama with more members of the configuration, each after a comma.
std::string tiny_json(const std::string& more = "") {
  return "{\"model\":" + orlop::json_quote(data + "/tiny/llama") +
         ",\"compute\":\"fp32\",\"threads\":2" + more + "}";
}
Engine tiny(const std::string& more = "") { return Engine::create(tiny_json(more)).value(); }

// Prompt and parameters that differ from one `i` to the next.
Params numbered(int i, unsigned tokens) {
  std::vector<std::int32_t> prompt;
  for (int k = 0; k < 3 + i % 6; ++k) prompt.push_back(3 + (i + 1) * (k + 7) % 120);
  Params p = Params::ids(prompt);
  p.max_tokens = tokens;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  p.seed = static_cast<std::uint64_t>(i);
  p.temperature = 1;
  return p;
}

bool operator==(const Answer& a, const Answer& b) {
  return a.tokens == b.tokens && a.finish_reason == b.finish_reason;
}

Answer read(Request& r) { return r.answers().value().at(0); }

// What request `i` answers when nothing else runs.
Answer alone(const Engine& e, int i, unsigned tokens) {
  Request r = e.generate(numbered(i, tokens)).value();
  Answer a = read(r);
  CHECK(a.tokens.size() == tokens && a.finish_reason == ORLOP_FINISH_LENGTH);
  return a;
}

bool settles(const Engine& e) {
  for (int i = 0; i < 20000; ++i) {
    const orlop_stats s = e.stats().value();
    if (!s.requests_running && !s.requests_waiting && !s.pages_used) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

void golden_stream() {
  if (!fs::exists(model)) {
    skipped = "the demo model is not there";
    return;
  }
  const fs::path folder = fs::path(data) / ".." / "behaviours";
  const Engine e = Engine::create("{\"model\":" + orlop::json_quote(model) +
                                  ",\"compute\":\"fp32\",\"threads\":2,\"max_context\":512}")
                       .value();
  Params p = Params::prompt(slurp(folder / "golden_prompt.txt"));
  p.temperature = 0;
  p.max_tokens = 48;
  Request r = e.generate(p).value();
  std::string text;
  int pieces = 0, last = ORLOP_FINISH_NONE;
  std::size_t tokens = 0;
  for (const Output& out : r) {
    text += out.text();
    pieces += !out.text().empty();
    tokens += out.tokens().size();
    last = out.finish_reason();
  }
  const std::string want = slurp(folder / "golden_text.txt");
  CHECK(r.error().code == ORLOP_OK);
  CHECK(pieces > 1);
  CHECK(tokens == 48);
  CHECK(last == ORLOP_FINISH_LENGTH);
  CHECK(want.size() > 50 && text == want);
}

// The answer pauses while nobody reads, so 400 tokens cannot be done before the cancel.
void cancel() {
  const Engine e = tiny(",\"output_bytes\":64");
  Request r = e.generate(numbered(1, 400)).value();
  Output first;
  CHECK(r.get(first).value() == Got::output && !first.tokens().empty() && !first.last());
  const std::size_t before = first.tokens().size();
  CHECK(e.stats().value().pages_used > 0);
  r.cancel();
  const Answer rest = read(r);
  CHECK(rest.finish_reason == ORLOP_FINISH_CANCELLED && rest.error.code == ORLOP_OK);
  CHECK(before + rest.tokens.size() < 400);
  r.cancel();
  r.cancel();
  CHECK(r.get(first).value() == Got::end);
  CHECK(r.info().value().state == ORLOP_STATE_CANCELLED);
  CHECK(settles(e));
}

// Thirty-two samples of 400 tokens wait for the one seat before the second request, which so has
// nothing to give for long.
void timeout() {
  const Engine e = tiny(",\"scheduling\":\"fcfs\",\"max_running_seqs\":1");
  Params many = numbered(1, 400);
  many.n = 32;
  Request first = e.generate(many).value();
  Request r = e.generate(numbered(2, 16)).value();
  Output out;
  CHECK(r.get(out, 0us).value() == Got::timeout);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(r.get(out, 5ms).value() == Got::timeout);
  CHECK(std::chrono::steady_clock::now() - begin >= 5ms);
  first.close();
  const Answer a = read(r);
  CHECK(a.tokens.size() == 16 && a.finish_reason == ORLOP_FINISH_LENGTH);

  Params hurried = numbered(2, 16);
  hurried.deadline = 1us;
  Request late = e.generate(hurried).value();
  const Answer b = read(late);
  CHECK(b.finish_reason == ORLOP_FINISH_ERROR && b.error.code == ORLOP_E_DEADLINE);
  CHECK(!b.error.message.empty() && b.tokens.size() < 16);
}

void overflow_error_text() {
  const Engine e = tiny();
  const auto refused = e.generate(Params::ids(std::vector<std::int32_t>(600, 7)));
  CHECK(!refused && refused.error().code == ORLOP_E_CONTEXT_OVERFLOW);
  CHECK(refused.error().message.find("600") != std::string::npos);
  CHECK(refused.error().message.find("512") != std::string::npos);
}

void unknown_key() {
  const auto refused = Engine::create(tiny_json(",\"thread\":2"));
  CHECK(!refused && refused.error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(refused.error().message.find("\"threads\"") != std::string::npos);
  std::int32_t code = 0;
  try {
    (void)Engine::create(tiny_json(",\"thread\":2")).value();
  } catch (const orlop::Exception& thrown) {
    code = thrown.code();
    CHECK(std::strstr(thrown.what(), "\"threads\""));
  }
  CHECK(code == ORLOP_E_INVALID_ARGUMENT);
}

// Every order of the three ends. What still lives is used before its turn comes.
void drop_order() {
  const Answer want = alone(tiny(), 7, 32);
  std::string order = "eqr";
  int orders = 0;
  do {
    Engine e = tiny();
    Queue q = e.queue().value();
    Params p = numbered(7, 32);
    p.queue = &q;
    p.tag = 5;
    Request r = e.generate(p).value();
    for (std::size_t k = 0; k < 3; ++k) {
      if (order[k] == 'e') {
        e = Engine();
      } else if (order[k] == 'q') {
        if (r) CHECK(q.wait().value() == 5u);
        q = Queue();
      } else {
        if (k) CHECK(read(r) == want);  // it outlives the engine or the queue
        r = Request();
      }
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 6);
}

void sixty_four_at_once() {
  const Engine e = tiny();
  std::vector<Answer> want;
  for (int i = 0; i < 64; ++i) want.push_back(alone(e, i, 24));
  CHECK(!(want[0] == want[1]));
  const Queue q = e.queue().value();
  std::vector<Request> requests;
  for (int i = 0; i < 64; ++i) {
    Params p = numbered(i, 24);
    p.queue = &q;
    p.tag = static_cast<std::uint64_t>(i);
    requests.push_back(e.generate(p).value());
  }
  std::vector<Answer> got(64);
  for (int ended = 0; ended < 64;) {
    pollfd wanted{q.fd(), POLLIN, 0};
    CHECK(poll(&wanted, 1, 60000) == 1);
    const auto tag = q.wait(60s).value();
    CHECK(tag && *tag < 64);
    if (!tag || *tag >= 64) return;
    Output out;
    if (requests[*tag].get(out, 0us).value() != Got::output) continue;
    Answer& a = got[*tag];
    a.tokens.insert(a.tokens.end(), out.tokens().begin(), out.tokens().end());
    a.finish_reason = out.finish_reason();
    ended += out.last();
  }
  for (std::size_t i = 0; i < 64; ++i) CHECK(got[i] == want[i]);
  requests.clear();
  CHECK(settles(e));
}

void eight_threads() {
  const Engine e = tiny();
  std::vector<Answer> want;
  for (int i = 0; i < 8; ++i) want.push_back(alone(e, i, 40));
  std::atomic<int> wrong{0}, compared{0}, cancelled{0};
  const auto work = [&](int first) {
    for (int round = 0; round < 24; ++round) {
      const int i = (first + round) % 8;
      const Answer& whole = want[static_cast<std::size_t>(i)];
      Result<Request> made = e.generate(numbered(i, 40));
      if (!made) {
        ++wrong;
        continue;
      }
      if (round % 3 == 2) made->cancel();
      const auto answers = made->answers();
      if (!answers) {
        ++wrong;
      } else if (const Answer& a = answers->front(); a.finish_reason == ORLOP_FINISH_CANCELLED) {
        ++cancelled;
        wrong += round % 3 != 2 || a.tokens.size() >= whole.tokens.size() ||
                 !std::equal(a.tokens.begin(), a.tokens.end(), whole.tokens.begin());
      } else {
        ++compared;
        wrong += !(a == whole);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(compared >= 8 * 16 && compared + cancelled == 8 * 24);
  CHECK(settles(e));
}

void refused(const fs::path& path, std::initializer_list<std::int32_t> codes) {
  const auto made = Engine::open(path.string());
  const bool ok = !made && std::count(codes.begin(), codes.end(), made.error().code) &&
                  made.error().message.find(path.string()) != std::string::npos;
  if (!ok)
    std::fprintf(stderr, "%s: %d \"%s\"\n", path.c_str(), made.error().code,
                 made.error().message.c_str());
  CHECK(ok);
}

void bad_file() {
  std::string name = (fs::temp_directory_path() / "orlop-behaviours-XXXXXX").string();
  CHECK(mkdtemp(name.data()));
  const fs::path folder = name;
  refused(folder / "none.gguf", {ORLOP_E_NOT_FOUND});
  spit(folder / "empty.gguf", "");
  refused(folder / "empty.gguf", {ORLOP_E_BAD_FORMAT, ORLOP_E_IO});
  std::string noise;
  std::uint32_t x = 12345;
  for (int i = 0; i < 65536; ++i) noise += static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  spit(folder / "noise.gguf", noise);
  refused(folder / "noise.gguf", {ORLOP_E_BAD_FORMAT});
  if (fs::exists(model)) {
    std::string beginning(400000, '\0');
    std::ifstream(model, std::ios::binary).read(beginning.data(), 400000);
    spit(folder / "cut.gguf", beginning);
    refused(folder / "cut.gguf", {ORLOP_E_BAD_FORMAT, ORLOP_E_IO});
  }
  // A folder whose weights are cut.
  const fs::path from = fs::path(data) / "tiny/llama";
  spit(folder / "config.json", slurp(from / "config.json"));
  spit(folder / "model.safetensors", slurp(from / "model.safetensors").substr(0, 300000));
  refused(folder, {ORLOP_E_BAD_FORMAT, ORLOP_E_IO});
  fs::remove_all(folder);
  CHECK(alone(tiny(), 3, 8).tokens.size() == 8);
}

void log_sink() {
  std::atomic<int> lines{0}, bad{0}, other{0};
  orlop::LogSink sink(
      [&](std::int32_t level, std::string_view text) {
        ++lines;
        bad += level < ORLOP_LOG_ERROR || level > ORLOP_LOG_DEBUG || text.empty() ||
               text.find('\n') != std::string_view::npos;
        throw std::runtime_error("a sink that fails");
      },
      ORLOP_LOG_DEBUG);
  CHECK(alone(tiny(), 4, 8).tokens.size() == 8);
  sink.close();
  const int n = lines;
  CHECK(n > 0 && bad == 0);
  tiny();
  CHECK(lines == n);
  {
    orlop::LogSink errors([&](std::int32_t, std::string_view) { ++other; }, ORLOP_LOG_ERROR);
    tiny();
    CHECK(other == 0);  // nothing went wrong
  }
  orlop::LogSink infos([&](std::int32_t, std::string_view) { ++other; });
  tiny();
  CHECK(other > 0 && lines == n);
}

void release_twice() {
  Engine e = tiny();
  Queue q = e.queue().value();
  Request r = e.generate(numbered(1, 4)).value();
  orlop::LogSink sink([](std::int32_t, std::string_view) {});
  orlop::ChatOutput chat = orlop::ChatOutput::create("{\"format\":\"none\",\"reasoning\":false}").value();
  for (int i = 0; i < 2; ++i) {
    e.close();
    r.close();
    q.close();
    sink.close();
    chat.close();
  }
  CHECK(!e && !r && !q && !sink && !chat);
  Output out;
  r.cancel();
  CHECK(r.get(out, 0us).error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(r.info().error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(e.generate(numbered(1, 4)).error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(e.stats().error().code == ORLOP_E_INVALID_ARGUMENT);
  CHECK(q.wait(0us).error().code == ORLOP_E_INVALID_ARGUMENT && q.fd() == -1);
  CHECK(chat.push("x").error().code == ORLOP_E_INVALID_ARGUMENT);
  for (const Output& o : r) CHECK(o.last() && false);
  CHECK(r.error().code == ORLOP_E_INVALID_ARGUMENT);
  // Moved from is the same; moving back makes it whole.
  Engine a = tiny(), b = std::move(a);
  CHECK(!a && a.info().error().code == ORLOP_E_INVALID_ARGUMENT && b.info());
  a = std::move(b);
  CHECK(a.info() && !b);
}

// main returns while these run. One kind of handle ends before it, the other after it.
Engine live;
int end_at_once() {
  live = tiny();
  std::vector<Request> requests;
  static std::vector<Request> longer;
  for (int i = 0; i < 64; ++i)
    (i % 2 ? requests : longer).push_back(live.generate(numbered(i, 480)).value());
  return 0;
}

void exit_with_live_requests() {
  for (int round = 0; round < 3; ++round) {
    int pipe_of[2], status = -1;
    CHECK(pipe(pipe_of) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      dup2(pipe_of[1], 2);
      close(pipe_of[0]), close(pipe_of[1]);
      execl(self.c_str(), self.c_str(), "--end-at-once", nullptr);
      _exit(99);
    }
    close(pipe_of[1]);
    std::string said;
    for (char piece[512];;) {  // to the end of its stderr: the end of the process
      pollfd wanted{pipe_of[0], POLLIN, 0};
      if (poll(&wanted, 1, 60000) != 1) break;
      const ssize_t n = ::read(pipe_of[0], piece, sizeof piece);
      if (n <= 0) break;
      said.append(piece, static_cast<std::size_t>(n));
    }
    close(pipe_of[0]);
    int turns = 0;
    while (turns < 600 && waitpid(child, &status, WNOHANG) == 0)
      ++turns, std::this_thread::sleep_for(100ms);
    if (turns == 600) kill(child, SIGKILL), waitpid(child, &status, 0);
    CHECK(turns < 600);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!said.empty()) std::fprintf(stderr, "stderr of the process: %s\n", said.c_str());
    CHECK(said.empty());
  }
}

std::string given(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? value : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  struct Test {
    const char* name;
    void (*run)();
  };
  const Test tests[] = {
#define TEST(f) {#f, f}
      TEST(golden_stream), TEST(cancel), TEST(timeout), TEST(overflow_error_text),
      TEST(unknown_key), TEST(drop_order), TEST(sixty_four_at_once), TEST(eight_threads),
      TEST(bad_file), TEST(log_sink), TEST(release_twice), TEST(exit_with_live_requests)};
  self = argv[0];
  data = given("ORLOP_TEST_DATA", TEST_DATA);
  model = given("ORLOP_TEST_MODEL", TEST_CACHE "/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (argc > 1 && std::strcmp(argv[1], "--end-at-once") == 0) return end_at_once();
  int passed = 0, failed = 0;
  for (const Test& t : tests) {
    if (argc > 1 && !std::strstr(t.name, argv[1])) continue;
    const int before = failures;
    skipped = nullptr;
    try {
      t.run();
    } catch (const std::exception& e) {  // a value() that was not there
      std::fprintf(stderr, "%s: %s\n", t.name, e.what());
      ++failures;
    }
    if (skipped)
      std::printf("SKIP %s: %s\n", t.name, skipped);
    else if (failures == before)
      ++passed;
    else
      ++failed, std::fprintf(stderr, "FAILED %s\n", t.name);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
