/* The ABI over tiny checkpoints: configuration, parameters, goldens, structs that grow. */
#include "capi.h"

#define TINY TEST_DATA "/tiny/"
#define LLAMA                                        \
  "{\"model\": \"" TINY                              \
  "llama\", \"compute\": \"fp32\", \"threads\": 2, " \
  "\"debug_poison\": true, \"kv_bytes\": 4000000}"

static orlop_engine* llama;
static const int32_t prompt[] = {5, 6, 7, 8, 9, 10};
static result a, b;

static void library(void) {
  size_t n = 7;
  CHECK(orlop_abi_version() == ((uint32_t)ORLOP_ABI_MAJOR << 16 | ORLOP_ABI_MINOR));
  CHECK(strlen(orlop_version()) >= 5);
  CHECK(orlop_feature(NULL) == 0 && orlop_feature("no such thing") == 0);
  orlop_engine_release(NULL);
  orlop_request_release(NULL);
  orlop_queue_release(NULL);
  orlop_buffer_release(NULL);
  orlop_cancel(NULL);
  CHECK(orlop_buffer_data(NULL, &n) == NULL && n == 0);
  CHECK(orlop_queue_fd(NULL) == -1);
  orlop_generate_params_init(NULL, 100);
}

static void configuration(void) {
  static const struct {
    const char* json;
    int32_t status;
    const char* words;
  } rows[] = {
      {"", ORLOP_E_INVALID_ARGUMENT, "engine configuration"},
      {"[1]", ORLOP_E_INVALID_ARGUMENT, "must be a JSON object"},
      {"{}", ORLOP_E_INVALID_ARGUMENT, "model: is required"},
      {"{\"model\": \"x\", \"a\\u0000b\\\"c\\nd\": 1}", ORLOP_E_INVALID_ARGUMENT, "unknown key \"a\\u0000b\\\"c\\nd\""},
      {"{\"a\\u0000b\": 1, \"a\\u0000b\": 2}", ORLOP_E_INVALID_ARGUMENT, "duplicate key \"a\\u0000b\""},
      /* cut between code points */
      {"{\"device\": [\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\xc3\xa9" "xxxxxxxxxxxxxxxx\"]}", ORLOP_E_INVALID_ARGUMENT, "xxx..."},
      {"{\"model\": \"x\", \"modle\": 1}", ORLOP_E_INVALID_ARGUMENT, "did you mean \"model\"?"},
      {"{\"model\": \"x\", \"zzzzzzzzzzzz\": 1}", ORLOP_E_INVALID_ARGUMENT, "\"zzzzzzzzzzzz\""},
      {"{\"model\": 3}", ORLOP_E_INVALID_ARGUMENT, "model: must be a string, got 3"},
      {"{\"model\": \"\"}", ORLOP_E_INVALID_ARGUMENT, "model: is empty"},
      {"{\"model\": \"a\", \"model\": \"b\"}", ORLOP_E_INVALID_ARGUMENT, "model"},
      {"{\"model\": \"/no/such/model.gguf\"}", ORLOP_E_NOT_FOUND, "/no/such/model.gguf"},
      {"{\"model\": \"x\", \"compute\": \"fp64\"}", ORLOP_E_INVALID_ARGUMENT, "got \"fp64\""},
      {"{\"model\": \"x\", \"block_size\": 24}", ORLOP_E_INVALID_ARGUMENT,
       "must be 8 or a multiple of 16, got 24"},
      {"{\"model\": \"x\", \"block_size\": 1024}", ORLOP_E_INVALID_ARGUMENT, "8 to 256, got 1024"},
      {"{\"model\": \"x\", \"block_size\": 16.0}", ORLOP_E_INVALID_ARGUMENT, "block_size"},
      {"{\"model\": \"x\", \"kv_bytes\": -1}", ORLOP_E_INVALID_ARGUMENT, "kv_bytes"},
      {"{\"model\": \"x\", \"kv_bytes\": 18446744073709551615}", ORLOP_E_INVALID_ARGUMENT,
       "kv_bytes"},
      {"{\"model\": \"x\", \"threads\": \"2\"}", ORLOP_E_INVALID_ARGUMENT, "threads: must be"},
      {"{\"model\": \"x\", \"max_running_seqs\": 0}", ORLOP_E_INVALID_ARGUMENT, "max_running_seqs"},
      {"{\"model\": \"x\", \"load\": \"slowly\"}", ORLOP_E_INVALID_ARGUMENT, "load: must be"},
      {"{\"model\": \"x\", \"debug_poison\": 1}", ORLOP_E_INVALID_ARGUMENT, "debug_poison"},
      {"{\"model\": \"" TINY "llama\", \"quant\": \"gptq\"}", ORLOP_E_INVALID_ARGUMENT,
       "is not quantized by gptq"},
      {"{\"model\": \"x\", \"quant_bits\": 4}", ORLOP_E_INVALID_ARGUMENT,
       "quant_bits: needs quant \"iq\" or \"a8w8\""},
      {"{\"model\": \"x\", \"kv_dtype\": \"int4\"}", ORLOP_E_INVALID_ARGUMENT,
       "auto, bf16, fp16, int8, uint4 or fp32, got \"int4\""},
      {"{\"model\": \"x\", \"kv_dtype\": \"uint4\", \"block_size\": 8}",
       ORLOP_E_INVALID_ARGUMENT, "block_size: must be a multiple of 16 with kv_dtype uint4, got 8"},
      {"{\"model\": \"x\", \"block_size\": 7}", ORLOP_E_INVALID_ARGUMENT, "8 to 256, got 7"},
      {"{\"model\": \"x\", \"enable_prefix_cache\": 1}", ORLOP_E_INVALID_ARGUMENT,
       "enable_prefix_cache: must be true or false, got 1"},
      {"{\"model\": \"x\", \"enable_cpu_prefix_swap\": true, \"enable_prefix_cache\": false}",
       ORLOP_E_INVALID_ARGUMENT, "enable_cpu_prefix_swap: needs enable_prefix_cache"},
      {"{\"model\": \"x\", \"cpu_prefix_bytes\": 0}", ORLOP_E_INVALID_ARGUMENT,
       "cpu_prefix_bytes: must be"},
      {"{\"model\": \"x\", \"scheduling\": \"sjf\"}", ORLOP_E_INVALID_ARGUMENT,
       "scheduling: must be fair or fcfs, got \"sjf\""},
      {"{\"model\": \"x\", \"itl_target_ms\": -1}", ORLOP_E_INVALID_ARGUMENT,
       "itl_target_ms: must be a number of 0 to 1000000, got -1"},
      {"{\"model\": \"x\", \"output_bytes\": 0}", ORLOP_E_INVALID_ARGUMENT,
       "output_bytes: must be an integer of 1 to"},
      {"{\"model\": \"x\", \"chunked_prefill\": \"no\"}", ORLOP_E_INVALID_ARGUMENT,
       "chunked_prefill: must be true or false"},
      {"{\"model\": \"x\", \"device\": \"abacus\"}", ORLOP_E_NOT_FOUND, "abacus"},
      {"{\"model\": \"x\", \"n_gpu_layers\": -1}", ORLOP_E_INVALID_ARGUMENT, "n_gpu_layers: must be"},
      {"{\"model\": \"x\", \"n_gpu_layers\": \"all\"}", ORLOP_E_INVALID_ARGUMENT, "n_gpu_layers: must be"},
      {"{\"model\": \"" TINY "llama\", \"n_gpu_layers\": 1}", ORLOP_E_INVALID_ARGUMENT,
       "n_gpu_layers: 1 layers on a GPU, and device is \"cpu\""},
      {"{\"model\": \"" TINY "llama\", \"max_context\": 513}", ORLOP_E_INVALID_ARGUMENT,
       "max_context: 513 is more than the model's 512"},
      {"{\"model\": \"" TINY "llama\", \"kv_bytes\": 100}", ORLOP_E_INVALID_ARGUMENT,
       "less than one page"},
  };
  size_t i;
  for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
    orlop_engine* e = (orlop_engine*)&e;
    CHECK_ERROR(rows[i].status, rows[i].words,
                orlop_engine_create(rows[i].json, strlen(rows[i].json), &e, &err));
    CHECK(e == NULL);
    CHECK(orlop_engine_create(rows[i].json, strlen(rows[i].json), &e, NULL) == rows[i].status);
  }
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "out: is NULL", orlop_engine_create("{}", 2, NULL, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "engine: is NULL",
              orlop_engine_info(NULL, (orlop_buffer**)&i, &err));
}

static void errors_are_cut_at_code_points(void) {
  char json[4096] = "{\"model\": \"x\", \"";
  orlop_error err;
  orlop_engine* e;
  size_t i, n;
  for (i = 0; i < 700; ++i) strcat(json, "\xC3\xA9");
  strcat(json, "\": 1}");
  new_error(&err);
  CHECK(orlop_engine_create(json, strlen(json), &e, &err) == ORLOP_E_INVALID_ARGUMENT);
  n = strlen(err.message);
  CHECK(n == 503 || n == 502);
  CHECK((unsigned char)err.message[n - 1] == 0xA9);
  memset(&err, 0x55, sizeof err);
  err.struct_size = 16; /* a shorter struct */
  CHECK(orlop_engine_create("{}", 2, &e, &err) == ORLOP_E_INVALID_ARGUMENT);
  CHECK(strcmp(err.message, "model: ") == 0 && err.message[8] == 0x55);
  err.struct_size = 0;
  err.code = 77;
  CHECK(orlop_engine_create("{}", 2, &e, &err) == ORLOP_E_INVALID_ARGUMENT && err.code == 77);
}

/* Reads one int32 count after another of golden.bin (tests/data/pack_golden.py). */
static void golden(const char* name, const char* compute, double tolerance) {
  char text[1024];
  orlop_engine* e;
  FILE* f;
  int32_t count, head[3], i, k;
  snprintf(text, sizeof text, TINY "%s/golden.bin", name);
  f = fopen(text, "rb");
  CHECK(f != NULL);
  if (!f) return;
  snprintf(text, sizeof text,
           "{\"model\": \"" TINY
           "%s\", \"compute\": \"%s\", \"threads\": 2, "
           "\"step_tokens\": 24, \"debug_poison\": true, \"kv_bytes\": 4000000}",
           name, compute);
  e = engine_of(text);
  CHECK(fread(&count, 4, 1, f) == 1 && count > 0);
  for (i = 0; e && i < count; ++i) {
    int32_t* ids;
    int32_t* greedy;
    float *logits, *margin;
    size_t tokens, vocab, steps, t;
    double largest = 0, worst = 0;
    orlop_generate_params p;
    orlop_request* r;
    orlop_output o;
    CHECK(fread(head, 4, 3, f) == 3);
    tokens = (size_t)head[0];
    vocab = (size_t)head[1];
    steps = (size_t)head[2];
    ids = malloc(tokens * 4);
    logits = malloc(tokens * vocab * 4);
    greedy = malloc(steps * 4);
    margin = malloc(steps * 4);
    CHECK(fread(ids, 4, tokens, f) == tokens &&
          fread(logits, 4, tokens * vocab, f) == tokens * vocab);
    CHECK(fread(greedy, 4, steps, f) == steps && fread(margin, 4, steps, f) == steps);
    for (t = 0; t < tokens * vocab; ++t) largest = fmax(largest, fabs(logits[t]));

    p = params_of(ids, tokens);
    p.temperature = 0;
    p.max_tokens = (uint32_t)steps;
    p.flags = ORLOP_GENERATE_IGNORE_EOS;
    p.prompt_logprobs = ORLOP_LOGPROBS_ALL;
    r = submit(e, &p);
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    CHECK(orlop_get(r, -1, &o, NULL) == ORLOP_OK);
    CHECK(o.n_prompt == tokens && o.prompt_logprobs && o.prompt_logprobs[0] == 0);
    CHECK(o.n_prompt_top == vocab && o.prompt_top_logprobs);
    for (t = 1; o.prompt_top_logprobs && t < tokens; ++t) {
      const float* row = logits + (t - 1) * vocab;
      double sum = 0;
      size_t v;
      for (v = 0; v < vocab; ++v) sum += exp(row[v]);
      for (v = 0; v < vocab; ++v) {
        const orlop_logprob l = o.prompt_top_logprobs[t * vocab + v];
        CHECK(l.token == (int32_t)v);
        worst = fmax(worst, fabs(l.logprob - (row[v] - log(sum))));
      }
      CHECK(o.prompt_logprobs[t] == o.prompt_top_logprobs[t * vocab + (size_t)ids[t]].logprob);
    }
    CHECK(worst <= 2 * tolerance * largest);
    a.n = 0;
    if (o.n_tokens) memcpy(a.tokens, o.tokens, o.n_tokens * 4);
    k = (int32_t)o.n_tokens;
    if (o.finish_reason == ORLOP_FINISH_NONE) {
      take_all(r, &b);
      memcpy(a.tokens + k, b.tokens, b.n * 4);
      k += (int32_t)b.n;
    }
    CHECK((size_t)k == steps);
    for (t = 0; t < steps && margin[t] > 2 * tolerance * largest; ++t)
      CHECK(a.tokens[t] == greedy[t]);
    orlop_request_release(r);
    free(ids);
    free(logits);
    free(greedy);
    free(margin);
  }
  fclose(f);
  if (e) CHECK(settles(e));
  orlop_engine_release(e);
}

static void goldens(void) {
  static const char* names[] = {"llama",          "llama-sharded", "llama3-rope",
                                "mistral-window", "qwen2",         "qwen3"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; ++i) {
    golden(names[i], "fp32", 1e-4);
    golden(names[i], "bf16", 2e-2);
  }
}

static void prompts(void) {
  orlop_generate_params p;
  orlop_request* r = (orlop_request*)&p;
  static int32_t many[600];
  int32_t outside[] = {1, 2, 131};
  p = params_of(prompt, 6);
#define REFUSED(status, words) CHECK_ERROR(status, words, orlop_async_generate(llama, &p, &r, &err))
  p.tokens = NULL;
  p.n_tokens = 0;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "exactly one of text, tokens and messages, got 0");
  CHECK(r == NULL);
  p.tokens = prompt;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "prompt: is empty");
  p.text = "x";
  p.text_len = 1;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "got 2");
  p.tokens = NULL;
  REFUSED(ORLOP_E_UNSUPPORTED, "tokenizer.json is missing");
  p.text = NULL;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "text: is NULL with a length of 1");
  p = params_of(outside, 3);
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "tokens[2]: 131 is outside the vocabulary of 131");
  outside[2] = -5;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "tokens[2]: -5 is outside");
  p = params_of(many, 513);
  REFUSED(ORLOP_E_CONTEXT_OVERFLOW, "513 tokens are more than the context of 512");
  p = params_of(prompt, 6);
  p.messages = "[]";
  p.messages_len = 2;
  p.tokens = NULL;
  p.n_tokens = 0;
  REFUSED(ORLOP_E_UNSUPPORTED, "tokenizer.json is missing");
  p = params_of(prompt, 6);
  p.flags = 1u << 20;
  REFUSED(ORLOP_E_UNSUPPORTED, "flags");
  p = params_of(prompt, 6);
  p.top_p = 1.5;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "top_p: must be 0 to 1, got 1.5");
  p.top_p = NAN;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "top_p: must be 0 to 1, got nan");
  p = params_of(prompt, 6);
  p.n = 129;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "n: must be 1 to 128, got 129");
  p = params_of(prompt, 6);
  p.n_stop_tokens = 3;
  REFUSED(ORLOP_E_INVALID_ARGUMENT, "stop_tokens: is NULL with a count of 3");
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "params: is NULL",
              orlop_async_generate(llama, NULL, &r, &err));
#undef REFUSED
}

static void text_calls_name_what_is_missing(void) {
  size_t n;
  orlop_buffer* text;
  int32_t id = 1;
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "tokenizer.json is missing",
              orlop_tokenize(llama, "a", 1, 0, NULL, 0, &n, &err));
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "tokenizer.json is missing",
              orlop_detokenize(llama, &id, 1, 0, &text, &err));
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "tokenizer.json is missing",
              orlop_chat_render(llama, "[]", 2, &text, &err));
}

static void structs_grow(void) {
  struct {
    orlop_generate_params p;
    uint64_t later[2];
  } longer;
  struct {
    orlop_output o;
    uint64_t later[2];
  } out;
  orlop_generate_params p;
  orlop_request* r;
  orlop_output shorter;
  orlop_request_info info;

  orlop_generate_params_init(&longer.p, sizeof longer);
  CHECK(longer.p.struct_size == sizeof longer && longer.later[0] == 0 && longer.later[1] == 0);
  CHECK(longer.p.temperature == ORLOP_UNSET_F64 && longer.p.max_tokens == ORLOP_UNSET_U32);
  longer.p.tokens = prompt;
  longer.p.n_tokens = 6;
  longer.p.max_tokens = 3;
  longer.p.flags = ORLOP_GENERATE_IGNORE_EOS;
  longer.later[1] = 1;
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "params: byte",
              orlop_async_generate(llama, &longer.p, &r, &err));
  longer.later[1] = 0;
  r = submit(llama, &longer.p);
  memset(&out, 0x77, sizeof out);
  out.o.struct_size = sizeof out;
  CHECK(orlop_get(r, -1, &out.o, NULL) == ORLOP_OK && out.later[0] == 0 && out.later[1] == 0);
  memset(&info, 0x77, sizeof info);
  info.struct_size = 16;
  CHECK(orlop_get_status(r, &info, NULL) == ORLOP_OK && info.struct_size == 16);
  CHECK(info.prompt_tokens == 0x7777777777777777u);
  orlop_request_release(r);

  /* The shortest useful struct: up to n_tokens. */
  orlop_generate_params_init(&p, (uint32_t)offsetof(orlop_generate_params, messages));
  p.tokens = prompt;
  p.n_tokens = 6;
  r = submit(llama, &p);
  memset(&shorter, 0x77, sizeof shorter);
  shorter.struct_size = (uint32_t)offsetof(orlop_output, logprobs);
  CHECK(orlop_get(r, -1, &shorter, NULL) == ORLOP_OK && shorter.n_tokens > 0);
  CHECK(shorter.n_top == 0x7777777777777777u);
  orlop_request_release(r);

  p.struct_size = 0;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "params.struct_size: 0",
              orlop_async_generate(llama, &p, &r, &err));
  p.struct_size = 0xCCCCCCCC;
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "params.struct_size",
              orlop_async_generate(llama, &p, &r, &err));
}

static void seeds(void) {
  orlop_generate_params p = params_of(prompt, 6);
  orlop_request_info info;
  orlop_request* r;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  p.max_tokens = 40;
  p.logprobs = 0;
  p.temperature = 1.5;
  r = submit(llama, &p);
  take_all(r, &a);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK(orlop_get_status(r, &info, NULL) == ORLOP_OK);
  orlop_request_release(r);
  CHECK(info.state == ORLOP_STATE_DONE && info.finish_reason == ORLOP_FINISH_LENGTH);
  CHECK(info.prompt_tokens == 6 && info.generated_tokens == 40 && info.queued_ns > 0);
  p.flags |= ORLOP_GENERATE_SEEDED;
  p.seed = info.seed; /* the drawn one reproduces */
  run(llama, &p, &b);
  CHECK(b.n == 40 && memcmp(a.tokens, b.tokens, 160) == 0 &&
        memcmp(a.logprobs, b.logprobs, 160) == 0);
  p.seed = ~(uint64_t)0;
  run(llama, &p, &b);
  CHECK(b.n == 40 && memcmp(a.tokens, b.tokens, 160) != 0);
}

/* Alone, in a batch of eight, with other threads, and with so few pages that requests give way. */
static void same_bits(void) {
  static const char* configs[] = {
      "{\"model\": \"" TINY
      "qwen3\", \"threads\": 1, \"debug_poison\": true, \"kv_bytes\": 4000000}",
      "{\"model\": \"" TINY "qwen3\", \"threads\": 2, \"step_tokens\": 7, \"debug_poison\": true}",
      "{\"model\": \"" TINY
      "qwen3\", \"threads\": 3, \"debug_poison\": true, \"kv_bytes\": 150000}"};
  static result want[8], got;
  uint64_t preemptions = 0;
  int32_t ids[40];
  size_t c, i;
  for (i = 0; i < 40; ++i) ids[i] = (int32_t)(i * 37 % 131);
  for (c = 0; c < 3; ++c) {
    orlop_engine* e = engine_of(configs[c]);
    orlop_request* r[8];
    if (!e) return;
    for (i = 0; i < 8; ++i) {
      orlop_generate_params p = params_of(ids + i, 10 + 3 * i);
      p.flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED;
      p.seed = i;
      p.temperature = i % 2 ? 0.9 : 0;
      p.max_tokens = 60;
      p.repetition_penalty = 1.1;
      p.logprobs = 0;
      if (c == 0) run(e, &p, &want[i]);
      r[i] = submit(e, &p);
    }
    for (i = 0; i < 8; ++i) {
      take_all(r[i], &got);
      CHECK(got.n == 60 && memcmp(got.tokens, want[i].tokens, 240) == 0);
      CHECK(memcmp(got.logprobs, want[i].logprobs, 240) == 0);
      orlop_request_release(r[i]);
    }
    preemptions += stats_of(e).preemptions;
    CHECK(settles(e));
    orlop_engine_release(e);
  }
  CHECK(preemptions > 0);
}

static void facts(void) {
  orlop_buffer* json = NULL;
  size_t n;
  const char* text;
  const char* path = TINY "llama";
  CHECK(orlop_engine_info(llama, &json, NULL) == ORLOP_OK);
  text = orlop_buffer_data(json, &n);
  CHECK(n > 200 && strstr(text, "\"compute\": \"fp32\"") && strstr(text, "\"max_context\": 512"));
  orlop_buffer_release(json);
  CHECK(orlop_inspect(path, strlen(path), &json, NULL) == ORLOP_OK);
  text = orlop_buffer_data(json, &n);
  CHECK(strstr(text, "\"kind\": \"hugging_face\"") && strstr(text, "model.embed_tokens.weight"));
  orlop_buffer_release(json);
  CHECK_ERROR(ORLOP_E_NOT_FOUND, "/no/such", orlop_inspect("/no/such", 8, &json, &err));
  CHECK(json == NULL);
}

/* The first layers on the processor, the others on the device: the same tokens, whether or not the next step is begun
 * before they are known here. */
static void layers_on_the_processor(void) {
  static const char* named[] = {"0", "1", "2", "3", "99"};
  static const int above[] = {0, 1, 2, 3, 3};
  const char* device = getenv("ORLOP_TEST_DEVICE");
  orlop_generate_params p = params_of(prompt, 6);
  size_t i;
  int ahead;
  if (!device || !*device || !strcmp(device, "cpu")) device = "guard";
  p.temperature = 0;
  p.max_tokens = 40;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  for (i = 0; i < 5; ++i)
    for (ahead = 0; ahead < 2; ++ahead) {
      orlop_engine* e = NULL;
      orlop_buffer* info = NULL;
      const char *text, *processor;
      char json[1024], words[64];
      snprintf(json, sizeof json,
               "{\"model\": \"" TINY "llama\", \"compute\": \"fp32\", \"threads\": 2, \"kv_bytes\": 4000000, "
               "\"debug_poison\": true, \"device\": \"%s\", \"n_gpu_layers\": %s, \"debug_run_ahead\": %s}",
               device, named[i], ahead ? "true" : "false");
      CHECK(orlop_engine_create(json, strlen(json), &e, NULL) == ORLOP_OK);
      if (!e) return;
      CHECK(orlop_engine_info(e, &info, NULL) == ORLOP_OK);
      text = orlop_buffer_data(info, NULL);
      snprintf(words, sizeof words, "\"n_gpu_layers\": %d", above[i]);
      CHECK(strstr(text, words));
      processor = strstr(text, "\"processor\": {");
      snprintf(words, sizeof words, "\"layers\": %d", 3 - above[i]);
      CHECK(above[i] == 3 ? !processor : processor && strstr(processor, words));
      orlop_buffer_release(info);
      run(e, &p, i || ahead ? &b : &a);
      if (i || ahead) CHECK(a.n == 40 && b.n == 40 && !memcmp(a.tokens, b.tokens, 40 * 4));
      orlop_engine_release(e);
    }
}

int main(int argc, char** argv) {
  RUN(library);
  RUN(configuration);
  RUN(errors_are_cut_at_code_points);
  llama = engine_of(LLAMA);
  if (!llama) return 1;
  RUN(prompts);
  RUN(text_calls_name_what_is_missing);
  RUN(structs_grow);
  RUN(seeds);
  RUN(facts);
  orlop_engine_release(llama);
  RUN(layers_on_the_processor);
  RUN(same_bits);
  RUN(goldens);
  return close_tests();
}
