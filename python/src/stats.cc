#include "stats.h"

#include "output.h"

namespace nb = nanobind;

namespace orlop_py {

nb::dict stats_dict(const orlop_stats& stats) {
  nb::dict out;
  out["requests_running"] = stats.requests_running;
  out["requests_waiting"] = stats.requests_waiting;
  out["pages_total"] = stats.pages_total;
  out["pages_used"] = stats.pages_used;
  out["pages_shared"] = stats.pages_shared;
  out["steps"] = stats.steps;
  out["prompt_tokens"] = stats.prompt_tokens;
  out["generated_tokens"] = stats.generated_tokens;
  out["requests_finished"] = stats.requests_finished;
  out["preemptions"] = stats.preemptions;
  out["pages_cached"] = stats.pages_cached;
  out["pages_free"] = stats.pages_free;
  out["prefix_lookup_tokens"] = stats.prefix_lookup_tokens;
  out["prefix_hit_tokens"] = stats.prefix_hit_tokens;
  out["host_pages_total"] = stats.host_pages_total;
  out["host_pages_used"] = stats.host_pages_used;
  out["host_pages_out"] = stats.host_pages_out;
  out["host_pages_in"] = stats.host_pages_in;
  out["requests_paused"] = stats.requests_paused;
  out["prompt_tokens_per_second"] = stats.prompt_tokens_per_s;
  out["generated_tokens_per_second"] = stats.generated_tokens_per_s;
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  out["step_seconds"] = seconds(stats.step_ns_total);
  out["model_seconds"] = seconds(stats.model_ns_total);
  out["plan_seconds"] = seconds(stats.plan_ns_total);
  out["forward_seconds"] = seconds(stats.forward_ns_total);
  out["sample_seconds"] = seconds(stats.sample_ns_total);
  out["commit_seconds"] = seconds(stats.commit_ns_total);
  out["last_step_seconds"] = seconds(stats.last_step_ns);
  return out;
}

nb::dict info_dict(const orlop_request_info& info) {
  nb::dict out;
  out["state"] = info.state;
  out["finish_reason"] = finish_name(info.finish_reason)
                             ? nb::object(nb::str(finish_name(info.finish_reason)))
                             : nb::none();
  out["error_code"] = info.error_code;
  out["prompt_tokens"] = info.prompt_tokens;
  out["cached_tokens"] = info.cached_tokens;
  out["generated_tokens"] = info.generated_tokens;
  out["seed"] = info.seed;
  out["queued_ns"] = info.queued_ns;
  out["scheduled_ns"] = info.scheduled_ns;
  out["first_token_ns"] = info.first_token_ns;
  out["last_token_ns"] = info.last_token_ns;
  out["samples"] = info.samples;
  return out;
}

}  // namespace orlop_py
