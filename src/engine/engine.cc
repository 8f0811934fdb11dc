#include "engine/engine.h"

#include <csignal>

#include <algorithm>
#include <cmath>
#include <new>

#include "base/error.h"
#include "base/log.h"

namespace orlop {
namespace {

// Threads inherit the mask of their creator: all signals stay with the host's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

void add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

Engine::Engine(Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      pages_(options.pages, model.limits().page_tokens, options.poison),
      scheduler_({options.step_tokens, options.max_running, options.watermark}, pages_),
      runner_(model),
      capacity_(
          std::min<int64_t>(model.limits().max_context, pages_.total() * pages_.page_tokens())),
      wake_(std::make_shared<Wake>()),
      pages_total_(static_cast<uint64_t>(pages_.total_in_all())) {
  const ModelLimits& limits = model.limits();
  if (options.step_tokens > limits.max_rows || options.max_running > limits.max_seqs ||
      options.pages.size() != model.groups().size())
    fail(Status::internal, "engine: its limits exceed the model's");
  plan_.seqs.reserve(static_cast<size_t>(options.max_running));
  if (options.poison)
    for (int g = 0; g < pages_.groups(); ++g)
      for (int32_t p = 0; p < pages_.group(g).total(); ++p) model_.poison_page(g, p);
  SignalsBlocked blocked;
  thread_ = std::thread([this] { loop(); });
}

Engine::~Engine() {
  {
    std::lock_guard lock(wake_->mutex);
    stop_ = true;
  }
  wake_->changed.notify_one();
  thread_.join();
}

void Engine::submit(std::shared_ptr<Request> request) {
  if (static_cast<int64_t>(request->tokens.size()) > capacity_)
    fail(Status::internal, "engine: a request of ", request->tokens.size(), " tokens never fits");
  {
    std::lock_guard lock(wake_->mutex);
    if (waiting_limit_used_ >= static_cast<size_t>(options_.max_waiting))
      fail(Status::queue_full, "max_waiting: ", waiting_limit_used_, " requests wait already");
    inbox_.push_back(std::move(request));
    ++waiting_limit_used_;
    counters_.waiting.store(waiting_limit_used_, std::memory_order_relaxed);
  }
  wake_->changed.notify_one();
}

EngineStats Engine::stats() const noexcept {
  const auto get = [](const std::atomic<uint64_t>& c) { return c.load(std::memory_order_relaxed); };
  const Counters& c = counters_;
  return {get(c.running),          get(c.waiting),  pages_total_,
          get(c.pages_used),       get(c.steps),    get(c.prompt_tokens),
          get(c.generated_tokens), get(c.finished), get(c.preemptions),
          get(c.step_ns),          get(c.model_ns)};
}

// False: stop.
bool Engine::wait_for_work() {
  bool poked;
  {
    std::unique_lock lock(wake_->mutex);
    wake_->changed.wait(
        lock, [&] { return stop_ || wake_->poked || !inbox_.empty() || !scheduler_.idle(); });
    if (stop_) return false;
    poked = wake_->poked;
    wake_->poked = false;
    arrived_.swap(inbox_);
  }
  take_inbox();
  if (poked) end_cancelled();
  return true;
}

void Engine::take_inbox() {
  for (std::shared_ptr<Request>& r : arrived_) {
    r->arrival = next_arrival_++;
    live_.push_back(r);
    scheduler_.add(r.get());
  }
  arrived_.clear();
}

void Engine::retire(Request& r) noexcept {
  if (r.retired) return;
  r.retired = true;
  if (r.info().scheduled_ns == 0) {
    std::lock_guard lock(wake_->mutex);
    --waiting_limit_used_;
  }
  add(counters_.finished, 1);
  update_counts();
  try {
    r.publish();
  } catch (const std::bad_alloc&) {
    r.publish_bare_end();
  }
}

void Engine::end_cancelled() {
  std::erase_if(live_, [&](const std::shared_ptr<Request>& r) {
    if (!r->cancel_wanted()) return false;
    scheduler_.remove(r.get());
    r->end(Finish::cancelled);
    retire(*r);
    return true;
  });
}

void Engine::update_counts() noexcept {
  counters_.running.store(scheduler_.running(), std::memory_order_relaxed);
  counters_.pages_used.store(static_cast<uint64_t>(pages_.used_in_all()),
                             std::memory_order_relaxed);
  std::lock_guard lock(wake_->mutex);
  // Preempted requests wait as well, though they do not count against max_waiting.
  counters_.waiting.store(scheduler_.waiting() + inbox_.size(), std::memory_order_relaxed);
}

void Engine::drawn(Request& r, const SampleResult& result, const TokenLogprob* top) {
  if (result.token < 0 || result.token >= model_.config().vocab) {
    const auto forbids = [](const TokenLogprob& b) { return std::isinf(b.logprob); };
    const auto& bias = r.params().bias;
    if (!r.forbidden() && std::none_of(bias.begin(), bias.end(), forbids))
      r.end_with_error(Status::internal, "no token can be drawn: the model's logits are no numbers");
    else
      r.end_with_error(Status::invalid_argument,
                       "no token can be drawn: logit_bias, or min_tokens with stop_tokens, forbids "
                       "every one");
    return;
  }
  r.add_token(result.token, result.logprob, top, monotonic_ns());
  add(counters_.generated_tokens, 1);
}

void Engine::scored(Request& r, int32_t position, const SampleResult& result,
                    const TokenLogprob* top) {
  if (r.ended()) return;
  if (std::isnan(result.logprob)) {
    r.end_with_error(Status::internal,
                     cat("prompt_logprobs: the model's logits after token ", position - 1,
                         " are no numbers"));
    return;
  }
  r.add_prompt_logprob(position, result.logprob, top);
}

// First steps: memory for the longest that a request can become, so that later ones allocate none.
void Engine::welcome(const StepPlan& plan, int64_t now_ns) {
  for (const PlanSeq& p : plan.seqs) {
    auto& r = static_cast<Request&>(*p.sequence);
    if (r.info().scheduled_ns) continue;
    const int64_t most = r.prompt_tokens + r.params().max_tokens;
    r.tokens.reserve(static_cast<size_t>(most));
    for (int g = 0; g < pages_.groups(); ++g)
      r.pages[g].reserve(static_cast<size_t>(pages_.pages_for(most)));
    r.mark_scheduled(now_ns);
    std::lock_guard lock(wake_->mutex);
    --waiting_limit_used_;
  }
}

void Engine::step() {
  scheduler_.plan(plan_);
  if (plan_.preemptions) add(counters_.preemptions, static_cast<uint64_t>(plan_.preemptions));
  if (plan_.seqs.empty()) return;
  const int64_t begin = monotonic_ns();
  try {
    welcome(plan_, begin);
    update_counts();
    for (const PagePools::Freed& f : pages_.freed()) model_.poison_page(f.group, f.page);
    pages_.freed().clear();
    const int64_t run = monotonic_ns();
    runner_.run(plan_, *this);
    add(counters_.model_ns, static_cast<uint64_t>(monotonic_ns() - run));
    add(counters_.steps, 1);
    finish_step(plan_);
  } catch (const Error& e) {
    fail_step(plan_, e.status(), e.text());
  } catch (const std::bad_alloc&) {
    fail_step(plan_, Status::out_of_memory, "out of memory in a step");
  } catch (const std::exception& e) {
    fail_step(plan_, Status::internal, e.what());
  }
  add(counters_.step_ns, static_cast<uint64_t>(monotonic_ns() - begin));
}

void Engine::finish_step(const StepPlan& plan) {
  scheduler_.commit(plan);
  bool any_ended = false;
  for (const PlanSeq& p : plan.seqs) {
    auto& r = static_cast<Request&>(*p.sequence);
    const int32_t prompt_rows = std::min(p.begin + p.rows, r.prompt_tokens) - p.begin;
    if (prompt_rows > 0) add(counters_.prompt_tokens, static_cast<uint64_t>(prompt_rows));
    if (!r.ended() && !r.samples && r.computed == r.prompt_tokens) r.end(Finish::length);
    if (!r.ended()) {
      r.publish();
      continue;
    }
    scheduler_.remove(&r);  // the pages are back before anyone hears of the end
    retire(r);
    any_ended = true;
  }
  if (any_ended) std::erase_if(live_, [](const std::shared_ptr<Request>& r) { return r->ended(); });
}

// The step's requests fail; the engine lives. What a kernel left half done lies in freed pages.
void Engine::fail_step(const StepPlan& plan, Status status, const std::string& text) noexcept {
  for (const PlanSeq& p : plan.seqs) {
    auto& r = static_cast<Request&>(*p.sequence);
    scheduler_.remove(&r);
    r.end_with_error(status, text);
    retire(r);
  }
  std::erase_if(live_, [](const std::shared_ptr<Request>& r) { return r->ended(); });
}

void Engine::fail_all(Status status, const std::string& text) noexcept {
  for (auto* list : {&live_, &arrived_}) {
    for (const std::shared_ptr<Request>& r : *list) {
      if (r->retired) continue;
      scheduler_.remove(r.get());
      r->end_with_error(status, text);
      retire(*r);
    }
    list->clear();
  }
}

void Engine::loop() noexcept {
  pthread_setname_np(pthread_self(), "orlop");
  for (;;) {
    try {
      if (!wait_for_work()) break;
      step();
    } catch (const Error& e) {
      fail_all(e.status(), e.text());
    } catch (const std::exception& e) {
      fail_all(Status::internal, e.what());
    }
  }
  {
    std::lock_guard lock(wake_->mutex);
    arrived_.swap(inbox_);
  }
  fail_all(Status::shutdown, "the engine was released");
}

}  // namespace orlop
