// A loaded engine: backend, model, text side and owner thread, joined. And its loading.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/config.h"
#include "api/guard.h"
#include "api/guides.h"
#include "api/identity.h"
#include "api/kv_plan.h"
#include "api/vocabulary.h"
#include "backend/backend.h"
#include "base/json.h"
#include "engine/engine.h"
#include "format/state.h"
#include "model/model.h"

namespace orlop::api {

class Core {
 public:
  static std::shared_ptr<Core> load(const EngineConfig& config, LoadProgress* progress);

  Engine& engine() { return *engine_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  Guides& guides() { return *guides_; }
  const SamplingDefaults& defaults() const { return defaults_; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  int32_t vocab() const { return model_->config().vocab; }
  int64_t max_context() const { return model_->limits().max_context; }
  Json info() const;
  const EngineConfig& config() const { return config_; }
  const Model& model() const { return *model_; }
  // What ties a saved state to this engine, by name. Reads the weights at the first call.
  StateFields state_fields() const;

 private:
  // Destroyed from the last to the first: the thread ends before the model it uses.
  EngineConfig config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> processor_;  // the layers that n_gpu_layers leaves; null: there are none
  std::vector<Part> parts_;
  std::unique_ptr<Model> model_;
  Vocabulary vocabulary_;
  std::unique_ptr<Guides> guides_;
  ModelIdentity identity_;
  SamplingDefaults defaults_;
  std::vector<int32_t> end_tokens_;
  std::string compute_why_;
  KvPlan kv_;
  uint64_t file_bytes_ = 0;
  double load_seconds_ = 0;
  std::unique_ptr<Engine> engine_;
};

// One load under way or ended. The thread keeps it alive.
struct Loading {
  LoadProgress progress;
  std::mutex mutex;
  std::condition_variable ended;
  std::atomic<bool> done{false};
  // Written before done, read after it.
  Status status = Status::ok;
  std::string error;
  std::shared_ptr<Core> core;
};

}  // namespace orlop::api

struct orlop_engine : orlop::api::Counted {
  std::shared_ptr<orlop::api::Loading> loading;
  std::thread loader;
  ~orlop_engine();
  // The loaded core. Error(busy) while loading, else why loading failed.
  const std::shared_ptr<orlop::api::Core>& core() const;
};

struct orlop_queue : orlop::api::Counted {
  std::shared_ptr<orlop::CompletionQueue> queue;
};

struct orlop_request : orlop::api::Counted {
  std::shared_ptr<orlop::Request> request;
  uint32_t ends = 0;  // samples whose last output was taken; the consumer's
  // Until the last output was taken; by then the engine may go.
  std::shared_ptr<orlop::api::Core> core;
};
