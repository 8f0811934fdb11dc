/* edge.c: answers a question from a model, in one static executable that needs nothing beside it.
 *
 *   edge [-m MODEL.gguf] [-n TOKENS] [-t THREADS] [-c CONTEXT] [-p] [-s] QUESTION
 *
 *   -m  the model; not needed where build.sh put one inside
 *   -n  tokens of the answer at most (128)       -t  threads (0: what the machine offers)
 *   -c  tokens of question and answer together (1024): the KV cache is made as large as they need
 *   -p  QUESTION is a plain prompt, no turn of a chat
 *   -s  then one line of JSON on stderr: times, memory. Times count from EDGE_STARTED_US (microseconds
 *       since 1970) where the environment has it, else from main().
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <orlop/orlop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The model, where build.sh embedded one (model.S); else both are the same place. */
extern const char edge_model_begin[], edge_model_end[];

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Where in the executable's own file an address of it lies: the program headers say which bytes of
 * the file are mapped where. -1: nowhere. */
static int find_in_file(struct dl_phdr_info* info, size_t size, void* place) {
  uint64_t* p = place; /* in: the address; out: the offset */
  int i;
  (void)size;
  for (i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)* h = &info->dlpi_phdr[i];
    const uint64_t begin = info->dlpi_addr + h->p_vaddr;
    if (h->p_type == PT_LOAD && p[0] >= begin && p[0] - begin < h->p_filesz) {
      p[1] = p[0] - begin + h->p_offset;
      return 1;
    }
  }
  return 0;
}

/* Appends text as a JSON string; 0 where it does not fit. */
static int put_string(char* to, size_t cap, size_t* at, const char* text) {
  const unsigned char* s = (const unsigned char*)text;
  size_t n = *at;
  if (n + 2 > cap) return 0;
  to[n++] = '"';
  for (; *s; s++) {
    if (n + 8 > cap) return 0;
    if (*s == '"' || *s == '\\') {
      to[n++] = '\\';
      to[n++] = (char)*s;
    } else if (*s < 0x20) {
      n += (size_t)sprintf(to + n, "\\u%04x", *s);
    } else {
      to[n++] = (char)*s;
    }
  }
  to[n++] = '"';
  to[n] = 0;
  *at = n;
  return 1;
}

static int usage(void) {
  fputs("usage: edge [-m MODEL.gguf] [-n TOKENS] [-t THREADS] [-c CONTEXT] [-p] [-s] QUESTION\n", stderr);
  return 2;
}

int main(int argc, char** argv) {
  const char *model = NULL, *started = getenv("EDGE_STARTED_US");
  const double begin_ms = started ? atof(started) / 1e3 : now_ms();
  const size_t inside = (size_t)(edge_model_end - edge_model_begin);
  double ready_ms, first_ms = 0, end_ms;
  int max_tokens = 128, threads = 0, context = 1024, plain = 0, stats = 0, option;
  char config[8192], *chat = NULL;
  size_t at = 0, cap;
  orlop_error err = {.struct_size = sizeof err};
  orlop_output out = {.struct_size = sizeof out};
  orlop_request_info info = {.struct_size = sizeof info};
  orlop_generate_params params;
  orlop_engine* engine = NULL;
  orlop_request* request = NULL;

  while ((option = getopt(argc, argv, "m:n:t:c:ps")) != -1) {
    if (option == 'm') model = optarg;
    else if (option == 'n') max_tokens = atoi(optarg);
    else if (option == 't') threads = atoi(optarg);
    else if (option == 'c') context = atoi(optarg);
    else if (option == 'p') plain = 1;
    else if (option == 's') stats = 1;
    else return usage();
  }
  if (optind + 1 != argc || (!model && !inside)) return usage();

  /* One request at a time: no prefix cache, steps of 64 tokens, a KV cache of one context. */
  at = (size_t)snprintf(config, sizeof config,
                        "{\"threads\": %d, \"max_running_seqs\": 1, \"step_tokens\": 64, \"enable_prefix_cache\": false, "
                        "\"max_context\": %d, \"model\": ",
                        threads, context);
  if (model) {
    if (!put_string(config, sizeof config - 2, &at, model)) return usage();
  } else {
    /* The library maps the bytes of the model in this program's own file: the pages that the kernel has
     * for the executable are the model's pages, nothing is copied or unpacked to a file. */
    uint64_t place[2] = {(uint64_t)(uintptr_t)edge_model_begin, 0};
    if (!dl_iterate_phdr(find_in_file, place)) {
      fputs("edge: the model inside this program cannot be found\n", stderr);
      return 1;
    }
    model = access("/proc/self/exe", R_OK) == 0 ? "/proc/self/exe" : (const char*)getauxval(AT_EXECFN);
    if (!put_string(config, sizeof config - 80, &at, model)) return usage();
    at += (size_t)sprintf(config + at, ", \"model_offset\": %llu, \"model_bytes\": %llu",
                          (unsigned long long)place[1], (unsigned long long)inside);
  }
  strcpy(config + at, "}");

  orlop_generate_params_init(&params, sizeof params);
  if (plain) {
    params.text = argv[optind];
    params.text_len = strlen(argv[optind]);
  } else {
    cap = 6 * strlen(argv[optind]) + 64;
    chat = malloc(cap);
    if (!chat) return 1;
    at = (size_t)sprintf(chat, "[{\"role\": \"user\", \"content\": ");
    put_string(chat, cap, &at, argv[optind]);
    strcpy(chat + at, "}]");
    params.messages = chat;
    params.messages_len = strlen(chat);
  }
  params.max_tokens = max_tokens;
  params.temperature = 0; /* the most likely answer, the same each time */

  if (orlop_engine_create(config, strlen(config), &engine, &err) < 0) {
    fprintf(stderr, "edge: %s\n", err.message);
    free(chat);
    return 1;
  }
  ready_ms = now_ms();
  if (orlop_async_generate(engine, &params, &request, &err) >= 0)
    while (orlop_get(request, -1, &out, &err) == ORLOP_OK) {
      if (first_ms == 0) first_ms = now_ms();
      fwrite(out.text, 1, out.text_len, stdout);
      fflush(stdout);
      if (out.error_code) fprintf(stderr, "edge: %.*s\n", (int)out.message_len, out.message);
    }
  end_ms = now_ms();
  if (err.code) fprintf(stderr, "edge: %s\n", err.message);
  putchar('\n');
  if (stats && request && orlop_get_status(request, &info, &err) == ORLOP_OK) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr,
            "{\"ready_ms\": %.1f, \"first_token_ms\": %.1f, \"end_ms\": %.1f, \"prompt_tokens\": %llu, "
            "\"tokens\": %llu, \"peak_rss_bytes\": %lld, \"model_inside_bytes\": %llu}\n",
            ready_ms - begin_ms, first_ms - begin_ms, end_ms - begin_ms, (unsigned long long)info.prompt_tokens,
            (unsigned long long)info.generated_tokens, (long long)used.ru_maxrss * 1024, (unsigned long long)inside);
  }
  orlop_request_release(request);
  orlop_engine_release(engine);
  free(chat);
  return err.code != 0;
}
