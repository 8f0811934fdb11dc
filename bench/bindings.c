/* bindings.c TINY_MODEL REQUESTS TOKENS POLLS: what the C ABI costs, one line of JSON. bindings.py builds it,
 * runs it beside the programs of the other languages and compares. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "orlop/orlop.h"

enum { in_flight = 64, rounds = 11 };

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int32_t status, const orlop_error* err) {
  if (status >= 0) return;
  fprintf(stderr, "%d %s\n", (int)status, err->message);
  exit(1);
}

static orlop_engine* make(const char* model, const char* more) {
  char json[4096];
  orlop_error err = {.struct_size = sizeof err};
  orlop_engine* e = NULL;
  snprintf(json, sizeof json, "{\"model\": \"%s\", %s}", model, more);
  must(orlop_engine_create(json, strlen(json), &e, &err), &err);
  return e;
}

static orlop_request* start(orlop_engine* e, orlop_queue* queue, uint64_t tag, int first, uint32_t tokens) {
  const int32_t prompt[4] = {1 + first % 100, 2, 3, 4};
  orlop_error err = {.struct_size = sizeof err};
  orlop_generate_params p;
  orlop_request* r = NULL;
  orlop_generate_params_init(&p, sizeof p);
  p.tokens = prompt;
  p.n_tokens = 4;
  p.max_tokens = tokens;
  p.temperature = 0;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  p.queue = queue;
  p.tag = tag;
  must(orlop_async_generate(e, &p, &r, &err), &err);
  return r;
}

/* Up to 64 at a time through one queue; seconds that all took. */
static double batch(orlop_engine* e, orlop_queue* queue, int requests, uint32_t tokens) {
  orlop_request* live[in_flight] = {0};
  orlop_error err = {.struct_size = sizeof err};
  orlop_output out = {.struct_size = sizeof out};
  uint64_t tag, count = 0;
  int started = 0, ended = 0;
  const double begin = now_ns();
  for (; started < requests && started < in_flight; ++started)
    live[started] = start(e, queue, (uint64_t)started, started, tokens);
  while (ended < requests) {
    must(orlop_queue_wait(queue, -1, &tag, &err), &err);
    const int32_t status = orlop_get(live[tag], 0, &out, &err);
    must(status, &err);
    if (status != ORLOP_OK) continue;
    count += out.n_tokens;
    if (out.finish_reason == ORLOP_FINISH_NONE) continue;
    orlop_request_release(live[tag]);
    live[tag] = NULL;
    ++ended;
    if (started < requests) {
      live[tag] = start(e, queue, tag, started, tokens);
      ++started;
    }
  }
  const double seconds = (now_ns() - begin) * 1e-9;
  if (count != (uint64_t)requests * tokens) {
    fprintf(stderr, "%llu tokens came\n", (unsigned long long)count);
    exit(1);
  }
  return seconds;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* v, size_t n) {
  qsort(v, n, sizeof *v, ascending);
  return v[n / 2];
}

/* Nanoseconds of a look at a request whose turn has not come: it waits behind many others. */
static double poll_ns(const char* model, long polls) {
  orlop_engine* e = make(model, "\"threads\": 1, \"max_running_seqs\": 1, \"scheduling\": \"fcfs\"");
  orlop_request* before[in_flight];
  orlop_error err = {.struct_size = sizeof err};
  orlop_output out = {.struct_size = sizeof out};
  double each[rounds];
  for (int i = 0; i < in_flight; ++i) before[i] = start(e, NULL, 0, i, 500);
  orlop_request* r = start(e, NULL, 0, 0, 500);
  if (polls < rounds) polls = rounds;
  for (int round = 0; round < rounds; ++round) {
    const double begin = now_ns();
    for (long i = 0; i < polls / rounds; ++i)
      if (orlop_get(r, 0, &out, &err) != ORLOP_TIMEOUT) {
        fprintf(stderr, "%ld polls took too long: the turn of the request came\n", polls);
        exit(1);
      }
    each[round] = (now_ns() - begin) / (double)(polls / rounds);
  }
  orlop_request_release(r);
  for (int i = 0; i < in_flight; ++i) orlop_request_release(before[i]);
  orlop_engine_release(e);
  return median(each, rounds);
}

/* Bytes in use that requests leave behind, each: the least growth of several rounds, for the engine's own
 * lists still grow during the first ones. */
static double left(orlop_engine* e, orlop_queue* queue, int requests, uint32_t tokens) {
  double least = 1e18;
  for (int i = 0; i < 5; ++i) {
    const double before = (double)mallinfo2().uordblks;
    batch(e, queue, requests, tokens);
    /* The last request leaves the engine a step later. */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    const double grown = ((double)mallinfo2().uordblks - before) / requests;
    if (grown < least) least = grown;
  }
  return least < 0 ? 0 : least;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s TINY_MODEL REQUESTS TOKENS POLLS\n", argv[0]);
    return 2;
  }
  const int requests = atoi(argv[2]);
  const uint32_t tokens = (uint32_t)atoi(argv[3]);
  orlop_error err = {.struct_size = sizeof err};
  double rate[5];
  const double poll = poll_ns(argv[1], atol(argv[4]));
  orlop_engine* e = make(argv[1], "\"threads\": 2, \"max_context\": 512, \"kv_bytes\": 16000000");
  orlop_queue* queue = NULL;
  must(orlop_queue_create(e, &queue, &err), &err);
  batch(e, queue, requests, tokens);
  for (int i = 0; i < 5; ++i) rate[i] = requests / batch(e, queue, requests, tokens);
  const double bytes = left(e, queue, requests, tokens);
  printf("{\"language\": \"c\", \"poll_ns\": %.1f, \"requests_per_s\": %.1f, \"bytes_left_per_request\": %.1f}\n", poll,
         median(rate, 5), bytes);
  orlop_queue_release(queue);
  orlop_engine_release(e);
  return 0;
}
