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
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_queue.h"
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
  // windows: of the cache groups, the first of them 0 (it keeps the whole history).
  FakeModel(const ModelLimits& limits, int32_t vocab, const std::vector<int32_t>& windows)
      : limits_(limits) {
    config_.vocab = vocab;
    config_.max_position = limits.max_context;
    for (const int32_t w : windows) {
      groups_.emplace_back();
      groups_.back().window = w;
      groups_.back().page_bytes = sizeof(Cell) * static_cast<size_t>(limits.page_tokens);
    }
  }
  const Config& config() const override { return config_; }
  const ModelLimits& limits() const override { return limits_; }
  const std::vector<CacheGroup>& groups() const override { return groups_; }
  size_t weight_bytes() const override { return 0; }
  size_t workspace_bytes() const override { return 0; }
  size_t seat_bytes() const override { return sizeof(Cell) * tile; }

  void allocate_cache(const std::vector<int64_t>& pages) override {
    for (const int64_t n : pages)
      cache_.emplace_back(static_cast<size_t>(n * limits_.page_tokens), Cell{});
    tails_.assign(static_cast<size_t>(limits_.max_seqs) * tile, Cell{});
  }
  void poison_page(int group, int32_t page) override {
    run([=, this] {
      for (int32_t i = 0; i < limits_.page_tokens; ++i)
        cell(group, page * limits_.page_tokens + i) = Cell{};
    });
    ++poisoned;
  }
  void copy_page(int group, int32_t from, int32_t to) override {
    run([=, this] {
      for (int32_t i = 0; i < limits_.page_tokens; ++i)
        cell(group, to * limits_.page_tokens + i) = cell(group, from * limits_.page_tokens + i);
    });
    ++copied;
  }
  void copy_seat(int32_t from, int32_t to) override {
    run([=, this] {
      for (int32_t i = 0; i < tile; ++i) tail(to, i) = tail(from, i);
    });
  }
  void read_page(int group, int32_t page, void* host) override {
    if (++reads == no_read_at) fail(Status::internal, "the fake reads no page");
    run([=, this] {
      std::copy_n(&cell(group, page * limits_.page_tokens), limits_.page_tokens,
                  static_cast<Cell*>(host));
    });
    if (later) queue_.drain(queue_.pushed());
    ++moved_out;
  }
  void write_page(int group, int32_t page, const void* host) override {
    const auto* cells = static_cast<const Cell*>(host);
    run([=, this, taken = std::vector<Cell>(cells, cells + limits_.page_tokens)] {
      std::copy(taken.begin(), taken.end(), &cell(group, page * limits_.page_tokens));
    });
    ++moved_in;
  }
  void sync() override {}
  void hidden(int32_t, int32_t, float*) override {}  // dim is 0

  void forward(const Batch& b) override {
    const int now = ++forwards;
    if (!pending_.empty()) ++ahead;
    if (now == throw_at) fail(Status::internal, "the fake fails");
    if (!checks) {
      if (delay_us) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      return forward_unchecked(b);
    }
    asked_ = b.samples.size();
    bool spoiled = false;  // it begins where results are lost and nobody knows yet
    for (const Pending& p : pending_) spoiled |= p.forward == lose_at;
    // What lies in host memory is taken now.
    run([this, spoiled, own = std::make_shared<const Taken>(b)] {
      const auto rows = static_cast<int>(own->tokens.size());
      if (const int us = delay_us + row_us * rows; us > 0)
        std::this_thread::sleep_for(std::chrono::microseconds(us));
      taken_ = own;
      compute(own->batch);
      spoiled_ = spoiled;
      if (!spoiled) return;
      for (size_t g = 0; g < groups_.size(); ++g)
        for (const int32_t s : own->slots[g]) cell(static_cast<int>(g), s) = Cell{};
    });
  }

  const float* logits(int32_t begin, int32_t count) override {
    CHECK(count > 0 && count <= limits_.max_logit_rows);
    begin_ = begin;
    count_ = count;
    if (!checks) {
      CHECK(begin >= 0 && static_cast<size_t>(begin + count) <= kept_.size());
      return nullptr;
    }
    CHECK(begin >= 0 && static_cast<size_t>(begin + count) <= asked_);
    run([=, this] {
      rows_.clear();
      for (int32_t i = 0; i < count; ++i)
        rows_.push_back(fake_logits(kept_[static_cast<size_t>(begin + i)], config_.vocab));
    });
    return nullptr;
  }
  uint64_t sample_later(SampleResult* results, TokenLogprob* top, int32_t top_stride) override {
    const auto rows = static_cast<size_t>(count_), stride = static_cast<size_t>(top_stride);
    if (!checks) {
      std::fill_n(results, rows, SampleResult{5, -1.0f});
      return 0;
    }
    const auto drawn = std::make_shared<Drawn>();
    run([this, rows, stride, drawn, begin = static_cast<size_t>(begin_)] {
      drawn->best.resize(rows * stride, {-5, -5});
      for (size_t i = 0; i < rows; ++i) {
        const SampleRow& row = taken_->samples[begin + i];
        CHECK(row.n_logprobs <= static_cast<int32_t>(stride));
        SampleResult r = fake_sample(rows_[i], row, drawn->best.data() + i * stride);
        if (nan_token >= 0 && r.token == nan_token) r.token = -1;
        if (spoiled_) r = {(r.token + 1) % config_.vocab, 0};
        drawn->results.push_back(r);
        drawn_[begin + i] = r.token;
      }
    });
    // Until they are waited for.
    std::fill_n(results, rows, SampleResult{vocab_and_more, NAN});
    std::fill_n(top, rows * stride, TokenLogprob{vocab_and_more, NAN});
    pending_.push_back({++tickets_, queue_.pushed(), forwards, results, top, drawn});
    if (!later) wait(tickets_);
    return tickets_;
  }
  uint64_t mark() override {
    pending_.push_back({++tickets_, queue_.pushed(), forwards, nullptr, nullptr, std::make_shared<Drawn>()});
    if (!later) wait(tickets_);
    return tickets_;
  }
  void wait(uint64_t ticket) override {
    CHECK(ticket <= tickets_);
    bool lost = false;
    while (!pending_.empty() && pending_.front().ticket <= ticket) {
      const Pending p = pending_.front();
      pending_.erase(pending_.begin());
      if (later) queue_.drain(p.calls);
      std::copy(p.drawn->results.begin(), p.drawn->results.end(), p.to);
      std::copy(p.drawn->best.begin(), p.drawn->best.end(), p.to_best);
      lost |= p.forward == lose_at;
    }
    if (lost) fail(Status::internal, "the fake's results are lost");
  }
  bool asynchronous() const override { return later; }
  size_t unread() const { return pending_.size(); }

  std::atomic<int> forwards{0}, poisoned{0}, copied{0}, moved_out{0}, moved_in{0};
  std::atomic<int64_t> rows_computed{0};
  std::atomic<int> throw_at{-1};  // the forward that throws
  std::atomic<int> no_read_at{-1}, reads{0};  // the read of a page that throws
  std::atomic<int> lose_at{-1};   // waiting for what this one drew throws
  std::atomic<int> ahead{0};      // forwards that began while results were not waited for
  std::atomic<int> unknown{0};    // rows whose token the step before drew
  bool later = false;             // as a device that works on its own: results come with wait()
  std::atomic<int> nan_token{-1};             // drawing this token is reported as "none can be drawn"
  std::atomic<int> delay_us{0}, row_us{0};  // that a forward takes, and each of its rows
  bool checks = true;             // false: for timing what surrounds it

 private:
  static constexpr int32_t vocab_and_more = 1 << 20;
  static constexpr int32_t tile = 16;  // as a quantized cache keeps the keys of an open tile apart
  struct Cell {
    int32_t token = -7, position = -7;
    bool operator==(const Cell&) const = default;
  };
  Cell& cell(int group, int32_t slot) {
    std::vector<Cell>& c = cache_[static_cast<size_t>(group)];
    if (slot < 0 || static_cast<size_t>(slot) >= c.size()) fail(Status::internal, "slot ", slot);
    return c[static_cast<size_t>(slot)];
  }
  Cell& tail(int32_t seat, int32_t at) {
    if (seat < 0 || seat >= limits_.max_seqs) fail(Status::internal, "seat ", seat);
    return tails_[static_cast<size_t>(seat * tile + at)];
  }
  // A batch with what it points at.
  struct Taken {
    explicit Taken(const Batch& b)
        : tokens(b.tokens.begin(), b.tokens.end()),
          positions(b.positions.begin(), b.positions.end()),
          logit_rows(b.logit_rows.begin(), b.logit_rows.end()),
          samples(b.samples.begin(), b.samples.end()) {
      for (SampleRow& s : samples) {
        s.counts = copy(counts, s.counts, s.count_n);
        s.bias = copy(biases, s.bias, s.bias_n);
        s.forbidden = copy(forbidden, s.forbidden, s.forbidden_n);
        s.allowed = nullptr;
      }
      batch = {tokens, positions, {}, logit_rows, samples, b.max_context};
      for (int g = 0; g < max_cache_groups; ++g) {
        const Batch::Group& from = b.groups[g];
        seqs[g].assign(from.seqs.begin(), from.seqs.end());
        tables[g].assign(from.page_table.begin(), from.page_table.end());
        slots[g].assign(from.slots.begin(), from.slots.end());
        batch.groups[g] = {seqs[g], tables[g], slots[g]};
      }
    }
    template <class T>
    static const T* copy(std::deque<std::vector<T>>& to, const T* from, int32_t n) {
      return to.emplace_back(from, from + n).data();
    }
    std::vector<int32_t> tokens, positions, logit_rows;
    std::vector<SampleRow> samples;
    std::deque<std::vector<TokenCount>> counts;
    std::deque<std::vector<TokenLogprob>> biases;
    std::deque<std::vector<int32_t>> forbidden;
    std::vector<AttentionSeq> seqs[max_cache_groups];
    std::vector<int32_t> tables[max_cache_groups], slots[max_cache_groups];
    Batch batch;
  };
  struct Drawn {
    std::vector<SampleResult> results;
    std::vector<TokenLogprob> best;
  };

  template <class Work>
  void run(Work work) {
    later ? queue_.push(std::move(work)) : work();
  }

  void compute(const Batch& b) {
    check_shape(b);
    tokens_.assign(b.tokens.begin(), b.tokens.end());
    for (int32_t& t : tokens_) {
      if (t >= 0) continue;
      ++unknown;
      CHECK(static_cast<size_t>(-1 - t) < drawn_.size());
      t = std::max(0, drawn_[static_cast<size_t>(-1 - t)]);
    }
    check_tails(b);
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t r = 0; r < tokens_.size(); ++r)
        cell(static_cast<int>(g), b.groups[g].slots[r]) = {tokens_[r], b.positions[r]};
    drawn_.assign(b.logit_rows.size(), -1);
    kept_.clear();
    for (const int32_t row : b.logit_rows) kept_.push_back(history(b, row));
    CHECK(b.samples.size() == kept_.size());
    rows_computed += static_cast<int64_t>(b.tokens.size());
  }
  void forward_unchecked(const Batch& b) {
    kept_.resize(b.logit_rows.size());
    rows_computed += static_cast<int64_t>(b.tokens.size());
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
      std::set<int32_t> seats;
      std::map<int32_t, int> readers;  // of each page
      std::set<int32_t> written;       // each by one sequence that alone holds it
      for (size_t s = 0; s < group.seqs.size(); ++s) {
        const AttentionSeq& q = group.seqs[s];
        CHECK(q.row_begin == row && q.rows > 0);
        CHECK(seats.insert(q.seat).second);
        row += q.rows;
        CHECK(q.pos_begin + q.rows <= b.max_context);
        CHECK(q.pos_begin + q.rows <= limits_.max_context);
        const int32_t from = first_visible(g, q.pos_begin);
        for (int32_t p = from / limits_.page_tokens * limits_.page_tokens; p < q.pos_begin + q.rows;
             p += limits_.page_tokens)
          ++readers[page(group, q, p)];
        for (int32_t i = 0; i < q.rows; ++i) {
          const int32_t pos = q.pos_begin + i;
          CHECK(b.positions[static_cast<size_t>(q.row_begin + i)] == pos);
          CHECK(group.slots[static_cast<size_t>(q.row_begin + i)] == slot(group, q, pos));
          written.insert(page(group, q, pos));
        }
      }
      for (const int32_t p : written) CHECK(readers[p] == 1);
      CHECK(static_cast<size_t>(row) == rows);
    }
  }
  // What a seat keeps of its sequence's open tile is what the sequence left there.
  void check_tails(const Batch& b) {  // of tokens_
    if (limits_.page_tokens % tile) return;
    for (const AttentionSeq& q : b.groups[0].seqs) {
      for (int32_t pos = q.pos_begin / tile * tile; pos < q.pos_begin; ++pos)
        CHECK(tail(q.seat, pos % tile) == cell(0, slot(b.groups[0], q, pos)));
      const int32_t end = q.pos_begin + q.rows;
      for (int32_t pos = std::max(q.pos_begin, (end - 1) / tile * tile); pos < end; ++pos)
        tail(q.seat, pos % tile) = {tokens_[static_cast<size_t>(q.row_begin + pos - q.pos_begin)],
                                    pos};
    }
  }
  int32_t first_visible(size_t g, int32_t pos) const {
    const int32_t window = groups_[g].window;
    return window > 0 ? std::max(0, pos - window + 1) : 0;
  }
  int32_t page(const Batch::Group& g, const AttentionSeq& s, int32_t pos) const {
    return g.page_table[static_cast<size_t>(s.page_begin + pos / limits_.page_tokens)];
  }
  int32_t slot(const Batch::Group& g, const AttentionSeq& s, int32_t pos) const {
    return page(g, s, pos) * limits_.page_tokens + pos % limits_.page_tokens;
  }
  // Tokens up to a row, as every group's cache holds what its window shows.
  std::vector<int32_t> history(const Batch& b, int32_t row) {
    std::vector<int32_t> all;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Batch::Group& group = b.groups[g];
      const auto s = std::find_if(group.seqs.begin(), group.seqs.end(), [&](const AttentionSeq& q) {
        return row >= q.row_begin && row < q.row_begin + q.rows;
      });
      const int32_t last = s->pos_begin + row - s->row_begin;
      for (int32_t pos = first_visible(g, last); pos <= last; ++pos) {
        const Cell& c = cell(static_cast<int>(g), slot(group, *s, pos));
        CHECK(c.position == pos);
        if (g == 0)
          all.push_back(c.token);
        else
          CHECK(c.token == all[static_cast<size_t>(pos)]);
      }
    }
    return all;
  }

  Config config_;
  ModelLimits limits_;
  std::vector<CacheGroup> groups_;
  std::vector<std::vector<Cell>> cache_;  // [groups][slots]
  std::vector<Cell> tails_;               // [seats, tile]
  std::shared_ptr<const Taken> taken_;  // by the last forward
  std::vector<std::vector<int32_t>> kept_;
  bool spoiled_ = false;
  std::vector<int32_t> tokens_;  // of the batch
  std::vector<int32_t> drawn_;   // by the rows that the last forward kept
  std::vector<std::vector<float>> rows_;
  // ---- the caller's side
  struct Pending {
    uint64_t ticket, calls;  // of the queue's, those before it
    int forward;
    SampleResult* to;
    TokenLogprob* to_best;
    std::shared_ptr<Drawn> drawn;
  };
  std::vector<Pending> pending_;  // not waited for
  uint64_t tickets_ = 0;
  size_t asked_ = 0;
  int32_t count_ = 0;
  int32_t begin_ = 0;
  FakeQueue queue_;  // with `later` all above works there
};

}  // namespace orlop::test
