/* probe.c [THREADS]: the limits of this machine that decode and prefill run against, as one JSON object.
 *
 *   cc -O2 -pthread bench/probe.c -o probe && ./probe 2
 *
 * read_gbs     bytes read from main memory a second (1 GiB, cut among the threads, each read in order)
 * int8_gops    8-bit multiply-adds counted as two operations, at the rate of vpdpbusd (AVX-512 VNNI) with
 *              every operand in a register; null where the machine has none
 * bf16_gflops  the same of vdpbf16ps (AVX-512 BF16), 64 operations each
 * Each is the best of five runs, since anything else that runs only takes away. Threads are pinned to
 * the first processors that this process may use. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { max_threads = 64, repeats = 5, rounds = 2000000, chains = 20 };
static const size_t total_bytes = (size_t)1 << 30;

typedef struct job {
  int cpu;
  const uint64_t* data; /* NULL: the test of products */
  int bf16;
  size_t words;
  uint64_t result; /* kept, so that nothing is optimized away */
  double begun, ended;
  pthread_t thread;
} job;
static pthread_barrier_t gate;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t read_words(const uint64_t* p, size_t n) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  size_t i;
  for (i = 0; i + 4 <= n; i += 4) a |= p[i], b |= p[i + 1], c |= p[i + 2], d |= p[i + 3];
  return a | b | c | d;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static uint64_t read_avx512(const uint64_t* p, size_t n) {
  __m512i s[8];
  size_t i;
  int k;
  for (k = 0; k < 8; k++) s[k] = _mm512_setzero_si512();
  for (i = 0; i + 64 <= n; i += 64)
    for (k = 0; k < 8; k++) s[k] = _mm512_or_si512(s[k], _mm512_loadu_si512(p + i + 8 * k));
  for (k = 1; k < 8; k++) s[0] = _mm512_or_si512(s[0], s[k]);
  return (uint64_t)_mm512_reduce_or_epi64(s[0]);
}

/* chains independent accumulators hide the latency; asm, so that none is folded or spilled away. */
#define STEP(n) __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(s##n) : "v"(x), "v"(y));
#define STEP_BF16(n) __asm__ volatile("vdpbf16ps %1, %2, %0" : "+v"(s##n) : "v"(x), "v"(y));
#define EACH(m) m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) m(13) m(14) \
  m(15) m(16) m(17) m(18) m(19)
#define ZERO(n) __m512i s##n = _mm512_setzero_si512();
#define JOIN(n) x = _mm512_or_si512(x, s##n);
__attribute__((target("avx512f,avx512vnni"))) static uint64_t multiply_vnni(void) {
  __m512i x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(1);
  EACH(ZERO)
  long i;
  for (i = 0; i < rounds; i++) { EACH(STEP) }
  EACH(JOIN)
  return (uint64_t)_mm512_reduce_or_epi64(x);
}
__attribute__((target("avx512f,avx512bf16"))) static uint64_t multiply_bf16(void) {
  __m512i x = _mm512_set1_epi16(0x3f80), y = _mm512_set1_epi16(0x3f80);
  EACH(ZERO)
  long i;
  for (i = 0; i < rounds; i++) { EACH(STEP_BF16) }
  EACH(JOIN)
  return (uint64_t)_mm512_reduce_or_epi64(x);
}
#endif

static int has_vnni(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni");
#else
  return 0;
#endif
}

static int has_bf16(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return 0;
#endif
}

static void* work(void* argument) {
  job* j = argument;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(j->cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  pthread_barrier_wait(&gate);
  j->begun = now();
#if defined(__x86_64__)
  if (!j->data)
    j->result = j->bf16 ? multiply_bf16() : multiply_vnni();
  else if (__builtin_cpu_supports("avx512f"))
    j->result = read_avx512(j->data, j->words);
  else
#endif
    j->result = read_words(j->data, j->words);
  j->ended = now();
  return NULL;
}

/* Seconds from the first thread's start to the last one's end; negative when a thread cannot start. */
static double timed(job* jobs, int n) {
  double begun = 0, ended = 0;
  int i;
  pthread_barrier_init(&gate, NULL, (unsigned)n);
  for (i = 0; i < n; i++)
    if (pthread_create(&jobs[i].thread, NULL, work, &jobs[i])) exit(1);
  for (i = 0; i < n; i++) {
    pthread_join(jobs[i].thread, NULL);
    if (i == 0 || jobs[i].begun < begun) begun = jobs[i].begun;
    if (i == 0 || jobs[i].ended > ended) ended = jobs[i].ended;
  }
  pthread_barrier_destroy(&gate);
  return ended - begun;
}

/* One run of products, if it is better than the best so far: 128 operations an instruction on bytes, 64 on bf16. */
static double products(job* jobs, int threads, int bf16, double best) {
  double rate;
  int i;
  for (i = 0; i < threads; i++) jobs[i].data = NULL, jobs[i].bf16 = bf16;
  rate = (bf16 ? 64.0 : 128.0) * chains * rounds * threads / timed(jobs, threads) / 1e9;
  return rate > best ? rate : best;
}

static void print_rate(const char* name, int known, double rate) {
  if (known)
    printf("\"%s\": %.0f, ", name, rate);
  else
    printf("\"%s\": null, ", name);
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 2;
  job jobs[max_threads];
  double read_best = 0, int8_best = 0, bf16_best = 0;
  uint64_t kept = 0;
  cpu_set_t allowed;
  char* memory;
  int i, r, cpu = -1;
  if (threads < 1 || threads > max_threads || sched_getaffinity(0, sizeof allowed, &allowed)) {
    fprintf(stderr, "usage: %s [THREADS up to %d]\n", argv[0], max_threads);
    return 2;
  }
  memory = mmap(NULL, total_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fputs("no memory for the bandwidth test\n", stderr);
    return 1;
  }
  madvise(memory, total_bytes, MADV_HUGEPAGE);
  memset(memory, 1, total_bytes);
  memset(jobs, 0, sizeof jobs);
  for (i = 0; i < threads; i++) {
    do cpu = (cpu + 1) % CPU_SETSIZE;
    while (!CPU_ISSET(cpu, &allowed));
    jobs[i].cpu = cpu;
  }
  for (r = 0; r < repeats; r++) {
    const size_t words = total_bytes / 8 / (size_t)threads / 64 * 64;
    double gbs;
    for (i = 0; i < threads; i++) {
      jobs[i].data = (const uint64_t*)(const void*)memory + (size_t)i * words;
      jobs[i].words = words;
    }
    gbs = (double)words * 8 * threads / timed(jobs, threads) / 1e9;
    if (gbs > read_best) read_best = gbs;
    if (has_vnni()) int8_best = products(jobs, threads, 0, int8_best);
    if (has_bf16()) bf16_best = products(jobs, threads, 1, bf16_best);
    for (i = 0; i < threads; i++) kept ^= jobs[i].result;
  }
  printf("{\"threads\": %d, \"read_gbs\": %.1f, ", threads, read_best);
  print_rate("int8_gops", has_vnni(), int8_best);
  print_rate("bf16_gflops", has_bf16(), bf16_best);
  printf("\"kept\": %d}\n", (int)(kept & 1));
  return 0;
}
