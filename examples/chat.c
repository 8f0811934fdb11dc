/* chat.c MODEL [CONFIG_JSON_MEMBERS]: a conversation in the terminal, through the C ABI.
 *
 *   cc chat.c $(pkg-config --cflags --libs orlop) -o chat
 *   ./chat SmolLM2-135M-Instruct.Q4_1.gguf '"threads": 2'
 *
 * Shows what generate.c leaves out: JSON built safely, several turns, stopping an answer with Ctrl-C
 * (cancel is a clean end, the conversation goes on), and every error path. */
#define _POSIX_C_SOURCE 200809L
#include <orlop/orlop.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing string: the conversation as JSON. */
typedef struct text {
  char* data;
  size_t len, cap;
} text;

static void add(text* t, const char* bytes, size_t n) {
  if (t->len + n + 1 > t->cap) {
    t->cap = 2 * (t->len + n + 1);
    t->data = realloc(t->data, t->cap);
    if (!t->data) {
      fputs("out of memory\n", stderr);
      exit(1);
    }
  }
  memcpy(t->data + t->len, bytes, n);
  t->len += n;
  t->data[t->len] = 0;
}

static void add_literal(text* t, const char* s) { add(t, s, strlen(s)); }

/* Appends the bytes as a JSON string, quotes included. */
static void add_quoted(text* t, const char* s, size_t n) {
  size_t i;
  add(t, "\"", 1);
  for (i = 0; i < n; i++) {
    const unsigned char c = (unsigned char)s[i];
    char escape[8];
    if (c == '"' || c == '\\') {
      add(t, "\\", 1);
      add(t, s + i, 1);
    } else if (c < 0x20) {
      add(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
    } else {
      add(t, s + i, 1);
    }
  }
  add(t, "\"", 1);
}

static void add_message(text* chat, const char* role, const char* content, size_t n) {
  add_literal(chat, chat->len > 1 ? ",{\"role\":" : "{\"role\":");
  add_quoted(chat, role, strlen(role));
  add_literal(chat, ",\"content\":");
  add_quoted(chat, content, n);
  add_literal(chat, "}");
}

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig) {
  (void)sig;
  interrupted = 1;
}

/* Streams one answer to stdout and collects it. 0, or a negative status with *err filled. */
static int32_t answer(orlop_engine* engine, const text* chat, text* reply, orlop_error* err) {
  orlop_generate_params params;
  orlop_request* request = NULL;
  orlop_output out;
  text whole = {0};
  int32_t status;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;

  add(&whole, chat->data, chat->len);
  add(&whole, "]", 1);
  orlop_generate_params_init(&params, sizeof params);
  params.messages = whole.data;
  params.messages_len = whole.len;
  params.max_tokens = 512;
  status = orlop_async_generate(engine, &params, &request, err);
  free(whole.data); /* nothing is kept after the call */

  /* A short timeout, so that Ctrl-C is seen soon. */
  while (status >= 0 && (status = orlop_get(request, 100000, &out, err)) != ORLOP_END) {
    if (interrupted) orlop_cancel(request);
    if (status != ORLOP_OK) continue; /* a timeout; an error ends the loop */
    fwrite(out.text, 1, (size_t)out.text_len, stdout);
    fflush(stdout);
    add(reply, out.text, (size_t)out.text_len);
    if (out.finish_reason == ORLOP_FINISH_CANCELLED) fputs(" [stopped]", stdout);
    if (out.finish_reason == ORLOP_FINISH_ERROR) {
      status = out.error_code;
      snprintf(err->message, sizeof err->message, "%.*s", (int)out.message_len, out.message);
    }
  }
  putchar('\n');
  orlop_request_release(request);
  return status < 0 ? status : 0;
}

int main(int argc, char** argv) {
  orlop_error err;
  orlop_engine* engine = NULL;
  text config = {0}, chat = {0};
  char line[4096];
  struct sigaction action;
  int failed = 0;
  memset(&err, 0, sizeof err);
  err.struct_size = sizeof err;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s MODEL ['\"key\": value, ...']\n", argv[0]);
    return 2;
  }
  add_literal(&config, "{\"model\":");
  add_quoted(&config, argv[1], strlen(argv[1]));
  if (argc == 3) {
    add_literal(&config, ",");
    add_literal(&config, argv[2]);
  }
  add_literal(&config, "}");
  if (orlop_engine_create(config.data, config.len, &engine, &err) < 0) {
    fprintf(stderr, "%s\n", err.message);
    free(config.data);
    return 1;
  }
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, NULL);

  add(&chat, "[", 1);
  while (fputs("> ", stdout), fflush(stdout), fgets(line, sizeof line, stdin)) {
    const size_t before = chat.len;
    text reply = {0};
    size_t n = strcspn(line, "\n");
    if (n == 0) continue;
    interrupted = 0;
    add_message(&chat, "user", line, n);
    add(&reply, "", 0);
    if (answer(engine, &chat, &reply, &err) < 0) {
      fprintf(stderr, "%s\n", err.message);
      failed = 1;
      chat.len = before; /* forget the turn that failed */
    } else {
      add_message(&chat, "assistant", reply.data, reply.len);
    }
    free(reply.data);
  }
  putchar('\n');
  orlop_engine_release(engine);
  free(config.data);
  free(chat.data);
  return failed;
}
