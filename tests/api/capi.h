/* What the C tests share: checks, requests in one call. C99. */
#ifndef CAPI_H
#define CAPI_H
#define _XOPEN_SOURCE 700
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "orlop/orlop.h"

/* gcc says it with macros, clang with features. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static int failures, cases;

#define CHECK(c)                                                     \
  do {                                                               \
    if (!(c)) {                                                      \
      fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #c); \
      ++failures;                                                    \
    }                                                                \
  } while (0)

/* That a call answers `want` with an error whose text holds `words`. */
#define CHECK_ERROR(want, words, call)                                                       \
  do {                                                                                       \
    orlop_error err;                                                                         \
    new_error(&err);                                                                         \
    const int32_t got_ = (call);                                                             \
    if (got_ != (want) || err.code != (want) || !strstr(err.message, (words))) {             \
      fprintf(stderr, "%s:%d: got %d \"%s\"\n", __FILE__, __LINE__, (int)got_, err.message); \
      ++failures;                                                                            \
    }                                                                                        \
  } while (0)

#define RUN(f)                                                     \
  do {                                                             \
    const int before_ = failures;                                  \
    if (argc < 2 || strstr(#f, argv[1])) {                         \
      ++cases;                                                     \
      f();                                                         \
      if (failures != before_) fprintf(stderr, "FAILED %s\n", #f); \
    }                                                              \
  } while (0)

static void new_error(orlop_error* e) {
  memset(e, 0, sizeof *e);
  e->struct_size = sizeof *e;
}

static inline void sleep_us(long us) {
  struct timespec t;
  t.tv_sec = us / 1000000;
  t.tv_nsec = us % 1000000 * 1000;
  nanosleep(&t, NULL);
}

static inline int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ORLOP_TEST_DEVICE, if set, names the device that test engines run on; ORLOP_TEST_GPU_LAYERS how many layers are
 * there, the others on the processor. */
static orlop_engine* engine_of(const char* json) {
  orlop_engine* e = NULL;
  orlop_error err;
  char placed[4096];
  const char *device = getenv("ORLOP_TEST_DEVICE"), *layers = getenv("ORLOP_TEST_GPU_LAYERS");
  new_error(&err);
  if (device && *device) {
    const int split = layers && *layers;
    snprintf(placed, sizeof placed, "{\"device\": \"%s\"%s%s, %s", device, split ? ", \"n_gpu_layers\": " : "",
             split ? layers : "", strchr(json, '{') + 1);
    json = placed;
  }
  if (orlop_engine_create(json, strlen(json), &e, &err) != ORLOP_OK) {
    fprintf(stderr, "engine: %d %s\n", (int)err.code, err.message);
    ++failures;
  }
  return e;
}

static inline orlop_generate_params params_of(const int32_t* tokens, uint64_t n) {
  orlop_generate_params p;
  orlop_generate_params_init(&p, sizeof p);
  p.tokens = tokens;
  p.n_tokens = n;
  return p;
}

static orlop_request* submit(orlop_engine* e, const orlop_generate_params* p) {
  orlop_request* r = NULL;
  orlop_error err;
  new_error(&err);
  if (orlop_async_generate(e, p, &r, &err) != ORLOP_OK) {
    fprintf(stderr, "generate: %d %s\n", (int)err.code, err.message);
    ++failures;
  }
  return r;
}

/* A whole answer. */
typedef struct result {
  char text[65536];
  size_t text_len;
  int32_t tokens[8192];
  float logprobs[8192];
  size_t n;
  int32_t finish, error, stop_token, stop_index;
  char message[512];
} result;

/* Takes everything, optionally the first output's prompt logprobs as well. */
static void take_all(orlop_request* r, result* out) {
  int32_t s;
  memset(out, 0, sizeof *out);
  for (;;) {
    orlop_output o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    s = orlop_get(r, -1, &o, NULL);
    if (s != ORLOP_OK) break;
    memcpy(out->text + out->text_len, o.text, o.text_len);
    out->text_len += o.text_len;
    if (o.n_tokens) memcpy(out->tokens + out->n, o.tokens, o.n_tokens * sizeof(int32_t));
    if (o.logprobs) memcpy(out->logprobs + out->n, o.logprobs, o.n_tokens * sizeof(float));
    out->n += o.n_tokens;
    out->finish = o.finish_reason;
    out->error = o.error_code;
    out->stop_token = o.stop_token;
    out->stop_index = o.stop_index;
    snprintf(out->message, sizeof out->message, "%.*s", (int)o.message_len, o.message);
  }
  CHECK(s == ORLOP_END);
}

static inline void run(orlop_engine* e, const orlop_generate_params* p, result* out) {
  orlop_request* r = submit(e, p);
  memset(out, 0, sizeof *out);
  if (!r) return;
  take_all(r, out);
  orlop_request_release(r);
}

static orlop_stats stats_of(orlop_engine* e) {
  orlop_stats s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  CHECK(orlop_engine_stats(e, &s, NULL) == ORLOP_OK);
  return s;
}

static int settles(orlop_engine* e) {
  int i;
  for (i = 0; i < 20000; ++i) {
    const orlop_stats s = stats_of(e);
    if (!s.requests_running && !s.requests_waiting && !s.pages_used) return 1;
    sleep_us(1000);
  }
  return 0;
}

static inline int close_tests(void) {
  printf("%d cases, %d failures\n", cases, failures);
  return failures != 0 || cases == 0;
}
#endif
