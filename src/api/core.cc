#include "api/core.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/checked.h"
#include "base/log.h"

namespace orlop::api {
namespace {

// Rows of logits held at once: a step with more slices them.
constexpr int32_t logit_rows = 32;

uint64_t bytes_of_files(const Checkpoint& c) {
  uint64_t sum = 0;
  for (const auto& f : c.files) sum += f->bytes().size();
  return sum;
}

void stop_if_cancelled(const LoadProgress* progress) {
  if (progress && progress->cancel.load(std::memory_order_relaxed))
    fail(Status::cancelled, "the engine was released while it loaded");
}

}  // namespace

// How many pages there are and how long a request may be.
Core::KvPlan Core::plan_kv(const EngineConfig& config, const Config& model, const Exec& exec,
                           KvType type, uint64_t weight_file_bytes) {
  KvPlan plan;
  const KvDesc desc{type, model.kv_heads, model.head_dim, config.block_size};
  plan.page_bytes = checked_mul<int64_t>(
      checked_cast<int64_t>(exec.kernels->kv_page_bytes(desc), "KV page bytes"), model.layers,
      "KV page bytes");
  if (config.max_context && *config.max_context > model.max_position)
    fail(Status::invalid_argument, "max_context: ", *config.max_context,
         " is more than the model's ", model.max_position, " positions");
  const int64_t context = config.max_context.value_or(model.max_position);
  // Cache slots are 32-bit numbers.
  const int64_t most = std::numeric_limits<int32_t>::max() / config.block_size - 1;
  if (config.kv_bytes) {
    plan.pages = std::min(*config.kv_bytes / plan.page_bytes, most);
    plan.why = "kv_bytes";
    if (plan.pages < 1)
      fail(Status::invalid_argument, "kv_bytes: ", *config.kv_bytes, " is less than one page of ",
           plan.page_bytes, " bytes");
  } else {
    // What all sequences can use at their longest, but at most a quarter of the memory that the
    // weights leave; pages take real memory only once they are used.
    const int64_t full = checked_mul<int64_t>(div_up<int64_t>(context, config.block_size),
                                              config.max_running_seqs, "KV pages");
    const uint64_t free = exec.device->memory_available();
    const uint64_t left = free > weight_file_bytes ? free - weight_file_bytes : 0;
    const auto quarter = static_cast<int64_t>(std::min<uint64_t>(left / 4, uint64_t{1} << 62) /
                                              static_cast<uint64_t>(plan.page_bytes));
    plan.pages = std::min(std::min(full, most), std::max<int64_t>(quarter, 1));
    plan.why =
        plan.pages < full ? "a quarter of the free memory" : "max_running_seqs times max_context";
  }
  plan.max_context =
      config.max_context
          ? *config.max_context
          : static_cast<int32_t>(std::min<int64_t>(
                context, checked_mul<int64_t>(plan.pages, config.block_size, "KV tokens")));
  return plan;
}

std::shared_ptr<Core> Core::load(const EngineConfig& config, LoadProgress* progress) {
  const int64_t begin = monotonic_ns();
  auto core = std::make_shared<Core>();
  core->config_ = config;
  BackendOptions backend_options;
  backend_options.device = config.device;
  backend_options.threads = config.threads;
  core->backend_ = make_backend(backend_options);
  core->exec_ = core->backend_->exec();

  std::shared_ptr<Checkpoint> checkpoint = Checkpoint::open(config.model, config.load);
  stop_if_cancelled(progress);
  core->file_bytes_ = bytes_of_files(*checkpoint);
  core->vocabulary_ = Vocabulary::load(*checkpoint);
  stop_if_cancelled(progress);
  core->defaults_ = sampling_defaults(read_generation_defaults(*checkpoint));
  const Config model_config = read_config(*checkpoint);

  ModelLimits limits;
  limits.compute = config.compute.value_or(core->backend_->default_compute());
  limits.kv_type =
      config.kv_type.value_or(limits.compute == Compute::fp32 ? KvType::f32 : KvType::bf16);
  core->kv_ = plan_kv(config, model_config, core->exec_, limits.kv_type, core->file_bytes_);
  limits.max_rows = config.step_tokens;
  limits.max_seqs = config.max_running_seqs;
  limits.max_context = core->kv_.max_context;
  limits.max_logit_rows = std::min(logit_rows, config.step_tokens);
  limits.page_tokens = config.block_size;
  core->model_ = load_model(checkpoint, core->exec_, limits, progress);
  checkpoint.reset();

  core->end_tokens_ = core->model_->config().eos;
  for (const int32_t id : core->vocabulary_.end_tokens())
    if (id < core->vocab()) core->end_tokens_.push_back(id);
  std::sort(core->end_tokens_.begin(), core->end_tokens_.end());
  core->end_tokens_.erase(std::unique(core->end_tokens_.begin(), core->end_tokens_.end()),
                          core->end_tokens_.end());

  EngineOptions options;
  options.step_tokens = config.step_tokens;
  options.max_running = config.max_running_seqs;
  options.max_waiting = config.max_waiting;
  options.pages.assign(core->model_->groups().size(), core->kv_.pages);
  options.watermark = std::max<int64_t>(1, core->kv_.pages / 100);
  options.poison = config.debug_poison;
  core->model_->allocate_cache(options.pages);
  core->engine_ = std::make_unique<Engine>(*core->model_, options);
  core->load_seconds_ = static_cast<double>(monotonic_ns() - begin) * 1e-9;

  log_info("model ", config.model, ": ", model_config.arch, ", ", core->model_->weight_bytes(),
           " bytes of weights, compute ", name(limits.compute));
  log_info("backend: ", core->backend_->describe(), "; ", core->backend_->threads(),
           " threads: ", core->backend_->threads_why());
  log_info("KV cache: ", core->kv_.pages, " pages of ", config.block_size, " tokens, ",
           core->kv_.pages * core->kv_.page_bytes, " bytes (", core->kv_.why, "); context ",
           core->kv_.max_context);
  log_info("ready in ", core->load_seconds_, " s");
  return core;
}

Json Core::info() const {
  const Config& c = model_->config();
  const ModelLimits& l = model_->limits();
  Json j;
  j["version"] = ORLOP_VERSION;
  j["model"] = config_.model;
  j["name"] = c.model_name;
  j["arch"] = c.arch;
  j["layers"] = c.layers;
  j["dim"] = c.dim;
  j["heads"] = c.heads;
  j["kv_heads"] = c.kv_heads;
  j["head_dim"] = c.head_dim;
  j["vocab"] = c.vocab;
  j["max_position"] = c.max_position;
  j["device"] = config_.device;
  j["compute"] = name(l.compute);
  j["compute_why"] = config_.compute ? "compute" : "best for this machine";
  j["kernels"] = backend_->describe();
  j["threads"] = backend_->threads();
  j["threads_why"] = backend_->threads_why();
  j["load"] = config_.load == LoadMode::read ? "read" : "mmap";
  j["file_bytes"] = file_bytes_;
  j["weight_bytes"] = model_->weight_bytes();
  j["workspace_bytes"] = model_->workspace_bytes();
  j["kv"] = {{"dtype", name(l.kv_type)},
             {"block_size", l.page_tokens},
             {"groups", model_->groups().size()},
             {"pages", kv_.pages},
             {"page_bytes", kv_.page_bytes},
             {"bytes", kv_.pages * kv_.page_bytes},
             {"tokens", kv_.pages * l.page_tokens},
             {"why", kv_.why}};
  j["limits"] = {{"max_context", l.max_context},
                 {"request_tokens", engine_->capacity()},
                 {"max_running_seqs", config_.max_running_seqs},
                 {"max_waiting", config_.max_waiting},
                 {"step_tokens", config_.step_tokens}};
  j["sampling"] = {{"source", defaults_.source},
                   {"stated", defaults_.from_checkpoint},
                   {"temperature", defaults_.temperature},
                   {"top_p", defaults_.top_p},
                   {"top_k", defaults_.top_k},
                   {"min_p", defaults_.min_p},
                   {"repetition_penalty", defaults_.repetition_penalty}};
  j["bos"] = c.bos;
  j["eos"] = end_tokens_;
  j["tokenizer"] = vocabulary_.tokenizer_or_null() != nullptr;
  j["chat_template"] = vocabulary_.has_template();
  j["load_seconds"] = load_seconds_;
  return j;
}

}  // namespace orlop::api

orlop_engine::~orlop_engine() {
  if (loading) loading->progress.cancel.store(true, std::memory_order_relaxed);
  if (!loader.joinable()) return;
  // A log sink may release the engine that is loading: the loader cannot wait for itself, and needs
  // nothing of this handle.
  if (loader.get_id() == std::this_thread::get_id())
    loader.detach();
  else
    loader.join();
}

const std::shared_ptr<orlop::api::Core>& orlop_engine::core() const {
  if (!loading->done.load(std::memory_order_acquire))
    orlop::fail(orlop::Status::busy, "the engine is still loading");
  if (loading->status != orlop::Status::ok) throw orlop::Error(loading->status, loading->error);
  return loading->core;
}
