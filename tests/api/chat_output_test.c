/* orlop_chat_output: options and their errors, events as JSON, cuts inside code points. */
#include "capi.h"

static orlop_engine* llama;

#define TOOLS                                                                                      \
  "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}, "    \
  "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]"

static orlop_chat_output* output_of(orlop_engine* e, const char* json) {
  orlop_chat_output* o = NULL;
  orlop_error err;
  new_error(&err);
  if (orlop_chat_output_create(e, json, strlen(json), &o, &err) != ORLOP_OK) {
    fprintf(stderr, "chat output: %d %s\n", (int)err.code, err.message);
    ++failures;
  }
  return o;
}

/* That a push answers these events. */
static void pushes(orlop_chat_output* o, const char* text, size_t len, int32_t last, const char* want) {
  orlop_buffer* events = NULL;
  size_t n = 0;
  const char* got;
  CHECK(orlop_chat_output_push(o, text, len, last, &events, NULL) == ORLOP_OK);
  got = orlop_buffer_data(events, &n);
  if (n != strlen(want) || memcmp(got, want, n) != 0) {
    fprintf(stderr, "\"%.*s\" gave %.*s, want %s\n", (int)len, text, (int)n, got, want);
    ++failures;
  }
  orlop_buffer_release(events);
}
#define PUSHES(o, text, last, want) pushes(o, text, sizeof text - 1, last, want)

static void options(void) {
  static const struct {
    const char *json, *words;
  } rows[] = {
      {"[1]", "must be a JSON object"},
      {"{", "chat output"},
      {"{\"a\\u0000b\\n\": []}", "unknown key \"a\\u0000b\\n\""},
      {"{\"tols\": []}", "did you mean \"tools\"?"},
      {"{}", "reasoning: \"auto\" asks the engine's chat template"},
      {"{\"reasoning\": \"auto\"}", "reasoning: \"auto\""},
      {"{\"reasoning\": false, " TOOLS "}", "format: \"auto\""},
      {"{\"reasoning\": 1}", "reasoning: must be"},
      {"{\"reasoning\": true, \"format\": \"xml\"}", "got \"xml\""},
      {"{\"reasoning\": true, \"format\": 1}", "format: must be a string"},
      {"{\"reasoning\": true, \"prompt\": 1}", "prompt: must be a string"},
      {"{\"reasoning\": true, \"tools\": {}}", "tools: must be an array"},
      {"{\"reasoning\": true, \"tools\": [1]}", "tools[0]: must be an object"},
      {"{\"reasoning\": true, \"tools\": [{}]}", "tools[0].function: must be"},
      {"{\"reasoning\": true, \"tools\": [{\"function\": {}}]}", "tools[0].function.name: must be"},
      {"{\"reasoning\": true, \"tools\": [{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"f\"}}]}",
       "tools[1].function.name: \"f\" is the name of two"},
  };
  size_t i;
  orlop_chat_output* o;
  orlop_buffer* events = (orlop_buffer*)&o;
  for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
    o = (orlop_chat_output*)&o;
    CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, rows[i].words,
                orlop_chat_output_create(NULL, rows[i].json, strlen(rows[i].json), &o, &err));
    CHECK(o == NULL);
  }
  CHECK_ERROR(ORLOP_E_UNSUPPORTED, "tools[0].type",
              orlop_chat_output_create(NULL, "{\"tools\": [{\"type\": \"x\"}]}", 26, &o, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "json: no valid UTF-8",
              orlop_chat_output_create(NULL, "\xff", 1, &o, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "out: is NULL",
              orlop_chat_output_create(NULL, "{}", 2, NULL, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "output: is NULL",
              orlop_chat_output_push(NULL, "x", 1, 0, &events, &err));
  CHECK(events == NULL);
  o = output_of(NULL, "{\"reasoning\": false}");
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "events: is NULL",
              orlop_chat_output_push(o, "x", 1, 0, NULL, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "text: is NULL",
              orlop_chat_output_push(o, NULL, 1, 0, &events, &err));
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "last: must be 0 or 1",
              orlop_chat_output_push(o, "x", 1, 2, &events, &err));
  PUSHES(o, "x", 1, "[{\"type\":\"content\",\"text\":\"x\"}]");
  CHECK_ERROR(ORLOP_E_INVALID_ARGUMENT, "its last text was pushed",
              orlop_chat_output_push(o, "x", 1, 0, &events, &err));
  orlop_chat_output_release(o);
  orlop_chat_output_release(NULL);
}

static void events(void) {
  orlop_chat_output* o = output_of(NULL, "{\"format\": \"hermes\", \"reasoning\": true, "
                                         "\"prompt\": \"a<think>\\n\", " TOOLS "}");
  PUSHES(o, "Hm", 0, "[{\"type\":\"reasoning\",\"text\":\"Hm\"}]");
  PUSHES(o, ".</think>", 0, "[{\"type\":\"reasoning\",\"text\":\".\"}]");
  PUSHES(o, "\n\nSo \"", 0, "[{\"type\":\"content\",\"text\":\"So \\\"\"}]");
  PUSHES(o, "", 0, "[]");
  PUSHES(o, "\n<tool_call>{\"name\": \"f\", \"arguments\"", 0, "[]");
  PUSHES(o, ": {\"a\"", 0, "[{\"type\":\"tool_call\",\"index\":0,\"name\":\"f\"},"
                           "{\"type\":\"tool_arguments\",\"index\":0,\"text\":\"{\\\"a\\\"\"}]");
  PUSHES(o, ": 1}}</tool_call>", 0, "[{\"type\":\"tool_arguments\",\"index\":0,\"text\":\": 1}\"}]");
  PUSHES(o, "<tool_call>{\"name\": \"g\"}", 0, "[{\"type\":\"tool_call\",\"index\":1,\"name\":\"g\"},"
                                               "{\"type\":\"tool_arguments\",\"index\":1,\"text\":\"{}\"}]");
  PUSHES(o, "</tool_call><|im_end|>", 1, "[]");
  orlop_chat_output_release(o);
  /* A list without tools allows no call; without a list any name is one. */
  o = output_of(NULL, "{\"format\": \"json\", \"reasoning\": false, \"tools\": []}");
  PUSHES(o, "{\"name\":\"h\",\"arguments\":{}}", 1,
         "[{\"type\":\"content\",\"text\":\"{\\\"name\\\":\\\"h\\\",\\\"arguments\\\":{}}\"}]");
  orlop_chat_output_release(o);
  o = output_of(NULL, "{\"format\": \"json\", \"reasoning\": false}");
  PUSHES(o, "{\"name\":\"h\",\"arguments\":{}}", 1, "[{\"type\":\"tool_call\",\"index\":0,\"name\":\"h\"},"
                                                    "{\"type\":\"tool_arguments\",\"index\":0,\"text\":\"{}\"}]");
  orlop_chat_output_release(o);
}

static void utf8(void) {
  orlop_chat_output* o = output_of(NULL, "{\"reasoning\": false}");
  PUSHES(o, "\xf0\x9f", 0, "[]");
  PUSHES(o, "\x98", 0, "[]");
  PUSHES(o, "\x80\xc3", 0, "[{\"type\":\"content\",\"text\":\"\xf0\x9f\x98\x80\"}]");
  PUSHES(o, "x\xff", 0, "[{\"type\":\"content\",\"text\":\"\xef\xbf\xbdx\xef\xbf\xbd\"}]");
  PUSHES(o, "\xe2\x82", 1, "[{\"type\":\"content\",\"text\":\"\xef\xbf\xbd\"}]");
  orlop_chat_output_release(o);
}

/* A model without a template writes calls as JSON, and no reasoning. */
static void of_an_engine(void) {
  orlop_chat_output* o = output_of(llama, "{" TOOLS "}");
  PUSHES(o, "{\"name\": \"f\", \"arguments\": {}}", 1, "[{\"type\":\"tool_call\",\"index\":0,\"name\":\"f\"},"
                                                       "{\"type\":\"tool_arguments\",\"index\":0,\"text\":\"{}\"}]");
  orlop_chat_output_release(o);
  o = output_of(llama, "");
  PUSHES(o, "<think>{}", 1, "[{\"type\":\"content\",\"text\":\"<think>{}\"}]");
  orlop_chat_output_release(o);
}

int main(int argc, char** argv) {
  RUN(options);
  RUN(events);
  RUN(utf8);
  llama = engine_of("{\"model\": \"" TEST_DATA "/tiny/llama\", \"threads\": 1, \"kv_bytes\": 4000000}");
  if (!llama) return 1;
  RUN(of_an_engine);
  CHECK(settles(llama));
  orlop_engine_release(llama);
  return close_tests();
}
