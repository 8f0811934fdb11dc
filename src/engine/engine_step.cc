// The engine's step: plan, move pages, run, commit.
//
// Where the device works on its own, a step is started before the results of the one before it are known
// here, unless it needs them; the tokens in between are known to the device alone. What ends in a step then
// still has a row in the next one, which is computed and thrown away: nobody hears of it, and it touches
// nothing of others, since a page that is given back holds what later steps write, and these come later on
// the device as well.
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
  counted_[which] = false;
  stages_[which] = Stage::made;
}

void Engine::settle_plan() {
  if (stages_[current_] == Stage::made) mover_.run(plans_[current_], freed_[current_], false);
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
    else if (!s.forbidden(s.generated()) && std::none_of(bias.begin(), bias.end(), forbids))
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

// What a plan adds to counts, as long as all its sequences are there.
void Engine::tally(int which) {
  last_decodes_ = 0;
  last_decode_keys_ = last_prefill_context_ = 0;
  prompt_rows_[which] = 0;
  for (const PlanSeq& p : plans_[which].seqs) {
    const int32_t end = p.begin + p.rows;
    prompt_rows_[which] +=
        static_cast<uint64_t>(std::max(0, std::min(end, p.sequence->prompt_tokens) - p.begin));
    if (p.draw) {  // it decodes from now on, or ends
      ++last_decodes_;
      last_decode_keys_ += end + 1;
    } else {
      last_prefill_context_ = std::max<double>(last_prefill_context_, end);
    }
  }
}

void Engine::finish_step(int which) {
  Timed timed(counters_.commit_ns);
  const StepPlan& plan = plans_[which];
  scheduler_.commit(plan);
  // Before anyone hears of an end.
  Counters::add(counters_.prompt_tokens, prompt_rows_[which]);
  Counters::add(counters_.generated_tokens, generated_);
  generated_ = 0;
  count_time();
  count_step(which);
  for (const PlanSeq& p : plan.seqs) {
    Sample& s = sample_of(p);
    if (!s.ended() && !s.samples && p.begin + p.rows == s.prompt_tokens) s.end(Finish::length);
    if (!s.ended()) {
      const bool paused_before = s.paused;  // in a plan that was made before
      s.publish();
      if (s.paused && !paused_before) ++paused_;
      continue;
    }
    scheduler_.finish(&s, open(1 - which));  // the pages are back before anyone hears of the end
    const std::shared_ptr<Request> alive = s.request().shared_from_this();
    retire(s);
    forget(s.request());
  }
  update_counts(&plan);
  count_time();  // before the commit's own time is added: the parts never exceed the whole
}

void Engine::count_time() {
  const int64_t now = monotonic_ns();
  Counters::add(counters_.step_ns, static_cast<uint64_t>(now - counted_ns_));
  counted_ns_ = now;
}

// Once before a step's outputs are seen, so that who has them finds their step counted, with the time
// so far; the rest follows.
void Engine::count_step(int which) {
  if (counted_[which]) return;
  counted_[which] = true;
  Counters::add(counters_.steps, 1);
}

// A part of a plan's step: what it throws fails that step.
template <class Part>
void Engine::attempt(int which, const Part& part) noexcept {
  try {
    part();
  } catch (const Error& e) {
    fail_step(which, e.status(), e.text());
  } catch (const std::bad_alloc&) {
    fail_step(which, Status::out_of_memory, "out of memory in a step");
  } catch (const std::exception& e) {
    fail_step(which, Status::internal, e.what());
  }
}

void Engine::land(int which) noexcept {
  attempt(which, [&] {
    const int64_t from = monotonic_ns();
    runner_.finish(*this);
    const Runner::Took& took = runner_.took();
    count_time();
    Counters::add(counters_.forward_ns, static_cast<uint64_t>(took.forward_ns));
    Counters::add(counters_.sample_ns, static_cast<uint64_t>(took.sample_ns));
    Counters::add(counters_.commit_ns, static_cast<uint64_t>(counted_ns_ - from - took.finish_ns));
    cost_.observe(took.rows, took.keys, took.device_ns);
    if (mover_.copy_page_ns() > 0)
      scheduler_.cache().set_costs(cost_.row_ns(), mover_.copy_page_ns());
    finish_step(which);
  });
  close(which);
}

// A plan's step is over, whatever came of it.
void Engine::close(int which) noexcept {
  const uint64_t over = begun_[which];
  stages_[which] = Stage::none;
  begun_[which] = 0;
  // No step holds rows of these any more.
  const auto left = std::find_if(leaving_.begin(), leaving_.end(),
                                 [&](const Leaving& l) { return l.serial > over; });
  leaving_.erase(leaving_.begin(), left);
}

// Starts a plan that was made, unless nothing is left in it. True: its step may be left to the device.
bool Engine::begin(int which) noexcept {
  const int other = 1 - which;
  StepPlan& plan = plans_[which];
  bool left = false;
  attempt(which, [&] {
    mover_.run(plan, freed_[which], has_begun(other));
    if (plan.seqs.empty()) return;
    welcome(plan, counted_ns_);
    update_counts(nullptr);
    stages_[which] = Stage::begun;
    begun_[which] = plan.serial;
    current_ = other;
    runner_.pack(plan);
    tally(which);
    left = ahead_ && runner_.may_be_left();
    if (!left && has_begun(other)) land(other);
    if (!has_begun(which)) return;  // that failed, and this one waits again
    if (options_.plan_ahead && !ahead_) make_plan(other);
    masks_.start(runner_.guided());
    try {
      runner_.start(*this, left);
    } catch (...) {
      masks_.finish();  // what comes next ends the samples
      throw;
    }
    if (has_begun(other)) Counters::add(counters_.steps_ahead, 1);
  });
  return left;
}

void Engine::step() {
  const int64_t begin_ns = counted_ns_ = monotonic_ns();
  const int which = current_, other = 1 - which;
  const bool fresh = stages_[which] == Stage::none;
  if (fresh) make_plan(which);
  if (has_begun(other) && Runner::depends(plans_[which])) land(other);
  if (stages_[which] == Stage::made) {
    const bool left = begin(which);
    const bool nothing = stages_[which] == Stage::made;
    if (nothing) close(which);
    const bool waits = nothing && !has_begun(other);
    if (has_begun(other)) land(other);
    if (!left && has_begun(which)) land(which);
    if (waits) {
      // Nothing can run before something changes: a consumer reads, a request ends or comes.
      if (fresh && scheduler_.runnable()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
  }
  count_time();
  Counters::set(counters_.last_step_ns, static_cast<uint64_t>(counted_ns_ - begin_ns));
  counters_.measure_rates(counted_ns_);
}

}  // namespace orlop
