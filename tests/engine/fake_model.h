// A model without weights: the cache stores tokens and positions, logits are a hash of the history
// read back from the cache. So a wrong page, slot, table or order shows as a wrong token, and what
// no one wrote shows as a failed check.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "model/model.h"

namespace orlop::test {

inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// What the fake says after a history: [vocab], a pure function.
inline std::vector<float> fake_logits(const std::vector<int32_t>& history, int32_t vocab) {
  uint64_t h = 17;
  for (const int32_t t : history) h = mix(h ^ static_cast<uint64_t>(t + 1));
  std::vector<float> out(static_cast<size_t>(vocab));
  for (size_t v = 0; v < out.size(); ++v)
    out[v] = static_cast<float>(mix(h + v) >> 40) * (8.0f / 16777216.0f);
  return out;
}

// Sampling enough to tell rows apart: all the row's parameters matter.
inline SampleResult fake_sample(const std::vector<float>& raw, const SampleRow& p,
                                TokenLogprob* top) {
  const size_t vocab = raw.size();
  double sum = 0;
  for (const float l : raw) sum += std::exp(static_cast<double>(l));
  const auto logprob = [&](size_t v) { return static_cast<float>(raw[v] - std::log(sum)); };
  if (p.n_logprobs == -1)
    for (size_t v = 0; v < vocab; ++v) top[v] = {static_cast<int32_t>(v), logprob(v)};
  if (p.n_logprobs > 0) {
    std::vector<size_t> order(vocab);
    for (size_t v = 0; v < vocab; ++v) order[v] = v;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return raw[a] > raw[b]; });
    for (int32_t i = 0; i < p.n_logprobs; ++i)
      top[i] = {static_cast<int32_t>(order[static_cast<size_t>(i)]),
                logprob(order[static_cast<size_t>(i)])};
  }
  if (p.given >= 0) return {p.given, logprob(static_cast<size_t>(p.given))};
  std::vector<double> l(raw.begin(), raw.end());
  for (int32_t i = 0; i < p.bias_n; ++i)
    l[static_cast<size_t>(p.bias[i].token)] += p.bias[i].logprob;
  for (int32_t i = 0; i < p.count_n; ++i) {
    double& x = l[static_cast<size_t>(p.counts[i].token)];
    if (p.counts[i].in_prompt || p.counts[i].generated)
      x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (p.counts[i].generated)
      x -= p.presence_penalty + p.frequency_penalty * p.counts[i].generated;
  }
  for (int32_t i = 0; i < p.forbidden_n; ++i)
    l[static_cast<size_t>(p.forbidden[i])] = -std::numeric_limits<double>::infinity();
  size_t best = 0;
  for (size_t v = 0; v < vocab; ++v) {
    if (p.temperature > 0) {  // Gumbel
      const uint64_t r = mix(mix(p.seed) ^ mix(p.position * 1315423911u + v));
      const double u = (static_cast<double>(r >> 11) + 0.5) / 9007199254740992.0;
      l[v] = l[v] / p.temperature - std::log(-std::log(u));
    }
    if (l[v] > l[best]) best = v;
  }
  return {static_cast<int32_t>(best), logprob(best)};
}

class FakeModel : public Model {
 public:
  FakeModel(const ModelLimits& limits, int32_t vocab, int groups) : limits_(limits) {
    config_.vocab = vocab;
    config_.max_position = limits.max_context;
    groups_.resize(static_cast<size_t>(groups));
    for (CacheGroup& g : groups_) g.page_bytes = 1024;
  }
  const Config& config() const override { return config_; }
  const ModelLimits& limits() const override { return limits_; }
  const std::vector<CacheGroup>& groups() const override { return groups_; }
  size_t weight_bytes() const override { return 0; }
  size_t workspace_bytes() const override { return 0; }

  void allocate_cache(const std::vector<int64_t>& pages) override {
    for (const int64_t n : pages)
      cache_.emplace_back(static_cast<size_t>(n * limits_.page_tokens), Cell{});
  }
  void poison_page(int group, int32_t page) override {
    for (int32_t i = 0; i < limits_.page_tokens; ++i)
      cell(group, page * limits_.page_tokens + i) = Cell{};
    ++poisoned;
  }

  void forward(const Batch& b) override {
    const int now = ++forwards;
    if (delay_us) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    if (now == throw_at) fail(Status::internal, "the fake fails");
    check_shape(b);
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t r = 0; r < b.tokens.size(); ++r)
        cell(static_cast<int>(g), b.groups[g].slots[r]) = {b.tokens[r], b.positions[r]};
    kept_.clear();
    for (const int32_t row : b.logit_rows) kept_.push_back(history(b, row));
  }

  const float* logits(int32_t begin, int32_t count) override {
    CHECK(count > 0 && count <= limits_.max_logit_rows);
    CHECK(begin >= 0 && static_cast<size_t>(begin + count) <= kept_.size());
    rows_.clear();
    for (int32_t i = 0; i < count; ++i)
      rows_.push_back(fake_logits(kept_[static_cast<size_t>(begin + i)], config_.vocab));
    return rows_[0].data();
  }
  void sample(int32_t rows, const SampleRow* params, SampleResult* results, TokenLogprob* top,
              int32_t top_stride) override {
    CHECK(static_cast<size_t>(rows) == rows_.size());
    for (int32_t i = 0; i < rows; ++i) {
      CHECK(params[i].n_logprobs <= top_stride);
      results[i] = fake_sample(rows_[static_cast<size_t>(i)], params[i],
                               top + static_cast<ptrdiff_t>(i) * top_stride);
      if (nan_token >= 0 && results[i].token == nan_token) results[i].token = -1;
    }
  }

  std::atomic<int> forwards{0}, poisoned{0};
  int throw_at = -1;   // the forward that throws
  int nan_token = -1;  // drawing this token is reported as "none can be drawn"
  int delay_us = 0;

 private:
  struct Cell {
    int32_t token = -7, position = -7;
  };
  Cell& cell(int group, int32_t slot) {
    std::vector<Cell>& c = cache_[static_cast<size_t>(group)];
    if (slot < 0 || static_cast<size_t>(slot) >= c.size()) fail(Status::internal, "slot ", slot);
    return c[static_cast<size_t>(slot)];
  }

  void check_shape(const Batch& b) {
    const size_t rows = b.tokens.size();
    CHECK(rows > 0 && rows <= static_cast<size_t>(limits_.max_rows));
    CHECK(b.positions.size() == rows);
    int32_t last = -1;
    for (const int32_t r : b.logit_rows) {
      CHECK(r > last && static_cast<size_t>(r) < rows);
      last = r;
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Batch::Group& group = b.groups[g];
      CHECK(group.slots.size() == rows);
      CHECK(group.seqs.size() <= static_cast<size_t>(limits_.max_seqs));
      int32_t row = 0;
      std::set<int32_t> pages;  // no page serves two sequences
      for (size_t s = 0; s < group.seqs.size(); ++s) {
        const AttentionSeq& q = group.seqs[s];
        CHECK(q.row_begin == row && q.rows > 0);
        row += q.rows;
        CHECK(q.pos_begin + q.rows <= b.max_context);
        CHECK(q.pos_begin + q.rows <= limits_.max_context);
        for (int32_t p = 0; p < q.pos_begin + q.rows; p += limits_.page_tokens)
          CHECK(pages.insert(page(group, q, p)).second);
        for (int32_t i = 0; i < q.rows; ++i) {
          const int32_t pos = q.pos_begin + i;
          CHECK(b.positions[static_cast<size_t>(q.row_begin + i)] == pos);
          CHECK(group.slots[static_cast<size_t>(q.row_begin + i)] == slot(group, q, pos));
        }
      }
      CHECK(static_cast<size_t>(row) == rows);
    }
  }
  int32_t page(const Batch::Group& g, const AttentionSeq& s, int32_t pos) const {
    return g.page_table[static_cast<size_t>(s.page_begin + pos / limits_.page_tokens)];
  }
  int32_t slot(const Batch::Group& g, const AttentionSeq& s, int32_t pos) const {
    return page(g, s, pos) * limits_.page_tokens + pos % limits_.page_tokens;
  }
  // Tokens up to a row, as every group's cache holds them.
  std::vector<int32_t> history(const Batch& b, int32_t row) {
    std::vector<int32_t> first;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Batch::Group& group = b.groups[g];
      const auto s = std::find_if(group.seqs.begin(), group.seqs.end(), [&](const AttentionSeq& q) {
        return row >= q.row_begin && row < q.row_begin + q.rows;
      });
      std::vector<int32_t> read;
      for (int32_t pos = 0; pos <= s->pos_begin + row - s->row_begin; ++pos) {
        const Cell& c = cell(static_cast<int>(g), slot(group, *s, pos));
        CHECK(c.position == pos);
        read.push_back(c.token);
      }
      if (g == 0) first = read;
      CHECK(read == first);
    }
    return first;
  }

  Config config_;
  ModelLimits limits_;
  std::vector<CacheGroup> groups_;
  std::vector<std::vector<Cell>> cache_;  // [groups][slots]
  std::vector<std::vector<int32_t>> kept_;
  std::vector<std::vector<float>> rows_;
};

}  // namespace orlop::test
