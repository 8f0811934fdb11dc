/* The ABI over a tiny checkpoint: several samples of a prompt, the prefix cache and its salts,
 * priorities, deadlines, what the statistics say. */
#include "capi.h"

#define TINY TEST_DATA "/tiny/"
#define ENGINE(more)                                 \
  "{\"model\": \"" TINY                              \
  "llama\", \"compute\": \"fp32\", \"threads\": 2, " \
  "\"debug_poison\": true" more "}"
#define MOST 128

static orlop_engine* engine;
static int slow; /* a device that takes its time: less of everything */
static result alone, got;
static int32_t ids[300];

static orlop_request_info info_of(const orlop_request* r) {
  orlop_request_info i;
  memset(&i, 0, sizeof i);
  i.struct_size = sizeof i;
  CHECK(orlop_get_status(r, &i, NULL) == ORLOP_OK);
  return i;
}

static orlop_generate_params sampled(uint64_t n_tokens, uint64_t seed) {
  orlop_generate_params p = params_of(ids, n_tokens);
  p.flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED;
  p.seed = seed;
  p.temperature = 1.2;
  p.max_tokens = 24;
  p.logprobs = 0;
  return p;
}

/* All samples of a request, told apart by their index. */
typedef struct sample {
  int32_t tokens[64];
  float logprobs[64];
  size_t n;
  int32_t finish, ends, prompts;
} sample;
static sample samples[MOST];

static void take_samples(orlop_request* r, uint32_t n) {
  int32_t s;
  memset(samples, 0, sizeof samples);
  for (;;) {
    orlop_output o;
    sample* to;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    s = orlop_get(r, -1, &o, NULL);
    if (s != ORLOP_OK) break;
    CHECK(o.index < n);
    if (o.index >= n) break;
    to = &samples[o.index];
    CHECK(to->finish == ORLOP_FINISH_NONE); /* nothing comes after an end */
    CHECK(to->n + o.n_tokens <= 64);
    if (o.n_tokens) {
      memcpy(to->tokens + to->n, o.tokens, o.n_tokens * 4);
      if (o.logprobs) memcpy(to->logprobs + to->n, o.logprobs, o.n_tokens * 4);
    }
    to->n += o.n_tokens;
    to->finish = o.finish_reason;
    to->ends += o.finish_reason != ORLOP_FINISH_NONE;
    to->prompts += o.prompt_logprobs != NULL;
  }
  CHECK(s == ORLOP_END);
}

static int cached_of(orlop_engine* e, const orlop_generate_params* p, result* out) {
  orlop_request* r = submit(e, p);
  orlop_request_info i;
  if (!r) return -1;
  take_all(r, out);
  i = info_of(r);
  orlop_request_release(r);
  return (int)i.cached_tokens;
}

/* Sample i equals the request of one sample with seed + i, at prompt lengths around page borders.
 */
static void samples_equal_requests_alone(void) {
  static const uint64_t lengths[] = {1, 15, 16, 17, 40, 48};
  static const uint32_t counts[] = {2, 5, 128};
  size_t l, c;
  uint32_t i;
  for (l = 0; l < sizeof lengths / sizeof *lengths; ++l)
    for (c = 0; c < sizeof counts / sizeof *counts; ++c) {
      orlop_generate_params p = sampled(lengths[l], 1000 * l);
      orlop_request* r;
      if (counts[c] == 128 && (slow || lengths[l] != 17)) continue;
      if (slow && l % 3 != 0) continue;
      p.prompt_logprobs = 0;
      p.n = counts[c];
      r = submit(engine, &p);
      if (!r) return;
      take_samples(r, p.n);
      CHECK(info_of(r).samples == p.n && info_of(r).generated_tokens == 24u * p.n);
      CHECK(info_of(r).state == ORLOP_STATE_DONE && info_of(r).seed == p.seed);
      orlop_request_release(r);
      for (i = 0; i<p.n; i += p.n> 8 ? 31 : 1) {
        orlop_generate_params q = sampled(lengths[l], 1000 * l + i);
        run(engine, &q, &alone);
        CHECK(samples[i].n == 24 && samples[i].ends == 1);
        CHECK(samples[i].finish == ORLOP_FINISH_LENGTH);
        CHECK(samples[i].prompts == (i == 0));
        CHECK(!memcmp(samples[i].tokens, alone.tokens, 96));
        CHECK(!memcmp(samples[i].logprobs, alone.logprobs, 96));
      }
      CHECK(memcmp(samples[0].tokens, samples[1].tokens, 96) != 0);
    }
  CHECK(settles(engine));
}

static void samples_end_one_by_one(void) {
  orlop_generate_params p = sampled(20, 5), q;
  orlop_request* r;
  int32_t stop;
  uint32_t i, early = 0;
  p.n = 6;
  r = submit(engine, &p);
  take_samples(r, 6);
  orlop_request_release(r);
  stop = samples[2].tokens[7];
  p.stop_tokens = &stop;
  p.n_stop_tokens = 1;
  r = submit(engine, &p);
  take_samples(r, 6);
  CHECK(samples[2].finish == ORLOP_FINISH_STOP && samples[2].n <= 8);
  for (i = 0; i < 6; ++i) {
    q = p;
    q.n = 1;
    q.seed = p.seed + i;
    run(engine, &q, &alone);
    CHECK(samples[i].ends == 1 && samples[i].finish == alone.finish && samples[i].n == alone.n);
    CHECK(!memcmp(samples[i].tokens, alone.tokens, alone.n * 4));
    early += alone.n < 24;
  }
  CHECK(early >= 1);
  orlop_request_release(r);
  /* A request that computes its prompt only has its n ends too. */
  p.max_tokens = 0;
  r = submit(engine, &p);
  take_samples(r, 6);
  for (i = 0; i < 6; ++i) CHECK(samples[i].ends == 1 && samples[i].n == 0);
  orlop_request_release(r);
  /* Cancelling ends all. */
  p.max_tokens = 400;
  p.n_stop_tokens = 0;
  r = submit(engine, &p);
  orlop_cancel(r);
  {
    int ends = 0;
    for (;;) {
      orlop_output o;
      memset(&o, 0, sizeof o);
      o.struct_size = sizeof o;
      if (orlop_get(r, -1, &o, NULL) != ORLOP_OK) break;
      ends += o.finish_reason == ORLOP_FINISH_CANCELLED;
    }
    CHECK(ends == 6);
  }
  CHECK(info_of(r).state == ORLOP_STATE_CANCELLED);
  orlop_request_release(r);
  CHECK(settles(engine));
}

static void sample_counts_are_checked(void) {
  orlop_generate_params p = sampled(4, 0);
  orlop_request* r;
  p.n = 0;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "n: must be 1 to 128, got 0",
              orlop_async_generate(engine, &p, &r, &err));
  p.n = 129;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "n: must be 1 to 128, got 129",
              orlop_async_generate(engine, &p, &r, &err));
}

/* The same prompt again is found, page by page, but for its last token; and nothing changes. */
static void cache_hits_show(void) {
  static const struct {
    uint64_t n;
    int hit;
  } rows[] = {{1, 0}, {16, 0}, {17, 16}, {31, 16}, {32, 16}, {33, 32}, {200, 192}};
  orlop_engine* e = engine_of(ENGINE(""));
  orlop_engine* without = engine_of(ENGINE(", \"enable_prefix_cache\": false"));
  size_t i;
  int32_t first = 0;
  orlop_stats before, after;
  if (!e || !without) return;
  for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
    orlop_generate_params p = sampled(rows[i].n, 7);
    ids[0] = first++; /* a prompt of its own */
    p.prompt_logprobs = ORLOP_LOGPROBS_OFF;
    CHECK(cached_of(e, &p, &alone) == 0);
    before = stats_of(e);
    CHECK(cached_of(e, &p, &got) == rows[i].hit);
    after = stats_of(e);
    CHECK(after.prefix_hit_tokens - before.prefix_hit_tokens == (uint64_t)rows[i].hit);
    CHECK(after.prefix_lookup_tokens >= before.prefix_lookup_tokens + (uint64_t)rows[i].hit);
    CHECK(got.n == 24 && !memcmp(got.tokens, alone.tokens, 96) &&
          !memcmp(got.logprobs, alone.logprobs, 96));
    CHECK(cached_of(without, &p, &got) == 0);
    CHECK(cached_of(without, &p, &got) == 0);
    CHECK(!memcmp(got.tokens, alone.tokens, 96) && !memcmp(got.logprobs, alone.logprobs, 96));
  }
  after = stats_of(e);
  CHECK(after.pages_cached > 0 && after.pages_used == 0);
  CHECK(after.pages_free + after.pages_cached == after.pages_total);
  CHECK(stats_of(without).pages_cached == 0 && stats_of(without).prefix_hit_tokens == 0);
  orlop_engine_release(without);
  orlop_engine_release(e);
  ids[0] = 0;
}

/* What was generated is a prefix too: the next turn of a conversation finds it. */
static void outputs_are_cached(void) {
  orlop_engine* e = engine_of(ENGINE(""));
  orlop_generate_params p = sampled(40, 3);
  static int32_t turn[80];
  if (!e) return;
  CHECK(cached_of(e, &p, &alone) == 0);
  memcpy(turn, ids, 160);
  memcpy(turn + 40, alone.tokens, 96);
  turn[64] = 1;
  p.tokens = turn;
  p.n_tokens = 65;
  /* The last generated token was never computed: 63 positions are, 48 of them in whole pages. */
  CHECK(cached_of(e, &p, &got) == 48);
  orlop_engine_release(e);
}

static void salts_separate(void) {
  orlop_engine* e = engine_of(ENGINE(""));
  orlop_generate_params p = sampled(64, 1);
  char salt[2000];
  orlop_request* r;
  if (!e) return;
  CHECK(cached_of(e, &p, &alone) == 0);
  p.cache_salt = "alice";
  p.cache_salt_len = 5;
  CHECK(cached_of(e, &p, &got) == 0);
  CHECK(cached_of(e, &p, &got) == 48);
  CHECK(!memcmp(got.tokens, alone.tokens, 96) && !memcmp(got.logprobs, alone.logprobs, 96));
  p.cache_salt_len = 4; /* "alic" */
  CHECK(cached_of(e, &p, &got) == 0);
  p.cache_salt = "alice\0x";
  p.cache_salt_len = 7;
  CHECK(cached_of(e, &p, &got) == 0);
  p.cache_salt = NULL;
  p.cache_salt_len = 0;
  CHECK(cached_of(e, &p, &got) == 48);
  memset(salt, 'x', sizeof salt);
  p.cache_salt = salt;
  p.cache_salt_len = 1025;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "cache_salt: at most 1024 bytes, got 1025",
              orlop_async_generate(e, &p, &r, &err));
  p.cache_salt = "\xFF";
  p.cache_salt_len = 1;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "cache_salt: no valid UTF-8",
              orlop_async_generate(e, &p, &r, &err));
  p.cache_salt = "\0shared";
  p.cache_salt_len = 7;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "cache_salt: may not begin with a NUL",
              orlop_async_generate(e, &p, &r, &err));
  p.cache_salt = NULL;
  p.cache_salt_len = 1;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "cache_salt: is NULL with a length of 1",
              orlop_async_generate(e, &p, &r, &err));
  orlop_engine_release(e);
}

static void deadlines(void) {
  orlop_generate_params p = sampled(8, 1);
  orlop_request *r, *busy[8];
  orlop_request_info i;
  size_t k;
  p.deadline_us = -1;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "deadline_us: must be at least 0, got -1",
              orlop_async_generate(engine, &p, &r, &err));
  /* Far away, also at the end of all numbers: as if there were none. */
  p.deadline_us = 600000000;
  run(engine, &p, &alone);
  p.deadline_us = INT64_MAX;
  run(engine, &p, &got);
  CHECK(alone.finish == ORLOP_FINISH_LENGTH && got.finish == ORLOP_FINISH_LENGTH);
  CHECK(!memcmp(alone.tokens, got.tokens, 96));
  /* Long requests in front; one that cannot make it, in the line or on its way. */
  for (k = 0; k < 8; ++k) {
    orlop_generate_params q = sampled(8, k);
    q.max_tokens = slow ? 60 : 480;
    busy[k] = submit(engine, &q);
  }
  p.max_tokens = 480; /* more than 2 ms can hold */
  p.n = 2;
  p.deadline_us = 2000;
  r = submit(engine, &p);
  {
    int32_t ends = 0, s;
    for (;;) {
      orlop_output o;
      memset(&o, 0, sizeof o);
      o.struct_size = sizeof o;
      s = orlop_get(r, -1, &o, NULL);
      if (s != ORLOP_OK) break;
      if (o.finish_reason == ORLOP_FINISH_NONE) continue;
      ++ends;
      CHECK(o.finish_reason == ORLOP_FINISH_ERROR && o.error_code == ORLOP_E_DEADLINE);
      CHECK(o.message_len > 5);
    }
    CHECK(s == ORLOP_END && ends == 2);
  }
  i = info_of(r);
  CHECK(i.state == ORLOP_STATE_FAILED && i.error_code == ORLOP_E_DEADLINE);
  orlop_request_release(r);
  for (k = 0; k < 8; ++k) {
    take_all(busy[k], &got);
    CHECK(got.n == (slow ? 60 : 480));
    orlop_request_release(busy[k]);
  }
  CHECK(settles(engine));
}

/* One seat: of those that wait the one of the higher priority goes first. */
static void priorities(void) {
  orlop_engine* e = engine_of(ENGINE(", \"max_running_seqs\": 1"));
  orlop_generate_params p = sampled(8, 1);
  orlop_request *first, *low, *high;
  if (!e) return;
  p.priority = 101;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "priority: must be -100 to 100, got 101",
              orlop_async_generate(e, &p, &first, &err));
  p.priority = 0;
  p.reserved = 1;
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "reserved", orlop_async_generate(e, &p, &first, &err));
  p.reserved = 0;
  p.max_tokens = slow ? 40 : 300;
  first = submit(e, &p);
  p.max_tokens = 8;
  p.priority = -100;
  low = submit(e, &p);
  p.priority = 100;
  high = submit(e, &p);
  take_all(low, &alone);
  take_all(high, &got);
  CHECK(info_of(first).scheduled_ns > 0);
  CHECK(info_of(high).scheduled_ns < info_of(low).scheduled_ns);
  CHECK(!memcmp(alone.tokens, got.tokens, 32));
  orlop_request_release(first);
  orlop_request_release(low);
  orlop_request_release(high);
  orlop_engine_release(e);
}

static void statistics(void) {
  orlop_engine* e = engine_of(ENGINE(""));
  orlop_generate_params p = sampled(100, 1);
  orlop_stats s;
  uint64_t parts;
  int i;
  if (!e) return;
  s = stats_of(e);
  CHECK(s.steps == 0 && s.pages_free == s.pages_total && s.host_pages_total == 0);
  CHECK(s.prompt_tokens_per_s == 0 && s.generated_tokens_per_s == 0);
  run(e, &p, &got);
  for (i = 0; i < 10000 && stats_of(e).steps < 24; ++i) sleep_us(1000); /* the last step ends */
  s = stats_of(e);
  CHECK(s.steps >= 24 && s.prompt_tokens == 100 && s.generated_tokens == 24);
  CHECK(s.requests_finished == 1 && s.requests_paused == 0 && s.preemptions == 0);
  parts = s.plan_ns_total + s.forward_ns_total + s.sample_ns_total + s.commit_ns_total;
  CHECK(parts > 0 && parts <= s.step_ns_total);
  CHECK(s.forward_ns_total > 0 && s.sample_ns_total > 0 && s.plan_ns_total > 0);
  CHECK(s.model_ns_total <= s.step_ns_total && s.last_step_ns > 0);
  CHECK(s.last_step_ns <= s.step_ns_total);
  /* A struct of the first version is filled as far as it goes. */
  memset(&s, 0x77, sizeof s);
  s.struct_size = (uint32_t)offsetof(orlop_stats, pages_cached);
  CHECK(orlop_engine_stats(e, &s, NULL) == ORLOP_OK && s.generated_tokens == 24);
  CHECK(s.pages_cached == 0x7777777777777777u);
  /* A second of work later there are rates. */
  {
    const int64_t end = now_us() + 1500000;
    p.max_tokens = 100;
    while (now_us() < end) run(e, &p, &got);
    s = stats_of(e);
    CHECK(s.generated_tokens_per_s > 1);
  }
  orlop_engine_release(e);
}

/* A consumer that does not read stops its own request alone, within output_bytes. */
static void slow_consumers_pause(void) {
  orlop_engine* e = engine_of(ENGINE(", \"output_bytes\": 200"));
  orlop_generate_params p = sampled(8, 1);
  orlop_request *behind, *quick;
  const uint32_t most = slow ? 100 : 300;
  int i;
  if (!e) return;
  p.max_tokens = most;
  run(engine, &p, &alone);
  behind = submit(e, &p);
  for (i = 0; i < 5000 && stats_of(e).requests_paused != 1; ++i) sleep_us(1000);
  CHECK(stats_of(e).requests_paused == 1);
  CHECK(info_of(behind).generated_tokens < most && info_of(behind).generated_tokens > 0);
  p.seed = 2;
  p.max_tokens = 20;
  quick = submit(e, &p);
  take_all(quick, &got);
  CHECK(got.n == 20);
  orlop_request_release(quick);
  take_all(behind, &got);
  CHECK(got.n == most && !memcmp(got.tokens, alone.tokens, most * 4));
  orlop_request_release(behind);
  CHECK(settles(e));
  orlop_engine_release(e);
}

int main(int argc, char** argv) {
  const char* device = getenv("ORLOP_TEST_DEVICE");
  size_t i;
  slow = device && *device;
  for (i = 0; i < 300; ++i) ids[i] = (int32_t)((i * 37 + i / 7) % 131);
  engine = engine_of(ENGINE(", \"kv_bytes\": 8000000"));
  if (!engine) return 1;
  RUN(samples_equal_requests_alone);
  RUN(samples_end_one_by_one);
  RUN(sample_counts_are_checked);
  RUN(deadlines);
  RUN(slow_consumers_pause);
  orlop_engine_release(engine);
  RUN(cache_hits_show);
  RUN(outputs_are_cached);
  RUN(salts_separate);
  RUN(priorities);
  RUN(statistics);
  return close_tests();
}
