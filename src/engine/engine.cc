#include "engine/engine.h"

#include <csignal>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "base/error.h"
#include "base/log.h"

namespace orlop {
namespace {

// Tokens of a tile whose keys a quantized cache keeps apart while it is open (int8, uint4).
constexpr int32_t tail_tile = 16;
constexpr int64_t never = std::numeric_limits<int64_t>::max();

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

Sample& sample_of(const PlanSeq& p) {
  return static_cast<Sample&>(*p.sequence);
}

}  // namespace

SchedulerLimits Engine::scheduler_limits(const EngineOptions& options, const Model& model,
                                         const std::vector<int64_t>& host_slots) {
  SchedulerLimits l;
  l.step_tokens = options.step_tokens;
  l.max_seqs = options.max_running;
  l.watermark = options.watermark;
  l.windows.clear();
  for (const CacheGroup& g : model.groups()) l.windows.push_back(g.window);
  l.host_slots = host_slots;
  if (options.fcfs) l.length_ns = 0;
  if (model.seat_bytes()) l.tile_tokens = tail_tile;
  return l;
}

Engine::Engine(Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      ahead_(options.run_ahead.value_or(model.asynchronous())),
      host_slots_(host_tier_slots(model, options.pages, options.host_tier_bytes)),
      pages_(options.pages, model.limits().page_tokens, options.poison),
      scheduler_(scheduler_limits(options, model, host_slots_), pages_),
      runner_(model, ahead_),
      mover_(model, host_slots_),
      capacity_(std::min<int64_t>(model.limits().max_context, scheduler_.capacity())),
      tokens_(scheduler_.capacity()),
      next_deadline_ns_(never),
      wake_(std::make_shared<Wake>()),
      held_(options.paused) {
  const ModelLimits& limits = model.limits();
  if (options.step_tokens > limits.max_rows || options.max_running > limits.max_seqs ||
      options.pages.size() != model.groups().size())
    fail(Status::internal, "engine: its limits exceed the model's");
  for (StepPlan& plan : plans_) plan.seqs.reserve(static_cast<size_t>(options.max_running));
  uint64_t host = 0;
  for (const int64_t n : host_slots_) host += static_cast<uint64_t>(n);
  Counters::set(counters_.host_pages_total, host);
  Counters::set(counters_.pages_total, static_cast<uint64_t>(pages_.total_in_all()));
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

// ---- from other threads -------------------------------------------------------------------------

std::shared_ptr<Request> Engine::submit(const std::vector<int32_t>& prompt, SamplingParams params,
                                        const Tokenizer* tokenizer,
                                        std::shared_ptr<CompletionQueue> queue, uint64_t tag) {
  if (static_cast<int64_t>(prompt.size()) > capacity_)
    fail(Status::internal, "engine: a request of ", prompt.size(), " tokens never fits");
  const auto n = static_cast<int64_t>(params.n);
  const auto refuse = [&](int64_t waiting) {
    fail(Status::queue_full, "max_waiting: ", waiting, " sequences wait already",
         n > 1 ? cat(" and n is ", n) : "", "; at most ", options_.max_waiting, " may");
  };
  if (const int64_t w = in_line_.load(std::memory_order_relaxed); w + n > options_.max_waiting)
    refuse(w);  // before the work of making it
  RequestSetup setup;
  setup.vocab = model_.config().vocab;
  setup.tokenizer = tokenizer;
  setup.output_bytes = options_.output_bytes;
  setup.shares_prefixes = options_.prefix_cache;
  auto request = std::make_shared<Request>(prompt, std::move(params), setup, wake_,
                                           std::move(queue), tag);
  bool wakes;
  {
    std::lock_guard lock(wake_->mutex);
    if (const int64_t w = in_line_.load(std::memory_order_relaxed); w + n > options_.max_waiting)
      refuse(w);
    wakes = inbox_.empty();
    inbox_.push_back(request);
    in_line_.fetch_add(n, std::memory_order_relaxed);
  }
  if (wakes) wake_->changed.notify_one();
  return request;
}

void Engine::resume() {
  {
    std::lock_guard lock(wake_->mutex);
    held_ = false;
  }
  wake_->changed.notify_one();
}

EngineStats Engine::stats() const noexcept {
  EngineStats s = counters_.read(monotonic_ns());
  // What is in the inbox waits as well; preempted samples wait too, though they are in no line.
  s.waiting = std::max<uint64_t>(
      s.waiting,
      static_cast<uint64_t>(std::max<int64_t>(0, in_line_.load(std::memory_order_relaxed))));
  return s;
}

void Engine::between_steps(const Job& job) {
  Errand errand{&job, false, nullptr};
  std::unique_lock lock(wake_->mutex);
  if (stop_) fail(Status::shutdown, "the engine was released");
  errands_.push_back(&errand);
  wake_->changed.notify_one();
  errand_done_.wait(lock, [&] { return errand.done; });
  if (errand.error) std::rethrow_exception(errand.error);
}

// ---- the owner thread: what comes in ------------------------------------------------------------

bool Engine::work_waits() const {
  return !wake_->attention.empty() || wake_->look_at_all || !errands_.empty() ||
         (!held_ && (!inbox_.empty() || busy() || scheduler_.runnable()));
}

// False: stop.
bool Engine::wait_for_work() {
  std::vector<std::weak_ptr<Request>> attention;
  bool all, errands;
  {
    std::unique_lock lock(wake_->mutex);
    if (!stop_ && !work_waits()) {
      const auto ready = [&] { return stop_ || work_waits(); };
      if (next_deadline_ns_ == never)
        wake_->changed.wait(lock, ready);
      else
        wake_->changed.wait_until(
            lock,
            std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next_deadline_ns_)),
            ready);
      counters_.begin_rates(monotonic_ns());
    }
    if (stop_) return false;
    attention.swap(wake_->attention);
    all = wake_->look_at_all;
    wake_->look_at_all = false;
    errands = !errands_.empty();
    arrived_.swap(inbox_);
  }
  if (!arrived_.empty()) take_inbox();
  if (all || !attention.empty()) heed(attention, all);
  if (next_deadline_ns_ != never) end_late(monotonic_ns());
  if (errands) do_errands();
  return true;
}

void Engine::take_inbox() {
  for (std::shared_ptr<Request>& r : arrived_) {
    r->live_at = live_.size();
    live_.push_back(r);
    if (r->params().deadline_ns)
      next_deadline_ns_ = std::min(next_deadline_ns_, r->params().deadline_ns);
    for (auto& s : r->samples()) scheduler_.add(s.get());
  }
  // forget() takes no memory.
  if (const size_t all = live_.size() + leaving_.size(); leaving_.capacity() < all)
    leaving_.reserve(2 * all);
  arrived_.clear();
}

void Engine::heed(const std::vector<std::weak_ptr<Request>>& attention, bool all) {
  for (const std::weak_ptr<Request>& w : attention)
    if (const std::shared_ptr<Request> r = w.lock()) heed(*r);
  if (all)
    for (size_t i = live_.size(); i-- > 0;) heed(*live_[i]);
}

// A request that was cancelled, or read again after it paused.
void Engine::heed(Request& r) {
  if (r.ended()) return;
  if (r.cancel_wanted()) {
    end_all_samples(r, Finish::cancelled, Status::ok, {});
    return;
  }
  for (auto& s : r.samples())
    if (s->may_resume()) {
      s->paused = false;
      --paused_;
    }
}

void Engine::end_all_samples(Request& r, Finish finish, Status status, const std::string& text) {
  const std::shared_ptr<Request> alive = r.shared_from_this();
  for (auto& s : r.samples()) {
    if (s->ended()) continue;
    scheduler_.finish(s.get(), open());
    if (finish == Finish::error)
      s->end_with_error(status, text);
    else
      s->end(finish);
    retire(*s);
  }
  forget(r);
  update_counts(nullptr);
}

void Engine::end_late(int64_t now_ns) {
  if (now_ns < next_deadline_ns_) return;
  next_deadline_ns_ = never;
  for (size_t i = live_.size(); i-- > 0;) {
    const int64_t deadline = live_[i]->params().deadline_ns;
    if (!deadline) continue;
    if (deadline > now_ns)
      next_deadline_ns_ = std::min(next_deadline_ns_, deadline);
    else
      end_all_samples(*live_[i], Finish::error, Status::deadline, "its deadline has passed");
  }
}

void Engine::do_errands() {
  std::vector<Errand*> errands;
  {
    std::lock_guard lock(wake_->mutex);
    errands.swap(errands_);
  }
  for (const int which : {0, 1}) {
    counted_ns_ = monotonic_ns();
    if (has_begun(which)) land(which);
  }
  for (Errand* e : errands) {
    try {
      settle_plan();
      (*e->job)(scheduler_, model_);
    } catch (...) {
      e->error = std::current_exception();
    }
    update_counts(nullptr);
    {
      std::lock_guard lock(wake_->mutex);
      e->done = true;
    }
    errand_done_.notify_all();
  }
}

// ---- the owner thread: ends ---------------------------------------------------------------------

void Engine::leave_line() noexcept {
  in_line_.fetch_sub(1, std::memory_order_relaxed);
}

void Engine::retire(Sample& s) noexcept {
  if (s.retired) return;
  s.retired = true;
  if (!s.scheduled) leave_line();
  if (s.paused) {
    s.paused = false;
    --paused_;
  }
  // Counted before anyone hears of the end.
  update_counts(nullptr);
  const auto& samples = s.request().samples();
  if (std::all_of(samples.begin(), samples.end(), [](const auto& o) { return o->retired; }))
    Counters::add(counters_.finished, 1);
  try {
    s.publish();
  } catch (const std::bad_alloc&) {
    s.publish_bare_end();
  }
}

// Drops a request all of whose samples have ended. Where steps are under way it lives until they are over.
void Engine::forget(Request& r) noexcept {
  if (!r.ended() || r.live_at >= live_.size() || live_[r.live_at].get() != &r) return;
  live_.back()->live_at = r.live_at;
  std::swap(live_[r.live_at], live_.back());
  if (const uint64_t newest = std::max(begun_[0], begun_[1]))
    leaving_.push_back({std::move(live_.back()), newest});
  live_.pop_back();
}

void Engine::update_counts(const StepPlan* plan) noexcept {
  Counters& c = counters_;
  Counters::set(c.running, scheduler_.running());
  Counters::set(c.waiting, scheduler_.waiting());
  Counters::set(c.paused, static_cast<uint64_t>(paused_));
  Counters::set(c.pages_used, static_cast<uint64_t>(pages_.used_in_all()));
  Counters::set(c.pages_shared, static_cast<uint64_t>(pages_.shared_in_all()));
  const PrefixCache& cache = scheduler_.cache();
  Counters::set(c.pages_cached, static_cast<uint64_t>(cache.pages()));
  Counters::set(c.host_pages_used, static_cast<uint64_t>(cache.host_pages()));
  const PrefixCache::Counters& p = cache.counters();
  Counters::set(c.prefix_hit_tokens, p.hit_tokens);
  Counters::set(c.host_pages_out, p.host_out);
  Counters::set(c.host_pages_in, p.host_in);
  if (plan && plan->preemptions)
    Counters::add(c.preemptions, static_cast<uint64_t>(plan->preemptions));
}

// The step's samples fail; the engine lives. What a kernel left half done is not trusted: nothing
// of it stays in the cache.
void Engine::fail_step(int which, Status status, const std::string& text) noexcept {
  const int other = 1 - which;
  const bool moved = has_begun(which);  // all its pages
  // One that began before is not touched by this.
  if (has_begun(other) && begun_[other] < plans_[which].serial) land(other);
  count_time();
  count_step(which);
  for (const PlanSeq& p : plans_[which].seqs) {
    Sample& s = sample_of(p);
    if (s.retired) continue;
    const std::shared_ptr<Request> alive = s.request().shared_from_this();
    scheduler_.drop(&s, open(other));
    s.end_with_error(status, text);
    retire(s);
    forget(s.request());
  }
  // What was made or begun after it rests on what it should have computed.
  take_back(other);
  // Pages of those that run without a row in it may be among those that did not come.
  if (!moved) scheduler_.recall(plans_[which]);
  close(which);
  scheduler_.cache().clear();
  update_counts(nullptr);
}

// The plan's sequences wait again, as if it had not been made; what it computes is lost.
void Engine::take_back(int which) noexcept {
  if (stages_[which] == Stage::none) return;
  if (has_begun(which)) runner_.abandon();
  try {
    for (const PagePools::Freed& f : freed_[which]) model_.poison_page(f.group, f.page);
  } catch (...) {
    // A device that fails for good: the next step says so.
  }
  freed_[which].clear();
  scheduler_.recall(plans_[which]);
  stages_[which] = Stage::none;
  begun_[which] = 0;
}

void Engine::fail_all(Status status, const std::string& text) noexcept {
  runner_.abandon();
  for (const int which : {0, 1}) {
    stages_[which] = Stage::none;
    begun_[which] = 0;
  }
  for (auto* list : {&live_, &arrived_}) {
    for (const std::shared_ptr<Request>& r : *list)
      for (auto& s : r->samples()) {
        if (s->retired) continue;
        scheduler_.drop(s.get());
        s->end_with_error(status, text);
        retire(*s);
      }
    list->clear();
  }
  leaving_.clear();
  scheduler_.cache().clear();
  update_counts(nullptr);
}

// ---- the owner thread's life ----------------------------------------------------------------------

void Engine::loop() noexcept {
  pthread_setname_np(pthread_self(), "orlop");
  for (;;) {
    try {
      if (!wait_for_work()) break;
      bool held;
      {
        std::lock_guard lock(wake_->mutex);
        held = held_;
      }
      if (!held && (busy() || scheduler_.runnable())) step();
    } catch (const Error& e) {
      fail_all(e.status(), e.text());
    } catch (const std::exception& e) {
      fail_all(Status::internal, e.what());
    }
  }
  std::vector<Errand*> errands;
  {
    std::lock_guard lock(wake_->mutex);
    arrived_.swap(inbox_);
    errands.swap(errands_);
    for (Errand* e : errands) {
      e->error = std::make_exception_ptr(Error(Status::shutdown, "the engine was released"));
      e->done = true;
    }
  }
  errand_done_.notify_all();
  fail_all(Status::shutdown, "the engine was released");
}

}  // namespace orlop
