/* What behaviours.c needs beside the checks of capi.h: files, the tiny engine, answers to compare. */
#ifndef BEHAVIOURS_H
#define BEHAVIOURS_H
#include "../api/capi.h"

static char data[2048], model[2048]; /* tests/data, the demo model's file */

/* The first bytes of a file, NUL-terminated; how many. */
static size_t slurp(const char* path, char* to, size_t cap) {
  FILE* f = fopen(path, "rb");
  size_t n = 0;
  CHECK(f != NULL);
  if (f) n = fread(to, 1, cap - 1, f), fclose(f);
  to[n] = 0;
  return n;
}

static void spit(const char* path, const char* bytes, size_t n) {
  FILE* f = fopen(path, "wb");
  CHECK(f != NULL);
  if (!f) return;
  CHECK(fwrite(bytes, 1, n, f) == n);
  fclose(f);
}

/* tests/data/tiny/llama with more members of the configuration, each after a comma. */
static orlop_engine* tiny(const char* more) {
  char json[4096];
  snprintf(json, sizeof json,
           "{\"model\": \"%s/tiny/llama\", \"compute\": \"fp32\", \"threads\": 2%s}", data, more);
  return engine_of(json);
}

/* Prompt and parameters that differ from one `i` to the next. */
static inline orlop_generate_params numbered(int32_t i, int32_t prompt[8], uint32_t tokens) {
  const uint64_t n = 3 + (uint64_t)i % 6;
  orlop_generate_params p;
  uint64_t k;
  for (k = 0; k < n; ++k) prompt[k] = 3 + (int32_t)((uint64_t)(i + 1) * (k + 7) % 120);
  p = params_of(prompt, n);
  p.max_tokens = tokens;
  p.flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED;
  p.seed = (uint64_t)i;
  p.temperature = 1;
  return p;
}

typedef struct answer {
  int32_t tokens[512];
  size_t n;
  int32_t finish, error;
} answer;

/* Waits for all of a request; the last status of orlop_get. Uses no counter: for any thread. */
static int32_t finish(orlop_request* r, answer* a) {
  int32_t s;
  orlop_output o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  while ((s = orlop_get(r, -1, &o, NULL)) == ORLOP_OK) {
    if (a->n + o.n_tokens > 512) return ORLOP_E_INTERNAL;
    if (o.n_tokens) memcpy(a->tokens + a->n, o.tokens, o.n_tokens * sizeof(int32_t));
    a->n += o.n_tokens;
    a->finish = o.finish_reason;
    a->error = o.error_code;
  }
  return s;
}

static int same(const answer* a, const answer* b) {
  return a->n == b->n && a->finish == b->finish &&
         memcmp(a->tokens, b->tokens, a->n * sizeof(int32_t)) == 0;
}

/* What request `i` answers when nothing else runs. */
static answer alone(orlop_engine* e, int32_t i, uint32_t tokens) {
  int32_t prompt[8];
  const orlop_generate_params p = numbered(i, prompt, tokens);
  orlop_request* r = submit(e, &p);
  answer a;
  memset(&a, 0, sizeof a);
  CHECK(finish(r, &a) == ORLOP_END && a.n == tokens && a.finish == ORLOP_FINISH_LENGTH);
  orlop_request_release(r);
  return a;
}
/* That `path` is refused with a status of `first` or `second` and named. */
static void refused(const char* path, int32_t first, int32_t second) {
  char json[4096];
  orlop_engine* e = NULL;
  orlop_error err;
  int32_t s;
  new_error(&err);
  snprintf(json, sizeof json, "{\"model\": \"%s\"}", path);
  s = orlop_engine_create(json, strlen(json), &e, &err);
  if ((s != first && s != second) || err.code != s || !strstr(err.message, path) || e) {
    fprintf(stderr, "%s: %d \"%s\"\n", path, (int)s, err.message);
    ++failures;
  }
}

#endif
