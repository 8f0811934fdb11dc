/* json.c MODEL [TEXT]: an answer that is JSON of a schema, whatever the model would rather say.
 *
 *   cc json.c $(pkg-config --cflags --libs orlop) -o json
 *   ./json model.gguf "Ada Lovelace was born in London in 1815."
 *
 * The schema goes along as the request's guide: every token is held to it, so what comes is the
 * beginning of a fitting text, and a whole one unless max_tokens cut it (finish LENGTH). */
#include <orlop/orlop.h>
#include <stdio.h>
#include <string.h>

static const char schema[] =
    "{\"type\": \"object\","
    " \"properties\": {"
    "   \"name\": {\"type\": \"string\", \"maxLength\": 40},"
    "   \"born\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 2100},"
    "   \"alive\": {\"type\": \"boolean\"}},"
    " \"required\": [\"name\", \"born\", \"alive\"],"
    " \"additionalProperties\": false}";

/* Appends `s` as the inside of a JSON string. 0 when it does not fit. */
static int add_escaped(char* to, size_t cap, const char* s) {
  size_t n = strlen(to);
  for (; *s; ++s) {
    const unsigned char c = (unsigned char)*s;
    if (n + 7 > cap) return 0;
    if (c == '"' || c == '\\' || c < 0x20)
      n += (size_t)snprintf(to + n, cap - n, "\\u%04x", c);
    else
      to[n++] = (char)c;
    to[n] = 0;
  }
  return 1;
}

int main(int argc, char** argv) {
  const char* text = argc > 2 ? argv[2] : "Ada Lovelace was born in London in 1815.";
  char config[8192] = "{\"model\": \"", chat[8192], answer[4096];
  size_t len = 0;
  uint64_t accepted = 0;
  int32_t status, complete = 0, finish = ORLOP_FINISH_NONE;
  orlop_error err = {.struct_size = sizeof err};
  orlop_output out = {.struct_size = sizeof out};
  orlop_engine* engine = NULL;
  orlop_request* request = NULL;
  orlop_generate_params params;
  strcpy(chat, "[{\"role\": \"user\", \"content\": \"Who is this about? ");
  if (argc < 2 || argc > 3 || !add_escaped(config, sizeof config - 2, argv[1]) ||
      !add_escaped(chat, sizeof chat - 3, text)) {
    fprintf(stderr, "usage: json MODEL [TEXT]\n");
    return 2;
  }
  strcat(config, "\"}");
  strcat(chat, "\"}]");

  orlop_generate_params_init(&params, sizeof params);
  params.messages = chat;
  params.messages_len = strlen(chat);
  params.guide = ORLOP_GUIDE_JSON_SCHEMA;
  params.guide_source = schema;
  params.guide_source_len = sizeof schema - 1;
  params.max_tokens = 128;
  params.temperature = 0;
  if (orlop_engine_create(config, strlen(config), &engine, &err) < 0 ||
      orlop_async_generate(engine, &params, &request, &err) < 0) {
    fprintf(stderr, "%s\n", err.message); /* a schema that is not supported is refused here, by name */
    orlop_engine_release(engine);
    return 1;
  }
  while ((status = orlop_get(request, -1, &out, &err)) == ORLOP_OK) {
    finish = out.finish_reason;
    if (finish == ORLOP_FINISH_ERROR) fprintf(stderr, "%.*s\n", (int)out.message_len, out.message);
    fwrite(out.text, 1, out.text_len, stdout);
    fflush(stdout);
    if (len + out.text_len > sizeof answer) break;
    memcpy(answer + len, out.text, out.text_len);
    len += out.text_len;
  }
  putchar('\n');
  if (status < 0) fprintf(stderr, "%s\n", err.message);

  /* The same guide tells whether a text that came from elsewhere follows it; no engine is needed. */
  orlop_guide_check(params.guide, schema, sizeof schema - 1, answer, len, &accepted, &complete, &err);
  fprintf(stderr, complete ? "a whole text of the schema\n" : "cut short: only the beginning of one\n");
  orlop_request_release(request);
  orlop_engine_release(engine);
  return finish == ORLOP_FINISH_STOP && complete ? 0 : 1;
}
