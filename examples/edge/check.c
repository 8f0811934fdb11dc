/* check.c MODEL.gguf FOLDER FILE: what a minimal build leaves out answers "unsupported" and names the option;
 * a model that lies inside another file (FILE: the model with 64 KiB before and 100 bytes behind it) is read
 * from there, and parts that are none are refused. Ends with 'N passed, N failed'. */
#include <orlop/orlop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int passed, failed;

static void check(const char* what, int32_t got, int32_t wanted, const orlop_error* err, const char* words) {
  if (got == wanted && (!words || strstr(err->message, words))) {
    passed++;
  } else {
    failed++;
    printf("%s: status %d, wanted %d; \"%s\", wanted \"%s\"\n", what, (int)got, (int)wanted, err->message,
           words ? words : "");
  }
}

static orlop_error err = {.struct_size = sizeof(orlop_error)};

/* The engine of "model": path and more keys; checked. */
static orlop_engine* engine_of(const char* what, const char* path, const char* more, int32_t status,
                               const char* words) {
  char json[4096];
  orlop_engine* engine = NULL;
  snprintf(json, sizeof json, "{\"max_context\": 256, \"max_running_seqs\": 1, \"threads\": 1, \"model\": \"%s\"%s}",
           path, more);
  err.message[0] = 0;
  check(what, orlop_engine_create(json, strlen(json), &engine, &err), status, &err, words);
  if (status < 0 && engine) failed++;
  return engine;
}

static void answer(orlop_engine* engine, char* to, size_t cap) {
  orlop_generate_params params;
  orlop_output out = {.struct_size = sizeof out};
  orlop_request* request = NULL;
  size_t n = 0;
  orlop_generate_params_init(&params, sizeof params);
  params.text = "def fibonacci(n):";
  params.text_len = strlen(params.text);
  params.max_tokens = 8;
  params.temperature = 0;
  check("generate", orlop_async_generate(engine, &params, &request, &err), ORLOP_OK, &err, NULL);
  while (request && orlop_get(request, -1, &out, &err) == ORLOP_OK)
    for (uint64_t i = 0; i < out.text_len && n + 1 < cap; i++) to[n++] = out.text[i];
  to[n] = 0;
  orlop_request_release(request);
}

static void left_out(orlop_engine* engine, const char* folder) {
  const int32_t no = ORLOP_E_UNSUPPORTED;
  orlop_generate_params params;
  orlop_state_params state = {.struct_size = sizeof state};
  orlop_request* request = NULL;
  orlop_chat_output* chat = NULL;
  orlop_buffer* buffer = NULL;
  uint64_t accepted;
  int32_t complete;
  orlop_generate_params_init(&params, sizeof params);
  params.text = "x";
  params.text_len = 1;
  params.guide = ORLOP_GUIDE_JSON_OBJECT;
  check("guide", orlop_async_generate(engine, &params, &request, &err), no, &err, "-Dwithout=guides");
  check("guide_check", orlop_guide_check(ORLOP_GUIDE_REGEX, "a", 1, "a", 1, &accepted, &complete, &err), no, &err,
        "-Dwithout=guides");
  check("chat output", orlop_chat_output_create(NULL, "{}", 2, &chat, &err), no, &err, "-Dwithout=chat_output");
  check("chat output", orlop_chat_output_push(NULL, "x", 1, 1, &buffer, &err), no, &err, "-Dwithout=chat_output");
  orlop_chat_output_release(NULL);
  check("state", orlop_state_save(engine, &state, &buffer, &err), no, &err, "-Dwithout=states");
  check("state", orlop_state_load(engine, "x", 1, &state, NULL, &err), no, &err, "-Dwithout=states");
  check("inspect", orlop_inspect(folder, strlen(folder), &buffer, &err), no, &err, "-Dwithout=inspect");
  if (request || chat || buffer) failed++;
  engine_of("folder", folder, "", no, "-Dwithout=folders");
}

int main(int argc, char** argv) {
  char whole[512], part[512], keys[160];
  struct stat st;
  orlop_engine* engine;
  if (argc != 4 || stat(argv[1], &st)) return 2;
  engine = engine_of("model", argv[1], "", ORLOP_OK, NULL);
  if (!engine) return 1;
  answer(engine, whole, sizeof whole);
  left_out(engine, argv[2]);
  orlop_engine_release(engine);
  engine_of("guard", argv[1], ", \"device\": \"guard\"", ORLOP_E_UNSUPPORTED, "-Dwithout=guard");
  engine_of("guided", argv[1], ", \"enable_guided_decoding\": true", ORLOP_E_UNSUPPORTED, "-Dwithout=guides");

  /* The same model inside FILE: mapped, and read. */
  for (int read = 0; read < 2; read++) {
    snprintf(keys, sizeof keys, ", \"load\": \"%s\", \"model_offset\": 65536, \"model_bytes\": %lld",
             read ? "read" : "mmap", (long long)st.st_size);
    engine = engine_of("part", argv[3], keys, ORLOP_OK, NULL);
    if (engine) answer(engine, part, sizeof part);
    check("the same answer", engine && !strcmp(whole, part) && *whole ? 0 : -1, 0, &err, NULL);
    orlop_engine_release(engine);
  }
  engine_of("no part", argv[3], "", ORLOP_E_BAD_FORMAT, "magic");
  engine_of("bytes behind it", argv[3], ", \"model_offset\": 65536", ORLOP_E_BAD_FORMAT, "belong to no tensor");
  snprintf(keys, sizeof keys, ", \"model_offset\": 65536, \"model_bytes\": %lld", (long long)st.st_size - 1);
  engine_of("a byte less", argv[3], keys, ORLOP_E_BAD_FORMAT, "tensor");
  engine_of("the head alone", argv[3], ", \"model_offset\": 65536, \"model_bytes\": 4000", ORLOP_E_BAD_FORMAT, argv[3]);
  snprintf(keys, sizeof keys, ", \"model_offset\": 65536, \"model_bytes\": %lld", (long long)st.st_size + 101);
  engine_of("more than there is", argv[3], keys, ORLOP_E_INVALID_ARGUMENT, "is not all there");
  engine_of("behind the end", argv[3], ", \"model_offset\": 4611686018427387840", ORLOP_E_INVALID_ARGUMENT,
            "is not all there");
  engine_of("unaligned", argv[3], ", \"model_offset\": 65537", ORLOP_E_INVALID_ARGUMENT, "multiple of 64");
  engine_of("negative", argv[3], ", \"model_offset\": -64", ORLOP_E_INVALID_ARGUMENT, "model_offset");
  engine_of("no bytes", argv[3], ", \"model_bytes\": 0", ORLOP_E_INVALID_ARGUMENT, "model_bytes");
  engine_of("a folder", argv[2], ", \"model_offset\": 64", ORLOP_E_INVALID_ARGUMENT, "is a folder");
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
