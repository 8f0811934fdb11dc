// An engine in a process whose memory runs out (RLIMIT_AS): every call answers, out of memory if need
// be, the process lives, and with memory again all is as before.
//
//   memory_test          with several amounts of memory left, each in a process of its own
//   memory_test MIB      that much
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

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

using namespace stress;

namespace {

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
    execl(self, self, mib.c_str(), static_cast<char*>(nullptr));
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
  if (SANITIZED) {
    std::printf("SKIPPED: a sanitizer's own memory leaves no limit to set\n");
    return 77;
  }
  if (argc == 2) {
    with_little_memory(std::strtoull(argv[1], nullptr, 10) << 20);
    return failures != 0;
  }
  int passed = 0, failed = 0;
  for (const char* mib : {"1", "4", "16", "48"}) ++(in_own_process(mib) ? passed : failed);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
