// The engine's step: plan, move pages, run, commit.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"

namespace orlop {
namespace {

// With a latency target prefill still advances by this many rows a step.
constexpr int32_t least_prefill_rows = 4;

// Adds the time of a part of a step to a counter.
class Timed {
 public:
  explicit Timed(Counters::Count& counter) : counter_(counter), begin_(monotonic_ns()) {}
  ~Timed() { Counters::add(counter_, static_cast<uint64_t>(monotonic_ns() - begin_)); }

 private:
  Counters::Count& counter_;
  const int64_t begin_;
};

Sample& sample_of(const PlanSeq& p) {
  return static_cast<Sample&>(*p.sequence);
}

}  // namespace

void Engine::make_plan(int which) {
  Timed timed(counters_.plan_ns);
  PlanInput input;
  input.now_ns = monotonic_ns();
  if (options_.itl_target_ns > 0 && last_decodes_ > 0) {
    const int32_t more = cost_.rows_within(static_cast<double>(options_.itl_target_ns),
                                           last_decodes_, last_decode_keys_,
                                           last_prefill_context_, options_.step_tokens);
    input.rows = last_decodes_ + std::max(more, least_prefill_rows);
  }
  scheduler_.plan(plans_[which], input);
  freed_[which].clear();
  freed_[which].swap(pages_.freed());
}

void Engine::settle_plan() {
  if (planned_) mover_.run(plans_[current_], freed_[current_]);
  for (const PagePools::Freed& f : pages_.freed()) model_.poison_page(f.group, f.page);
  pages_.freed().clear();
}

// First steps: memory for the longest that a sample can become, so that later ones allocate none.
void Engine::welcome(const StepPlan& plan, int64_t now_ns) {
  for (const PlanSeq& p : plan.seqs) {
    Sample& s = sample_of(p);
    if (s.scheduled) continue;
    const int64_t most = s.prompt_tokens + s.params().max_tokens;
    s.tokens.reserve(static_cast<size_t>(most));
    for (int g = 0; g < pages_.groups(); ++g)
      s.pages[g].reserve(static_cast<size_t>(pages_.pages_for(most)));
    s.scheduled = true;
    s.request().mark_scheduled(now_ns, s.cached);
    Counters::add(counters_.prefix_lookup_tokens, static_cast<uint64_t>(s.prompt_tokens));
    leave_line();
  }
}

void Engine::drawn(Sample& s, const SampleResult& result, const TokenLogprob* top,
                   int64_t now_ns) {
  if (s.ended()) return;
  if (s.mask_error() != Status::ok) {
    s.end_with_error(s.mask_error(),
                     s.mask_message().empty() ? "out of memory for the guide's masks" : s.mask_message());
    return;
  }
  if (result.token < 0 || result.token >= model_.config().vocab) {
    const auto forbids = [](const TokenLogprob& b) { return std::isinf(b.logprob); };
    const auto& bias = s.params().bias;
    if (s.mask())
      s.end_with_error(Status::invalid_argument,
                       "no token can be drawn: those that the guide allows are forbidden by logit_bias or "
                       "min_tokens, or the model gives them no probability");
    else if (!s.forbidden() && std::none_of(bias.begin(), bias.end(), forbids))
      s.end_with_error(Status::internal,
                       "no token can be drawn: the model's logits are no numbers");
    else
      s.end_with_error(Status::invalid_argument,
                       "no token can be drawn: logit_bias, or min_tokens with stop_tokens, forbids "
                       "every one");
    return;
  }
  s.add_token(result.token, result.logprob, top, now_ns);
  ++generated_;
}

void Engine::scored(Sample& s, int32_t position, const SampleResult& result,
                    const TokenLogprob* top) {
  if (s.ended()) return;
  if (std::isnan(result.logprob)) {
    s.end_with_error(Status::internal, cat("prompt_logprobs: the model's logits after token ",
                                           position - 1, " are no numbers"));
    return;
  }
  s.add_prompt_logprob(position, result.logprob, top);
}

void Engine::pooled(Sample& s, int32_t position, std::span<const float> hidden) {
  if (!s.ended()) s.pool(position, hidden);
}

void Engine::before_sampling() {
  masks_.finish();
}

void Engine::finish_step(const StepPlan& plan) {
  Timed timed(counters_.commit_ns);
  scheduler_.commit(plan);
  last_decodes_ = 0;
  last_decode_keys_ = last_prefill_context_ = 0;
  uint64_t prompt_rows = 0;
  for (const PlanSeq& p : plan.seqs)
    prompt_rows += static_cast<uint64_t>(
        std::max(0, std::min(p.begin + p.rows, p.sequence->prompt_tokens) - p.begin));
  // Before anyone hears of an end.
  Counters::add(counters_.prompt_tokens, prompt_rows);
  Counters::add(counters_.generated_tokens, generated_);
  generated_ = 0;
  count_step();
  for (const PlanSeq& p : plan.seqs) {
    Sample& s = sample_of(p);
    const int32_t end = p.begin + p.rows;
    if (p.draw) {  // it decodes from now on, or has ended
      ++last_decodes_;
      last_decode_keys_ += end + 1;
    } else {
      last_prefill_context_ = std::max<double>(last_prefill_context_, end);
    }
    if (!s.ended() && !s.samples && end == s.prompt_tokens) s.end(Finish::length);
    if (!s.ended()) {
      const bool paused_before = s.paused;  // in a plan that was made before
      s.publish();
      if (s.paused && !paused_before) ++paused_;
      continue;
    }
    scheduler_.finish(&s, ahead());  // the pages are back before anyone hears of the end
    const std::shared_ptr<Request> alive = s.request().shared_from_this();
    retire(s);
    forget(s.request());
  }
  update_counts(&plan);
  count_step();  // before the commit's own time is added: the parts never exceed the whole
}

// Once before a step's outputs are seen, so that who has them finds their step counted, with its time
// so far; the rest of its time follows.
void Engine::count_step() {
  const int64_t now = monotonic_ns();
  Counters::add(counters_.step_ns, static_cast<uint64_t>(now - step_counted_ns_));
  step_counted_ns_ = now;
  if (step_counted_) return;
  step_counted_ = true;
  Counters::add(counters_.steps, 1);
}

void Engine::step() {
  const int64_t begin = monotonic_ns();
  step_counted_ns_ = begin;
  step_counted_ = false;
  if (!planned_) make_plan(current_);
  planned_ = false;
  const int which = current_;
  StepPlan& plan = plans_[which];
  try {
    mover_.run(plan, freed_[which]);
    if (plan.seqs.empty()) {
      // Nothing can run before something changes: a consumer reads, a request ends or comes.
      if (scheduler_.runnable()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    welcome(plan, begin);
    update_counts(nullptr);
    runner_.pack(plan);
    if (options_.plan_ahead) {
      make_plan(1 - which);
      current_ = 1 - which;
      planned_ = true;
    }
    masks_.start(runner_.guided());
    try {
      runner_.run(*this);
    } catch (...) {
      masks_.finish();  // what comes next ends the samples
      throw;
    }
    Counters::add(counters_.forward_ns, static_cast<uint64_t>(runner_.forward_ns()));
    Counters::add(counters_.sample_ns, static_cast<uint64_t>(runner_.sample_ns()));
    cost_.observe(plan.rows, runner_.keys(), runner_.forward_ns() + runner_.sample_ns());
    if (mover_.copy_page_ns() > 0)
      scheduler_.cache().set_costs(cost_.row_ns(), mover_.copy_page_ns());
    finish_step(plan);
  } catch (const Error& e) {
    fail_step(e.status(), e.text());
  } catch (const std::bad_alloc&) {
    fail_step(Status::out_of_memory, "out of memory in a step");
  } catch (const std::exception& e) {
    fail_step(Status::internal, e.what());
  }
  count_step();
  Counters::set(counters_.last_step_ns, static_cast<uint64_t>(step_counted_ns_ - begin));
  counters_.measure_rates(step_counted_ns_);
}

}  // namespace orlop
