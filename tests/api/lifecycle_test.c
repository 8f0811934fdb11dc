/* The ABI under bad manners: cancels, timeouts, every order of release, many threads. */
#include "capi.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define TINY TEST_DATA "/tiny/"
#define CONFIG(more)                                 \
  "{\"model\": \"" TINY                              \
  "llama\", \"compute\": \"fp32\", \"threads\": 1, " \
  "\"debug_poison\": true, \"kv_bytes\": 4000000" more "}"

static const int32_t prompt[] = {5, 6, 7, 8, 9, 10};
static int32_t long_prompt[500];
static result a;

static orlop_generate_params endless(void) {
  orlop_generate_params p = params_of(prompt, 6);
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  return p;
}

static orlop_request_info info_of(const orlop_request* r) {
  orlop_request_info i;
  memset(&i, 0, sizeof i);
  i.struct_size = sizeof i;
  CHECK(orlop_get_status(r, &i, NULL) == ORLOP_OK);
  return i;
}

static orlop_output new_output(void) {
  orlop_output o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

static void loading(void) {
  const char* json = CONFIG("");
  orlop_engine* e = NULL;
  orlop_progress progress;
  orlop_buffer* info;
  int32_t s;
  int i;
  memset(&progress, 0, sizeof progress);
  progress.struct_size = sizeof progress;
  CHECK(orlop_engine_create_async(json, strlen(json), &e, NULL) == ORLOP_OK);
  s = orlop_engine_info(e, &info, NULL); /* busy, unless it was very quick */
  CHECK(s == ORLOP_E_BUSY || s == ORLOP_OK);
  if (s == ORLOP_OK) orlop_buffer_release(info);
  s = orlop_engine_wait(e, 0, &progress, NULL);
  CHECK(s == ORLOP_TIMEOUT ? !progress.done : progress.done);
  CHECK(orlop_engine_wait(e, -1, &progress, NULL) == ORLOP_OK);
  CHECK(progress.done && progress.bytes_done == progress.bytes_total && progress.bytes_total > 0);
  CHECK(orlop_engine_wait(e, 0, NULL, NULL) == ORLOP_OK);
  orlop_engine_release(e);

  for (i = 0; i < 20; ++i) { /* release cancels at any moment */
    CHECK(orlop_engine_create_async(json, strlen(json), &e, NULL) == ORLOP_OK);
    sleep_us(i * 300);
    orlop_engine_release(e);
  }
  json = "{\"model\": \"/no/such/model\"}";
  CHECK(orlop_engine_create_async(json, strlen(json), &e, NULL) == ORLOP_OK);
  CHECK_ERROR(ORLOP_E_NOT_FOUND, "/no/such/model", orlop_engine_wait(e, -1, &progress, &err));
  CHECK_ERROR(ORLOP_E_NOT_FOUND, "/no/such/model", orlop_engine_info(e, &info, &err));
  orlop_engine_release(e);
}

static void cancelling(void) {
  orlop_engine* e = engine_of(CONFIG(", \"step_tokens\": 2"));
  orlop_generate_params p = params_of(long_prompt, 500);
  orlop_output o = new_output();
  orlop_request* r = submit(e, &p);
  uint64_t before;
  while (stats_of(e).prompt_tokens < 10) sleep_us(50);
  orlop_cancel(r); /* in the middle of its prompt */
  orlop_cancel(r);
  take_all(r, &a);
  CHECK(a.finish == ORLOP_FINISH_CANCELLED && a.n == 0);
  CHECK(stats_of(e).pages_used == 0 && stats_of(e).prompt_tokens < 500);
  CHECK(info_of(r).state == ORLOP_STATE_CANCELLED);
  CHECK(orlop_get(r, 0, &o, NULL) == ORLOP_END);
  orlop_cancel(r);
  orlop_request_release(r);
  for (int i = 0; i < 100; ++i) { /* an idle engine rests, once a step that was begun has ended */
    before = stats_of(e).steps;
    sleep_us(20000);
    if (stats_of(e).steps == before) break;
  }
  CHECK(stats_of(e).steps == before);

  p = endless();
  r = submit(e, &p);
  CHECK(orlop_get(r, -1, &o, NULL) == ORLOP_OK);
  orlop_cancel(r); /* while it generates */
  take_all(r, &a);
  CHECK(a.finish == ORLOP_FINISH_CANCELLED);
  orlop_request_release(r);
  CHECK(settles(e));
  orlop_engine_release(e);
}

static void timeouts(void) {
  orlop_engine* e = engine_of(CONFIG(", \"max_running_seqs\": 1, \"max_waiting\": 2"));
  orlop_generate_params p = endless();
  orlop_request *first = submit(e, &p), *second, *third, *none;
  orlop_output o = new_output();
  int64_t begin;
  while (info_of(first).state == ORLOP_STATE_WAITING) sleep_us(50);
  second = submit(e, &p); /* waits for the first to end */
  CHECK(orlop_get(second, 0, &o, NULL) == ORLOP_TIMEOUT ||
        info_of(first).state != ORLOP_STATE_RUNNING);
  begin = now_us();
  if (orlop_get(second, 3000, &o, NULL) == ORLOP_TIMEOUT) CHECK(now_us() - begin >= 3000);
  third = submit(e, &p);
  if (info_of(first).state == ORLOP_STATE_RUNNING)
    CHECK_ERROR(ORLOP_E_QUEUE_FULL, "max_waiting", orlop_async_generate(e, &p, &none, &err));
  orlop_request_release(first);
  orlop_request_release(third);
  take_all(second, &a);
  CHECK(a.finish == ORLOP_FINISH_LENGTH && a.n == 506);
  orlop_request_release(second);
  orlop_engine_release(e);
}

static void orders_of_release(void) {
  int order;
  for (order = 0; order < 6; ++order) {
    orlop_engine* e = engine_of(CONFIG(""));
    orlop_queue* q = NULL;
    orlop_request* r;
    orlop_generate_params p = endless();
    orlop_output o = new_output();
    CHECK(orlop_queue_create(e, &q, NULL) == ORLOP_OK);
    p.queue = q;
    p.tag = 9;
    r = submit(e, &p);
    if (order % 2) CHECK(orlop_get(r, -1, &o, NULL) == ORLOP_OK);
    switch (order) {
      case 0:
        orlop_engine_release(e);
        orlop_queue_release(q);
        orlop_request_release(r);
        break;
      case 1:
        orlop_engine_release(e);
        orlop_request_release(r);
        orlop_queue_release(q);
        break;
      case 2:
        orlop_queue_release(q);
        orlop_engine_release(e);
        take_all(r, &a);
        CHECK(a.finish == ORLOP_FINISH_LENGTH && a.n == 506); /* it ran to its end */
        orlop_request_release(r);
        break;
      case 3:
        orlop_queue_release(q);
        orlop_request_release(r);
        orlop_engine_release(e);
        break;
      case 4:
        orlop_request_release(r);
        orlop_engine_release(e);
        orlop_queue_release(q);
        break;
      case 5:
        orlop_request_release(r);
        orlop_queue_release(q);
        orlop_engine_release(e);
        break;
    }
  }
}

static void* get_once(void* request) {
  orlop_output o = new_output();
  return (void*)(intptr_t)orlop_get(request, -1, &o, NULL);
}

static void release_while_another_gets(void) {
  enum { before = 40, rounds = 6 };
  orlop_engine* e = engine_of(CONFIG(", \"max_running_seqs\": 1"));
  int i, k, told_so = 0;
  for (i = 0; i < rounds; ++i) {
    orlop_generate_params p = endless();
    orlop_request *runs[before], *waits;
    pthread_t thread;
    void* told;
    for (k = 0; k < before; ++k) runs[k] = submit(e, &p);
    waits = submit(e, &p); /* behind all of them: it gets nothing for long */
    CHECK(pthread_create(&thread, NULL, get_once, waits) == 0);
    sleep_us(50000); /* now it is inside orlop_get */
    orlop_request_release(waits);
    pthread_join(thread, &told);
    CHECK((intptr_t)told == ORLOP_E_CANCELLED || (intptr_t)told == ORLOP_OK);
    told_so += (intptr_t)told == ORLOP_E_CANCELLED;
    for (k = 0; k < before; ++k) orlop_request_release(runs[k]);
  }
  CHECK(told_so >= rounds / 2);
  CHECK(settles(e));
  orlop_engine_release(e);
}

static void queues(void) {
  enum { many = 30 };
  orlop_engine* e = engine_of(CONFIG(""));
  orlop_queue* q = NULL;
  orlop_request* r[many];
  size_t got[many] = {0}, ended = 0, i;
  struct pollfd fd;
  uint64_t tag = 0;
  CHECK(orlop_queue_create(e, &q, NULL) == ORLOP_OK);
  CHECK(orlop_queue_wait(q, 0, &tag, NULL) == ORLOP_TIMEOUT);
  for (i = 0; i < many; ++i) {
    orlop_generate_params p = endless();
    p.max_tokens = 20;
    p.queue = q;
    p.tag = i;
    r[i] = submit(e, &p);
  }
  fd.fd = orlop_queue_fd(q);
  fd.events = POLLIN;
  while (ended < many) {
    CHECK(poll(&fd, 1, 60000) == 1);
    while (orlop_queue_wait(q, 0, &tag, NULL) == ORLOP_OK) {
      orlop_output o = new_output();
      CHECK(tag < many && orlop_get(r[tag], 0, &o, NULL) == ORLOP_OK);
      got[tag] += o.n_tokens;
      ended += o.finish_reason != ORLOP_FINISH_NONE;
    }
  }
  for (i = 0; i < many; ++i) {
    CHECK(got[i] == 20);
    orlop_request_release(r[i]);
  }
  CHECK(poll(&fd, 1, 0) == 0 && orlop_queue_wait(q, 1000, &tag, NULL) == ORLOP_TIMEOUT);
  orlop_queue_release(q);
  orlop_engine_release(e);
}

typedef struct stress {
  orlop_engine* engine;
  uint32_t seed;
  int wrong, full;
} stress;

static uint32_t roll(stress* s, uint32_t below) {
  s->seed = s->seed * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)s->seed * below) >> 32);
}

static void* storm(void* arg) {
  stress* s = arg;
  int i, k;
  orlop_request* held[8] = {0};
  for (i = 0; i < 1250; ++i) {
    const uint32_t slot = roll(s, 8);
    orlop_generate_params p = params_of(long_prompt, 1 + roll(s, 60));
    orlop_error err;
    int32_t got;
    new_error(&err);
    p.max_tokens = roll(s, 12);
    p.logprobs = (int32_t)roll(s, 3) - 1;
    if (roll(s, 50) == 0) p.top_p = 2; /* refused */
    orlop_request_release(held[slot]);
    held[slot] = NULL;
    got = orlop_async_generate(s->engine, &p, &held[slot], &err);
    if (got == ORLOP_E_QUEUE_FULL) {
      ++s->full;
    } else if (got != (p.top_p == 2 ? ORLOP_E_INVALID_ARGUMENT : ORLOP_OK)) {
      ++s->wrong;
    }
    if (held[slot] && roll(s, 4) == 0) {
      orlop_output o = new_output();
      got = orlop_get(held[slot], (int64_t)roll(s, 2000), &o, NULL);
      if (got != ORLOP_OK && got != ORLOP_TIMEOUT) ++s->wrong;
    }
    if (held[slot] && roll(s, 6) == 0) orlop_cancel(held[slot]);
  }
  for (k = 0; k < 8; ++k) orlop_request_release(held[k]);
  return NULL;
}

static void ten_thousand_from_eight_threads(void) {
  orlop_engine* e = engine_of(CONFIG(", \"max_running_seqs\": 8"));
  pthread_t threads[8];
  stress s[8];
  int i;
  for (i = 0; i < 8; ++i) {
    memset(&s[i], 0, sizeof s[i]);
    s[i].engine = e;
    s[i].seed = (uint32_t)i;
    CHECK(pthread_create(&threads[i], NULL, storm, &s[i]) == 0);
  }
  for (i = 0; i < 8; ++i) {
    pthread_join(threads[i], NULL);
    CHECK(s[i].wrong == 0 && s[i].full == 0);
  }
  CHECK(settles(e));
  CHECK(stats_of(e).requests_finished > 9000);
  orlop_engine_release(e);
}

static size_t copy_file(const char* from, const char* to) {
  static char bytes[1 << 20];
  FILE* f = fopen(from, "rb");
  size_t n = 0;
  CHECK(f != NULL);
  if (!f) return 0;
  n = fread(bytes, 1, sizeof bytes, f);
  CHECK(n > 0 && n < sizeof bytes);
  fclose(f);
  f = fopen(to, "wb");
  CHECK(f && fwrite(bytes, 1, n, f) == n);
  if (f) fclose(f);
  return n;
}

/* Cut at 200 points before loading: a typed error. Cut while it runs ("read"): no effect. */
static void truncated_files(void) {
  char folder[] = P_tmpdir "/orlop-test-XXXXXX", config[256], weights[256], json[512];
  orlop_engine* e = NULL;
  orlop_generate_params p = endless();
  uint32_t point = 12345;
  size_t n;
  int i;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(config, sizeof config, "%s/config.json", folder);
  snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
  snprintf(json, sizeof json,
           "{\"model\": \"%s\", \"load\": \"read\", \"threads\": 1, \"kv_bytes\": 1000000}",
           folder);
  copy_file(TINY "llama/config.json", config);
  n = copy_file(TINY "llama/model.safetensors", weights);
  for (i = 0; i < 200; ++i) {
    orlop_error err;
    size_t at;
    point = point * 1664525u + 1013904223u;
    at =
        i % 4 ? (size_t)(((uint64_t)point * n) >> 32) : (point >> 16) % 9000; /* many in its head */
    copy_file(TINY "llama/model.safetensors", weights);
    CHECK(truncate(weights, (off_t)at) == 0);
    new_error(&err);
    CHECK(orlop_engine_create(json, strlen(json), &e, &err) == ORLOP_E_BAD_FORMAT);
    CHECK(e == NULL && strstr(err.message, "model.safetensors"));
  }
  copy_file(TINY "llama/model.safetensors", weights);
  e = engine_of(json);
  CHECK(truncate(weights, 0) == 0 && truncate(config, 0) == 0);
  p.max_tokens = 20;
  run(e, &p, &a);
  CHECK(a.finish == ORLOP_FINISH_LENGTH && a.n == 20);
  orlop_engine_release(e);
  CHECK(unlink(weights) == 0 && unlink(config) == 0 && rmdir(folder) == 0);
}

static int lines;
static void sink(void* user, int32_t level, const char* text, size_t len) {
  CHECK(user == &lines && level >= ORLOP_LOG_ERROR && level <= ORLOP_LOG_INFO);
  CHECK(len > 0 && memchr(text, '\n', len) == NULL);
  __atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED);
}

static void logging(void) {
  int before;
  orlop_log_set(sink, &lines, ORLOP_LOG_INFO);
  orlop_engine_release(engine_of(CONFIG("")));
  before = lines;
  CHECK(before >= 3);
  orlop_log_set(NULL, NULL, 0);
  orlop_engine_release(engine_of(CONFIG("")));
  CHECK(lines == before);
}

int main(int argc, char** argv) {
  size_t i;
  for (i = 0; i < 500; ++i) long_prompt[i] = (int32_t)(i * 31 % 131);
  RUN(loading);
  RUN(cancelling);
  RUN(timeouts);
  RUN(orders_of_release);
  RUN(release_while_another_gets);
  RUN(queues);
  RUN(logging);
  RUN(truncated_files);
  RUN(ten_thousand_from_eight_threads);
  return close_tests();
}
