// The thread pool, the choice of its size, the ISA choice and the CPU device.
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backend/cpu/machine.h"
#include "ops_test.h"

namespace orlop::test {
namespace {

using cpu::ThreadPool;

struct Counts {
  std::vector<std::atomic<int>> hits;
  std::atomic<int> bad_thread{0};
  int threads;
  Counts(size_t n, int t) : hits(n), threads(t) {}
};

void count(const void* args, int64_t begin, int64_t end, int thread) {
  Counts& c = *static_cast<Counts*>(const_cast<void*>(args));
  if (thread < 0 || thread >= c.threads || begin >= end) c.bad_thread.fetch_add(1);
  for (int64_t i = begin; i < end; ++i) c.hits[static_cast<size_t>(i)].fetch_add(1);
}

TEST(every_index_once) {
  for (int threads = 1; threads <= 4; ++threads)
    for (const int64_t n : {0, 1, 2, 3, 5, 64, 1000})
      for (const int64_t grain : {1, 2, 7, 64, 5000}) {
        Counts c(static_cast<size_t>(n), threads);
        pool(threads).run(count, &c, n, grain);
        pool(threads).run_dynamic(count, &c, n, grain);
        CHECK(c.bad_thread == 0);
        CHECK(std::all_of(c.hits.begin(), c.hits.end(), [](const auto& h) { return h == 2; }));
      }
}

TEST(ranges_are_rounded_to_the_grain) {
  struct Ends {
    std::atomic<int> odd{0};
  } ends;
  for (int threads = 2; threads <= 4; ++threads)
    pool(threads).run(
        [](const void* a, int64_t begin, int64_t end, int) {
          if (begin % 16 || (end % 16 && end != 1001))
            static_cast<Ends*>(const_cast<void*>(a))->odd.fetch_add(1);
        },
        &ends, 1001, 16);
  CHECK(ends.odd == 0);
}

// Plain, unsynchronized data: what one region writes the next one reads, on whatever thread.
TEST(a_hundred_thousand_tiny_regions) {
  for (const int threads : {2, 3}) {
    std::vector<int64_t> values(48, 0);
    struct Region {
      std::vector<int64_t>* values;
      int64_t step;
    };
    const auto body = [](const void* a, int64_t begin, int64_t end, int) {
      const Region& r = *static_cast<const Region*>(a);
      for (int64_t i = begin; i < end; ++i) {
        int64_t& v = (*r.values)[static_cast<size_t>(i)];
        if (v == r.step) ++v;
      }
    };
    for (int64_t step = 0; step < 50000; ++step) {
      const Region r{&values, step};
      if (step % 2)
        pool(threads).run(body, &r, 48);
      else
        pool(threads).run_dynamic(body, &r, 48, 5);
    }
    CHECK(std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 50000; }));
  }
}

double cpu_seconds() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

TEST(idle_workers_sleep) {
  ThreadPool p(4);
  Counts c(100, 4);
  p.run(count, &c, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(cpu_seconds() - before < 0.005);
  p.run(count, &c, 100);  // and wake again
  CHECK(std::all_of(c.hits.begin(), c.hits.end(), [](const auto& h) { return h == 2; }));
}

TEST(pools_come_and_go) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool p(1 + i % 4);
    Counts c(10, 4);
    if (i % 3) p.run(count, &c, 10);
    if (i % 3) CHECK(std::all_of(c.hits.begin(), c.hits.end(), [](const auto& h) { return h == 1; }));
  }
}

struct Seen {
  std::atomic<int> workers{0}, open_signals{0}, other_rounding{0}, other_mask{0}, arrived{0};
  cpu_set_t mask;
};

TEST(workers_inherit_what_they_should) {
  Seen seen;
  sched_getaffinity(0, sizeof seen.mask, &seen.mask);
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  fesetround(FE_UPWARD);
  {
    ThreadPool p(3);
    // Each piece waits for all three, so three threads must take part.
    p.run(
        [](const void* a, int64_t, int64_t, int thread) {
          Seen& s = *static_cast<Seen*>(const_cast<void*>(a));
          s.arrived.fetch_add(1);
          while (s.arrived < 3) sched_yield();
          if (fegetround() != FE_UPWARD) s.other_rounding.fetch_add(1);
          if (thread == 0) return;
          s.workers.fetch_add(1);
          sigset_t now;
          pthread_sigmask(SIG_SETMASK, nullptr, &now);
          for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM, SIGPIPE})
            if (!sigismember(&now, signal)) s.open_signals.fetch_add(1);
          cpu_set_t mask;
          sched_getaffinity(0, sizeof mask, &mask);
          if (!CPU_EQUAL(&mask, &s.mask)) s.other_mask.fetch_add(1);
        },
        &seen, 3);
  }
  fesetround(FE_TONEAREST);
  CHECK(seen.workers == 2);
  CHECK(seen.open_signals == 0);
  CHECK(seen.other_rounding == 0);
  CHECK(seen.other_mask == 0);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);  // the host's own mask is as it was
  for (int signal = 1; signal < 32; ++signal)
    CHECK(sigismember(&before, signal) == sigismember(&after, signal));
}

// ---- the machine, laid out in a folder -----------------------------------------------------------

struct Machine {
  std::string root;
  Machine() {
    char folder[] = "/tmp/orlop_machine_XXXXXX";
    root = mkdtemp(folder);
  }
  ~Machine() { std::filesystem::remove_all(root); }
  void file(const std::string& path, const std::string& text) {
    const std::filesystem::path p = root + path;
    std::filesystem::create_directories(p.parent_path());
    std::ofstream(p) << text;
  }
  void cores(int n, int siblings) {
    for (int i = 0; i < n; ++i) {
      const int core = i % (n / siblings);
      std::string list = cat(core);
      for (int s = 1; s < siblings; ++s) list += cat(",", core + s * n / siblings);
      file(cat("/sys/devices/system/cpu/cpu", i, "/topology/core_cpus_list"), list + "\n");
    }
  }
};

const char* v2_mount = "30 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

TEST(threads_from_cores) {
  Machine m;
  m.cores(8, 2);
  cpu::ThreadChoice c = cpu::choose_threads(m.root, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(c.threads == 4);
  CHECK(c.why == "4 cores of 8 SMT threads, quota none");
  CHECK(cpu::choose_threads(m.root, {0, 4}).threads == 1);  // two siblings
  CHECK(cpu::choose_threads(m.root, {0, 1, 2}).threads == 3);
  CHECK(cpu::choose_threads(m.root + "/none", {0, 1, 2}).threads == 3);  // no /sys
}

TEST(nodes_of_processors) {
  Machine m;
  const std::string folder = "/sys/devices/system/node/";
  using Nodes = std::vector<int>;
  CHECK(cpu::memory_nodes(m.root, {0, 1}).empty());  // no /sys
  m.file(folder + "online", "0-1,4\n");
  m.file(folder + "node0/cpulist", "0-3,8-11\n");
  m.file(folder + "node1/cpulist", "4-7,12\n");
  m.file(folder + "node4/cpulist", "\n");  // memory alone
  CHECK((cpu::memory_nodes(m.root, {0, 1, 2}) == Nodes{0}));
  CHECK((cpu::memory_nodes(m.root, {11, 12}) == Nodes{0, 1}));
  CHECK((cpu::memory_nodes(m.root, {12}) == Nodes{1}));
  CHECK(cpu::memory_nodes(m.root, {13}).empty());
  m.file(folder + "online", "0-999999999999\n");
  CHECK(cpu::memory_nodes(m.root, {0}).empty());
}

TEST(threads_from_quota_v2) {
  Machine m;
  m.cores(8, 1);
  m.file("/proc/self/mountinfo", v2_mount);
  m.file("/proc/self/cgroup", "0::/a/b\n");
  m.file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(cpu::cpu_quota(m.root) == 0);
  CHECK(cpu::choose_threads(m.root, all).threads == 8);
  m.file("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");  // an ancestor binds too
  CHECK(cpu::cpu_quota(m.root) == 2.5);
  CHECK(cpu::choose_threads(m.root, all).threads == 2);
  CHECK(cpu::choose_threads(m.root, all).why == "8 cores, quota 2.5 CPUs");
  m.file("/sys/fs/cgroup/a/b/cpu.max", "30000 100000\n");
  CHECK(cpu::choose_threads(m.root, all).threads == 1);
  m.file("/sys/fs/cgroup/a/b/cpu.max", "nonsense\n");
  CHECK(cpu::choose_threads(m.root, all).threads == 2);
}

TEST(threads_from_quota_v1) {
  Machine m;
  m.cores(8, 1);
  m.file("/proc/self/mountinfo",
         "33 24 0:30 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
         "34 24 0:31 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  m.file("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n");
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(cpu::cpu_quota(m.root) == 0);
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
  CHECK(cpu::cpu_quota(m.root) == 3);
  m.file("/proc/meminfo", "MemTotal: 900 kB\nMemAvailable:    800 kB\n");
  CHECK(cpu::memory_available(m.root) == 800 * 1024);
  m.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  m.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n");
  m.file("/sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 100000\n");
  CHECK(cpu::memory_available(m.root) == 300000);
}

TEST(memory_from_v2_limits) {
  Machine m;
  m.file("/proc/self/mountinfo", v2_mount);
  m.file("/proc/self/cgroup", "0::/a\n");
  m.file("/proc/meminfo", "MemAvailable: 4000 kB\n");
  m.file("/sys/fs/cgroup/a/memory.max", "max\n");
  CHECK(cpu::memory_available(m.root) == 4096000);
  m.file("/sys/fs/cgroup/memory.max", "1000000\n");
  m.file("/sys/fs/cgroup/memory.current", "400000\n");
  CHECK(cpu::memory_available(m.root) == 600000);
}

TEST(this_machine) {
  const cpu::ThreadChoice c = cpu::default_threads();
  CHECK(c.threads >= 1 && c.threads <= static_cast<int>(cpu::affinity_cpus().size()));
  CHECK(!c.why.empty());
  std::printf("threads: %d (%s)\n", c.threads, c.why.c_str());
}

// ---- ISA, backend, device --------------------------------------------------------------------------

TEST(isa_by_name) {
  CHECK(cpu::isa_named("ref").level == cpu::Isa::ref);
  CHECK_THROWS(invalid_argument, "\"sse9\"", cpu::isa_named("sse9"));
  int known = 0;
  for (const char* word : {"avx2", "avx512", "avx512bf16", "amx", "neon", "neondot", "i8mm", "sve"}) {
    CHECK(backend_feature(word) == cpu::feature(word));
    known += cpu::feature(word);
    if (cpu::feature(word))
      CHECK(cpu::isa_named(word).level != cpu::Isa::ref);
    else
      CHECK_THROWS(invalid_argument, word, cpu::isa_named(word));
  }
  CHECK((known == 0) == (cpu::best_isa().level == cpu::Isa::ref));
  // What an emulated processor is said to have.
  if (const char* expected = std::getenv("ORLOP_TEST_EXPECT"))
    CHECK(make_backend({})->describe().find(std::string("cpu ") + expected + ", ") == 0);
#ifndef ORLOP_WITH_CUDA  // with it, it depends on the machine
  CHECK(!backend_feature("cuda"));
#endif
  setenv("ORLOP_ISA", "avx1024", 1);
  CHECK_THROWS(invalid_argument, "avx1024", make_backend({}));
  setenv("ORLOP_ISA", "ref", 1);
  CHECK(make_backend({})->describe().find("cpu ref, ") == 0);
  CHECK(make_backend({})->default_compute() == Compute::bf16);
  unsetenv("ORLOP_ISA");
}

TEST(backends_by_name) {
  CHECK_THROWS(not_found, "\"tpu\"", make_backend({"tpu", 0}));
#ifdef ORLOP_WITH_CUDA
  CHECK_THROWS(invalid_argument, "cuda:x", make_backend({"cuda:x", 0}));
#else
  CHECK_THROWS(unsupported, "cuda:1", make_backend({"cuda:1", 0}));
#endif
  CHECK_THROWS(invalid_argument, "threads: -1", make_backend({"cpu", -1}));
  const std::unique_ptr<Backend> b = make_backend({"cpu", 3});
  CHECK(b->threads() == 3);
  CHECK(b->threads_why().find("as asked") == 0);
  std::printf("%s\n", b->describe().c_str());
  const Exec e = b->exec();
  const Kernels& k = *e.kernels;
  CHECK(k.linear_bytes && k.linear_tiles && k.linear_pack && k.matmul_workspace && k.matmul);
  CHECK(k.embed && k.kv_page_bytes && k.rope_table && k.kv_store && k.attention_workspace);
  CHECK(k.attention && k.norm && k.gather && k.sample_workspace && k.sample);
}

TEST(device_memory) {
  const std::unique_ptr<Device> device = cpu::make_device();
  CHECK(device->memory_available() > 0);
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{4097}, (size_t{2} << 20) - 1, size_t{2} << 20,
                             (size_t{5} << 20) + 12345, (size_t{33} << 20) + 1}) {
    unsigned char* p = static_cast<unsigned char*>(device->allocate(bytes));
    CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    CHECK(std::all_of(p, p + bytes, [](unsigned char b) { return b == 0; }));
    device->fill(p, 0x5a, bytes);
    std::vector<unsigned char> back(bytes);
    device->download(back.data(), p, bytes);
    CHECK(back[bytes - 1] == 0x5a);
    back[0] = 7;
    device->upload(p, back.data(), bytes);
    CHECK(p[0] == 7);
    device->release(p, bytes);
  }
  CHECK_THROWS(out_of_memory, "1125899906842624", device->allocate(size_t{1} << 50));
  CHECK_THROWS(out_of_memory, "18446744073709551615", device->allocate(~size_t{0}));
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
