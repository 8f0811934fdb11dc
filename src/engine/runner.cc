#include "engine/runner.h"

#include <algorithm>

#include "base/error.h"
#include "engine/request.h"

namespace orlop {
static_assert(max_page_groups == max_cache_groups);

Runner::Runner(Model& model) : model_(model), vocab_(model.config().vocab) {
  const ModelLimits& m = model.limits();
  const auto rows = static_cast<size_t>(m.max_rows), seqs = static_cast<size_t>(m.max_seqs);
  const auto slice = static_cast<size_t>(m.max_logit_rows);
  const auto seq_pages = static_cast<size_t>((m.max_context + m.page_tokens - 1) / m.page_tokens);
  tokens_.reserve(rows);
  positions_.reserve(rows);
  groups_.resize(model.groups().size());
  for (Group& g : groups_) {
    g.seqs.reserve(seqs);
    g.page_table.reserve(seqs * seq_pages);
    g.slots.reserve(rows);
  }
  logit_rows_.reserve(rows);
  wanted_.reserve(rows);
  params_.reserve(rows);
  guided_.reserve(seqs);
  results_.resize(slice);
  top_.resize(std::max(static_cast<size_t>(vocab_), slice * 32));
}

void Runner::pack(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  wanted_.clear();
  params_.clear();
  guided_.clear();
  max_context_ = 0;
  keys_ = 0;
  for (Group& g : groups_) {
    g.seqs.clear();
    g.page_table.clear();
    g.slots.clear();
  }
  const int32_t page_tokens = model_.limits().page_tokens;
  for (const PlanSeq& p : plan.seqs) {
    auto& sample = static_cast<Sample&>(*p.sequence);
    const auto row_begin = static_cast<int32_t>(tokens_.size());
    const int32_t end = p.begin + p.rows;
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& g = groups_[i];
      const std::vector<int32_t>& pages = sample.pages[i];
      g.seqs.push_back({row_begin, p.rows, p.begin, static_cast<int32_t>(g.page_table.size()),
                        sample.seat});
      const int32_t used = (end + page_tokens - 1) / page_tokens;
      // Behind a window there is no page; none is read there either.
      for (int32_t page = 0; page < used; ++page)
        g.page_table.push_back(std::max(0, pages[static_cast<size_t>(page)]));
      for (int32_t pos = p.begin; pos < end; ++pos)
        g.slots.push_back(pages[static_cast<size_t>(pos / page_tokens)] * page_tokens +
                          pos % page_tokens);
    }
    for (int32_t pos = p.begin; pos < end; ++pos) {
      // Row pos gives the distribution of token pos + 1.
      const bool draw = p.draw && pos + 1 == end;
      const bool score = pos + 1 < sample.prompt_tokens && pos + 1 >= sample.unscored();
      const bool pool = pos < sample.prompt_tokens && pos >= sample.unpooled();
      if (draw || score || pool) {
        logit_rows_.push_back(static_cast<int32_t>(tokens_.size()));
        wanted_.push_back({&sample, pool ? pos : pos + 1, draw, pool});
        params_.push_back(sample_row(wanted_.back()));
        if (draw && sample.mask()) guided_.push_back(&sample);
      }
      tokens_.push_back(sample.tokens[static_cast<size_t>(pos)]);
      positions_.push_back(pos);
    }
    max_context_ = std::max(max_context_, end);
    keys_ += 0.5 * p.rows * (static_cast<double>(p.begin) + end + 1);
  }
}

SampleRow Runner::sample_row(const LogitRow& row) const {
  const Sample& sample = *row.sample;
  const SamplingParams& p = sample.params();
  SampleRow s{};
  s.top_p = s.repetition_penalty = 1;
  if (row.pool) return s;
  if (!row.draw) {
    s.n_logprobs = sample.prompt_logprobs();
    s.given = sample.tokens[static_cast<size_t>(row.position)];
    return s;
  }
  s.temperature = p.temperature;
  s.top_k = p.top_k;
  s.top_p = p.top_p;
  s.min_p = p.min_p;
  s.repetition_penalty = p.repetition_penalty;
  s.presence_penalty = p.presence_penalty;
  s.frequency_penalty = p.frequency_penalty;
  s.seed = sample.seed();
  s.position = static_cast<uint64_t>(row.position);
  s.counts = sample.counts().data();
  s.count_n = static_cast<int32_t>(sample.counts().size());
  s.bias = p.bias.data();
  s.bias_n = static_cast<int32_t>(p.bias.size());
  if (const std::vector<int32_t>* f = sample.forbidden()) {
    s.forbidden = f->data();
    s.forbidden_n = static_cast<int32_t>(f->size());
  }
  s.allowed = sample.mask();
  s.n_logprobs = p.logprobs;
  s.given = -1;
  return s;
}

void Runner::sample(Sink& sink) {
  const auto slice = static_cast<size_t>(model_.limits().max_logit_rows);
  for (size_t begin = 0; begin < wanted_.size();) {
    if (wanted_[begin].pool) {
      begin += pool(sink, begin);
      continue;
    }
    // As many rows as the logits buffer and the buffer of best tokens hold.
    size_t count = 0;
    int32_t stride = 0;
    while (begin + count < wanted_.size() && count < slice && !wanted_[begin + count].pool) {
      const int32_t wide = std::max(stride, top_width(wanted_[begin + count]));
      if (count && (count + 1) * static_cast<size_t>(wide) > top_.size()) break;
      stride = wide;
      ++count;
    }
    model_.logits(static_cast<int32_t>(begin), static_cast<int32_t>(count));
    model_.sample(results_.data(), top_.data(), stride);
    const int64_t now = monotonic_ns();
    for (size_t i = 0; i < count; ++i) {
      const LogitRow& row = wanted_[begin + i];
      const TokenLogprob* top = top_.data() + i * static_cast<size_t>(stride);
      if (row.draw)
        sink.drawn(*row.sample, results_[i], top, now);
      else
        sink.scored(*row.sample, row.position, results_[i], top);
    }
    begin += count;
  }
}

// Rows from `begin` on whose hidden states are wanted; returns how many it took.
size_t Runner::pool(Sink& sink, size_t begin) {
  const auto slice = static_cast<size_t>(model_.limits().max_logit_rows);
  const auto dim = static_cast<size_t>(model_.config().dim);
  size_t count = 1;
  while (begin + count < wanted_.size() && count < slice && wanted_[begin + count].pool) ++count;
  hidden_.resize(slice * dim);
  model_.hidden(static_cast<int32_t>(begin), static_cast<int32_t>(count), hidden_.data());
  for (size_t i = 0; i < count; ++i)
    sink.pooled(*wanted_[begin + i].sample, wanted_[begin + i].position, {hidden_.data() + i * dim, dim});
  return count;
}

void Runner::run(Sink& sink) {
  Batch batch;
  batch.tokens = tokens_;
  batch.positions = positions_;
  for (size_t i = 0; i < groups_.size(); ++i)
    batch.groups[i] = {groups_[i].seqs, groups_[i].page_table, groups_[i].slots};
  batch.logit_rows = logit_rows_;
  batch.samples = params_;
  batch.max_context = max_context_;
  const int64_t begin = monotonic_ns();
  model_.forward(batch);
  const int64_t forwarded = monotonic_ns();
  sink.before_sampling();
  if (!guided_.empty()) model_.take_masks();
  sample(sink);
  forward_ns_ = forwarded - begin;
  sample_ns_ = monotonic_ns() - forwarded;
}

}  // namespace orlop
