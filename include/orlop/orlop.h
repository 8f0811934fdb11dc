/* orlop.h - the C ABI of orlop, an embeddable LLM inference engine. C99 and C++17.
 *
 * Conventions, valid for every function below:
 *  - A call that can fail returns an int32_t status (ORLOP_OK, a positive note or a negative error)
 *    and takes an orlop_error last. The error is the caller's memory and may be NULL.
 *  - Text is UTF-8 given as pointer and length in bytes; it need not end in NUL and is not kept
 *    after the call returns. NULL is allowed where the length is 0.
 *  - Structs that start with struct_size are set up by their orlop_X_init function, or by zeroing
 *    them and storing sizeof in struct_size. A shorter struct than the library knows gets defaults
 *    for what it lacks; a longer one is accepted while its unknown tail is zero (ORLOP_E_UNSUPPORTED
 *    otherwise). Out-structs need struct_size too; the library writes no byte beyond it.
 *  - A `T** out` gets a handle of the caller's, to be released once with its release function, or
 *    NULL when the call fails.
 *  - A handle or a pointer that is NULL and must not be is ORLOP_E_INVALID_ARGUMENT. A handle that
 *    was made before fork is ORLOP_E_SHUTDOWN in the child; releasing it there does nothing.
 *  - timeout_us counts microseconds: 0 looks and does not wait, negative waits for ever.
 *  - Arrays are consecutive; [a, b] is b entries for each of a rows, row after row.
 *  - An engine may be used from any number of threads at once. A request has one consumer at a
 *    time (an overlapping orlop_get answers ORLOP_E_BUSY); cancel and status may come from any
 *    thread.
 *  - Handles may be released in any order; releasing NULL does nothing.
 *  - The library never aborts, exits, prints or changes process-wide state.
 */
#ifndef ORLOP_ORLOP_H
#define ORLOP_ORLOP_H

#include <stddef.h>
#include <stdint.h>

#if defined(ORLOP_STATIC)
#define ORLOP_API
#elif defined(_WIN32)
#ifdef ORLOP_BUILDING
#define ORLOP_API __declspec(dllexport)
#else
#define ORLOP_API __declspec(dllimport)
#endif
#else
#define ORLOP_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ORLOP_ABI_MAJOR 1
#define ORLOP_ABI_MINOR 2 /* the library may be of a later one: new fields and functions only */

/* ---- status codes: pinned, never reused ---- */
#define ORLOP_OK 0 /* done */
#define ORLOP_TIMEOUT 1 /* nothing arrived within the timeout; call again */
#define ORLOP_END 2     /* everything was delivered already */
#define ORLOP_E_INVALID_ARGUMENT (-1) /* a value of the caller's; the message names field and value */
#define ORLOP_E_NOT_FOUND (-2) /* no such file or device */
#define ORLOP_E_IO (-3) /* the system could not read or write, or gave no descriptor */
#define ORLOP_E_BAD_FORMAT (-4) /* a file or saved state is damaged or of no known kind */
#define ORLOP_E_UNSUPPORTED (-5) /* well-formed, but not served by this build, model or version */
#define ORLOP_E_OUT_OF_MEMORY (-6) /* of the machine, or a budget such as kv_bytes */
#define ORLOP_E_CONTEXT_OVERFLOW (-7) /* the message holds both counts */
#define ORLOP_E_BUSY (-8) /* another orlop_get of the request is inside, or the engine still loads */
#define ORLOP_E_QUEUE_FULL (-9) /* max_waiting sequences wait already; try later */
#define ORLOP_E_CANCELLED (-10) /* released while the call waited: a request, a loading engine */
#define ORLOP_E_SHUTDOWN (-11) /* its queue was released, or it is of the process before fork */
#define ORLOP_E_INTERNAL (-12) /* a fault of the library; please report the message */
#define ORLOP_E_DEADLINE (-13) /* the request's deadline_us passed before it was done */

/* Filled by a failing call when not NULL; code 0 and empty text when the call succeeded.
 * No allocation is made for it. Longer texts are cut at a code point. */
typedef struct orlop_error {
  uint32_t struct_size; /* sizeof(orlop_error), set by the caller */
  int32_t code;         /* one of the ORLOP_E_ codes, or 0; the same as the call's status if negative */
  char message[504];    /* NUL-terminated UTF-8, for people: names the file, field or value at fault */
} orlop_error;

typedef struct orlop_engine orlop_engine;   /* a loaded model and the threads that run it */
typedef struct orlop_request orlop_request; /* one prompt under way; keeps its engine running */
typedef struct orlop_queue orlop_queue;     /* where requests report that they have output */
typedef struct orlop_buffer orlop_buffer;   /* bytes of the library's, unchanged until released */

/* ---- library ---- */

/* (major << 16) | minor of the ABI that this library speaks. */
ORLOP_API uint32_t orlop_abi_version(void);
/* The library's version, e.g. "0.1.0". A static string. */
ORLOP_API const char* orlop_version(void);
/* Whether this build on this machine has a feature ("cuda", "avx2", "avx512", "amx", "neon", ...; a
 * NUL-terminated name): 0 absent, else positive. NULL and an unknown name answer 0. */
ORLOP_API int64_t orlop_feature(const char* name);

/* levels of messages; a sink gets those up to its own */
#define ORLOP_LOG_ERROR 1
#define ORLOP_LOG_WARNING 2
#define ORLOP_LOG_INFO 3 /* what an engine chose while it loaded */
#define ORLOP_LOG_DEBUG 4
/* Receives one line of `len` bytes without newline, not NUL-terminated, valid during the call; `user`
 * is the pointer given to orlop_log_set. No exception may leave it. May be called from any thread,
 * also concurrently. It may use
 * the library, but must not call orlop_log_set. */
typedef void (*orlop_log_fn)(void* user, int32_t level, const char* text, size_t len);
/* Sends messages of all engines up to `level` to fn, one sink for the process;
 * fn NULL (the initial state) silences the library. When it
 * returns the former fn is not running and will not be called again. */
ORLOP_API void orlop_log_set(orlop_log_fn fn, void* user, int32_t level);

/* ---- buffers: bytes owned by the library ---- */
/* The bytes, valid until the release, and their number in *n (n may be NULL). Text in them is UTF-8
 * without a NUL at its end. NULL gives NULL and 0. */
ORLOP_API const void* orlop_buffer_data(const orlop_buffer*, size_t* n);
ORLOP_API void orlop_buffer_release(orlop_buffer*);

/* ---- engine ---- */

/* Creates an engine from a JSON object; `model` (a checkpoint folder or a .gguf file) is required.
 * The other keys and their defaults are in docs/configuration.md; an unknown key is refused with
 * the nearest known one named (ORLOP_E_INVALID_ARGUMENT). Blocks until the model is loaded. Errors:
 * of the file NOT_FOUND, IO, BAD_FORMAT, UNSUPPORTED, with its path; OUT_OF_MEMORY. */
ORLOP_API int32_t orlop_engine_create(const char* json, size_t len, orlop_engine** out,
                                      orlop_error* err);

typedef struct orlop_progress {
  uint32_t struct_size; /* sizeof(orlop_progress), set by the caller */
  uint32_t done;        /* 1: loading ended, well or not */
  uint64_t bytes_done;  /* weight bytes read and packed so far */
  uint64_t bytes_total; /* 0 until known */
} orlop_progress;

/* Checks the configuration and starts loading on a thread of its own. Until orlop_engine_wait has
 * answered ORLOP_OK the engine accepts only wait and release (ORLOP_E_BUSY otherwise);
 * release cancels the load. */
ORLOP_API int32_t orlop_engine_create_async(const char* json, size_t len, orlop_engine** out,
                                            orlop_error* err);
/* Waits for the load to end. ORLOP_OK: ready. ORLOP_TIMEOUT: still loading. Else: why loading failed,
 * the same each time. Any thread. progress may be NULL. */
ORLOP_API int32_t orlop_engine_wait(orlop_engine*, int64_t timeout_us, orlop_progress* progress,
                                    orlop_error* err);
/* Gives up the caller's handle. Requests that still live keep the engine running until they end or
 * are released. Waits for a load to notice its cancellation. */
ORLOP_API void orlop_engine_release(orlop_engine*);

/* What a model file or folder holds (tensors, formats, bytes, configuration, tokenizer, chat
 * template) as a JSON object; no weight is loaded. `path` has `len` bytes. Errors as of a load. */
ORLOP_API int32_t orlop_inspect(const char* path, size_t len, orlop_buffer** json,
                                orlop_error* err);
/* Model, limits, chosen kernels, threads, bytes and defaults of a running engine, as JSON. */
ORLOP_API int32_t orlop_engine_info(orlop_engine*, orlop_buffer** json, orlop_error* err);

typedef struct orlop_stats {
  uint32_t struct_size;       /* sizeof(orlop_stats), set by the caller */
  uint32_t requests_running;  /* sequences that hold pages; each of n samples is one */
  uint32_t requests_waiting;  /* sequences that wait for their first or next step */
  uint32_t reserved;          /* 0 */
  uint64_t pages_total;       /* KV pages of block_size tokens */
  uint64_t pages_used;        /* held by requests */
  uint64_t steps;             /* model steps since creation */
  uint64_t prompt_tokens;     /* prompt tokens computed since creation */
  uint64_t generated_tokens;  /* tokens sampled since creation */
  uint64_t requests_finished; /* done, cancelled or failed */
  uint64_t preemptions;       /* times that a sequence gave its pages up and was computed again */
  uint64_t step_ns_total;  /* nanoseconds inside steps since creation */
  uint64_t model_ns_total; /* of that, inside the model */
  /* since ABI 1.1 */
  uint64_t pages_cached; /* held by the prefix cache alone: the next requests may take them */
  uint64_t pages_free;   /* held by nobody */
  uint64_t prefix_lookup_tokens; /* prompt tokens that were looked up in the prefix cache */
  uint64_t prefix_hit_tokens;    /* of them, those that were found */
  uint64_t host_pages_total;     /* the prefix cache's second tier, in host memory */
  uint64_t host_pages_used;      /* of them, those that hold something */
  uint64_t host_pages_out;    /* copied there since creation */
  uint64_t host_pages_in;     /* copied back since creation */
  uint64_t requests_paused;   /* wait for their consumer: output_bytes are full */
  double prompt_tokens_per_s; /* over about the last second */
  double generated_tokens_per_s; /* likewise */
  uint64_t plan_ns_total;    /* the parts of step_ns_total: choosing what a step computes, */
  uint64_t forward_ns_total; /* the model, */
  uint64_t sample_ns_total;  /* drawing tokens, */
  uint64_t commit_ns_total;  /* handing them over */
  uint64_t last_step_ns;     /* duration of the latest step */
  /* since ABI 1.2 */
  uint64_t pages_shared; /* of pages_used, those that several samples hold */
} orlop_stats;
/* Fills *out. Cheap: for a call each second, or each request. The counts are of one moment. */
ORLOP_API int32_t orlop_engine_stats(orlop_engine*, orlop_stats* out, orlop_error* err);

/* ---- requests ---- */

typedef struct orlop_string {
  const char* data; /* UTF-8, the caller's */
  uint64_t len;     /* bytes */
} orlop_string;

typedef struct orlop_logit_bias {
  int32_t token; /* 0 to the vocabulary's size - 1; several entries of one add up */
  float bias; /* added to the raw logit; -INFINITY forbids the token */
} orlop_logit_bias;

typedef struct orlop_logprob {
  int32_t token; /* its id */
  float logprob; /* natural logarithm, of the raw model distribution: before penalties, guides,
                    biases and temperature */
} orlop_logprob;

/* A double or int field with this value takes the model's generation_config (if it states one),
 * else the engine's default. */
#define ORLOP_UNSET_F64 (-1.0e300)
#define ORLOP_UNSET_I32 (-2147483647 - 1)
#define ORLOP_UNSET_U32 0xFFFFFFFFu
#define ORLOP_LOGPROBS_OFF (-2) /* none */
#define ORLOP_LOGPROBS_ALL (-1) /* of every token of the vocabulary, each time */

/* flags of orlop_generate_params */
#define ORLOP_GENERATE_IGNORE_EOS 1u    /* end-of-turn tokens do not stop */
#define ORLOP_GENERATE_SEEDED 2u        /* `seed` is given; else the engine draws and reports one */
#define ORLOP_GENERATE_NO_BOS 4u        /* text prompt: do not add the model's BOS token */
#define ORLOP_GENERATE_PLAIN 8u         /* text prompt: control tokens in the text are plain text */
#define ORLOP_GENERATE_KEEP_SPECIAL 16u /* output text shows control tokens */

/* guides: what the output must be. Applied to every token, so the output is a beginning of such a text,
 * and a whole one when the finish reason is STOP for another cause than a stop string or stop token. */
#define ORLOP_GUIDE_NONE 0
#define ORLOP_GUIDE_JSON_OBJECT 1 /* any JSON object; no source */
#define ORLOP_GUIDE_JSON_SCHEMA 2 /* source: a JSON Schema */
#define ORLOP_GUIDE_REGEX 3       /* source: a regular expression, of the whole output */
#define ORLOP_GUIDE_GRAMMAR 4     /* source: a GBNF grammar */
#define ORLOP_GUIDE_CHOICE 5      /* source: a JSON array of strings */
#define ORLOP_GUIDE_TOOLS 6       /* source: JSON {"tools", "tool_choice", "format", "parallel"}, see
                                     orlop_chat_output_create */

/* embeddings: the prompt's hidden states after the last norm, pooled, instead of generated text */
#define ORLOP_EMBEDDING_NONE 0
#define ORLOP_EMBEDDING_MEAN 1 /* over the prompt's tokens */
#define ORLOP_EMBEDDING_LAST 2 /* of its last token */

/* Set up with orlop_generate_params_init: zero is a value of most fields, not their default. */
typedef struct orlop_generate_params {
  uint32_t struct_size; /* set by orlop_generate_params_init */
  uint32_t flags;       /* ORLOP_GENERATE_ bits; an unknown one is ORLOP_E_UNSUPPORTED */

  /* The prompt: exactly one of the three. None may be empty. */
  const char* text; /* UTF-8; the model's BOS token goes before it unless NO_BOS */
  uint64_t text_len;
  const int32_t* tokens; /* [n_tokens], taken as they are */
  uint64_t n_tokens;
  const char* messages; /* JSON: an array of {role, content, ...}, or an object {messages, tools,
                           add_generation_prompt, and variables for the template}. Content is never
                           read as control tokens */
  uint64_t messages_len;

  uint32_t max_tokens;       /* 0: compute the prompt only; unset: until the context is full */
  uint32_t min_tokens;       /* end-of-turn and stops are held off before this many tokens */
  double temperature;        /* 0 to 1e6; 0: greedy, the lowest id wins a tie */
  double top_p;              /* 0 to 1; 1: off; 0: the best token only */
  double min_p;              /* 0 to 1, of the best token's probability; 0: off */
  int32_t top_k;             /* >= 0; 0: off */
  uint32_t n;                /* samples of the prompt, 1 to 128: sample i is drawn with seed + i */
  double repetition_penalty; /* > 0; 1: off; over prompt and output */
  double presence_penalty;   /* -2 to 2; over the output */
  double frequency_penalty;  /* -2 to 2; over the output */
  uint64_t seed;             /* counts with ORLOP_GENERATE_SEEDED only */

  const orlop_logit_bias* logit_bias; /* [n_logit_bias] */
  uint64_t n_logit_bias;
  const orlop_string* stop; /* [n_stop], at most 256 of at most 4096 bytes; not part of the output */
  uint64_t n_stop;
  const int32_t* stop_tokens; /* [n_stop_tokens], beside the model's own end-of-turn tokens */
  uint64_t n_stop_tokens;

  int32_t logprobs;        /* OFF, 0: of each chosen token, N: and the N best, ALL */
  int32_t prompt_logprobs; /* the same for prompt tokens, each given those before it */

  orlop_queue* queue; /* may be NULL; else the queue that is told of new output */
  uint64_t tag;       /* what the queue then answers */

  /* since ABI 1.1 */
  const char* cache_salt; /* requests share cached prefixes within equal salts only; at most 1024
                             bytes, empty: with all that give none */
  uint64_t cache_salt_len; /* bytes of it */
  int64_t deadline_us; /* microseconds from submission; then the request ends with
                          ORLOP_E_DEADLINE. 0: none */
  int32_t priority;    /* -100 to 100: higher goes first; waiting raises it */
  uint32_t reserved;   /* 0 */

  /* since ABI 1.2 */
  int32_t guide;      /* ORLOP_GUIDE_ */
  int32_t embedding;  /* ORLOP_EMBEDDING_; max_tokens is then taken as 0 */
  const char* guide_source; /* UTF-8, as the kind of guide says */
  uint64_t guide_source_len;
} orlop_generate_params;

/* Fills the first `size` bytes with defaults and stores struct_size. size: sizeof the caller's struct. */
ORLOP_API void orlop_generate_params_init(orlop_generate_params*, uint32_t size);

/* Checks the parameters and the prompt on the caller's thread and hands the request to the engine.
 * Never waits for the model; a guide is compiled here. Everything passed in is copied. Errors:
 * INVALID_ARGUMENT, UNSUPPORTED, CONTEXT_OVERFLOW, QUEUE_FULL, BUSY while the engine loads. */
ORLOP_API int32_t orlop_async_generate(orlop_engine*, const orlop_generate_params*,
                                       orlop_request** out, orlop_error* err);

/* why a sample ended */
#define ORLOP_FINISH_NONE 0   /* it has not */
#define ORLOP_FINISH_STOP 1   /* end-of-turn token, stop token or stop string */
#define ORLOP_FINISH_LENGTH 2 /* max_tokens or the context's end */
#define ORLOP_FINISH_CANCELLED 3 /* orlop_cancel */
#define ORLOP_FINISH_ERROR 4 /* error_code and message say why */

/* What is new since the last orlop_get of this request. The pointers live until the next get or
 * the release of the request. Text is whole code points; it lags behind the tokens while bytes of
 * a code point or a possible stop string are incomplete. */
typedef struct orlop_output {
  uint32_t struct_size;  /* sizeof(orlop_output), set by the caller */
  int32_t finish_reason; /* ORLOP_FINISH_; not NONE: this is the last output of this sample */
  uint32_t index;        /* which of the n samples; one output is of one sample */
  int32_t error_code;    /* with FINISH_ERROR: an ORLOP_E_ code; else 0 */
  const char* text;      /* what is new, not NUL-terminated; empty for a model without a tokenizer */
  uint64_t text_len;
  const int32_t* tokens; /* [n_tokens], what is new */
  uint64_t n_tokens;
  const float* logprobs;             /* [n_tokens], or NULL */
  const orlop_logprob* top_logprobs; /* [n_tokens, n_top], best first (ALL: by id), or NULL */
  uint64_t n_top;
  const float* prompt_logprobs; /* [n_prompt], entry 0 is 0; once, in an output of sample 0 */
  const orlop_logprob* prompt_top_logprobs; /* [n_prompt, n_prompt_top], row 0 all zero */
  uint64_t n_prompt;
  uint64_t n_prompt_top;
  const char* message; /* with FINISH_ERROR: what happened, as orlop_error.message, not NUL-terminated */
  uint64_t message_len;
  int32_t stop_token; /* the token that ended it (the last of `tokens`; not in the text), or -1 */
  int32_t stop_index; /* the index of the stop string that ended it, or -1 */
  /* since ABI 1.2 */
  const float* embedding; /* [n_embedding], of length 1 (L2), or NULL; in the last output */
  uint64_t n_embedding;
} orlop_output;

/* Takes all new output of one sample, waiting up to timeout_us. ORLOP_OK: *out is filled.
 * ORLOP_TIMEOUT: nothing new. ORLOP_END: the last one, of every sample, was taken. A request that
 * failed is ORLOP_OK with FINISH_ERROR; a negative status is one of the call: BUSY, or CANCELLED when
 * the request is released meanwhile. */
ORLOP_API int32_t orlop_get(orlop_request*, int64_t timeout_us, orlop_output* out,
                            orlop_error* err);

#define ORLOP_STATE_WAITING 0 /* no step has held it yet */
#define ORLOP_STATE_RUNNING 1
#define ORLOP_STATE_DONE 2 /* finished: STOP or LENGTH */
#define ORLOP_STATE_CANCELLED 3
#define ORLOP_STATE_FAILED 4 /* error_code says why */

typedef struct orlop_request_info {
  uint32_t struct_size;   /* sizeof(orlop_request_info), set by the caller */
  int32_t state;          /* ORLOP_STATE_ */
  int32_t finish_reason;  /* ORLOP_FINISH_ */
  int32_t error_code;     /* with FINISH_ERROR, else 0 */
  uint64_t prompt_tokens; /* of the prompt, BOS and template included */
  uint64_t cached_tokens; /* prompt tokens that a prefix cache spared */
  uint64_t generated_tokens; /* drawn so far, taken or not */
  uint64_t seed;        /* the one in use, given or drawn */
  int64_t queued_ns;    /* the four times: CLOCK_MONOTONIC nanoseconds, 0 when not yet */
  int64_t scheduled_ns; /* first step that held the request */
  int64_t first_token_ns; /* when it was drawn */
  int64_t last_token_ns;  /* the latest so far */
  /* since ABI 1.1. generated_tokens and the times are of all samples together; state, finish_reason
   * and error_code become final with the last sample: an error first, then cancelled, then its own.
   */
  uint32_t samples;  /* n */
  uint32_t reserved; /* 0 */
} orlop_request_info;
/* Any thread, any time, never waits. */
ORLOP_API int32_t orlop_get_status(const orlop_request*, orlop_request_info* out, orlop_error* err);
/* Ends the request within one step; its last output says CANCELLED. Idempotent; any thread; does
 * not wait. */
ORLOP_API void orlop_cancel(orlop_request*);
/* Cancels if unfinished and frees, with all that its last orlop_output points to. Safe while another
 * thread is inside orlop_get of it. */
ORLOP_API void orlop_request_release(orlop_request*);

/* ---- completion queues: one waiter for any number of requests ---- */
/* For requests of this engine. ORLOP_E_IO when the process has no descriptor left. */
ORLOP_API int32_t orlop_queue_create(orlop_engine*, orlop_queue** out, orlop_error* err);
/* Answers the tag of a request with new output (ORLOP_OK), or ORLOP_TIMEOUT. Several threads may wait;
 * each tag goes to one. ORLOP_E_SHUTDOWN when the queue is released meanwhile.
 * A request is listed once until it is taken with
 * orlop_get; then it is listed again when it has more. */
ORLOP_API int32_t orlop_queue_wait(orlop_queue*, int64_t timeout_us, uint64_t* tag,
                                   orlop_error* err);
/* A descriptor that is readable while the queue is not empty (for poll, epoll, asyncio). The
 * queue owns it; do not read from it. -1 of NULL, and of a queue of the process before fork. */
ORLOP_API int32_t orlop_queue_fd(const orlop_queue*);
/* Its requests go on and report to nobody; waiters return. */
ORLOP_API void orlop_queue_release(orlop_queue*);

/* ---- states: a computed prefix as bytes or a file ---- */

/* Zeroed and with struct_size it is ready; what is zero is not given. */
typedef struct orlop_state_params {
  uint32_t struct_size; /* sizeof(orlop_state_params) */
  uint32_t flags; /* of a text prompt: ORLOP_GENERATE_NO_BOS, ORLOP_GENERATE_PLAIN */

  /* The prefix to save: exactly one of the three, as in orlop_generate_params. Not for loading. */
  const char* text;
  uint64_t text_len;
  const int32_t* tokens;
  uint64_t n_tokens;
  const char* messages;
  uint64_t messages_len;

  const char* cache_salt; /* saving: of the request that computes what is missing; loading: the one
                             that the state will serve, unless it is signed */
  uint64_t cache_salt_len;
  const void* key; /* saving: signs the state (HMAC-SHA-256) under this secret of 16 to 1024 bytes;
                      loading: the state must carry its signature, and then serves every salt */
  uint64_t key_len;
  const char* path; /* the file to write or to read, instead of a buffer or bytes */
  uint64_t path_len;
  int64_t deadline_us; /* saving: of the request that computes what is missing; 0: none */
} orlop_state_params;

typedef struct orlop_state_info {
  uint32_t struct_size; /* sizeof(orlop_state_info), set by the caller */
  uint32_t shared;      /* 1: it serves every cache_salt */
  uint64_t n_tokens;    /* prefix tokens that it holds: whole pages of block_size */
  uint64_t pages;       /* KV pages that it holds, all cache groups */
  uint64_t pages_added; /* of them, those that the engine did not have */
} orlop_state_info;

/* Computes the prefix, as far as it is not cached, and stores the keys and values of its whole
 * pages. Waits for the engine. With a path the file is replaced in one step and *out is NULL; `out`
 * may then be NULL too. Needs enable_prefix_cache. */
ORLOP_API int32_t orlop_state_save(orlop_engine*, const orlop_state_params*, orlop_buffer** out,
                                   orlop_error* err);
/* Puts a saved state into the prefix cache: the next requests that begin with its tokens skip
 * computing them (orlop_request_info.cached_tokens). Data is NULL with a path. A state of another
 * model, tokenizer, KV type, page size, machine layout or version is ORLOP_E_UNSUPPORTED, and the
 * message names what differs; a damaged one is ORLOP_E_BAD_FORMAT, a signature that the key does
 * not verify ORLOP_E_INVALID_ARGUMENT. Without a key a cache_salt is required: what a state claims
 * is believed for that salt alone. On failure nothing is loaded. info may be NULL. */
ORLOP_API int32_t orlop_state_load(orlop_engine*, const void* data, size_t len,
                                   const orlop_state_params*, orlop_state_info* info,
                                   orlop_error* err);

/* ---- text ---- */
#define ORLOP_TOKENIZE_ADD_SPECIAL 1u   /* add BOS/EOS as the model's tokenizer does */
#define ORLOP_TOKENIZE_PARSE_SPECIAL 2u /* control tokens spelled in the text become themselves */
#define ORLOP_DETOKENIZE_SKIP_SPECIAL 1u /* control tokens give no text */
#define ORLOP_DETOKENIZE_BYTES 2u /* since ABI 1.2: each token's own bytes, whatever stands beside it;
                                     they need not be UTF-8 */

/* Writes up to cap ids and stores the whole count in *n; with cap too small nothing else is lost:
 * call again with *n. ids may be NULL when cap is 0. A model without a tokenizer: UNSUPPORTED, here
 * and below. */
ORLOP_API int32_t orlop_tokenize(orlop_engine*, const char* text, size_t len, uint32_t flags,
                                 int32_t* ids, size_t cap, size_t* n, orlop_error* err);
/* The text of n ids. Bytes that are no UTF-8 become U+FFFD, unless ORLOP_DETOKENIZE_BYTES. */
ORLOP_API int32_t orlop_detokenize(orlop_engine*, const int32_t* ids, size_t n, uint32_t flags,
                                   orlop_buffer** text, orlop_error* err);
/* Renders chat messages (as in orlop_generate_params.messages) with the model's template. */
ORLOP_API int32_t orlop_chat_render(orlop_engine*, const char* json, size_t len,
                                    orlop_buffer** text, orlop_error* err);
/* The ids that a request with these messages would start from; as orlop_tokenize. */
ORLOP_API int32_t orlop_chat_tokenize(orlop_engine*, const char* json, size_t len, int32_t* ids,
                                      size_t cap, size_t* n, orlop_error* err);

/* ---- guides ---- */

/* How far a text follows a guide (ORLOP_GUIDE_): *accepted gets the number of its first bytes that can
 * begin such a text, *complete whether all of them are one. Needs no engine. An error is one of the
 * source: ORLOP_E_INVALID_ARGUMENT, or ORLOP_E_UNSUPPORTED naming what is not supported and where. */
ORLOP_API int32_t orlop_guide_check(int32_t guide, const char* source, size_t source_len,
                                    const char* text, size_t len, uint64_t* accepted,
                                    int32_t* complete, orlop_error* err);

/* ---- what a chat model writes, taken apart ---- */
typedef struct orlop_chat_output orlop_chat_output; /* how far the output of one sample was read */
/* For the output of one sample. `json` is an object, every key optional:
 *   "tools"      OpenAI's array of tools; only calls of these are taken for calls
 *   "format"     how the model writes calls: "hermes", "llama3", "json", "none"; "auto" (the default):
 *                by the engine's chat template; hermes and llama3 models write control tokens, so
 *                generate with ORLOP_GENERATE_KEEP_SPECIAL
 *   "reasoning"  true: <think> ... </think> is split off; "auto" (the default): if the chat template
 *                knows it
 *   "prompt"     the rendered prompt: whether it leaves <think> open
 * engine may be NULL if no value is "auto". One thread at a time. */
ORLOP_API int32_t orlop_chat_output_create(orlop_engine*, const char* json, size_t len,
                                           orlop_chat_output** out, orlop_error* err);
/* Takes text in any pieces (last: 1 with the last one). *events is a JSON array of what is new:
 *   {"type": "reasoning" | "content", "text"}
 *   {"type": "tool_call", "index", "name"}  {"type": "tool_arguments", "index", "text"}
 * The texts of one call, joined, are its arguments as JSON. */
ORLOP_API int32_t orlop_chat_output_push(orlop_chat_output*, const char* text, size_t len,
                                         int32_t last, orlop_buffer** events, orlop_error* err);
ORLOP_API void orlop_chat_output_release(orlop_chat_output*);

#ifdef __cplusplus
}
#endif
#endif
