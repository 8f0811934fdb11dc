"""/stats: what the live page draws, as one JSON object.

    state          "loading", "ready", "draining" or "failed"
    progress       {"done", "total"} bytes while loading (total 0 until known), else null
    error          why loading failed, else null
    version        of orlop
    uptime         seconds since the server started
    model          the served name; models: all names that requests may give
    time           seconds since the epoch, of this answer
  null until the state is "ready":
    engine         {"arch", "device", "kernels", "compute", "quant", "threads", "weight_bytes",
                   "layers", "dim", "vocab", "context", "kv_dtype", "kv_bytes", "block_size",
                   "max_running", "max_waiting", "prefix_cache", "guided", "chat",
                   "sampling": {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}}
                   guided: whether guided decoding is allowed; chat: whether there is a chat template;
                   sampling: what a request that says nothing gets
    stats          Engine.stats as it is: requests_running, requests_waiting, requests_paused,
                   requests_finished, pages_total, pages_used, pages_cached, pages_free,
                   host_pages_total, host_pages_used, host_pages_out, host_pages_in,
                   prefix_lookup_tokens, prefix_hit_tokens, prompt_tokens, generated_tokens,
                   prompt_tokens_per_second, generated_tokens_per_second, preemptions, steps,
                   step_seconds, model_seconds, plan_seconds, forward_seconds, sample_seconds,
                   commit_seconds (totals since the start), last_step_seconds
  always:
    requests       counts since the start, of generations and embeddings: {"active", "completed",
                   "failed", "cancelled", "rejected"}
    latency        {"ttft", "inter_token", "e2e", "queue"}: each {"count", "p50", "p90", "p99", "max"}
                   in seconds over the last 1,000 values (null where there is none), and "histogram":
                   {"le": [upper bounds, the last one null], "counts": [of each bucket, since the start]}
    live           up to 256 requests that run or wait, oldest first: {"id", "endpoint", "state" ("waiting" or
                   "running"), "samples", "prompt_tokens", "cached_tokens" (found in the prefix cache),
                   "generated_tokens", "age" (seconds), "stream"}
    live_more      how many more there are

A page of KV holds block_size tokens of one sequence; a live request holds about
(prompt_tokens + generated_tokens) / block_size, of which cached_tokens / block_size are shared with the
prefix cache. With API keys the request must carry one, as under /v1.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime import Runtime

most_live = 256


def stats(runtime: Runtime) -> dict[str, Any]:
    metrics = runtime.metrics
    out: dict[str, Any] = {
        "state": runtime.state,
        "progress": None,
        "error": runtime.failure,
        "version": runtime.version,
        "uptime": time.monotonic() - runtime.started,
        "model": runtime.default_name,
        "models": runtime.names(),
        "time": time.time(),
        "engine": None,
        "stats": None,
        "requests": {
            "active": len(runtime.live),
            "completed": metrics.completed,
            "failed": metrics.failed,
            "cancelled": metrics.cancelled,
            "rejected": metrics.rejected,
        },
        "latency": {name: series.summary() for name, series in metrics.series.items()},
        "live": _live(runtime),
        "live_more": max(0, len(runtime.live) - most_live),
    }
    if runtime.state == "loading":
        done, total = runtime.progress
        out["progress"] = {"done": done, "total": total}
    if runtime.facts is not None:
        out["engine"] = runtime.facts
        out["stats"] = runtime.engine_stats()
    return out


def _live(runtime: Runtime) -> list[dict[str, Any]]:
    now = time.monotonic()
    out: list[dict[str, Any]] = []
    for job in runtime.live.values():
        if len(out) == most_live:
            break
        statuses = [request.status for request in job.requests]
        if not statuses:
            continue
        out.append(
            {
                "id": job.id,
                "endpoint": job.endpoint,
                "state": "waiting" if all(s.state == "waiting" for s in statuses) else "running",
                "samples": job.samples,
                "prompt_tokens": sum(s.prompt_tokens for s in statuses),
                "cached_tokens": sum(s.cached_tokens for s in statuses),
                "generated_tokens": sum(s.generated_tokens for s in statuses),
                "age": now - job.start,
                "stream": job.stream,
            }
        )
    return out
