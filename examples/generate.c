/* generate.c MODEL QUESTION: an answer, streamed, through the C ABI.
 * cc generate.c $(pkg-config --cflags --libs orlop) -o generate */
#include <orlop/orlop.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  char config[4096], chat[8192];
  orlop_error err = {.struct_size = sizeof err};
  orlop_output out = {.struct_size = sizeof out};
  orlop_engine* engine = NULL;
  orlop_request* request = NULL;
  orlop_generate_params params;
  if (argc != 3) return 2;
  /* Both are JSON: a quote or backslash inside needs a backslash (chat.c does it in full). */
  snprintf(config, sizeof config, "{\"model\": \"%s\"}", argv[1]);
  snprintf(chat, sizeof chat, "[{\"role\": \"user\", \"content\": \"%s\"}]", argv[2]);
  orlop_generate_params_init(&params, sizeof params);
  params.messages = chat;
  params.messages_len = strlen(chat);
  params.max_tokens = 256;
  params.temperature = 0; /* the most likely answer, the same each time */
  if (orlop_engine_create(config, strlen(config), &engine, &err) < 0 ||
      orlop_async_generate(engine, &params, &request, &err) < 0)
    fprintf(stderr, "%s\n", err.message);
  else
    while (orlop_get(request, -1, &out, &err) == ORLOP_OK) {
      fwrite(out.text, 1, out.text_len, stdout);
      fflush(stdout);
    }
  putchar('\n');
  orlop_request_release(request);
  orlop_engine_release(engine);
  return err.code != 0;
}
