// The guard device, and what a step moves over the border between host and device on it.
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "check.h"
#include "model/harness.h"
#include "ops/ops.h"

namespace orlop::test {
namespace {

// The signal that ends a child process that runs f, or 0.
template <class F>
int signal_of(F&& f) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    f();
    _exit(0);
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(memory_is_there_for_copies_and_kernels_alone) {
  const std::unique_ptr<Backend> backend = make_backend({.device = "guard", .threads = 2});
  const Exec exec = backend->exec();
  Device& device = *exec.device;
  CHECK(std::string(device.name()) == "guard" && std::string(exec.kernels->backend) == "guard");

  const DeviceBuffer a(device, 100 * sizeof(float)), b(device, 64);
  float host[100];
  for (int i = 0; i < 100; ++i) host[i] = static_cast<float>(i);
  device.upload(a.data(), host, sizeof host);
  volatile float* const x = a.as<volatile float>();
  CHECK(signal_of([&] { (void)x[0]; }) == SIGSEGV);
  CHECK(signal_of([&] { x[99] = 1; }) == SIGSEGV);
  CHECK(signal_of([] {}) == 0);

  device.copy(b.data(), a.as<float>() + 84, 64);
  float back[16] = {};
  device.download(back, b.data(), 64);
  for (int i = 0; i < 16; ++i) CHECK(back[i] == static_cast<float>(84 + i));
  device.fill(b.data(), 0, 64);

  const DeviceBuffer weight(device, sizeof host), out(device, sizeof host);
  for (float& w : host) w = 1;
  device.upload(weight.data(), host, sizeof host);
  NormArgs norm{.x = a.as<float>(), .x_stride = 100, .weight = weight.as<float>(), .eps = 0,
                .out = out.as<float>(), .out_stride = 100, .rows = 1, .dim = 100};
  ops::norm(exec, norm);
  CHECK(signal_of([&] { (void)x[0]; }) == SIGSEGV);
  norm.x = host;
  CHECK_THROWS(internal, "norm.x", ops::norm(exec, norm));
  norm.x = a.as<float>() + 1;
  CHECK_THROWS(internal, "norm.x", ops::norm(exec, norm));
  CHECK(signal_of([&] { (void)x[0]; }) == SIGSEGV);

  const DeviceCounters& c = *backend->counters();
  CHECK(c.uploads == 2 && c.uploaded_bytes == 2 * sizeof host && c.downloads == 1 &&
        c.downloaded_bytes == 64 && c.copies == 1 && c.fills == 1 && c.kernel_calls == 1);
  CHECK(make_backend({})->counters() == nullptr);
}

TEST(copies_name_the_wrong_side) {
  const std::unique_ptr<Backend> backend = make_backend({.device = "guard", .threads = 1});
  Device& device = *backend->exec().device;
  const DeviceBuffer a(device, 100);
  char host[200] = {};
  CHECK_THROWS(internal, "upload", device.upload(host, host, 10));
  CHECK_THROWS(internal, "upload", device.upload(a.data(), a.data(), 10));
  CHECK_THROWS(internal, "upload", device.upload(a.data(), host, 101));
  CHECK_THROWS(internal, "download", device.download(host, host, 10));
  CHECK_THROWS(internal, "download", device.download(a.data(), a.data(), 10));
  CHECK_THROWS(internal, "copy", device.copy(a.data(), host, 10));
  CHECK_THROWS(internal, "fill", device.fill(a.as<char>() + 1, 0, 100));
  CHECK_THROWS(out_of_memory, "guard", device.allocate(size_t{1} << 62));
  CHECK(backend->counters()->uploads == 0);
}

// What a kernel writes past the end hits pages that are never open.
TEST(the_end_of_an_allocation_is_a_wall) {
  const std::unique_ptr<Backend> backend = make_backend({.device = "guard", .threads = 1});
  const Exec exec = backend->exec();
  const DeviceBuffer packed(*exec.device, 64);
  LinearDesc desc{.k = 4096, .part_count = 1, .type = {FileType::f32}, .part_n = {16},
                  .compute = Compute::fp32};
  CHECK_THROWS(internal, "linear_pack",
               exec.kernels->linear_pack(desc, {}, 0, 1, packed.data()));
  char host[64] = {};
  CHECK_THROWS(internal, "packing", exec.kernels->linear_pack(desc, {}, 0, 1, host));
}

// Parts of one allocation, opened and closed by each other's side.
TEST(copies_within_one_allocation) {
  const std::unique_ptr<Backend> backend = make_backend({.device = "guard", .threads = 1});
  Device& device = *backend->exec().device;
  constexpr size_t part = 5000, parts = 64;
  const DeviceBuffer all(device, part * parts);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<char> host(part), back(part);
      for (size_t i = 0; i < 400; ++i) {
        const size_t from = (i * 7 % (parts / 8)) * 4 + t, to = parts / 2 + from;
        host.assign(part, static_cast<char>(i + t));
        device.upload(all.as<char>() + from * part, host.data(), part);
        device.copy(all.as<char>() + to * part, all.as<char>() + from * part, part);
        device.fill(all.as<char>() + from * part, 0, part);
        device.download(back.data(), all.as<char>() + to * part, part);
        wrong += back != host;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(signal_of([&] { (void)*all.as<volatile char>(); }) == SIGSEGV);
}

TEST(copies_from_many_threads) {
  const std::unique_ptr<Backend> backend = make_backend({.device = "guard", .threads = 1});
  Device& device = *backend->exec().device;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const DeviceBuffer mine(device, static_cast<size_t>(64 + 1000 * t + i));
        std::vector<char> host(mine.bytes(), static_cast<char>(t + i)), back(mine.bytes());
        device.upload(mine.data(), host.data(), host.size());
        device.download(back.data(), mine.data(), back.size());
        wrong += back != host;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(backend->counters()->uploads == 800 && backend->counters()->downloads == 800);
}

struct Moved {
  uint64_t uploads, downloads, copies, fills, bytes_down;
};
Moved moved(const LoadedModel& m) {
  const DeviceCounters& c = *m.backend->counters();
  return {c.uploads, c.downloads, c.copies, c.fills, c.downloaded_bytes};
}

// Runs 20 rows whose logits are wanted, in slices of at most 8, and checks every copy.
void check_step(LoadedModel& m, std::span<const SampleRow> samples, int32_t top_stride) {
  constexpr int32_t rows = 20, slice = 8;
  std::vector<int32_t> tokens(rows), at(rows), table = {0, 1};
  for (int32_t i = 0; i < rows; ++i) {
    tokens[static_cast<size_t>(i)] = 7 * i % 100;
    at[static_cast<size_t>(i)] = i;
  }
  const AttentionSeq seq{.row_begin = 0, .rows = rows, .pos_begin = 0, .page_begin = 0, .seat = 3};
  Batch batch;
  batch.tokens = tokens;
  batch.positions = batch.logit_rows = at;
  for (size_t g = 0; g < m.model->groups().size(); ++g)
    batch.groups[g] = {std::span(&seq, 1), table, at};
  batch.samples = samples;
  batch.max_context = rows;

  const Moved before = moved(m);
  m.model->forward(batch);
  const Moved ran = moved(m);
  CHECK(ran.uploads == before.uploads + 1);
  CHECK(ran.downloads == before.downloads && ran.copies == before.copies);

  std::vector<SampleResult> results(slice);
  std::vector<TokenLogprob> top(static_cast<size_t>(slice * top_stride));
  for (int32_t begin = 0; begin < rows; begin += slice) {
    const int32_t count = std::min(slice, rows - begin);
    const Moved then = moved(m);
    m.model->logits(begin, count);
    m.model->sample(results.data(), top_stride ? top.data() : nullptr, top_stride);
    const Moved now = moved(m);
    CHECK(now.uploads == then.uploads && now.copies == then.copies && now.fills == then.fills);
    CHECK(now.downloads == then.downloads + (top_stride ? 2 : 1));
    CHECK(now.bytes_down - then.bytes_down ==
          static_cast<uint64_t>(count) *
              (sizeof(SampleResult) + static_cast<uint64_t>(top_stride) * sizeof(TokenLogprob)));
    for (int32_t i = 0; i < count; ++i) {
      const SampleRow& row = samples[static_cast<size_t>(begin + i)];
      const SampleResult& r = results[static_cast<size_t>(i)];
      CHECK(row.given < 0 ? r.token >= 0 : r.token == row.given);
      CHECK(r.logprob <= 0);
      for (int32_t t = 0; t + 1 < row.n_logprobs; ++t)
        CHECK(top[static_cast<size_t>(i * top_stride + t)].logprob >=
              top[static_cast<size_t>(i * top_stride + t + 1)].logprob);
    }
  }
}

TEST(a_step_uploads_once_and_brings_back_ids_and_logprobs) {
  LoadedModel m = load(std::string(TEST_DATA) + "/tiny/llama", Compute::bf16, KvType::bf16, 2, 128,
                       "guard");
  const int32_t vocab = m.model->config().vocab;
  std::vector<SampleRow> samples(20);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = {};
    samples[i].top_p = samples[i].repetition_penalty = 1;
    samples[i].given = i % 2 ? -1 : static_cast<int32_t>(i);
    samples[i].n_logprobs = 0;
  }
  check_step(m, samples, 0);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].n_logprobs = static_cast<int32_t>(i % 6);
  check_step(m, samples, 5);
  check_step(m, samples, vocab);

  // More arrays than the staging had room for at load, and then fewer again.
  std::vector<TokenCount> counts(20000, {3, 1, 2});
  const std::vector<TokenLogprob> bias = {{5, 1.5f}, {6, -2.0f}};
  const std::vector<int32_t> forbidden = {1, 2};
  for (SampleRow& row : samples) {
    row.counts = counts.data();
    row.count_n = 20000;
    row.bias = bias.data();
    row.bias_n = 2;
    row.forbidden = forbidden.data();
    row.forbidden_n = 2;
    row.repetition_penalty = 1.1f;
  }
  check_step(m, samples, 5);
  for (SampleRow& row : samples) row.count_n = 1;
  check_step(m, samples, 5);
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
