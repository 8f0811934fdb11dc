// What loading weights can take on a machine: each part alone, then whole ways from a file in the page cache to
// the GPU. bench/cuda/run.sh's part "load" runs it before the engine's own loading.
//   load FILE [GIGABYTES]   FILE is written with random bytes if it is not there
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace {

void need(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double timed(const char* what, const std::function<void()>& f) {
  const double begin = now();
  f();
  const double t = now() - begin;
  std::printf("  %-44s %9.2f ms\n", what, t * 1e3);
  return t;
}

constexpr size_t mib = size_t{1} << 20;

__global__ void nothing() {}

void write_file(const char* path, size_t bytes) {
  std::vector<uint64_t> block(4 * mib);
  uint64_t x = 88172645463325252ull;
  for (uint64_t& v : block) v = x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  const int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
  if (fd < 0) std::perror(path), std::exit(1);
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = write(fd, block.data(), std::min(block.size() * 8, bytes - at));
    if (n <= 0) std::perror(path), std::exit(1);
    at += static_cast<size_t>(n);
  }
  close(fd);
}

enum class Way { touch, populate, read, copy_alone, read_alone };

// Threads that take pieces of the file in turn, each with two pinned buffers and a stream of its own.
double load(int fd, size_t bytes, unsigned char* gpu, unsigned char* pinned, size_t piece, int threads, Way way, double* unmap) {
  const double begin = now();
  auto* file = static_cast<unsigned char*>(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0));
  std::atomic<size_t> next{0};
  const auto work = [&](int t) {
    const bool sends = way != Way::copy_alone && way != Way::read_alone;
    cudaStream_t stream;
    cudaEvent_t free_again[2];
    need(cudaSetDevice(0), "cudaSetDevice");
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    for (auto& e : free_again) need(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
    for (int turn = 0;; turn ^= 1) {
      const size_t at = next.fetch_add(piece);
      if (at >= bytes) break;
      const size_t n = std::min(piece, bytes - at);
      unsigned char* to = pinned + (2 * static_cast<size_t>(t) + static_cast<size_t>(turn)) * piece;
      need(cudaEventSynchronize(free_again[turn]), "event");
      if (way == Way::read || way == Way::read_alone) {
        for (size_t done = 0; done < n;) {
          const ssize_t got = pread(fd, to + done, n - done, static_cast<off_t>(at + done));
          if (got <= 0) std::perror("pread"), std::exit(1);
          done += static_cast<size_t>(got);
        }
      } else {
        if (way == Way::populate) madvise(file + at, n, MADV_POPULATE_READ);
        std::memcpy(to, file + at, n);
      }
      if (!sends) continue;
      need(cudaMemcpyAsync(gpu + at, to, n, cudaMemcpyHostToDevice, stream), "copy");
      need(cudaEventRecord(free_again[turn], stream), "event");
    }
    need(cudaStreamSynchronize(stream), "stream");
    for (auto& e : free_again) cudaEventDestroy(e);
    cudaStreamDestroy(stream);
  };
  std::vector<std::thread> all;
  for (int t = 1; t < threads; ++t) all.emplace_back(work, t);
  work(0);
  for (auto& t : all) t.join();
  const double done = now();
  munmap(file, bytes);
  *unmap = now() - done;
  return done - begin;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s FILE [GIGABYTES]\n", argv[0]), 2;
  const size_t bytes = static_cast<size_t>((argc > 2 ? std::atof(argv[2]) : 4) * 1e9) & ~(2 * mib - 1);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%d threads of the machine; %.2f GB\n", cores, static_cast<double>(bytes) * 1e-9);
  std::puts("alone:");
  int count = 0;
  timed("driver: cudaGetDeviceCount", [&] { need(cudaGetDeviceCount(&count), "count"); });
  timed("context: cudaSetDevice", [] { need(cudaSetDevice(0), "cudaSetDevice"); });
  timed("context: cudaFree(0)", [] { need(cudaFree(nullptr), "cudaFree"); });
  cudaStream_t stream;
  timed("a stream", [&] { need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"); });
  timed("first kernel", [&] {
    nothing<<<1, 1, 0, stream>>>();
    need(cudaStreamSynchronize(stream), "kernel");
  });
  unsigned char* gpu = nullptr;
  timed("cudaMalloc of the weights", [&] { need(cudaMalloc(reinterpret_cast<void**>(&gpu), bytes), "cudaMalloc"); });
  timed("clearing them", [&] {
    need(cudaMemsetAsync(gpu, 0, bytes, stream), "clear");
    need(cudaStreamSynchronize(stream), "clear");
  });
  void* most = nullptr;
  timed("cudaMalloc of 100 GB", [&] { cudaMalloc(&most, 100'000'000'000); });
  timed("cudaFree of it", [&] { cudaFree(most); });
  cudaGetLastError();
  const size_t ring = 512 * mib;
  unsigned char *pinned = nullptr, *small = nullptr;
  timed("pinned memory, 32 MiB", [&] { need(cudaHostAlloc(reinterpret_cast<void**>(&small), 32 * mib, cudaHostAllocDefault), "pinned"); });
  timed("given back", [&] { cudaFreeHost(small); });
  timed("pinned memory, 512 MiB", [&] { need(cudaHostAlloc(reinterpret_cast<void**>(&pinned), ring, cudaHostAllocDefault), "pinned"); });
  std::memset(pinned, 1, ring);
  {
    void* p = mmap(nullptr, 64 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, 64 * mib, MADV_HUGEPAGE);
    timed("touching 64 MiB of huge pages", [&] { std::memset(p, 1, 64 * mib); });
    timed("and again", [&] { std::memset(p, 2, 64 * mib); });
    timed("registering 64 MiB of huge pages", [&] { std::printf("  %s\n", cudaGetErrorString(cudaHostRegister(p, 64 * mib, 0))); });
    timed("and back", [&] { cudaHostUnregister(p); });
    munmap(p, 64 * mib);
  }
  std::puts("the bare copy, pinned (GB/s):");
  for (const size_t piece : {1 * mib, 2 * mib, 4 * mib, 16 * mib, 256 * mib}) {
    double best = 1e9;
    for (int again = 0; again < 3; ++again) {
      const double begin = now();
      for (size_t at = 0; at + piece <= std::min<size_t>(bytes, 2048 * mib); at += piece)
        need(cudaMemcpyAsync(gpu + at, pinned + at % ring, piece, cudaMemcpyHostToDevice, stream), "copy");
      need(cudaStreamSynchronize(stream), "copy");
      best = std::min(best, now() - begin);
    }
    std::printf("  %zu MiB: %.1f", piece / mib, static_cast<double>(std::min<size_t>(bytes, 2048 * mib)) / best * 1e-9);
  }
  std::puts("");
  const double at = now();
  struct stat st;
  if (stat(argv[1], &st) != 0 || static_cast<size_t>(st.st_size) < bytes) write_file(argv[1], bytes);
  std::printf("the file was written in %.1f s\n", now() - at);
  const int fd = open(argv[1], O_RDONLY);
  if (fd < 0) return std::perror(argv[1]), 1;
  std::puts("from the page cache to the GPU: threads, piece, way: GB/s, then unmapping");
  const char* names[] = {"mapping, touched", "mapping, populated", "pread", "memcpy of the mapping alone", "pread alone"};
  for (const int threads : {4, 8, 16})
    for (const size_t piece : {1 * mib, 4 * mib, 16 * mib}) {
      if (threads > cores) continue;
      for (const Way way : {Way::touch, Way::populate, Way::read, Way::copy_alone, Way::read_alone}) {
        if (piece != 4 * mib && (way == Way::copy_alone || way == Way::read_alone || way == Way::populate)) continue;
        double unmap = 0;
        const double t = load(fd, bytes, gpu, pinned, piece, threads, way, &unmap);
        std::printf("  %2d threads, %2zu MiB, %-28s %6.1f   %6.1f ms\n", threads, piece / mib, names[static_cast<int>(way)],
                    static_cast<double>(bytes) / t * 1e-9, unmap * 1e3);
        std::fflush(stdout);
      }
    }
  {  // the mapping's own pages, pinned where they are
    auto* file = static_cast<unsigned char*>(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0));
    double t = now();
    const cudaError_t e = cudaHostRegister(file, 256 * mib, cudaHostRegisterReadOnly);
    std::printf("  registering 256 MiB of the mapping: %s, %.1f ms\n", cudaGetErrorString(e), (now() - t) * 1e3);
    if (e == cudaSuccess) {
      t = now();
      need(cudaMemcpyAsync(gpu, file, 256 * mib, cudaMemcpyHostToDevice, stream), "copy");
      need(cudaStreamSynchronize(stream), "copy");
      std::printf("  copied in %.1f ms\n", (now() - t) * 1e3);
      t = now();
      cudaHostUnregister(file);
      std::printf("  unregistered in %.1f ms\n", (now() - t) * 1e3);
    }
    cudaGetLastError();
    t = now();
    need(cudaMemcpyAsync(gpu, file, 512 * mib, cudaMemcpyHostToDevice, stream), "copy");
    need(cudaStreamSynchronize(stream), "copy");
    std::printf("  512 MiB straight from the mapping: %.1f GB/s\n", 512.0 * mib / (now() - t) * 1e-9);
    munmap(file, bytes);
  }
  return 0;
}
