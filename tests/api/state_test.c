/* Saved states over tiny checkpoints: round trips between engines, everything that must be refused,
 * and that a refused one leaves nothing behind. */
#include "capi.h"

#define TINY TEST_DATA "/tiny/"
#define ENGINE(model, more) \
  "{\"model\": \"" TINY model "\", \"threads\": 2, \"debug_poison\": true, " more "}"
#define PLAIN "\"compute\": \"fp32\", \"kv_bytes\": 4000000"

static const char key[] = "a key of enough bytes";
static int32_t ids[300];
static result alone, got;
static char* saved; /* of 200 tokens, unsigned; and the same signed */
static char* keyed;
static size_t saved_n, keyed_n;

static orlop_state_params state_of(uint64_t n) {
  orlop_state_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.tokens = n ? ids : NULL;
  p.n_tokens = n;
  return p;
}

static orlop_state_params loading(const char* salt, const char* with_key) {
  orlop_state_params p = state_of(0);
  p.cache_salt = salt;
  p.cache_salt_len = salt ? strlen(salt) : 0;
  p.key = with_key;
  p.key_len = with_key ? strlen(with_key) : 0;
  return p;
}

static char* save(orlop_engine* e, const orlop_state_params* p, size_t* n) {
  orlop_buffer* b = NULL;
  orlop_error err;
  const void* data;
  char* copy;
  new_error(&err);
  if (orlop_state_save(e, p, &b, &err) != ORLOP_OK) {
    fprintf(stderr, "save: %d %s\n", (int)err.code, err.message);
    ++failures;
    return NULL;
  }
  data = orlop_buffer_data(b, n);
  copy = malloc(*n);
  memcpy(copy, data, *n);
  orlop_buffer_release(b);
  return copy;
}

/* A request of the first n ids under a salt: its answer, and how much of it was cached. */
static int cached(orlop_engine* e, uint64_t n, const char* salt, result* out) {
  orlop_generate_params p = params_of(ids, n);
  orlop_request_info i;
  orlop_request* r;
  p.flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED;
  p.seed = 11;
  p.max_tokens = 20;
  p.logprobs = 0;
  p.cache_salt = salt;
  p.cache_salt_len = salt ? strlen(salt) : 0;
  r = submit(e, &p);
  if (!r) return -1;
  take_all(r, out);
  memset(&i, 0, sizeof i);
  i.struct_size = sizeof i;
  CHECK(orlop_get_status(r, &i, NULL) == ORLOP_OK);
  orlop_request_release(r);
  return (int)i.cached_tokens;
}

static int same(const result* x, const result* y) {
  return x->n == y->n && !memcmp(x->tokens, y->tokens, x->n * 4) &&
         !memcmp(x->logprobs, y->logprobs, x->n * 4);
}

static void round_trips(void) {
  static const struct {
    const char *model, *more;
  } rows[] = {
      {"llama", PLAIN},
      {"llama", "\"compute\": \"bf16\", \"block_size\": 32"},
      {"qwen2", "\"compute\": \"bf16\", \"block_size\": 8, \"kv_dtype\": \"fp16\""},
      {"qwen3", "\"compute\": \"bf16\", \"kv_dtype\": \"int8\""},
      {"llama", "\"compute\": \"bf16\", \"kv_dtype\": \"uint4\""},
      {"mistral-window", "\"compute\": \"fp32\", \"block_size\": 8"},
      {"llama",
       "\"compute\": \"bf16\", \"debug_plan_ahead\": true, \"kv_bytes\": 900000, "
       "\"enable_cpu_prefix_swap\": true, \"cpu_prefix_bytes\": 500000"},
      {"mistral-window", "\"compute\": \"bf16\", \"block_size\": 16, \"step_tokens\": 7"},
  };
  size_t i;
  for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
    char json[1024];
    orlop_engine *from, *to;
    orlop_state_params p = state_of(100);
    orlop_state_info info;
    char *plain, *is_signed;
    size_t n, m;
    int block = strstr(rows[i].more, "\"block_size\": 8") ? 8 : 16, whole;
    if (strstr(rows[i].more, "\"block_size\": 32")) block = 32;
    whole = 100 / block * block;
    snprintf(json, sizeof json, "{\"model\": \"" TINY "%s\", \"debug_poison\": true, %s}",
             rows[i].model, rows[i].more);
    from = engine_of(json);
    to = engine_of(json);
    if (!from || !to) return;
    CHECK(cached(from, 120, NULL, &alone) == 0);
    plain = save(from, &p, &n);
    p.key = key;
    p.key_len = sizeof key - 1;
    is_signed = save(from, &p, &m);
    if (!plain || !is_signed) return;
    CHECK(m == n + 32);

    /* Unsigned: for its salt alone. */
    p = loading("alice", NULL);
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK(orlop_state_load(to, plain, n, &p, &info, NULL) == ORLOP_OK);
    CHECK(info.n_tokens == (uint64_t)whole && !info.shared && info.pages > 0);
    CHECK(info.pages_added == info.pages);
    CHECK(cached(to, 120, NULL, &got) == 0 && same(&got, &alone));
    CHECK(cached(to, 120, "bob", &got) == 0 && same(&got, &alone));
    CHECK(cached(to, 120, "alice", &got) == whole && same(&got, &alone));
    CHECK(orlop_state_load(to, plain, n, &p, &info, NULL) == ORLOP_OK && info.pages_added == 0);
    orlop_engine_release(to);

    /* Signed: for everyone, under the key alone. */
    to = engine_of(json);
    p = loading(NULL, key);
    CHECK(orlop_state_load(to, is_signed, m, &p, &info, NULL) == ORLOP_OK && info.shared);
    CHECK(info.pages_added == info.pages);
    CHECK(cached(to, 120, NULL, &got) == whole && same(&got, &alone));
    CHECK(cached(to, 120, "bob", &got) == whole && same(&got, &alone));
    /* A prompt that ends within the prefix finds its own whole pages. */
    if (!strstr(rows[i].model, "window")) {
      CHECK(cached(to, 70, "carol", &got) == 69 / block * block);
      CHECK(cached(from, 70, "dave", &alone) == 0 && same(&got, &alone));
    }
    /* What was loaded can be saved again: the same bytes. */
    {
      orlop_state_params again = state_of(100);
      size_t k = 0;
      char* bytes;
      again.cache_salt = "erin";
      again.cache_salt_len = 4;
      bytes = save(to, &again, &k);
      CHECK(bytes && k == n && !memcmp(bytes, plain, n));
      free(bytes);
    }
    CHECK(settles(to) && settles(from));
    orlop_engine_release(to);
    orlop_engine_release(from);
    free(plain);
    free(is_signed);
  }
}

static void files(void) {
  orlop_engine* e = engine_of(ENGINE("llama", PLAIN));
  orlop_state_params p = state_of(100);
  orlop_buffer* b = (orlop_buffer*)&p;
  char path[256], other[300];
  FILE* f;
  size_t n;
  char* bytes;
  if (!e) return;
  snprintf(path, sizeof path, "/tmp/orlop-state-test-%ld", (long)now_us());
  p.path = path;
  p.path_len = strlen(path);
  CHECK(orlop_state_save(e, &p, &b, NULL) == ORLOP_OK && b == NULL);
  CHECK(orlop_state_save(e, &p, NULL, NULL) == ORLOP_OK); /* replaces */
  p = state_of(100);
  bytes = save(e, &p, &n);
  f = fopen(path, "rb");
  CHECK(f != NULL);
  if (f && bytes) {
    char* read = malloc(n + 1);
    CHECK(fread(read, 1, n + 1, f) == n && !memcmp(read, bytes, n));
    free(read);
    fclose(f);
  }
  orlop_engine_release(e);
  e = engine_of(ENGINE("llama", PLAIN));
  p = loading("s", NULL);
  p.path = path;
  p.path_len = strlen(path);
  CHECK(orlop_state_load(e, NULL, 0, &p, NULL, NULL) == ORLOP_OK);
  CHECK(cached(e, 120, "s", &got) == 96);
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "exactly one of data and path",
              orlop_state_load(e, bytes, n, &p, NULL, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "exactly one of data and path",
              orlop_state_load(e, NULL, 0, (p.path_len = 0, p.path = NULL, &p), NULL, &err));
  /* A file that cannot be a state of this engine is not even read. */
  snprintf(other, sizeof other, "%s-big", path);
  f = fopen(other, "wb");
  CHECK(f && fseek(f, 1L << 32, SEEK_SET) == 0 && fputc(0, f) == 0);
  if (f) fclose(f);
  p.path = other;
  p.path_len = strlen(other);
  CHECK_ERROR(ORLOP_E_BAD_FORMAT, "bytes; a state of this engine has at most",
              orlop_state_load(e, NULL, 0, &p, NULL, &err));
  remove(other);
  CHECK_ERROR(ORLOP_E_NOT_FOUND, other, orlop_state_load(e, NULL, 0, &p, NULL, &err));
  p.path = "/tmp";
  p.path_len = 4;
  CHECK_ERROR(ORLOP_E_IO, "/tmp", orlop_state_load(e, NULL, 0, &p, NULL, &err));
  p = state_of(100);
  p.path = "/no/such/folder/state";
  p.path_len = strlen(p.path);
  CHECK_ERROR(ORLOP_E_NOT_FOUND, "/no/such/folder/state", orlop_state_save(e, &p, NULL, &err));
  remove(path);
  orlop_engine_release(e);
  free(bytes);
}

static void arguments(void) {
  orlop_engine* e = engine_of(ENGINE("llama", PLAIN));
  orlop_engine* without = engine_of(ENGINE("llama", PLAIN ", \"enable_prefix_cache\": false"));
  orlop_state_params p = state_of(15);
  orlop_buffer* b = (orlop_buffer*)&p;
#define SAVE(engine) orlop_state_save(engine, &p, &b, &err)
  if (!e || !without) return;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "its 15 tokens fill no page of block_size 16", SAVE(e));
  CHECK(b == NULL);
  p.n_tokens = 0;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "prompt: is empty", SAVE(e));
  p.tokens = NULL;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "exactly one of text, tokens and messages, got 0", SAVE(e));
  p = state_of(64);
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "out: is NULL", orlop_state_save(e, &p, NULL, &err));
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "enable_prefix_cache", SAVE(without));
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "flags", SAVE(e));
  p.flags = 0;
  p.deadline_us = -5;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "deadline_us", SAVE(e));
  p.deadline_us = 1;
  CHECK_ERROR(ORLOP_E_DEADLINE, "deadline", SAVE(e));
  p.deadline_us = 0;
  p.key = "short";
  p.key_len = 5;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "key: must have 16 to 1024 bytes, got 5", SAVE(e));
  p.key_len = 0;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "key: must have 16 to 1024 bytes, got 0", SAVE(e));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "params: is NULL", orlop_state_save(e, NULL, &b, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "engine: is NULL", SAVE(NULL));
#undef SAVE
  p = loading(NULL, NULL);
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "cache_salt: is needed",
              orlop_state_load(e, saved, saved_n, &p, NULL, &err));
  p = loading("x", NULL);
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "enable_prefix_cache",
              orlop_state_load(without, saved, saved_n, &p, NULL, &err));
  p.tokens = ids;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "brings its own",
              orlop_state_load(e, saved, saved_n, &p, NULL, &err));
  CHECK(stats_of(e).pages_cached == 0);
  orlop_engine_release(without);
  orlop_engine_release(e);
}

static void wrong_keys(void) {
  orlop_engine* e = engine_of(ENGINE("llama", PLAIN));
  orlop_state_params p = loading("x", "another key of enough bytes");
  if (!e) return;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "signature does not hold",
              orlop_state_load(e, keyed, keyed_n, &p, NULL, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "carries no signature",
              orlop_state_load(e, saved, saved_n, &p, NULL, &err));
  CHECK(stats_of(e).pages_cached == 0);
  /* A signature that nobody checks is none: the salt alone is served. */
  p = loading("x", NULL);
  CHECK(orlop_state_load(e, keyed, keyed_n, &p, NULL, NULL) == ORLOP_OK);
  CHECK(cached(e, 220, NULL, &got) == 0 && cached(e, 220, "x", &got) == 192);
  orlop_engine_release(e);
}

/* Every truncation and a bit in every byte of the head, a sample of the pages and the end. */
static void damage(void) {
  orlop_engine* e = engine_of(ENGINE("llama", PLAIN));
  orlop_state_params p = loading("x", NULL), k = loading(NULL, key);
  char* copy = malloc(keyed_n);
  size_t at, cuts = 0, flips = 0;
  if (!e) return;
  for (at = 0; at < keyed_n; at += at < 1500 || at + 70 > keyed_n ? 1 : 997) {
    orlop_error err;
    new_error(&err);
    memcpy(copy, keyed, keyed_n);
    CHECK(orlop_state_load(e, at ? copy : NULL, at, at % 2 ? &p : &k, NULL, &err) ==
          (at ? ORLOP_E_BAD_FORMAT : ORLOP_E_INVALID_ARGUMENT));
    CHECK(err.message[0] != 0);
    ++cuts;
    copy[at] = (char)(copy[at] ^ (1 << at % 8));
    {
      const int32_t s = orlop_state_load(e, copy, keyed_n, &k, NULL, &err);
      CHECK(s == ORLOP_E_BAD_FORMAT || s == ORLOP_E_UNSUPPORTED || s == ORLOP_E_INVALID_ARGUMENT);
      ++flips;
    }
  }
  CHECK(cuts > 1500 && flips == cuts);
  CHECK(stats_of(e).pages_cached == 0);
  CHECK(orlop_state_load(e, keyed, keyed_n, &k, NULL, NULL) == ORLOP_OK);
  free(copy);
  orlop_engine_release(e);
}

/* A state of another engine: the message names what differs. */
static void mismatches(void) {
  static const struct {
    const char *json, *words;
  } rows[] = {
      {ENGINE("llama-bias", PLAIN), "state: model is "},
      {ENGINE("llama", "\"compute\": \"bf16\", \"kv_dtype\": \"fp32\""), "compute is fp32"},
      {ENGINE("llama", "\"compute\": \"fp32\", \"kv_dtype\": \"bf16\""),
       "kv_dtype is fp32, the engine's is bf16"},
      {ENGINE("llama", PLAIN ", \"block_size\": 32"), "block_size is 16, the engine's is 32"},
  };
  size_t i;
  for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
    orlop_engine* e = engine_of(rows[i].json);
    orlop_state_params p = loading("x", NULL);
    if (!e) return;
    CHECK_ERROR(ORLOP_E_UNSUPPORTED, rows[i].words,
                orlop_state_load(e, saved, saved_n, &p, NULL, &err));
    CHECK(stats_of(e).pages_cached == 0);
    orlop_engine_release(e);
  }
  {
    orlop_engine* e = engine_of(ENGINE("llama", PLAIN ", \"max_context\": 100"));
    orlop_state_params p = loading("x", NULL);
    if (!e) return;
    CHECK_ERROR(ORLOP_E_CONTEXT_OVERFLOW, "192 tokens are more than the context of 100",
                orlop_state_load(e, saved, saved_n, &p, NULL, &err));
    orlop_engine_release(e);
  }
}

/* Under pressure: a full cache makes room or says that it has none; nobody's answer changes. */
static void little_room(void) {
  orlop_engine* e = engine_of(ENGINE("llama", "\"compute\": \"fp32\", \"kv_bytes\": 260000"));
  orlop_state_params p = loading("x", NULL);
  orlop_generate_params q = params_of(ids + 3, 20);
  orlop_request* r;
  int32_t status;
  size_t n;
  char* bytes;
  if (!e) return;
  CHECK(orlop_state_load(e, saved, saved_n, &p, NULL, NULL) == ORLOP_OK);
  q.flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED;
  q.max_tokens = 200;
  q.logprobs = 0;
  run(e, &q, &alone); /* evicts what it needs */
  CHECK(alone.n == 200);
  r = submit(e, &q);
  for (n = 0; n < 50; ++n) {
    status = orlop_state_load(e, saved, saved_n, &p, NULL, NULL);
    CHECK(status == ORLOP_OK || status == ORLOP_E_OUT_OF_MEMORY);
  }
  take_all(r, &got);
  CHECK(same(&alone, &got));
  orlop_request_release(r);
  p = state_of(200);
  bytes = save(e, &p, &n);
  CHECK(bytes && n == saved_n && !memcmp(bytes, saved, n));
  free(bytes);
  CHECK(settles(e));
  orlop_engine_release(e);
}

int main(int argc, char** argv) {
  orlop_engine* e;
  orlop_state_params p = state_of(200);
  size_t i;
  for (i = 0; i < 300; ++i) ids[i] = (int32_t)((i * 53 + i / 5) % 120);
  e = engine_of(ENGINE("llama", PLAIN));
  if (!e) return 1;
  saved = save(e, &p, &saved_n);
  p.key = key;
  p.key_len = sizeof key - 1;
  keyed = save(e, &p, &keyed_n);
  orlop_engine_release(e);
  if (!saved || !keyed) return 1;
  RUN(round_trips);
  RUN(files);
  RUN(arguments);
  RUN(wrong_keys);
  RUN(damage);
  RUN(mismatches);
  RUN(little_room);
  free(saved);
  free(keyed);
  return close_tests();
}
