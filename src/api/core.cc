#include "api/core.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>

#include "base/checked.h"
#include "base/log.h"
#include "model/warm_up.h"

namespace orlop::api {
namespace {

// Rows of logits held at once: a step with more slices them. On a GPU a slice is a pass over the head's
// weights: there all sequences of a step, up to a number, have their rows at once.
constexpr int32_t logit_rows = 32, own_memory_logit_rows = 512;
// The KV cache's part of the memory that is left: of memory that others need too, and of a GPU's.
constexpr double kv_fraction = 0.25, own_memory_kv_fraction = 0.9;

uint64_t bytes_of_files(const Checkpoint& c) {
  uint64_t sum = 0;
  for (const auto& f : c.files) sum += f->bytes().size();
  return sum;
}

void stop_if_cancelled(const LoadProgress* progress) {
  if (progress && progress->cancel.load(std::memory_order_relaxed))
    fail(Status::cancelled, "the engine was released while it loaded");
}

// The first layers, which n_gpu_layers leaves to the processor.
int32_t layers_below(const EngineConfig& config, const Config& model, const Backend& backend) {
  if (!config.gpu_layers) return 0;
  if (backend.beside_processor()) return std::max(0, model.layers - *config.gpu_layers);
  if (*config.gpu_layers > 0)
    fail(Status::invalid_argument, "n_gpu_layers: ", *config.gpu_layers, " layers on a GPU, and device is \"", config.device, "\"");
  return 0;
}

// What the weights leave of each side's memory.
void estimate_left(std::vector<KvSide>& sides, const Config& model, uint64_t weights) {
  for (size_t i = 0; i < sides.size(); ++i) {
    const uint64_t free = sides[i].part.exec.device->memory_available(), taken = weights_of_side(model, sides, i, weights);
    sides[i].left = free > taken ? free - taken : 0;
  }
}

// The memory that is left once the largest step has run, and what it took for good is taken.
void measure_left(std::vector<KvSide>& sides, Model& model, const KvPlan& plan) {
  try {
    model.allocate_cache(warm_up_pages(model));
    warm_up(model);
    model.allocate_cache(std::vector<int64_t>(model.groups().size(), 0));
  } catch (const Error& e) {
    fail(e.status(), "the first step of step_tokens ", model.limits().max_rows, " and max_running_seqs ", model.limits().max_seqs,
         " does not fit beside ", model.weight_bytes(), " bytes of weights and ", model.workspace_bytes(), " of workspace: ", e.text());
  }
  // The seats are taken already.
  for (size_t i = 0; i < sides.size(); ++i)
    sides[i].left = sides[i].part.exec.device->memory_available() + static_cast<uint64_t>(plan.sides[i].seats_bytes);
}

// Sizes that were left out and depend on others.
void settle(EngineConfig& config, const Config& model, Backend& backend, bool split) {
  constexpr int64_t most = 65536;
  const int64_t context = config.max_context.value_or(model.max_position);
  if (!config.step_tokens)
    config.step_tokens =
        config.chunked ? (backend.own_memory() && !split ? 2048 : 512)
                       : static_cast<int32_t>(std::min(most, context + config.max_running_seqs));
  const auto memory = static_cast<int64_t>(
      std::min<uint64_t>(backend.host_memory(), uint64_t{1} << 60));
  if (config.host_tier && !config.host_tier_bytes)
    config.host_tier_bytes = std::min(int64_t{1} << 30, memory / 2);
  if (config.host_tier && config.host_tier_bytes > memory)
    fail(Status::out_of_memory, "cpu_prefix_bytes: ", config.host_tier_bytes,
         " bytes are more than the ", memory, " that are available");
}

}  // namespace

std::shared_ptr<Core> Core::load(const EngineConfig& given, LoadProgress* progress) {
  const int64_t begin = monotonic_ns();
  auto core = std::make_shared<Core>();
  core->config_ = given;
  EngineConfig& config = core->config_;
  BackendOptions backend_options;
  backend_options.device = config.device;
  backend_options.threads = config.threads;
  backend_options.deterministic = config.deterministic;
  std::shared_ptr<Checkpoint> checkpoint;
  // Beside each other: the driver of a GPU takes a while to start. Where no thread can be had, one after the other.
  std::future<void> files = std::async(std::launch::async | std::launch::deferred, [&] {
    checkpoint = Checkpoint::open(config.model, config.load, config.part);
    stop_if_cancelled(progress);
    core->vocabulary_ = Vocabulary::load(*checkpoint);
  });
  core->backend_ = make_backend(backend_options);
  files.get();
  core->file_bytes_ = bytes_of_files(*checkpoint);
  stop_if_cancelled(progress);
  core->defaults_ = sampling_defaults(read_generation_defaults(*checkpoint));
  const Config model_config = read_config(*checkpoint);
  const bool own_memory = core->backend_->own_memory();
  const int32_t below = layers_below(config, model_config, *core->backend_);
  settle(config, model_config, *core->backend_, below > 0);

  ModelLimits limits;
  const std::optional<Compute> stated = stated_compute(*checkpoint, config.quant);
  core->compute_why_ = config.compute ? "compute"
                       : stated       ? "what the weights are made for"
                                      : "best for this machine";
  limits.quant = config.quant;
  limits.compute = config.compute.value_or(stated.value_or(core->backend_->default_compute()));
  limits.kv_type =
      config.kv_type.value_or(limits.compute == Compute::fp32 ? KvType::f32 : KvType::bf16);
  std::vector<KvSide> sides;
  if (below > 0) {
    core->processor_ = make_backend({.threads = config.threads, .deterministic = config.deterministic});
    const Compute compute = config.compute.value_or(stated.value_or(core->processor_->default_compute()));
    sides.push_back({{core->processor_->exec(), 0, below, compute}, 0, kv_fraction});
  }
  sides.push_back({{core->backend_->exec(), below, model_config.layers, limits.compute}, 0,
                   own_memory ? own_memory_kv_fraction : kv_fraction});
  for (const KvSide& s : sides) core->parts_.push_back(s.part);
  // Quantized at load, weights become smaller than their 16 bits in the file: a bit for the scales.
  const bool shrinks = config.quant.kind == QuantOptions::Kind::dynamic;
  const uint64_t weights =
      shrinks ? core->file_bytes_ / 16 * static_cast<uint64_t>(config.quant.bits + 1) : core->file_bytes_;
  estimate_left(sides, model_config, weights);
  core->kv_ = plan_kv(config, model_config, limits.kv_type, sides);
  limits.max_rows = config.step_tokens;
  limits.max_seqs = config.max_running_seqs;
  limits.max_context = core->kv_.max_context;
  limits.max_logit_rows = std::min(
      own_memory ? std::clamp(config.max_running_seqs, logit_rows, own_memory_logit_rows) : logit_rows, config.step_tokens);
  limits.page_tokens = config.block_size;
  core->model_ = load_model(checkpoint, core->parts_, limits, progress);
  core->identity_ = ModelIdentity(*checkpoint);
  checkpoint.reset();

  core->end_tokens_ = core->model_->config().eos;
  for (const int32_t id : core->vocabulary_.end_tokens())
    if (id < core->vocab()) core->end_tokens_.push_back(id);
  std::sort(core->end_tokens_.begin(), core->end_tokens_.end());
  core->end_tokens_.erase(std::unique(core->end_tokens_.begin(), core->end_tokens_.end()),
                          core->end_tokens_.end());

  core->guides_ = std::make_unique<Guides>(core->vocabulary_.tokenizer_or_null(), core->vocab(),
                                           core->end_tokens_,
                                           template_tool_format(core->vocabulary_.template_text()));
  if (config.guides_ready) core->guides_->prepare();

  EngineOptions options;
  if (own_memory && !config.kv_bytes) {
    measure_left(sides, *core->model_, core->kv_);
    core->kv_ = plan_kv(config, model_config, limits.kv_type, sides);
  }
  options.step_tokens = config.step_tokens;
  options.max_running = config.max_running_seqs;
  options.max_waiting = config.max_waiting;
  options.pages = core->kv_.pages;
  options.watermark = std::max<int64_t>(1, core->kv_.pages[0] / 100);
  options.poison = config.debug_poison;
  options.prefix_cache = config.prefix_cache;
  options.host_tier_bytes = config.host_tier ? static_cast<size_t>(config.host_tier_bytes) : 0;
  options.fcfs = config.fcfs;
  options.itl_target_ns = static_cast<int64_t>(config.itl_target_ms * 1e6);
  options.output_bytes = static_cast<size_t>(config.output_bytes);
  options.plan_ahead = config.plan_ahead;
  options.run_ahead = config.run_ahead;
  try {
    core->model_->allocate_cache(options.pages);
  } catch (const Error& e) {
    fail(e.status(), "kv_bytes: ", core->kv_.bytes, " bytes of KV cache: ", e.text());
  }
  core->engine_ = std::make_unique<Engine>(*core->model_, options);
  const std::vector<int64_t>& slots = core->engine_->host_slots();
  if (config.host_tier && *std::max_element(slots.begin(), slots.end()) == 0)
    fail(Status::invalid_argument, "cpu_prefix_bytes: ", options.host_tier_bytes,
         " is less than one page of ", core->kv_.groups[0].page_bytes, " bytes");
  core->load_seconds_ = static_cast<double>(monotonic_ns() - begin) * 1e-9;

  log_info("model ", config.model, ": ", model_config.arch, ", ", core->model_->weight_bytes(),
           " bytes of weights, compute ", name(limits.compute));
  log_info("backend: ", core->backend_->describe(), "; ", core->backend_->threads(),
           " threads: ", core->backend_->threads_why());
  if (core->processor_)
    log_info("layers 0 to ", below - 1, " of ", model_config.layers, ", compute ", name(sides[0].part.compute), ": ",
             core->processor_->describe());
  log_info("KV cache: ", core->kv_.pages_in_all(), " pages of ", config.block_size, " tokens, ",
           core->kv_.bytes, " bytes (", core->kv_.why, "); context ", core->kv_.max_context);
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
  j["compute_why"] = compute_why_;
  const WeightFacts weights = model_->weight_facts();
  j["quant"] = weights.quant;
  j["weights"] = weights.elements;
  j["kernels"] = backend_->describe();
  j["threads"] = backend_->threads();
  j["threads_why"] = backend_->threads_why();
  if (backend_->beside_processor()) j["n_gpu_layers"] = parts_.back().end - parts_.back().begin;
  if (processor_)  // the layers below those
    j["processor"] = {{"layers", parts_.front().end},
                      {"compute", name(parts_.front().compute)},
                      {"kernels", processor_->describe()},
                      {"weight_bytes", model_->part_weight_bytes().front()},
                      {"kv_bytes", kv_.sides.front().bytes}};
  j["load"] = config_.load == LoadMode::read ? "read" : "mmap";
  j["file_bytes"] = file_bytes_;
  j["weight_bytes"] = model_->weight_bytes();
  j["workspace_bytes"] = model_->workspace_bytes();
  Json groups = Json::array();
  for (size_t g = 0; g < kv_.groups.size(); ++g)
    groups.push_back({{"window", kv_.groups[g].window},
                      {"layers", kv_.groups[g].layers.size()},
                      {"pages", kv_.pages[g]},
                      {"page_bytes", kv_.groups[g].page_bytes},
                      {"host_pages", engine_->host_slots()[g]},
                      {"tokens", kv_.tokens(g, l.page_tokens)}});
  j["kv"] = {{"dtype", name(l.kv_type)},
             {"block_size", l.page_tokens},
             {"groups", groups},
             {"pages", kv_.pages_in_all()},
             {"seats_bytes", kv_.seats_bytes},
             {"bytes", kv_.bytes},
             {"tokens", engine_->tokens()},
             {"why", kv_.why}};
  j["prefix_cache"] = config_.prefix_cache;
  j["host_tier_bytes"] = config_.host_tier ? config_.host_tier_bytes : 0;
  j["limits"] = {{"max_context", l.max_context},
                 {"request_tokens", engine_->capacity()},
                 {"max_running_seqs", config_.max_running_seqs},
                 {"max_waiting", config_.max_waiting},
                 {"step_tokens", config_.step_tokens},
                 {"itl_target_ms", config_.itl_target_ms},
                 {"output_bytes", config_.output_bytes}};
  j["scheduling"] = config_.fcfs ? "fcfs" : "fair";
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
