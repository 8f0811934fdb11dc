/* host.c WAY TINY_MODEL [LIBRARY]: programs that hold the library in unusual ways. Compiled as C or C++.
 *   load    dlopen, a call, dlclose, a thousand times; then the memory is what it was after the first ones
 *   before  workers are forked first, each makes an engine of its own and answers
 *   after   an engine works; a forked child is told that it is not its own, makes one itself, and exits
 *   answer  one engine, 8 requests */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "orlop/orlop.h"

static int failures;
#define CHECK(c)                                              \
  do {                                                        \
    if (!(c)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
      ++failures;                                             \
    }                                                         \
  } while (0)

static const char* model;

#ifndef LOADS_ITSELF
static orlop_engine* make(void) {
  char json[4096];
  orlop_engine* e = NULL;
  orlop_error err;
  memset(&err, 0, sizeof err);
  err.struct_size = sizeof err;
  snprintf(json, sizeof json, "{\"model\": \"%s\", \"threads\": 2}", model);
  if (orlop_engine_create(json, strlen(json), &e, &err) != ORLOP_OK) {
    fprintf(stderr, "create: %s\n", err.message);
    ++failures;
  }
  return e;
}

static orlop_request* begin(orlop_engine* e, uint32_t max_tokens, orlop_error* err) {
  static const int32_t prompt[] = {5, 17, 42, 99};
  orlop_generate_params p;
  orlop_request* r = NULL;
  orlop_generate_params_init(&p, sizeof p);
  p.tokens = prompt;
  p.n_tokens = 4;
  p.max_tokens = max_tokens;
  p.temperature = 0;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  orlop_async_generate(e, &p, &r, err);
  return r;
}

/* A sum over the tokens of an answer: equal sums, equal answers. */
static uint32_t answer(orlop_engine* e) {
  orlop_request* r = begin(e, 20, NULL);
  orlop_output out;
  uint32_t sum = 1;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;
  CHECK(r != NULL);
  while (orlop_get(r, -1, &out, NULL) == ORLOP_OK)
    for (uint64_t i = 0; i < out.n_tokens; ++i) sum = sum * 31 + (uint32_t)out.tokens[i];
  CHECK(out.finish_reason == ORLOP_FINISH_LENGTH);
  orlop_request_release(r);
  return sum;
}

static void answers(void) {
  orlop_engine* e = make();
  const uint32_t first = answer(e);
  for (int i = 1; i < 8; ++i) CHECK(answer(e) == first);
  orlop_engine_release(e);
}

static int ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void fork_before(void) {
  pid_t workers[3];
  for (int i = 0; i < 3; ++i) {
    workers[i] = fork();
    if (workers[i] == 0) {
      answers();
      exit(failures != 0);
    }
  }
  answers(); /* and the parent has its own */
  for (int i = 0; i < 3; ++i) CHECK(ended_well(workers[i]));
}

static void fork_after(void) {
  orlop_error err;
  orlop_output out;
  orlop_request_info info;
  orlop_stats stats;
  orlop_queue* queue = NULL;
  orlop_engine* e = make();
  const uint32_t alone = answer(e);
  memset(&err, 0, sizeof err);
  memset(&out, 0, sizeof out);
  memset(&info, 0, sizeof info);
  memset(&stats, 0, sizeof stats);
  err.struct_size = sizeof err, out.struct_size = sizeof out, info.struct_size = sizeof info;
  stats.struct_size = sizeof stats;
  CHECK(orlop_queue_create(e, &queue, NULL) == ORLOP_OK);
  CHECK(orlop_queue_fd(queue) >= 0);
  /* Many children, each from an engine in the midst of something. */
  for (int i = 0; i < 20; ++i) {
    orlop_request* r = begin(e, 400, &err);
    const pid_t child = fork();
    if (child == 0) {
      uint64_t tag;
      alarm(20);
      /* Every call answers at once, with words, and waits for nobody. */
      CHECK(orlop_get(r, -1, &out, &err) == ORLOP_E_SHUTDOWN && strstr(err.message, "forked"));
      CHECK(orlop_get_status(r, &info, &err) == ORLOP_E_SHUTDOWN);
      CHECK(orlop_queue_wait(queue, -1, &tag, &err) == ORLOP_E_SHUTDOWN);
      CHECK(orlop_queue_fd(queue) == -1);
      CHECK(orlop_engine_stats(e, &stats, &err) == ORLOP_E_SHUTDOWN);
      CHECK(orlop_engine_wait(e, -1, NULL, &err) == ORLOP_E_SHUTDOWN);
      CHECK(!begin(e, 4, &err) && err.code == ORLOP_E_SHUTDOWN);
      orlop_cancel(r);
      if (i % 2) { /* releasing is allowed, and so is not doing it */
        orlop_engine_release(e);
        orlop_queue_release(queue);
        orlop_request_release(r);
      }
      if (i % 5 == 0) { /* and an engine of its own works */
        orlop_engine* own = make();
        CHECK(answer(own) == alone);
        orlop_engine_release(own);
      }
      exit(failures != 0);
    }
    CHECK(ended_well(child));
    orlop_request_release(r);
  }
  CHECK(answer(e) == alone); /* the parent goes on as before */
  orlop_queue_release(queue);
  orlop_engine_release(e);
}
#endif

static long resident_kb(void) {
  long pages = 0, skipped = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &skipped, &pages) != 2) exit(3);
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void load(const char* library) {
  long before = 0, after;
  for (int i = 0; i < 1000; ++i) {
    void* h = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
      fprintf(stderr, "%s\n", dlerror());
      exit(1);
    }
    uint32_t (*version)(void);
    int32_t (*create)(const char*, size_t, orlop_engine**, orlop_error*);
    void (*release)(orlop_engine*);
    *(void**)&version = dlsym(h, "orlop_abi_version");
    *(void**)&create = dlsym(h, "orlop_engine_create");
    *(void**)&release = dlsym(h, "orlop_engine_release");
    CHECK(version() >> 16 == ORLOP_ABI_MAJOR);
    orlop_engine* e = NULL;
    CHECK(create("{\"thread\": 1}", 13, &e, NULL) == ORLOP_E_INVALID_ARGUMENT);
    if (i % 50 == 0) { /* some with an engine, which ends while the library is let go */
      char json[4096];
      snprintf(json, sizeof json, "{\"model\": \"%s\", \"threads\": 1, \"kv_bytes\": 1000000}", model);
      CHECK(create(json, strlen(json), &e, NULL) == ORLOP_OK);
      release(e);
    }
    dlclose(h);
    if (i == 500) before = resident_kb();
  }
  after = resident_kb();
  printf("resident: %ld KB after 500, %ld KB after 1000\n", before, after);
  CHECK(after - before < 512);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  model = argv[2];
  if (!strcmp(argv[1], "load") && argc == 4) load(argv[3]);
#ifndef LOADS_ITSELF
  else if (!strcmp(argv[1], "before")) fork_before();
  else if (!strcmp(argv[1], "after")) fork_after();
  else if (!strcmp(argv[1], "answer")) answers();
#endif
  else return 2;
  printf("%d failures\n", failures);
  return failures != 0;
}
