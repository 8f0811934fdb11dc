// The CUDA backend's small ops alone: choosing tokens, embedding, rotary table, norm, gather: bench_cuda_rows [VOCAB].
// For each and each number of rows the time of a call, the median of several lists of calls that run as captured graphs.
// What bounds choosing tokens is reading the logits once (rows * vocab * 4 bytes at 4.41 TB/s on an H200, or from the
// second-level cache, where the product before has just left a few rows), the others reading and writing their rows
// (copying: 4.26 TB/s); and starting a kernel, 1 to 3 us.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

using namespace orlop;

namespace {

constexpr int calls = 32;  // of a list

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Median us of a call; add(i) makes the list's call i.
double time_of(Device& device, const std::function<void(int)>& add) {
  std::vector<double> times;
  const DeviceBuffer mark(device, 64);
  for (int round = 0; round < 9; ++round) {
    float one;
    device.download(&one, mark.data(), sizeof one);
    const double begin = now();
    for (int i = 0; i < calls; ++i) add(i);
    device.download(&one, mark.data(), sizeof one);
    if (round > 1) times.push_back((now() - begin) * 1e6 / calls);  // the first two are not graphs yet
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return times[3];
}

template <class T>
DeviceBuffer on(Device& device, const std::vector<T>& v) {
  DeviceBuffer b(device, v.size() * sizeof(T));
  device.upload(b.data(), v.data(), v.size() * sizeof(T));
  return b;
}

void sampling(Backend& gpu, int32_t vocab) {
  Device& device = *gpu.exec().device;
  const Kernels& k = *gpu.exec().kernels;
  constexpr int32_t most = 256;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  // [0]: as a language model's, a few far above the rest; [1]: normal, flat. Twice the largest batch each, so that it
  // does not come from the cache.
  std::vector<DeviceBuffer> logits;
  for (int kind = 0; kind < 2; ++kind) {
    std::vector<float> rows(static_cast<size_t>(vocab) * 16);
    for (float& v : rows) v = (kind ? 1.0f : 2.0f) * normal(engine);
    for (size_t i = 0; i < 16 * 200 && kind == 0; ++i) rows[engine() % rows.size()] = 11 + 3 * normal(engine);
    logits.emplace_back(device, rows.size() * 4 * (2 * most / 16));
    for (size_t r = 0; r < 2 * most / 16; ++r) device.upload(logits.back().as<float>() + r * rows.size(), rows.data(), rows.size() * 4);
  }
  SampleRow plain{};
  plain.top_p = plain.repetition_penalty = 1;
  plain.n_logprobs = -2;
  plain.given = -1;
  std::vector<TokenCount> counts;
  for (int i = 0; i < 1000; ++i) counts.push_back({i * 97 % vocab, 1, i % 3});
  const DeviceBuffer d_counts = on(device, counts), d_mask = on(device, std::vector<uint32_t>(static_cast<size_t>(vocab / 32 + 1), 0xffff0fffu));
  struct {
    const char* name;
    int kind;
    std::function<void(SampleRow&)> set;
  } const cases[] = {
      {"greedy", 0, [](SampleRow&) {}},
      {"greedy, logprob", 0, [](SampleRow& p) { p.n_logprobs = 0; }},
      {"greedy, 20 best", 0, [](SampleRow& p) { p.n_logprobs = 20; }},
      {"greedy, penalties and mask", 0,
       [&](SampleRow& p) { p.counts = d_counts.as<TokenCount>(), p.count_n = 1000, p.repetition_penalty = 1.1f, p.allowed = d_mask.as<uint32_t>(); }},
      {"temperature", 0, [](SampleRow& p) { p.temperature = 0.8f; }},
      {"top_k 50, top_p 0.9", 0, [](SampleRow& p) { p.temperature = 0.8f, p.top_k = 50, p.top_p = 0.9f; }},
      {"top_p 0.95", 0, [](SampleRow& p) { p.temperature = 0.8f, p.top_p = 0.95f; }},
      {"top_p 0.95, flat", 1, [](SampleRow& p) { p.temperature = 1, p.top_p = 0.95f; }},
      {"min_p 0.05", 0, [](SampleRow& p) { p.temperature = 1, p.min_p = 0.05f; }},
      {"top_k 1000, flat", 1, [](SampleRow& p) { p.temperature = 1, p.top_k = 1000; }},
  };
  const DeviceBuffer results(device, most * sizeof(SampleResult)), top(device, 32 * most * sizeof(TokenLogprob)), work(device, k.sample_workspace(most, vocab));
  std::printf("choosing tokens, vocab %d; us a call; rows:     1     16     64    128    256\n", vocab);
  for (const auto& c : cases) {
    std::printf("  %-40s", c.name);
    for (const int32_t rows : {1, 16, 64, 128, most}) {
      std::vector<SampleRow> params(static_cast<size_t>(rows), plain);
      for (size_t i = 0; i < params.size(); ++i) c.set(params[i]), params[i].seed = 5, params[i].position = i;
      const DeviceBuffer d_params = on(device, params);
      const int32_t places = 2 * most / rows;
      std::printf(" %6.1f", time_of(device, [&](int i) {
        k.sample(gpu.exec(), {logits[static_cast<size_t>(c.kind)].as<float>() + int64_t{i % places} * rows * vocab, vocab, rows, vocab, d_params.as<SampleRow>(),
                              results.as<SampleResult>(), top.as<TokenLogprob>(), 32, work.data()});
      }));
    }
    std::printf("\n");
  }
}

void small(Backend& gpu) {
  Device& device = *gpu.exec().device;
  const Kernels& k = *gpu.exec().kernels;
  constexpr int64_t most = 4096, dim = 4096, vocab = 32768, half = 64;
  std::mt19937 engine(3);
  std::vector<float> values(most * dim), frequency;
  for (float& v : values) v = static_cast<float>(engine() % 2001) / 1000 - 1;
  for (int i = 0; i < half; ++i) frequency.push_back(static_cast<float>(std::pow(500000.0, -static_cast<double>(i) / half)));
  std::vector<int32_t> ids(most), index(most), positions(most);
  for (size_t i = 0; i < most; ++i)
    ids[i] = static_cast<int32_t>(engine() % vocab), index[i] = static_cast<int32_t>(engine() % most), positions[i] = static_cast<int32_t>(engine() % 100000);
  std::vector<DeviceBuffer> x, out;
  for (int i = 0; i < 3; ++i) x.push_back(on(device, values)), out.push_back(on(device, values));
  const DeviceBuffer weight = on(device, std::vector<float>(dim, 1.5f)), d_ids = on(device, ids), d_index = on(device, index), d_positions = on(device, positions),
                     d_frequency = on(device, frequency), cosine(device, most * half * 4), sine(device, most * half * 4);
  std::printf("other ops on rows of %lld; us a call; rows:        1     32    256   1024   4096\n", static_cast<long long>(dim));
  const auto line = [&](const char* name, const std::function<void(size_t, int64_t)>& add) {
    std::printf("  %-40s", name);
    for (const int64_t rows : {1, 32, 256, 1024, 4096}) std::printf(" %6.2f", time_of(device, [&](int i) { add(static_cast<size_t>(i % 3), rows); }));
    std::printf("\n");
  };
  struct {
    const char* name;
    FileType type;
    int32_t group;
  } const tables[] = {{"embed bf16", FileType::bf16, 0}, {"embed int4, groups of 128", FileType::w4, 128}, {"embed q6_k", FileType::q6_k, 0}};
  for (const auto& t : tables) {
    LinearDesc d;
    d.k = dim;
    d.part_count = 1;
    d.type[0] = t.type;
    d.part_n[0] = vocab;
    d.group[0] = t.group;
    const DeviceBuffer packed(device, k.linear_bytes(d));
    device.fill(packed.data(), 0x3c, packed.bytes());
    line(t.name, [&](size_t i, int64_t rows) {
      k.embed(gpu.exec(), {.desc = &d, .packed = packed.data(), .ids = d_ids.as<int32_t>(), .scale = 1, .out = out[i].as<float>(), .rows = rows});
    });
  }
  line("norm", [&](size_t i, int64_t rows) { k.norm(gpu.exec(), {x[i].as<float>(), dim, weight.as<float>(), 1e-5f, out[i].as<float>(), dim, rows, dim}); });
  line("gather", [&](size_t i, int64_t rows) { k.gather(gpu.exec(), {x[i].as<float>(), dim, d_index.as<int32_t>(), out[i].as<float>(), rows, dim}); });
  line("rope table", [&](size_t, int64_t rows) {
    k.rope_table(gpu.exec(), {d_positions.as<int32_t>(), d_frequency.as<float>(), 1, rows, static_cast<int32_t>(half), cosine.as<float>(), sine.as<float>()});
  });
}

}  // namespace

int main(int count, char** values) {
  try {
    const std::unique_ptr<Backend> gpu = make_backend({.device = "cuda", .threads = 1});
    std::printf("%s\n", gpu->describe().c_str());
    sampling(*gpu, count > 1 ? std::atoi(values[1]) : 128256);
    small(*gpu);
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  return 0;
}
