/* The twelve behaviours of behaviours.txt in C99, each a test of that name.
 *   behaviours_c [NAME]   all, or those whose name holds NAME
 * ORLOP_TEST_DATA and ORLOP_TEST_MODEL say where tests/data and the demo model are. */
#include "behaviours.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* skipped; /* set by a test that cannot run: why */
static const char* self;    /* this program */

static void golden_stream(void) {
  char path[4096], json[4096], prompt[1024], want[4096], text[4096];
  size_t len = 0, tokens = 0, want_len;
  int pieces = 0;
  int32_t s, last = ORLOP_FINISH_NONE;
  orlop_generate_params p;
  orlop_engine* e;
  orlop_request* r;
  orlop_output o;
  if (access(model, R_OK)) {
    skipped = "the demo model is not there";
    return;
  }
  orlop_generate_params_init(&p, sizeof p);
  snprintf(path, sizeof path, "%s/../behaviours/golden_prompt.txt", data);
  p.text_len = slurp(path, prompt, sizeof prompt);
  p.text = prompt;
  p.temperature = 0;
  p.max_tokens = 48;
  snprintf(path, sizeof path, "%s/../behaviours/golden_text.txt", data);
  want_len = slurp(path, want, sizeof want);
  snprintf(json, sizeof json,
           "{\"model\": \"%s\", \"compute\": \"fp32\", \"threads\": 2, \"max_context\": 512}", model);
  e = engine_of(json);
  r = submit(e, &p);
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  while ((s = orlop_get(r, -1, &o, NULL)) == ORLOP_OK) {
    CHECK(len + o.text_len < sizeof text);
    if (len + o.text_len >= sizeof text) break;
    if (o.text_len) memcpy(text + len, o.text, o.text_len);
    pieces += o.text_len != 0;
    len += o.text_len;
    tokens += o.n_tokens;
    last = o.finish_reason;
  }
  CHECK(s == ORLOP_END);
  CHECK(pieces > 1);
  CHECK(tokens == 48);
  CHECK(last == ORLOP_FINISH_LENGTH);
  CHECK(want_len > 50 && len == want_len && memcmp(text, want, len) == 0);
  orlop_request_release(r);
  orlop_engine_release(e);
}

/* The answer pauses while nobody reads, so 400 tokens cannot be done before the cancel. */
static void cancel(void) {
  orlop_engine* e = tiny(", \"output_bytes\": 64");
  int32_t prompt[8];
  const orlop_generate_params p = numbered(1, prompt, 400);
  orlop_request* r = submit(e, &p);
  orlop_output o;
  answer a;
  memset(&a, 0, sizeof a);
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  CHECK(orlop_get(r, -1, &o, NULL) == ORLOP_OK && o.n_tokens && !o.finish_reason);
  a.n = o.n_tokens;
  CHECK(stats_of(e).pages_used > 0);
  orlop_cancel(r);
  CHECK(finish(r, &a) == ORLOP_END);
  CHECK(a.finish == ORLOP_FINISH_CANCELLED && a.error == 0);
  CHECK(a.n >= 1 && a.n < 400);
  orlop_cancel(r);
  orlop_cancel(r);
  CHECK(orlop_get(r, -1, &o, NULL) == ORLOP_END);
  CHECK(settles(e));
  CHECK(stats_of(e).pages_used == 0);
  orlop_request_release(r);
  orlop_engine_release(e);
}

/* Thirty-two samples of 400 tokens wait for the one seat before the second request, which so has
 * nothing to give for long. */
static void timeout(void) {
  orlop_engine* e = tiny(", \"scheduling\": \"fcfs\", \"max_running_seqs\": 1");
  int32_t prompt[8];
  orlop_generate_params p = numbered(1, prompt, 400);
  orlop_request *first, *r, *late;
  orlop_output o;
  orlop_error err;
  answer a;
  int64_t begin;
  memset(&a, 0, sizeof a);
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  p.n = 32;
  first = submit(e, &p);
  p = numbered(2, prompt, 16);
  r = submit(e, &p);
  new_error(&err);
  CHECK(orlop_get(r, 0, &o, &err) == ORLOP_TIMEOUT && err.code == 0);
  begin = now_us();
  CHECK(orlop_get(r, 5000, &o, &err) == ORLOP_TIMEOUT && err.code == 0 && !err.message[0]);
  CHECK(now_us() - begin >= 5000);
  orlop_request_release(first);
  CHECK(finish(r, &a) == ORLOP_END && a.n == 16 && a.finish == ORLOP_FINISH_LENGTH);
  orlop_request_release(r);

  p.deadline_us = 1;
  late = submit(e, &p);
  memset(&a, 0, sizeof a);
  CHECK(finish(late, &a) == ORLOP_END);
  CHECK(a.finish == ORLOP_FINISH_ERROR && a.error == ORLOP_E_DEADLINE && a.n < 16);
  orlop_request_release(late);
  orlop_engine_release(e);
}

static void overflow_error_text(void) {
  static int32_t prompt[600];
  orlop_engine* e = tiny("");
  orlop_request* r = (orlop_request*)&e;
  orlop_generate_params p;
  size_t i;
  for (i = 0; i < 600; ++i) prompt[i] = 5 + (int32_t)(i % 100);
  p = params_of(prompt, 600);
  CHECK_ERROR(ORLOP_E_CONTEXT_OVERFLOW, "600", orlop_async_generate(e, &p, &r, &err));
  CHECK_ERROR(ORLOP_E_CONTEXT_OVERFLOW, "512", orlop_async_generate(e, &p, &r, &err));
  CHECK(r == NULL);
  orlop_engine_release(e);
}

static void unknown_key(void) {
  char json[4096];
  orlop_engine* e = (orlop_engine*)&json;
  snprintf(json, sizeof json, "{\"model\": \"%s/tiny/llama\", \"thread\": 2}", data);
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "\"threads\"",
              orlop_engine_create(json, strlen(json), &e, &err));
  CHECK(e == NULL);
}

/* Every order of the three releases. What still lives is used before its turn comes. */
static void drop_order(void) {
  static const char orders[6][4] = {"eqr", "erq", "qer", "qre", "req", "rqe"};
  answer want, got;
  orlop_engine* e = tiny("");
  size_t i, k;
  want = alone(e, 7, 32);
  orlop_engine_release(e);
  for (i = 0; i < 6; ++i) {
    int32_t prompt[8];
    orlop_generate_params p = numbered(7, prompt, 32);
    orlop_queue* q = NULL;
    orlop_request* r;
    uint64_t tag = 0;
    e = tiny("");
    CHECK(orlop_queue_create(e, &q, NULL) == ORLOP_OK);
    p.queue = q;
    p.tag = 5;
    r = submit(e, &p);
    for (k = 0; k < 3; ++k) {
      switch (orders[i][k]) {
        case 'e': orlop_engine_release(e); break;
        case 'q':
          if (k < 2 && strchr(orders[i] + k, 'r'))
            CHECK(orlop_queue_wait(q, -1, &tag, NULL) == ORLOP_OK && tag == 5);
          orlop_queue_release(q);
          break;
        default:
          if (k) { /* it outlives the engine or the queue */
            memset(&got, 0, sizeof got);
            CHECK(finish(r, &got) == ORLOP_END && same(&got, &want));
          }
          orlop_request_release(r);
      }
    }
  }
}

static void sixty_four_at_once(void) {
  static answer want[64], got[64];
  orlop_request* r[64];
  orlop_engine* e = tiny("");
  orlop_queue* q = NULL;
  int32_t i;
  int ended = 0;
  for (i = 0; i < 64; ++i) want[i] = alone(e, i, 24);
  CHECK(memcmp(&want[0], &want[1], sizeof want[0]) != 0);
  CHECK(orlop_queue_create(e, &q, NULL) == ORLOP_OK);
  memset(got, 0, sizeof got);
  for (i = 0; i < 64; ++i) {
    int32_t prompt[8];
    orlop_generate_params p = numbered(i, prompt, 24);
    p.queue = q;
    p.tag = (uint64_t)i;
    r[i] = submit(e, &p);
  }
  while (ended < 64) {
    struct pollfd wanted = {0, POLLIN, 0};
    orlop_output o;
    uint64_t tag = 0;
    answer* a;
    wanted.fd = orlop_queue_fd(q);
    CHECK(poll(&wanted, 1, 60000) == 1);
    if (orlop_queue_wait(q, 60000000, &tag, NULL) != ORLOP_OK || tag >= 64) break;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    if (orlop_get(r[tag], 0, &o, NULL) != ORLOP_OK) continue;
    a = &got[tag];
    CHECK(a->n + o.n_tokens <= 512);
    if (o.n_tokens) memcpy(a->tokens + a->n, o.tokens, o.n_tokens * sizeof(int32_t));
    a->n += o.n_tokens;
    a->finish = o.finish_reason;
    ended += o.finish_reason != ORLOP_FINISH_NONE;
  }
  CHECK(ended == 64);
  for (i = 0; i < 64; ++i) {
    CHECK(same(&got[i], &want[i]));
    orlop_request_release(r[i]);
  }
  orlop_queue_release(q);
  CHECK(settles(e));
  orlop_engine_release(e);
}

typedef struct worker {
  pthread_t thread;
  orlop_engine* engine;
  const answer* want; /* [8] */
  int32_t first;
  int wrong, compared, cancelled;
} worker;

static void* work(void* argument) {
  worker* w = argument;
  int32_t round;
  for (round = 0; round < 24; ++round) {
    const int32_t i = (w->first + round) % 8;
    int32_t prompt[8];
    const orlop_generate_params p = numbered(i, prompt, 40);
    orlop_request* r = NULL;
    answer a;
    memset(&a, 0, sizeof a);
    if (orlop_async_generate(w->engine, &p, &r, NULL) != ORLOP_OK) {
      ++w->wrong;
      continue;
    }
    if (round % 3 == 2) orlop_cancel(r);
    if (finish(r, &a) != ORLOP_END) ++w->wrong;
    if (a.finish == ORLOP_FINISH_CANCELLED) {
      ++w->cancelled;
      if (round % 3 != 2 || memcmp(a.tokens, w->want[i].tokens, a.n * sizeof(int32_t))) ++w->wrong;
    } else {
      ++w->compared;
      if (!same(&a, &w->want[i])) ++w->wrong;
    }
    orlop_request_release(r);
  }
  return NULL;
}

static void eight_threads(void) {
  static answer want[8];
  worker w[8];
  orlop_engine* e = tiny("");
  int32_t i;
  for (i = 0; i < 8; ++i) want[i] = alone(e, i, 40);
  memset(w, 0, sizeof w);
  for (i = 0; i < 8; ++i) {
    w[i].engine = e;
    w[i].want = want;
    w[i].first = i;
    CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
  }
  for (i = 0; i < 8; ++i) {
    CHECK(pthread_join(w[i].thread, NULL) == 0);
    CHECK(w[i].wrong == 0);
    CHECK(w[i].compared >= 16 && w[i].compared + w[i].cancelled == 24);
  }
  CHECK(settles(e));
  CHECK(stats_of(e).pages_used == 0);
  orlop_engine_release(e);
}

static void bad_file(void) {
  static char bytes[400000];
  char folder[] = "/tmp/orlop-behaviours-XXXXXX", path[4096], from[4096];
  size_t n, i;
  uint32_t x = 12345;
  orlop_engine* e;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/none.gguf", folder);
  refused(path, ORLOP_E_NOT_FOUND, ORLOP_E_NOT_FOUND);
  snprintf(path, sizeof path, "%s/empty.gguf", folder);
  spit(path, "", 0);
  refused(path, ORLOP_E_BAD_FORMAT, ORLOP_E_IO);
  unlink(path);
  snprintf(path, sizeof path, "%s/noise.gguf", folder);
  for (i = 0; i < 65536; ++i) bytes[i] = (char)((x = x * 1664525u + 1013904223u) >> 24);
  spit(path, bytes, 65536);
  refused(path, ORLOP_E_BAD_FORMAT, ORLOP_E_BAD_FORMAT);
  unlink(path);
  if (!access(model, R_OK)) {
    snprintf(path, sizeof path, "%s/cut.gguf", folder);
    n = slurp(model, bytes, sizeof bytes);
    spit(path, bytes, n);
    refused(path, ORLOP_E_BAD_FORMAT, ORLOP_E_IO);
    unlink(path);
  }
  /* A folder whose weights are cut. */
  snprintf(from, sizeof from, "%s/tiny/llama/config.json", data);
  snprintf(path, sizeof path, "%s/config.json", folder);
  spit(path, bytes, slurp(from, bytes, sizeof bytes));
  snprintf(from, sizeof from, "%s/tiny/llama/model.safetensors", data);
  n = slurp(from, bytes, sizeof bytes);
  CHECK(n > 300000);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  spit(path, bytes, n);
  refused(folder, ORLOP_E_BAD_FORMAT, ORLOP_E_IO);
  unlink(path);
  snprintf(path, sizeof path, "%s/config.json", folder);
  unlink(path);
  CHECK(rmdir(folder) == 0);
  e = tiny("");
  CHECK(alone(e, 3, 8).n == 8);
  orlop_engine_release(e);
}

typedef struct lines {
  pthread_mutex_t mutex;
  int n, bad;
} lines;

/* Fails in C's way: what it calls goes wrong. It may use the library. */
static void collect(void* user, int32_t level, const char* text, size_t len) {
  lines* l = user;
  orlop_buffer* none = NULL;
  orlop_error err;
  new_error(&err);
  pthread_mutex_lock(&l->mutex);
  ++l->n;
  if (level < ORLOP_LOG_ERROR || level > ORLOP_LOG_DEBUG || !len || memchr(text, '\n', len)) ++l->bad;
  if (orlop_inspect("/none", 5, &none, &err) != ORLOP_E_NOT_FOUND) ++l->bad;
  pthread_mutex_unlock(&l->mutex);
}

static void log_sink(void) {
  lines l = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
  orlop_engine* e;
  int n;
  orlop_log_set(collect, &l, ORLOP_LOG_DEBUG);
  e = tiny("");
  CHECK(alone(e, 4, 8).n == 8);
  orlop_engine_release(e);
  orlop_log_set(NULL, NULL, ORLOP_LOG_DEBUG);
  n = l.n;
  CHECK(n > 0);
  CHECK(l.bad == 0);
  e = tiny("");
  CHECK(l.n == n);
  orlop_engine_release(e);
  orlop_log_set(collect, &l, ORLOP_LOG_ERROR);
  e = tiny("");
  CHECK(l.n == n); /* nothing went wrong */
  orlop_engine_release(e);
  orlop_log_set(NULL, NULL, 0);
}

static void release_twice(void) {
  int i;
  orlop_engine* e = tiny("");
  orlop_queue* q = NULL;
  orlop_buffer* b = NULL;
  orlop_output o;
  orlop_stats s;
  orlop_request_info info;
  uint64_t tag;
  int32_t prompt[8];
  const orlop_generate_params p = numbered(1, prompt, 4);
  orlop_request* r = submit(e, &p);
  memset(&o, 0, sizeof o), memset(&s, 0, sizeof s), memset(&info, 0, sizeof info);
  o.struct_size = sizeof o, s.struct_size = sizeof s, info.struct_size = sizeof info;
  CHECK(orlop_queue_create(e, &q, NULL) == ORLOP_OK);
  CHECK(orlop_engine_info(e, &b, NULL) == ORLOP_OK);
  for (i = 0; i < 2; ++i) {
    orlop_request_release(r), orlop_queue_release(q), orlop_buffer_release(b);
    orlop_engine_release(e);
    orlop_chat_output_release(NULL);
    r = NULL, q = NULL, b = NULL, e = NULL;
  }
  orlop_cancel(r);
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "request", orlop_get(r, 0, &o, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "request", orlop_get_status(r, &info, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "engine", orlop_async_generate(e, &p, &r, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "engine", orlop_engine_stats(e, &s, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "engine", orlop_engine_wait(e, 0, NULL, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "queue", orlop_queue_wait(q, 0, &tag, &err));
}

/* main returns while these run; they are static so that a leak checker sees them held. */
static orlop_engine* live;
static orlop_request* running[64];
static int end_at_once(void) {
  int32_t i, prompt[8];
  live = tiny("");
  for (i = 0; i < 64; ++i) {
    const orlop_generate_params p = numbered(i, prompt, 480);
    running[i] = submit(live, &p);
  }
  return failures ? 3 : 0;
}

static void exit_with_live_requests(void) {
  int round;
  for (round = 0; round < 3; ++round) {
    int pipe_of[2], status = -1;
    char said[1024];
    size_t n = 0;
    pid_t child;
    CHECK(pipe(pipe_of) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      dup2(pipe_of[1], 2);
      close(pipe_of[0]), close(pipe_of[1]);
      execl(self, self, "--end-at-once", (char*)NULL);
      _exit(99);
    }
    close(pipe_of[1]);
    for (;;) { /* to the end of its stderr: the end of the process */
      struct pollfd wanted = {0, POLLIN, 0};
      ssize_t got;
      wanted.fd = pipe_of[0];
      if (poll(&wanted, 1, 60000) != 1) break;
      got = read(pipe_of[0], said + n, sizeof said - 1 - n);
      if (got <= 0) break;
      n += (size_t)got;
    }
    said[n] = 0;
    close(pipe_of[0]);
    for (n = 0; n < 600 && waitpid(child, &status, WNOHANG) == 0; ++n) sleep_us(100000);
    if (n == 600) kill(child, SIGKILL), waitpid(child, &status, 0);
    CHECK(n < 600);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (*said) fprintf(stderr, "stderr of the process: %s\n", said);
    CHECK(!*said);
  }
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*test)(void);
  } tests[] = {
#define TEST(f) {#f, f}
      TEST(golden_stream), TEST(cancel), TEST(timeout), TEST(overflow_error_text),
      TEST(unknown_key), TEST(drop_order), TEST(sixty_four_at_once), TEST(eight_threads),
      TEST(bad_file), TEST(log_sink), TEST(release_twice), TEST(exit_with_live_requests)};
  int passed = 0, failed = 0;
  size_t i;
  const char* given = getenv("ORLOP_TEST_DATA");
  self = argv[0];
  snprintf(data, sizeof data, "%s", given && *given ? given : TEST_DATA);
  given = getenv("ORLOP_TEST_MODEL");
  snprintf(model, sizeof model, "%s",
           given && *given ? given : TEST_CACHE "/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (argc > 1 && strcmp(argv[1], "--end-at-once") == 0) return end_at_once();
  for (i = 0; i < sizeof tests / sizeof *tests; ++i) {
    const int before = failures;
    if (argc > 1 && !strstr(tests[i].name, argv[1])) continue;
    skipped = NULL;
    tests[i].test();
    if (skipped) {
      printf("SKIP %s: %s\n", tests[i].name, skipped);
    } else if (failures == before) {
      ++passed;
    } else {
      ++failed;
      fprintf(stderr, "FAILED %s\n", tests[i].name);
    }
    fflush(stdout);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
