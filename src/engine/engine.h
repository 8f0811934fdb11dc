// The engine: one owner thread that plans, runs and commits steps. Requests come through an inbox;
// everything else here belongs to that thread or is atomic.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
};

struct EngineStats {
  uint64_t running, waiting, pages_total, pages_used, steps, prompt_tokens, generated_tokens,
      finished, preemptions, step_ns, model_ns;
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
  // Error(queue_full). The request must fit capacity().
  void submit(std::shared_ptr<Request> request);
  const std::shared_ptr<Wake>& wake() const { return wake_; }
  EngineStats stats() const noexcept;

 private:
  void loop() noexcept;
  bool wait_for_work();
  void take_inbox();
  void end_cancelled();
  void step();
  void welcome(const StepPlan& plan, int64_t now_ns);
  void finish_step(const StepPlan& plan);
  void fail_step(const StepPlan& plan, Status status, const std::string& text) noexcept;
  void fail_all(Status status, const std::string& text) noexcept;
  void retire(Request& request) noexcept;  // publishes its end; pages are free before
  void update_counts() noexcept;
  void drawn(Request&, const SampleResult&, const TokenLogprob* top) override;
  void scored(Request&, int32_t position, const SampleResult&, const TokenLogprob* top) override;

  Model& model_;
  const EngineOptions options_;
  PagePools pages_;
  Scheduler scheduler_;
  Runner runner_;
  int64_t capacity_;
  StepPlan plan_;
  std::vector<std::shared_ptr<Request>> live_;     // in the scheduler
  std::vector<std::shared_ptr<Request>> arrived_;  // taken from the inbox
  uint64_t next_arrival_ = 0;

  const std::shared_ptr<Wake> wake_;
  std::vector<std::shared_ptr<Request>> inbox_;  // under wake_->mutex
  size_t waiting_limit_used_ = 0;                // under wake_->mutex: submitted, not yet run
  bool stop_ = false;                            // under wake_->mutex

  struct Counters {
    std::atomic<uint64_t> running{0}, waiting{0}, pages_used{0}, steps{0}, prompt_tokens{0},
        generated_tokens{0}, finished{0}, preemptions{0}, step_ns{0}, model_ns{0};
  } counters_;
  uint64_t pages_total_;
  std::thread thread_;
};

}  // namespace orlop
