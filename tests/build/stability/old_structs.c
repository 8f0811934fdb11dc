/* old_structs.c TINY_MODEL STATS PARAMS OUTPUT INFO [STATE_PARAMS STATE_INFO]
 * A program of an older release: its structs have the sizes that they had then (sizes.txt). Each ends where
 * a page begins that nobody may touch, so a byte read or written behind it ends the program. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "orlop/orlop.h"

static int failures;
#define CHECK(c)                                                   \
  do {                                                             \
    if (!(c)) {                                                    \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c);      \
      ++failures;                                                  \
    }                                                              \
  } while (0)

/* The whole page is 0xA5, so that what the library leaves alone is seen; the next one is closed. */
static void* at_the_edge(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  unsigned char* p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || size > page || mprotect(p + page, page, PROT_NONE)) exit(3);
  memset(p, 0xA5, page);
  memset(p + page - size, 0, size);
  return p + page - size;
}

/* Nothing before the struct was written either. */
static int untouched_before(const void* s) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const unsigned char* p = s;
  const unsigned char* begin = (const unsigned char*)((size_t)p / page * page);
  while (p > begin)
    if (*--p != 0xA5) return 0;
  return 1;
}

static const int32_t prompt[] = {5, 17, 42, 99};

/* The tokens of one request with these parameters. */
static uint64_t answer(orlop_engine* e, const void* params, int32_t* tokens, size_t output_size,
                       size_t info_size) {
  orlop_error err = {.struct_size = sizeof err};
  orlop_request* r = NULL;
  orlop_output* out = at_the_edge(output_size);
  orlop_request_info* info = at_the_edge(info_size);
  uint64_t n = 0;
  int32_t status, last = 0;
  if (orlop_async_generate(e, params, &r, &err) != ORLOP_OK) {
    fprintf(stderr, "generate: %s\n", err.message);
    ++failures;
    return 0;
  }
  out->struct_size = (uint32_t)output_size;
  info->struct_size = (uint32_t)info_size;
  while ((status = orlop_get(r, -1, out, &err)) == ORLOP_OK) {
    CHECK(out->struct_size == output_size);
    for (uint64_t i = 0; i < out->n_tokens; ++i) tokens[n++ % 64] = out->tokens[i];
    last = out->finish_reason;
  }
  CHECK(status == ORLOP_END);
  CHECK(last == ORLOP_FINISH_LENGTH);
  CHECK(orlop_get_status(r, info, &err) == ORLOP_OK);
  CHECK(info->struct_size == info_size);
  CHECK(info->state == ORLOP_STATE_DONE && info->generated_tokens == n && info->prompt_tokens == 4);
  CHECK(info->last_token_ns >= info->first_token_ns && info->first_token_ns > 0);
  CHECK(untouched_before(out) && untouched_before(info));
  orlop_request_release(r);
  return n;
}

int main(int argc, char** argv) {
  char json[4096];
  orlop_error err = {.struct_size = sizeof err};
  orlop_engine* e = NULL;
  size_t size[8] = {0};
  int32_t old_tokens[64], new_tokens[64];
  if (argc != 6 && argc != 8) return 2;
  for (int i = 2; i < argc; ++i) size[i] = (size_t)atol(argv[i]);

  /* The creating call fills the whole error and nothing else. */
  orlop_error* small = at_the_edge(sizeof *small);
  small->struct_size = sizeof *small;
  CHECK(orlop_engine_create("{\"thread\": 1}", 13, &e, small) == ORLOP_E_INVALID_ARGUMENT);
  CHECK(strstr(small->message, "threads") && untouched_before(small));

  snprintf(json, sizeof json, "{\"model\": \"%s\", \"threads\": 1, \"enable_prefix_cache\": true, \"block_size\": 16}", argv[1]);
  if (orlop_engine_create_async(json, strlen(json), &e, &err) != ORLOP_OK) {
    fprintf(stderr, "create: %s\n", err.message);
    return 1;
  }
  orlop_progress* progress = at_the_edge(24);
  progress->struct_size = 24;
  CHECK(orlop_engine_wait(e, -1, progress, &err) == ORLOP_OK);
  CHECK(progress->done == 1 && untouched_before(progress));

  /* Parameters of that size: what they lack has its default, so the answer is the one of today's. */
  orlop_generate_params* params = at_the_edge(size[3]);
  orlop_generate_params now;
  orlop_generate_params_init(params, (uint32_t)size[3]);
  orlop_generate_params_init(&now, sizeof now);
  CHECK(params->struct_size == size[3] && untouched_before(params));
  /* All that both know is the same. */
  CHECK(!memcmp((char*)params + 4, (char*)&now + 4, size[3] - 4));
  params->tokens = now.tokens = prompt;
  params->n_tokens = now.n_tokens = 4;
  params->max_tokens = now.max_tokens = 24;
  params->temperature = now.temperature = 0.8;
  params->seed = now.seed = 7;
  params->flags = now.flags = ORLOP_GENERATE_SEEDED | ORLOP_GENERATE_IGNORE_EOS;
  CHECK(answer(e, params, old_tokens, size[4], size[5]) == 24);
  CHECK(answer(e, &now, new_tokens, sizeof(orlop_output), sizeof(orlop_request_info)) == 24);
  CHECK(!memcmp(old_tokens, new_tokens, 24 * sizeof(int32_t)));

  /* Counts. The first fields are where they were. */
  orlop_stats* stats = at_the_edge(size[2]);
  stats->struct_size = (uint32_t)size[2];
  CHECK(orlop_engine_stats(e, stats, &err) == ORLOP_OK);
  CHECK(stats->struct_size == size[2] && untouched_before(stats));
  CHECK(stats->requests_finished == 2 && stats->generated_tokens == 48 && stats->pages_total > 0);

  /* A program of the future: its tail is accepted while it is zero, and answered with zeros. */
  const size_t longer = sizeof(orlop_generate_params) + 64;
  unsigned char* future = at_the_edge(longer);
  memcpy(future, &now, sizeof now);
  memcpy(future, &(uint32_t){(uint32_t)longer}, 4);
  CHECK(answer(e, future, new_tokens, sizeof(orlop_output) + 64, sizeof(orlop_request_info) + 64) == 24);
  CHECK(!memcmp(old_tokens, new_tokens, 24 * sizeof(int32_t)));
  future[longer - 1] = 1;
  orlop_request* none = NULL;
  CHECK(orlop_async_generate(e, (void*)future, &none, &err) == ORLOP_E_UNSUPPORTED && !none);
  CHECK(strstr(err.message, "is set"));

  if (argc == 8) {
    static int32_t prefix[40];
    orlop_buffer* state = NULL;
    size_t n = 0;
    for (int i = 0; i < 40; ++i) prefix[i] = i * 3 % 128;
    orlop_state_params* save = at_the_edge(size[6]);
    orlop_state_info* info = at_the_edge(size[7]);
    save->struct_size = (uint32_t)size[6];
    info->struct_size = (uint32_t)size[7];
    save->tokens = prefix;
    save->n_tokens = 40;
    CHECK(orlop_state_save(e, save, &state, &err) == ORLOP_OK);
    const void* data = orlop_buffer_data(state, &n);
    save->tokens = NULL;
    save->n_tokens = 0;
    save->cache_salt = "one";
    save->cache_salt_len = 3;
    CHECK(orlop_state_load(e, data, n, save, info, &err) == ORLOP_OK);
    CHECK(info->n_tokens == 32 && untouched_before(info));
    orlop_buffer_release(state);
  }
  orlop_engine_release(e);
  printf("%d failures\n", failures);
  return failures != 0;
}
