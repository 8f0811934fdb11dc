// The engine: one owner thread that plans, runs and commits steps. Requests come through an inbox;
// everything else here belongs to that thread or is atomic.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/cost.h"
#include "engine/counters.h"
#include "engine/masks.h"
#include "engine/moves.h"
#include "engine/pages.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace orlop {

struct EngineOptions {
  int32_t step_tokens = 512;
  int32_t max_running = 64;
  int32_t max_waiting = 100000;
  int64_t watermark = 1;       // pages kept free when a request joins others
  std::vector<int64_t> pages;  // [groups], as given to Model::allocate_cache
  bool poison = false;         // freed pages are overwritten before the next step
  bool prefix_cache = true;    // requests share the pages of equal prefixes
  size_t host_tier_bytes = 0;  // evicted pages are kept in host memory, up to this
  bool fcfs = false;           // first come, first served: prompt lengths do not matter
  int64_t itl_target_ns = 0;   // prefill gives way so that steps with streams take this; 0: off
  size_t output_bytes = size_t{1} << 20;  // of a request, not yet taken; more pauses it
  bool plan_ahead = false;     // the next plan is made before the step at hand is committed
  // The next step is started before the results of the one at hand are known; absent: where the model's
  // device works on its own.
  std::optional<bool> run_ahead;
  bool paused = false;         // nothing runs before resume()
};

class Engine : private Runner::Sink {
 public:
  // The model must outlive the engine and belongs to its thread. Starts the thread.
  Engine(Model& model, const EngineOptions& options);
  // Ends every request that still lives (Error(shutdown)) and joins the thread. Not from the
  // thread itself; it calls nothing of the user's.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Tokens that one request may hold: the context, or what all pages hold if that is less.
  int64_t capacity() const { return capacity_; }
  // Tokens that all pages hold together (of the groups that keep everything, the smallest).
  int64_t tokens() const { return tokens_; }
  // Error(queue_full). The prompt must fit capacity(). tokenizer and queue may be null.
  std::shared_ptr<Request> submit(const std::vector<int32_t>& prompt, SamplingParams params,
                                  const Tokenizer* tokenizer,
                                  std::shared_ptr<CompletionQueue> queue, uint64_t tag);
  void resume();
  EngineStats stats() const noexcept;
  const std::vector<int64_t>& host_slots() const { return host_slots_; }  // [groups]

  // Runs `job` on the owner thread between two steps, waits for it and rethrows what it throws.
  // Error(shutdown) if the engine ends first. Not from the owner thread.
  using Job = std::function<void(Scheduler&, Model&)>;
  void between_steps(const Job& job);

 private:
  struct Errand {
    const Job* job;
    bool done = false;
    std::exception_ptr error;
  };
  static SchedulerLimits scheduler_limits(const EngineOptions& options, const Model& model,
                                          const std::vector<int64_t>& host_slots);

  void loop() noexcept;
  bool wait_for_work();
  bool work_waits() const;  // under wake_->mutex
  void take_inbox();
  void heed(const std::vector<std::weak_ptr<Request>>& attention, bool all);
  void heed(Request& request);
  void end_late(int64_t now_ns);
  void do_errands();

  // Two plans, by number: one may be made or begun while the other is on its way.
  enum class Stage : uint8_t { none, made, begun };
  void step();
  void make_plan(int which);
  bool begin(int which) noexcept;
  void land(int which) noexcept;  // takes the results of one that has begun and commits it
  void close(int which) noexcept;
  template <class Part>
  void attempt(int which, const Part& part) noexcept;
  void settle_plan();  // executes the page moves of a plan made ahead
  void welcome(const StepPlan& plan, int64_t now_ns);
  void tally(int which);
  void finish_step(int which);
  void count_time();
  void count_step(int which);
  bool has_begun(int which) const { return stages_[which] == Stage::begun; }
  bool busy() const { return stages_[0] != Stage::none || stages_[1] != Stage::none; }
  // A plan that is not committed yet, or null; of both, if it is the only one.
  StepPlan* open(int which) { return stages_[which] != Stage::none ? &plans_[which] : nullptr; }
  StepPlan* open() { return open(stages_[0] != Stage::none ? 0 : 1); }
  void fail_step(int which, Status status, const std::string& text) noexcept;
  void take_back(int which) noexcept;
  void fail_all(Status status, const std::string& text) noexcept;
  void end_all_samples(Request& request, Finish finish, Status status, const std::string& text);
  void retire(Sample& sample) noexcept;  // publishes its end; its pages are free before
  void forget(Request& request) noexcept;
  void leave_line() noexcept;
  void update_counts(const StepPlan* plan) noexcept;
  void drawn(Sample&, const SampleResult&, const TokenLogprob* top, int64_t now_ns) override;
  void scored(Sample&, int32_t position, const SampleResult&, const TokenLogprob* top) override;
  void pooled(Sample&, int32_t position, std::span<const float> hidden) override;
  void before_sampling() override;

  Model& model_;
  const EngineOptions options_;
  const bool ahead_;  // steps are started before the results of those before them are known
  const std::vector<int64_t> host_slots_;
  PagePools pages_;
  Scheduler scheduler_;
  Runner runner_;
  MaskMaker masks_;
  PageMover mover_;
  StepCost cost_;
  int64_t capacity_, tokens_;
  StepPlan plans_[2];
  Stage stages_[2] = {};
  std::vector<PagePools::Freed> freed_[2];  // to be poisoned before that plan's pages are written
  uint64_t begun_[2] = {};                  // its serial number, 0 before it begins
  uint64_t prompt_rows_[2] = {};
  bool counted_[2] = {};                    // among the steps
  int current_ = 0;                         // the plan that begins next
  // What runs beside prefill: of the last plan.
  int32_t last_decodes_ = 0;
  double last_decode_keys_ = 0, last_prefill_context_ = 0;

  std::vector<std::shared_ptr<Request>> live_;     // known to the scheduler
  std::vector<std::shared_ptr<Request>> arrived_;  // taken from the inbox
  struct Leaving {
    std::shared_ptr<Request> request;
    uint64_t serial;
  };
  std::vector<Leaving> leaving_;  // ended, but a step up to that number may hold rows of theirs
  int64_t paused_ = 0;                             // samples whose consumer is slow
  int64_t next_deadline_ns_;

  const std::shared_ptr<Wake> wake_;
  std::vector<std::shared_ptr<Request>> inbox_;  // under wake_->mutex
  std::vector<Errand*> errands_;                 // under wake_->mutex
  std::condition_variable errand_done_;
  bool stop_ = false, held_ = false;             // under wake_->mutex
  std::atomic<int64_t> in_line_{0};              // samples submitted and never run

  uint64_t generated_ = 0;  // in this step
  int64_t counted_ns_ = 0;  // until when step_ns holds the time of steps
  Counters counters_;
  std::thread thread_;
};

}  // namespace orlop
