// orlop_engine_*: creating, waiting, facts.
#include <csignal>

#include <chrono>

#include "api/core.h"

using namespace orlop;
using namespace orlop::api;

namespace {

void run_load(const std::shared_ptr<Loading>& loading, const EngineConfig& config) noexcept {
  try {
    loading->core = Core::load(config, &loading->progress);
  } catch (const Error& e) {
    loading->status = e.status();
    try {
      loading->error = e.text();
    } catch (const std::bad_alloc&) {
    }
  } catch (const std::bad_alloc&) {
    loading->status = Status::out_of_memory;
    loading->error = "out of memory";  // short enough to need none
  } catch (const std::exception& e) {
    loading->status = Status::internal;
    try {
      loading->error = e.what();
    } catch (const std::bad_alloc&) {
    }
  }
  {
    std::lock_guard lock(loading->mutex);
    loading->done.store(true, std::memory_order_release);
  }
  loading->ended.notify_all();
}

orlop_engine* start_load(const char* json, size_t len) {
  const EngineConfig config = parse_engine_config(text_in(json, len, "json"));
  auto engine = std::make_unique<orlop_engine>();
  engine->loading = std::make_shared<Loading>();
  // The loader blocks all signals, and so do the threads it starts.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  engine->loader = std::thread([loading = engine->loading, config] { run_load(loading, config); });
  return engine.release();
}

bool wait_load(Loading& loading, int64_t timeout_us) {
  std::unique_lock lock(loading.mutex);
  const auto ready = [&] { return loading.done.load(std::memory_order_acquire); };
  if (timeout_us == 0) return ready();
  if (wait_is_endless(timeout_us)) {
    loading.ended.wait(lock, ready);
    return true;
  }
  return loading.ended.wait_until(
      lock, std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us), ready);
}

}  // namespace

int32_t orlop_engine_create(const char* json, size_t len, orlop_engine** out, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(out, "out");
    struct Drop {
      orlop_engine* engine;
      ~Drop() { drop(engine); }
    } made{start_load(json, len)};
    wait_load(*made.engine->loading, -1);
    made.engine->core();  // throws why loading failed
    std::swap(*out, made.engine);
    return Status::ok;
  });
}

int32_t orlop_engine_create_async(const char* json, size_t len, orlop_engine** out,
                                  orlop_error* err) {
  return guarded(err, [&] {
    clear_out(out, "out");
    *out = start_load(json, len);
    return Status::ok;
  });
}

int32_t orlop_engine_wait(orlop_engine* engine, int64_t timeout_us, orlop_progress* progress,
                          orlop_error* err) {
  return guarded(err, [&] {
    const Hold<orlop_engine> e(engine, "engine");
    if (progress) checked_struct_size(progress, "progress");
    const bool done = wait_load(*e->loading, timeout_us);
    if (progress) {
      orlop_progress p{};
      p.done = done;
      p.bytes_done = e->loading->progress.bytes_done.load(std::memory_order_relaxed);
      p.bytes_total = e->loading->progress.bytes_total.load(std::memory_order_relaxed);
      write_sized(progress, p);
    }
    if (!done) return Status::timeout;
    e->core();
    return Status::ok;
  });
}

void orlop_engine_release(orlop_engine* engine) {
  if (engine && !engine->foreign()) engine->loading->progress.cancel.store(true, std::memory_order_relaxed);
  drop(engine);
}

int32_t orlop_engine_info(orlop_engine* engine, orlop_buffer** json, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(json, "json");
    const Hold<orlop_engine> e(engine, "engine");
    *json = new_buffer(e->core()->info().dump(2, ' ', false, Json::error_handler_t::replace));
    return Status::ok;
  });
}

int32_t orlop_engine_stats(orlop_engine* engine, orlop_stats* out, orlop_error* err) {
  return guarded(err, [&] {
    checked_struct_size(out, "out");
    const Hold<orlop_engine> e(engine, "engine");
    const EngineStats s = e->core()->engine().stats();
    orlop_stats o{};
    o.requests_running = static_cast<uint32_t>(s.running);
    o.requests_waiting = static_cast<uint32_t>(s.waiting);
    o.pages_total = s.pages_total;
    o.pages_used = s.pages_used;
    o.steps = s.steps;
    o.prompt_tokens = s.prompt_tokens;
    o.generated_tokens = s.generated_tokens;
    o.requests_finished = s.finished;
    o.preemptions = s.preemptions;
    o.step_ns_total = s.step_ns;
    o.model_ns_total = s.model_ns;
    o.pages_cached = s.pages_cached;
    o.pages_free = s.pages_free;
    o.prefix_lookup_tokens = s.prefix_lookup_tokens;
    o.prefix_hit_tokens = s.prefix_hit_tokens;
    o.host_pages_total = s.host_pages_total;
    o.host_pages_used = s.host_pages_used;
    o.host_pages_out = s.host_pages_out;
    o.host_pages_in = s.host_pages_in;
    o.requests_paused = s.paused;
    o.prompt_tokens_per_s = s.prompt_tokens_per_s;
    o.generated_tokens_per_s = s.generated_tokens_per_s;
    o.plan_ns_total = s.plan_ns;
    o.forward_ns_total = s.forward_ns;
    o.sample_ns_total = s.sample_ns;
    o.commit_ns_total = s.commit_ns;
    o.last_step_ns = s.last_step_ns;
    o.pages_shared = s.pages_shared;
    write_sized(out, o);
    return Status::ok;
  });
}
