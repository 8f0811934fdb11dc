// Runs a model over prompts without the engine: pages handed out by a counter, batches by hand.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/checked.h"
#include "format/checkpoint.h"
#include "model/model.h"

namespace orlop::test {

struct Golden {
  std::vector<int32_t> ids;
  std::vector<float> logits;  // [ids, vocab]
  int32_t vocab = 0;
  std::vector<int32_t> greedy;
  std::vector<float> margin;
};

inline std::vector<Golden> read_golden(const std::string& folder) {
  std::ifstream in(folder + "/golden.bin", std::ios::binary);
  if (!in) fail(Status::not_found, folder, "/golden.bin");
  const auto ints = [&](size_t n) {
    std::vector<int32_t> v(n);
    in.read(reinterpret_cast<char*>(v.data()), static_cast<std::streamsize>(n * 4));
    return v;
  };
  const auto floats = [&](size_t n) {
    std::vector<float> v(n);
    in.read(reinterpret_cast<char*>(v.data()), static_cast<std::streamsize>(n * 4));
    return v;
  };
  std::vector<Golden> all(static_cast<size_t>(ints(1)[0]));
  for (Golden& g : all) {
    const std::vector<int32_t> head = ints(3);
    g.vocab = head[1];
    g.ids = ints(static_cast<size_t>(head[0]));
    g.logits = floats(static_cast<size_t>(head[0]) * static_cast<size_t>(head[1]));
    g.greedy = ints(static_cast<size_t>(head[2]));
    g.margin = floats(static_cast<size_t>(head[2]));
  }
  if (!in) fail(Status::bad_format, folder, "/golden.bin is cut short");
  return all;
}

// Where the tests run: ORLOP_TEST_DEVICE, else the processor.
inline std::string test_device() {
  const char* named = std::getenv("ORLOP_TEST_DEVICE");
  return named && *named ? named : "cpu";
}

// A model in two parts: the last `above` layers where the test runs, those before them on `lower`.
struct Split {
  int32_t above = -1;  // below 0: in one part
  std::string lower = "cpu";
};

// ORLOP_TEST_GPU_LAYERS, as n_gpu_layers: the layers before those run on the processor.
inline Split test_split() {
  const char* named = std::getenv("ORLOP_TEST_GPU_LAYERS");
  return {.above = named && *named ? std::atoi(named) : -1};
}

struct LoadedModel {
  std::unique_ptr<Backend> backend, lower;
  std::unique_ptr<Model> model;
};

inline std::unique_ptr<Model> load_in_parts(std::shared_ptr<Checkpoint> checkpoint, Backend& upper, Backend& lower,
                                            int32_t above, const ModelLimits& limits) {
  const int32_t layers = read_config(*checkpoint).layers, below = std::max(0, layers - above);
  const Part parts[] = {{lower.exec(), 0, below, limits.compute}, {upper.exec(), below, layers, limits.compute}};
  return load_model(std::move(checkpoint), parts, limits, nullptr);
}

inline LoadedModel load(const std::string& path, Compute compute, KvType kv, int threads = 2,
                        int32_t max_rows = 128, const std::string& device = test_device(),
                        const Split& split = test_split(), LoadMode mode = LoadMode::mmap) {
  LoadedModel m;
  m.backend = make_backend({.device = device, .threads = threads});
  ModelLimits limits;
  limits.max_rows = max_rows;
  limits.max_seqs = 16;
  limits.max_context = 256;
  limits.max_logit_rows = 32;
  limits.kv_type = kv;
  limits.compute = compute;
  const auto checkpoint = Checkpoint::open(path, mode);
  if (split.above < 0) {
    m.model = load_model(checkpoint, m.backend->exec(), limits, nullptr);
  } else {
    m.lower = make_backend({.device = split.lower, .threads = threads});
    m.model = load_in_parts(checkpoint, *m.backend, *m.lower, split.above, limits);
  }
  m.model->allocate_cache(std::vector<int64_t>(m.model->groups().size(), 300));
  for (size_t g = 0; g < m.model->groups().size(); ++g)
    for (int32_t p = 0; p < 300; ++p) m.model->poison_page(static_cast<int>(g), p);
  return m;
}

// One sequence under computation.
struct Sequence {
  std::vector<int32_t> ids;
  int32_t done = 0;
  std::vector<int32_t> pages;
  int32_t seat = 0;
};

// A stretch of one sequence to compute in a step.
struct Slice {
  Sequence* seq;
  int32_t rows;
};

// Runs one step and returns the logits of every row, in row order: [rows, vocab].
inline std::vector<float> step(LoadedModel& m, std::span<const Slice> slices, int32_t& next_page) {
  const int32_t page_tokens = m.model->limits().page_tokens;
  std::vector<int32_t> tokens, positions, slots, table, rows_wanted;
  std::vector<AttentionSeq> seqs;
  int32_t max_context = 0;
  for (const Slice& s : slices) {
    Sequence& q = *s.seq;
    const int32_t end = q.done + s.rows;
    while (static_cast<int32_t>(q.pages.size()) * page_tokens < end) q.pages.push_back(next_page++);
    seqs.push_back({static_cast<int32_t>(tokens.size()), s.rows, q.done,
                    static_cast<int32_t>(table.size()), q.seat});
    table.insert(table.end(), q.pages.begin(), q.pages.end());
    for (int32_t p = q.done; p < end; ++p) {
      rows_wanted.push_back(static_cast<int32_t>(tokens.size()));
      tokens.push_back(q.ids[static_cast<size_t>(p)]);
      positions.push_back(p);
      slots.push_back(q.pages[static_cast<size_t>(p / page_tokens)] * page_tokens +
                      p % page_tokens);
    }
    q.done = end;
    max_context = std::max(max_context, end);
  }
  Batch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  for (size_t g = 0; g < m.model->groups().size(); ++g)
    batch.groups[g] = {seqs, table, slots};
  batch.logit_rows = rows_wanted;
  batch.max_context = max_context;
  m.model->forward(batch);

  const auto vocab = static_cast<size_t>(m.model->config().vocab);
  const auto total = static_cast<int32_t>(rows_wanted.size());
  std::vector<float> out(rows_wanted.size() * vocab);
  for (int32_t at = 0; at < total; at += m.model->limits().max_logit_rows) {
    const int32_t n = std::min(m.model->limits().max_logit_rows, total - at);
    const float* logits = m.model->logits(at, n);
    m.backend->exec().device->download(&out[static_cast<size_t>(at) * vocab], logits,
                                       static_cast<size_t>(n) * vocab * sizeof(float));
  }
  return out;
}

// The logits of a whole prompt in one step.
inline std::vector<float> prompt_logits(LoadedModel& m, const std::vector<int32_t>& ids) {
  Sequence seq{ids, 0, {}, 0};
  int32_t next_page = 0;
  const Slice slice{&seq, static_cast<int32_t>(ids.size())};
  return step(m, {&slice, 1}, next_page);
}

}  // namespace orlop::test
