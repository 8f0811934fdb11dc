#include "engine/runner.h"

#include <algorithm>

#include "base/error.h"
#include "engine/request.h"

namespace orlop {
static_assert(max_page_groups == max_cache_groups);

Runner::Runner(Model& model, bool two)
    : model_(model), vocab_(model.config().vocab), two_(two) {
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
  params_.reserve(rows);
  guided_.reserve(seqs);
  for (int i = 0; i < (two ? 2 : 1); ++i) {
    flights_[i].wanted.reserve(rows);
    flights_[i].slices.reserve(rows);
    flights_[i].results.resize(rows);
    flights_[i].top.resize(std::max(static_cast<size_t>(vocab_), slice * 32));
  }
}

bool Runner::depends(const StepPlan& plan) {
  return std::any_of(plan.seqs.begin(), plan.seqs.end(), [](const PlanSeq& p) {
    const auto& sample = static_cast<const Sample&>(*p.sequence);
    const bool known = p.begin + p.rows <= static_cast<int32_t>(sample.tokens.size());
    return p.draw && !known && (sample.mask() || sample.params().penalizes());
  });
}

void Runner::pack(const StepPlan& plan) {
  Flight& f = flights_[next_];
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  f.wanted.clear();
  f.slices.clear();
  f.took = {};
  params_.clear();
  guided_.clear();
  max_context_ = 0;
  widest_ = 0;
  pools_ = false;
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
      const auto at = static_cast<size_t>(pos);
      // A token that is not known yet is what the step before this one draws.
      const int32_t token = at < sample.tokens.size() ? sample.tokens[at] : -1 - sample.kept_row;
      if (draw || score || pool) {
        if (draw) sample.kept_row = static_cast<int32_t>(logit_rows_.size());
        logit_rows_.push_back(static_cast<int32_t>(tokens_.size()));
        f.wanted.push_back({&sample, pool ? pos : pos + 1, draw, pool});
        params_.push_back(sample_row(f.wanted.back()));
        if (draw && sample.mask()) guided_.push_back(&sample);
        pools_ |= pool;
        widest_ = std::max(widest_, static_cast<size_t>(top_width(f.wanted.back())));
      }
      tokens_.push_back(token);
      positions_.push_back(pos);
    }
    max_context_ = std::max(max_context_, end);
    f.took.keys += 0.5 * p.rows * (static_cast<double>(p.begin) + end + 1);
  }
  f.took.rows = static_cast<int32_t>(tokens_.size());
}

bool Runner::may_be_left() const {
  return !pools_ && flights_[next_].wanted.size() * widest_ <= flights_[next_].top.size();
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
  if (const std::vector<int32_t>* f = sample.forbidden(row.position - sample.prompt_tokens)) {
    s.forbidden = f->data();
    s.forbidden_n = static_cast<int32_t>(f->size());
  }
  s.allowed = sample.mask();
  s.n_logprobs = p.logprobs;
  s.given = -1;
  return s;
}

// As many rows from `begin` on as the logits buffer and the buffer of best tokens hold.
Runner::Slice Runner::slice(const Flight& f, size_t begin) const {
  const auto most = static_cast<size_t>(model_.limits().max_logit_rows);
  Slice s{begin, 0, 0, 0};
  while (begin + s.count < f.wanted.size() && s.count < most && !f.wanted[begin + s.count].pool) {
    const int32_t wide = std::max(s.stride, top_width(f.wanted[begin + s.count]));
    if (s.count && (s.count + 1) * static_cast<size_t>(wide) > f.top.size()) break;
    s.stride = wide;
    ++s.count;
  }
  return s;
}

uint64_t Runner::draw(Flight& f, const Slice& s) {
  model_.logits(static_cast<int32_t>(s.begin), static_cast<int32_t>(s.count));
  return model_.sample_later(f.results.data() + s.begin, f.top.data() + s.top, s.stride);
}

void Runner::hand_over(const Flight& f, const Slice& s, Sink& sink, int64_t now_ns) {
  for (size_t i = 0; i < s.count; ++i) {
    const LogitRow& row = f.wanted[s.begin + i];
    const SampleResult& result = f.results[s.begin + i];
    const TokenLogprob* top = f.top.data() + s.top + i * static_cast<size_t>(s.stride);
    if (row.draw)
      sink.drawn(*row.sample, result, top, now_ns);
    else
      sink.scored(*row.sample, row.position, result, top);
  }
}

// Slice after slice, each handed over before the next.
void Runner::sample(Flight& f, Sink& sink) {
  for (size_t begin = 0; begin < f.wanted.size();) {
    const int64_t from = monotonic_ns();
    if (f.wanted[begin].pool) {
      begin += pool(f, sink, begin);
      f.took.finish_ns += monotonic_ns() - from;
      continue;
    }
    const Slice s = slice(f, begin);
    model_.wait(draw(f, s));
    const int64_t now = monotonic_ns();
    f.took.finish_ns += now - from;
    hand_over(f, s, sink, now);
    begin += s.count;
  }
}

// Rows from `begin` on whose hidden states are wanted; returns how many it took.
size_t Runner::pool(const Flight& f, Sink& sink, size_t begin) {
  const auto most = static_cast<size_t>(model_.limits().max_logit_rows);
  const auto dim = static_cast<size_t>(model_.config().dim);
  size_t count = 1;
  while (begin + count < f.wanted.size() && count < most && f.wanted[begin + count].pool) ++count;
  hidden_.resize(most * dim);
  model_.hidden(static_cast<int32_t>(begin), static_cast<int32_t>(count), hidden_.data());
  for (size_t i = 0; i < count; ++i)
    sink.pooled(*f.wanted[begin + i].sample, f.wanted[begin + i].position, {hidden_.data() + i * dim, dim});
  return count;
}

void Runner::start(Sink& sink, bool left) {
  Flight& f = flights_[next_];
  Batch batch;
  batch.tokens = tokens_;
  batch.positions = positions_;
  for (size_t i = 0; i < groups_.size(); ++i)
    batch.groups[i] = {groups_[i].seqs, groups_[i].page_table, groups_[i].slots};
  batch.logit_rows = logit_rows_;
  batch.samples = params_;
  batch.max_context = max_context_;
  f.left = left;
  f.began_ns = monotonic_ns();
  try {
    model_.forward(batch);
    f.took.forward_ns = monotonic_ns() - f.began_ns;
    sink.before_sampling();
    const int64_t from = monotonic_ns();
    if (!guided_.empty()) model_.take_masks();
    size_t top = 0;
    for (size_t begin = 0; left && begin < f.wanted.size(); begin += f.slices.back().count) {
      f.slices.push_back(slice(f, begin));
      f.slices.back().top = top;
      top += f.slices.back().count * static_cast<size_t>(f.slices.back().stride);
      f.ticket = draw(f, f.slices.back());
    }
    if (left && f.wanted.empty()) f.ticket = model_.mark();
    f.took.sample_ns = monotonic_ns() - from;
  } catch (...) {
    settle();  // nothing may be written here later
    throw;
  }
  ++started_;
  if (two_) next_ = 1 - next_;
}

void Runner::finish(Sink& sink) {
  Flight& f = flights_[two_ && started_ == 1 ? 1 - next_ : next_];
  --started_;
  if (f.left) {
    const int64_t from = monotonic_ns();
    model_.wait(f.ticket);
    const int64_t now = monotonic_ns();
    f.took.finish_ns = now - from;
    for (const Slice& s : f.slices) hand_over(f, s, sink, now);
    // The device came to it when it was called for, or when it was done with the one before.
    if (model_.asynchronous()) f.took.device_ns = now - std::max(f.began_ns, done_ns_);
    done_ns_ = now;
  } else {
    sample(f, sink);
  }
  f.took.sample_ns += f.took.finish_ns;
  if (!f.took.device_ns) f.took.device_ns = f.took.forward_ns + f.took.sample_ns;
  took_ = f.took;
}

void Runner::abandon() noexcept {
  if (started_) settle();
  started_ = 0;
}

void Runner::settle() noexcept {
  try {
    model_.wait(model_.mark());
  } catch (...) {
    // What fails now is lost anyway.
  }
}

}  // namespace orlop
